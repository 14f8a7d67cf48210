"""A lease: one job in the hands of one holder.

Owns: the fencing data (the full key, the worker and the generation) and the verbs of a holder, each of which asks the
queue to do it with this lease. Invariant: the data never changes after the lease was taken, so that a late word is
recognised; only the mirror of what this holder itself wrote (its deadline, its continuation) does, and what it has
heard of its end.
Leaves out: whether the word still counts; the database decides that, under the write lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from litequeue import boundaries, codec
from litequeue.ids import stored_job_id
from litequeue.model import NewJob, Scope, public_scope

if TYPE_CHECKING:
    from litequeue.sqlite.transaction import Transaction

MAX_LEASE_S = 31_536_000
"""The longest time of a lease, and the longest pause that a worker waits out: a year."""
Duration = float | timedelta
"""Seconds, whole or not, or a timedelta; each verb says what is too little or too much."""
Fence = tuple[str, int, int, bytes, str, int]
"""What a lease's every write must match: scope, priority, `created_at`, job id, worker, generation."""


class Holder(Protocol):
    """The queue verbs that a lease needs; `Queue` has them."""

    def extend(self, lease: Lease, ttl: Duration | None = None) -> None:
        """See `Queue.extend`."""

    def checkpoint(
        self,
        lease: Lease,
        continuation: bytes | None = None,
        progress: float | None = None,
        note: str | None = None,
    ) -> None:
        """See `Queue.checkpoint`."""

    def note(self, lease: Lease, detail: str) -> None:
        """See `Queue.note`."""

    def complete(self, lease: Lease, result: object = None, then: Iterable[NewJob] = ()) -> None:
        """See `Queue.complete`."""

    def fail(self, lease: Lease, error: str, *, retryable: bool = True, delay: Duration | None = None) -> None:
        """See `Queue.fail`."""

    def release(self, lease: Lease, delay: Duration | None = None) -> None:
        """See `Queue.release`."""

    def lease_transaction(self, lease: Lease) -> AbstractContextManager[Transaction]:
        """See `Queue.lease_transaction`."""


