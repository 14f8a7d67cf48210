"""`lease_in_transaction`: lease, work and completion are one commit, or leave no trace (G1, G3, V14)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from litequeue import ANY, JobState, Lease, LeaseConflict, NewJob, UsageError
from litequeue.sqlite.upkeep import STEP

if TYPE_CHECKING:
    from litequeue import Queue
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue


class Undo(Exception):
    """What a test raises to leave a transaction."""


@pytest.fixture(autouse=True)
def _table(queue: Queue) -> None:
    with queue.transaction() as tx:
        tx.execute("CREATE TABLE done (n INTEGER NOT NULL)")


def payload_of(job: Lease) -> int:
    """Return the number that is the job's payload."""
    assert isinstance(job.payload, int)
    return job.payload


def rows(queue: Queue) -> list[object]:
    """Return what the work has written."""
    with queue.transaction() as tx:
        return [n for (n,) in tx.execute("SELECT n FROM done ORDER BY n")]


def undone(queue: Queue) -> None:
    """Lease, work, settle, and raise."""
    with suppress(Undo), queue.lease_in_transaction() as (tx, job):
        assert job is not None
        tx.execute("INSERT INTO done VALUES (?)", (payload_of(job),))
        tx.complete(job)
        raise Undo


def test_the_work_and_the_completion_are_one_commit(queue: Queue, make_queue: MakeQueue) -> None:
    """Until then nobody sees the lease; then the job is completed, by one attempt that its log tells of (V14, G3)."""
    job_id = queue.enqueue("step", 7).job_id
    with queue.lease_in_transaction(["step"], worker_id="me") as (tx, job):
        assert job is not None
        assert (job.job_id, job.payload, job.attempts, job.worker_id) == (job_id, 7, 1, "me")
        tx.execute("INSERT INTO done VALUES (?)", (payload_of(job),))
        tx.enqueue("next")
        assert make_queue().get(job_id).state is JobState.PENDING
    done = queue.get(job_id)
    assert (done.state, done.attempts, done.lease_generation) == (JobState.COMPLETED, 1, 1)
    assert [event.transition.value for event in done.events] == ["enqueued", "leased", "completed"]
    assert (rows(queue), len(queue.list(kind="next"))) == ([7], 1)


def test_when_nothing_is_ready_the_transaction_is_open_all_the_same(queue: Queue) -> None:
    """`None` stands in the place of the lease, and what the block writes is committed (V14)."""
    queue.enqueue("other")
    with queue.lease_in_transaction(["step"]) as (tx, job):
        assert job is None
        tx.execute("INSERT INTO done VALUES (1)")
    assert rows(queue) == [1]


def test_an_exception_leaves_no_trace_of_the_lease(queue: Queue) -> None:
    """No attempt, no generation, no event, whatever the block had said; the lease is void, now and later (V14, G1)."""
    job_id = queue.enqueue("step", 1, max_attempts=1).job_id
    before = queue.get(job_id)
    for _ in range(3):
        undone(queue)
    assert (queue.get(job_id), rows(queue)) == (before, [])
    taken: list[Lease] = []
    with suppress(Undo), queue.lease_in_transaction() as (_, job):
        assert job is not None
        taken.append(job)
        raise Undo
    (lost,) = taken
    assert lost.is_void
    with queue.transaction() as tx, pytest.raises(LeaseConflict):
        tx.complete(lost)
    lease = queue.lease_next()
    assert lease is not None
    assert (lease.attempts, lease.lease_generation) == (1, 1)
    with pytest.raises(LeaseConflict):
        lost.complete()
    lease.complete()


def test_the_block_may_end_the_job_itself(queue: Queue) -> None:
    """Completed with a result, failed, or given back, with its writes; what failed has counted an attempt (V14)."""
    ids = [result.job_id for result in queue.enqueue_many(NewJob("step", n, max_attempts=1) for n in range(3))]
    for n in range(3):
        with queue.lease_in_transaction() as (tx, job):
            assert job is not None
            tx.execute("INSERT INTO done VALUES (?)", (n,))
            if n == 0:
                tx.complete(job, "fine")
            elif n == 1:
                tx.fail(job, "no such order")
            else:
                tx.release(job, 60)
    jobs = [queue.get(job_id) for job_id in ids]
    assert [job.state for job in jobs] == [JobState.COMPLETED, JobState.DEAD, JobState.SCHEDULED]
    assert [job.attempts for job in jobs] == [1, 1, 0]
    assert (jobs[0].result, jobs[1].last_error) == ("fine", "no such order")
    assert rows(queue) == [0, 1, 2]


