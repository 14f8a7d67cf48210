"""The decisions: given a job, what happened and the time, what follows.

Owns: which state allows which verb, and where each failure, lapse, expiry and conflict leads (contract §3 and §4).
Invariant: everything here is pure; no clock, no database, no randomness but what is passed in. SQL finds candidates
and applies a `Move` with a compare-and-set; it decides nothing. Times are wall-clock µs unless said otherwise.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import NamedTuple, Protocol

from litequeue.errors import first_line
from litequeue.model import Edit, JobState, OnConflict, OnParentFailure, Transition

EXPIRED = "expired"
LEASE_EXPIRED = "lease expired"
WORKER_DIED = "worker died"
PARENTS_ENDED = "all that it waited for has ended"
PULLED_IN = "the wall clock stepped back: the pause begins anew"


class Verb(StrEnum):
    """What may be asked of a job that exists."""

    LEASE = "lease"
    EXTEND = "extend"
    CHECKPOINT = "checkpoint"
    NOTE = "note"
    COMPLETE = "complete"
    FAIL = "fail"
    RELEASE = "release"
    REAP = "reap"
    PROMOTE = "promote"
    EXPIRE = "expire"
    CANCEL = "cancel"
    RETRY = "retry"
    EDIT = "edit"
    REMOVE = "remove"
    PRUNE = "prune"


_HELD = frozenset({JobState.LEASED})
_GATED = frozenset({JobState.RETRYABLE, JobState.SCHEDULED})
_CHAINED = frozenset({JobState.WAITING})
_WAITING = _GATED | _CHAINED | {JobState.PENDING}
_TERMINAL = frozenset({JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED})

ALLOWED: dict[Verb, frozenset[JobState]] = {
    Verb.LEASE: frozenset({JobState.PENDING}),
    Verb.EXTEND: _HELD,
    Verb.CHECKPOINT: _HELD,
    Verb.NOTE: _HELD,
    Verb.COMPLETE: _HELD,
    Verb.FAIL: _HELD,
    Verb.RELEASE: _HELD,
    Verb.REAP: _HELD,
    Verb.PROMOTE: _GATED | _CHAINED,
    Verb.EXPIRE: _WAITING,
    Verb.CANCEL: _WAITING | _HELD,
    Verb.RETRY: _TERMINAL | _GATED | _CHAINED,
    Verb.EDIT: _WAITING,
    Verb.REMOVE: _TERMINAL,
    Verb.PRUNE: _TERMINAL,
}
"""The states in which each verb may act; in every other state it is refused and changes nothing."""


class Retentions(Protocol):
    """How long a kind's finished jobs stay; `KindSettings` has these."""

    @property
    def completed_retention_us(self) -> int | None:
        """After completion."""
        ...

    @property
    def cancelled_retention_us(self) -> int | None:
        """After a cancel."""
        ...

    @property
    def dead_retention_us(self) -> int | None:
        """After death."""
        ...


class Facts(Protocol):
    """What a decision needs to know of a job; a stored row has these."""

    @property
    def attempts(self) -> int:
        """Leases taken, the present one included."""
        ...

    @property
    def reaps(self) -> int:
        """Of those, how many ended in a reap."""
        ...

    @property
    def created_at(self) -> int:
        """When it was enqueued."""
        ...

    @property
    def not_before(self) -> int | None:
        """Its gate."""
        ...

    @property
    def expires_at(self) -> int | None:
        """When it must have started."""
        ...


class Finished(Protocol):
    """What there is to know of a job that has ended."""

    @property
    def finished_at(self) -> int | None:
        """When it ended."""
        ...

    @property
    def idempotency_key(self) -> str | None:
        """Its key."""
        ...


class Move(NamedTuple):
    """Where a job goes, and what is written on the way."""

    to: JobState
    attempts: int
    reaps: int
    not_before: int | None = None
    expires_at: int | None = None
    finished_at: int | None = None
    events: tuple[tuple[Transition, str], ...] = ()
    error: str | None = None
    """The run's error to keep, when this ends a run badly."""


