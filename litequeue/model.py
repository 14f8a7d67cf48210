"""The records that go in and come out: new jobs, jobs, events and counts.

Owns: the states, the transitions that a log may name, and frozen records of them. Invariant: a record is a snapshot
and never changes; values inside it are decoded when asked for, so a job whose payload cannot be read still lists.
Leaves out: what may follow what (`rules`) and how values are stored (`codec`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, IntEnum, StrEnum
from typing import Final, Literal, NamedTuple, cast
from uuid import UUID

from litequeue import arguments, boundaries
from litequeue.errors import UsageError


class SpecialScope(Enum):
    """Scopes that no string can name."""

    SYSTEM = "system"
    """The empty scope, which sorts first: for an application's own upkeep."""
    ANY = "any"
    """Every scope, where a verb looks at more than one (leases, `wait`, `list`, `stats`, maintenance)."""

    def __repr__(self) -> str:
        return self.name


SYSTEM: Final = SpecialScope.SYSTEM
"""The empty scope, which sorts first: for an application's own upkeep."""
ANY: Final = SpecialScope.ANY
"""Every scope, where a verb looks at more than one (leases, `wait`, `list`, `stats`, maintenance)."""

Scope = str | Literal[SpecialScope.SYSTEM]
"""One scope: a name of 1 to 255 characters, or `SYSTEM`."""
OnConflict = Literal["return", "raise", "reset"]
"""What a repeat of an idempotency key does: see `Queue.enqueue`."""
Misfire = Literal["all", "latest", "skip"]
"""What becomes of boundaries that a schedule has missed: see `Queue.schedule`."""
OnParentFailure = Literal["cancel", "run"]
"""What becomes of a job whose parent is dead or cancelled: see `Queue.enqueue`."""


class JobState(IntEnum):
    """Where a job is in its life (contract §3); the number is part of its key."""

    PENDING = 0
    """Ready now."""
    LEASED = 1
    """In the hands of a holder."""
    COMPLETED = 2
    """Done."""
    RETRYABLE = 3
    """Failed, or its lease lapsed: waits out its back-off."""
    DEAD = 4
    """Will not be tried again: out of attempts, not retryable, too late, or unreadable."""
    SCHEDULED = 5
    """Delayed."""
    CANCELLED = 6
    """Stopped by an operator, or because a job that it waited for did not complete."""
    WAITING = 7
    """Waits for other jobs to end."""

    def __str__(self) -> str:
        return self.name.lower()

    def __repr__(self) -> str:
        return f"JobState.{self.name}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    @property
    def is_waiting(self) -> bool:
        """Whether the job will be leased later without anybody's help."""
        return self in _WAITING

    @property
    def is_terminal(self) -> bool:
        """Whether only `retry`, or a new enqueue of the same id, brings the job back."""
        return self in _TERMINAL


_WAITING = frozenset({JobState.PENDING, JobState.RETRYABLE, JobState.SCHEDULED, JobState.WAITING})
_TERMINAL = frozenset({JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED})


class Transition(StrEnum):
    """What an event log may say happened; the order is the stored code and only grows at its end."""

    ENQUEUED = "enqueued"
    PROMOTED = "promoted"
    LEASED = "leased"
    EXTENDED = "extended"
    CHECKPOINT = "checkpoint"
    NOTE = "note"
    COMPLETED = "completed"
    FAILED = "failed"
    RELEASED = "released"
    REAPED = "reaped"
    DEAD = "dead"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    RETRIED = "retried"
    TRUNCATED = "truncated"
    EDITED = "edited"


class Event(NamedTuple):
    """One line of a job's audit trail."""

    at: int
    """µs since the epoch, by the wall clock."""
    transition: Transition
    detail: str
    """At most 256 bytes; empty when there is nothing to add."""


class Edit(NamedTuple):
    """What is to change of a job that waits, checked; `None` is what stays. Its times are still relative."""

    priority: int | None
    delay_us: int | None
    run_at: int | None

    def not_before(self, now: int) -> int | None:
        """Return its new gate, now that the transaction has a time; a delay wins over a date."""
        return self.run_at if self.delay_us is None else now + self.delay_us


class Placed(NamedTuple):
    """A new job that has passed every check that needs no lock, but for its payload; its times are still relative."""

    kind: str
    scope: str | None
    """As it is stored; `None` is the default of whoever enqueues."""
    priority: int
    delay_us: int | None
    run_at: int | None
    expires_us: int | None
    max_attempts: int | None
    idempotency_key: str | None
    on_conflict: OnConflict
    job_id: UUID | None
    after: tuple[UUID, ...]
    on_parent_failure: OnParentFailure
    expires_on: int | None
    """By when it must have started, where that was given as a date: µs since the epoch."""


