"""What a holder says and what it leads to: extend, checkpoint, note, complete, fail, release (V4 to V8)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from litequeue import DuplicateJob, JobState, Lease, NewJob, PayloadError, Transition, UsageError

if TYPE_CHECKING:
    from litequeue import Queue
    from litequeue.testing import FakeClock

SECOND = 1_000_000


@pytest.fixture
def lease(queue: Queue) -> Lease:
    """Give a fresh lease of a job with the payload "first"."""
    queue.enqueue("work", "first")
    (taken,) = queue.lease_many(1, ttl=100)
    return taken


def transitions(queue: Queue, lease: Lease) -> list[str]:
    """Return the job's log, without times and details."""
    return [event.transition.value for event in queue.get(lease.job_id).events]


# --- V4


def test_an_extension_counts_from_now_by_the_leases_own_time(queue: Queue, clock: FakeClock, lease: Lease) -> None:
    """Not from the old deadline, and not by the kind's setting (V4)."""
    clock.advance(60)
    lease.extend()
    job = queue.get(lease.job_id)
    assert job.lease_deadline == clock.wall_us() + 100 * SECOND
    assert (job.beats, job.last_beat_at) == (1, clock.wall_us())
    clock.advance(99)
    assert queue.reap_expired() == 0
    clock.advance(2)
    assert queue.reap_expired() == 1


@pytest.mark.parametrize("ttl", [7, timedelta(seconds=7)])
def test_an_extension_may_be_given_a_time(queue: Queue, clock: FakeClock, lease: Lease, ttl: float | timedelta) -> None:
    """A given ttl counts once, in either direction; the lease's own time stays what it was (V4)."""
    lease.extend(ttl)
    assert queue.get(lease.job_id).lease_deadline == clock.wall_us() + 7 * SECOND
    lease.extend()
    assert queue.get(lease.job_id).lease_deadline == clock.wall_us() + 100 * SECOND


def test_a_batch_is_extended_by_each_leases_own_time(queue: Queue, clock: FakeClock) -> None:
    """`extend_many` answers per lease, and each keeps its ttl (V4)."""
    queue.enqueue_many(NewJob("work") for _ in range(2))
    leases = [queue.lease_many(1, ttl=ttl)[0] for ttl in (10, 20)]
    clock.advance(5)
    assert queue.extend_many(leases) == []
    deadlines = [queue.get(held.job_id).lease_deadline for held in leases]
    assert deadlines == [clock.wall_us() + 10 * SECOND, clock.wall_us() + 20 * SECOND]


def test_heartbeats_become_one_event_with_a_count_when_the_lease_ends(
    queue: Queue, clock: FakeClock, lease: Lease
) -> None:
    """They count in columns while the lease lives, and the log shows them before that too (§2, V4)."""
    for _ in range(50):
        clock.advance(10)
        lease.extend()
    alive = [event for event in queue.get(lease.job_id).events if event.transition is Transition.EXTENDED]
    lease.complete()
    job = queue.get(lease.job_id)
    ended = [event for event in job.events if event.transition is Transition.EXTENDED]
    assert len(alive) == len(ended) == 1
    assert "50" in alive[0].detail
    assert "50" in ended[0].detail
    assert (job.beats, job.last_beat_at, job.lease_deadline) == (0, None, None)
    assert job.events[-1].transition is Transition.COMPLETED


# --- V5


def test_a_checkpoint_is_stored_and_extends_in_one_write(queue: Queue, clock: FakeClock, lease: Lease) -> None:
    """Continuation, progress and note stand in the record and the lease; the deadline counts from now (V5)."""
    clock.advance(60)
    lease.checkpoint(b"page 7", progress=0.25, note="a quarter")
    job = queue.get(lease.job_id)
    assert (job.continuation, job.progress, job.note) == (b"page 7", 0.25, "a quarter")
    assert (job.checkpoints, job.last_beat_at) == (1, clock.wall_us())
    assert job.lease_deadline == clock.wall_us() + 100 * SECOND
    assert lease.continuation == b"page 7"
    lease.checkpoint(b"", progress=1.0)
    assert queue.get(lease.job_id).continuation == lease.continuation == b""


