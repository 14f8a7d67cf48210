"""A queue handle that writes down in a journal what is asked of it and what it answers.

Owns: the words of every verb in the journal. Invariant: each call is the package's own, with nothing between it and
its two lines; `then` and the verbs of transactions are told as parts of what they commit with. A harness calls nothing
on a queue but through this, or the checker finds work that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from uuid import UUID

from harness.journal import Journal, digest
from litequeue import (
    SYSTEM,
    Enqueued,
    Lease,
    LeaseConflict,
    LiteQueueError,
    Maintenance,
    NewJob,
    OutcomeUnknown,
    Queue,
    StorageLost,
    Transaction,
)
from litequeue.maintenance import MaintenanceReport

_SHOWN_CHARS = 200


class Telling(NamedTuple):
    """A call that is under way."""

    number: int
    heard: dict[str, object]
    """What its second line will say."""


class RecordedVerbs:
    """The verbs of a handle or of an open transaction, told to a journal."""

    def __init__(self, verbs: Queue | Transaction, journal: Journal, session: int, inside: int | None) -> None:
        self.journal = journal
        self._verbs = verbs
        self._session = session
        self._inside = inside

    @property
    def worker_id(self) -> str:
        """The worker that a lease names when it is given none."""
        return self._verbs.worker_id

    def enqueue(self, job: NewJob) -> Enqueued:
        """Enqueue one job."""
        return self.enqueue_many((job,))[0]

    def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        """Enqueue jobs in one commit."""
        given = tuple(jobs)
        with self._telling("enqueue", {"jobs": self._told(given)}) as telling:
            made = self._verbs.enqueue_many(given)
            telling.heard["jobs"] = [[str(one.job_id), one.created] for one in made]
        return made

    def lease_next(
        self, kinds: Sequence[str] | None = None, *, worker_id: str | None = None, ttl: float | None = None
    ) -> Lease | None:
        """Lease the next ready job."""
        leases = self.lease_many(1, kinds, worker_id=worker_id, ttl=ttl)
        return leases[0] if leases else None

    def lease_many(
        self, limit: int, kinds: Sequence[str] | None = None, *, worker_id: str | None = None, ttl: float | None = None
    ) -> list[Lease]:
        """Lease up to so many ready jobs."""
        asked: dict[str, object] = {"limit": limit, "worker": self.worker_id if worker_id is None else worker_id}
        with self._telling("lease", asked) as telling:
            leases = self._verbs.lease_many(limit, kinds, worker_id=worker_id, ttl=ttl)
            telling.heard["leases"] = [
                [str(lease.job_id), lease.lease_generation, lease.attempts, lease.deadline_us] for lease in leases
            ]
        return leases

    def extend(self, lease: Lease, ttl: float | None = None) -> None:
        """Prolong a lease."""
        _raise_first(self.extend_many((lease,), ttl))

    def extend_many(self, leases: Sequence[Lease], ttl: float | None = None) -> list[LeaseConflict]:
        """Prolong leases; return the conflicts."""
        with self._word("extend", leases) as heard:
            conflicts = self._verbs.extend_many(leases, ttl)
            heard["conflicts"] = _pairs(conflicts)
            heard["deadlines"] = self._deadlines(leases)
        return conflicts

    def checkpoint(
        self, lease: Lease, continuation: bytes, progress: float | None = None, note: str | None = None
    ) -> None:
        """Store how far the work has come."""
        with self._word("checkpoint", (lease,)) as heard:
            self._verbs.checkpoint(lease, continuation, progress, note)
            heard["deadlines"] = self._deadlines((lease,))

    def note(self, lease: Lease, detail: str) -> None:
        """Append a line to the job's log."""
        with self._word("note", (lease,)):
            self._verbs.note(lease, detail)

    def complete(self, lease: Lease, result: object = None, then: Iterable[NewJob] = ()) -> None:
        """Finish a job, and enqueue others in the same commit."""
        followers = tuple(then)
        with self._word("complete", (lease,), results=[digest(result)], jobs=self._told(followers)):
            self._verbs.complete(lease, result, followers)

    def complete_many(self, leases: Sequence[Lease], results: Sequence[object] | None = None) -> list[LeaseConflict]:
        """Finish jobs; return the conflicts."""
        values = [None] * len(leases) if results is None else results
        with self._word("complete", leases, results=[digest(value) for value in values]) as heard:
            conflicts = self._verbs.complete_many(leases, results)
            heard["conflicts"] = _pairs(conflicts)
        return conflicts

    def fail(self, lease: Lease, error: str, *, retryable: bool = True, delay: float | None = None) -> None:
        """Report a failed run."""
        with self._word("fail", (lease,)):
            self._verbs.fail(lease, error, retryable=retryable, delay=delay)

    def release(self, lease: Lease, delay: float | None = None) -> None:
        """Give a job back."""
        with self._word("release", (lease,)):
            self._verbs.release(lease, delay)

    def cancel(self, job_id: UUID) -> None:
        """Stop a job."""
        with self._telling("cancel", {"job": str(job_id)}):
            self._verbs.cancel(job_id)

    def retry(self, job_id: UUID) -> None:
        """Run a job again."""
        with self._telling("retry", {"job": str(job_id)}):
            self._verbs.retry(job_id)

    @contextmanager
    def _telling(self, verb: str, asked: dict[str, object]) -> Iterator[Telling]:
        """Write the line before, let the caller call, write the line after with what the caller puts into it."""
        number = self.journal.call(self._session, verb, asked, self._inside)
        telling = Telling(number, {})
        try:
            yield telling
        except BaseException as exc:
            conflicts = _pairs([exc]) if isinstance(exc, LeaseConflict) else []
            self.journal.raised(
                number,
                type(exc).__name__,
                str(exc)[:_SHOWN_CHARS],
                {"conflicts": conflicts},
                is_unknown=is_unknown(exc),
            )
            raise
        self.journal.got(number, telling.heard)

    @contextmanager
    def _word(self, verb: str, leases: Sequence[Lease], **more: object) -> Iterator[dict[str, object]]:
        """Tell of a verb of a holder."""
        with self._telling(verb, {"leases": _pairs(leases), **more}) as telling:
            yield telling.heard

    def _deadlines(self, leases: Sequence[Lease]) -> list[int]:
        """Return the deadlines that the leases have heard of; inside a transaction they hear only of its commit."""
        return [lease.deadline_us for lease in leases] if self._inside is None else []

    def _told(self, jobs: Sequence[NewJob]) -> list[list[str | None]]:
        return [
            [
                None if job.job_id is None else str(job.job_id),
                _scope(self._verbs.scope if job.scope is None else job.scope),
                job.kind,
                digest(job.payload),
                job.idempotency_key,
                job.on_conflict,
            ]
            for job in jobs
        ]


