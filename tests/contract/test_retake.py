"""Two-level retries: a short pause is waited out by the worker itself, which fails and leases in one write (V3, V7)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from litequeue import Failed, JobState, Lease, LeaseConflict, NewJob, Transition

if TYPE_CHECKING:
    from litequeue import Exchange, Queue
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue

SECOND = 1_000_000


def lease_one(queue: Queue, ttl: float | None = None) -> Lease:
    """Enqueue a job, and lease it."""
    queue.enqueue("work", {"n": 1})
    (lease,) = queue.lease_many(1, worker_id="ann", ttl=ttl)
    return lease


def fail(
    queue: Queue, lease: Lease, *, delay: float | None = 5, within: float = 60, ttl: float | None = None
) -> Exchange:
    """Hand a failed run in that may be retaken."""
    return queue.exchange([Failed(lease, "boom", delay=delay, retake_within=within)], ttl=ttl)


def retake(
    queue: Queue, lease: Lease, *, delay: float | None = 5, within: float = 60, ttl: float | None = None
) -> Lease:
    """Hand a failed run in, and take the lease of the next."""
    exchange = fail(queue, lease, delay=delay, within=within, ttl=ttl)
    assert (exchange.leases, exchange.refused) == ([], [])
    ((again, _),) = exchange.retaken
    return again


def test_a_retake_is_a_failure_and_a_lease_in_one_commit(queue: Queue, clock: FakeClock) -> None:
    """Generation and attempts grow, the log shows both, the deadline counts from the end of the pause (V3, V7)."""
    lease = lease_one(queue, ttl=30)
    clock.advance(2)
    exchange = fail(queue, lease)
    ((again, pause_s),) = exchange.retaken
    job = queue.get(lease.job_id)
    assert pause_s == 5.0
    assert (job.state, job.attempts, job.lease_generation, job.reaps) == (JobState.LEASED, 2, 2, 0)
    assert (job.last_error, job.not_before, job.finished_at) == ("boom", None, None)
    assert (job.worker_id, job.leased_at) == ("ann", clock.wall_us())
    assert job.lease_deadline == clock.wall_us() + (5 + 30) * SECOND
    assert [(event.transition, event.detail) for event in job.events] == [
        (Transition.ENQUEUED, ""),
        (Transition.LEASED, "ann"),
        (Transition.FAILED, "boom"),
        (Transition.LEASED, "ann"),
    ]
    assert (again.job_id, again.kind, again.payload, again.scope) == (lease.job_id, "work", {"n": 1}, "default")
    assert (again.attempts, again.lease_generation, again.worker_id) == (2, 2, "ann")
    assert (again.ttl_us, again.priority, again.created_at) == (30 * SECOND, lease.priority, lease.created_at)
    assert (lease.settled, lease.lost, again.settled, again.lost) == (True, False, False, False)
    again.complete("done")
    assert (queue.get(job.job_id).result, queue.get(job.job_id).last_error) == ("done", None)


@pytest.mark.parametrize(("given", "seconds"), [(None, 100), (7, 7)])
def test_a_retaken_lease_has_the_exchanges_time_or_its_own(
    queue: Queue, clock: FakeClock, given: float | None, seconds: int
) -> None:
    """As an extension: what was asked for once is asked for again (V4)."""
    again = retake(queue, lease_one(queue, ttl=100), ttl=given)
    assert again.ttl_us == seconds * SECOND
    assert queue.get(again.job_id).lease_deadline == clock.wall_us() + (5 + seconds) * SECOND
    again.extend()
    assert queue.get(again.job_id).lease_deadline == clock.wall_us() + seconds * SECOND


def test_the_kinds_own_back_off_decides_where_no_delay_is_given(queue: Queue) -> None:
    """Each attempt's own: 10, 40, then 160 s, which is too long for this worker (§5)."""
    lease = retake(queue, lease_one(queue), delay=None)
    lease = retake(queue, lease, delay=None)
    exchange = fail(queue, lease, delay=None)
    assert exchange.retaken == []
    job = queue.get(lease.job_id)
    assert (job.state, job.attempts) == (JobState.RETRYABLE, 3)