def test_a_checkpoint_keeps_what_it_does_not_give(queue: Queue, clock: FakeClock, lease: Lease) -> None:
    """Progress alone leaves the bytes as they are, and extends all the same; never given, they are empty (V5)."""
    lease.checkpoint(progress=0.25)
    job = queue.get(lease.job_id)
    assert (job.continuation, job.progress, job.note, job.checkpoints) == (b"", 0.25, None, 1)
    assert lease.continuation == b""
    lease.checkpoint(b"page 7", note="seven")
    clock.advance(60)
    queue.checkpoint(lease, progress=0.5)
    job = queue.get(lease.job_id)
    assert (job.continuation, job.progress, job.note, job.checkpoints) == (b"page 7", 0.5, "seven", 3)
    assert lease.continuation == b"page 7"
    assert job.lease_deadline == clock.wall_us() + 100 * SECOND
    with queue.transaction() as tx:
        tx.checkpoint(lease, b"page 8")
        tx.checkpoint(lease, note="eight")
    assert queue.get(lease.job_id).continuation == lease.continuation == b"page 8"


def test_a_checkpoint_too_large_changes_nothing(queue: Queue, lease: Lease) -> None:
    """The continuation is held against `max_payload`; the lease is still held (V5, §6)."""
    lease.checkpoint(b"good")
    before = queue.get(lease.job_id)
    queue.set("max_payload", 100)
    with pytest.raises(PayloadError, match="101"):
        lease.checkpoint(b"x" * 101)
    assert queue.get(lease.job_id) == before
    assert lease.continuation == b"good"


@pytest.mark.parametrize("end", ["complete", "fail", "release", "cancel", "reap"])
def test_a_checkpoint_lives_as_long_as_its_lease(queue: Queue, clock: FakeClock, lease: Lease, end: str) -> None:
    """However the lease ends, its continuation, progress and note end with it (§2, V5)."""
    lease.checkpoint(b"half", progress=0.5, note="half")
    match end:
        case "complete":
            lease.complete()
        case "fail":
            lease.fail("boom")
        case "release":
            lease.release()
        case "cancel":
            queue.cancel(lease.job_id)
        case _:
            clock.advance(101)
            assert queue.reap_expired() == 1
    job = queue.get(lease.job_id)
    assert (job.continuation, job.progress, job.note, job.checkpoints) == (None, None, None, 0)
    assert Transition.CHECKPOINT in [event.transition for event in job.events]


def test_a_note_is_a_line_in_the_log(queue: Queue, clock: FakeClock, lease: Lease) -> None:
    """`note` appends its detail and changes nothing else (V5)."""
    before = queue.get(lease.job_id)
    clock.advance(1)
    lease.note("read 10 pages")
    job = queue.get(lease.job_id)
    assert job.events == [*before.events, (clock.wall_us(), Transition.NOTE, "read 10 pages")]
    assert (job.lease_deadline, job.beats) == (before.lease_deadline, 0)


@pytest.mark.parametrize("character", ["x", "é", "☃", "🎉"])
def test_a_long_detail_is_cut_at_256_bytes_and_never_inside_a_character(
    queue: Queue, lease: Lease, character: str
) -> None:
    """A detail holds at most 256 bytes (§2, V5)."""
    lease.note("a" + character * 300)
    detail = queue.get(lease.job_id).events[-1].detail
    assert 252 < len(detail.encode()) <= 256
    assert ("a" + character * 300).startswith(detail)


def test_a_long_log_keeps_its_first_event_and_the_newest_behind_a_marker(
    queue: Queue, clock: FakeClock, lease: Lease
) -> None:
    """About 4 KiB stay: the oldest go behind a `truncated` marker, the first event stays (§2)."""
    enqueued_at = queue.get(lease.job_id).created_at
    for n in range(500):
        clock.advance(0.1)
        lease.note(f"note {n:03} {'.' * 50}")
    lease.complete()
    events = queue.get(lease.job_id).events
    assert events[0] == (enqueued_at, Transition.ENQUEUED, "")
    assert events[1].transition is Transition.TRUNCATED
    assert [event.detail[:8] for event in events[-11:-1]] == [f"note {n}" for n in range(490, 500)]
    assert events[-1].transition is Transition.COMPLETED
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert 2500 < sum(len(event.detail) for event in events) < 4200


# --- V6


def test_completing_keeps_the_result(queue: Queue, clock: FakeClock, lease: Lease) -> None:
    """Leased → completed, with the result, the time and an event; nothing of the lease stays (V6)."""
    clock.advance(3)
    lease.complete({"pages": [1, 2]})
    job = queue.get(lease.job_id)
    assert (job.state, job.result, job.finished_at) == (JobState.COMPLETED, {"pages": [1, 2]}, clock.wall_us())
    assert (job.worker_id, job.holder, job.lease_deadline) == (None, None, None)
    assert (job.attempts, job.lease_generation) == (1, 1)
    assert transitions(queue, lease) == ["enqueued", "leased", "completed"]