def may_act(verb: Verb, state: JobState) -> bool:
    """Tell whether the verb may act on a job in this state."""
    return state in ALLOWED[verb]


def is_lapsed(lease_deadline: int, lease_now: int) -> bool:
    """Tell whether a lease has lapsed, both times by the lease clock."""
    return lease_deadline <= lease_now


def is_expired(job: Facts, now: int) -> bool:
    """Tell whether a job that is not running can no longer start in time."""
    return job.expires_at is not None and job.expires_at <= now


def is_leased_alone(job: Facts) -> bool:
    """Tell whether a job must not share a batch: it has been reaped before, so it may kill its holder (V3)."""
    return job.reaps > 0


def complete(job: Facts, now: int) -> Move:
    """Decide after a run that succeeded."""
    return Move(
        JobState.COMPLETED,
        job.attempts,
        job.reaps,
        expires_at=job.expires_at,
        finished_at=_finished(job, now),
        events=((Transition.COMPLETED, ""),),
    )


def fail(job: Facts, now: int, *, max_attempts: int, pause_us: int, retryable: bool, error: str) -> Move:
    """Decide after a run that failed: again after `pause_us`; or dead: not retryable, out of attempts or too late."""
    failed = (Transition.FAILED, first_line(error))
    if not retryable:
        return _dead(job, now, failed, (Transition.DEAD, "not retryable"), error=error)
    return _again_or_dead(job, now, failed, error=error, max_attempts=max_attempts, pause_us=pause_us)


def is_retaken(job: Facts, move: Move, now: int, *, within_us: int) -> bool:
    """Tell whether the worker of a failed run waits its pause out itself, for which it waits up to `within_us`.

    A job that dies, or will be too late to start when its pause is over, is not; nor is any where it waits for none.
    """
    if move.to is not JobState.RETRYABLE or move.not_before is None or move.not_before - now > within_us:
        return False
    return within_us > 0 and (job.expires_at is None or move.not_before < job.expires_at)


def reap(job: Facts, now: int, *, cause: str, max_attempts: int, pause_us: int) -> Move:
    """Decide after a lease lapsed or its worker died: again after `pause_us`, or dead when out of attempts or late."""
    reaped = (Transition.REAPED, cause)
    return _again_or_dead(
        job, now, reaped, error=cause, max_attempts=max_attempts, pause_us=pause_us, reaps=job.reaps + 1
    )


def release(job: Facts, now: int, *, delay_us: int) -> Move:
    """Decide for a job given back untouched: the attempt does not count; too late to start again is dead."""
    attempts = job.attempts - 1
    if is_expired(job, now):
        return Move(
            JobState.DEAD,
            attempts,
            job.reaps,
            expires_at=job.expires_at,
            finished_at=_finished(job, now),
            events=((Transition.RELEASED, ""), (Transition.EXPIRED, "")),
            error=EXPIRED,
        )
    return Move(
        JobState.SCHEDULED if delay_us else JobState.PENDING,
        attempts,
        job.reaps,
        not_before=now + delay_us if delay_us else None,
        expires_at=job.expires_at,
        events=((Transition.RELEASED, _seconds(delay_us) if delay_us else ""),),
    )


def promote(job: Facts, now: int) -> Move:
    """Decide for a job whose gate is past: ready, or dead when it is too late to start."""
    if is_expired(job, now):
        return expire(job, now)
    return Move(
        JobState.PENDING,
        job.attempts,
        job.reaps,
        expires_at=job.expires_at,
        events=((Transition.PROMOTED, ""),),
    )


def let_go(job: Facts, now: int, *, not_before: int | None) -> Move:
    """Decide for a job that no longer waits for any other: ready, or delayed still; dead when it is too late."""
    if is_expired(job, now):
        return expire(job, now)
    to, opens_at = gate(not_before, now)
    return Move(
        to,
        job.attempts,
        job.reaps,
        not_before=opens_at,
        expires_at=job.expires_at,
        events=((Transition.PROMOTED, PARENTS_ENDED),),
    )