def placed(  # noqa: PLR0917 - the arguments of `NewJob`, in its order
    kind: str,
    scope: Scope | None,
    priority: int,
    delay: float | timedelta | None,
    run_at: datetime | None,
    expires: float | timedelta | datetime | None,
    max_attempts: int | None,
    idempotency_key: str | None,
    on_conflict: OnConflict,
    job_id: UUID | str | None,
    after: Iterable[UUID | str] = (),
    on_parent_failure: OnParentFailure = "cancel",
) -> Placed:
    """Check the arguments of a new job, and bring them into the form in which they are stored.

    Raises:
        UsageError: an argument out of its bounds (contract §6).
    """
    if on_conflict not in ("return", "raise", "reset"):
        raise UsageError.of("on_conflict", on_conflict, "return, raise or reset")
    own_id = None if job_id is None else arguments.job_id("job_id", job_id)
    parents = arguments.parents(after, own_id) if after != () else ()
    if on_parent_failure not in ("cancel", "run"):
        raise UsageError.of("on_parent_failure", on_parent_failure, "cancel or run")
    is_date = isinstance(expires, datetime)
    if parents and on_conflict == "reset":
        raise UsageError.of("on_conflict", on_conflict, "return or raise for a job that waits for others (after)")
    return Placed(
        arguments.kind(kind),
        None if scope is None else storable_scope(scope),
        arguments.whole("priority", priority, 0, arguments.MAX_PRIORITY),
        None if delay is None else arguments.duration_us("delay", delay),
        None if run_at is None else arguments.moment_us("run_at", run_at),
        None if expires is None or is_date else arguments.duration_us("expires", expires),
        None if max_attempts is None else arguments.whole("max_attempts", max_attempts, 1, arguments.MAX_COUNT),
        None if idempotency_key is None else arguments.idempotency_key(idempotency_key),
        on_conflict,
        own_id,
        parents,
        on_parent_failure,
        arguments.moment_us("expires", expires) if is_date else None,
    )


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to enqueue; the arguments are those of `Queue.enqueue`.

    Raises:
        UsageError: an argument out of its bounds (contract §6).
    """

    kind: str
    payload: object = None
    scope: Scope | None = None
    priority: int = 100
    delay: float | timedelta | None = None
    run_at: datetime | None = None
    expires: float | timedelta | datetime | None = None
    max_attempts: int | None = None
    idempotency_key: str | None = None
    on_conflict: OnConflict = "return"
    job_id: UUID | str | None = None
    after: Iterable[UUID | str] = ()
    on_parent_failure: OnParentFailure = "cancel"
    placed: Placed = field(init=False, repr=False, compare=False)
    """The arguments as they are stored, checked once."""

    def __post_init__(self) -> None:
        checked = placed(
            self.kind,
            self.scope,
            self.priority,
            self.delay,
            self.run_at,
            self.expires,
            self.max_attempts,
            self.idempotency_key,
            self.on_conflict,
            self.job_id,
            self.after,
            self.on_parent_failure,
        )
        object.__setattr__(self, "placed", checked)
        object.__setattr__(self, "after", checked.after)  # it can be gone through again


def storable_scope(scope: object) -> str:
    """Return the stored form of a scope: its name, or the empty text for `SYSTEM`.

    Raises:
        UsageError: `ANY`, a reserved name, or not a name at all.
    """
    if scope is SYSTEM:
        return ""
    if isinstance(scope, SpecialScope):
        raise UsageError.of("scope", scope, "one scope: a name or SYSTEM")
    return arguments.scope_name(scope)


class Pause(NamedTuple):
    """Jobs that are not leased at present, until it is taken back."""

    kind: str | None
    """The kind filter; `None` is every kind."""
    scope: Scope | SpecialScope
    """The scope; `ANY` is every one."""
    since: int
    """µs since the epoch."""


class Enqueued(NamedTuple):
    """What `enqueue` answers."""

    job_id: UUID
    created: bool
    """False when the job, or another one with its idempotency key, was there already."""


class Batch(NamedTuple):
    """What `batch` answers."""

    jobs: list[Enqueued]
    """Of the group, in order."""
    then: Enqueued
    """The job that follows; by its id `Queue.dependencies` tells how the group has ended."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a job waits for or has waited for, and what waits for it, at one moment."""

    parents: int
    """Jobs that it was to wait for (`after`, or the group of a batch)."""
    completed: int
    """Of those, how many had completed when it was told of their end."""
    dead: int
    """How many had died."""
    cancelled: int
    """How many had been cancelled."""
    missing: int
    """How many it still waits for; 0 once it waits no more, whatever ended that."""
    waits_for: tuple[UUID, ...]
    """The first 100 of these, by their ids."""
    children: int
    """Jobs that wait for this one."""
    children_ids: tuple[UUID, ...]
    """The first 100 of these, in the order in which they were enqueued."""

    @property
    def is_any(self) -> bool:
        """Whether the job is in a chain at all."""
        return bool(self.parents or self.children)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it stood at one moment (contract §2). Times are µs since the epoch; durations are not stored."""

    job_id: UUID
    scope: Scope
    state: JobState
    priority: int
    """0 to 255; lower is sooner."""
    created_at: int
    """Its place in line: when it was enqueued, later than every other pending job of its scope and priority."""
    kind: str
    attempts: int
    """Leases taken; `release` gives one back."""
    reaps: int
    """Of the attempts, how many ended because the lease lapsed."""
    max_attempts: int | None
    """Given at enqueue; `None` leaves it to the settings of its kind."""
    lease_generation: int
    """The fencing token: one more at each lease, never reset."""
    worker_id: str | None
    """Who has it; `None` when nobody does."""
    holder: int | None
    """The number of the live handle that has it, as in `WorkerInfo`."""
    leased_at: int | None
    """When the latest lease began."""
    lease_deadline: int | None
    """When the lease lapses, converted from the lease clock to wall time at the moment of reading."""
    beats: int
    """How often the present lease was extended."""
    checkpoints: int
    """How many checkpoints the present lease has made."""
    last_beat_at: int | None
    not_before: int | None
    """When a delay or a back-off is over; `None` for a job that is not held up."""
    expires_at: int | None
    """By when it must have started; `None` is never too late."""
    finished_at: int | None
    idempotency_key: str | None
    last_error: str | None
    """What the last run failed of, up to 8 KiB; `None` after a success."""
    continuation: bytes | None
    """The bytes of the present lease's last checkpoint."""
    progress: float | None
    """0.0 to 1.0, of the present lease's last checkpoint."""
    note: str | None
    """The text of the present lease's last checkpoint."""
    encoded_payload: bytes = field(repr=False)
    encoded_result: bytes | None = field(repr=False)
    encoded_events: bytes = field(repr=False)
    decoder: Decoder = field(repr=False, compare=False)

    @property
    def payload(self) -> object:
        """The payload. Raises `RecordError` when it cannot be read."""
        return self.decoder.value(self.encoded_payload, self.job_id)

    @property
    def result(self) -> object:
        """What the last run completed with, or `None`. Raises `RecordError` when it cannot be read."""
        encoded = self.encoded_result
        return None if encoded is None else self.decoder.value(encoded, self.job_id)

    @property
    def boundary(self) -> datetime | None:
        """The boundary of the schedule that made the job, in UTC; `None` for every other job."""
        return boundaries.boundary_of(self.idempotency_key)

    @property
    def events(self) -> list[Event]:
        """The audit trail, oldest first; a live lease's heartbeats and checkpoints are counted at its end.

        Raises `RecordError` when it cannot be read.
        """
        log = self.decoder.events(self.encoded_events, self.job_id)
        if self.state is JobState.LEASED and self.last_beat_at is not None:
            log += [Event(self.last_beat_at, *line) for line in lease_summary(self.beats, self.checkpoints)]
        return log


