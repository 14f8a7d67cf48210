"""A waiter that can be interrupted: from other threads, from signal handlers, at whatever point (DESIGN §4).

The slow look that is the net is far away, so an interrupt that got lost shows as a wait that does not end.
"""

from __future__ import annotations

import itertools
import math
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import QueueClosed, UsageError
from litequeue.sqlite import arrivals
from litequeue.sqlite.arrivals import Waiter
from litequeue.sqlite.watching import WATCHER, Listener
from tests.collecting import uncollected

if TYPE_CHECKING:
    from types import FrameType

    from litequeue import Queue
    from tests.conftest import MakeQueue
    from tests.sqlite.conftest import Asleep, MakeTurns, StartWaiting

PATIENCE_S = 20.0
FAR_S = 3600.0

pytestmark = pytest.mark.usefixtures("no_net")


@pytest.fixture
def waiter(queue: Queue) -> Waiter:
    """Give a waiter for any work."""
    return queue.waiter()


AssertItWaits = Callable[[Waiter], None]


@pytest.fixture
def assert_it_waits(queue: Queue, asleep: Asleep, start_waiting: StartWaiting) -> AssertItWaits:
    """Give what makes sure that no interrupt is left over, and that a waiter is sound; nothing may be ready."""

    def look(waiter: Waiter) -> None:
        while not asleep.is_empty():
            asleep.wait()
        waiting = start_waiting(lambda: waiter.wait(FAR_S))
        asleep.wait()
        waiting.assert_waiting()
        queue.enqueue("work")
        assert waiting.answer() is True
        assert waiter._listeners == []
        assert WATCHER._listeners == {}

    return look


# --- every interleaving


def _orders(waits: int, interrupts: int) -> list[str]:
    places = itertools.combinations(range(waits + interrupts), waits)
    return ["".join("W" if place in waiters else "E" for place in range(waits + interrupts)) for waiters in places]


class _Stepping(Waiter):
    """A waiter whose flag is read and set in steps."""

    def __init__(self, queue: Queue, asked: Callable[[], object], says: Callable[[], object]) -> None:
        self._asked, self._says = asked, says
        self._flag = False
        super().__init__(queue._store, "default", None)

    @property
    def _is_interrupted(self) -> bool:
        flag = self._flag
        self._asked()
        return flag

    @_is_interrupted.setter
    def _is_interrupted(self, is_interrupted: bool) -> None:
        if is_interrupted:
            self._says()
        self._flag = is_interrupted


@pytest.mark.parametrize("order", _orders(5, 2))
def test_no_interrupt_is_lost_whatever_the_order(
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
    make_turns: MakeTurns,
    start_waiting: StartWaiting,
    assert_it_waits: AssertItWaits,
    *,
    order: str,
) -> None:
    """A waiter forgets, asks, has its answer, looks and sleeps; an interrupter says it and wakes.

    The wait ends without the net, and then a new one waits (DESIGN §4).
    """
    turns = make_turns(order)
    waiter = _Stepping(queue, turns.stepping("W", lambda: None), turns.stepping("E", lambda: None))
    monkeypatch.setattr(Listener, "forget", turns.stepping("W", Listener.forget))
    monkeypatch.setattr(waiter, "_has_been_interrupted", turns.stepping("W", waiter._has_been_interrupted))
    monkeypatch.setattr(queue._store, "read", turns.stepping("W", queue._store.read))
    monkeypatch.setattr(Listener, "sleep", turns.stepping("W", Listener.sleep))
    monkeypatch.setattr(Listener, "wake", turns.stepping("E", Listener.wake))

    def wait() -> bool:
        try:
            return waiter.wait(FAR_S)
        finally:
            turns.end("W")

    def interrupt() -> bool:
        try:
            waiter.interrupt()
        finally:
            turns.end("E")
        return True

    waiting = start_waiting(wait)
    interrupting = start_waiting(interrupt)
    turns.run()
    assert waiting.answer() is False
    assert interrupting.answer() is True
    assert_it_waits(waiter)


class _Handler:
    """Interrupts as a signal handler would, in the waiting thread itself: before the n-th call that it makes.

    At the latest before the one that blocks; `was_last` says that it was this one.
    """

    def __init__(self, waiter: Waiter, nth: int) -> None:
        self.was_last = False
        self._waiter = waiter
        self._left = nth

    def __enter__(self) -> None:
        sys.setprofile(self._at_each_event)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _at_each_event(self, _frame: FrameType, event: str, called: object) -> None:
        if event in ("call", "c_call"):
            self._left -= 1
            self.was_last = event == "c_call" and getattr(called, "__qualname__", "") == "SimpleQueue.get"
            if self._left == 0 or self.was_last:
                sys.setprofile(None)
                self._waiter.interrupt()


