"""Poison is bounded: what always fails or always kills dies after its attempts, and alone (G6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litequeue import JobState, NewJob, Transition

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from litequeue import Lease, Queue
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue

HOUR = 3600


def leases_until_dead(queue: Queue, clock: FakeClock, job_id: UUID, end: Callable[[Lease], None]) -> int:
    """Lease the job again and again, ending each lease badly; return how many leases it took to kill it."""
    for leases in range(1, 50):
        lease = queue.lease_next()
        assert lease is not None
        end(lease)
        clock.advance(HOUR)
        queue.reap_expired()
        if queue.get(job_id).state is JobState.DEAD:
            return leases
        clock.advance(HOUR)
    pytest.fail("it never died")


def stop(lease: Lease) -> None:
    """Be killed: say nothing."""
    del lease


@pytest.mark.parametrize(("own", "of_kind", "leases"), [(None, None, 5), (None, 2, 2), (3, None, 3), (7, 2, 7)])
def test_a_job_that_always_fails_is_dead_after_exactly_its_attempts(
    queue: Queue, clock: FakeClock, own: int | None, of_kind: int | None, leases: int
) -> None:
    """Its own `max_attempts`, else the kind's, else the file's; the log shows each attempt (G6; issue 2)."""
    if of_kind is not None:
        queue.set("max_attempts", of_kind, kind="bad:")
    job_id = queue.enqueue("bad:apple", max_attempts=own).job_id
    assert leases_until_dead(queue, clock, job_id, lambda lease: lease.fail(f"boom {lease.attempts}")) == leases
    job = queue.get(job_id)
    assert (job.attempts, job.reaps, job.lease_generation, job.last_error) == (leases, 0, leases, f"boom {leases}")
    log = [event.transition for event in job.events]
    assert log.count(Transition.LEASED) == log.count(Transition.FAILED) == leases
    assert [event.detail for event in job.events if event.transition is Transition.FAILED] == [
        f"boom {attempt}" for attempt in range(1, leases + 1)
    ]
    assert log[-1] is Transition.DEAD
    assert queue.lease_next() is None


@pytest.mark.parametrize(("own", "of_kind", "leases"), [(None, None, 5), (None, 2, 2), (3, None, 3)])
def test_a_job_that_always_kills_its_worker_is_dead_after_exactly_its_attempts(
    queue: Queue, clock: FakeClock, own: int | None, of_kind: int | None, leases: int
) -> None:
    """Nobody has to live to report it; the log shows each attempt (G6; issue 2)."""
    if of_kind is not None:
        queue.set("max_attempts", of_kind, kind="bad:")
    job_id = queue.enqueue("bad:apple", max_attempts=own).job_id
    assert leases_until_dead(queue, clock, job_id, stop) == leases
    job = queue.get(job_id)
    assert (job.attempts, job.reaps, job.lease_generation) == (leases, leases, leases)
    assert job.last_error == "lease expired"
    log = [event.transition for event in job.events]
    assert log.count(Transition.LEASED) == log.count(Transition.REAPED) == leases
    assert log[-1] is Transition.DEAD
    assert queue.lease_next() is None


def test_failures_and_lapses_count_together(queue: Queue, clock: FakeClock) -> None:
    """An attempt is an attempt, however it ends; a release is none (G6, V8)."""
    job_id = queue.enqueue("work").job_id

    def end(lease: Lease) -> None:
        if lease.lease_generation == 3:
            lease.release()
        elif lease.lease_generation % 2:
            lease.fail("boom")

    assert leases_until_dead(queue, clock, job_id, end) == 6
    assert (queue.get(job_id).attempts, queue.get(job_id).reaps) == (5, 3)


def test_the_attempts_of_a_job_are_those_in_force_when_it_fails(queue: Queue, clock: FakeClock) -> None:
    """Settings are read from the file, not stamped on the job: a changed limit counts at once (§5, §10)."""
    job_id = queue.enqueue("work").job_id
    queue.lease_many(1)[0].fail("boom")
    queue.set("max_attempts", 2)
    clock.advance(HOUR)
    queue.lease_many(1)[0].fail("boom")
    assert queue.get(job_id).state is JobState.DEAD


def test_a_killer_does_not_take_its_batch_with_it(
    make_queue: MakeQueue, clock: FakeClock, crash: Callable[[Queue], None]
) -> None:
    """Of 20 jobs leased in one batch with it, none is charged more than once, and all are done (G6, V3; issue 2)."""
    watcher = make_queue()
    watcher.enqueue_many(NewJob("good", n) for n in range(10))
    killer = watcher.enqueue("killer").job_id
    watcher.enqueue_many(NewJob("good", n) for n in range(10, 20))
    kills = 0
    for _ in range(60):
        worker = make_queue()
        batch = worker.lease_many(100)
        if any(lease.job_id == killer for lease in batch):
            kills += 1
            crash(worker)  # it dies before it has finished any of them
        else:
            assert worker.complete_many(batch) == []
            worker.close()
        clock.advance(HOUR)
    assert kills == 5
    assert watcher.get(killer).state is JobState.DEAD
    done = watcher.list(JobState.COMPLETED)
    assert sorted(str(job.payload) for job in done) == sorted(str(n) for n in range(20))
    assert {(job.reaps, job.attempts) for job in done} == {(1, 2)}
    assert watcher.stats().total == 21


def test_a_killer_at_the_last_attempt_of_its_neighbours_charges_each_once(queue: Queue, clock: FakeClock) -> None:
    """Being reaped once costs one attempt, no more (G6)."""
    ids = [result.job_id for result in queue.enqueue_many(NewJob("work", max_attempts=2) for _ in range(20))]
    queue.lease_many(20)
    clock.advance(301)
    queue.reap_expired()
    assert {queue.get(job_id).attempts for job_id in ids} == {1}
    clock.advance(10)
    for _ in range(20):
        (lease,) = queue.lease_many(20)
        lease.complete()
    assert queue.stats().counts[JobState.COMPLETED] == 20
