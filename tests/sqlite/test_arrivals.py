"""Waiting for work: no ring is missed, nobody's ring is taken by another, and nobody is woken for nothing (DESIGN §4).

Only rings, due times and lapses wake here: the slow look that is the net is far away. The clock of the jobs is moved by
hand; a time-out is only ever what fails a test.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import apsw
import pytest

from litequeue import QueueClosed, UsageError
from litequeue.sqlite import arrivals, watching
from litequeue.sqlite.bell import Bell
from litequeue.sqlite.watching import WATCHER, Listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Queue
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue

PATIENCE_S = 20.0
FAR_S = 3600.0


@pytest.fixture(autouse=True)
def _no_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing but what is tested wake a waiter."""
    monkeypatch.setattr(arrivals, "_NET_S", FAR_S)


class Asleep:
    """Tells when a waiter goes to sleep, and for how long at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._sleeps: SimpleQueue[float] = SimpleQueue()
        sleep = Listener.sleep

        def tell(listener: Listener, seconds: float) -> None:
            self._sleeps.put(seconds)
            sleep(listener, seconds)

        monkeypatch.setattr(Listener, "sleep", tell)

    def wait(self) -> float:
        """Wait for the next sleep; return how long it may last."""
        return self._sleeps.get(timeout=PATIENCE_S)

    def assert_none(self) -> None:
        """Make sure that nobody went to sleep since."""
        with pytest.raises(Empty):
            self._sleeps.get_nowait()


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> Asleep:
    """Give what tells when a waiter goes to sleep."""
    return Asleep(monkeypatch)


class Waiting:
    """A thread that waits for work; its answer, or what it raised."""

    def __init__(self, wait: Callable[[], bool]) -> None:
        self._answers: SimpleQueue[bool | BaseException] = SimpleQueue()
        self._wait = wait
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answers.put(self._wait())
        except BaseException as exc:  # noqa: BLE001 - told to the test
            self._answers.put(exc)

    def answer(self) -> bool | BaseException:
        """Wait for the end of the waiting."""
        return self._answers.get(timeout=PATIENCE_S)

    def assert_waiting(self) -> None:
        """Make sure that it has not ended."""
        with pytest.raises(Empty):
            self._answers.get_nowait()


# --- every interleaving


class Turns:
    """Lets two threads, W and E, take steps in an order that the test gives; a step ends where the next one begins."""

    def __init__(self, order: str) -> None:
        self._order = order
        self._left = {actor: order.count(actor) for actor in "WE"}
        self._go: dict[str, SimpleQueue[None]] = {actor: SimpleQueue() for actor in "WE"}
        self._come: dict[str, SimpleQueue[None]] = {actor: SimpleQueue() for actor in "WE"}
        self._ended: set[str] = set()

    def stepping(self, actor: str, work: Callable[..., object]) -> Callable[..., object]:
        """Return the same work as a step; once all of an actor's are over it is one no more."""

        def step(*args: object, **kwargs: object) -> object:
            if self._left[actor] > 0:
                self._left[actor] -= 1
                self._come[actor].put(None)
                self._go[actor].get(timeout=PATIENCE_S)
            return work(*args, **kwargs)

        return step

    def end(self, actor: str) -> None:
        """Say that an actor will take no more steps."""
        self._ended.add(actor)
        self._come[actor].put(None)

    def run(self) -> None:
        """Let the steps be taken in their order; the end of the waiter's last one, its sleep, is not waited for."""
        left = {actor: self._order.count(actor) for actor in "WE"}
        for actor in "WE":
            self._come[actor].get(timeout=PATIENCE_S)
        for actor in self._order:
            left[actor] -= 1
            if actor not in self._ended:
                self._go[actor].put(None)
                if left[actor] > 0 or actor == "E":
                    self._come[actor].get(timeout=PATIENCE_S)


def _orders() -> list[str]:
    """Return every order of a waiter's steps (forget, watch, look, sleep) and an enqueuer's (begin, commit, ring)."""
    places = itertools.combinations(range(7), 4)
    return ["".join("W" if place in waiters else "E" for place in range(7)) for waiters in places]


