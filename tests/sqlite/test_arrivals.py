"""Waiting for work: no ring is missed, nobody's ring is taken by another, and nobody is woken for nothing (DESIGN §4).

Only rings, due times and lapses wake here: the slow look that is the net is far away. The clock of the jobs is moved by
hand; a time-out is only ever what fails a test.
"""

from __future__ import annotations

import itertools
import math
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import apsw
import pytest

from litequeue import ANY, NewJob, UsageError
from litequeue.sqlite import arrivals, reading
from litequeue.sqlite.bell import Bell
from litequeue.sqlite.watching import WATCHER, Listener

if TYPE_CHECKING:
    from litequeue import Queue
    from litequeue.sqlite.reader import Reader
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue
    from tests.sqlite.conftest import Asleep, MakeTurns, StartWaiting

PATIENCE_S = 20.0
FAR_S = 3600.0

pytestmark = pytest.mark.usefixtures("no_net")


# --- every interleaving


def _orders() -> list[str]:
    """Return every order of a waiter's steps (forget, watch, look, sleep) and an enqueuer's (begin, commit, ring)."""
    places = itertools.combinations(range(7), 4)
    return ["".join("W" if place in waiters else "E" for place in range(7)) for waiters in places]


@pytest.mark.parametrize("order", _orders())
def test_no_ring_is_missed_whatever_the_order(
    make_queue: MakeQueue,
    monkeypatch: pytest.MonkeyPatch,
    order: str,
    start_waiting: StartWaiting,
    make_turns: MakeTurns,
) -> None:
    """A waiter forgets old rings, watches, looks and sleeps; another handle begins, commits and rings (DESIGN §4)."""
    waiter, enqueuer = make_queue(), make_queue()
    assert not waiter.wait(0)
    turns = make_turns(order)
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

    waiting = start_waiting(wait)
    enqueuing = start_waiting(enqueue)
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


def test_each_waiter_is_woken_for_its_own_kind(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting
) -> None:
    """Four threads on two handles wait for four kinds; whichever comes, its own waiter has it (DESIGN §4)."""
    handles = [make_queue(), make_queue()]
    waiting = {}
    for number in range(4):
        kind, handle = f"kind:{number}", handles[number % 2]
        waiting[kind] = start_waiting(lambda handle=handle, kind=kind: handle.wait(FAR_S, [kind]))  # type: ignore[misc]
        asleep.wait()
    enqueuer = make_queue()
    for kind in ("kind:2", "kind:0", "kind:3", "kind:1"):
        enqueuer.enqueue(kind)
        assert waiting.pop(kind).answer() is True
        for other in waiting.values():
            asleep.wait()
            other.assert_waiting()


def test_a_ring_for_others_costs_one_look_and_no_write(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting
) -> None:
    """A waiter whose kind did not come reads once, and writes nothing (DESIGN §4)."""
    waiter, enqueuer = make_queue(), make_queue()
    waiting = start_waiting(lambda: waiter.wait(FAR_S, ["mine"]))
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


@pytest.mark.parametrize(
    ("soon_s", "expected"),
    [(FAR_S, [0.001, 0.002, 0.004, 0.008, 0.016, 0.016, 0.016]), (0.0, [])],
    ids=["again and again", "now and then"],
)
def test_who_is_rung_for_others_rests_when_there_are_many(
    make_queue: MakeQueue,
    asleep: Asleep,
    start_waiting: StartWaiting,
    monkeypatch: pytest.MonkeyPatch,
    *,
    soon_s: float,
    expected: list[float],
) -> None:
    """Each rest is twice the one before, up to a bound; it does not keep one's own work away (DESIGN §4)."""
    rests: list[float] = []
    monkeypatch.setattr(Listener, "rest", lambda _, seconds: rests.append(seconds))
    monkeypatch.setattr(arrivals, "_SOON_S", soon_s)  # however slow the machine is
    monkeypatch.setattr(arrivals, "_RESTS_A_LOOK", 0)
    waiter, enqueuer = make_queue(), make_queue()
    waiting = start_waiting(lambda: waiter.wait(FAR_S, ["mine"]))
    asleep.wait()
    for _ in range(8):
        enqueuer.enqueue("others")
        asleep.wait()
    assert rests == expected
    enqueuer.enqueue("mine")
    assert waiting.answer() is True