class Lease:
    """A job that this holder may work on until the lease lapses (contract G1).

    Every verb raises `LeaseConflict`, and changes nothing, once the job is no longer this lease's: it was reaped,
    cancelled, finished, or the transaction that took the lease rolled back.
    """

    __slots__ = (
        "_encoded_payload",
        "_holder",
        "_job_id",
        "attempts",
        "cancelled",
        "continuation",
        "deadline_us",
        "fence",
        "idempotency_key",
        "is_void",
        "kind",
        "lost",
        "settled",
        "ttl_us",
    )

    fence: Fence
    """The full key, the worker and the generation: what every statement on the job must match."""
    kind: str
    attempts: int
    """Leases of this job so far, this one included."""
    ttl_us: int
    """The lease's own time, by which `extend` prolongs it, in µs."""
    deadline_us: int
    """When it lapses, by the lease clock, as far as this object has heard."""
    idempotency_key: str | None
    continuation: bytes | None
    """The bytes of this lease's last checkpoint, empty when none has brought any; `None` before the first."""
    is_void: bool
    """True when the transaction that took the lease did not commit."""
    lost: bool
    """True as soon as this process has found that the job is no longer this lease's: it was reaped, cancelled or
    finished by another, or the transaction that took the lease did not commit. Whatever is done for it now is in vain;
    it never becomes false again, but for a lease that turns out to have been settled."""
    settled: bool
    """True once a commit of this process has ended it: completed, failed, released, or `transaction()`."""
    cancelled: bool
    """True when whoever works on it should stop, as soon as that is convenient: a worker sets it when the job's time is
    over, when a drain is, and when the lease is lost. It changes nothing of what the lease may say: a handler that
    stops before its work is done has to raise, since what it returns completes the job."""

    def __init__(  # noqa: PLR0917 - one row becomes one object
        self,
        holder: Holder,
        fence: Fence,
        kind: str,
        attempts: int,
        ttl_us: int,
        deadline_us: int,
        encoded_payload: bytes,
        idempotency_key: str | None = None,
    ) -> None:
        self._holder = holder
        self.fence = fence
        self.kind = kind
        self.attempts = attempts
        self.ttl_us = ttl_us
        self.deadline_us = deadline_us
        self.idempotency_key = idempotency_key
        self.continuation = None
        self.is_void = False
        self.lost = False
        self.settled = False
        self.cancelled = False
        self._encoded_payload = encoded_payload
        self._job_id: UUID | None = None

    def __repr__(self) -> str:
        return f"<Lease {self.lease_generation} of {self.kind} {self.job_id} by {self.worker_id}>"

    @property
    def holder(self) -> Holder:
        """The queue that does what this lease is told."""
        return self._holder

    @property
    def scope(self) -> Scope:
        """The job's scope."""
        return public_scope(self.fence[0])

    @property
    def priority(self) -> int:
        """The job's priority."""
        return self.fence[1]

    @property
    def created_at(self) -> int:
        """When the job was enqueued, µs since the epoch."""
        return self.fence[2]

    @property
    def raw_job_id(self) -> bytes:
        """The job's id, as it is stored."""
        return self.fence[3]

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        if self._job_id is None:
            self._job_id = stored_job_id(self.fence[3])
        return self._job_id

    @property
    def worker_id(self) -> str:
        """Who holds the lease."""
        return self.fence[4]

    @property
    def lease_generation(self) -> int:
        """The fencing token: larger at every lease of the job."""
        return self.fence[5]

    @property
    def payload(self) -> object:
        """The payload, decoded anew at each call.

        Raises:
            RecordError: the stored bytes cannot be decoded; `fail(..., retryable=False)` is the usual answer.
        """
        return codec.decode(self._encoded_payload, self.job_id)

    @property
    def boundary(self) -> datetime | None:
        """The boundary of the schedule that made the job, in UTC; `None` for every other job."""
        return boundaries.boundary_of(self.idempotency_key)

    def found_lost(self) -> None:
        """Hear that it holds its job no more; one that this process has settled itself is not lost.

        The word may come from another handle just after the commit that settled it: whoever is first, it is settled.
        """
        self.lost = True
        if self.settled:
            self.lost = False

    def found_settled(self) -> None:
        """Hear that a commit has ended it."""
        self.settled = True
        self.lost = False

    def again(self, holder: Holder, attempts: int, ttl_us: int, deadline_us: int) -> Lease:
        """Return the next lease of the same job, by the same worker; its payload is the same as long as it is held."""
        fence = (*self.fence[:5], self.fence[5] + 1)
        payload, key = self._encoded_payload, self.idempotency_key
        return Lease(holder, fence, self.kind, attempts, ttl_us, deadline_us, payload, key)

    def checkpointed(self, continuation: bytes | None, deadline_us: int) -> None:
        """Remember a checkpoint that has been committed; without bytes of its own it keeps the last ones."""
        self.continuation = (self.continuation or b"") if continuation is None else continuation
        self.deadline_us = deadline_us

    def extend(self, ttl: Duration | None = None) -> None:
        """Prolong the lease: it now lapses `ttl` seconds from now; `None` repeats the lease's own time (V4).

        Raises:
            LeaseConflict: the job is no longer this lease's.
        """
        self._holder.extend(self, ttl)

    def checkpoint(
        self, continuation: bytes | None = None, progress: float | None = None, note: str | None = None
    ) -> None:
        """Store how far the work has come, and extend, in one write (V5).

        `continuation` is opaque bytes of at most `max_payload`; `progress` is 0.0 to 1.0; `note` is short text of at
        most 256 bytes. `None` keeps the last one. They live as long as the lease: the next one begins without them.

        Raises:
            LeaseConflict: the job is no longer this lease's.
        """
        self._holder.checkpoint(self, continuation, progress, note)

    def note(self, detail: str) -> None:
        """Append a line to the job's event log; a detail beyond 256 bytes is cut (V5).

        Raises:
            LeaseConflict: the job is no longer this lease's.
        """
        self._holder.note(self, detail)

    def complete(self, result: object = None, then: Iterable[NewJob] = ()) -> None:
        """Finish the job; the jobs of `then` are enqueued in the same commit (V6).

        Raises:
            LeaseConflict: the job is no longer this lease's.
            PayloadError: the result cannot be stored; the lease is still held.
        """
        self._holder.complete(self, result, then)

    def fail(self, error: str, *, retryable: bool = True, delay: Duration | None = None) -> None:
        """Report a failed run: again after the back-off (or `delay` seconds), or dead (V7).

        `error` is kept up to 8 KiB. Dead when not retryable, or when the attempts are used up.

        Raises:
            LeaseConflict: the job is no longer this lease's.
        """
        self._holder.fail(self, error, retryable=retryable, delay=delay)

    def release(self, delay: Duration | None = None) -> None:
        """Give the job back untouched, at once or after `delay` seconds; the attempt does not count (V8).

        Raises:
            LeaseConflict: the job is no longer this lease's.
        """
        self._holder.release(self, delay)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open a transaction that checks this lease first and completes the job at its end (V14).

        Your writes in it commit together with the completion, or not at all. The body may say `tx.complete(lease,
        result)` or `tx.fail(lease, …)` itself. An exception rolls everything back and leaves the lease held.

        Raises:
            LeaseConflict: the job is no longer this lease's.
        """
        return self._holder.lease_transaction(self)