@pytest.mark.parametrize("order", _orders())
def test_no_ring_is_missed_whatever_the_order(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """A waiter forgets old rings, watches, looks and sleeps; another handle begins, commits and rings (DESIGN §4)."""
    waiter, enqueuer = make_queue(), make_queue()
    assert not waiter.wait(0)
    turns = Turns(order)
    monkeypatch.setattr(Listener, "forget", turns.stepping("W", Listener.forget))
    monkeypatch.setattr(WATCHER, "watch", turns.stepping("W", WATCHER.watch))
    monkeypatch.setattr(waiter._store, "read", turns.stepping("W", waiter._store.read))
    monkeypatch.setattr(Listener, "sleep", turns.stepping("W", Listener.sleep))
    monkeypatch.setattr(enqueuer._store, "begin", turns.stepping("E", enqueuer._store.begin))
    monkeypatch.setattr(enqueuer._store, "commit", turns.stepping("E", enqueuer._store.commit))
    monkeypatch.setattr(Bell, "ring", turns.stepping("E", Bell.ring))

    def wait() -> bool:
        try:
            return waiter.wait(FAR_S)
        finally:
            turns.end("W")

    def enqueue() -> bool:
        try:
            return enqueuer.enqueue("work").created
        finally:
            turns.end("E")

    waiting = Waiting(wait)
    enqueuing = Waiting(enqueue)
    turns.run()
    assert waiting.answer() is True
    assert enqueuing.answer() is True


# --- who is woken


def test_work_that_is_ready_is_told_at_once(queue: Queue, asleep: Asleep) -> None:
    """Nobody sleeps for it; nothing is taken (contract §9)."""
    queue.enqueue("work")
    assert queue.wait()
    assert queue.wait(timeout=0)
    asleep.assert_none()
    assert queue.lease_next() is not None


def test_a_wait_ends_when_its_time_is_over(queue: Queue) -> None:
    """`False`, by real time; the clock of the jobs has no part in it."""
    assert queue.wait(timeout=0) is False
    began = time.monotonic()
    assert queue.wait(timedelta(milliseconds=50)) is False
    assert time.monotonic() - began >= 0.05


@pytest.mark.parametrize("timeout", [-1, math.nan, math.inf, "5", True])
def test_a_bad_time_is_refused(queue: Queue, timeout: float) -> None:
    """By name, value and bounds (§6)."""
    with pytest.raises(UsageError, match="timeout"):
        queue.wait(timeout)


def test_a_wait_inside_ones_own_transaction_is_refused(queue: Queue) -> None:
    """It would wait for what cannot come (V14)."""
    with queue.transaction(), pytest.raises(UsageError, match="inside it"):
        queue.wait(timeout=0)


def test_each_waiter_is_woken_for_its_own_kind(make_queue: MakeQueue, asleep: Asleep) -> None:
    """Four threads on two handles wait for four kinds; whichever comes, its own waiter has it (DESIGN §4)."""
    handles = [make_queue(), make_queue()]
    waiting = {}
    for number in range(4):
        kind, handle = f"kind:{number}", handles[number % 2]
        waiting[kind] = Waiting(lambda handle=handle, kind=kind: handle.wait(FAR_S, [kind]))  # type: ignore[misc]
        asleep.wait()
    enqueuer = make_queue()
    for kind in ("kind:2", "kind:0", "kind:3", "kind:1"):
        enqueuer.enqueue(kind)
        assert waiting.pop(kind).answer() is True
        for other in waiting.values():
            asleep.wait()
            other.assert_waiting()


def test_a_ring_for_others_costs_one_look_and_no_write(make_queue: MakeQueue, asleep: Asleep) -> None:
    """A waiter whose kind did not come reads once, and writes nothing (DESIGN §4)."""
    waiter, enqueuer = make_queue(), make_queue()
    waiting = Waiting(lambda: waiter.wait(FAR_S, ["mine"]))
    asleep.wait()
    reader, writer = waiter._store._reader.connection, waiter._store._writer.connection
    assert reader is not None
    assert writer is not None
    ran: list[str] = []
    for connection in (reader, writer):
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, lambda event: ran.append(str(event["sql"])))
    changes, pages = writer.total_changes(), reader.total_changes()
    for times in range(1, 4):
        enqueuer.enqueue("others")
        asleep.wait()
        assert ran.count("BEGIN") == ran.count("COMMIT") == times
    assert not any(statement.startswith(("BEGIN IMMEDIATE", "UPDATE", "INSERT", "DELETE")) for statement in ran)
    assert (writer.total_changes(), reader.total_changes()) == (changes, pages)
    asleep.assert_none()
    waiting.assert_waiting()
    enqueuer.enqueue("mine")
    assert waiting.answer() is True


