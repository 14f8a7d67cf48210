"""The application's own transaction, as far as the verbs of one attached handle have part in it.

Owns: what is kept of it in memory, and hearing of its end. SQLite's commit hook comes before the commit is there, and
its hook for the log is one for all, and may be the application's. So the end is heard of by the trace of the statements
that end: it comes after the commit, and apsw lets any number of them be at once. Invariants: nobody hears of a commit
before it is there, nor of one that was none; after the end, nothing of this is left on the connection; an interrupt in
the midst of one callback does not hide an end, for the other one, or the next statement, tells of it. Leaves out: the
verbs (`attached`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import apsw

from litequeue.sqlite.context import Context

_GOES_BACK = re.compile(r"(?:[\s;]|--[^\n]*|/\*.*?\*/)*rollback\b", re.IGNORECASE | re.DOTALL)
"""A statement that ends the transaction by giving it up, or goes back to a savepoint."""


class Joined(Context):
    """What one transaction of the application knows and has done of the queue's."""

    __slots__ = ()

    @property
    def is_unchanged(self) -> bool:
        """Never: what is found may rest on what the application, or another handle on its connection, has done here."""
        return False

    def doubt(self) -> None:
        """Hear that the application went back to a savepoint: what was done here may be undone, and what, nobody tells.

        So no lease is said to have ended; whoever asks the file is told the truth. The bell may ring for nothing.
        """
        for heard_after_commit in (self.settled, self.dropped, self.after_commit, self.dead_letters):
            heard_after_commit.clear()


class Following:
    """Follows one transaction of a connection to its end."""

    __slots__ = ("_connection", "_data_version", "_doubt", "_end", "_hear", "_hear_rollback", "_is_rolled_back", "_pid")

    def __init__(self, connection: apsw.Connection, doubt: Callable[[], None], end: Callable[[bool], None]) -> None:
        """Call `doubt` after a `ROLLBACK TO`, and `end` once, with whether the transaction has been committed."""
        self._connection = connection
        self._doubt = doubt
        self._end = end
        self._pid = os.getpid()
        self._data_version = connection.data_version("main")
        self._is_rolled_back = False
        self._hear = self._statement_ended  # kept, as apsw lets go of it in the midst of a call
        self._hear_rollback = self._rolled_back
        connection.set_rollback_hook(self._hear_rollback, id=self)

    @property
    def is_over(self) -> bool:
        """Whether the transaction has ended, told or not.

        SQLite's data version grows by each commit, this connection's own too, and by no rollback.
        """
        return self._is_rolled_back or self._has_new_data or not self._connection.in_transaction

    def listen(self) -> None:
        """Hear of the statements that end from here on; of the end, if it has come already."""
        if self.is_over:
            self.finish()
        else:
            self._connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._hear, id=self)

    def pause(self) -> None:
        """Do not hear of the queue's own statements, which would cost as much as a short one each."""
        self._connection.trace_v2(0, None, id=self)

    def finish(self) -> None:
        """Let go of the connection, and tell of the end."""
        is_committed = self._has_new_data and not self._is_rolled_back
        self.pause()
        self._connection.set_rollback_hook(None, id=self)
        self._end(is_committed)
        del self._connection, self._doubt, self._end  # this is known to itself, and would keep them until a collection

    @property
    def _has_new_data(self) -> bool:
        return self._connection.data_version("main") != self._data_version

    def _rolled_back(self) -> None:
        self._is_rolled_back = True

    def _statement_ended(self, event: dict[str, object]) -> None:
        if self._pid != os.getpid():  # a child uses what it has inherited, and has been told not to
            return
        if self.is_over:
            self.finish()
        elif _GOES_BACK.match(str(event["sql"])):
            self._doubt()
