"""Verbs in a transaction that is open already, whoever has begun it, and is going to end it.

Owns: those that are several short transactions on a `Queue` and part of one here. Leaves out: whose transaction it is
(`transaction`, `attached`), and every other verb (`verbs`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from litequeue.lease import Lease
from litequeue.model import ANY
from litequeue.sqlite import moves, settling, upkeep
from litequeue.sqlite.context import Context
from litequeue.sqlite.verbs import ManyScopes, Verbs


class Within(Verbs):
    """Every verb, as part of one open transaction."""

    @property
    @abstractmethod
    def path(self) -> str:
        """The file's real path."""

    def check(self, lease: Lease) -> None:
        """Make sure that a lease still holds its job, under this transaction's lock.

        Raises:
            LeaseConflict: the job is no longer this lease's.
        """

        def work(context: Context) -> None:
            _, conflicts = settling.held(context, (lease,))
            for conflict in conflicts.values():
                raise conflict

        self._do(work, durable=False)

    def reap_expired(self) -> int:
        """Take back every job whose lease has lapsed, in any scope; return how many (V11)."""
        return self._do(lambda context: _until_done(lambda: upkeep.reap(context, upkeep.STEP)), durable=False)

    def promote_due(self, scope: ManyScopes = ANY) -> int:
        """Make every due job ready; return how many were moved (V11).

        Raises:
            UsageError: no scope.
        """
        return self._in_steps(scope, upkeep.promote)

    def expire_overdue(self, scope: ManyScopes = ANY) -> int:
        """Bury every waiting job that can no longer start in time; return how many (V11).

        Raises:
            UsageError: no scope.
        """
        return self._in_steps(scope, upkeep.expire)

    def tell_waiting(self) -> int:
        """Tell every waiting job of what has ended that it waits for; return how many were told (V11)."""
        return self._do(lambda context: _until_done(lambda: moves.tell(context, upkeep.STEP)), durable=False)

    def prune(self) -> int:
        """Remove every finished job whose retention is over; return how many (V11)."""

        def work(context: Context) -> int:
            removed = 0
            found = upkeep.prunable(context, None)
            while True:
                removed += upkeep.prune(context, found.rows)
                if found.after is None:
                    return removed
                found = upkeep.prunable(context, found.after)

        return self._do(work, durable=False)

    def _in_steps(self, scope: ManyScopes, step: Callable[[Context, str | None, int], int]) -> int:
        where = self._stored_scopes(scope)
        return self._do(lambda context: _until_done(lambda: step(context, where, upkeep.STEP)), durable=False)


def _until_done(step: Callable[[], int]) -> int:
    total = 0
    while moved := step():
        total += moved
    return total
