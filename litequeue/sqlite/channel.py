"""One connection of a handle, with the thread lock that guards it and what is known through it.

Owns: whose turn it is among the threads, by waiting (`take`) or in line with the other verbs (`line`), and the cursor
that runs the statements. Invariant: the connection is used only by the thread that took the channel; after a fork the
lock is a new one, since the inherited one may be held by a thread that does not exist in the child.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import apsw

from litequeue.errors import QueueBusy, UsageError
from litequeue.sqlite.agreement import Agreement
from litequeue.sqlite.connection import Patience, abandon
from litequeue.sqlite.line import NET_S, Line, Request
from litequeue.sqlite.tripwire import Tripwire

TRIES = range(5)
"""How often the end of a turn is begun again after an interrupt in it: more than anybody's Ctrl-C, and not for ever.

To be walked in the very frame that has caught an exception: a call is a place where an interrupt may come.
"""


class Channel:
    """A connection and its lock."""

    __slots__ = ("_cursor", "_lock", "_path", "agreement", "connection", "is_mine", "line", "patience", "tripwire")

    def __init__(self, path: str) -> None:
        self._path = path
        self.connection: apsw.Connection | None = None
        self._cursor: apsw.Cursor | None = None
        self.start_afresh()

    def take(self, deadline: float) -> None:
        """Wait for this thread's turn until `deadline` (`time.monotonic`).

        Raises:
            QueueBusy: another thread had it all the time.
            UsageError: this thread has it already: a verb of the handle inside its own transaction.
        """
        self.refuse_inside()
        if not self.take_at_once():
            self._wait(Request(), deadline)

    def refuse_inside(self) -> None:
        """Refuse a verb of the queue inside this thread's own transaction.

        Raises:
            UsageError: this thread has its turn already.
        """
        if self.is_mine():
            raise UsageError("this thread has a transaction open on this queue: inside it, use the verbs of tx")

    def take_if_free(self, deadline: float) -> bool:
        """Wait for this thread's turn; tell whether it was had. Never waits for the thread itself."""
        if self.is_mine():
            return False
        try:
            self.take(deadline)
        except QueueBusy:
            return False
        return True

    def take_at_once(self) -> bool:
        """Take the turn if it is free; tell whether it was had. Not for a thread that has it."""
        return (not self.line.waiting or self.line.comes_first()) and self._lock.acquire(blocking=False)

    def take_or_share(self, request: Request, deadline: float) -> bool:
        """Stand in line until `deadline`; tell whether this thread has its turn, or else that the request is answered.

        Whatever this raises, call `withdraw`.

        Raises:
            QueueBusy: neither came in time.
        """
        self.line.join(request)
        while not request.is_answered:
            if self.line.comes_first(request) and self._lock.acquire(blocking=False):
                if not request.is_answered:
                    self.line.leave(request)
                    return True
                self.give()
                break
            left_s = deadline - time.monotonic()
            if left_s <= 0 and self.line.leave(request):
                raise QueueBusy(f"another thread of this process kept {self._path} busy")
            request.wait(min(left_s, NET_S) if left_s > 0 else NET_S)
        return False

    def withdraw(self, request: Request) -> bool:
        """After an exception, make sure that nobody does a request any more; tell whether it has been done already."""
        had_turn = self.is_mine()
        while not (request.is_answered or request.has_left or self.line.leave(request)):
            if self.is_mine() or self._lock.acquire(blocking=False):  # nobody is at it
                break
            request.wait(NET_S)
        if not had_turn:
            self.give()
        return request.is_done

    def _wait(self, request: Request, deadline: float) -> None:
        """Wait in line for the turn itself."""
        try:
            self.take_or_share(request, deadline)
        except BaseException:
            self.withdraw(request)
            raise

    def give(self) -> None:
        """End this thread's turn, if it has one, and let the next one in line know."""
        if self.is_mine():
            self._lock.release()
        if self.line.waiting:
            self.line.call_next()

    def cursor(self, connection: apsw.Connection) -> apsw.Cursor:
        """Return what runs the statements on the connection; making one for each costs as much as a short one."""
        if self._cursor is None:
            self._cursor = connection.cursor()
        return self._cursor

    def drop_cursor(self) -> None:
        """Let go of a statement that was not run to its end."""
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            cursor.close(True)  # noqa: FBT003 - forced; it takes no keyword

    def close(self, how: Callable[[apsw.Connection], None]) -> None:
        """Close the connection and forget what was known through it."""
        connection, self.connection = self.connection, None
        self.tripwire.disarm()
        self.agreement.forget()
        if connection is not None:
            self.drop_cursor()
            how(connection)

    def abandon(self) -> None:
        """Never use the connection again, and never close it."""
        abandon(self._cursor)
        abandon(self.connection)
        self._cursor = self.connection = None

    def start_afresh(self) -> None:
        """Forget the connection without closing it, and use a new lock."""
        self.abandon()
        self._lock = threading.RLock()
        self.is_mine: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined] # noqa: SLF001 - as `threading.Condition` does
        """Whether this thread has its turn just now.

        The lock knows its owner from the very moment it is taken, so no interrupt comes between the two.
        """
        self.line = Line()
        self.patience = Patience()
        self.tripwire = Tripwire(self._path)
        self.agreement = Agreement()