@pytest.mark.parametrize("verb", [Waiter.wait, Waiter.pause])
def test_an_interrupt_from_a_signal_handler_is_heard_at_whatever_point_it_comes(
    queue: Queue, waiter: Waiter, verb: Callable[[Waiter, float], bool | None], asleep: Asleep
) -> None:
    """Before each call that the wait makes, until it blocks; it ends at once, and nothing is left of it (DESIGN §4)."""
    assert not waiter.wait(0)  # whatever is made at a first wait is there
    with uncollected():
        for nth in itertools.count(1):
            handler = _Handler(waiter, nth)
            began = time.monotonic()
            with handler:
                assert not verb(waiter, PATIENCE_S)
            assert time.monotonic() - began < PATIENCE_S / 2, f"the interrupt before call {nth} was lost"
            assert waiter._listeners == []
            waiter._is_interrupted = False  # it may have come when the wait was over
            if handler.was_last:
                break
    assert nth > 5, "it was interrupted at many places"
    assert not asleep.is_empty()
    queue.enqueue("work")
    assert waiter.wait(0)


# --- who interrupts


@pytest.mark.parametrize("verb", [Waiter.wait, Waiter.pause])
def test_an_interrupt_from_another_thread_ends_a_wait(
    waiter: Waiter,
    asleep: Asleep,
    start_waiting: StartWaiting,
    assert_it_waits: AssertItWaits,
    *,
    verb: Callable[[Waiter, float], bool | None],
) -> None:
    """`False`, at once; a new wait waits (DESIGN §4)."""
    waiting = start_waiting(lambda: bool(verb(waiter, FAR_S)))
    asleep.wait()
    waiter.interrupt()
    assert waiting.answer() is False
    assert_it_waits(waiter)


@pytest.mark.parametrize("verb", [Waiter.wait, Waiter.pause])
def test_an_interrupt_that_came_before_ends_the_next_wait(
    queue: Queue,
    waiter: Waiter,
    asleep: Asleep,
    assert_it_waits: AssertItWaits,
    *,
    verb: Callable[[Waiter, float], bool | None],
) -> None:
    """However many they were they end one, without a look; even one that has no time-out (DESIGN §4)."""
    queue.enqueue("work")
    for _ in range(3):
        waiter.interrupt()
    assert not verb(waiter, FAR_S)
    asleep.assert_none()
    lease = queue.lease_next()
    assert lease is not None
    assert_it_waits(waiter)


