"""Waiting for the end of a job: no end is missed, whoever comes first, and what it is told as (DESIGN §4).

Only rings wake here, and where it is said, the looks of the first second: the slow look that is the net is far away.
"""

from __future__ import annotations

import itertools
import math
import os
import pickle
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

import litequeue
from litequeue import (
    JobFailed,
    JobNotFound,
    JobState,
    JobWaiter,
    LiteQueueError,
    NewJob,
    QueueClosed,
    StorageLost,
    UsageError,
    WaitTimeout,
)
from litequeue.sqlite import arrivals, bell, results, watching
from litequeue.sqlite.bell import Bell
from litequeue.sqlite.watching import WATCHER, Listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Lease, Queue
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue
    from tests.sqlite.conftest import Asleep, MakeTurns, StartWaiting

PATIENCE_S = 20.0
FAR_S = 3600.0

pytestmark = pytest.mark.usefixtures("no_net")


@pytest.fixture
def done(queue: Queue) -> Path:
    """Give the path of the bell."""
    return Path(f"{queue.path}-done")


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, done: Path) -> None:
    """Let all know of the bell: who waits relies on it, and ringers look for it each time."""
    monkeypatch.setattr(results, "_ALL_KNOW_S", 0.0)
    monkeypatch.setattr(bell, "_LOOK_AGAIN_S", 0.0)
    done.touch(0o600)


def _leased(queue: Queue) -> Lease:
    queue.enqueue("work")
    lease = queue.lease_next()
    assert lease is not None
    return lease


# --- every interleaving


def _orders(waits: int, ends: int) -> list[str]:
    places = itertools.combinations(range(waits + ends), waits)
    return ["".join("W" if place in waiters else "E" for place in range(waits + ends)) for waiters in places]


def _end_between(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch, make_turns: MakeTurns, order: str
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return a wait (look, forget, watch, look, sleep) and an end (commit, and ring or look for the bell).

    A ring for somebody who watches has been heard when that step is over.
    """
    waiter, ender = make_queue(), make_queue()
    lease = _leased(ender)
    turns = make_turns(order)
    heard = threading.Semaphore(0)
    wake, ring = WATCHER._wake, ender._store._done_bell.ring

    def hear(key: int) -> None:
        wake(key)
        heard.release()

    def ring_and_be_heard() -> None:
        is_watched = bool(WATCHER._listeners) and bell._LOOK_AGAIN_S == 0
        ring()
        assert not is_watched or heard.acquire(timeout=PATIENCE_S)

    monkeypatch.setattr(WATCHER, "_wake", hear)
    monkeypatch.setattr(Listener, "forget", turns.stepping("W", Listener.forget))
    monkeypatch.setattr(waiter._store, "read", turns.stepping("W", waiter._store.read))
    monkeypatch.setattr(WATCHER, "watch", turns.stepping("W", WATCHER.watch))
    monkeypatch.setattr(Listener, "sleep", turns.stepping("W", Listener.sleep))
    monkeypatch.setattr(ender._store, "commit", turns.stepping("E", ender._store.commit))
    monkeypatch.setattr(ender._store._done_bell, "ring", turns.stepping("E", ring_and_be_heard))

    def wait() -> object:
        try:
            return waiter.wait_for(lease.job_id, FAR_S).result
        finally:
            turns.end("W")

    def end() -> object:
        try:
            lease.complete("done")
        finally:
            turns.end("E")
        return True

    threading.Thread(target=turns.run, daemon=True).start()
    return wait, end


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("order", _orders(5, 2))
def test_no_ring_is_missed_whatever_the_order(
    make_queue: MakeQueue,
    monkeypatch: pytest.MonkeyPatch,
    make_turns: MakeTurns,
    start_waiting: StartWaiting,
    *,
    order: str,
) -> None:
    """Where all know of the bell; nothing else wakes here (DESIGN §4)."""
    wait, end = _end_between(make_queue, monkeypatch, make_turns, order)
    waiting, ending = start_waiting(wait), start_waiting(end)
    assert waiting.answer() == "done"
    assert ending.answer() is True


@pytest.mark.parametrize("order", _orders(5, 2))
@pytest.mark.parametrize("ringer", ["has just looked", "looks"])
def test_no_end_is_missed_while_the_bell_is_made_whatever_the_order(
    make_queue: MakeQueue,
    monkeypatch: pytest.MonkeyPatch,
    make_turns: MakeTurns,
    start_waiting: StartWaiting,
    done: Path,
    *,
    order: str,
    ringer: str,
) -> None:
    """A ringer that has just looked for it rings nobody; who has made it does not rely on it yet (DESIGN §4)."""
    monkeypatch.setattr(results, "_ALL_KNOW_S", FAR_S)
    monkeypatch.setattr(bell, "_LOOK_AGAIN_S", FAR_S if ringer == "has just looked" else 0.0)
    wait, end = _end_between(make_queue, monkeypatch, make_turns, order)
    assert not done.exists()
    waiting, ending = start_waiting(wait), start_waiting(end)
    assert waiting.answer() == "done"
    assert ending.answer() is True


def test_a_waiter_relies_on_the_bell_only_when_every_ringer_has_looked_for_it(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ringers may go without a look for a second; who waits looks for longer than that (DESIGN §4)."""
    assert results._ALL_KNOW_S > bell._LOOK_AGAIN_S
    monkeypatch.setattr(results, "_ALL_KNOW_S", 0.3)
    waiter, ender = make_queue(), make_queue()
    lease = _leased(ender)
    waiting = start_waiting(lambda: waiter.wait_for(lease.job_id, FAR_S).state)
    slept: list[float] = []
    while not slept or slept[-1] <= 0.05:
        slept.append(asleep.wait())
    assert slept[:7] == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05]
    assert sum(slept[:-1]) <= 0.35
    assert slept[-1] > FAR_S / 2
    waiting.assert_waiting()
    ender._store._done_bell._look_again_at = 0
    lease.complete()
    assert waiting.answer() is JobState.COMPLETED


