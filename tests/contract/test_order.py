"""Order: by priority, then in commit order, whatever the wall clock does; what comes back goes ahead (G4)."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from litequeue import JobState, NewJob
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from litequeue import Queue
    from tests.conftest import JobIn, MakeQueue

HOUR = 3600


def payloads(queue: Queue, limit: int = 1000) -> list[object]:
    """Lease what is ready; return the payloads in lease order."""
    return [lease.payload for lease in queue.lease_many(limit)]


def one_by_one(queue: Queue) -> list[object]:
    """Lease what is ready, a job a call; return the payloads in lease order."""
    leased = []
    while (lease := queue.lease_next()) is not None:
        leased.append(lease.payload)
    return leased


@pytest.mark.parametrize("kinds", [None, ["a", "b", "c"], ["a", "b", "c", "d:"]])
def test_priority_comes_first_then_enqueueing(queue: Queue, clock: FakeClock, kinds: list[str] | None) -> None:
    """Ready jobs are leased by (priority, created_at), lower number first, over all kinds asked for (G4, V3)."""
    draw = random.Random(7)
    jobs = [(draw.choice((0, 1, 99, 100, 101, 255)), n) for n in range(60)]
    for priority, n in jobs:
        queue.enqueue(draw.choice("abc"), n, priority=priority)
        clock.advance(draw.choice((0, 1)))
    assert [lease.payload for lease in queue.lease_many(60, kinds)] == [n for _, n in sorted(jobs)]


def test_one_by_one_is_the_same_order_as_a_batch(queue: Queue) -> None:
    """A batch takes what single leases would have taken (G4, V3)."""
    for n in range(20):
        queue.enqueue("work", n, priority=n % 3)
    assert one_by_one(queue) == sorted(range(20), key=lambda n: (n % 3, n))


def test_jobs_of_one_batch_keep_its_order(queue: Queue) -> None:
    """`enqueue_many` at one moment of the clock is first in, first out too (G4, V1)."""
    queue.enqueue_many(NewJob("work", n) for n in range(200))
    queue.enqueue_many(NewJob("work", n) for n in range(200, 300))
    assert payloads(queue) == list(range(300))


def test_jobs_of_one_moment_keep_their_order(queue: Queue) -> None:
    """With a clock that stands still, order is commit order, and `created_at` rises strictly (G4)."""
    ids = [queue.enqueue("work", n).job_id for n in range(30)]
    created = [queue.get(job_id).created_at for job_id in ids]
    assert created == sorted(set(created))
    assert payloads(queue) == list(range(30))


def test_commit_order_holds_while_the_wall_clock_steps_back_an_hour_each_time(queue: Queue, clock: FakeClock) -> None:
    """`created_at` is later than that of every pending job of its scope and priority (G4; issue 2)."""
    for n in range(12):
        queue.enqueue("work", n)
        clock.step_wall(-HOUR)
    jobs = queue.list(JobState.PENDING)
    assert [job.payload for job in jobs] == list(range(12))
    assert all(earlier.created_at < later.created_at for earlier, later in pairwise(jobs))
    assert one_by_one(queue) == list(range(12))


def test_commit_order_holds_over_two_handles_while_the_wall_clock_steps_back(
    make_queue: MakeQueue, clock: FakeClock
) -> None:
    """Two handles take turns, the clock goes back in between, and order is commit order all the same (G4; issue 2)."""
    handles = (make_queue(), make_queue())
    for n in range(12):
        handles[n % 2].enqueue("work", n)
        clock.step_wall(-HOUR)
    assert one_by_one(make_queue()) == list(range(12))


def test_commit_order_holds_over_two_handles_whose_clocks_differ_by_an_hour(make_queue: MakeQueue) -> None:
    """What each process believes the time to be does not matter, only who committed first (G4)."""
    now = FakeClock().wall_us()
    ahead, behind = make_queue(clock=FakeClock(now)), make_queue(clock=FakeClock(now - HOUR * 1_000_000))
    for n in range(12):
        (ahead, behind)[n % 2].enqueue_many([NewJob("work", (n, part)) for part in range(3)])
    assert payloads(behind) == [[n, part] for n in range(12) for part in range(3)]


def test_a_step_forward_and_back_again_does_not_let_later_jobs_pass(queue: Queue, clock: FakeClock) -> None:
    """A job that was enqueued while the clock was wrong by a day is not overtaken once it is right again (G4)."""
    clock.step_wall(24 * HOUR)
    queue.enqueue("work", "first")
    clock.step_wall(-24 * HOUR)
    queue.enqueue("work", "second")
    assert payloads(queue) == ["first", "second"]


def test_each_scope_has_its_own_line(queue: Queue) -> None:
    """Order is a matter within a scope; priorities elsewhere do not count (G4)."""
    queue.enqueue("work", "theirs", scope="elsewhere", priority=0)
    queue.enqueue("work", "ours", priority=255)
    assert payloads(queue) == ["ours"]
    assert [lease.payload for lease in queue.lease_many(9, scope="elsewhere")] == ["theirs"]


@pytest.mark.parametrize("way", ["release", "delayed release", "fail", "lapse"])
def test_a_job_that_comes_back_goes_ahead_of_younger_ones(queue: Queue, clock: FakeClock, way: str) -> None:
    """It keeps its `created_at`, however it left its lease (G4, V7, V8, V11)."""
    queue.enqueue("work", "old")
    (lease,) = queue.lease_many(1)
    clock.advance(1)
    queue.enqueue("work", "young")
    match way:
        case "release":
            lease.release()
        case "delayed release":
            lease.release(delay=5)
        case "fail":
            lease.fail("boom")
        case _:
            clock.advance(300)
            queue.reap_expired()
    clock.advance(11)
    queue.enqueue("work", "younger")
    assert one_by_one(queue) == ["old", "young", "younger"]


def test_a_job_that_comes_back_stands_behind_a_better_priority(queue: Queue, clock: FakeClock) -> None:
    """It goes ahead of younger ones of its own priority, not of a better one (G4)."""
    queue.enqueue("work", "old", priority=50)
    (lease,) = queue.lease_many(1)
    clock.advance(1)
    queue.enqueue("work", "urgent", priority=49)
    lease.release()
    assert payloads(queue) == ["urgent", "old"]


@pytest.mark.parametrize("state", [JobState.DEAD, JobState.CANCELLED, JobState.COMPLETED, JobState.RETRYABLE])
def test_a_retried_job_goes_ahead_of_younger_ones(
    queue: Queue, clock: FakeClock, job_in: JobIn, state: JobState
) -> None:
    """`retry` keeps `created_at` too (G4, V10)."""
    job_id = job_in(state, payload="old")
    clock.advance(1)
    queue.enqueue("work", "young")
    queue.retry(job_id)
    assert payloads(queue) == ["old", "young"]


def test_a_delayed_job_is_ordered_by_its_enqueueing_not_by_its_due_time(queue: Queue, clock: FakeClock) -> None:
    """Once it is due, it stands where it was enqueued (G4, §10)."""
    queue.enqueue("work", "due last", delay=20)
    clock.advance(1)
    queue.enqueue("work", "due first", delay=5)
    clock.advance(1)
    queue.enqueue("work", "ready at once")
    clock.advance(30)
    assert one_by_one(queue) == ["due last", "due first", "ready at once"]
