"""What an operator does to a job by its id: cancel and retry, in every state, alone and in bulk (V9, V10)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from litequeue import DuplicateJob, InvalidTransition, JobNotFound, JobState, LeaseConflict, NewJob, Transition

if TYPE_CHECKING:
    from litequeue import Queue
    from litequeue.testing import FakeClock
    from tests.conftest import JobIn

SECOND = 1_000_000
TERMINAL = (JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED)
GATED = (JobState.RETRYABLE, JobState.SCHEDULED)
LIVE = (JobState.PENDING, JobState.LEASED, *GATED)


@pytest.mark.parametrize("state", LIVE)
def test_a_waiting_or_leased_job_can_be_cancelled(
    queue: Queue, clock: FakeClock, job_in: JobIn, state: JobState
) -> None:
    """It is cancelled for good: it never runs, whatever it waited for (V9)."""
    job_id = job_in(state)
    before = queue.get(job_id)
    clock.advance(1)
    queue.cancel(job_id)
    job = queue.get(job_id)
    assert (job.state, job.finished_at, job.not_before) == (JobState.CANCELLED, clock.wall_us(), None)
    assert (job.worker_id, job.holder, job.lease_deadline) == (None, None, None)
    assert (job.attempts, job.lease_generation) == (before.attempts, before.lease_generation)
    assert job.events == [*before.events, (clock.wall_us(), Transition.CANCELLED, "")]
    clock.advance(3600)
    assert queue.lease_next() is None


@pytest.mark.parametrize("state", TERMINAL)
def test_a_job_that_has_ended_cannot_be_cancelled(queue: Queue, job_in: JobIn, state: JobState) -> None:
    """A terminal job: `InvalidTransition`, and it stays as it is (V9)."""
    job_id = job_in(state)
    before = queue.get(job_id)
    with pytest.raises(InvalidTransition, match=state.name.lower()) as refusal:
        queue.cancel(job_id)
    assert refusal.value.job_id == job_id
    assert queue.get(job_id) == before


def test_the_holder_of_a_cancelled_job_hears_of_it_at_its_next_verb(queue: Queue) -> None:
    """Its heartbeat raises `LeaseConflict`, and its result is not taken (V9, G1)."""
    queue.enqueue("work")
    (lease,) = queue.lease_many(1)
    queue.cancel(lease.job_id)
    before = queue.get(lease.job_id)
    with pytest.raises(LeaseConflict):
        lease.extend()
    with pytest.raises(LeaseConflict):
        lease.complete("too late")
    assert queue.get(lease.job_id) == before


@pytest.mark.parametrize("state", TERMINAL)
def test_a_job_that_has_ended_is_retried_anew(queue: Queue, clock: FakeClock, job_in: JobIn, state: JobState) -> None:
    """Pending with attempts and reaps 0, ready at once; generation, payload, place and log go on (V10, G1)."""
    job_id = job_in(state)
    before = queue.get(job_id)
    clock.advance(1)
    queue.retry(job_id)
    job = queue.get(job_id)
    assert (job.state, job.attempts, job.reaps) == (JobState.PENDING, 0, 0)
    assert (job.finished_at, job.not_before) == (None, None)
    assert (job.lease_generation, job.created_at, job.payload) == (
        before.lease_generation,
        before.created_at,
        before.payload,
    )
    assert job.events[: len(before.events)] == before.events
    assert job.events[-1][:2] == (clock.wall_us(), Transition.RETRIED)
    (lease,) = queue.lease_many(1)
    assert (lease.job_id, lease.attempts, lease.lease_generation) == (job_id, 1, before.lease_generation + 1)


@pytest.mark.parametrize("state", GATED)
def test_a_gated_job_is_retried_now(queue: Queue, job_in: JobIn, state: JobState) -> None:
    """Retryable and scheduled → pending now; the attempts that were made still count (V10)."""
    job_id = job_in(state)
    before = queue.get(job_id)
    queue.retry(job_id)
    job = queue.get(job_id)
    assert (job.state, job.not_before, job.attempts) == (JobState.PENDING, None, before.attempts)
    (lease,) = queue.lease_many(1)
    assert (lease.job_id, lease.attempts) == (job_id, before.attempts + 1)


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.LEASED])
def test_a_ready_or_running_job_cannot_be_retried(queue: Queue, job_in: JobIn, state: JobState) -> None:
    """Pending or leased: `InvalidTransition`, and it stays as it is (V10)."""
    job_id = job_in(state)
    before = queue.get(job_id)
    with pytest.raises(InvalidTransition, match=state.name.lower()):
        queue.retry(job_id)
    assert queue.get(job_id) == before


def test_a_retried_job_that_had_expired_does_not_expire_again(queue: Queue, clock: FakeClock) -> None:
    """`expires_at` is cleared (V10)."""
    job_id = queue.enqueue("work", expires=30).job_id
    clock.advance(31)
    assert queue.expire_overdue() == 1
    queue.retry(job_id)
    assert queue.get(job_id).expires_at is None
    assert queue.expire_overdue() == 0
    assert queue.lease_next() is not None


def test_a_retried_job_has_all_its_attempts_again(queue: Queue, job_in: JobIn) -> None:
    """After a retry it may fail `max_attempts` times more (V10, G6)."""
    job_id = job_in(JobState.DEAD)
    queue.retry(job_id)
    for _ in range(4):
        queue.lease_many(1)[0].fail("boom", delay=0)
        assert queue.get(job_id).state is JobState.RETRYABLE
    queue.lease_many(1)[0].fail("boom", delay=0)
    assert queue.get(job_id).state is JobState.DEAD


@pytest.mark.parametrize("state", [JobState.DEAD, JobState.CANCELLED])
@pytest.mark.parametrize("holder", LIVE)
def test_a_job_whose_key_another_has_by_now_cannot_be_retried(
    queue: Queue, job_in: JobIn, state: JobState, holder: JobState
) -> None:
    """Its key taken by another active job: `DuplicateJob`, and both stay as they are (V10, V2)."""
    old = job_in(state, key="k")
    new = job_in(holder, key="k")
    before = queue.get(old), queue.get(new)
    with pytest.raises(DuplicateJob) as refusal:
        queue.retry(old)
    assert (refusal.value.job_id, refusal.value.idempotency_key) == (new, "k")
    assert (queue.get(old), queue.get(new)) == before


@pytest.mark.parametrize("state", TERMINAL)
def test_a_retried_job_has_its_key_again(queue: Queue, job_in: JobIn, state: JobState) -> None:
    """Active again, it holds its key again (V10, V2)."""
    job_id = job_in(state, key="k")
    queue.retry(job_id)
    assert queue.enqueue("work", idempotency_key="k") == (job_id, False)


def test_an_unknown_job_is_not_found(queue: Queue) -> None:
    """Cancel and retry of an id that is not there: `JobNotFound` (V9, V10)."""
    unknown = uuid4()
    for verb in (queue.cancel, queue.retry):
        with pytest.raises(JobNotFound) as refusal:
            verb(unknown)
        assert refusal.value.job_id == unknown


def test_a_job_may_be_named_by_text(queue: Queue, job_in: JobIn) -> None:
    """Ids come from command lines as text (V9, V10)."""
    job_id = job_in(JobState.PENDING)
    queue.cancel(str(job_id))
    queue.retry(str(job_id).upper())
    assert queue.get(str(job_id)).state is JobState.PENDING


def test_in_bulk_each_job_is_answered_for_itself(queue: Queue, job_in: JobIn) -> None:
    """A refusal stops none of the others, and each is named (V9, V10)."""
    jobs = {state: job_in(state, kind=state.name) for state in JobState}
    unknown = uuid4()
    refusals = queue.cancel_many([*jobs.values(), unknown])
    assert [type(refusal) for refusal in refusals] == [InvalidTransition] * 3 + [JobNotFound]
    assert [refusal.job_id for refusal in refusals] == [*(jobs[state] for state in TERMINAL), unknown]
    states = [queue.get(job_id).state for job_id in jobs.values()]
    assert states.count(JobState.CANCELLED) == 6
    refusals = queue.retry_many([*jobs.values(), unknown])
    assert [refusal.job_id for refusal in refusals] == [unknown]
    assert queue.stats().counts[JobState.PENDING] == 8
    assert len(queue.retry_many(jobs.values())) == 8


def test_in_bulk_one_key_goes_to_the_first(queue: Queue, job_in: JobIn) -> None:
    """Of two dead jobs with one key, one comes back and the other is refused (V10, V2)."""
    first = job_in(JobState.DEAD, key="k")
    second = job_in(JobState.DEAD, key="k")
    refusals = queue.retry_many([first, second])
    assert [(type(refusal), refusal.job_id) for refusal in refusals] == [(DuplicateJob, first)]
    assert queue.get(first).state is JobState.PENDING
    assert queue.get(second).state is JobState.DEAD


def test_in_bulk_a_job_named_twice_is_done_once(queue: Queue, job_in: JobIn) -> None:
    """The second mention meets the state that the first has left (V9, V10)."""
    job_id = job_in(JobState.PENDING)
    assert [type(refusal) for refusal in queue.cancel_many([job_id, job_id])] == [InvalidTransition]
    assert [type(refusal) for refusal in queue.retry_many([job_id, job_id])] == [InvalidTransition]
    assert queue.cancel_many([]) == queue.retry_many([]) == []


def test_a_hundred_jobs_in_bulk_are_one_transaction(queue: Queue) -> None:
    """A bulk verb inside a transaction that rolls back leaves no trace (V9, V14)."""
    ids: list[UUID] = [result.job_id for result in queue.enqueue_many(NewJob("work") for _ in range(100))]
    with suppress(RuntimeError), queue.transaction() as tx:
        assert tx.cancel_many(ids) == []
        assert tx.stats().counts[JobState.CANCELLED] == 100
        raise RuntimeError
    assert queue.stats().counts[JobState.PENDING] == 100


def test_a_first_run_that_succeeds_clears_that_the_job_had_expired(queue: Queue, clock: FakeClock) -> None:
    """Expired before anybody leased it, retried, done: no error is left of the last run (§2, V10)."""
    job_id = queue.enqueue("work", expires=1).job_id
    clock.advance(2)
    assert queue.lease_next() is None
    queue.retry(job_id)
    (lease,) = queue.lease_many(1)
    lease.complete()
    assert queue.get(job_id).last_error is None