def test_who_looks_at_many_scopes_rests_nine_times_as_long(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where rings come faster than looks at all scopes are done, these take a tenth of a core at most (V12)."""
    rests: list[float] = []
    now = [0.0]
    until_work = reading.until_work

    def slow_look(reader: Reader, scope: str | None, kinds: tuple[str, ...] | None) -> float:
        now[0] += 0.5
        return until_work(reader, scope, kinds)

    monkeypatch.setattr(Listener, "rest", lambda _, seconds: rests.append(seconds))
    monkeypatch.setattr(time, "thread_time", lambda: now[0])
    monkeypatch.setattr(reading, "until_work", slow_look)
    monkeypatch.setattr(arrivals, "_SOON_S", FAR_S)
    waiter, enqueuer = make_queue(), make_queue()
    waiting = start_waiting(lambda: waiter.wait(FAR_S, ["mine"], scope=ANY))
    asleep.wait()
    for _ in range(3):
        enqueuer.enqueue("others")
        asleep.wait()
    assert len(rests) == 2
    assert all(3 < seconds <= 4.5 for seconds in rests)
    enqueuer.enqueue("mine", scope="elsewhere")
    assert waiting.answer() is True


def test_a_ring_from_another_scope_lets_a_waiter_sleep_on(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting
) -> None:
    """The scope is the handle's, or the one that is asked for."""
    waiter, enqueuer = make_queue(scope="mine"), make_queue(scope="theirs")
    waiting = start_waiting(lambda: waiter.wait(FAR_S))
    asleep.wait()
    other = start_waiting(lambda: waiter.wait(FAR_S, scope="theirs"))
    asleep.wait()
    enqueuer.enqueue("work")
    assert other.answer() is True
    asleep.wait()
    waiting.assert_waiting()
    enqueuer.enqueue("work", scope="mine")
    assert waiting.answer() is True


def test_a_handle_hears_its_own_rings(queue: Queue, asleep: Asleep, start_waiting: StartWaiting) -> None:
    """One thread enqueues, another one of the same handle waits."""
    waiting = start_waiting(lambda: queue.wait(FAR_S))
    asleep.wait()
    queue.enqueue("work")
    assert waiting.answer() is True


# --- time


class Passing:
    """Lets the time of the jobs pass instead of sleeping; `slept` is how long, each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
        self.slept: list[float] = []

        def sleep(_: Listener, seconds: float) -> bool:
            self.slept.append(seconds)
            clock.advance(seconds)
            return False

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


def test_a_waiter_wakes_by_itself_for_the_next_token_of_a_rate(queue: Queue, passing: Passing) -> None:
    """The soonest of those that hold ready jobs back; nobody rings for that either (contract §5)."""
    queue.set("rate", "10/7s", "work")
    queue.set("rate", "1/5s", "slow")
    queue.set("rate", "1/s", "none is ready")
    queue.enqueue_many(NewJob(kind) for kind in ["work"] * 11 + ["slow"] * 2)
    assert len(queue.lease_many(99)) == 11
    assert queue.wait(FAR_S)
    assert passing.slept == [0.7]
    assert queue.lease_next() is not None


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

    def sleep(_: Listener, seconds: float) -> bool:
        slept.append(seconds)
        if len(slept) == 3:
            clock.advance(0.000001)
        return False

    monkeypatch.setattr(Listener, "sleep", sleep)
    queue.enqueue("work", delay=0.000001)
    assert queue.wait(FAR_S)
    assert slept == [0.001] * 3


def test_a_job_that_is_due_earlier_is_heard_of(
    make_queue: MakeQueue, asleep: Asleep, clock: FakeClock, start_waiting: StartWaiting
) -> None:
    """A waiter that sleeps until a due time learns of an earlier one (DESIGN §4)."""
    waiter, enqueuer = make_queue(), make_queue()
    enqueuer.enqueue("work", delay=300)
    waiting = start_waiting(lambda: waiter.wait(FAR_S))
    assert asleep.wait() == 300
    enqueuer.enqueue("work", delay=200)
    assert asleep.wait() == 200
    enqueuer.enqueue("work", delay=250)
    asleep.assert_none()
    clock.advance(200)
    enqueuer.enqueue("of another scope, that only rings", scope="other")
    assert waiting.answer() is True