def test_a_ring_from_another_scope_lets_a_waiter_sleep_on(make_queue: MakeQueue, asleep: Asleep) -> None:
    """The scope is the handle's, or the one that is asked for."""
    waiter, enqueuer = make_queue(scope="mine"), make_queue(scope="theirs")
    waiting = Waiting(lambda: waiter.wait(FAR_S))
    asleep.wait()
    other = Waiting(lambda: waiter.wait(FAR_S, scope="theirs"))
    asleep.wait()
    enqueuer.enqueue("work")
    assert other.answer() is True
    asleep.wait()
    waiting.assert_waiting()
    enqueuer.enqueue("work", scope="mine")
    assert waiting.answer() is True


def test_a_handle_hears_its_own_rings(queue: Queue, asleep: Asleep) -> None:
    """One thread enqueues, another one of the same handle waits."""
    waiting = Waiting(lambda: queue.wait(FAR_S))
    asleep.wait()
    queue.enqueue("work")
    assert waiting.answer() is True


# --- time


class Passing:
    """Lets the time of the jobs pass instead of sleeping; `slept` is how long, each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
        self.slept: list[float] = []

        def sleep(_: Listener, seconds: float) -> None:
            self.slept.append(seconds)
            clock.advance(seconds)

        monkeypatch.setattr(Listener, "sleep", sleep)


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> Passing:
    """Give time that passes at once."""
    return Passing(monkeypatch, clock)


def test_a_waiter_wakes_by_itself_for_the_next_due_job(queue: Queue, passing: Passing) -> None:
    """Nobody rings when its time has come (DESIGN §4)."""
    queue.enqueue("work", delay=0.7)
    queue.enqueue("work", delay=30)
    assert queue.wait(FAR_S)
    assert passing.slept == [0.7]
    assert queue.lease_next() is not None


def test_a_waiter_wakes_by_itself_for_a_lapsing_lease(queue: Queue, make_queue: MakeQueue, passing: Passing) -> None:
    """Wherever it is: a lease call takes it back (contract §3)."""
    queue.enqueue("work", scope="other")
    assert queue.lease_next(scope="other", ttl=0.7) is not None
    assert make_queue().wait(FAR_S)
    assert passing.slept == [0.7]


def test_a_waiter_comes_back_for_what_nobody_rings_for(
    queue: Queue, passing: Passing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow look is the net, and time of jobs that a clock has jumped over is found by it (DESIGN §4)."""
    monkeypatch.setattr(arrivals, "_NET_S", 1.0)
    queue.enqueue("work", delay=2.5)
    assert queue.wait(FAR_S)
    assert passing.slept == [1.0, 1.0, 0.5]


