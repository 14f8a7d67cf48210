"""What holds for every job of every queue, at every moment: the rules that an examination holds a row against.

Invariant: everything here is pure and follows from the contract (§2, §3, V1–V15), not from how the verbs are written; a
row that breaks a rule was written by no verb. Leaves out: where rows come from, and the tables to each other
(`examining`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from litequeue import arguments, codec
from litequeue.errors import RecordError, UsageError
from litequeue.model import Event, JobState, Transition

_UUID_BYTES = 16
_GATED = frozenset({JobState.RETRYABLE, JobState.SCHEDULED})

LEADS_TO: dict[Transition, frozenset[JobState]] = {
    Transition.ENQUEUED: frozenset({JobState.PENDING, JobState.SCHEDULED, JobState.WAITING}),
    Transition.PROMOTED: frozenset({JobState.PENDING, JobState.SCHEDULED}),
    Transition.LEASED: frozenset({JobState.LEASED}),
    Transition.COMPLETED: frozenset({JobState.COMPLETED}),
    # A trigger that was kept during the run may have taken the back-off's place (V2).
    Transition.FAILED: frozenset({JobState.RETRYABLE, JobState.PENDING}),
    Transition.REAPED: frozenset({JobState.RETRYABLE, JobState.PENDING}),
    Transition.RELEASED: frozenset({JobState.PENDING, JobState.SCHEDULED}),
    Transition.DEAD: frozenset({JobState.DEAD}),
    Transition.EXPIRED: frozenset({JobState.DEAD}),
    Transition.CANCELLED: frozenset({JobState.CANCELLED}),
    Transition.RETRIED: frozenset({JobState.PENDING}),
    Transition.EDITED: _GATED | {JobState.PENDING, JobState.WAITING},
}
"""Where a job may stand after each transition; those that are missing move nothing."""


class Stored(NamedTuple):
    """A job as the statement `examined_jobs` reads it, with what belongs to it."""

    scope: str
    state: int
    priority: int
    created_at: int
    job_id: bytes
    kind: str
    attempts: int
    reaps: int
    max_attempts: int | None
    lease_generation: int
    worker_id: str | None
    holder: int | None
    leased_at: int | None
    lease_deadline: int | None
    beats: int
    checkpoints: int
    last_beat_at: int | None
    not_before: int | None
    expires_at: int | None
    finished_at: int | None
    idempotency_key: str | None
    events: bytes
    has_body: int
    payload: bytes | None
    result: bytes | None
    has_continuation: int
    progress: float | None

    @property
    def key(self) -> tuple[str, int, int, int, bytes]:
        """The full primary key."""
        return self[:5]


def broken(job: Stored, events: list[Event] | None) -> Iterator[tuple[str, str]]:
    """Return the code of every rule that a job breaks, with a detail; `events` is its log, `None` if unreadable."""
    yield from _identity(job)
    yield from _lease(job)
    yield from _times(job)
    yield from _counts(job)
    yield from _log(job, events)
    yield from _values(job)


def read_log(job: Stored) -> list[Event] | None:
    """Decode a job's event log; `None` when it cannot be read."""
    try:
        return codec.decode_events(job.events, _uuid(job.job_id))
    except RecordError:
        return None


def _identity(job: Stored) -> Iterator[tuple[str, str]]:
    if len(job.job_id) != _UUID_BYTES:
        yield "job.id", ""
    names = (
        ("scope", job.scope or None),
        ("kind", job.kind),
        ("idempotency_key", job.idempotency_key),
        ("worker_id", job.worker_id),
    )
    for argument, name in names:
        reason = None if name is None else _refused_name(argument, name)
        if reason is not None:
            yield "job.name", reason
    if not 0 <= job.priority <= arguments.MAX_PRIORITY:
        yield "job.priority", str(job.priority)


def _lease(job: Stored) -> Iterator[tuple[str, str]]:
    fields = (job.worker_id, job.holder, job.lease_deadline)
    if job.state == JobState.LEASED:
        if None in fields or job.leased_at is None:
            yield "job.lease", "leased, and not every field is there"
    elif any(value is not None for value in fields):
        yield "job.lease", "not leased, and worker_id, holder or lease_deadline is there"
    elif job.beats or job.checkpoints or job.last_beat_at is not None:
        yield "job.lease", "not leased, and heartbeats are counted"
    if (job.leased_at is None) != (job.lease_generation == 0):
        yield "job.lease", "leased_at and lease_generation disagree on whether it was ever leased"


def _times(job: Stored) -> Iterator[tuple[str, str]]:
    if (job.state in _GATED) != (job.not_before is not None):
        yield "job.gate", ""
    if JobState(job.state).is_terminal:
        if job.finished_at is None or job.finished_at < job.created_at:
            yield "job.finished", ""
    elif job.finished_at is not None:
        yield "job.finished", ""
    times = (job.created_at, job.leased_at, job.last_beat_at, job.not_before, job.expires_at)
    if any(time is not None and time < 0 for time in times):
        yield "job.times", ""


def _counts(job: Stored) -> Iterator[tuple[str, str]]:
    if not 0 <= job.reaps <= job.attempts <= job.lease_generation or min(job.beats, job.checkpoints) < 0:
        said = f"attempts {job.attempts}, reaps {job.reaps}, generation {job.lease_generation}"
        yield "job.counts", said
    elif job.state == JobState.LEASED and job.attempts == 0:
        yield "job.counts", "leased without an attempt"
    if job.max_attempts is not None and not 1 <= job.max_attempts <= arguments.MAX_COUNT:
        yield "job.max_attempts", str(job.max_attempts)


def _log(job: Stored, events: list[Event] | None) -> Iterator[tuple[str, str]]:
    if not events:
        yield "job.events", ""
        return
    # A log that could not be read, and had to be shortened, is a marker in its place.
    if events[0].transition not in (Transition.ENQUEUED, Transition.TRUNCATED):
        yield "job.events", f"it begins with {events[0].transition}"
    moves = [event.transition for event in events if event.transition in LEADS_TO]
    if moves and job.state not in LEADS_TO[moves[-1]]:
        yield "job.last_event", f"{JobState(job.state)} after {moves[-1]}"


def _values(job: Stored) -> Iterator[tuple[str, str]]:
    if job.has_body:
        reason = _unreadable(job.payload or b"", job.job_id)
        if reason is not None:
            yield "job.payload", reason
    if job.result is not None:
        reason = _unreadable(job.result, job.job_id)
        if reason is not None:
            yield "job.result", reason
    if job.progress is not None and not 0 <= job.progress <= 1:
        yield "continuation.progress", f"{job.progress:g}"


def _refused_name(argument: str, name: str) -> str | None:
    """Say why a name is none that a caller could have given; a reserved scope is the queue's own."""
    try:
        arguments.text(argument, name)
    except UsageError as exc:
        return str(exc)
    return None


def _unreadable(encoded: bytes, job_id: bytes) -> str | None:
    try:
        codec.decode(encoded, _uuid(job_id))
    except RecordError as exc:
        return str(exc).partition(": ")[2]
    return None


def _uuid(job_id: bytes) -> UUID:
    """Return the id as errors name it, also for one of the wrong length."""
    return UUID(bytes=job_id[:_UUID_BYTES].ljust(_UUID_BYTES, b"\0"))
