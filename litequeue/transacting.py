"""Transactions that a caller holds open, as a queue gives them: its own writes and any verbs, in one commit.

Owns: the `with` blocks of a `Queue`, and what each does before and after the caller's part. Invariant: a block that an
exception ends leaves no trace, and a lease that was taken in it is void. Leaves out: what is done inside
(`Transaction`), and beginning and ending it (`store`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from litequeue.firing import Firing
from litequeue.lease import Lease
from litequeue.sqlite.channel import TRIES
from litequeue.sqlite.leasing import Rhythm
from litequeue.sqlite.store import Store
from litequeue.sqlite.transaction import Transaction
from litequeue.sqlite.verbs import ManyScopes


class Transacting(Firing):
    """The part of a `Queue` that gives its callers transactions."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._rhythm = Rhythm()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a write transaction: your SQL and any verbs, committed together at the end of the `with` block (V14).

        An exception in the block rolls everything back and leaves no trace. The block holds the write lock, so keep it
        short and call nothing outside of it. It is synced in the modes `full` and `enqueue`.

        Raises:
            QueueBusy: the lock was not had within `busy_timeout`.
        """
        self._store.refuse_inside()
        context = None
        tx = None
        try:
            context = self._store.begin(durable=True)
            tx = Transaction(self._store, context, self, self._rhythm, self.scope, self.worker_id)
            yield tx
            tx.finish()
            self._store.commit(context)
        except BaseException as exc:
            if tx is not None:
                tx.is_over = True
            known, cut_off = exc, None
            for _ in TRIES:  # an interrupt may come in here as well, at the entry of any function
                try:
                    known = self._store.undo(context, exc)
                    break
                except BaseException as again:  # noqa: BLE001 - raised below, once the turn is another's
                    cut_off = again
            known = self._store.told(known, cut_off, context)
            if known is not exc:
                raise known from exc
            raise

    @contextmanager
    def lease_transaction(self, lease: Lease) -> Iterator[Transaction]:
        """Open a transaction that checks a lease first and completes its job at the end; see `Lease.transaction`.

        Raises:
            LeaseConflict: the job is no longer this lease's.
        """
        with self.transaction() as tx:
            tx.check(lease)
            yield tx
            if not tx.has_settled(lease):
                tx.complete(lease)

    @contextmanager
    def lease_in_transaction(
        self, kinds: Iterable[str] | None = None, *, scope: ManyScopes = None, worker_id: str | None = None
    ) -> Iterator[tuple[Transaction, Lease | None]]:
        """Lease the next ready job, do its work and complete it in one transaction (V14).

        Gives the open transaction and the lease, or `None` in its place when nothing is ready; the arguments are those
        of `lease_next`. The job is completed at the end of the block, unless the block has said `tx.complete(job,
        result)`, `tx.fail(job, …)` or `tx.release(job)`. An exception, or the death of the process, leaves no trace of
        the lease: no attempt, no generation, no event. So a job whose work always raises is never dead, and is the next
        one again: say `tx.fail` of what is to count. The block holds the write lock, so keep it short and call nothing
        outside of it; the lease cannot lapse in it, and is of no use after it. Where much upkeep is due, that comes
        first, in short transactions of its own.

        Raises:
            UsageError: an argument out of its bounds.
            QueueBusy: the lock was not had within `busy_timeout`.
        """
        wish = self._wish(1, kinds, scope, worker_id, None)
        begun = None
        while True:
            with self.transaction() as tx:
                attempt = tx.attempt(wish, begun)
                if not attempt.goes_on:
                    lease = attempt.leases[0] if attempt.leases else None
                    yield tx, lease
                    if lease is not None and not tx.has_settled(lease):
                        tx.complete(lease)
                    return
            begun = attempt.begun
