"""Retention: how long a job that has ended stays, for each way of ending (V11, §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litequeue import ANY, SYSTEM, JobNotFound, JobState, NewJob

if TYPE_CHECKING:
    from uuid import UUID

    from litequeue import Queue
    from litequeue.testing import FakeClock
    from tests.conftest import JobIn

DAY = 86_400
RETENTIONS = {
    JobState.COMPLETED: "completed_retention",
    JobState.CANCELLED: "cancelled_retention",
    JobState.DEAD: "dead_retention",
}
each_end = pytest.mark.parametrize("state", RETENTIONS)


def is_kept(queue: Queue, job_id: UUID) -> bool:
    """Tell whether a job is there."""
    try:
        queue.get(job_id)
    except JobNotFound:
        return False
    return True


def finish(queue: Queue, count: int, kind: str = "work") -> list[UUID]:
    """Enqueue so many jobs and complete them; return their ids."""
    ids = [result.job_id for result in queue.enqueue_many(NewJob(kind) for _ in range(count))]
    assert queue.complete_many(queue.lease_many(count, [kind])) == []
    return ids


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.CANCELLED])
def test_by_default_a_completed_or_cancelled_job_stays_a_day(
    queue: Queue, clock: FakeClock, job_in: JobIn, state: JobState
) -> None:
    """24 h from its end, then it is gone (§5, V11)."""
    clock.advance(5)
    job_id = job_in(state)
    clock.advance(DAY - 1)
    assert queue.prune() == 0
    assert is_kept(queue, job_id)
    clock.advance(2)
    assert queue.prune() == 1
    assert not is_kept(queue, job_id)


def test_by_default_a_dead_job_stays_forever(queue: Queue, clock: FakeClock, job_in: JobIn) -> None:
    """Nobody's failure disappears by itself (§5)."""
    job_id = job_in(JobState.DEAD)
    clock.advance(50 * 365 * DAY)
    assert queue.prune() == 0
    assert is_kept(queue, job_id)


@each_end
def test_each_end_has_its_own_retention(queue: Queue, clock: FakeClock, job_in: JobIn, state: JobState) -> None:
    """A shorter one removes those that ended so, and no others (§5, V11)."""
    for name in RETENTIONS.values():
        queue.set(name, None)
    queue.set(RETENTIONS[state], 60)
    kept = [job_in(other) for other in RETENTIONS if other is not state]
    gone = job_in(state)
    clock.advance(59)
    assert queue.prune() == 0
    clock.advance(2)
    assert queue.prune() == 1
    assert not is_kept(queue, gone)
    assert all(is_kept(queue, job_id) for job_id in kept)


@each_end
def test_a_retention_of_zero_removes_at_once(queue: Queue, state: JobState) -> None:
    """The job is gone with its end, without any maintenance (§5)."""
    queue.set(RETENTIONS[state], 0)
    job_id = queue.enqueue("work").job_id
    (lease,) = queue.lease_many(1)
    match state:
        case JobState.COMPLETED:
            lease.complete("done")
        case JobState.CANCELLED:
            queue.cancel(job_id)
        case _:
            lease.fail("boom", retryable=False)
    assert not is_kept(queue, job_id)
    assert queue.stats().total == 0


def test_a_retention_of_zero_holds_for_every_way_to_die(queue: Queue, clock: FakeClock) -> None:
    """Reaped for the last time, expired while waiting, released too late: gone at once (§5, V11)."""
    queue.set("dead_retention", 0)
    queue.enqueue("reaped", max_attempts=1)
    queue.enqueue("released", expires=30)
    queue.lease_many(1, ["reaped"])
    (lease,) = queue.lease_many(1, ["released"], ttl=9999)
    queue.enqueue("waiting", expires=30)
    clock.advance(301)
    assert (queue.reap_expired(), queue.expire_overdue()) == (1, 1)
    lease.release()
    assert queue.stats().total == 0