class Decoder(NamedTuple):
    """How a record reads its stored values (`codec` provides it)."""

    value: Callable[[bytes, UUID | str], object]
    events: Callable[[bytes, UUID], list[Event]]


def lease_summary(beats: int, checkpoints: int) -> list[tuple[Transition, str]]:
    """Return the lines that stand for a lease's heartbeats and checkpoints: one a sort, with its count."""
    counted = ((Transition.EXTENDED, beats), (Transition.CHECKPOINT, checkpoints))
    return [(transition, f"{count} times" if count > 1 else "once") for transition, count in counted if count]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it stood at one moment."""

    name: str
    spec: str
    timezone: str
    kind: str
    scope: Scope
    priority: int
    max_attempts: int | None
    expires: float | None
    """How many seconds after it is enqueued a job of it must have started."""
    misfire: Misfire
    is_paused: bool
    boundary: datetime
    """When it fires next, in UTC; while it is paused, when it would have."""
    created_at: int
    """When it was first declared, µs since the epoch."""
    last_boundary: datetime | None
    """The latest boundary that was fired, in UTC."""
    last_fired_at: int | None
    """When that was, µs since the epoch."""
    fired: int
    """Jobs made at its boundaries."""
    skipped: int
    """Boundaries that were missed and for which no job was made; after a very long outage, at least so many."""
    encoded_payload: bytes = field(repr=False)
    decoder: Decoder = field(repr=False, compare=False)

    @property
    def payload(self) -> object:
        """The payload of its jobs. Raises `RecordError` when it cannot be read."""
        return self.decoder.value(self.encoded_payload, f"schedule {self.name!r}")


class Copied(NamedTuple):
    """What a backup or a restore has made."""

    path: str
    """The file's real path."""
    jobs: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of a scope or of the whole file, from one snapshot."""

    counts: Mapping[JobState, int]
    """Jobs by state; every state is present."""
    by_kind: Mapping[str, Mapping[JobState, int]]
    """The same by kind; only states that have jobs."""
    oldest_ready_at: int | None
    """`created_at` of the oldest pending job, µs since the epoch."""
    next_due_at: int | None
    """When the next delayed or retried job is due, µs since the epoch."""
    lapsed: int
    """Leased jobs whose deadline has passed and which nobody has reaped yet."""
    file_bytes: int
    free_bytes: int
    """Of `file_bytes`, what deleted jobs have left for reuse."""
    wal_bytes: int

    @property
    def total(self) -> int:
        """All jobs counted."""
        return sum(self.counts.values())


def public_scope(stored: object) -> Scope:
    """Return the scope as callers write it."""
    return cast("str", stored) or SYSTEM
