"""The end of a handle: it gives back what it holds, ends for good, and takes nothing with it (§4, §7, G2, G5)."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import JobState, Maintenance, NewJob, QueueClosed, Transition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litequeue import Lease, Queue
    from litequeue.sqlite.store import Durability
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue


def test_closing_releases_what_the_handle_still_holds(make_queue: MakeQueue) -> None:
    """Its jobs are ready again at once, their attempts given back (§4, V8)."""
    worker, other = make_queue(), make_queue()
    ids = [result.job_id for result in worker.enqueue_many(NewJob("work", n) for n in range(3))]
    worker.lease_many(2)
    worker.lease_next()
    worker.close()
    jobs = [other.get(job_id) for job_id in ids]
    assert {(job.state, job.attempts, job.reaps, job.lease_generation) for job in jobs} == {(JobState.PENDING, 0, 0, 1)}
    assert {job.events[-1].transition for job in jobs} == {Transition.RELEASED}
    assert [lease.payload for lease in other.lease_many(9)] == [0, 1, 2]


def test_closing_touches_only_what_this_handle_holds(make_queue: MakeQueue, clock: FakeClock) -> None:
    """Not what it has ended, has lost, or what another handle holds by the same worker id (§4, G1)."""
    worker, other = make_queue(), make_queue()
    ids = [result.job_id for result in worker.enqueue_many(NewJob("work") for _ in range(6))]
    leases = worker.lease_many(6, worker_id="w", ttl=10)
    leases[0].complete()
    leases[1].fail("boom", delay=600)
    leases[2].release(delay=600)
    other.cancel(leases[3].job_id)
    leases[5].extend(1000)
    clock.advance(11)
    assert other.reap_expired() == 1  # leases[4] is lost
    clock.advance(10)
    (taken,) = other.lease_many(9, worker_id="w")
    assert taken.job_id == leases[4].job_id
    before = [other.get(job_id) for job_id in ids[:5]]
    worker.close()
    assert [other.get(job_id) for job_id in ids[:5]] == before
    assert other.get(ids[5]).state is JobState.PENDING
    taken.complete()


def test_closing_releases_what_was_leased_in_a_transaction(make_queue: MakeQueue) -> None:
    """What a committed transaction leased is held, what a rolled-back one leased is not (§4, V14)."""
    worker, other = make_queue(), make_queue()
    worker.enqueue_many(NewJob("work") for _ in range(2))
    with worker.transaction() as tx:
        kept = tx.lease_next()
    with suppress(RuntimeError), worker.transaction() as tx:
        tx.lease_next()
        raise RuntimeError
    assert kept is not None
    assert other.get(kept.job_id).state is JobState.LEASED
    worker.close()
    assert other.stats().counts[JobState.PENDING] == 2


def complete(queue: Queue, lease: Lease) -> None:
    """End the lease, in a transaction that does not commit."""
    with suppress(RuntimeError), queue.transaction() as tx:
        tx.complete(lease)
        raise RuntimeError


def complete_and_complete_again(queue: Queue, lease: Lease) -> None:
    """End the lease twice, in a transaction that does not commit."""
    with suppress(RuntimeError), queue.transaction() as tx:
        tx.complete(lease)
        with suppress(litequeue.LeaseConflict):
            tx.complete(lease)
        raise RuntimeError


def cancel_and_extend(queue: Queue, lease: Lease) -> None:
    """Lose the lease and notice, in a transaction that does not commit."""
    with suppress(RuntimeError), queue.transaction() as tx:
        tx.cancel(lease.job_id)
        assert len(tx.extend_many([lease])) == 1
        raise RuntimeError


@pytest.mark.parametrize("undone", [complete, complete_and_complete_again, cancel_and_extend])
def test_closing_releases_a_lease_whose_end_was_rolled_back(
    make_queue: MakeQueue, undone: Callable[[Queue, Lease], None]
) -> None:
    """What a transaction that did not commit did to a lease is undone with it: it is still held (§4, G5, G11)."""
    worker, other = make_queue(), make_queue()
    worker.enqueue("work")
    (lease,) = worker.lease_many(1)
    undone(worker, lease)
    lease.extend()
    undone(worker, lease)
    assert other.get(lease.job_id).state is JobState.LEASED
    worker.close()
    assert other.get(lease.job_id).state is JobState.PENDING


def test_a_killed_handle_releases_nothing_and_its_leases_lapse(
    make_queue: MakeQueue, clock: FakeClock, crash: Callable[[Queue], None]
) -> None:
    """Without a close it takes the deadline, and nobody's help but the next worker's (G5)."""
    worker, other = make_queue(), make_queue()
    worker.enqueue("work")
    worker.lease_next()
    crash(worker)
    assert other.lease_next() is None
    clock.advance(300)
    assert other.lease_next() is None
    clock.advance(10)
    assert other.lease_next() is not None


def test_closing_is_idempotent(make_queue: MakeQueue) -> None:
    """Close as often as you like; a `with` block closes too (§9)."""
    queue = make_queue()
    with queue as entered:
        assert entered is queue
        queue.enqueue("work")
    queue.close()
    queue.close()
    assert make_queue().stats().total == 1


VERBS: dict[str, Callable[[Queue, Lease], object]] = {
    "enqueue": lambda queue, _: queue.enqueue("work"),
    "enqueue_many": lambda queue, _: queue.enqueue_many([NewJob("work")]),
    "lease_next": lambda queue, _: queue.lease_next(),
    "lease_many": lambda queue, _: queue.lease_many(5, ["a:"]),
    "extend": lambda _, lease: lease.extend(),
    "checkpoint": lambda _, lease: lease.checkpoint(b""),
    "note": lambda _, lease: lease.note("late"),
    "complete": lambda _, lease: lease.complete(),
    "fail": lambda _, lease: lease.fail("late"),
    "release": lambda _, lease: lease.release(),
    "lease.transaction": lambda _, lease: lease.transaction().__enter__(),
    "complete_many": lambda queue, lease: queue.complete_many([lease]),
    "extend_many": lambda queue, lease: queue.extend_many([lease]),
    "cancel": lambda queue, lease: queue.cancel(lease.job_id),
    "retry": lambda queue, lease: queue.retry(lease.job_id),
    "remove": lambda queue, lease: queue.remove(lease.job_id),
    "edit": lambda queue, lease: queue.edit(lease.job_id, priority=1),
    "reap_expired": lambda queue, _: queue.reap_expired(),
    "promote_due": lambda queue, _: queue.promote_due(),
    "expire_overdue": lambda queue, _: queue.expire_overdue(),
    "prune": lambda queue, _: queue.prune(),
    "get": lambda queue, lease: queue.get(lease.job_id),
    "find": lambda queue, lease: queue.find(str(lease.job_id)),
    "list": lambda queue, _: queue.list(),
    "scopes": lambda queue, _: queue.scopes(),
    "held_back": lambda queue, lease: queue.held_back(lease.job_id),
    "stats": lambda queue, _: queue.stats(),
    "register": lambda queue, _: queue.register(),
    "workers": lambda queue, _: queue.workers(),
    "settings": lambda queue, _: queue.settings(),
    "set": lambda queue, _: queue.set("lease_ttl", 9),
    "transaction": lambda queue, _: queue.transaction().__enter__(),
    "run_once": lambda queue, _: Maintenance(queue).run_once(),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("is_idle", [False, True])
def test_a_closed_handle_answers_queue_closed(make_queue: MakeQueue, verb: str, *, is_idle: bool) -> None:
    """Every verb says so, whatever the handle did last (§9)."""
    queue, other = make_queue(), make_queue()
    queue.enqueue("work")
    (lease,) = queue.lease_many(1)
    if is_idle:
        assert queue.lease_next() is None
    queue.close()
    before = other.list()
    with pytest.raises(QueueClosed):
        VERBS[verb](queue, lease)
    assert other.list() == before


def test_what_a_forgotten_handle_held_lapses_and_counts(
    make_queue: MakeQueue, clock: FakeClock, tmp_path: Path
) -> None:
    """Nobody closed it, so it gives nothing back: a job that always ends its worker must die in the end (G5, G6)."""
    other = make_queue()
    other.enqueue("work")
    forgotten = litequeue.open(tmp_path / "queue.db", clock=clock)
    assert len(forgotten.lease_many(1)) == 1
    del forgotten
    gc.collect()
    assert other.stats().counts[JobState.LEASED] == 1
    clock.advance(300)
    assert other.reap_expired() == 1


@pytest.mark.parametrize(
    ("error", "state"),
    [(MemoryError, JobState.LEASED), (SystemExit, JobState.PENDING), (KeyboardInterrupt, JobState.PENDING)],
)
def test_a_block_that_an_error_ends_releases_nothing(
    make_queue: MakeQueue, clock: FakeClock, tmp_path: Path, error: type[BaseException], state: JobState
) -> None:
    """An error that nobody caught is a crash, and counts (G6); being told to stop is an orderly end (§4)."""
    other = make_queue()
    other.enqueue("work")
    with suppress(BaseException), litequeue.open(tmp_path / "queue.db", clock=clock) as queue:
        queue.lease_next()
        raise error
    (job,) = other.list()
    assert job.state is state
    assert job.attempts == (job.state is JobState.LEASED)


@pytest.mark.parametrize("durability", ["full", "enqueue", "normal"])
def test_every_durability_keeps_what_was_done(
    make_queue: MakeQueue, crash: Callable[[Queue], None], durability: Durability
) -> None:
    """The main cycle in each mode; all of it is there after the handle has gone without a close (§7, G2)."""
    queue = make_queue(durability=durability)
    ids = [result.job_id for result in queue.enqueue_many(NewJob("work", n) for n in range(5))]
    leases = queue.lease_many(4)
    leases[0].complete("done")
    leases[1].fail("boom")
    leases[2].checkpoint(b"half")
    queue.cancel(ids[3])
    queue.set("lease_ttl", 9)
    with queue.transaction() as tx:
        tx.execute("CREATE TABLE mine (id INTEGER)")
    before = queue.list()
    crash(queue)
    again = make_queue(durability=durability)
    assert again.list() == before
    assert [again.get(job_id).state.name for job_id in ids] == [
        "COMPLETED",
        "RETRYABLE",
        "LEASED",
        "CANCELLED",
        "PENDING",
    ]
    assert again.settings()["lease_ttl"] == 9
