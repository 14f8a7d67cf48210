"""What is in the file at the end, and what each job's own log says of its life.

Owns: the reading of every job through the public `Queue`, and the walk along an event log by the state machine of
contract §3, written down here anew: it shares nothing with the package's rules, so a wrong rule there is seen.
Invariant: a log that was truncated is taken for what it still says, never for what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from harness.journal import digest
from litequeue import ANY, SYSTEM, Job, Queue, RecordError

UNREADABLE = "unreadable"
_PAGE = 5_000

WAITING = frozenset({"pending", "retryable", "scheduled"})
ENDED = frozenset({"completed", "dead", "cancelled"})
_PASSING = frozenset({"ending", "retaken"})
"""Not states: the same transition goes on, and the next event says that the job is dead, or leased again."""
_EVERY = WAITING | ENDED | _PASSING | {"leased"}


class Line(NamedTuple):
    """One event of a log."""

    at: int
    transition: str
    detail: str


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job of the file, in plain values."""

    job_id: str
    scope: str
    kind: str
    state: str
    priority: int
    created_at: int
    generation: int
    attempts: int
    reaps: int
    most_attempts: int
    key: str | None
    payload: str
    """Its digest."""
    result: str
    """Its digest."""
    events: tuple[Line, ...]


def read(queue: Queue) -> Iterator[FoundJob]:
    """Read every job, page by page."""
    most: dict[str, int] = {}
    last: Job | None = None
    while page := queue.list(scope=ANY, limit=_PAGE, after=last):
        for job in page:
            if job.kind not in most:
                most[job.kind] = cast("int", queue.settings(job.kind)["max_attempts"])
            yield _plain(job, most[job.kind])
        last = page[-1]


def _plain(job: Job, most_attempts: int) -> FoundJob:
    try:
        payload, result = digest(job.payload), digest(job.result)
        events = tuple(Line(event.at, str(event.transition), event.detail) for event in job.events)
    except RecordError:
        payload, result, events = UNREADABLE, UNREADABLE, ()
    return FoundJob(
        str(job.job_id),
        "" if job.scope is SYSTEM else str(job.scope),
        job.kind,
        str(job.state),
        job.priority,
        job.created_at,
        job.lease_generation,
        job.attempts,
        job.reaps,
        most_attempts if job.max_attempts is None else job.max_attempts,
        job.idempotency_key,
        payload,
        result,
        events,
    )


@dataclass(slots=True)
class Run:
    """One lease of a job, as its log tells of it."""

    worker: str | None
    """`None` when the log no longer says who took it."""
    at: int
    reaps_before: int | None = None
    """How often the job had been reaped by then; `None` when the log no longer says."""
    generation: int = 0
    end: str | None = None
    """completed, failed, released, reaped or cancelled."""
    end_detail: str = ""
    ended_at: int = 0
    """In wall clock µs."""


@dataclass(slots=True)
class Life:
    """What a job's log comes to."""

    runs: list[Run] = field(default_factory=list)
    states: frozenset[str] = frozenset()
    """Where the job may be after all this."""
    attempts: int | None = 0
    """`None` when the log no longer says."""
    reaps: int | None = 0
    dropped: int = 0
    """Events that were truncated."""
    wrong: list[str] = field(default_factory=list)

    def of(self, generation: int) -> Run | None:
        """Return the run of this generation, if the log still has it."""
        if not self.runs:
            return None
        index = generation - self.runs[0].generation
        return self.runs[index] if 0 <= index < len(self.runs) else None


