"""A whole queue through a wrong wall clock: an hour ahead, an hour back, a dead battery's 1970, and right again (§8).

Jobs of every sort are there before the step; each has to end as it would have without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litequeue import JobState, Maintenance, NewJob

if TYPE_CHECKING:
    from uuid import UUID

    from litequeue import Lease, Queue
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue

HOUR = 3600
CAP_S = 3600
"""The longest back-off by the defaults (§5)."""
TO_1970 = "to 1970"
STEPS = [HOUR, -HOUR, TO_1970]


def step(clock: FakeClock, by: int | str) -> float:
    """Set the wall clock wrong; return the step that sets it right again."""
    seconds = -clock.wall_us() / 1_000_000 if isinstance(by, str) else by
    clock.step_wall(seconds)
    return -seconds


def work(queue: Queue, clock: FakeClock, done: list[UUID]) -> None:
    """Work and maintain until nothing is ready."""
    while (lease := queue.lease_next()) is not None:
        clock.advance(0.1)
        lease.complete()
        done.append(lease.job_id)
    Maintenance(queue).run_once()


def leased(queue: Queue, kind: str) -> Lease:
    """Enqueue a job and lease it for an hour."""
    queue.enqueue(kind, priority=0)
    lease = queue.lease_next([kind], ttl=HOUR)
    assert lease is not None
    return lease


@pytest.mark.parametrize("by", STEPS)
@pytest.mark.parametrize("is_put_right", [True, False])
def test_every_sort_of_job_ends_as_it_should(
    queue: Queue, clock: FakeClock, by: int | str, *, is_put_right: bool
) -> None:
    """Held leases go on, failed jobs come back within their cap, ready ones run in order, nothing is lost (G2, G5)."""
    held, beaten, failed = leased(queue, "held"), leased(queue, "beaten"), leased(queue, "failed")
    ready = [result.job_id for result in queue.enqueue_many(NewJob("ready", number) for number in range(5))]
    failed.fail("before the step")
    back = step(clock, by)
    late = [queue.enqueue("ready", number).job_id for number in range(5, 8)]
    beaten.extend()
    clock.advance(HOUR - 1)
    assert Maintenance(queue).run_once().reaped == 0, "a lease of an hour lives for an hour"
    held.complete()
    clock.advance(10)
    beaten.fail("after its heartbeat, which counts from the beat")
    if is_put_right:
        clock.step_wall(back)
    done: list[UUID] = []
    work(queue, clock, done)
    for _ in range(4):
        clock.advance(CAP_S)
        work(queue, clock, done)
    assert [job_id for job_id in done if job_id in {*ready, *late}] == [*ready, *late], "order of the commits (G4)"
    assert {failed.job_id, beaten.job_id} <= set(done)
    assert queue.get(held.job_id).state is JobState.COMPLETED
    counts = queue.stats().counts
    assert {state for state, count in counts.items() if count} == {JobState.COMPLETED}


@pytest.mark.parametrize("by", [-HOUR, TO_1970])
def test_a_back_off_is_pulled_in_after_a_backward_step(queue: Queue, clock: FakeClock, by: int | str) -> None:
    """From its cap on at the latest, also when it was set long before 1970 came again (§5)."""
    lease = leased(queue, "work")
    lease.fail("boom")
    step(clock, by)
    Maintenance(queue).run_once()
    gate = queue.get(lease.job_id).not_before
    assert gate is not None
    assert gate - clock.wall_us() <= CAP_S * 1_000_000
    clock.advance(CAP_S)
    again = queue.lease_next()
    assert again is not None
    assert again.job_id == lease.job_id


@pytest.mark.parametrize("by", STEPS)
def test_a_lease_of_a_stuck_worker_lapses_by_the_lease_clock(queue: Queue, clock: FakeClock, by: int | str) -> None:
    """Neither a step nor a suspended laptop brings it sooner or later (§8)."""
    lease = leased(queue, "work")
    clock.advance(HOUR / 2)
    step(clock, by)
    clock.suspend(10 * HOUR)
    clock.advance(HOUR / 2 - 1)
    assert Maintenance(queue).run_once().reaped == 0
    clock.advance(1)
    assert Maintenance(queue).run_once().reaped == 1
    assert queue.get(lease.job_id).last_error == "lease expired"


@pytest.mark.parametrize("by", STEPS)
def test_a_reboot_with_a_wrong_clock_lapses_what_was_held(
    make_queue: MakeQueue, clock: FakeClock, by: int | str
) -> None:
    """A battery that is dead at the boot: the boot id, not the date, tells (§8)."""
    queue = make_queue()
    lease = leased(queue, "work")
    queue._close(release=False)
    clock.reboot()
    step(clock, by)
    again = make_queue()
    assert again.stats().lapsed == 1
    assert Maintenance(again).run_once().reaped == 1
    clock.advance(CAP_S)
    found = again.lease_next()
    assert found is not None
    assert (found.job_id, found.lease_generation) == (lease.job_id, 2)
    found.complete()
    job = again.get(lease.job_id)
    assert job.finished_at is not None
    assert job.finished_at >= job.created_at


def test_a_clock_before_1970_stops_nothing(queue: Queue, clock: FakeClock) -> None:
    """A machine without a battery in its clock: jobs come, go, fail and are due as ever, in order (G4, §8)."""
    first = queue.enqueue("work").job_id
    clock.step_wall(-4_000_000_000)
    second, delayed = queue.enqueue("work").job_id, queue.enqueue("work", delay=5).job_id
    assert [lease.job_id for lease in queue.lease_many(5)] == [first, second]
    clock.step_wall(4_000_000_010)
    (lease,) = queue.lease_many(5)
    assert lease.job_id == delayed
    lease.complete()
    assert queue.get(delayed).state is JobState.COMPLETED