def test_an_interrupt_in_the_midst_of_a_wait_that_finds_work_ends_the_next_one(
    queue: Queue, waiter: Waiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came while the waiter looked, and what it tells of may not be known yet (DESIGN §4)."""
    queue.enqueue("work")
    read = queue._store.read

    def interrupted_read() -> object:
        waiter.interrupt()
        return read()

    monkeypatch.setattr(queue._store, "read", interrupted_read)
    assert waiter.wait(FAR_S) is True
    monkeypatch.undo()
    assert waiter.wait(FAR_S) is False
    assert waiter.wait(FAR_S) is True


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals of threads are those of Unix")
@pytest.mark.parametrize("verb", [Waiter.wait, Waiter.pause])
def test_a_signal_whose_handler_interrupts_ends_a_wait_of_the_main_thread(
    waiter: Waiter, asleep: Asleep, monkeypatch: pytest.MonkeyPatch, verb: Callable[[Waiter, float], bool | None]
) -> None:
    """As a worker is told to stop; Python notices a signal late in the few steps before it blocks, hence the net."""
    monkeypatch.setattr(arrivals, "_NET_S", 1.0)
    before = signal.signal(signal.SIGUSR1, lambda *_: waiter.interrupt())
    began = time.monotonic()

    def send() -> None:
        asleep.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    sending = threading.Thread(target=send)
    sending.start()
    try:
        assert not verb(waiter, PATIENCE_S)
    finally:
        sending.join()
        signal.signal(signal.SIGUSR1, before)
    assert time.monotonic() - began < PATIENCE_S / 2


@pytest.mark.parametrize("comes", ["in the rest", "in the sleep before"])
def test_an_interrupt_ends_a_rest_too(
    queue: Queue, asleep: Asleep, start_waiting: StartWaiting, monkeypatch: pytest.MonkeyPatch, *, comes: str
) -> None:
    """Who is rung for others again and again rests, and hears it all the same (DESIGN §4)."""
    for name in ("_SOON_S", "_LEAST_S", "_MOST_REST_S"):
        monkeypatch.setattr(arrivals, name, FAR_S)
    resting = threading.Event()
    rest = Listener.rest

    def tell(listener: Listener, seconds: float) -> None:
        resting.set()
        rest(listener, seconds)

    monkeypatch.setattr(Listener, "rest", tell)
    waiter = queue.waiter(["mine"])
    waiting = start_waiting(lambda: waiter.wait(FAR_S))
    asleep.wait()
    queue.enqueue("others")  # after this one it listens at once, after the next it rests
    asleep.wait()
    if comes == "in the rest":
        queue.enqueue("others")
        assert resting.wait(PATIENCE_S)
    waiter.interrupt()
    assert waiting.answer() is False
    assert resting.is_set() == (comes == "in the rest")


def test_of_several_threads_that_wait_each_interrupt_lets_one_go(
    queue: Queue, waiter: Waiter, asleep: Asleep, start_waiting: StartWaiting
) -> None:
    """The others look, and wait on; work lets go the rest (DESIGN §4)."""
    answers: list[bool] = []
    ended = threading.Semaphore(0)

    def wait() -> bool:
        answers.append(waiter.wait(FAR_S))
        ended.release()
        return True

    for _ in range(3):
        start_waiting(wait)
        asleep.wait()
    for left in (2, 1):
        waiter.interrupt()
        assert ended.acquire(timeout=PATIENCE_S)
        for _ in range(left):
            asleep.wait()
    queue.enqueue("work")
    assert ended.acquire(timeout=PATIENCE_S)
    assert answers == [False, False, True]


def test_an_interrupt_is_for_one_waiter(
    queue: Queue, waiter: Waiter, asleep: Asleep, start_waiting: StartWaiting
) -> None:
    """Another one on the same handle waits on (DESIGN §4)."""
    other = queue.waiter()
    waiting = start_waiting(lambda: waiter.wait(FAR_S))
    going_on = start_waiting(lambda: other.wait(FAR_S))
    asleep.wait()
    asleep.wait()
    waiter.interrupt()
    assert waiting.answer() is False
    going_on.assert_waiting()
    queue.enqueue("work")
    assert going_on.answer() is True


# --- what it waits for


def test_a_waiter_waits_for_its_kinds_in_its_scope(queue: Queue, asleep: Asleep, start_waiting: StartWaiting) -> None:
    """Those of its making, again and again (DESIGN §4)."""
    waiter = queue.waiter(["mine:"], scope="there")
    waiting = start_waiting(lambda: waiter.wait(FAR_S))
    asleep.wait()
    for kind, scope in (("other", "there"), ("mine:a", "default")):
        queue.enqueue(kind, scope=scope)
        asleep.wait()
        waiting.assert_waiting()
    queue.enqueue("mine:a", scope="there")
    assert waiting.answer() is True
    assert waiter.wait(0)
    assert queue.lease_next(["mine:"], scope="there") is not None
    assert not waiter.wait(0)


def test_a_wait_and_a_pause_end_when_their_time_is_over(waiter: Waiter) -> None:
    """`False` and `None`, by real time."""
    began = time.monotonic()
    assert waiter.wait(timedelta(milliseconds=50)) is False
    assert time.monotonic() - began >= 0.05
    waiter.pause(0.05)
    assert time.monotonic() - began >= 0.1
    waiter.pause(0)
    assert time.monotonic() - began < PATIENCE_S


def test_a_pause_looks_for_nothing_and_hears_no_bell(
    queue: Queue, waiter: Waiter, asleep: Asleep, start_waiting: StartWaiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that comes does not end it, and nothing is read (DESIGN §4)."""

    def refuse() -> object:
        raise AssertionError("it looked")

    def pause() -> bool:
        waiter.pause()
        return True

    waiting = start_waiting(pause)
    asleep.wait()
    with monkeypatch.context() as patch:
        patch.setattr(queue._store, "read", refuse)
        queue.enqueue("work")
        assert WATCHER._listeners == {}
        waiting.assert_waiting()
        asleep.assert_none()
        waiter.interrupt()
        assert waiting.answer() is True


def test_a_handle_that_is_closed_ends_a_wait_and_a_pause(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait with `QueueClosed` at once, the pause within about a second; so does a new one of each (§6)."""
    monkeypatch.setattr(arrivals, "_NET_S", 0.05)
    handle = make_queue()
    waiter = handle.waiter()
    waiting = start_waiting(lambda: waiter.wait(FAR_S))
    asleep.wait()

    def pause() -> bool:
        waiter.pause(FAR_S)
        return True

    pausing = start_waiting(pause)
    asleep.wait()
    handle.close()
    assert isinstance(waiting.answer(), QueueClosed)
    assert pausing.answer() is True
    with pytest.raises(QueueClosed):
        waiter.wait(FAR_S)
    waiter.pause(FAR_S)


# --- bad input


@pytest.mark.parametrize("timeout", [-1, math.nan, math.inf, "5", True])
@pytest.mark.parametrize("verb", [Waiter.wait, Waiter.pause])
def test_a_bad_time_is_refused(waiter: Waiter, verb: Callable[[Waiter, float], bool | None], timeout: float) -> None:
    """By name, value and bounds (§6)."""
    with pytest.raises(UsageError, match="timeout must be"):
        verb(waiter, timeout)
    assert waiter._listeners == []


def test_bad_kinds_and_scopes_are_refused_when_it_is_made(queue: Queue) -> None:
    """By name, value and bounds (§6)."""
    with pytest.raises(UsageError, match="kinds must be"):
        queue.waiter("work")
    with pytest.raises(UsageError, match="scope must be"):
        queue.waiter(scope="")


def test_a_wait_inside_ones_own_transaction_is_refused(queue: Queue, waiter: Waiter) -> None:
    """It would wait for what cannot come (V14)."""
    with queue.transaction(), pytest.raises(UsageError, match="inside it"):
        waiter.wait(0)


def test_it_has_a_name_in_the_package() -> None:
    """For annotations of those who write workers (§9)."""
    assert litequeue.Waiter is Waiter
