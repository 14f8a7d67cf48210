"""What the model remembers: jobs, leases and triggers.

Plain data and four small readings of the contract; what follows from what is in `reference`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from litequeue import Job, JobState, LiteQueueError
from litequeue.model import Scope, SpecialScope

SECOND: Final = 1_000_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
BEFORE_BOOT: Final = -(10**15)
"""Added to the deadlines of an earlier boot: they are all past."""

PENDING, LEASED, COMPLETED, RETRYABLE, DEAD, SCHEDULED, CANCELLED, CHAINED = JobState
WAITING = frozenset({PENDING, RETRYABLE, SCHEDULED, CHAINED})
ACTIVE = WAITING | {LEASED}


class Refused(Exception):
    """The contract has this call raise `error` and change nothing."""

    def __init__(self, error: type[LiteQueueError]) -> None:
        super().__init__(error.__name__)
        self.error = error


@dataclass(frozen=True)
class Trigger:
    """What a `reset` leaves beside a job that runs (V2)."""

    payload: object
    priority: int
    not_before: int | None
    expires_at: int | None
    max_attempts: int | None


@dataclass(frozen=True)
class Pause:
    """How a gate in RETRYABLE came to be, for the pull-in after a backward step of the wall clock (§5)."""

    set_at: int
    length: int


@dataclass(frozen=True)
class Token:
    """A lease as its holder remembers it; nothing of it ever changes."""

    handle: int
    scope: Scope
    priority: int
    created_at: int
    job_id: UUID
    generation: int
    worker: str
    ttl: int


@dataclass
class Entry:
    """One job. `created` is a range until the real queue has been seen; then both ends are its `created_at`."""

    job_id: UUID
    scope: Scope
    kind: str
    payload: object
    priority: int
    created: tuple[int, int]
    state: JobState
    max_attempts: int | None
    not_before: int | None
    expires_at: int | None
    key: str | None
    attempts: int = 0
    reaps: int = 0
    generation: int = 0
    worker: str | None = None
    handle: int | None = None
    leased_at: int | None = None
    deadline: int | None = None
    beats: int = 0
    checkpoints: int = 0
    last_beat_at: int | None = None
    finished_at: int | None = None
    last_error: str | None = None
    result: object = None
    continuation: bytes | None = None
    progress: float | None = None
    note: str | None = None
    trigger: Trigger | None = None
    pause: Pause | None = None
    missing: frozenset[UUID] = frozenset()
    """The jobs that it waits for."""
    is_cancelled_by_failure: bool = True
    """Whether one of these that does not complete cancels it."""
    opens_at: int | None = None
    """Its delay, which counts once it waits for no other."""

    @property
    def created_at(self) -> int:
        """Return it, or the earliest that it can be."""
        return self.created[0]

    @property
    def order(self) -> tuple[int, int, bytes]:
        """Return where the job stands in its scope (G4)."""
        return self.priority, self.created_at, self.job_id.bytes


@dataclass
class Answer:
    """What `enqueue` has to say: whether a job was made, and which ids are right."""

    created: bool
    owners: list[Entry]


@dataclass(frozen=True)
class Wish:
    """A lease call."""

    handle: int
    scope: Scope | SpecialScope
    kinds: tuple[str, ...] | None
    limit: int
    worker: str
    ttl: float | None


def matches(kind_filter: str, kind: str) -> bool:
    """Tell whether an exact kind, or a prefix that ends in a colon, takes this kind."""
    return kind.startswith(kind_filter) if kind_filter.endswith(":") else kind == kind_filter


def microseconds(seconds: object) -> int | None:
    """Return a duration in µs."""
    if seconds is None:
        return None
    if isinstance(seconds, timedelta):
        return seconds // timedelta(microseconds=1)
    assert isinstance(seconds, (int, float))
    return round(seconds * SECOND)


def is_unnamed(job_id: UUID) -> bool:
    """Tell a job whose id the model has not seen yet."""
    return job_id.int < 2**32


def scope_key(scope: Scope) -> str:
    """Return what a scope sorts by: the system's comes first."""
    return scope if isinstance(scope, str) else ""


def by_id(jobs: Iterable[Job]) -> dict[UUID, Job]:
    """Return jobs by their id."""
    return {job.job_id: job for job in jobs}