def test_a_clock_that_stands_still_is_not_asked_without_a_pause(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    """What is due in a microsecond by a clock that a test has stopped is looked for each millisecond."""
    slept: list[float] = []

    def sleep(_: Listener, seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            clock.advance(0.000001)

    monkeypatch.setattr(Listener, "sleep", sleep)
    queue.enqueue("work", delay=0.000001)
    assert queue.wait(FAR_S)
    assert slept == [0.001] * 3


def test_a_job_that_is_due_earlier_is_heard_of(make_queue: MakeQueue, asleep: Asleep, clock: FakeClock) -> None:
    """A waiter that sleeps until a due time learns of an earlier one (DESIGN §4)."""
    waiter, enqueuer = make_queue(), make_queue()
    enqueuer.enqueue("work", delay=300)
    waiting = Waiting(lambda: waiter.wait(FAR_S))
    assert asleep.wait() == 300
    enqueuer.enqueue("work", delay=200)
    assert asleep.wait() == 200
    enqueuer.enqueue("work", delay=250)
    asleep.assert_none()
    clock.advance(200)
    enqueuer.enqueue("of another scope, that only rings", scope="other")
    assert waiting.answer() is True


# --- what goes wrong


def test_a_waiter_of_a_handle_that_is_closed_is_told_at_once(make_queue: MakeQueue, asleep: Asleep) -> None:
    """`QueueClosed`; who waits on another handle of the same file waits on (§6)."""
    closed, other = make_queue(), make_queue()
    waiting, going_on = Waiting(lambda: closed.wait(FAR_S)), Waiting(lambda: other.wait(FAR_S))
    asleep.wait()
    asleep.wait()
    closed.close()
    assert isinstance(waiting.answer(), QueueClosed)
    asleep.wait()
    going_on.assert_waiting()
    other.enqueue("work")
    assert going_on.answer() is True
    with pytest.raises(QueueClosed):
        closed.wait(0)


def test_an_interrupt_ends_a_wait(queue: Queue, asleep: Asleep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the main thread is its `KeyboardInterrupt`, and leaves nothing behind.

    Python does not notice a signal that comes in the few steps before a thread blocks; then the next look does.
    """
    monkeypatch.setattr(arrivals, "_NET_S", 1.0)
    began = time.monotonic()

    def press() -> None:
        asleep.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        queue.wait(PATIENCE_S)
    pressing.join()
    assert time.monotonic() - began < PATIENCE_S / 2
    assert WATCHER._listeners == {}
    queue.enqueue("work")
    assert queue.wait(0)


def test_an_interrupt_after_the_commit_still_rings(
    make_queue: MakeQueue, asleep: Asleep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is there, and who waits for it hears of it (DESIGN §4, G11)."""
    waiter, enqueuer = make_queue(), make_queue()
    waiting = Waiting(lambda: waiter.wait(FAR_S))
    asleep.wait()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(enqueuer._store.holdings, "ended", enqueuer._store.holdings.ended)
    monkeypatch.setattr(type(enqueuer._store._writer.agreement), "committed", interrupt)
    with pytest.raises(KeyboardInterrupt):
        enqueuer.enqueue("work")
    monkeypatch.undo()
    assert waiting.answer() is True


def test_a_bell_that_is_removed_is_watched_again(queue: Queue, make_queue: MakeQueue, asleep: Asleep) -> None:
    """A waiter hears that, and watches a new one (DESIGN §4)."""
    queue.enqueue("others")
    waiting = Waiting(lambda: queue.wait(FAR_S, ["mine"]))
    asleep.wait()
    Path(f"{queue.path}-bell").unlink()
    asleep.wait()
    make_queue().enqueue("mine")
    assert waiting.answer() is True


def test_a_ringer_finds_the_new_bell(queue: Queue, make_queue: MakeQueue, asleep: Asleep) -> None:
    """Within as long as a waiter goes without a look, here at once (DESIGN §4)."""
    queue.enqueue("others")
    waiting = Waiting(lambda: make_queue().wait(FAR_S, ["mine"]))
    asleep.wait()
    Path(f"{queue.path}-bell").unlink()
    asleep.wait()
    queue._store._bell._look_again_at = 0
    queue.enqueue("mine")
    assert waiting.answer() is True


def _no_source() -> None:
    return None


def _no_more_sources() -> None:
    raise OSError(errno.EMFILE, "too many")


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let the kernel tell nothing."""
    monkeypatch.setattr(arrivals, "WATCHER", watching.Watcher())
    monkeypatch.setattr(watching, "_open_source", request.param)


@pytest.mark.usefixtures("deaf")
@pytest.mark.parametrize("deaf", [_no_source, _no_more_sources], indirect=True)
def test_where_the_kernel_tells_nothing_a_waiter_asks(make_queue: MakeQueue, asleep: Asleep) -> None:
    """First each millisecond, then ever more slowly (DESIGN §4)."""
    waiter, enqueuer = make_queue(), make_queue()
    waiting = Waiting(lambda: waiter.wait(FAR_S))
    assert [asleep.wait() for _ in range(8)] == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05]
    enqueuer.enqueue("work")
    assert waiting.answer() is True


def test_a_source_that_fails_is_given_up(
    make_queue: MakeQueue, asleep: Asleep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits is woken, and asks from then on (DESIGN §4)."""

    class Failing:
        def __init__(self) -> None:
            self.fail = threading.Event()

        def arm(self, path: str, descriptor: int) -> int:
            assert path
            os.close(descriptor)
            return 1

        def heard(self) -> list[int]:
            self.fail.wait(PATIENCE_S)
            raise OSError(errno.EIO, "broken")

        def close(self) -> None:
            pass

    source = Failing()
    monkeypatch.setattr(arrivals, "WATCHER", watching.Watcher())
    monkeypatch.setattr(watching, "_open_source", lambda: source)
    waiter, enqueuer = make_queue(), make_queue()
    waiting = Waiting(lambda: waiter.wait(FAR_S))
    assert asleep.wait() > 60
    source.fail.set()
    assert asleep.wait() < 0.1
    enqueuer.enqueue("work")
    assert waiting.answer() is True


def test_waiting_again_and_again_leaves_nothing_behind(queue: Queue) -> None:
    """No listener, no watch and no thread more than one (DESIGN §4)."""
    for _ in range(200):
        assert not queue.wait(0)
    assert WATCHER._listeners == {}
    assert sum(thread.name == "litequeue-bell" for thread in threading.enumerate()) == 1
