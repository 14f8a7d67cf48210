"""A transaction that a task holds open: one thread begins it, does what it is told inside, and ends it.

Invariants: everything from BEGIN to COMMIT happens on this thread, in the order in which it was asked for. While the
thread waits for the next word it holds the write lock, so it does not wait for one that cannot come any more: when the
task or its loop has gone, or the process ends, it rolls back. Leaves out: who may begin, and when (`turns`).
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import cache, partial
from queue import Empty, SimpleQueue
from typing import Protocol

from litequeue.aio import turns
from litequeue.aio.errand import Errand
from litequeue.errors import UsageError
from litequeue.sqlite import forks
from litequeue.sqlite.transaction import Transaction

_NET_S = 1.0
"""How often the thread looks whether the loop is still there."""
_STOPPED_S = 10.0
"""A loop that has been stopped for so long is taken for one that nobody runs again; one that is only busy is not."""
_EXIT_S = 1.0
"""How long the end of the process waits for those that roll back."""
_log = logging.getLogger("litequeue")


class Forsaken(BaseException):
    """Ends a transaction that nobody can end any more."""


class Command(Protocol):
    """What the thread is told to do: an errand."""

    def run(self) -> None:
        """Do it; lets no exception out."""

    def fail(self, error: BaseException) -> bool:
        """Refuse it."""
        ...


class Session:
    """One transaction and its thread. Made in the task that wants it; a lane runs it."""

    is_alone = True

    def __init__(self, begin: Callable[[], AbstractContextManager[Transaction]]) -> None:
        self._begin = begin
        self._manager: AbstractContextManager[Transaction] | None = None
        self._inbox: SimpleQueue[Command | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._is_open = False
        self._is_forsaken = False
        self._left = threading.Event()
        self._pid = os.getpid()
        self._stopped_at: float | None = None
        """When the loop was first seen not to run, since it last did."""
        self.entry = Errand("transaction", self._enter, undo=lambda _: self.end(Forsaken()))
        """Begins it; what comes of that is the plain transaction, for the session's thread only."""
        _sessions.add(self)
        _roll_back_at_exit()

    @property
    def is_open(self) -> bool:
        """Whether it has begun and not ended."""
        return self._is_open

    @property
    def is_inherited(self) -> bool:
        """Whether its thread is another process's, which this one was forked from."""
        return self._pid != os.getpid()

    def tell(self, command: Command) -> None:
        """Let the thread do something inside, after what it was told before."""
        with self._lock:
            if self._is_open:
                self._inbox.put(command)
                return
        command.fail(UsageError("this transaction is over"))

    def end(self, error: BaseException | None) -> Errand[None]:
        """Let the thread commit, or roll back for this error; return the errand that does it.

        It raises what the plain transaction raises at its end, unless that is the error itself.
        """
        is_commit = error is None
        ending = Errand(
            "commit" if is_commit else "rollback",
            partial(self._exit, error),
            done="the transaction had been committed" if is_commit else None,
            is_kept=not is_commit,
        )
        self.tell(ending)
        return ending

    def forsake(self) -> None:
        """Roll back as soon as the thread is free, for nobody hears of it any more."""
        self._is_forsaken = True
        self._inbox.put(None)

    def await_end(self, seconds: float) -> None:
        """Wait until the thread has left it, no longer than this."""
        self._left.wait(seconds)

    # --- in its thread

    def run(self) -> None:
        """Be the thread of this transaction, from its beginning to its end."""
        self.entry.run()
        while self._is_open:
            command = None
            with suppress(Empty):
                command = self._inbox.get(timeout=_NET_S)
            if command is not None:
                command.run()
            elif self._is_forsaken or self._has_loop_gone():
                self._give_up()
        with suppress(Empty):
            while True:
                late = self._inbox.get_nowait()
                if late is not None:
                    late.fail(UsageError("this transaction is over"))
        self._left.set()

    def fail(self, error: BaseException) -> bool:
        """Refuse the whole of it."""
        return self.entry.fail(error)

    def _enter(self) -> Transaction:
        self._manager = self._begin()
        transaction = self._manager.__enter__()
        self._is_open = True
        return transaction

    def _exit(self, error: BaseException | None) -> None:
        manager, self._manager = self._manager, None
        try:
            if manager is not None:
                if error is None:
                    manager.__exit__(None, None, None)
                else:
                    manager.__exit__(type(error), error, error.__traceback__)
        finally:
            with self._lock:
                self._is_open = False

    def _has_loop_gone(self) -> bool:
        """Tell whether the loop was closed, or was stopped and is not run any more."""
        if self._loop.is_running():
            self._loop_runs()
            return False
        now = time.monotonic()
        stopped_at = self._stopped_at
        if stopped_at is None:
            self._stopped_at = stopped_at = now
        try:
            self._loop.call_soon_threadsafe(self._loop_runs)  # some loops run now and then
        except RuntimeError:  # it is closed
            return True
        return now - stopped_at > _STOPPED_S

    def _loop_runs(self) -> None:
        self._stopped_at = None

    def _give_up(self) -> None:
        try:
            self._exit(Forsaken())
        except BaseException as exc:  # noqa: BLE001 - nobody is there to hear it
            _log.warning("a transaction that was left open could not be rolled back: %s", exc)


_sessions: forks.Weakly[Session] = forks.Weakly()


@cache
def _roll_back_at_exit() -> None:
    """See to the end of the process. Not at import: what is registered later comes first, here before the queues'."""
    atexit.register(_roll_back_all)


def _roll_back_all() -> None:
    turns.abandon_all()  # what stands in line behind them
    until = time.monotonic() + _EXIT_S
    left = [session for session in _sessions if session.is_open and not session.is_inherited]
    for session in left:
        session.forsake()
    for session in left:
        session.await_end(max(0.0, until - time.monotonic()))
