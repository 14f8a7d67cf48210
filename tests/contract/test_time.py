"""Time: leases run on the lease clock, everything else on the wall clock, and each is read once, late (§8, G8)."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from litequeue import JobState, Maintenance, NewJob
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litequeue import Queue
    from tests.conftest import JobIn, MakeQueue

SECOND = 1_000_000
HOUR = 3600


class CountingClock(FakeClock):
    """A fake clock that counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_wall = 0
        self.asked_monotonic = 0
        self.was_asked = threading.Event()

    def wall_us(self) -> int:
        """Count, and answer."""
        self.asked_wall += 1
        self.was_asked.set()
        return super().wall_us()

    def monotonic_us(self) -> int:
        """Count, and answer."""
        self.asked_monotonic += 1
        self.was_asked.set()
        return super().monotonic_us()


# --- steps and sleep


@pytest.mark.parametrize("step", [365 * 24 * HOUR, HOUR, -HOUR, -365 * 24 * HOUR])
def test_a_step_of_the_wall_clock_neither_ends_nor_prolongs_a_lease(
    queue: Queue, clock: FakeClock, job_in: JobIn, step: float
) -> None:
    """The lease lapses after its own time has passed, no sooner and no later (§8)."""
    job_id = job_in(JobState.LEASED)
    clock.advance(100)
    clock.step_wall(step)
    clock.advance(199.9)
    assert queue.reap_expired() == 0
    assert queue.lease_next() is None
    clock.advance(0.1)
    assert queue.reap_expired() == 1
    assert queue.get(job_id).state is JobState.RETRYABLE


def test_an_extension_after_a_step_counts_by_the_lease_clock(queue: Queue, clock: FakeClock) -> None:
    """Heartbeats go on as if nothing had happened (§8, V4)."""
    queue.enqueue("work")
    (lease,) = queue.lease_many(1)
    for step in (HOUR, -2 * HOUR, 5 * HOUR):
        clock.step_wall(step)
        clock.advance(200)
        lease.extend()
        assert queue.reap_expired() == 0
    clock.advance(299)
    assert queue.reap_expired() == 0
    clock.advance(1)
    assert queue.reap_expired() == 1


def test_a_suspended_laptop_loses_no_lease(queue: Queue, clock: FakeClock, job_in: JobIn) -> None:
    """Time that the machine slept through does not count (§8)."""
    job_id = job_in(JobState.LEASED)
    clock.advance(100)
    clock.suspend(8 * HOUR)
    Maintenance(queue).run_once()
    assert queue.get(job_id).state is JobState.LEASED
    clock.advance(200)
    Maintenance(queue).run_once()
    assert queue.get(job_id).state is JobState.RETRYABLE


def test_a_delay_goes_by_the_wall_clock(queue: Queue, clock: FakeClock) -> None:
    """`not_before` and `expires_at` are dates: a suspend brings them nearer (§8)."""
    queue.enqueue("later", delay=HOUR)
    queue.enqueue("until", expires=HOUR)
    clock.suspend(HOUR + 1)
    assert [lease.kind for lease in queue.lease_many(9)] == ["later"]
    assert queue.stats().counts[JobState.DEAD] == 1


@pytest.mark.parametrize("step", [0, 24 * HOUR, -24 * HOUR])
def test_a_deadline_is_shown_as_the_wall_time_at_which_it_will_lapse(
    queue: Queue, clock: FakeClock, job_in: JobIn, step: float
) -> None:
    """`lease_deadline` in a record is wall time as the clock stands now, in `get` and in `list` (§2, §8)."""
    job_id = job_in(JobState.LEASED)
    clock.advance(100)
    clock.step_wall(step)
    assert queue.get(job_id).lease_deadline == clock.wall_us() + 200 * SECOND
    assert queue.list()[0].lease_deadline == clock.wall_us() + 200 * SECOND


def test_what_is_written_down_is_wall_time(queue: Queue, clock: FakeClock, job_in: JobIn) -> None:
    """`created_at`, `leased_at`, `finished_at` and events, also after a step (§8)."""
    job_id = job_in(JobState.LEASED)
    start = clock.wall_us()
    clock.advance(1)
    clock.step_wall(-HOUR)
    queue.cancel(job_id)
    job = queue.get(job_id)
    assert (job.created_at, job.leased_at) == (start, start)
    assert [event.at for event in job.events] == [start, start, clock.wall_us()]
    assert job.finished_at is not None
    assert job.finished_at >= job.created_at


