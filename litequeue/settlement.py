"""How runs ended, as a worker hands it in; and what it gets back for that (`Queue.exchange`).

Owns: one record for each way in which a lease ends, checked when it is made, so that a batch of them has no bad
argument in it. Invariant: a settlement never changes, so it can be handed in again after a `QueueBusy`.
Leaves out: what a settlement leads to (`rules`), and whether the lease still counts; the database decides that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from litequeue import arguments, codec
from litequeue.errors import DuplicateJob, JobNotFound, LeaseConflict, PayloadError, QueueFull, UsageError
from litequeue.lease import MAX_LEASE_S, Duration, Lease
from litequeue.model import NewJob


@dataclass(frozen=True, slots=True)
class Completed:
    """A run that succeeded (V6): its result, any msgpack value, and jobs to enqueue in the same commit.

    Raises:
        UsageError: `lease` is no `Lease`, or something in `then` is no `NewJob`.
    """

    lease: Lease
    result: object = None
    then: Iterable[NewJob] = ()

    def __post_init__(self) -> None:
        """Check the arguments; `then` becomes a tuple, so that it can be gone through again."""
        _check_lease(self.lease)
        given: object = self.then
        if not isinstance(given, Iterable):
            raise UsageError.of("then", given, "an iterable of NewJob objects")
        jobs = tuple(self.then)
        for job in jobs:
            if not isinstance(job, NewJob):
                raise UsageError.of("then", job, "NewJob objects")
        object.__setattr__(self, "then", jobs)


@dataclass(frozen=True, slots=True)
class Failed:
    """A run that failed (V7): again after the kind's back-off, or after `delay` seconds; or dead.

    With `retake_within` (seconds, at most a year) a pause up to that is not waited out in the queue: the job is failed
    and leased again in the same commit, to the worker that has it, which waits. 0 always goes back to the queue.

    Raises:
        UsageError: an argument out of its bounds.
    """

    lease: Lease
    error: str
    retryable: bool = True
    delay: Duration | None = None
    retake_within: Duration = 0.0
    delay_us: int | None = field(init=False, repr=False, compare=False)
    """The delay in µs; `None` is the kind's back-off."""
    retake_within_us: int = field(init=False, repr=False, compare=False)
    """The longest pause that the worker waits out, in µs."""

    def __post_init__(self) -> None:
        """Check the arguments; the error is cut to what is kept of it."""
        _check_lease(self.lease)
        if not isinstance(self.error, str):
            raise UsageError.of("error", self.error, "text")
        object.__setattr__(self, "error", codec.clip(self.error, codec.MAX_ERROR_BYTES))
        object.__setattr__(self, "retryable", bool(self.retryable))
        object.__setattr__(self, "delay_us", _delay_us(self.delay))
        within_us = arguments.duration_us("retake_within", self.retake_within, most_s=MAX_LEASE_S)
        object.__setattr__(self, "retake_within_us", within_us)


@dataclass(frozen=True, slots=True)
class Released:
    """A job given back untouched, at once or after `delay` seconds; the attempt does not count (V8).

    Raises:
        UsageError: an argument out of its bounds.
    """

    lease: Lease
    delay: Duration | None = None
    delay_us: int = field(init=False, repr=False, compare=False)
    """The delay in µs."""

    def __post_init__(self) -> None:
        """Check the arguments."""
        _check_lease(self.lease)
        object.__setattr__(self, "delay_us", _delay_us(self.delay) or 0)


Settlement = Completed | Failed | Released
"""How a run ended: see `Queue.exchange`."""
Refusal = LeaseConflict | PayloadError | DuplicateJob | QueueFull | JobNotFound
"""Why one settlement was refused: its lease is no longer valid, or its result or a job of its `then` is not taken."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What `Queue.exchange` came to; every settlement that is not among the refused has been done."""

    leases: list[Lease]
    """New leases, in lease order."""
    retaken: list[tuple[Lease, float]]
    """Leases of failed runs that the worker is to run again, each after waiting for so many seconds."""
    refused: list[tuple[Settlement, Refusal]]
    """Settlements that changed nothing, and why, in the order in which they were given."""
    dead: list[Settlement]
    """Settlements after which the job is dead: not retryable, out of attempts, or too late to start again."""


def _check_lease(lease: object) -> None:
    if not isinstance(lease, Lease):
        raise UsageError.of("lease", lease, "a Lease")


def _delay_us(delay: Duration | None) -> int | None:
    return None if delay is None else arguments.duration_us("delay", delay)
