"""What an operator removes for good: jobs that have ended, before their retention is over (V17)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from litequeue import InvalidTransition, JobNotFound, JobState, Outbox
from litequeue.sqlite.examining import problems

if TYPE_CHECKING:
    from uuid import UUID

    from litequeue import Queue
    from litequeue.testing import FakeClock
    from tests.conftest import JobIn

TERMINAL = (JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED)
LIVE = tuple(state for state in JobState if state not in TERMINAL)


@pytest.mark.parametrize("state", TERMINAL)
def test_a_job_that_has_ended_is_removed_with_all_that_belongs_to_it(
    queue: Queue, clock: FakeClock, job_in: JobIn, state: JobState
) -> None:
    """It is not found any more, and nothing of it is left in the file; others stay (V17)."""
    job_id, other = job_in(state), queue.enqueue("other", delay=9).job_id
    queue.remove(job_id)
    with pytest.raises(JobNotFound):
        queue.get(job_id)
    assert [job.job_id for job in queue.list()] == [other]
    assert problems(queue.path, clock) == []


@pytest.mark.parametrize("state", LIVE)
def test_a_job_that_has_not_ended_stays(queue: Queue, job_in: JobIn, state: JobState) -> None:
    """`InvalidTransition`, and it is as it was: nothing that was promised is lost (V17, G2)."""
    job_id = job_in(state)
    before = queue.get(job_id)
    with pytest.raises(InvalidTransition, match=f"cannot remove job {job_id}: it is {state}"):
        queue.remove(job_id)
    assert queue.get(job_id) == before


def test_a_completed_key_counts_until_its_window_is_over(queue: Queue, clock: FakeClock) -> None:
    """A repeat is known by the job that has completed, so that one stays as long as that is promised (V2, V17)."""
    job_id = queue.enqueue("work", idempotency_key="k").job_id
    queue.lease_many(1)[0].complete()
    queue.set("idempotency_window", 60)
    clock.advance(59.999)
    with pytest.raises(InvalidTransition, match="it is completed, and its idempotency key still counts"):
        queue.remove(job_id)
    assert queue.enqueue("work", idempotency_key="k") == (job_id, False)
    clock.advance(0.001)
    queue.remove(job_id)
    assert queue.list() == []


@pytest.mark.parametrize("state", [JobState.DEAD, JobState.CANCELLED])
def test_the_key_of_a_dead_or_cancelled_job_keeps_nothing(queue: Queue, job_in: JobIn, state: JobState) -> None:
    """It was free at once (V2, V17)."""
    queue.remove(job_in(state, key="k"))
    assert queue.list() == []


def test_a_removed_id_may_be_enqueued_as_a_new_job(queue: Queue, job_in: JobIn) -> None:
    """With a log and a generation that begin anew, and of whatever kind (V1, V17)."""
    job_id = job_in(JobState.DEAD)
    queue.remove(job_id)
    assert queue.enqueue("another", job_id=job_id, scope="elsewhere").created
    assert (queue.get(job_id).lease_generation, len(queue.get(job_id).events)) == (0, 1)


def test_a_dead_message_is_its_outbox_s_to_discard(queue: Queue, dead_message: UUID) -> None:
    """It holds its key back, and goes by `Outbox.discard` only (V17)."""
    with pytest.raises(InvalidTransition, match="and its outbox has to discard it"):
        queue.remove(dead_message)
    Outbox(queue, "orders").discard(dead_message)


@pytest.fixture
def dead_message(queue: Queue) -> UUID:
    """Give a message of the outbox "orders" that could not be delivered."""
    outbox = Outbox(queue, "orders")
    with queue.transaction() as tx:
        message_id = outbox.put(tx, "placed", key="7")
    (lease,) = queue.lease_many(1, [outbox.kind], scope=outbox._scope)
    lease.fail("no", retryable=False)
    return message_id


def test_in_bulk_each_job_is_answered_for_itself(queue: Queue, job_in: JobIn) -> None:
    """A refusal stops none of the others, and each is named (V17, V14)."""
    jobs = {state: job_in(state, kind=state.name) for state in JobState}
    unknown = uuid4()
    refusals = queue.remove_many([*jobs.values(), unknown])
    assert [refusal.job_id for refusal in refusals] == [*(jobs[state] for state in LIVE), unknown]
    assert queue.stats().total == len(LIVE)
    assert queue.remove_many([]) == []


def test_a_holder_s_word_does_not_bring_a_removed_job_back(queue: Queue) -> None:
    """Its job was cancelled and removed under it: the late word is refused and leaves no trace (G1, V17)."""
    job_id = queue.enqueue("work").job_id
    (lease,) = queue.lease_many(1)
    queue.cancel(job_id)
    queue.remove(job_id)
    assert len(queue.complete_many([lease])) == 1
    assert queue.list() == []