def is_cancelled_by(parent_state: JobState, on_parent_failure: OnParentFailure) -> bool:
    """Tell whether a waiting job is cancelled because of how a parent has ended."""
    return on_parent_failure == "cancel" and parent_state is not JobState.COMPLETED


def expire(job: Facts, now: int) -> Move:
    """Bury a job that was not started in time."""
    return _dead(job, now, (Transition.EXPIRED, ""), error=EXPIRED)


def bury(job: Facts, now: int, cause: str) -> Move:
    """Bury a job whose record cannot be read, so that nobody can ever run it."""
    return _dead(job, now, (Transition.DEAD, cause), error=cause)


def cancel(job: Facts, now: int, cause: str = "") -> Move:
    """Stop a job, for an operator unless there is another cause."""
    return Move(
        JobState.CANCELLED,
        job.attempts,
        job.reaps,
        expires_at=job.expires_at,
        finished_at=_finished(job, now),
        events=((Transition.CANCELLED, cause),),
    )


def retry(job: Facts, state: JobState) -> Move:
    """Run a job for an operator: a finished one starts anew, one that waits, for a time or for others, goes now."""
    starts_anew = state in _TERMINAL
    return Move(
        JobState.PENDING,
        attempts=0 if starts_anew else job.attempts,
        reaps=0 if starts_anew else job.reaps,
        expires_at=None if starts_anew else job.expires_at,
        events=((Transition.RETRIED, f"was {state.name.lower()}"),),
    )


class Edited(NamedTuple):
    """Where a job stands that was edited, and what is logged of it."""

    to: JobState
    priority: int
    not_before: int | None
    events: tuple[tuple[Transition, str], ...]


def edit(state: JobState, priority: int, not_before: int | None, change: Edit, now: int) -> Edited:
    """Change where a job waits, for an operator: its priority, its gate or both; a gate that is given is a date.

    So a job that waits out its back-off is scheduled from then on, and ready when the date is past. One that waits for
    other jobs goes on waiting for them, and the date counts once they have ended.
    """
    said = [] if change.priority is None else [f"priority {change.priority}"]
    given = change.not_before(now)
    to, opens = state, not_before
    if given is not None:
        stands, opens = gate(given, now)
        said.append("now" if opens is None else _seconds(opens - now))
        to, opens = (state, None) if state in _CHAINED else (stands, opens)
    most = priority if change.priority is None else change.priority
    return Edited(to, most, opens, ((Transition.EDITED, ", ".join(said)),))


def gate(not_before: int | None, now: int) -> tuple[JobState, int | None]:
    """Where a job that is not to run before `not_before` waits; a gate in the past is none."""
    if not_before is None or not_before <= now:
        return JobState.PENDING, None
    return JobState.SCHEDULED, not_before


class Repeat(Enum):
    """What an enqueue does that meets a job with its id or key."""

    EXISTING = auto()
    """Answer with the job that is there."""
    REFUSE = auto()
    """Raise `DuplicateJob`."""
    REQUEUE = auto()
    """The same row, queued anew."""
    RESET = auto()
    """The waiting job takes the new payload, priority and times, and keeps its place."""
    KEEP_TRIGGER = auto()
    """The job is running: the trigger waits beside it for the run to end."""
    NEW = auto()
    """Make another job."""


def repeat_of_id(state: JobState, *, same_target: bool) -> Repeat:
    """Decide for an enqueue whose `job_id` exists; `same_target` when scope and kind agree (V1)."""
    if not same_target:
        return Repeat.REFUSE
    return Repeat.REQUEUE if state in (JobState.DEAD, JobState.CANCELLED) else Repeat.EXISTING


