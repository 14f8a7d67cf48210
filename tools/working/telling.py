"""Every queue handle of this process tells a journal, whoever opens it: the worker, its heartbeats, its processes.

Owns: a `Queue` and a `Transaction` that take the place of the package's own, and what handlers tell. Invariants: each
verb is the package's, with nothing between it and its two lines; a sibling of a handle, by which its leases are
extended, speaks as that handle. Leaves out: verbs that no worker and no handler of a harness calls.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Self, cast
from uuid import UUID

from harness.journal import Journal, digest
from harness.recorded import Recorded, RecordedVerbs, pairs
from litequeue import queue as rooms
from litequeue import transacting
from litequeue.lease import Duration, Lease
from litequeue.model import Enqueued, NewJob
from litequeue.queue import Queue
from litequeue.settlement import Exchange, Settlement
from litequeue.sqlite.transaction import Transaction
from litequeue.sqlite.verbs import Conflicts, Leases, ManyScopes

_journals: list[Journal] = []
"""The one of this process, once it has one."""


def install(journal: Journal) -> None:
    """Let every handle that this process opens from now on tell this journal."""
    _journals[:] = [journal]
    rooms.Queue = ToldQueue  # type: ignore[misc]
    setattr(transacting, "Transaction", ToldTransaction)  # noqa: B010 - it is no public name of that room


class _Plain:
    """A handle or a transaction with the package's own verbs."""

    def __init__(self, base: type[Queue | Transaction], of: Queue | Transaction) -> None:
        self._base = base
        self._of = of

    def __getattr__(self, name: str) -> object:
        """Find a verb where the package has it, and everything else on the object."""
        found = getattr(self._base, name, None)
        return MethodType(found, self._of) if callable(found) else getattr(self._of, name)


class ToldQueue(Queue):
    """A queue handle that tells."""

    _session: int | None = None
    _is_sibling = False
    _opening = threading.Lock()

    @property
    def session(self) -> int:
        """The number of this handle in the journal."""
        with self._opening:
            if self._session is None:
                self._session = _journals[0].open_session(self.worker_id)
            return self._session

    def sibling(self) -> Queue:
        """Open another handle, which speaks as this one."""
        made = super().sibling()
        if isinstance(made, ToldQueue):
            made.speak_as(self.session)
        return made

    def speak_as(self, session: int) -> None:
        """Be another handle's sibling."""
        self._session, self._is_sibling = session, True

    def exchange(
        self,
        settlements: Iterable[Settlement],
        limit: int = 0,
        kinds: Iterable[str] | None = None,
        *,
        scope: ManyScopes = None,
        worker_id: str | None = None,
        ttl: Duration | None = None,
    ) -> Exchange:
        """Settle and lease."""
        given, filters = tuple(settlements), None if kinds is None else tuple(kinds)
        return self._told().exchange(given, limit, filters, scope=scope, worker_id=worker_id, ttl=ttl)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a transaction."""
        with self._told().telling("transaction", {}) as telling, super().transaction() as tx:
            if isinstance(tx, ToldTransaction):
                tx.session, tx.number = self.session, telling.number
            yield tx

    def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        """Enqueue jobs."""
        return self._told().enqueue_many(jobs)

    def lease_many(
        self,
        limit: int,
        kinds: Iterable[str] | None = None,
        *,
        scope: ManyScopes = None,
        worker_id: str | None = None,
        ttl: Duration | None = None,
    ) -> Leases:
        """Refuse: a worker leases by exchanges only."""
        raise NotImplementedError(limit, kinds, scope, worker_id, ttl)

    def extend_many(self, leases: Iterable[Lease], ttl: Duration | None = None) -> Conflicts:
        """Prolong leases."""
        return self._told().extend_many(tuple(leases), cast("float | None", ttl))

    def checkpoint(
        self, lease: Lease, continuation: bytes | None = None, progress: float | None = None, note: str | None = None
    ) -> None:
        """Store how far the work has come."""
        self._told().checkpoint(lease, continuation, progress, note)

    def note(self, lease: Lease, detail: str) -> None:
        """Append a line to the job's log."""
        self._told().note(lease, detail)

    def complete(self, lease: Lease, result: object = None, then: Iterable[NewJob] = ()) -> None:
        """Finish a job."""
        self._told().complete(lease, result, then)

    def fail(self, lease: Lease, error: str, *, retryable: bool = True, delay: Duration | None = None) -> None:
        """Report a failed run."""
        self._told().fail(lease, error, retryable=retryable, delay=cast("float | None", delay))

    def release(self, lease: Lease, delay: Duration | None = None) -> None:
        """Give a job back."""
        self._told().release(lease, cast("float | None", delay))

    def cancel(self, job_id: UUID | str) -> None:
        """Stop a job."""
        self._told().cancel(UUID(str(job_id)))

    def _close(self, *, release: bool) -> None:
        """Close, which gives back what is held when `release` says so."""
        if self._is_sibling or not release:
            super()._close(release=release)
            return
        with self._told().telling("close", {}):
            super()._close(release=release)

    def _told(self) -> Recorded:
        return Recorded(cast("Queue", _Plain(Queue, self)), _journals[0], self.session)


class ToldTransaction(Transaction):
    """A transaction that tells; the verbs in it share its outcome."""

    session = 0
    number = 0

    def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        """Enqueue jobs."""
        return self._told().enqueue_many(jobs)

    def complete(self, lease: Lease, result: object = None, then: Iterable[NewJob] = ()) -> None:
        """Finish a job."""
        self._told().complete(lease, result, then)

    def fail(self, lease: Lease, error: str, *, retryable: bool = True, delay: Duration | None = None) -> None:
        """Report a failed run."""
        self._told().fail(lease, error, retryable=retryable, delay=cast("float | None", delay))

    def _told(self) -> RecordedVerbs:
        plain = cast("Transaction", _Plain(Transaction, self))
        return RecordedVerbs(plain, _journals[0], self.session, self.number)


class HandlerTelling:
    """What the handler of one run tells: that it begins, what it does, and what it came to."""

    def __init__(self, lease: Lease) -> None:
        holder = lease.holder
        if not isinstance(holder, ToldQueue):
            raise TypeError(f"{lease} was leased before the journal was there")
        self._lease = lease
        self._session = holder.session
        self._number = 0

    def __enter__(self) -> Self:
        self._number = _journals[0].call(self._session, "handle", {"leases": pairs((self._lease,))})
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Do nothing: `came_to` is the last line, and without one nobody knows."""

    def effect(self, what: str) -> None:
        """Tell of a side effect."""
        _journals[0].note(self._session, "effect", {"leases": pairs((self._lease,)), "what": what})

    def came_to(self, ends: Sequence[str], result: object) -> None:
        """Tell what this came to: how the run may end now."""
        _journals[0].got(self._number, {"came": list(ends), "result": digest(result)})


def announce(session: int, name: str, job_id: UUID, generation: int) -> None:
    """Tell what a worker has told its user."""
    _journals[0].note(session, "event", {"leases": [[str(job_id), generation]], "what": name})


def worked(session: int, wall_us: int) -> None:
    """Tell that a worker has ended in order."""
    _journals[0].note(session, "worked", {"wall_us": wall_us})