# --- how it ends


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("has_ended", [False, True], ids=["while it waits", "before"])
def test_a_completed_job_is_returned_with_its_result(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting, *, has_ended: bool
) -> None:
    """At once when it has ended already (DESIGN §4)."""
    waiter, ender = make_queue(), make_queue()
    lease = _leased(ender)
    if has_ended:
        lease.complete({"pages": 3})
        job = waiter.wait_for(str(lease.job_id))
        asleep.assert_none()
    else:
        waiting = start_waiting(lambda: waiter.wait_for(lease.job_id))
        asleep.wait()
        lease.complete({"pages": 3})
        answer = waiting.answer()
        assert isinstance(answer, litequeue.Job)
        job = answer
    assert (job.state, job.result, job.job_id) == (JobState.COMPLETED, {"pages": 3}, lease.job_id)


def _fails(_: Queue, lease: Lease, __: FakeClock) -> None:
    lease.fail("ValueError: no such page\nTraceback …", retryable=False)


def _is_reaped(queue: Queue, _: Lease, clock: FakeClock) -> None:
    queue.set("max_attempts", 1)
    clock.advance(1000)
    assert litequeue.Maintenance(queue).run_once().reaped == 1


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("end", "error"), [(_fails, "ValueError: no such page"), (_is_reaped, "lease expired")], ids=["fail", "reap"]
)
def test_a_dead_job_is_raised_with_its_last_error(
    make_queue: MakeQueue,
    clock: FakeClock,
    asleep: Asleep,
    start_waiting: StartWaiting,
    *,
    end: Callable[[Queue, Lease, FakeClock], None],
    error: str,
) -> None:
    """`JobFailed`, whoever buried it, with the first line of it in its text and the record in `job` (DESIGN §4)."""
    waiter, ender = make_queue(), make_queue()
    lease = _leased(ender)
    waiting = start_waiting(lambda: waiter.wait_for(lease.job_id))
    asleep.wait()
    end(ender, lease, clock)
    failed = waiting.answer()
    assert isinstance(failed, JobFailed)
    assert failed.job_id == lease.job_id
    assert failed.last_error is not None
    assert failed.last_error.startswith(error)
    assert failed.job.state is JobState.DEAD
    assert str(failed) == f"job {lease.job_id} (work) is dead: {error}"
    twin = pickle.loads(pickle.dumps(failed))  # noqa: S301 - our own
    assert (str(twin), twin.job.events) == (str(failed), failed.job.events)
    with pytest.raises(JobFailed):
        waiter.wait_for(lease.job_id, 0)


