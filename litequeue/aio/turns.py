"""When the work of coroutines is done: lanes, each first come first served, in which so much goes on at a time.

Owns: the lanes of one queue, whichever coroutines, tasks and loops use it. Invariants: who wants a lane alone gets it
when those before have ended, and nobody passes meanwhile; a task waits for a lane without a thread, so it can be
cancelled there at once; behind somebody who has a lane alone it waits no longer than the queue's `busy_timeout`. Leaves
out: the threads (`crew`), and SQLite's own lock, for which a thread waits as every other does.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary, ref

from litequeue.aio.crew import CREW
from litequeue.aio.errand import Errand
from litequeue.aio.shell import Way
from litequeue.errors import QueueBusy, UsageError
from litequeue.queue import Queue
from litequeue.sqlite import forks

T = TypeVar("T")

_WRITERS = 8
"""Threads whose verbs share commits; more would only wait."""
_UPKEEP = 2


class Entrant(Protocol):
    """What may stand in a lane: an errand, or what sees to several."""

    @property
    def is_alone(self) -> bool:
        """Whether it wants the lane for itself."""
        ...

    def run(self) -> None:
        """Have the turn, in a thread; lets no exception out."""

    def fail(self, error: BaseException) -> bool:
        """Have no turn, for this reason."""
        ...


class Lane:
    """A line of work, and the threads that are at it just now."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget all: in a forked child, where none of the threads is."""
        self._lock = threading.Lock()
        self._waiting: deque[Entrant] = deque()
        self._threads = 0
        self._is_had_alone = False
        self._moved_at = time.monotonic()

    def enter(self, entrant: Entrant) -> None:
        """Stand at the end."""
        with self._lock:
            self._waiting.append(entrant)
            is_one_more = self._may_grow()
        if is_one_more:
            self._grow()

    def abandon(self) -> None:
        """Let nobody who stands here come to its turn: the process ends."""
        with self._lock:
            self._waiting.clear()
            self._most = 0

    def leave(self, entrant: Entrant) -> None:
        """Stand there no longer."""
        with self._lock, suppress(ValueError):
            self._waiting.remove(entrant)

    async def outcome(self, errand: Errand[T], patience_s: float, entrant: Entrant | None = None) -> T:
        """Wait for the turn and the end of an errand, which stands here itself, or by the one that sees to it.

        Raises:
            QueueBusy: the lane has not moved for so long, and the errand has not begun.
        """
        standing: Entrant = errand if entrant is None else entrant
        timer = _Timer(partial(self._lose_patience, errand, standing, time.monotonic(), patience_s))
        timer.ring_in(patience_s)
        self.enter(standing)
        try:
            return await errand.outcome()
        except asyncio.CancelledError:
            self.leave(standing)
            raise
        finally:
            timer.cancel()

    def _lose_patience(self, errand: Errand[T], standing: Entrant, since: float, patience_s: float) -> float | None:
        """Fail an errand that has waited too long; return in how many seconds to ask again."""
        if errand.is_claimed:
            return None
        left_s = max(since, self._moved_at) + patience_s - time.monotonic()
        if left_s > 0:
            return left_s
        self.leave(standing)
        errand.fail(QueueBusy(f"other tasks of this process have kept the queue busy for {patience_s:g} s"))
        return None

    def _may_grow(self) -> bool:
        """Count one more thread in, if there is work for it."""
        if not self._waiting or self._threads >= self._most or self._is_had_alone:
            return False
        if self._waiting[0].is_alone and self._threads:  # the last of those that are at work sees to it
            return False
        self._threads += 1
        return True

    def _grow(self) -> None:
        try:
            CREW.do(self._work)
        except RuntimeError as exc:  # the system gives no more threads
            left: list[Entrant] = []
            with self._lock:
                self._threads -= 1
                if not self._threads:
                    left += self._waiting
                    self._waiting.clear()
            for entrant in left:
                entrant.fail(exc)

    def _work(self) -> None:
        """Be one of the threads, until nothing is left for it."""
        entrant: Entrant | None = None
        while True:
            with self._lock:
                entrant = self._next(entrant)
                is_one_more = self._may_grow()
            if is_one_more:
                self._grow()
            if entrant is None:
                return
            entrant.run()

    def _next(self, last: Entrant | None) -> Entrant | None:
        """Return whose turn it is in this thread, which has just done with `last`; `None`: the thread goes."""
        if last is not None:
            self._moved_at = time.monotonic()
            if last.is_alone:
                self._is_had_alone = False
        if not self._waiting or not self._most or (self._waiting[0].is_alone and self._threads > 1):
            self._threads -= 1
            return None
        entrant = self._waiting.popleft()
        self._is_had_alone = entrant.is_alone
        return entrant