class Recorded(RecordedVerbs):
    """A queue handle and the journal of its process."""

    def __init__(self, queue: Queue, journal: Journal) -> None:
        super().__init__(queue, journal, journal.open_session(queue.worker_id), None)
        self.queue = queue

    @contextmanager
    def transaction(self) -> Iterator[RecordedTransaction]:
        """Open a transaction; its verbs share its outcome."""
        with self._telling("transaction", {}) as telling, self.queue.transaction() as tx:
            yield RecordedTransaction(tx, self.journal, self._session, telling.number)

    @contextmanager
    def lease_transaction(self, lease: Lease) -> Iterator[RecordedTransaction]:
        """Open a transaction that completes a job at its end, unless its body has ended the lease itself."""
        with self._telling("transaction", {}) as telling, self.queue.lease_transaction(lease) as tx:
            recorded = RecordedTransaction(tx, self.journal, self._session, telling.number)
            yield recorded
            if not tx.has_settled(lease):
                with recorded._word("complete", (lease,), results=[digest(None)]):  # noqa: SLF001 - as the package does
                    pass

    def maintain(self) -> MaintenanceReport:
        """Do one pass of maintenance."""
        with self._telling("maintain", {}):
            return Maintenance(self.queue).run_once()

    def close(self) -> None:
        """Close the handle, which releases what it holds."""
        with self._telling("close", {}):
            self.queue.close()


class RecordedTransaction(RecordedVerbs):
    """An open transaction and the journal of its process."""

    def __init__(self, tx: Transaction, journal: Journal, session: int, number: int) -> None:
        super().__init__(tx, journal, session, number)
        self.tx = tx
        """For the caller's own SQL, of which the journal does not tell."""


def is_unknown(exc: BaseException) -> bool:
    """Tell whether a call that raised this may have done something all the same (contract G11)."""
    if isinstance(exc, StorageLost):
        return exc.committed
    return isinstance(exc, OutcomeUnknown) or not isinstance(exc, (LiteQueueError, Exception))


def _pairs(named: Sequence[Lease | LeaseConflict]) -> list[tuple[str, int]]:
    return [(str(one.job_id), one.lease_generation) for one in named]


def _scope(scope: object) -> str:
    return "" if scope is SYSTEM else str(scope)


def _raise_first(conflicts: Sequence[LeaseConflict]) -> None:
    if conflicts:
        raise conflicts[0]
