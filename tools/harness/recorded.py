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
    ANY,
    SYSTEM,
    Completed,
    Enqueued,
    Exchange,
    Failed,
    Lease,
    LeaseConflict,
    LiteQueueError,
    Maintenance,
    NewJob,
    OutcomeUnknown,
    Queue,
    Released,
    Settlement,
    StorageLost,
    Transaction,
)
from litequeue.lease import Duration
from litequeue.maintenance import MaintenanceReport
from litequeue.sqlite.verbs import ManyScopes

_SHOWN_CHARS = 200
_VERBS: dict[type[Settlement], str] = {Completed: "complete", Failed: "fail", Released: "release"}


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
        with self.telling("enqueue", {"jobs": self.told(given)}) as telling:
            made = self._verbs.enqueue_many(given)
            telling.heard["jobs"] = [[str(one.job_id), one.created] for one in made]
        return made

    def lease_next(
        self,
        kinds: Sequence[str] | None = None,
        *,
        scope: ManyScopes = None,
        worker_id: str | None = None,
        ttl: float | None = None,
    ) -> Lease | None:
        """Lease the next ready job."""
        leases = self.lease_many(1, kinds, scope=scope, worker_id=worker_id, ttl=ttl)
        return leases[0] if leases else None

    def lease_many(
        self,
        limit: int,
        kinds: Sequence[str] | None = None,
        *,
        scope: ManyScopes = None,
        worker_id: str | None = None,
        ttl: float | None = None,
    ) -> list[Lease]:
        """Lease up to so many ready jobs."""
        worker = self.worker_id if worker_id is None else worker_id
        asked: dict[str, object] = {"limit": limit, "worker": worker, "is_any": scope is ANY}
        with self.telling("lease", asked) as telling:
            leases = self._verbs.lease_many(limit, kinds, scope=scope, worker_id=worker_id, ttl=ttl)
            telling.heard["leases"] = [_taken(lease) for lease in leases]
        return leases

    def extend(self, lease: Lease, ttl: float | None = None) -> None:
        """Prolong a lease."""
        _raise_first(self.extend_many((lease,), ttl))

    def extend_many(self, leases: Sequence[Lease], ttl: float | None = None) -> list[LeaseConflict]:
        """Prolong leases; return the conflicts."""
        with self._word("extend", leases) as heard:
            conflicts = self._verbs.extend_many(leases, ttl)
            heard["conflicts"] = pairs(conflicts)
            heard["deadlines"] = self._deadlines(leases)
        return conflicts

    def checkpoint(
        self,
        lease: Lease,
        continuation: bytes | None = None,
        progress: float | None = None,
        note: str | None = None,
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
        with self._word("complete", (lease,), results=[digest(result)], jobs=self.told(followers)):
            self._verbs.complete(lease, result, followers)

    def complete_many(self, leases: Sequence[Lease], results: Sequence[object] | None = None) -> list[LeaseConflict]:
        """Finish jobs; return the conflicts."""
        values = [None] * len(leases) if results is None else results
        with self._word("complete", leases, results=[digest(value) for value in values]) as heard:
            conflicts = self._verbs.complete_many(leases, results)
            heard["conflicts"] = pairs(conflicts)
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
        with self.telling("cancel", {"job": str(job_id)}):
            self._verbs.cancel(job_id)

    def retry(self, job_id: UUID) -> None:
        """Run a job again."""
        with self.telling("retry", {"job": str(job_id)}):
            self._verbs.retry(job_id)

    @contextmanager
    def telling(self, verb: str, asked: dict[str, object]) -> Iterator[Telling]:
        """Write the line before, let the caller call, write the line after with what the caller puts into it."""
        number = self.journal.call(self._session, verb, asked, self._inside)
        telling = Telling(number, {})
        try:
            yield telling
        except BaseException as exc:
            self._raised(number, exc)
            raise
        self.journal.got(number, telling.heard)

    def _raised(self, number: int, exc: BaseException) -> None:
        conflicts = pairs([exc]) if isinstance(exc, LeaseConflict) else []
        told: dict[str, object] = {"conflicts": conflicts}
        self.journal.raised(number, type(exc).__name__, str(exc)[:_SHOWN_CHARS], told, is_unknown=is_unknown(exc))

    @contextmanager
    def _word(self, verb: str, leases: Sequence[Lease], **more: object) -> Iterator[dict[str, object]]:
        """Tell of a verb of a holder."""
        with self.telling(verb, {"leases": pairs(leases), **more}) as telling:
            yield telling.heard

    def _deadlines(self, leases: Sequence[Lease]) -> list[int]:
        """Return the deadlines that the leases have heard of; inside a transaction they hear only of its commit."""
        return [lease.deadline_us for lease in leases] if self._inside is None else []

    def told(self, jobs: Sequence[NewJob]) -> list[list[str | None]]:
        """Return new jobs as the journal has them."""
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

    def __init__(self, queue: Queue, journal: Journal, session: int | None = None) -> None:
        super().__init__(queue, journal, journal.open_session(queue.worker_id) if session is None else session, None)
        self.queue = queue

    @contextmanager
    def transaction(self) -> Iterator[RecordedTransaction]:
        """Open a transaction; its verbs share its outcome."""
        with self.telling("transaction", {}) as telling, self.queue.transaction() as tx:
            yield RecordedTransaction(tx, self.journal, self._session, telling.number)

    @contextmanager
    def lease_transaction(self, lease: Lease) -> Iterator[RecordedTransaction]:
        """Open a transaction that completes a job at its end, unless its body has ended the lease itself."""
        with self.telling("transaction", {}) as telling, self.queue.lease_transaction(lease) as tx:
            recorded = RecordedTransaction(tx, self.journal, self._session, telling.number)
            yield recorded
            if not tx.has_settled(lease):
                with recorded._word("complete", (lease,), results=[digest(None)]):  # noqa: SLF001 - as the package does
                    pass

    def exchange(
        self,
        settlements: Sequence[Settlement],
        limit: int = 0,
        kinds: Sequence[str] | None = None,
        *,
        scope: ManyScopes = None,
        worker_id: str | None = None,
        ttl: Duration | None = None,
    ) -> Exchange:
        """Settle leases and take new ones in one commit; each is told as a part of it."""
        worker = self.worker_id if worker_id is None else worker_id
        with self.telling("exchange", {}) as telling:
            words = [(one, self._begin_word(one, telling.number)) for one in settlements]
            short = [one.lease for one in settlements if isinstance(one, Failed) and one.retake_within]
            again = {lease.job_id: self._begin_lease(lease.worker_id, 1, telling.number) for lease in short}
            new = self._begin_lease(worker, limit, telling.number, is_any=scope is ANY)
            exchange = self.queue.exchange(settlements, limit, kinds, scope=scope, worker_id=worker_id, ttl=ttl)
            self._end_words(words, exchange)
            retaken = {lease.job_id: lease for lease, _ in exchange.retaken}
            for job_id, number in again.items():
                self.journal.got(number, {"leases": [_taken(retaken[job_id])] if job_id in retaken else []})
            self.journal.got(new, {"leases": [_taken(lease) for lease in exchange.leases]})
        return exchange

    def _begin_lease(self, worker: str, limit: int, inside: int, *, is_any: bool | None = None) -> int:
        asked: dict[str, object] = {"worker": worker, "limit": limit, "is_any": is_any}
        return self.journal.call(self._session, "lease", asked, inside)

    def _begin_word(self, settlement: Settlement, inside: int) -> int:
        asked: dict[str, object] = {"leases": pairs((settlement.lease,))}
        if isinstance(settlement, Completed):
            asked |= {"results": [digest(settlement.result)], "jobs": self.told(tuple(settlement.then))}
        verb = next(verb for sort, verb in _VERBS.items() if isinstance(settlement, sort))
        return self.journal.call(self._session, verb, asked, inside)

    def _end_words(self, words: Sequence[tuple[Settlement, int]], exchange: Exchange) -> None:
        refused = {id(settlement): reason for settlement, reason in exchange.refused}
        for settlement, number in words:
            reason = refused.get(id(settlement))
            if reason is None:
                self.journal.got(number, {})
            else:
                self._raised(number, reason)

    def maintain(self) -> MaintenanceReport:
        """Do one pass of maintenance."""
        with self.telling("maintain", {}):
            return Maintenance(self.queue).run_once()

    def close(self) -> None:
        """Close the handle, which releases what it holds."""
        with self.telling("close", {}):
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


def _taken(lease: Lease) -> list[object]:
    return [str(lease.job_id), lease.lease_generation, lease.attempts, lease.deadline_us]


def pairs(named: Sequence[Lease | LeaseConflict]) -> list[tuple[str, int]]:
    """Return leases as the journal names them: the job and the generation."""
    return [(str(one.job_id), one.lease_generation) for one in named]


def _scope(scope: object) -> str:
    return "" if scope is SYSTEM else str(scope)


def _raise_first(conflicts: Sequence[LeaseConflict]) -> None:
    if conflicts:
        raise conflicts[0]