@pytest.mark.usefixtures("known")
def test_a_job_that_expires_is_raised(
    make_queue: MakeQueue, clock: FakeClock, asleep: Asleep, start_waiting: StartWaiting
) -> None:
    """Maintenance buries it (V11)."""
    waiter, ender = make_queue(), make_queue()
    job_id = ender.enqueue("work", expires=5).job_id
    waiting = start_waiting(lambda: waiter.wait_for(job_id))
    asleep.wait()
    clock.advance(6)
    assert litequeue.Maintenance(ender).run_once().expired == 1
    failed = waiting.answer()
    assert isinstance(failed, JobFailed)
    assert failed.last_error == "expired"


@pytest.mark.usefixtures("known")
def test_a_cancelled_job_is_returned(make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting) -> None:
    """Somebody wanted that: it is no failure (DESIGN §4)."""
    waiter, ender = make_queue(), make_queue()
    job_id = ender.enqueue("work").job_id
    waiting = start_waiting(lambda: waiter.wait_for(job_id).state)
    asleep.wait()
    ender.cancel(job_id)
    assert waiting.answer() is JobState.CANCELLED


@pytest.mark.usefixtures("known")
def test_a_job_that_is_not_kept_is_not_found_when_it_has_ended(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting
) -> None:
    """`JobNotFound`: with a retention of 0 it went when it ended (§5)."""
    waiter, ender = make_queue(), make_queue()
    ender.set("completed_retention", 0)
    lease = _leased(ender)
    waiting = start_waiting(lambda: waiter.wait_for(lease.job_id))
    asleep.wait()
    lease.complete("gone")
    missing = waiting.answer()
    assert isinstance(missing, JobNotFound)
    assert missing.job_id == lease.job_id


def test_a_job_that_never_was_is_not_found(queue: Queue, done: Path, asleep: Asleep) -> None:
    """At once (V13)."""
    with pytest.raises(JobNotFound):
        queue.wait_for(uuid4())
    asleep.assert_none()
    assert not done.exists()


@pytest.mark.usefixtures("known")
def test_a_job_that_comes_back_is_waited_for(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting
) -> None:
    """Failed, released, delayed, leased again: it has not ended, and no payload is read meanwhile (DESIGN §4)."""
    waiter, ender = make_queue(), make_queue()
    lease = _leased(ender)
    waiting = start_waiting(lambda: waiter.wait_for(lease.job_id).attempts)
    asleep.wait()
    lease.fail("boom", delay=0)
    again = ender.lease_next()
    assert again is not None
    again.release()
    last = ender.lease_next()
    assert last is not None
    asleep.assert_none()
    waiting.assert_waiting()
    last.complete()
    assert waiting.answer() == 2


@pytest.mark.usefixtures("known")
def test_verbs_of_other_threads_that_share_a_commit_end_waits(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting
) -> None:
    """One ring for all that ended in it (DESIGN §4)."""
    waiter, ender = make_queue(), make_queue()
    ender.enqueue_many(NewJob("work", number) for number in range(8))
    leases = ender.lease_many(8)
    waits = [start_waiting(lambda lease=lease: waiter.wait_for(lease.job_id).result) for lease in leases]  # type: ignore[misc]
    for _ in waits:
        asleep.wait()
    with ender.transaction() as tx:
        ends = [
            start_waiting(lambda lease=lease: lease.complete(lease.payload))  # type: ignore[misc]
            for lease in leases
        ]
        deadline = time.monotonic() + PATIENCE_S
        while len(ender._store._writer.line.waiting) < len(leases):
            assert time.monotonic() < deadline
        tx.enqueue("other")
    for end in ends:
        assert end.answer() is None
    assert [waiting.answer() for waiting in waits] == list(range(8))


