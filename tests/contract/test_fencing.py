"""Fencing: only the holder of the current lease can change a leased job; everyone else changes nothing (G1)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from litequeue import Job, JobNotFound, JobState, Lease, LeaseConflict, NewJob, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from litequeue import Queue, Transaction
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue

Say = dict[str, "Callable[[Queue | Transaction, Lease], object]"]

VERBS: Say = {
    "complete": lambda queue, lease: queue.complete(lease, "late", then=[NewJob("follower")]),
    "fail": lambda queue, lease: queue.fail(lease, "late"),
    "fail for good": lambda queue, lease: queue.fail(lease, "late", retryable=False),
    "extend": lambda queue, lease: queue.extend(lease, 9999),
    "checkpoint": lambda queue, lease: queue.checkpoint(lease, b"late", 0.9, "late"),
    "note": lambda queue, lease: queue.note(lease, "late"),
    "release": lambda queue, lease: queue.release(lease),
    "release with a delay": lambda queue, lease: queue.release(lease, 60),
}
BATCHES: dict[str, Callable[[Queue, Sequence[Lease]], list[LeaseConflict]]] = {
    "complete_many": lambda queue, leases: queue.complete_many(leases),
    "fail_many": lambda queue, leases: queue.fail_many(leases, "late"),
    "extend_many": lambda queue, leases: queue.extend_many(leases, 9999),
    "release_many": lambda queue, leases: queue.release_many(leases),
}
each_verb = pytest.mark.parametrize("verb", VERBS)
each_batch = pytest.mark.parametrize("batch", BATCHES)


def record(queue: Queue, job_id: UUID) -> Job | None:
    """Return the whole job, or `None` when it is gone."""
    try:
        return queue.get(job_id)
    except JobNotFound:
        return None


def lapse(queue: Queue, clock: FakeClock) -> None:
    """Let every lease lapse, be reaped, and every back-off pass."""
    clock.advance(301)
    queue.reap_expired()
    clock.advance(10)


def assert_refused(queue: Queue, lease: Lease, verb: str) -> None:
    """Say the verb with this lease: a conflict, and nothing in the queue is different."""
    before, counts = record(queue, lease.job_id), queue.stats().counts
    with pytest.raises(LeaseConflict) as refusal:
        VERBS[verb](queue, lease)
    assert (refusal.value.job_id, refusal.value.lease_generation) == (lease.job_id, lease.lease_generation)
    assert record(queue, lease.job_id) == before
    assert queue.stats().counts == counts


@each_verb
@pytest.mark.parametrize("workers", [("ada", "ada"), ("ada", "bob"), (None, None)], ids=repr)
@pytest.mark.parametrize("is_one_handle", [True, False])
def test_a_stale_holder_that_wakes_after_a_reap_and_a_second_lease_changes_nothing(
    make_queue: MakeQueue, clock: FakeClock, verb: str, workers: tuple[str | None, str | None], *, is_one_handle: bool
) -> None:
    """Its late word is a `LeaseConflict`, also when both used the same `worker_id` (G1; issue 2)."""
    first = make_queue()
    second = first if is_one_handle else make_queue()
    first.enqueue("work")
    (stale,) = first.lease_many(1, worker_id=workers[0])
    stale.checkpoint(b"old", 0.1)
    lapse(second, clock)
    (fresh,) = second.lease_many(1, worker_id=workers[1])
    fresh.checkpoint(b"new", 0.2)
    assert fresh.job_id == stale.job_id
    assert_refused(first, stale, verb)
    fresh.complete("fresh")
    assert second.get(fresh.job_id).result == "fresh"


def lost_by_reap(queue: Queue, clock: FakeClock, lease: Lease) -> None:  # noqa: ARG001 - one way of several
    """Let it lapse, and lease the job to nobody."""
    clock.advance(301)
    assert queue.reap_expired() == 1


def lost_by_death(queue: Queue, clock: FakeClock, lease: Lease) -> None:
    """Let it lapse again and again, until its job is dead."""
    for _ in range(5):
        clock.advance(3600)
        queue.reap_expired()
        clock.advance(3600)
        queue.lease_next()
    assert queue.get(lease.job_id).state is JobState.DEAD


def lost_by_cancel(queue: Queue, clock: FakeClock, lease: Lease) -> None:  # noqa: ARG001 - one way of several
    """Let an operator stop the job."""
    queue.cancel(lease.job_id)


def lost_by_another_life(queue: Queue, clock: FakeClock, lease: Lease) -> None:  # noqa: ARG001 - one way of several
    """Cancel the job, queue it anew, and lease it to the same worker."""
    queue.cancel(lease.job_id)
    queue.enqueue("work", job_id=lease.job_id)
    assert queue.lease_next() is not None


def lost_by_removal(queue: Queue, clock: FakeClock, lease: Lease) -> None:
    """Cancel the job, and let its retention pass."""
    queue.cancel(lease.job_id)
    clock.advance(90_000)
    assert queue.prune() == 1


def lost_by_completion(queue: Queue, clock: FakeClock, lease: Lease) -> None:  # noqa: ARG001 - one way of several
    """Complete the job with this very lease."""
    lease.complete()


def lost_by_release(queue: Queue, clock: FakeClock, lease: Lease) -> None:  # noqa: ARG001 - one way of several
    """Give the job back with this very lease."""
    lease.release()


def lost_by_failure(queue: Queue, clock: FakeClock, lease: Lease) -> None:  # noqa: ARG001 - one way of several
    """Fail the job with this very lease, and lease it to the same worker again."""
    lease.fail("boom", delay=0)
    assert queue.lease_next() is not None


WAYS = (
    lost_by_reap,
    lost_by_death,
    lost_by_cancel,
    lost_by_another_life,
    lost_by_removal,
    lost_by_completion,
    lost_by_release,
    lost_by_failure,
)


@each_verb
@pytest.mark.parametrize("lose", WAYS)
def test_a_lease_that_is_lost_counts_no_more(
    queue: Queue, clock: FakeClock, verb: str, lose: Callable[[Queue, FakeClock, Lease], None]
) -> None:
    """However a holder has lost its job, its next word is refused and nothing is different (G1, V9)."""
    queue.enqueue("work")
    (lease,) = queue.lease_many(1)
    lose(queue, clock, lease)
    assert_refused(queue, lease, verb)


@each_batch
def test_a_batch_does_the_good_ones_and_returns_the_conflicts_of_the_others(
    queue: Queue, clock: FakeClock, batch: str
) -> None:
    """A stale lease among good ones stops none of them, and its job stays as it is (G1, V4, V6)."""
    queue.enqueue_many(NewJob("work") for _ in range(3))
    leases = queue.lease_many(3)
    stale = leases[1]
    queue.cancel(stale.job_id)
    queue.enqueue("work", job_id=stale.job_id)
    queue.lease_next(worker_id=stale.worker_id)
    clock.advance(1)
    before = [queue.get(lease.job_id) for lease in leases]
    conflicts = BATCHES[batch](queue, leases)
    after = [queue.get(lease.job_id) for lease in leases]
    assert [(conflict.job_id, conflict.lease_generation) for conflict in conflicts] == [(stale.job_id, 1)]
    assert isinstance(conflicts[0], LeaseConflict)
    assert after[1] == before[1]
    assert after[0] != before[0]
    assert after[2] != before[2]


@each_batch
@pytest.mark.parametrize("is_stale_first", [True, False])
def test_a_stale_and_the_fresh_lease_of_one_job_may_share_a_batch(
    queue: Queue, clock: FakeClock, batch: str, *, is_stale_first: bool
) -> None:
    """The fresh one is good, so it is done; only the stale one is a conflict (G1, V6)."""
    queue.enqueue("work")
    (stale,) = queue.lease_many(1)
    lapse(queue, clock)
    (fresh,) = queue.lease_many(1)
    clock.advance(1)
    before = queue.get(fresh.job_id)
    conflicts = BATCHES[batch](queue, [stale, fresh] if is_stale_first else [fresh, stale])
    assert [conflict.lease_generation for conflict in conflicts] == [stale.lease_generation]
    assert queue.get(fresh.job_id) != before


@pytest.mark.parametrize("batch", ["complete_many", "fail_many", "release_many"])
def test_the_same_lease_twice_in_a_batch_ends_its_job_once(queue: Queue, batch: str) -> None:
    """The first word counts, the second is a conflict (G1, V6)."""
    queue.enqueue("work")
    (lease,) = queue.lease_many(1)
    conflicts = BATCHES[batch](queue, [lease, lease])
    assert [conflict.job_id for conflict in conflicts] == [lease.job_id]
    job = queue.get(lease.job_id)
    assert job.state is not JobState.LEASED
    assert len(job.events) == 3


@each_verb
def test_a_lapsed_holder_that_nobody_has_reaped_may_still_speak(queue: Queue, clock: FakeClock, verb: str) -> None:
    """The token proves that it is the last holder (§4, G1)."""
    queue.enqueue("work")
    (lease,) = queue.lease_many(1)
    clock.advance(301)
    before = queue.get(lease.job_id)
    VERBS[verb](queue, lease)
    assert queue.get(lease.job_id) != before


@each_verb
def test_with_refuse_lapsed_every_word_after_the_deadline_is_refused(queue: Queue, clock: FakeClock, verb: str) -> None:
    """The setting makes the deadline hard, whether or not anybody has reaped (§4, §5)."""
    queue.set("refuse_lapsed", value=True)
    queue.enqueue("work")
    (lease,) = queue.lease_many(1)
    clock.advance(301)
    assert_refused(queue, lease, verb)


@each_verb
def test_with_refuse_lapsed_a_word_before_the_deadline_counts(queue: Queue, clock: FakeClock, verb: str) -> None:
    """Nothing changes for those who are in time, also by an extended deadline (§4, §5)."""
    queue.set("refuse_lapsed", value=True)
    queue.enqueue("work")
    (lease,) = queue.lease_many(1)
    clock.advance(299)
    lease.extend()
    clock.advance(299)
    before = queue.get(lease.job_id)
    VERBS[verb](queue, lease)
    assert queue.get(lease.job_id) != before


def rolled_back_lease(queue: Queue, worker_id: str) -> Lease:
    """Take a lease in a transaction that does not commit."""
    lease: Lease | None = None
    with suppress(RuntimeError), queue.transaction() as tx:
        lease = tx.lease_next(worker_id=worker_id)
        raise RuntimeError
    assert lease is not None
    return lease


@each_verb
def test_a_lease_of_a_rolled_back_transaction_is_void(queue: Queue, verb: str) -> None:
    """The job was never leased: it is pending with nothing counted, and the lease says nothing (G1, V14; issue 2)."""
    job_id = queue.enqueue("work").job_id
    before = queue.get(job_id)
    void = rolled_back_lease(queue, "ada")
    assert queue.get(job_id) == before
    assert_refused(queue, void, verb)


@each_verb
def test_a_void_lease_stays_void_when_its_twin_is_taken_for_real(queue: Queue, verb: str) -> None:
    """The same worker leases the same job with the same generation: the void lease is still refused (G1; issue 2)."""
    queue.enqueue("work")
    void = rolled_back_lease(queue, "ada")
    (real,) = queue.lease_many(1, worker_id="ada")
    assert (real.job_id, real.lease_generation, real.worker_id) == (void.job_id, void.lease_generation, "ada")
    assert_refused(queue, void, verb)
    real.complete()


def test_a_void_lease_cannot_open_a_transaction(queue: Queue) -> None:
    """The fence of `lease.transaction()` knows it too (G1, V14)."""
    queue.enqueue("work")
    void = rolled_back_lease(queue, "ada")
    queue.lease_next(worker_id="ada")
    with pytest.raises(LeaseConflict), void.transaction():
        pytest.fail("the body ran")


@each_verb
def test_a_conflict_inside_a_transaction_changes_nothing_and_ends_nothing(
    queue: Queue, clock: FakeClock, verb: str
) -> None:
    """The fence holds in `tx.…` as well, and the transaction goes on (G1, G11)."""
    queue.enqueue("work")
    (stale,) = queue.lease_many(1)
    lapse(queue, clock)
    queue.lease_next(worker_id=stale.worker_id)
    before = queue.get(stale.job_id)
    with queue.transaction() as tx:
        with pytest.raises(LeaseConflict):
            VERBS[verb](tx, stale)
        tx.enqueue("after")
    assert queue.get(stale.job_id) == before
    assert [job.kind for job in queue.list(JobState.PENDING)] == ["after"]


@each_verb
def test_a_lease_says_nothing_in_another_queue(queue: Queue, litequeue_db: Queue, verb: str) -> None:
    """A lease that is not of this queue is a conflict here, and still good where it is from (G1)."""
    queue.enqueue("work")
    (lease,) = queue.lease_many(1)
    assert_refused(litequeue_db, lease, verb)
    lease.complete()


@each_verb
def test_only_a_lease_can_speak(queue: Queue, verb: str) -> None:
    """Something that is not a lease is a `UsageError` (§6)."""
    with pytest.raises(UsageError):
        VERBS[verb](queue, "not a lease")  # type: ignore[arg-type]