def test_a_kind_may_have_its_own_retention(queue: Queue, clock: FakeClock) -> None:
    """The longest matching filter over the file's, shorter or longer, or forever (§5)."""
    queue.set("completed_retention", 100)
    queue.set("completed_retention", 10, kind="log:")
    queue.set("completed_retention", 1000, kind="log:audit")
    queue.set("completed_retention", None, kind="tax:")
    ids = {kind: finish(queue, 1, kind)[0] for kind in ("log:debug", "other", "log:audit", "tax:2025")}
    left = []
    for seconds in (11, 90, 900):
        clock.advance(seconds)
        assert queue.prune() == 1
        left.append([kind for kind, job_id in ids.items() if is_kept(queue, job_id)])
    assert left == [["other", "log:audit", "tax:2025"], ["log:audit", "tax:2025"], ["tax:2025"]]


def test_a_changed_retention_holds_for_jobs_that_have_ended_before(queue: Queue, clock: FakeClock) -> None:
    """It is read when pruning, not stamped on the job (§5, §10)."""
    (job_id,) = finish(queue, 1)
    clock.advance(3600)
    assert queue.prune() == 0
    queue.set("completed_retention", 1800)
    assert queue.prune() == 1
    assert not is_kept(queue, job_id)


def test_retention_counts_from_the_end_not_from_the_beginning(queue: Queue, clock: FakeClock) -> None:
    """A job that waited for a week is kept a day after it ran (§5)."""
    job_id = queue.enqueue("work", delay=7 * DAY).job_id
    clock.advance(7 * DAY)
    queue.lease_many(1)[0].complete()
    clock.advance(DAY - 1)
    assert queue.prune() == 0
    assert is_kept(queue, job_id)


def test_everything_that_is_over_goes_and_nothing_else(queue: Queue, clock: FakeClock) -> None:
    """Thousands, over several scopes and priorities, beside those that stay; in bounded steps until done (V11)."""
    queue.enqueue_many(
        NewJob("old", scope=scope, priority=priority)
        for scope in ("default", "elsewhere", SYSTEM)
        for priority in (0, 100, 255)
        for _ in range(150)
    )
    for scope in ("default", "elsewhere", SYSTEM):
        assert queue.complete_many(queue.lease_many(1000, scope=scope)) == []
    finish(queue, 1300)
    clock.advance(DAY - 10)
    young = finish(queue, 20)
    waiting = queue.enqueue("work", delay=DAY).job_id
    clock.advance(11)
    assert queue.prune() == 9 * 150 + 1300
    assert queue.stats(ANY).total == 21
    assert all(is_kept(queue, job_id) for job_id in [*young, waiting])


def test_kinds_that_stay_do_not_hide_those_that_go(queue: Queue, clock: FakeClock) -> None:
    """Behind more than a thousand jobs that are kept forever, one that is over is found (V11)."""
    queue.set("completed_retention", None, kind="kept")
    finish(queue, 1200, "kept")
    clock.advance(1)
    (job_id,) = finish(queue, 1, "work")
    clock.advance(DAY + 1)
    assert queue.prune() == 1
    assert not is_kept(queue, job_id)
    assert queue.stats().total == 1200


@each_end
def test_a_job_whose_wall_clock_stepped_back_is_kept_its_time(
    queue: Queue, clock: FakeClock, job_in: JobIn, state: JobState
) -> None:
    """`finished_at` is never before `created_at`, and nothing is removed too soon (§2, §8)."""
    for name in RETENTIONS.values():
        queue.set(name, 60)
    clock.step_wall(3600)
    queue.enqueue("older", delay=9 * DAY)
    clock.step_wall(-3600)
    job_id = job_in(state)
    job = queue.get(job_id)
    assert job.finished_at is not None
    assert job.finished_at >= job.created_at
    clock.advance(59)
    assert queue.prune() == 0
    clock.advance(3600)
    assert queue.prune() == 1


def test_a_pruned_id_may_be_used_again(queue: Queue, clock: FakeClock, job_in: JobIn) -> None:
    """Nothing of a removed job is left to stumble over (V1, V11)."""
    job_id = job_in(JobState.COMPLETED)
    clock.advance(DAY + 1)
    queue.prune()
    assert queue.enqueue("other", "anew", job_id=job_id).created
    job = queue.get(job_id)
    assert (job.result, job.last_error, job.attempts, len(job.events)) == (None, None, 0, 1)