# --- time, interrupts, and the end of the handle


def test_a_wait_whose_time_is_over_says_what_it_saw(queue: Queue, done: Path) -> None:
    """`WaitTimeout`, which is a `TimeoutError` too; the job goes on. A time of 0 only looks, and makes no bell."""
    lease = _leased(queue)
    began = time.monotonic()
    with pytest.raises(WaitTimeout, match=f"the wait for job {lease.job_id} is over, and it is leased") as timeout:
        queue.wait_for(lease.job_id, 0)
    assert not done.exists()
    assert isinstance(timeout.value, TimeoutError)
    assert isinstance(timeout.value, LiteQueueError)
    assert (timeout.value.job_id, timeout.value.state) == (lease.job_id, "leased")
    with pytest.raises(WaitTimeout):
        queue.wait_for(lease.job_id, 0.05)
    assert time.monotonic() - began >= 0.05
    lease.complete()
    assert queue.wait_for(lease.job_id, 0).state is JobState.COMPLETED


@pytest.mark.parametrize("timeout", [-1, math.nan, math.inf, "5", True])
@pytest.mark.parametrize("has_ended", [False, True])
def test_a_bad_time_is_refused(queue: Queue, timeout: float, *, has_ended: bool) -> None:
    """By name, value and bounds, whatever has become of the job (§6)."""
    lease = _leased(queue)
    if has_ended:
        lease.complete()
    with pytest.raises(UsageError, match="timeout must be"):
        queue.wait_for(lease.job_id, timeout)


@pytest.mark.parametrize("job_id", ["", "no id", 7, None, b"0" * 16])
def test_a_bad_id_is_refused(queue: Queue, job_id: str) -> None:
    """By name, value and bounds (§6)."""
    with pytest.raises(UsageError, match="job_id must be"):
        queue.wait_for(job_id)


def test_a_wait_inside_ones_own_transaction_is_refused(queue: Queue) -> None:
    """It would wait for what cannot come (V14)."""
    job_id = queue.enqueue("work").job_id
    with queue.transaction(), pytest.raises(UsageError, match="inside it"):
        queue.wait_for(job_id)


@pytest.mark.usefixtures("known")
def test_a_wait_for_a_job_can_be_interrupted(queue: Queue, asleep: Asleep, start_waiting: StartWaiting) -> None:
    """By another thread: `WaitTimeout` before the time; an interrupt that came before ends it too (DESIGN §4)."""
    lease = _leased(queue)
    waiter = queue.job_waiter(lease.job_id)
    assert isinstance(waiter, JobWaiter)
    waiting = start_waiting(waiter.wait)
    asleep.wait()
    waiter.interrupt()
    assert isinstance(waiting.answer(), WaitTimeout)
    waiter.interrupt()
    with pytest.raises(WaitTimeout):
        waiter.wait(FAR_S)
    asleep.assert_none()
    waiting = start_waiting(lambda: waiter.wait().state)
    asleep.wait()
    lease.complete()
    assert waiting.answer() is JobState.COMPLETED
    assert waiter._listeners == []
    assert WATCHER._listeners == {}


@pytest.mark.usefixtures("known")
def test_who_waits_on_a_handle_that_is_closed_is_told_at_once(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting
) -> None:
    """`QueueClosed`; who waits on another handle of the file waits on (§6)."""
    closed, other = make_queue(), make_queue()
    lease = _leased(other)
    waiting = start_waiting(lambda: closed.wait_for(lease.job_id))
    going_on = start_waiting(lambda: other.wait_for(lease.job_id).state)
    asleep.wait()
    asleep.wait()
    closed.close()
    assert isinstance(waiting.answer(), QueueClosed)
    asleep.wait()
    going_on.assert_waiting()
    lease.complete()
    assert going_on.answer() is JobState.COMPLETED
    with pytest.raises(QueueClosed):
        closed.wait_for(lease.job_id)