def test_two_handles_share_the_lease_clock(make_queue: MakeQueue) -> None:
    """Processes of one boot agree on when a lease lapses, whatever their wall clocks say (§8)."""
    now = FakeClock().wall_us()
    here, there = FakeClock(now), FakeClock(now + 24 * HOUR * SECOND)
    holder, other = make_queue(clock=here), make_queue(clock=there)
    holder.enqueue("work")
    holder.lease_next()
    for clock in (here, there):
        clock.advance(299)
    assert other.reap_expired() == 0
    for clock in (here, there):
        clock.advance(1)
    assert other.reap_expired() == 1


# --- reboots


def leased_before_the_reboot(
    make_queue: MakeQueue, clock: FakeClock, crash: Callable[[Queue], None], monotonic_us: int
) -> None:
    """Leave three leases, of a minute, an hour and a year, behind; then boot anew."""
    worker = make_queue()
    worker.enqueue_many(NewJob("work") for _ in range(3))
    for ttl in (60, HOUR, 365 * 24 * HOUR):
        worker.lease_next(ttl=ttl)
    crash(worker)
    clock.advance(10)
    clock.reboot(monotonic_us=monotonic_us)


@pytest.mark.parametrize("monotonic_us", [0, 1_000_000, 500 * 24 * HOUR * SECOND])
def test_a_reboot_lapses_every_lease_of_the_earlier_boot_at_the_first_opening(
    make_queue: MakeQueue, clock: FakeClock, crash: Callable[[Queue], None], monotonic_us: int
) -> None:
    """Whatever their deadlines, and wherever the new monotonic clock begins (§8; issue 2)."""
    leased_before_the_reboot(make_queue, clock, crash, monotonic_us)
    queue = make_queue()
    assert queue.stats().lapsed == 3
    assert queue.reap_expired() == 3


@pytest.mark.parametrize("way", ["closed", "crashed", "left open", "closed twice over"])
def test_a_reboot_lapses_them_also_when_the_first_opener_does_nothing_more(
    make_queue: MakeQueue, clock: FakeClock, crash: Callable[[Queue], None], way: str
) -> None:
    """The offset moves at the opening, in one step, so whoever comes next finds them lapsed (§8; issue 2)."""
    leased_before_the_reboot(make_queue, clock, crash, 1_000_000)
    opener = make_queue()
    match way:
        case "closed":
            opener.close()
        case "crashed":
            crash(opener)
        case "closed twice over":
            opener.close()
            make_queue().close()
        case _:
            pass
    assert make_queue().reap_expired() == 3


@pytest.mark.slow
def test_a_reboot_lapses_them_also_when_the_first_opener_is_killed(
    make_queue: MakeQueue, clock: FakeClock, crash: Callable[[Queue], None], tmp_path: Path
) -> None:
    """A process that opens the queue and dies at once has done all that is needed (§8; issue 2)."""
    leased_before_the_reboot(make_queue, clock, crash, 1_000_000)
    program = (
        "import os, sys, litequeue, litequeue.testing as t\n"
        "clock = t.FakeClock(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])\n"
        "litequeue.open(sys.argv[1], clock=clock, create=False)\n"
        "os._exit(9)\n"
    )
    arguments = (tmp_path / "queue.db", clock.wall_us(), clock.monotonic_us(), clock.boot_id())
    died = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], check=False, timeout=60)
    assert died.returncode == 9
    assert make_queue().reap_expired() == 3


def test_leases_of_the_new_boot_run_their_time(
    make_queue: MakeQueue, clock: FakeClock, crash: Callable[[Queue], None]
) -> None:
    """After a reboot the lease clock goes on; a further opening of the same boot lapses nothing (§8)."""
    leased_before_the_reboot(make_queue, clock, crash, 1_000_000)
    queue = make_queue()
    queue.reap_expired()
    job_id = queue.enqueue("new").job_id
    queue.lease_next(["new"])
    assert queue.get(job_id).lease_deadline == clock.wall_us() + 300 * SECOND
    make_queue().close()
    clock.advance(299)
    assert make_queue().reap_expired() == 0
    clock.advance(1)
    assert make_queue().reap_expired() == 1


