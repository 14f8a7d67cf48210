"""The waiting line of a handle's threads: several single verbs share one transaction, and one wait for the disk.

While one thread has the turn, the others stand in line, with the verbs that they want done. Whoever gets the turn next
does its own verb and then those of the line, each under a savepoint, and commits once; the others only wait for their
answer. Nobody stands in line who finds the turn free, unless somebody has stood there for long. Invariants: a verb is
taken out of the line, done and answered by a thread that has the turn, so whoever has the turn and is not answered has
not been done; every verb that was taken is answered before the turn ends, with its own result or error, with what
became of the commit, or with `NotDone`. Leaves out: the turn (`channel`) and the transaction (`store`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litequeue.sqlite.context import Context

NET_S = 0.05
"""How often who waits looks for itself: an interrupt may come between the end of a turn and the call of the next."""
_LONG_S = 0.005
"""Longer than a transaction on a fast disk: until then the quickest may go first, as handing the turn on takes time."""


class NotDone(Exception):
    """The transaction that was to do this verb came to nothing, for reasons of others: it is to be done alone."""


class Request:
    """One verb that waits for its turn, or to be done in another thread's."""

    __slots__ = ("_answer", "_called", "_error", "durable", "has_left", "is_answered", "since", "work")

    def __init__(self, work: Callable[[Context], object] | None = None, *, durable: bool = False) -> None:
        self.work = work
        """`None`: it wants the turn itself."""
        self.durable = durable
        self.since = time.monotonic()
        self.is_answered = False
        self.has_left = False
        """Whether it stands in line no longer without having been taken out by another."""
        self._answer: object = None
        self._error: BaseException | None = None
        self._called = threading.Lock()
        self._called.acquire()

    def done(self, answer: object) -> None:
        """Keep what the verb came to; nobody hears of it before `tell`."""
        self._answer = answer

    def failed(self, error: BaseException) -> None:
        """Keep what the verb raised, or what became of the commit."""
        self._error = error

    def tell(self) -> None:
        """Answer with what was kept last."""
        self.is_answered = True
        self.call()

    def call(self) -> None:
        """Wake the thread that waits."""
        with suppress(RuntimeError):  # it has been called already
            self._called.release()

    def wait(self, seconds: float) -> None:
        """Wait to be called, no longer than this."""
        self._called.acquire(timeout=max(0.0, seconds))

    @property
    def is_done(self) -> bool:
        """Whether the verb has been done, and committed."""
        return self.is_answered and self._error is None

    def outcome(self) -> object:
        """Return what the verb came to.

        Raises: what the verb raised, or `NotDone`.
        """
        if self._error is not None:
            raise self._error
        return self._answer


class Line:
    """Who waits for the turn of one connection, first come first served."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: deque[Request] = deque()

    def join(self, request: Request) -> None:
        """Stand at the end."""
        self.waiting.append(request)

    def leave(self, request: Request) -> bool:
        """Stand there no longer; tell whether nobody had taken the request meanwhile."""
        with suppress(ValueError):  # it is not there
            self.waiting.remove(request)
            request.has_left = True
        return request.has_left

    def take(self, *, durable: bool) -> tuple[Request, Callable[[Context], object]] | None:
        """Take out the first and its work, with the turn; `None` when there is none that can be done by another.

        That is one who wants the turn itself, or a verb that needs a sync where there is to be none.
        """
        try:
            request = self.waiting.popleft()
        except IndexError:
            return None
        if request.work is None or (request.durable and not durable):
            self.waiting.appendleft(request)
            return None
        return request, request.work

    def comes_first(self, request: Request | None = None) -> bool:
        """Tell whether this request, or a newcomer, may have the turn: nobody before it has stood here for long."""
        try:
            first = self.waiting[0]
        except IndexError:
            return True
        is_behind = request is None or first.since < request.since
        return not is_behind or time.monotonic() - first.since < _LONG_S

    def call_next(self) -> None:
        """Let the first know that the turn is free."""
        with suppress(IndexError):  # it has gone meanwhile
            self.waiting[0].call()
