"""`on_conflict="reset"`: the newest trigger counts, none is lost, and a burst makes one run (V2)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from litequeue import Enqueued, JobNotFound, JobState, NewJob

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from litequeue import Lease, Queue
    from litequeue.testing import FakeClock
    from tests.conftest import JobIn, MakeQueue

SECOND = 1_000_000
WAITING = (JobState.PENDING, JobState.RETRYABLE, JobState.SCHEDULED)


def running(queue: Queue) -> tuple[UUID, Lease]:
    """Return a keyed job that runs, and its lease."""
    queue.enqueue("work", "first", idempotency_key="k")
    (lease,) = queue.lease_many(1)
    return lease.job_id, lease


def others(queue: Queue, job_id: UUID) -> list[UUID]:
    """Return the ids of all jobs but this one."""
    return [job.job_id for job in queue.list() if job.job_id != job_id]


@pytest.mark.parametrize("state", WAITING)
def test_a_waiting_job_takes_the_new_trigger_and_keeps_its_place(
    queue: Queue, clock: FakeClock, job_in: JobIn, state: JobState
) -> None:
    """New payload, priority and times; the same job, `created_at`, attempts, generation and log (V2)."""
    job_id = job_in(state, key="k")
    before = queue.get(job_id)
    clock.advance(1)
    answer = queue.enqueue("work", "second", priority=7, expires=60, idempotency_key="k", on_conflict="reset")
    after = queue.get(job_id)
    assert answer == Enqueued(job_id, created=False)
    assert (after.state, after.payload, after.priority, after.not_before) == (JobState.PENDING, "second", 7, None)
    assert after.expires_at == clock.wall_us() + 60 * SECOND
    assert (after.created_at, after.attempts, after.lease_generation) == (
        before.created_at,
        before.attempts,
        before.lease_generation,
    )
    assert after.events[: len(before.events)] == before.events
    assert queue.stats().total == 1


@pytest.mark.parametrize("state", WAITING)
def test_a_waiting_job_takes_the_new_gate(queue: Queue, clock: FakeClock, job_in: JobIn, state: JobState) -> None:
    """A trigger with a delay gates the job that was ready, and moves the gate of one that was not (V2)."""
    job_id = job_in(state, key="k")
    queue.enqueue("work", "second", delay=30, idempotency_key="k", on_conflict="reset")
    job = queue.get(job_id)
    assert job.not_before == clock.wall_us() + 30 * SECOND
    assert queue.lease_next() is None
    clock.advance(30)
    (lease,) = queue.lease_many(9)
    assert (lease.job_id, lease.payload) == (job_id, "second")


def test_a_reset_without_an_expiry_takes_the_old_one_away(queue: Queue, clock: FakeClock) -> None:
    """The times are those of the new trigger, also where it has none (V2)."""
    job_id = queue.enqueue("work", expires=60, idempotency_key="k").job_id
    queue.enqueue("work", idempotency_key="k", on_conflict="reset")
    assert queue.get(job_id).expires_at is None
    clock.advance(61)
    assert queue.lease_next() is not None


def test_a_reset_job_stays_ahead_of_younger_ones(queue: Queue, clock: FakeClock) -> None:
    """It keeps its place in the line (V2, G4)."""
    queue.enqueue("work", "old", idempotency_key="k")
    clock.advance(1)
    queue.enqueue("other")
    queue.enqueue("work", "new", idempotency_key="k", on_conflict="reset")
    assert [lease.payload for lease in queue.lease_many(9)] == ["new", None]


def test_after_completion_a_reset_makes_a_new_job(queue: Queue, job_in: JobIn) -> None:
    """The window does not apply: something may have changed since the run (V2)."""
    old = job_in(JobState.COMPLETED, key="k")
    answer = queue.enqueue("work", "second", idempotency_key="k", on_conflict="reset")
    assert answer.created
    assert answer.job_id != old
    assert queue.get(old).state is JobState.COMPLETED
    assert queue.enqueue("work", idempotency_key="k") == Enqueued(answer.job_id, created=False)


def test_a_running_job_is_not_changed_by_a_reset(queue: Queue) -> None:
    """The trigger waits beside the run; the answer names the running job (V2)."""
    job_id, lease = running(queue)
    before = queue.get(job_id)
    answer = queue.enqueue("work", "second", priority=1, idempotency_key="k", on_conflict="reset")
    assert answer == Enqueued(job_id, created=False)
    assert queue.get(job_id) == before
    assert others(queue, job_id) == []
    assert lease.payload == "first"
    assert queue.lease_next() is None


def test_a_thousand_triggers_during_a_run_make_exactly_one_more_run(queue: Queue, clock: FakeClock) -> None:
    """The one more run has the newest payload, and after it there is none (V2; issue 2)."""
    _, lease = running(queue)
    triggers = (NewJob("work", n, idempotency_key="k", on_conflict="reset") for n in range(999))
    queue.enqueue_many(triggers)
    clock.advance(1)
    queue.enqueue("work", "newest", idempotency_key="k", on_conflict="reset")
    assert queue.lease_next() is None
    lease.complete()
    (again,) = queue.lease_many(9)
    assert (again.payload, again.attempts) == ("newest", 1)
    assert again.job_id != lease.job_id
    again.complete()
    clock.advance(3600)
    assert queue.lease_next() is None
    assert queue.stats().counts[JobState.COMPLETED] == queue.stats().total == 2


def test_the_new_run_has_the_triggers_own_priority_times_and_attempts(queue: Queue, clock: FakeClock) -> None:
    """What the newest trigger asked for holds for the job that it becomes; its delay counts from the trigger (V2)."""
    job_id, lease = running(queue)
    queue.enqueue("work", priority=1, idempotency_key="k", on_conflict="reset")
    queue.enqueue("work", priority=9, delay=60, expires=90, max_attempts=2, idempotency_key="k", on_conflict="reset")
    triggered_at = clock.wall_us()
    clock.advance(20)
    lease.complete()
    (new,) = others(queue, job_id)
    job = queue.get(new)
    assert (job.state, job.priority, job.max_attempts) == (JobState.SCHEDULED, 9, 2)
    assert (job.not_before, job.expires_at) == (triggered_at + 60 * SECOND, triggered_at + 90 * SECOND)
    assert (job.attempts, job.lease_generation, job.created_at) == (0, 0, clock.wall_us())
    assert job.idempotency_key == "k"


def by_a_fatal_error(queue: Queue, clock: FakeClock, lease: Lease) -> None:  # noqa: ARG001 - one way of several
    """End the run as not retryable."""
    lease.fail("boom", retryable=False)


def by_the_last_failure(queue: Queue, clock: FakeClock, lease: Lease) -> None:  # noqa: ARG001 - one way of several
    """End the last attempt by a failure."""
    lease.fail("boom")


def by_the_last_lapse(queue: Queue, clock: FakeClock, lease: Lease) -> None:  # noqa: ARG001 - one way of several
    """End the last attempt by a lapse."""
    clock.advance(301)
    assert queue.reap_expired() == 1


def by_expiry(queue: Queue, clock: FakeClock, lease: Lease) -> None:
    """Give it back too late to start again."""
    clock.advance(61)
    lease.release()
    assert queue.stats().counts[JobState.DEAD] == 1


@pytest.mark.parametrize("killed", [by_a_fatal_error, by_the_last_failure, by_the_last_lapse, by_expiry])
def test_a_trigger_outlives_the_death_of_its_run(
    queue: Queue, clock: FakeClock, killed: Callable[[Queue, FakeClock, Lease], None]
) -> None:
    """It becomes a new job in the transaction that kills this run, however that dies (V2)."""
    expires = 60 if killed is by_expiry else None
    job_id = queue.enqueue("work", "first", idempotency_key="k", max_attempts=1, expires=expires).job_id
    (lease,) = queue.lease_many(1)
    queue.enqueue("work", "second", idempotency_key="k", on_conflict="reset")
    killed(queue, clock, lease)
    assert queue.get(job_id).state is JobState.DEAD
    (again,) = queue.lease_many(9)
    assert (again.payload, again.attempts) == ("second", 1)
    assert again.job_id != job_id


@pytest.mark.parametrize("is_lapse", [False, True])
def test_a_trigger_folds_into_a_run_that_is_retried(queue: Queue, clock: FakeClock, *, is_lapse: bool) -> None:
    """The retry runs the newest payload, after its back-off and with its count, and nothing runs besides (V2)."""
    job_id, lease = running(queue)
    queue.enqueue("work", "second", priority=7, idempotency_key="k", on_conflict="reset")
    if is_lapse:
        clock.advance(301)
        assert queue.reap_expired() == 1
    else:
        lease.fail("boom")
    job = queue.get(job_id)
    assert (job.state, job.payload, job.priority, job.attempts) == (JobState.RETRYABLE, "second", 7, 1)
    assert job.not_before == clock.wall_us() + 10 * SECOND
    assert others(queue, job_id) == []
    clock.advance(10)
    (again,) = queue.lease_many(9)
    assert (again.job_id, again.payload, again.attempts) == (job_id, "second", 2)
    again.complete()
    assert queue.lease_next() is None
    assert others(queue, job_id) == []


@pytest.mark.parametrize("delay", [None, 30])
def test_a_trigger_folds_into_a_run_that_is_released(queue: Queue, clock: FakeClock, delay: float | None) -> None:
    """The job that comes back runs the newest payload, once (V2, V8)."""
    job_id, lease = running(queue)
    queue.enqueue("work", "second", idempotency_key="k", on_conflict="reset")
    lease.release(delay)
    job = queue.get(job_id)
    assert (job.payload, job.attempts) == ("second", 0)
    clock.advance(delay or 0)
    (again,) = queue.lease_many(9)
    assert (again.job_id, again.payload) == (job_id, "second")
    again.complete()
    assert others(queue, job_id) == []


def test_a_folded_trigger_brings_its_times(queue: Queue, clock: FakeClock) -> None:
    """A trigger that is to run later is not run sooner because this run failed; its expiry counts (V2)."""
    job_id, lease = running(queue)
    queue.enqueue("work", "second", delay=90, expires=300, idempotency_key="k", on_conflict="reset")
    triggered_at = clock.wall_us()
    lease.fail("boom")
    job = queue.get(job_id)
    assert (job.not_before, job.expires_at) == (triggered_at + 90 * SECOND, triggered_at + 300 * SECOND)
    clock.advance(89)
    assert queue.lease_next() is None
    clock.advance(1)
    assert queue.lease_next() is not None


def test_a_trigger_folds_into_a_run_that_its_handle_gives_back_at_close(make_queue: MakeQueue) -> None:
    """Closing releases, and a release folds (V2, V8)."""
    worker, other = make_queue(), make_queue()
    job_id, _ = running(worker)
    other.enqueue("work", "second", idempotency_key="k", on_conflict="reset")
    worker.close()
    (again,) = other.lease_many(9)
    assert (again.job_id, again.payload) == (job_id, "second")


def test_a_trigger_is_dropped_when_its_run_is_cancelled(queue: Queue, clock: FakeClock) -> None:
    """Cancel stops the key's work, the kept trigger included, and it does not come back later (V2, V9)."""
    job_id, _ = running(queue)
    queue.enqueue("work", "second", idempotency_key="k", on_conflict="reset")
    queue.cancel(job_id)
    clock.advance(3600)
    assert queue.lease_next() is None
    assert others(queue, job_id) == []
    queue.retry(job_id)
    (again,) = queue.lease_many(9)
    assert again.payload == "first"
    again.complete()
    assert queue.stats().total == 1


