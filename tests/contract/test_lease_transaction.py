"""`lease.transaction()`: a handler's writes commit with its completion, exactly once, or not at all (G3, V14)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from litequeue import DuplicateJob, JobState, Lease, LeaseConflict, NewJob

if TYPE_CHECKING:
    from litequeue import Queue, Transaction
    from litequeue.testing import FakeClock


class Undo(Exception):
    """What a test raises to leave a transaction."""


@pytest.fixture
def lease(queue: Queue) -> Lease:
    """Give a lease of a job that is to mark order 1, in a table of the caller's own."""
    with queue.transaction() as tx:
        tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, mailed INTEGER NOT NULL)")
        tx.execute("INSERT INTO orders VALUES (1, 0)")
    queue.enqueue("mail", {"order": 1})
    (taken,) = queue.lease_many(1)
    return taken


def mark(tx: Transaction) -> None:
    """Do the handler's work."""
    tx.execute("UPDATE orders SET mailed = mailed + 1 WHERE id = 1")


def mailed(queue: Queue) -> object:
    """Return how often the order was mailed."""
    with queue.transaction() as tx:
        return tx.execute("SELECT mailed FROM orders WHERE id = 1")[0][0]


def test_the_job_is_completed_in_the_same_commit(queue: Queue, lease: Lease) -> None:
    """At the end of the block the work is done and the job is completed (V14, G3)."""
    with lease.transaction() as tx:
        mark(tx)
        tx.enqueue("receipt")
    assert mailed(queue) == 1
    assert queue.get(lease.job_id).state is JobState.COMPLETED
    assert len(queue.list(kind="receipt")) == 1


def test_the_body_may_complete_with_a_result_itself(queue: Queue, lease: Lease) -> None:
    """`tx.complete(lease, result)` says it all; the end of the block adds nothing (V14)."""
    with lease.transaction() as tx:
        mark(tx)
        tx.complete(lease, {"sent": 1}, then=[NewJob("receipt")])
    job = queue.get(lease.job_id)
    assert (job.state, job.result) == (JobState.COMPLETED, {"sent": 1})
    assert [event.transition.value for event in job.events].count("completed") == 1
    assert mailed(queue) == 1


def test_a_completion_that_failed_inside_is_made_good_at_the_end(queue: Queue, lease: Lease) -> None:
    """A verb that raised has settled nothing, so the end of the block completes the job (V14, G11)."""
    with lease.transaction() as tx:
        mark(tx)
        with suppress(DuplicateJob):
            tx.complete(
                lease,
                "first",
                then=[NewJob("next", idempotency_key="k"), NewJob("next", idempotency_key="k", on_conflict="raise")],
            )
    job = queue.get(lease.job_id)
    assert (job.state, job.result) == (JobState.COMPLETED, None)
    assert queue.list(kind="next") == []
    assert mailed(queue) == 1


@pytest.mark.parametrize(
    ("retryable", "state"), [(True, JobState.RETRYABLE), (False, JobState.DEAD)], ids=["again", "for good"]
)
def test_the_body_may_fail_the_job_itself_and_keep_its_writes(
    queue: Queue, lease: Lease, state: JobState, *, retryable: bool
) -> None:
    """`tx.fail(lease, …)` is a decision, not an exception: it commits with the rest (V14)."""
    with lease.transaction() as tx:
        mark(tx)
        tx.fail(lease, "bounced", retryable=retryable)
    assert (queue.get(lease.job_id).state, queue.get(lease.job_id).last_error) == (state, "bounced")
    assert mailed(queue) == 1


def test_the_body_may_give_the_job_back_itself(queue: Queue, lease: Lease) -> None:
    """`tx.release(lease)` settles it as well (V14, V8)."""
    with lease.transaction() as tx:
        tx.release(lease, 60)
    assert queue.get(lease.job_id).state is JobState.SCHEDULED


@pytest.mark.parametrize("has_settled", [False, True])
def test_an_exception_rolls_back_and_leaves_the_lease_held(queue: Queue, lease: Lease, *, has_settled: bool) -> None:
    """The record is as before, and the holder can still say what it wants (V14, G3)."""
    before = queue.get(lease.job_id)
    with suppress(Undo), lease.transaction() as tx:
        mark(tx)
        if has_settled:
            tx.complete(lease, "too soon")
        raise Undo
    assert mailed(queue) == 0
    assert queue.get(lease.job_id) == before
    with lease.transaction() as tx:
        mark(tx)
    assert mailed(queue) == 1
    assert queue.get(lease.job_id).state is JobState.COMPLETED


@pytest.mark.parametrize("lost_to", ["a second lease", "a reap", "a cancel"])
def test_a_stale_lease_is_refused_before_the_body_runs(
    queue: Queue, clock: FakeClock, lease: Lease, lost_to: str
) -> None:
    """The fence is checked first: a late handler writes nothing (V14, G1, G3)."""
    if lost_to == "a cancel":
        queue.cancel(lease.job_id)
    else:
        clock.advance(301)
        queue.reap_expired()
    if lost_to == "a second lease":
        clock.advance(10)
        assert queue.lease_next(worker_id=lease.worker_id) is not None
    before = queue.get(lease.job_id)
    with pytest.raises(LeaseConflict), lease.transaction():
        pytest.fail("the body ran")
    assert mailed(queue) == 0
    assert queue.get(lease.job_id) == before
    queue.enqueue("and on")


def test_a_lapsed_handler_that_nobody_reaped_may_still_commit(queue: Queue, clock: FakeClock, lease: Lease) -> None:
    """It is the last holder, so its work counts, once (§4, G3)."""
    clock.advance(301)
    with lease.transaction() as tx:
        mark(tx)
    assert mailed(queue) == 1
    assert queue.get(lease.job_id).state is JobState.COMPLETED


def test_with_refuse_lapsed_it_is_refused_before_the_body_runs(queue: Queue, clock: FakeClock, lease: Lease) -> None:
    """The hard deadline holds here too (§4, §5)."""
    queue.set("refuse_lapsed", value=True)
    clock.advance(301)
    with pytest.raises(LeaseConflict), lease.transaction():
        pytest.fail("the body ran")


def test_two_handlers_of_one_job_write_once(queue: Queue, clock: FakeClock, lease: Lease) -> None:
    """The first holder is slow, is reaped, a second one does the work: its writes are there once (G3)."""
    clock.advance(301)
    queue.reap_expired()
    clock.advance(10)
    (second,) = queue.lease_many(1)
    with second.transaction() as tx:
        mark(tx)
    with suppress(LeaseConflict), lease.transaction() as tx:
        mark(tx)
    assert mailed(queue) == 1


def test_a_body_that_loses_its_own_lease_commits_nothing(queue: Queue, lease: Lease) -> None:
    """When the job is not this lease's any more at the end, the block's writes are undone (V14, G3)."""

    def cancel_oneself() -> None:
        with lease.transaction() as tx:
            mark(tx)
            tx.cancel(lease.job_id)

    with pytest.raises(LeaseConflict):
        cancel_oneself()
    assert mailed(queue) == 0
    assert queue.get(lease.job_id).state is JobState.LEASED
    lease.complete()