def repeat_of_key(state: JobState, on_conflict: OnConflict) -> Repeat:
    """Decide for an enqueue whose key belongs to a job, active or completed within the window (V2)."""
    match on_conflict:
        case "return":
            return Repeat.EXISTING
        case "raise":
            return Repeat.REFUSE
        case "reset":
            if state is JobState.LEASED:
                return Repeat.KEEP_TRIGGER
            return Repeat.NEW if state is JobState.COMPLETED else Repeat.RESET


class TriggerFate(Enum):
    """What becomes of the trigger that `reset` kept during a run, when the run ends."""

    NEW_JOB = auto()
    FOLD = auto()
    DROP = auto()


def trigger_fate(to: JobState) -> TriggerFate:
    """Decide by where the run's end leads (V2)."""
    if to in (JobState.COMPLETED, JobState.DEAD):
        return TriggerFate.NEW_JOB
    return TriggerFate.DROP if to is JobState.CANCELLED else TriggerFate.FOLD


def folded(move: Move, not_before: int | None, expires_at: int | None, now: int) -> Move:
    """Give a job that comes back the kept trigger's times; a back-off is waited out all the same."""
    gates = [time for time in (move.not_before, not_before) if time is not None and time > now]
    latest = max(gates, default=None)
    if latest is None:
        to = JobState.PENDING
    else:
        to = JobState.RETRYABLE if move.to is JobState.RETRYABLE else JobState.SCHEDULED
    return Move(to, move.attempts, move.reaps, latest, expires_at, events=move.events, error=move.error)


def pulled_in(not_before: int, set_at: int, now: int) -> int | None:
    """Return the gate to set instead after the wall clock stepped back, or `None` when it stands.

    A gate that was set at a time that is yet to come was set by another clock; what was meant is its length (§5).
    """
    return now + not_before - set_at if set_at > now else None


def retention_us(state: JobState, kept: Retentions, *, has_key: bool, window_us: int) -> int | None:
    """Return how long a finished job stays, in µs, `None` is forever; a completed key outlives its window (V2)."""
    match state:
        case JobState.COMPLETED:
            own = kept.completed_retention_us
            return max(own, window_us) if own is not None and has_key else own
        case JobState.CANCELLED:
            return kept.cancelled_retention_us
        case _:
            return kept.dead_retention_us


def is_key_kept(job: Finished, state: JobState, now: int, *, window_us: int) -> bool:
    """Tell whether a completed job stays because a repeat of its key is to be known by it (V2)."""
    if state is not JobState.COMPLETED or job.idempotency_key is None or job.finished_at is None:
        return False
    return job.finished_at > now - window_us


def _again_or_dead(
    job: Facts,
    now: int,
    ended: tuple[Transition, str],
    *,
    error: str,
    max_attempts: int,
    pause_us: int,
    reaps: int | None = None,
) -> Move:
    reaps = job.reaps if reaps is None else reaps
    if is_expired(job, now):
        return _dead(job, now, ended, (Transition.EXPIRED, ""), error=error, reaps=reaps)
    if job.attempts >= max_attempts:
        spent = f"{job.attempts} of {max_attempts} attempts"
        return _dead(job, now, ended, (Transition.DEAD, spent), error=error, reaps=reaps)
    return Move(
        JobState.RETRYABLE,
        job.attempts,
        reaps,
        not_before=now + pause_us,
        expires_at=job.expires_at,
        events=(ended,),
        error=error,
    )


def _dead(job: Facts, now: int, *events: tuple[Transition, str], error: str, reaps: int | None = None) -> Move:
    return Move(
        JobState.DEAD,
        job.attempts,
        job.reaps if reaps is None else reaps,
        expires_at=job.expires_at,
        finished_at=_finished(job, now),
        events=events,
        error=error,
    )


def _finished(job: Facts, now: int) -> int:
    """Never before `created_at`, so that retention may stop at it (DESIGN §2)."""
    return max(now, job.created_at)


def _seconds(microseconds: int) -> str:
    return f"in {microseconds / 1_000_000:g} s"