def test_a_trigger_is_kept_when_the_end_of_its_run_rolls_back(queue: Queue) -> None:
    """Completion and new job are one commit: without it neither is there, with it both are (V2, G7, V14)."""
    job_id, lease = running(queue)
    queue.enqueue("work", "second", idempotency_key="k", on_conflict="reset")
    with suppress(RuntimeError), queue.transaction() as tx:
        tx.complete(lease)
        assert len(tx.list(JobState.PENDING)) == 1
        raise RuntimeError
    assert queue.get(job_id).state is JobState.LEASED
    assert others(queue, job_id) == []
    lease.complete()
    assert [again.payload for again in queue.lease_many(9)] == ["second"]


def test_a_trigger_becomes_a_job_although_its_run_is_not_kept(queue: Queue) -> None:
    """With nothing kept of completed jobs the next run comes all the same (V2, §5)."""
    queue.set("completed_retention", 0)
    queue.set("idempotency_window", 0)
    job_id, lease = running(queue)
    queue.enqueue("work", "second", idempotency_key="k", on_conflict="reset")
    lease.complete()
    with pytest.raises(JobNotFound):
        queue.get(job_id)
    assert [again.payload for again in queue.lease_many(9)] == ["second"]


def test_a_batch_of_completions_lets_each_trigger_run(queue: Queue) -> None:
    """Each key's trigger becomes its own job (V2, V6)."""
    queue.enqueue_many(NewJob("work", "first", idempotency_key=f"k{n}") for n in range(3))
    leases = queue.lease_many(3)
    for n in (0, 2):
        queue.enqueue("work", f"second {n}", idempotency_key=f"k{n}", on_conflict="reset")
    assert queue.complete_many(leases) == []
    assert sorted(str(again.payload) for again in queue.lease_many(9)) == ["second 0", "second 2"]


def test_return_and_raise_leave_a_kept_trigger_alone(queue: Queue) -> None:
    """Only `reset` speaks to the trigger: a later `return` does not take its place (V2)."""
    _, lease = running(queue)
    queue.enqueue("work", "second", idempotency_key="k", on_conflict="reset")
    queue.enqueue("work", "third", idempotency_key="k")
    lease.complete()
    assert [again.payload for again in queue.lease_many(9)] == ["second"]


def test_a_repeated_id_with_its_own_key_and_reset_is_a_trigger_too(queue: Queue) -> None:
    """The newest payload counts, also for a caller that names the job by its id: no trigger is lost (V1, V2)."""
    first = queue.enqueue("work", 1, idempotency_key="k", job_id="01977420-dc00-7000-8000-000000000001")
    again = queue.enqueue("work", 2, idempotency_key="k", job_id=first.job_id, on_conflict="reset")
    assert again == (first.job_id, False)
    assert queue.get(first.job_id).payload == 2