@pytest.mark.parametrize(
    ("delay", "within", "is_retaken"), [(5, 5, True), (5, 4.9, False), (0, 1, True), (0, 0, False)]
)
def test_a_pause_is_waited_out_up_to_the_bound_and_never_without_one(
    queue: Queue, clock: FakeClock, delay: float, within: float, *, is_retaken: bool
) -> None:
    """`retake_within` is the longest; 0, the default, goes back to the queue whatever the pause (V7)."""
    lease = lease_one(queue)
    exchange = fail(queue, lease, delay=delay, within=within)
    job = queue.get(lease.job_id)
    assert [again.job_id for again, _ in exchange.retaken] == ([lease.job_id] if is_retaken else [])
    if not is_retaken:
        assert (job.state, job.attempts, job.lease_generation) == (JobState.RETRYABLE, 1, 1)
        assert job.not_before == clock.wall_us() + delay * SECOND


def test_a_job_that_always_fails_is_dead_after_exactly_its_attempts(queue: Queue) -> None:
    """However short its pauses are: every run is a lease, and in the log (G6)."""
    job_id = queue.enqueue("work", max_attempts=3).job_id
    lease = queue.lease_next()
    runs = 0
    while lease is not None:
        runs += 1
        retaken = fail(queue, lease).retaken
        lease = retaken[0][0] if retaken else None
    job = queue.get(job_id)
    assert (runs, job.state, job.attempts, job.lease_generation) == (3, JobState.DEAD, 3, 3)
    assert [event.transition for event in job.events].count(Transition.LEASED) == 3
    assert [event.transition for event in job.events].count(Transition.FAILED) == 3


def test_what_is_not_retryable_is_dead_at_once(queue: Queue) -> None:
    """A permanent error knows no second level (V7)."""
    lease = lease_one(queue)
    assert queue.exchange([Failed(lease, "boom", retryable=False, delay=0, retake_within=60)]).retaken == []
    assert queue.get(lease.job_id).state is JobState.DEAD


@pytest.mark.parametrize(("expires", "is_retaken"), [(6, True), (5, False)])
def test_a_job_that_would_start_too_late_is_not_retaken(
    queue: Queue, clock: FakeClock, expires: float, *, is_retaken: bool
) -> None:
    """It goes back to the queue, and dies there at its time: nobody may start it then (§2, V11)."""
    job_id = queue.enqueue("work", expires=expires).job_id
    (lease,) = queue.lease_many(1)
    assert bool(fail(queue, lease).retaken) == is_retaken
    if not is_retaken:
        clock.advance(5)
        assert queue.lease_next() is None
        assert (queue.get(job_id).state, queue.get(job_id).last_error) == (JobState.DEAD, "expired")


def test_a_job_that_is_too_late_when_it_fails_is_dead(queue: Queue, clock: FakeClock) -> None:
    """As with `fail` (V7, V11)."""
    queue.enqueue("work", expires=5)
    (lease,) = queue.lease_many(1)
    clock.advance(6)
    assert fail(queue, lease, delay=0).retaken == []
    assert (queue.get(lease.job_id).state, queue.get(lease.job_id).last_error) == (JobState.DEAD, "boom")


def test_a_worker_that_dies_while_it_waits_is_reaped(make_queue: MakeQueue, clock: FakeClock) -> None:
    """By the deadline, pause and lease time from the failure on, and the attempt counts (G5, G6)."""
    queue, other = make_queue(), make_queue()
    again = retake(queue, lease_one(queue, ttl=30))
    clock.advance(34.9)
    assert other.reap_expired() == 0
    clock.advance(0.2)
    assert other.reap_expired() == 1
    job = other.get(again.job_id)
    assert (job.state, job.attempts, job.reaps, job.last_error) == (JobState.RETRYABLE, 2, 1, "lease expired")
    assert queue.exchange([Failed(again, "late", retake_within=60)]).refused[0][0].lease is again


def test_the_handle_that_settles_is_the_holder_of_a_retaken_job(make_queue: MakeQueue) -> None:
    """Whichever handle took the lease: its process is the one that waits (G5)."""
    queue, other = make_queue(), make_queue()
    lease = lease_one(queue)
    first = queue.get(lease.job_id).holder
    again = retake(other, lease)
    assert queue.get(lease.job_id).holder not in {None, first}
    other.close()
    assert (queue.get(again.job_id).state, queue.get(again.job_id).attempts) == (JobState.PENDING, 1)


