"""The caller's open transaction: every verb, and its own SQL, committed together (V14).

Invariants: a verb that fails is undone by a savepoint and leaves the transaction as it was before (contract G11); one
that SQLite gave up (disk full, `ON CONFLICT ROLLBACK`) is dead to every later verb, so that none runs outside of it.
Leaves out: beginning and ending it (`store`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import apsw

from litequeue.errors import SchemaMismatch, UsageError
from litequeue.lease import Holder, Lease
from litequeue.model import Scope
from litequeue.sqlite import leasing
from litequeue.sqlite.context import Context
from litequeue.sqlite.leasing import Attempt, Rhythm, Wish
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.savepoint import in_savepoint
from litequeue.sqlite.turns import Round
from litequeue.sqlite.within import Within

if TYPE_CHECKING:
    from litequeue.sqlite.guard import Parameters, SQLValue
    from litequeue.sqlite.store import Store

T = TypeVar("T")


class Transaction(Within):
    """An open write transaction. Use it only in the thread and in the `with` block that opened it."""

    def __init__(  # noqa: PLR0917 - only `Queue.transaction` makes one
        self, store: Store, context: Context, holder: Holder, rhythm: Rhythm, scope: Scope, worker_id: str
    ) -> None:
        self.scope = scope
        self.worker_id = worker_id
        self._store = store
        self._context = context
        self._holder = holder
        self._rhythm = rhythm
        self.is_over = False
        """Whether the `with` block has ended: no verb works from then on."""
        self._given_up: str | None = None

    @property
    def path(self) -> str:
        """The file's real path."""
        return self._store.place.path

    def execute(self, sql: str, parameters: Parameters = ()) -> list[tuple[SQLValue, ...]]:
        """Run the caller's own SQL (one statement or several) in this transaction; return all rows.

        Raises:
            UsageError: transaction control, ATTACH, a pragma that sets something, a change to the queue's tables, or
                text that UTF-8 cannot hold.
            apsw.Error: the statement itself is wrong, or breaks a constraint of the caller's tables; it is undone.
        """
        try:
            path = self._store.place.path
            return self._run(
                lambda c: self._store.guard.run(c.connection, sql, parameters, path), self._store.translated
            )
        except (apsw.AuthError, SchemaMismatch) as exc:
            raise UsageError(
                "inside transaction() your SQL cannot begin or end transactions, ATTACH, set pragmas "
                f"or change the queue's own tables: {sql!r}"
            ) from exc
        except UnicodeEncodeError as exc:
            raise UsageError("your SQL or its parameters hold text that UTF-8 cannot (a lone surrogate)") from exc

    def attempt(self, wish: Wish, begun: Round | None) -> Attempt:
        """Lease, doing one step of what upkeep is due; for `Queue.lease_in_transaction`."""
        return self._do(lambda c: leasing.attempt(c, wish, self._holder, self._rhythm, begun), durable=False)

    def has_settled(self, lease: Lease) -> bool:
        """Tell whether this transaction has completed, failed or released the job of this lease."""
        return any(settled is lease for settled in self._context.settled)

    def finish(self) -> None:
        """End the `with` block in order: no verb works from here on.

        Raises:
            UsageError: SQLite has rolled the transaction back, and the block went on all the same.
        """
        self.is_over = True
        if self._given_up is not None:
            raise UsageError(self._given_up)

    def _do(self, work: Callable[[Context], T], *, durable: bool) -> T:  # noqa: ARG002 - the transaction is durable
        return self._run(work, self._store.meaning)

    def _run(self, work: Callable[[Context], T], meaning: Callable[[BaseException], BaseException]) -> T:
        """Run work in a savepoint; `meaning` says what an exception out of it is to be raised as."""
        context = self._live()
        try:
            return in_savepoint(context, work)
        except BaseException as exc:
            if not context.connection.in_transaction:
                context.void_leases()
                self._given_up = f"SQLite has rolled the whole transaction back: {exc}"
            known = meaning(exc)
            if known is not exc:
                raise known from exc
            raise

    def _look(self, work: Callable[[Reader], T]) -> T:
        try:
            return work(self._live())
        except Exception as exc:
            known = self._store.meaning(exc)
            if known is not exc:
                raise known from exc
            raise

    def _lease(self, wish: Wish) -> list[Lease]:
        def work(context: Context) -> list[Lease]:
            attempt = Attempt([], goes_on=True)
            while attempt.goes_on:
                attempt = leasing.attempt(context, wish, self._holder, self._rhythm, attempt.begun)
            return attempt.leases

        return self._do(work, durable=False)

    def _live(self) -> Context:
        if self.is_over:
            raise UsageError("this transaction is over")
        if not self._store.is_mine():
            raise UsageError("a transaction belongs to the thread that opened it")
        if self._given_up is not None:
            raise UsageError(self._given_up)
        return self._context
