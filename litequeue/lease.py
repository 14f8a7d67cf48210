"""A lease: one job in the hands of one holder.

Owns: the fencing data (the full key, the worker and the generation) and the verbs of a holder, each of which asks the
queue to do it with this lease. Invariant: the data never changes after the lease was taken, so that a late word is
recognised; only the mirror of what this holder itself wrote (its deadline, its continuation) does.
Leaves out: whether the word still counts; the database decides that, under the write lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from litequeue import codec
from litequeue.ids import stored_job_id
from litequeue.model import NewJob, Scope, public_scope

if TYPE_CHECKING:
    from litequeue.sqlite.transaction import Transaction

Duration = float | timedelta
Fence = tuple[str, int, int, bytes, str, int]
"""What a lease's every write must match: scope, priority, `created_at`, job id, worker, generation."""


class Holder(Protocol):
    """The queue verbs that a lease needs; `Queue` has them."""

    def extend(self, lease: Lease, ttl: Duration | None = None) -> None:
        """See `Queue.extend`."""

    def checkpoint(
        self, lease: Lease, continuation: bytes, progress: float | None = None, note: str | None = None
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
        "continuation",
        "deadline_us",
        "fence",
        "is_void",
        "kind",
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
    continuation: bytes | None
    """The last checkpoint of this lease; `None` at its start."""
    is_void: bool
    """True when the transaction that took the lease did not commit."""

    def __init__(  # noqa: PLR0917 - one row becomes one object
        self,
        holder: Holder,
        fence: Fence,
        kind: str,
        attempts: int,
        ttl_us: int,
        deadline_us: int,
        encoded_payload: bytes,
    ) -> None:
        self._holder = holder
        self.fence = fence
        self.kind = kind
        self.attempts = attempts
        self.ttl_us = ttl_us
        self.deadline_us = deadline_us
        self.continuation = None
        self.is_void = False
        self._encoded_payload = encoded_payload
        self._job_id: UUID | None = None

    def __repr__(self) -> str:
        return f"<Lease {self.lease_generation} of {self.kind} {self.job_id} by {self.worker_id}>"

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

    def checkpointed(self, continuation: bytes, deadline_us: int) -> None:
        """Remember a checkpoint that has been committed."""
        self.continuation = continuation
        self.deadline_us = deadline_us

    def extend(self, ttl: Duration | None = None) -> None:
        """Prolong the lease: it now lapses `ttl` seconds from now; `None` repeats the lease's own time (V4).

        Raises:
            LeaseConflict: the job is no longer this lease's.
        """
        self._holder.extend(self, ttl)

    def checkpoint(self, continuation: bytes, progress: float | None = None, note: str | None = None) -> None:
        """Store how far the work has come, and extend, in one write (V5).

        `continuation` is opaque bytes of at most `max_payload`; `progress` is 0.0 to 1.0; `note` is short text of at
        most 256 bytes. They live as long as the lease.

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
