"""What the model has found, one scenario each, so that it stays found whatever Hypothesis draws."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from litequeue import JobState, LeaseConflict, Maintenance, Queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue.testing import FakeClock

NAME = UUID("0197d9a0-0000-7000-8000-000000000001")


class UndoneError(Exception):
    """Rolls a block back."""


def test_a_batch_does_the_good_one_of_two_leases_of_a_job(queue: Queue, clock: FakeClock) -> None:
    """A worker that was reaped and leased its job again says both at once: one is good (V6, G1)."""
    job_id = queue.enqueue("work").job_id
    stale = queue.lease_many(1)
    clock.advance(301)
    queue.reap_expired()
    queue.retry(job_id)
    fresh = queue.lease_many(1)
    conflicts = queue.complete_many([*stale, *fresh])
    assert [conflict.lease_generation for conflict in conflicts] == [1]
    assert queue.get(job_id).state is JobState.COMPLETED


def test_a_lease_that_only_a_rolled_back_block_took_away_is_released_at_the_close(
    queue: Queue, make_queue: Callable[[], Queue]
) -> None:
    """A handle does not forget a lease because of what never happened (§4 "Closing", V14)."""
    other = make_queue()
    job_id = queue.enqueue("work").job_id
    (lease,) = queue.lease_many(1)
    with suppress(UndoneError), queue.transaction() as tx:
        tx.cancel(job_id)
        with pytest.raises(LeaseConflict):
            tx.complete(lease)
        raise UndoneError
    queue.close()
    job = other.get(job_id)
    assert (job.state, job.attempts) == (JobState.PENDING, 0)


def test_upkeep_that_was_rolled_back_is_still_due(queue: Queue, clock: FakeClock) -> None:
    """A lapsed job does not hide behind a queue that is never empty because a block was undone (§3, G5)."""
    queue.enqueue("urgent", priority=1)
    (held,) = queue.lease_many(1, ttl=1)
    for _ in range(3):
        queue.enqueue("work")
    clock.advance(301)
    with suppress(UndoneError), queue.transaction() as tx:
        tx.lease_next()
        raise UndoneError
    queue.lease_next()
    assert queue.get(held.job_id).state is JobState.RETRYABLE


def test_a_success_clears_an_error_that_came_before_the_first_lease(queue: Queue, clock: FakeClock) -> None:
    """`last_error` is of the last run, and a success has none, also when the job expired and was retried (§2)."""
    job_id = queue.enqueue("work", expires=5).job_id
    clock.advance(6)
    queue.expire_overdue()
    assert queue.get(job_id).last_error == "expired"
    queue.retry(job_id)
    (lease,) = queue.lease_many(1)
    lease.complete()
    assert queue.get(job_id).last_error is None


def test_a_trigger_for_its_own_overdue_job_is_not_lost(queue: Queue, clock: FakeClock) -> None:
    """Its id and its key again, past its expiry: the job takes the trigger, and runs (V1, V2)."""
    queue.enqueue("work", "old", job_id=NAME, idempotency_key="k", expires=5)
    clock.advance(6)
    result = queue.enqueue("work", "new", job_id=NAME, idempotency_key="k", on_conflict="reset")
    assert result.job_id == NAME
    (lease,) = queue.lease_many(1)
    assert (lease.job_id, lease.payload) == (NAME, "new")


@pytest.mark.parametrize("steps", [[4000], [4000, 4000], [1, 4000], [4000, 60]])
@pytest.mark.parametrize("base", [10, 7200])
def test_a_back_off_keeps_its_length_through_backward_steps(
    queue: Queue, clock: FakeClock, base: int, steps: list[int]
) -> None:
    """However often it is pulled in, it is neither longer than its cap nor cut short (§5)."""
    queue.set("backoff_base", base, "work")
    cap = max(base, 3600)
    job_id = queue.enqueue("work").job_id
    (lease,) = queue.lease_many(1)
    lease.fail("boom")
    for step in steps:
        clock.step_wall(-step)
        for _ in range(2):
            Maintenance(queue).run_once()
            gate = queue.get(job_id).not_before
            assert gate is not None, "the back-off was skipped"
            assert base <= (gate - clock.wall_us()) / 1_000_000 <= cap


@pytest.mark.parametrize("cap", [None, 20])
def test_a_pause_that_was_pulled_in_is_not_cut_shorter_by_each_pass(
    queue: Queue, clock: FakeClock, cap: float | None
) -> None:
    """One beyond the cap waits its own length again, once; whether the caller gave it or the cap came down later (§5).

    Seen: each pass took as much away as the clock had stepped back, until the cap was reached.
    """
    job_id = queue.enqueue("work").job_id
    (lease,) = queue.lease_many(1)
    if cap is None:
        lease.fail("closed", delay=7200)
    else:
        queue.set("backoff_base", 7200, "work")
        lease.fail("boom")
    clock.step_wall(-1000)
    for since in range(4):
        report = Maintenance(queue).run_once()
        assert report.pulled_in == (1 if since == 0 else 0)
        assert queue.get(job_id).not_before == clock.wall_us() + (7200 - since) * 1_000_000
        clock.advance(1)
        if cap is not None:
            queue.unset("backoff_base", "work")
            queue.set("backoff_cap", cap)
    job = queue.get(job_id)
    assert job.state is JobState.RETRYABLE
    assert job.events[-1].detail == "the wall clock stepped back: the pause begins anew"


def test_another_kinds_cap_does_not_shorten_a_back_off(queue: Queue, clock: FakeClock) -> None:
    """A back-off within its own kind's cap stands (§5)."""
    queue.set("backoff_cap", 2, "hasty")
    job_id = queue.enqueue("work").job_id
    (lease,) = queue.lease_many(1)
    clock.step_wall(-0.5)
    lease.fail("boom")
    gate = queue.get(job_id).not_before
    Maintenance(queue).run_once()
    assert queue.get(job_id).not_before == gate