def test_the_old_lease_is_stale_and_the_new_one_is_fenced(queue: Queue) -> None:
    """A handler that still has the old one changes nothing, though the worker is the same (G1)."""
    lease = lease_one(queue)
    again = retake(queue, lease)
    before = queue.get(lease.job_id)
    verbs = (lease.complete, lease.extend, lease.release, partial(lease.fail, "late"), partial(lease.note, "late"))
    for verb in verbs:
        with pytest.raises(LeaseConflict):
            verb()
    assert queue.get(lease.job_id) == before
    again.complete()


def test_a_retake_clears_the_checkpoint_and_counts_the_heartbeats_of_the_run(queue: Queue) -> None:
    """What lives as long as a lease ends with it, in one event each (§2, V3, V5)."""
    lease = lease_one(queue)
    lease.extend()
    lease.checkpoint(b"half", progress=0.5, note="half")
    again = retake(queue, lease)
    job = queue.get(lease.job_id)
    assert again.continuation is None
    assert (job.continuation, job.progress, job.note) == (None, None, None)
    assert (job.beats, job.checkpoints, job.last_beat_at) == (0, 0, None)
    names = [event.transition for event in job.events[2:]]
    assert names == [Transition.EXTENDED, Transition.CHECKPOINT, Transition.FAILED, Transition.LEASED]


def test_a_trigger_that_came_during_the_run_brings_the_job_back_to_the_queue(queue: Queue, clock: FakeClock) -> None:
    """It folds into the job, which has a new payload, priority and gate by then (V2)."""
    job_id = queue.enqueue("work", 1, idempotency_key="k").job_id
    (lease,) = queue.lease_many(1)
    queue.enqueue("work", 2, idempotency_key="k", on_conflict="reset", priority=7)
    assert fail(queue, lease).retaken == []
    job = queue.get(job_id)
    assert (job.state, job.payload, job.priority, job.attempts) == (JobState.RETRYABLE, 2, 7, 1)
    assert job.not_before == clock.wall_us() + 5 * SECOND


def test_a_key_is_still_held_and_triggered_while_a_worker_waits(queue: Queue) -> None:
    """A retaken job is active; a `reset` during the pause is kept for the end of the run (V2)."""
    queue.enqueue("work", 1, idempotency_key="k")
    (lease,) = queue.lease_many(1)
    again = retake(queue, lease)
    assert not queue.enqueue("work", 2, idempotency_key="k", on_conflict="reset").created
    again.complete()
    assert [job.payload for job in queue.list(JobState.PENDING)] == [2]


def test_retaken_leases_leave_less_room_for_new_ones(queue: Queue) -> None:
    """They are in the worker's hands all the same; a long log is trimmed at a retake as at any move (V3, §2)."""
    queue.enqueue_many(NewJob("work", n) for n in range(6))
    leases = queue.lease_many(3)
    for _ in range(200):
        leases[0].note("x" * 100)
    exchange = queue.exchange([Failed(lease, "boom", delay=1, retake_within=1) for lease in leases], 5)
    assert [again.payload for again, _ in exchange.retaken] == [0, 1, 2]
    assert [lease.payload for lease in exchange.leases] == [3, 4]
    events = queue.get(leases[0].job_id).events
    assert [event.transition for event in events[-2:]] == [Transition.FAILED, Transition.LEASED]
    assert events[1].transition is Transition.TRUNCATED


def test_a_job_that_is_retaken_may_be_cancelled(queue: Queue) -> None:
    """While its worker waits it is leased: the worker's next word is refused (V9)."""
    again = retake(queue, lease_one(queue))
    queue.cancel(again.job_id)
    with pytest.raises(LeaseConflict):
        again.complete()
    assert again.lost


def test_a_retaken_job_that_is_released_has_its_failed_attempt_still(queue: Queue) -> None:
    """A drain gives the run back that has not begun, and no other (V8)."""
    again = retake(queue, lease_one(queue))
    again.release()
    job = queue.get(again.job_id)
    assert (job.state, job.attempts, job.lease_generation) == (JobState.PENDING, 1, 2)