@pytest.mark.usefixtures("known")
def test_who_waits_on_a_file_that_is_removed_is_told(
    queue: Queue, asleep: Asleep, monkeypatch: pytest.MonkeyPatch, start_waiting: StartWaiting
) -> None:
    """`StorageLost`, at its next look (§6)."""
    monkeypatch.setattr(arrivals, "_NET_S", 0.01)
    job_id = queue.enqueue("work").job_id
    waiting = start_waiting(lambda: queue.wait_for(job_id))
    asleep.wait()
    Path(queue.path).unlink()
    assert isinstance(waiting.answer(), StorageLost)


# --- the bell


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="elsewhere there is no bell")
def test_the_first_wait_makes_the_bell_and_nobody_else_does(queue: Queue, done: Path) -> None:
    """With the permissions of the queue's files; it stays, as the other one does (DESIGN §4, §9)."""
    first, second = _leased(queue), _leased(queue)
    first.complete()
    assert not queue.wait(0)
    queue.wait_for(first.job_id)
    assert not done.exists()
    while not done.exists():  # on a busy machine a short time is over before that
        with pytest.raises(WaitTimeout):
            queue.wait_for(second.job_id, 0.01)
    assert done.stat().st_mode & 0o777 == 0o600
    second.complete()
    queue.close()
    assert done.exists()


def test_a_wait_does_not_hear_the_bell_for_work(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting, known: None
) -> None:
    """Nor does who waits for work hear of jobs that end (DESIGN §4)."""
    assert known is None
    waiter, other = make_queue(), make_queue()
    lease = _leased(other)
    waiting = start_waiting(lambda: waiter.wait_for(lease.job_id).state)
    asleep.wait()
    for_work = start_waiting(lambda: waiter.wait(FAR_S, ["mine"]))
    asleep.wait()
    other.enqueue("others")
    asleep.wait()
    asleep.assert_none()
    lease.complete()
    assert waiting.answer() is JobState.COMPLETED
    asleep.assert_none()
    other.enqueue("mine")
    assert for_work.answer() is True


