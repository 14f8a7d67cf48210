"""One connection of a handle, with the thread lock that guards it and what is known through it.

Invariant: the connection is used only by the thread that took the channel; after a fork the lock is a new one, since
the inherited one may be held by a thread that does not exist in the child.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import apsw

from litequeue.errors import QueueBusy, UsageError
from litequeue.sqlite.agreement import Agreement
from litequeue.sqlite.connection import Patience
from litequeue.sqlite.tripwire import Tripwire


class Channel:
    """A connection and its lock."""

    __slots__ = ("_lock", "_path", "agreement", "connection", "patience", "tripwire")

    def __init__(self, path: str) -> None:
        self._path = path
        self.connection: apsw.Connection | None = None
        self.start_afresh()

    def take(self, deadline: float) -> None:
        """Wait for this thread's turn until `deadline` (`time.monotonic`).

        Raises:
            QueueBusy: another thread had it all the time.
            UsageError: this thread has it already: a verb of the handle inside its own transaction.
        """
        self.refuse_inside()
        if not self.take_if_free(deadline):
            raise QueueBusy(f"another thread of this process kept {self._path} busy")

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
        return self._lock.acquire(timeout=max(0.0, deadline - time.monotonic()))

    def give(self) -> None:
        """End this thread's turn, if it has one."""
        if self.is_mine():
            self._lock.release()

    def is_mine(self) -> bool:
        """Whether this thread has its turn just now.

        The lock knows its owner from the very moment it is taken, so no interrupt comes between the two.
        """
        return bool(self._lock._is_owned())  # type: ignore[attr-defined] # noqa: SLF001 - as `threading.Condition` does

    def close(self, how: Callable[[apsw.Connection], None]) -> None:
        """Close the connection and forget what was known through it."""
        connection, self.connection = self.connection, None
        self.tripwire.disarm()
        self.agreement.forget()
        if connection is not None:
            how(connection)

    def start_afresh(self) -> None:
        """Forget the connection without closing it, and use a new lock."""
        self.connection = None
        self._lock = threading.RLock()
        self.patience = Patience()
        self.tripwire = Tripwire(self._path)
        self.agreement = Agreement()