class _Timer:
    """Asks at a time of the loop's, and again when it is told to."""

    def __init__(self, ask: Callable[[], float | None]) -> None:
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None

    def ring_in(self, seconds: float) -> None:
        """Ask in so many seconds."""
        self._handle = self._loop.call_later(seconds, self._ring)

    def cancel(self) -> None:
        """Ask no more."""
        if self._handle is not None:
            self._handle.cancel()

    def _ring(self) -> None:
        seconds = self._ask()
        if seconds is not None:
            self.ring_in(seconds)


class Turns:
    """The lanes of one queue."""

    def __init__(self) -> None:
        self.writing = Lane(_WRITERS)
        """Verbs that write, and transactions, each alone."""
        self.reading = Lane(1)
        """Reads, which wait for no writer; there is one connection for them."""
        self.upkeep = Lane(_UPKEEP)
        """What takes long, in many transactions or in none."""
        self._holder: ref[asyncio.Task[object]] | None = None
        """The task that has a transaction open; known weakly, so that one whose loop has dropped it goes, and rolls
        back."""
        forks.know(self)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """All of them."""
        return self.writing, self.reading, self.upkeep

    def lane(self, way: Way) -> Lane:
        """Return the lane for a verb."""
        match way:
            case "write":
                return self.writing
            case "read":
                return self.reading
            case "upkeep":
                return self.upkeep

    def enter(self) -> None:
        """Remember that this task has a transaction open."""
        task = asyncio.current_task()
        self._holder = None if task is None else ref(task)

    def leave(self) -> None:
        """Remember that nobody has."""
        self._holder = None

    def refuse_inside(self) -> None:
        """Refuse a verb of the queue inside this task's own transaction, which it would wait for.

        Raises:
            UsageError: this task has a transaction open.
        """
        holder = None if self._holder is None else self._holder()
        if holder is not None and holder is asyncio.current_task():
            raise UsageError("this task has a transaction open on this queue: inside it, use the verbs of tx")

    def before_fork(self) -> None:
        """Nothing to do: the child has none of the threads."""

    def after_fork_in_parent(self) -> None:
        """Nothing to do."""

    def after_fork_in_child(self) -> None:
        """Begin anew."""
        for lane in self.lanes:
            lane.start_afresh()
        self._holder = None


def aside(errand: Errand[T]) -> None:
    """Let a thread of its own do an errand, at once and beside all others."""
    try:
        CREW.do(errand.run)
    except RuntimeError as exc:  # the system gives no more threads
        errand.fail(exc)


_known: WeakKeyDictionary[Queue, Turns] = WeakKeyDictionary()
_lock = threading.Lock()


def abandon_all() -> None:
    """Let nothing begin that has not begun: the process ends."""
    with _lock:
        known = list(_known.values())
    for turns in known:
        for lane in turns.lanes:
            lane.abandon()


def of(queue: Queue) -> Turns:
    """Return the lanes of a queue, the same for all that use it."""
    with _lock:
        turns = _known.get(queue)
        if turns is None:
            turns = _known[queue] = Turns()
        return turns