def test_a_success_clears_the_error_and_the_result_is_the_last_runs(queue: Queue) -> None:
    """`result` and `last_error` are of the last run (§2, V6)."""
    job_id = queue.enqueue("work").job_id
    queue.lease_many(1)[0].fail("boom", delay=0)
    assert queue.get(job_id).last_error == "boom"
    queue.lease_many(1)[0].complete("first")
    assert (queue.get(job_id).result, queue.get(job_id).last_error) == ("first", None)
    queue.retry(job_id)
    queue.lease_many(1)[0].fail("again", retryable=False)
    assert (queue.get(job_id).result, queue.get(job_id).last_error) == (None, "again")
    queue.retry(job_id)
    queue.lease_many(1)[0].complete()
    assert (queue.get(job_id).result, queue.get(job_id).last_error) == (None, None)


def test_followers_are_enqueued_in_the_same_commit(queue: Queue, lease: Lease) -> None:
    """The jobs of `then` are there once the job is completed, in their order (V6)."""
    lease.complete(then=[NewJob("next", 1), NewJob("next", 2, scope="elsewhere"), NewJob("next", 3, delay=5)])
    assert [job.payload for job in queue.list(kind="next")] == [1, 3]
    assert [job.payload for job in queue.list(kind="next", scope="elsewhere")] == [2]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (NewJob("next", object()), PayloadError),
        (NewJob("next", b"x" * 2_000_000), PayloadError),
        (NewJob("next", idempotency_key="taken", on_conflict="raise"), DuplicateJob),
    ],
    ids=["unpackable", "too large", "key taken"],
)
def test_a_bad_follower_leaves_the_lease_held(queue: Queue, lease: Lease, bad: NewJob, error: type[Exception]) -> None:
    """Completion and followers are one commit: without them it has not happened either (V6, G11)."""
    queue.enqueue("next", idempotency_key="taken", delay=60)
    before = queue.get(lease.job_id)
    with pytest.raises(error):
        lease.complete("done", then=[NewJob("good"), bad])
    assert queue.get(lease.job_id) == before
    assert queue.stats().total == 2
    lease.complete()


@pytest.mark.parametrize(
    "result", [object(), {"at": {1, 2}}, b"x" * 2_000_000], ids=["unpackable", "deep", "too large"]
)
def test_a_bad_result_leaves_the_lease_held(queue: Queue, lease: Lease, result: object) -> None:
    """A `PayloadError`, nothing stored, and the job can still be completed (V6, §6)."""
    before = queue.get(lease.job_id)
    with pytest.raises(PayloadError):
        lease.complete(result)
    assert queue.get(lease.job_id) == before
    lease.complete("good")
    assert queue.get(lease.job_id).result == "good"


def test_a_batch_completes_with_a_result_each(queue: Queue) -> None:
    """`complete_many` takes results in the order of the leases (V6)."""
    queue.enqueue_many(NewJob("work", n) for n in range(4))
    leases = queue.lease_many(4)
    assert queue.complete_many(leases[:3], [lease.payload for lease in leases[:3]]) == []
    assert queue.complete_many(iter(leases[3:])) == []
    assert [queue.get(lease.job_id).result for lease in leases] == [0, 1, 2, None]
    with pytest.raises(UsageError, match="results"):
        queue.complete_many(leases, [1])


def test_a_batch_with_a_bad_result_completes_nothing(queue: Queue) -> None:
    """A result that cannot be stored is a fault of the call, not of one lease (V6, G11)."""
    queue.enqueue_many(NewJob("work") for _ in range(2))
    leases = queue.lease_many(2)
    with pytest.raises(PayloadError):
        queue.complete_many(leases, ["good", b"x" * 2_000_000])
    assert queue.stats().counts[JobState.LEASED] == 2


# --- V7


def test_a_failed_run_waits_out_its_back_off(queue: Queue, clock: FakeClock, lease: Lease) -> None:
    """Leased → retryable, not before now + back-off, with the error; the attempt counts (V7)."""
    lease.fail("no route to host")
    job = queue.get(lease.job_id)
    assert (job.state, job.last_error, job.attempts, job.reaps) == (JobState.RETRYABLE, "no route to host", 1, 0)
    assert (job.not_before, job.finished_at) == (clock.wall_us() + 10 * SECOND, None)
    assert job.events[-1] == (clock.wall_us(), Transition.FAILED, "no route to host")
    clock.advance(9)
    assert queue.lease_next() is None
    clock.advance(1)
    assert queue.lease_next() is not None