def test_a_handle_of_this_boot_that_opened_first_agrees_with_the_next(
    make_queue: MakeQueue, clock: FakeClock, crash: Callable[[Queue], None]
) -> None:
    """Both see the same deadlines lapse at the same time (§8)."""
    leased_before_the_reboot(make_queue, clock, crash, 1_000_000)
    first, second = make_queue(), make_queue()
    assert first.stats().lapsed == second.stats().lapsed == 3
    assert second.reap_expired() == 3
    clock.advance(11)
    (lease,) = first.lease_many(1, ttl=20)
    assert second.get(lease.job_id).lease_deadline == clock.wall_us() + 20 * SECOND


def test_many_reboots_one_after_the_other_lapse_each_boots_leases(
    make_queue: MakeQueue, clock: FakeClock, crash: Callable[[Queue], None]
) -> None:
    """The lease clock only goes forward (§8)."""
    for boot in range(5):
        queue = make_queue()
        queue.enqueue("work", priority=boot)
        assert queue.reap_expired() == (1 if boot else 0)
        assert queue.lease_next(ttl=HOUR * (5 - boot)) is not None
        crash(queue)
        clock.advance(5)
        clock.reboot()


def test_a_reboot_forgets_nothing_else(make_queue: MakeQueue, clock: FakeClock, crash: Callable[[Queue], None]) -> None:
    """Waiting and finished jobs are as before (§8, G2)."""
    queue = make_queue()
    queue.enqueue_many([NewJob("ready"), NewJob("later", delay=60)])
    queue.enqueue("done", priority=0)
    queue.lease_many(1)[0].complete("result")
    before = queue.list()
    crash(queue)
    clock.reboot()
    assert make_queue().list() == before


# --- the clock is read once, after the lock is held


@pytest.mark.parametrize(
    "verb",
    [
        lambda queue: queue.enqueue("work", delay=5, expires=60),
        lambda queue: queue.enqueue_many(NewJob("work") for _ in range(50)),
        lambda queue: queue.enqueue("work", idempotency_key="k", on_conflict="reset"),
        lambda queue: queue.lease_many(10),
        lambda queue: queue.cancel(queue.enqueue("work").job_id),
    ],
    ids=["enqueue", "enqueue_many", "reset", "lease_many", "enqueue and cancel"],
)
def test_the_clock_is_read_once_a_transaction(make_queue: MakeQueue, verb: Callable[[Queue], object]) -> None:
    """All that a transaction writes down happened at one moment (G8)."""
    clock = CountingClock()
    queue = make_queue(clock=clock)
    queue.enqueue_many(NewJob("work", idempotency_key=key) for key in ("k", None, None))
    transactions = 2 if verb(queue) is None else 1
    clock.asked_wall = clock.asked_monotonic = 0
    verb(queue)
    assert (clock.asked_wall, clock.asked_monotonic) == (transactions, transactions)


def test_a_transaction_has_one_time_from_its_beginning_to_its_end(queue: Queue, clock: FakeClock) -> None:
    """Verbs of one `transaction()` share its moment, however long its block takes (G8, V14)."""
    start = clock.wall_us()
    with queue.transaction() as tx:
        first = tx.enqueue("work", delay=60).job_id
        clock.advance(30)
        second = tx.enqueue("work", delay=60).job_id
    gates = [queue.get(job_id).not_before for job_id in (first, second)]
    assert gates == [start + 60 * SECOND] * 2


def test_the_clock_is_read_after_the_lock_is_held(make_queue: MakeQueue) -> None:
    """Who waits for the lock has the time at which it got it, not that at which it asked (G8, G4)."""
    clock = CountingClock()
    owner, waiter = make_queue(), make_queue(clock=clock)
    clock.was_asked.clear()
    created: list[int] = []

    def enqueue() -> None:
        created.append(waiter.get(waiter.enqueue("work").job_id).created_at)

    thread = threading.Thread(target=enqueue)
    with owner.transaction():
        thread.start()
        was_read_too_soon = clock.was_asked.wait(0.2)
        clock.advance(60)
        owns_since = FakeClock.wall_us(clock)
    thread.join()
    assert not was_read_too_soon
    assert created == [owns_since]