_FROM: dict[str, frozenset[str]] = {
    "promoted": frozenset({"retryable", "scheduled"}),
    "leased": frozenset({"pending", "retaken"}),
    "extended": frozenset({"leased"}),
    "checkpoint": frozenset({"leased"}),
    "note": frozenset({"leased"}),
    "completed": frozenset({"leased"}),
    "failed": frozenset({"leased"}),
    "released": frozenset({"leased"}),
    "reaped": frozenset({"leased"}),
    "dead": frozenset({"ending", "pending"}),
    "expired": WAITING | {"ending"},
    "cancelled": WAITING | {"leased"},
    "retried": ENDED | {"retryable", "scheduled"},
}
_TO: dict[str, frozenset[str]] = {
    "promoted": frozenset({"pending"}),
    "leased": frozenset({"leased"}),
    "extended": frozenset({"leased"}),
    "checkpoint": frozenset({"leased"}),
    "note": frozenset({"leased"}),
    "completed": frozenset({"completed"}),
    "failed": frozenset({"retryable", *_PASSING}),
    "released": frozenset({"pending", "scheduled", "ending"}),
    "reaped": frozenset({"retryable", "ending"}),
    "dead": frozenset({"dead"}),
    "expired": frozenset({"dead"}),
    "cancelled": frozenset({"cancelled"}),
    "retried": frozenset({"pending"}),
}
_ENDS = frozenset({"completed", "failed", "released", "reaped", "cancelled"})


def live_through(job: FoundJob) -> Life:
    """Walk along a job's log."""
    life = Life()
    for index, line in enumerate(job.events):
        before = job.events[index - 1] if index else line
        if "retaken" in life.states and not _is_retake(life, before, line):
            life.states -= {"retaken"}
        after = _after(life.states, line, job, is_first=index == 0)
        if after is None:
            life.wrong.append(f"{line.transition} while it was {' or '.join(sorted(life.states)) or 'nothing yet'}")
            after = _TO.get(line.transition, WAITING)
        _count(life, line)
        life.states = after
    life.states -= _PASSING
    if life.runs and life.runs[0].worker is None and life.runs[0].end is None:
        del life.runs[0]  # nothing says that the job was leased where its log was cut
    for back, run in enumerate(reversed(life.runs)):
        run.generation = job.generation - back
    return life


def _is_retake(life: Life, before: Line, line: Line) -> bool:
    """Tell whether a lease came with the failure before it: at the same time, to the same worker."""
    return line.at == before.at and (not life.runs or life.runs[-1].worker in {None, line.detail})


def _after(states: frozenset[str], line: Line, job: FoundJob, *, is_first: bool) -> frozenset[str] | None:
    """Return where the job may be after an event, or `None` when the event cannot be here."""
    if line.transition == "truncated":
        return _EVERY
    if line.transition == "enqueued":
        if is_first:
            return frozenset({"pending", "scheduled"})
        allowed = WAITING if line.detail == "reset" else frozenset({"dead", "cancelled"})
        return frozenset({"pending", "scheduled"}) if states & allowed else None
    if not states & _FROM[line.transition]:
        return None
    if job.key is not None and line.transition in {"failed", "reaped"}:  # a trigger folds into it, with its own gate
        return frozenset({"pending", "scheduled"}) | _TO[line.transition]
    return _TO[line.transition]


def _count(life: Life, line: Line) -> None:
    match line.transition:
        case "truncated":
            life.dropped += int(line.detail.split()[0])
            life.attempts = life.reaps = None
            life.runs.append(Run(None, line.at))
        case "leased":
            life.runs.append(Run(line.detail, line.at, life.reaps))
            life.attempts = _plus(life.attempts, 1)
        case "reaped":
            life.reaps = _plus(life.reaps, 1)
        case "released":
            life.attempts = _plus(life.attempts, -1)
        case "enqueued" if line.detail != "reset":
            life.attempts = life.reaps = 0
        case "retried" if line.detail.removeprefix("was ") in ENDED:
            life.attempts = life.reaps = 0
        case _:
            pass
    if line.transition in _ENDS and life.runs and life.runs[-1].end is None and "leased" in life.states:
        run = life.runs[-1]
        if run.worker is not None or line.transition != "cancelled":  # who knows what a cut log's job was doing
            run.end, run.end_detail, run.ended_at = line.transition, line.detail, line.at


def _plus(count: int | None, more: int) -> int | None:
    return None if count is None else count + more
