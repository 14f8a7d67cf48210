"""Back-off: `min(cap, base · factor^(a−1))`, its jitter, and what a clock that steps back does to it (§5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litequeue import JobState, Maintenance, NewJob

if TYPE_CHECKING:
    from uuid import UUID

    from litequeue import Queue
    from litequeue.testing import FakeClock

SECOND = 1_000_000
VECTOR = [10, 40, 160, 640, 2560, 3600, 3600]


def pause(queue: Queue, clock: FakeClock, job_id: UUID) -> float:
    """Return how long the job is to wait from now, in seconds."""
    gate = queue.get(job_id).not_before
    assert gate is not None
    return (gate - clock.wall_us()) / SECOND


def pauses(queue: Queue, clock: FakeClock, count: int, kind: str = "work", *, by_lapse: bool = False) -> list[float]:
    """Let a job fail, or lapse, so many times; return how long it was to wait each time."""
    job_id = queue.enqueue(kind, max_attempts=1000).job_id
    found: list[float] = []
    for _ in range(count):
        (lease,) = queue.lease_many(1, [kind])
        if by_lapse:
            clock.advance(301)
            assert queue.reap_expired() == 1
        else:
            lease.fail("boom")
        found.append(pause(queue, clock, job_id))
        clock.advance(found[-1])
        queue.promote_due()
    return found


@pytest.mark.parametrize("by_lapse", [False, True])
def test_the_defaults_give_the_vector_of_the_contract(queue: Queue, clock: FakeClock, *, by_lapse: bool) -> None:
    """10, 40, 160, 640, 2560, 3600, 3600 s, whether the run failed or lapsed (§5, V7, V11)."""
    assert pauses(queue, clock, 7, by_lapse=by_lapse) == VECTOR


def test_a_release_does_not_lengthen_the_back_off(queue: Queue, clock: FakeClock) -> None:
    """The pause follows the attempts, and a release gives its attempt back (§5, V8)."""
    job_id = queue.enqueue("work").job_id
    for _ in range(3):
        queue.lease_many(1)[0].release()
    queue.lease_many(1)[0].fail("boom")
    assert pause(queue, clock, job_id) == 10


def test_base_factor_and_cap_can_be_set(queue: Queue, clock: FakeClock) -> None:
    """For the file, and for a kind over it (§5)."""
    queue.set("backoff_base", 2)
    queue.set("backoff_factor", 3)
    queue.set("backoff_cap", 50)
    queue.set("backoff_factor", 1, kind="steady")
    assert pauses(queue, clock, 5) == [2, 6, 18, 50, 50]
    assert pauses(queue, clock, 3, "steady") == [2, 2, 2]


def test_a_base_of_zero_is_no_pause(queue: Queue, clock: FakeClock) -> None:
    """The job is due at once, however often it fails (§5)."""
    queue.set("backoff_base", 0)
    assert pauses(queue, clock, 4) == [0, 0, 0, 0]


def test_a_kinds_own_base_lifts_the_cap_to_itself(queue: Queue, clock: FakeClock) -> None:
    """A kind that asks for two hours waits two hours, and no longer (§5)."""
    queue.set("backoff_base", 7200, kind="nightly")
    assert pauses(queue, clock, 3, "nightly") == [7200, 7200, 7200]
    assert pauses(queue, clock, 2) == [10, 40]


def test_a_kinds_own_base_lifts_a_kinds_own_cap_too(queue: Queue, clock: FakeClock) -> None:
    """To at least itself, wherever the cap comes from (§5)."""
    queue.set("backoff_cap", 60)
    queue.set("backoff_base", 100, kind="slow:")
    queue.set("backoff_cap", 30, kind="slow:er")
    assert pauses(queue, clock, 2, "slow:er") == [100, 100]
    assert pauses(queue, clock, 3) == [10, 40, 60]


def test_hundreds_of_attempts_end_at_the_cap(queue: Queue, clock: FakeClock) -> None:
    """No power is too large (§5)."""
    queue.set("backoff_factor", 1000)
    assert pauses(queue, clock, 150)[-1] == 3600


@pytest.mark.parametrize(("jitter", "least"), [("equal", 5), ("full", 0)])
def test_jitter_draws_from_its_range(queue: Queue, clock: FakeClock, jitter: str, least: float) -> None:
    """`equal` draws from [d/2, d], `full` from [0, d]; each job for itself (§5)."""
    queue.set("backoff_jitter", jitter)
    queue.enqueue_many(NewJob("work") for _ in range(200))
    for lease in queue.lease_many(200):
        queue.fail(lease, "boom")
    waits = [pause(queue, clock, job.job_id) for job in queue.list(JobState.RETRYABLE, limit=200)]
    assert all(least <= wait <= 10 for wait in waits)
    assert len(set(waits)) > 150
    assert min(waits) < least + 0.1 * (10 - least)
    assert max(waits) > 9.5


def test_jitter_is_drawn_for_each_job_of_a_batch(queue: Queue, clock: FakeClock) -> None:
    """Jobs that fail or lapse together do not come back together (§5)."""
    queue.set("backoff_jitter", "full")
    queue.enqueue_many(NewJob("work") for _ in range(40))
    leases = queue.lease_many(20)
    queue.lease_many(20, ttl=5)
    clock.advance(6)
    queue.fail_many(leases, "boom")
    assert queue.reap_expired() == 20
    waits = [pause(queue, clock, job.job_id) for job in queue.list(JobState.RETRYABLE)]
    assert len(waits) == 40
    assert len(set(waits)) > 30


@pytest.mark.parametrize(("attempts", "step"), [(1, 3600), (1, 86_400), (6, 3600), (6, 10), (4, 365 * 86_400)])
def test_after_a_backward_step_a_back_off_is_pulled_in(
    queue: Queue, clock: FakeClock, attempts: int, step: float
) -> None:
    """It never waits longer than its cap from now: maintenance pulls it in, and it runs (§5)."""
    pauses(queue, clock, attempts - 1)
    (lease,) = queue.lease_many(1)
    lease.fail("boom")
    clock.step_wall(-step)
    Maintenance(queue).run_once()
    assert 0 < pause(queue, clock, lease.job_id) <= 3600
    clock.advance(3600)
    assert queue.lease_next() is not None


def test_a_kinds_own_shorter_cap_is_kept_after_a_backward_step(queue: Queue, clock: FakeClock) -> None:
    """Its cap, not the file's (§5)."""
    queue.set("backoff_cap", 60, kind="quick")
    job_id = queue.enqueue("quick").job_id
    queue.lease_many(1)[0].fail("boom")
    clock.step_wall(-600)
    Maintenance(queue).run_once()
    assert pause(queue, clock, job_id) <= 60


def test_without_a_step_maintenance_leaves_a_back_off_alone(queue: Queue, clock: FakeClock) -> None:
    """It shortens what is too long, and nothing else (§5)."""
    pauses(queue, clock, 5)
    (lease,) = queue.lease_many(1)
    job_id = lease.job_id
    lease.fail("boom")
    clock.advance(1)
    before = queue.get(job_id)
    Maintenance(queue).run_once()
    assert queue.get(job_id) == before


def test_a_delay_that_the_caller_gave_is_not_pulled_in(queue: Queue, clock: FakeClock) -> None:
    """Only the wall clock's step is undone: a job that is to wait a week waits a week (§5, V1, V7)."""
    scheduled = queue.enqueue("later", delay=7 * 86_400).job_id
    failed = queue.enqueue("work").job_id
    queue.lease_many(1)[0].fail("closed", delay=7 * 86_400)
    before = queue.get(scheduled), queue.get(failed)
    clock.advance(60)
    Maintenance(queue).run_once()
    assert (queue.get(scheduled), queue.get(failed)) == before