@pytest.mark.parametrize("retryable", [True, False])
def test_the_log_has_the_first_line_of_an_error_and_the_job_all_of_it(
    queue: Queue, lease: Lease, *, retryable: bool
) -> None:
    """An event is one line; a traceback below it belongs to `last_error` (§2, V7)."""
    error = "ValueError: boom\nTraceback (most recent call last):\n  File …"
    lease.fail(error, retryable=retryable)
    job = queue.get(lease.job_id)
    assert job.last_error == error
    assert [event.detail for event in job.events if event.transition is Transition.FAILED] == ["ValueError: boom"]


@pytest.mark.parametrize("delay", [90, timedelta(seconds=90), 0])
def test_a_failed_run_may_say_when_to_try_again(
    queue: Queue, clock: FakeClock, lease: Lease, delay: float | timedelta
) -> None:
    """`delay` takes the place of the back-off, also when it is longer than its cap, or 0 (V7)."""
    lease.fail("busy", delay=delay)
    job = queue.get(lease.job_id)
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    assert (job.state, job.not_before) == (JobState.RETRYABLE, clock.wall_us() + round(seconds * SECOND))
    clock.advance(delay)
    assert queue.lease_next() is not None


def test_a_run_that_is_not_retryable_is_dead_at_once(queue: Queue, clock: FakeClock, lease: Lease) -> None:
    """Dead when not retryable, whatever attempts are left (V7)."""
    lease.fail("no such file", retryable=False)
    job = queue.get(lease.job_id)
    assert (job.state, job.last_error, job.finished_at) == (JobState.DEAD, "no such file", clock.wall_us())
    assert [event.transition for event in job.events[-2:]] == [Transition.FAILED, Transition.DEAD]


@pytest.mark.parametrize("own", [1, None])
def test_the_last_attempt_that_fails_is_the_end(queue: Queue, own: int | None) -> None:
    """Dead when attempts ≥ max, the job's own before the kind's (V7, §2)."""
    queue.set("max_attempts", 2 if own else 1, kind="work")
    job_id = queue.enqueue("work", max_attempts=own).job_id
    queue.lease_many(1)[0].fail("boom", delay=0)
    assert queue.get(job_id).state is JobState.DEAD


def test_a_long_error_is_kept_up_to_8_kib(queue: Queue, lease: Lease) -> None:
    """`last_error` is text up to 8 KiB, cut at a character; its event is shorter (§2, V7)."""
    lease.fail("é" * 10_000)
    job = queue.get(lease.job_id)
    assert job.last_error == "é" * 4096
    assert len(job.events[-1].detail.encode()) <= 256


# --- V8


def test_a_released_job_is_as_before_but_for_its_generation(queue: Queue, lease: Lease) -> None:
    """Leased → pending, attempt given back, generation kept, ready at once (V8)."""
    lease.release()
    job = queue.get(lease.job_id)
    assert (job.state, job.attempts, job.reaps, job.lease_generation) == (JobState.PENDING, 0, 0, 1)
    assert (job.not_before, job.worker_id, job.last_error) == (None, None, None)
    assert transitions(queue, lease) == ["enqueued", "leased", "released"]
    (again,) = queue.lease_many(1)
    assert (again.attempts, again.lease_generation) == (1, 2)


def test_a_job_released_with_a_delay_is_scheduled(queue: Queue, clock: FakeClock, lease: Lease) -> None:
    """Leased → scheduled: a snooze (V8)."""
    lease.release(delay=timedelta(minutes=1))
    job = queue.get(lease.job_id)
    assert (job.state, job.attempts, job.not_before) == (JobState.SCHEDULED, 0, clock.wall_us() + 60 * SECOND)


def test_a_job_may_be_released_without_end(queue: Queue) -> None:
    """A release never uses up the attempts (V8)."""
    job_id = queue.enqueue("work", max_attempts=1).job_id
    for _ in range(10):
        queue.lease_many(1)[0].release()
    assert (queue.get(job_id).state, queue.get(job_id).attempts) == (JobState.PENDING, 0)


@pytest.mark.parametrize("delay", [None, 60])
def test_a_job_released_too_late_to_start_again_is_dead(queue: Queue, clock: FakeClock, delay: float | None) -> None:
    """Leased → dead when past `expires_at`, and it says so (V8, V11)."""
    job_id = queue.enqueue("work", expires=30).job_id
    (lease,) = queue.lease_many(1)
    clock.advance(31)
    lease.release(delay)
    job = queue.get(job_id)
    assert (job.state, job.last_error, job.finished_at) == (JobState.DEAD, "expired", clock.wall_us())