@pytest.mark.usefixtures("known")
def test_who_is_rung_for_the_ends_of_others_rests_when_there_are_many(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As who waits for work does, also while the bell is young; its own is found all the same (DESIGN §4)."""
    rests: list[float] = []
    monkeypatch.setattr(Listener, "rest", lambda _, seconds: rests.append(seconds))
    monkeypatch.setattr(arrivals, "_SOON_S", FAR_S)  # however slow the machine is
    monkeypatch.setattr(arrivals, "_RESTS_A_LOOK", 0)
    waiter, other = make_queue(), make_queue()
    lease = _leased(other)
    waiting = start_waiting(lambda: waiter.wait_for(lease.job_id).state)
    asleep.wait()
    for _ in range(7):
        other.cancel(other.enqueue("others").job_id)
        asleep.wait()
    assert rests == [0.001, 0.002, 0.004, 0.008, 0.016, 0.016]
    waiting.assert_waiting()
    lease.complete()
    assert waiting.answer() is JobState.COMPLETED


def test_a_look_that_ends_by_time_is_not_a_ring(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the bell is young the looks keep their pace: there are no rests between them (DESIGN §4)."""
    monkeypatch.setattr(results, "_ALL_KNOW_S", FAR_S)
    monkeypatch.setattr(arrivals, "_SOON_S", FAR_S)
    rests: list[float] = []
    monkeypatch.setattr(Listener, "rest", lambda _, seconds: rests.append(seconds))
    waiter, other = make_queue(), make_queue()
    lease = _leased(other)
    waiting = start_waiting(lambda: waiter.wait_for(lease.job_id).state)
    for _ in range(8):
        asleep.wait()
    lease.complete()
    assert waiting.answer() is JobState.COMPLETED
    assert len(rests) <= 1


def test_a_bell_that_is_removed_is_made_again_and_not_relied_on_at_first(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting, done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits hears that; ringers may go on with the old one for a second (DESIGN §4)."""
    monkeypatch.setattr(results, "_ALL_KNOW_S", 0.2)
    monkeypatch.setattr(bell, "_LOOK_AGAIN_S", FAR_S)
    waiter, ender = make_queue(), make_queue()
    lease = _leased(ender)
    done.touch(0o600)
    ender.cancel(ender.enqueue("others").job_id)  # it has the bell open
    waiting = start_waiting(lambda: waiter.wait_for(lease.job_id).state)
    while asleep.wait() <= 0.05:
        pass
    kept = os.open(done, os.O_RDONLY)  # so that the new one has another inode
    try:
        done.unlink()
        assert asleep.wait() <= 0.05
        assert done.exists()
        lease.complete()
        assert waiting.answer() is JobState.COMPLETED
    finally:
        os.close(kept)


def _no_source() -> None:
    return None


def test_where_the_kernel_tells_nothing_a_waiter_asks_and_makes_no_bell(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting, done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First each millisecond, then ever more slowly (DESIGN §4)."""
    monkeypatch.setattr(arrivals, "WATCHER", watching.Watcher())
    monkeypatch.setattr(watching, "_open_source", _no_source)
    waiter, ender = make_queue(), make_queue()
    lease = _leased(ender)
    waiting = start_waiting(lambda: waiter.wait_for(lease.job_id).state)
    assert [asleep.wait() for _ in range(8)] == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05]
    lease.complete()
    assert waiting.answer() is JobState.COMPLETED
    assert not done.exists()


@pytest.mark.parametrize("put", ["folder", "link"])
def test_where_something_else_stands_in_its_place_a_waiter_asks(
    make_queue: MakeQueue, done: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, *, put: str
) -> None:
    """It is left alone, and the wait ends all the same (§6, DESIGN §4)."""
    monkeypatch.setattr(WATCHER, "_has_failed", False)  # so that it is logged, whatever other tests did
    if put == "folder":
        done.mkdir()
    else:
        done.symlink_to("elsewhere")
    waiter, ender = make_queue(), make_queue()
    lease = _leased(ender)
    with pytest.raises(WaitTimeout):
        waiter.wait_for(lease.job_id, 0.05)
    timer = threading.Timer(0.01, lease.complete)
    timer.start()
    assert waiter.wait_for(lease.job_id, PATIENCE_S).state is JobState.COMPLETED
    timer.join()
    assert "asks again and again, its bell failed" in caplog.text
    assert not done.with_name("elsewhere").exists()


@pytest.mark.usefixtures("known")
def test_an_interrupt_after_the_commit_still_rings(
    make_queue: MakeQueue, asleep: Asleep, monkeypatch: pytest.MonkeyPatch, start_waiting: StartWaiting
) -> None:
    """The job has ended, and who waits for that hears of it (DESIGN §4, G11)."""
    waiter, ender = make_queue(), make_queue()
    lease = _leased(ender)
    waiting = start_waiting(lambda: waiter.wait_for(lease.job_id).state)
    asleep.wait()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(ender._store._writer.agreement), "committed", interrupt)
        with pytest.raises(KeyboardInterrupt):
            lease.complete()
    assert waiting.answer() is JobState.COMPLETED


@pytest.mark.usefixtures("known")
def test_the_ring_comes_after_the_commit(make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks when it rings finds the job ended (DESIGN §4)."""
    ender, other = make_queue(), make_queue()
    job_id: UUID = ender.enqueue("work").job_id
    seen: list[JobState] = []

    def ring(this: Bell) -> None:
        if this._path.endswith("-done"):
            seen.append(other.get(job_id).state)

    monkeypatch.setattr(Bell, "ring", ring)
    ender.cancel(job_id)
    assert seen == [JobState.CANCELLED]