def test_the_holder_s_verbs_of_the_lease_are_refused_in_the_block_and_void_after_it(queue: Queue) -> None:
    """They would want a transaction of their own; in the block it is `tx` that speaks for the lease (V14, G1)."""
    queue.enqueue("step")
    with queue.lease_in_transaction() as (_, job):
        assert job is not None
        for verb in (job.complete, job.extend, job.release):
            with pytest.raises(UsageError):
                verb()
    assert job.settled
    with pytest.raises(LeaseConflict):
        job.extend()


def test_limits_and_pauses_hold_and_give_back_what_an_undone_lease_took(queue: Queue) -> None:
    """A place, and a token of a rate, are taken by the commit and by nothing else (§5, V15)."""
    queue.set("concurrency", 1, "limited")
    queue.set("rate", "2/1h", "rated")
    queue.enqueue_many(NewJob(kind, n) for kind in ("limited", "rated") for n in range(3))
    with queue.lease_in_transaction(["limited"]) as (tx, job):
        assert job is not None
        assert tx.lease_next(["limited"]) is None
    for _ in range(5):
        undone(queue)
    with queue.lease_in_transaction(["rated"]) as (_, job):
        assert job is not None
    with suppress(Undo), queue.lease_in_transaction(["rated"]) as (_, job):
        raise Undo
    with queue.lease_in_transaction(["rated"]) as (_, job):
        assert job is not None
    with queue.lease_in_transaction(["rated"]) as (_, job):
        assert job is None
    queue.pause("limited")
    with queue.lease_in_transaction() as (_, job):
        assert job is None


def test_any_goes_round_the_scopes_by_what_was_committed(queue: Queue) -> None:
    """An undone lease takes nobody's turn (V12)."""
    queue.enqueue_many(NewJob("step", n, scope=scope) for scope in ("a", "b", "c") for n in range(2))
    served = []
    for n in range(11):
        with suppress(Undo), queue.lease_in_transaction(scope=ANY) as (_, job):
            assert job is not None
            if n % 2:
                raise Undo
            served.append(job.scope)
    assert served == ["a", "b", "c", "a", "b", "c"]


def test_what_is_due_is_found_behind_any_number_of_others(queue: Queue, clock: FakeClock) -> None:
    """As by a lease call, in bounded transactions: those that found nothing stand when the block raises (§3)."""
    queue.enqueue_many(NewJob("other", n, delay=1) for n in range(2 * STEP + 50))
    job_id = queue.enqueue("step", delay=5).job_id
    clock.advance(10)
    with suppress(Undo), queue.lease_in_transaction(["step"]) as (_, job):
        assert job is not None
        assert job.job_id == job_id
        raise Undo
    counts = queue.stats().counts
    assert (counts[JobState.PENDING], counts[JobState.SCHEDULED]) == (2 * STEP, 51)
    with queue.lease_in_transaction(["step"]) as (_, job):
        assert job is not None
    assert queue.get(job_id).state is JobState.COMPLETED


def test_it_is_refused_within_a_transaction_and_with_bad_arguments(queue: Queue) -> None:
    """At once, as every verb (§4, §6)."""
    with queue.transaction(), pytest.raises(UsageError), queue.lease_in_transaction():
        pytest.fail("the block ran")
    with pytest.raises(UsageError), queue.lease_in_transaction("step"):  # a lone string: a list was meant
        pytest.fail("the block ran")


def test_a_block_that_loses_its_own_job_commits_nothing(queue: Queue) -> None:
    """Cancelled in the block, it cannot be completed at its end: all of it is undone (V14, G3)."""
    job_id = queue.enqueue("step").job_id

    def cancel_oneself() -> None:
        with queue.lease_in_transaction() as (tx, job):
            assert job is not None
            tx.execute("INSERT INTO done VALUES (1)")
            tx.cancel(job.job_id)

    with pytest.raises(LeaseConflict):
        cancel_oneself()
    assert (queue.get(job_id).state, rows(queue)) == (JobState.PENDING, [])
