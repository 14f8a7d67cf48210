"""Enqueue: what a new job is, what a repeated id means, and that a batch is all or nothing (V1, G2)."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

import litequeue
from litequeue import SYSTEM, DuplicateJob, Enqueued, JobState, NewJob, PayloadError, Transition

if TYPE_CHECKING:
    from litequeue import Queue
    from litequeue.testing import FakeClock
    from tests.conftest import JobIn, MakeQueue

SECOND = 1_000_000
STANDING = (JobState.PENDING, JobState.LEASED, JobState.RETRYABLE, JobState.SCHEDULED, JobState.COMPLETED)


def test_a_new_job_is_pending_with_nothing_counted_and_one_event(queue: Queue, clock: FakeClock) -> None:
    """One row, attempts 0, generation 0, one `enqueued` event; the record holds what was given (V1, §2)."""
    answer = queue.enqueue("mail:send", {"to": "a@b.c"})
    job = queue.get(answer.job_id)
    assert answer.created
    assert (job.state, job.kind, job.payload) == (JobState.PENDING, "mail:send", {"to": "a@b.c"})
    assert (job.scope, job.priority, job.created_at) == ("default", 100, clock.wall_us())
    assert (job.attempts, job.reaps, job.lease_generation, job.max_attempts) == (0, 0, 0, None)
    assert (job.worker_id, job.holder, job.leased_at, job.lease_deadline, job.last_beat_at) == (None,) * 5
    assert (job.not_before, job.expires_at, job.finished_at, job.idempotency_key) == (None,) * 4
    assert (job.result, job.last_error, job.continuation, job.progress, job.note) == (None,) * 5
    assert job.events == [(clock.wall_us(), Transition.ENQUEUED, "")]


def test_a_generated_id_is_a_uuid_of_version_7_and_rises(queue: Queue) -> None:
    """Ids that the queue makes are UUIDv7, in the order of the jobs (§2)."""
    ids = [result.job_id for result in queue.enqueue_many(NewJob("work") for _ in range(50))]
    assert {job_id.version for job_id in ids} == {7}
    assert ids == sorted(ids)
    assert len(set(ids)) == 50


@pytest.mark.parametrize("as_text", [False, True])
def test_a_given_id_is_kept(queue: Queue, *, as_text: bool) -> None:
    """The caller may give the id, as a UUID or as text (V1, §2)."""
    given = uuid4()
    answer = queue.enqueue("work", job_id=str(given) if as_text else given)
    assert answer == Enqueued(given, created=True)
    assert queue.get(given).job_id == given


@pytest.mark.parametrize(
    "payload",
    [
        None,
        True,
        0,
        -(2**63),
        2**64 - 1,
        1.5,
        float("inf"),
        "",
        "naïve ☃ 🎉 \x00 \x7f",
        b"",
        bytes(range(256)),
        [],
        {},
        [1, [2, {"three": [None, False]}]],
        {1: "whole number", b"k": "bytes", None: "nothing", "text": 1.0},
        {(1, "a"): "tuple as key"},
        datetime(2025, 6, 15, 12, 0, 0, 123457, tzinfo=UTC),
        datetime(1905, 6, 15, 12, 0, 0, 999999, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        {"at": [datetime(2025, 3, 30, 2, 30, tzinfo=timezone(timedelta(hours=5, minutes=45)))]},
    ],
    ids=repr,
)
def test_a_payload_comes_back_as_it_went_in(queue: Queue, payload: object) -> None:
    """Any msgpack value, and aware datetimes at the same moment, travel unchanged to the record and the lease (§2)."""
    job_id = queue.enqueue("work", payload).job_id
    assert queue.get(job_id).payload == payload
    (lease,) = queue.lease_many(1)
    assert lease.payload == payload


def test_a_tuple_in_a_payload_returns_as_a_list(queue: Queue) -> None:
    """Tuples return as lists (§2)."""
    job_id = queue.enqueue("work", {"pair": (1, (2, 3))}).job_id
    assert queue.get(job_id).payload == {"pair": [1, [2, 3]]}


@pytest.mark.parametrize("delay", [1.5, timedelta(seconds=1, milliseconds=500)])
def test_a_delayed_job_is_scheduled(queue: Queue, clock: FakeClock, delay: float | timedelta) -> None:
    """`delay`, in seconds or as a timedelta, gates the first run (V1)."""
    job = queue.get(queue.enqueue("work", delay=delay).job_id)
    assert (job.state, job.not_before) == (JobState.SCHEDULED, clock.wall_us() + 1_500_000)
    assert queue.lease_next() is None
    clock.advance(1.5)
    assert queue.lease_next() is not None


def test_a_job_waits_for_its_date_in_any_time_zone(queue: Queue, clock: FakeClock) -> None:
    """`run_at` is a moment, whatever zone it is written in (V1)."""
    moment = datetime.fromtimestamp(clock.wall_us() / 1e6 + 90, tz=timezone(timedelta(hours=-7)))
    job = queue.get(queue.enqueue("work", run_at=moment).job_id)
    assert (job.state, job.not_before) == (JobState.SCHEDULED, clock.wall_us() + 90 * SECOND)


def test_a_job_expires_at_its_date_whenever_it_is_enqueued(queue: Queue, clock: FakeClock) -> None:
    """`expires` may be a moment: to the µs, also for a kept trigger; one that has passed ends the job (V1, V2)."""
    by_us = clock.wall_us() + 90 * SECOND + 1
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=by_us)
    clock.advance(1)
    first = queue.enqueue("work", expires=moment, idempotency_key="k").job_id
    assert queue.get(first).expires_at == by_us
    (lease,) = queue.lease_many(1)
    queue.enqueue("work", expires=moment, idempotency_key="k", on_conflict="reset")
    clock.advance(1)
    lease.complete()
    (again,) = queue.list(JobState.PENDING)
    assert again.expires_at == by_us
    late = queue.enqueue("work", expires=moment - timedelta(days=1)).job_id
    queue.expire_overdue()
    assert queue.get(late).last_error == "expired"


@pytest.mark.parametrize(
    ("delay", "state", "gate"), [(30, JobState.SCHEDULED, 30 * SECOND), (0, JobState.PENDING, None)]
)
def test_a_delay_wins_over_a_date(
    queue: Queue, clock: FakeClock, delay: float, state: JobState, gate: int | None
) -> None:
    """`delay` wins over `run_at`, also when it is 0 (V1)."""
    later = datetime.fromtimestamp(clock.wall_us() / 1e6 + 3600, tz=UTC)
    job = queue.get(queue.enqueue("work", delay=delay, run_at=later).job_id)
    assert (job.state, job.not_before) == (state, None if gate is None else clock.wall_us() + gate)


def test_a_date_in_the_past_is_now(queue: Queue) -> None:
    """A job whose date has passed is ready at once (V1)."""
    job = queue.get(queue.enqueue("work", run_at=datetime(2001, 1, 1, tzinfo=UTC)).job_id)
    assert (job.state, job.not_before) == (JobState.PENDING, None)


def test_what_is_given_is_stamped_on_the_job(queue: Queue, clock: FakeClock) -> None:
    """Scope, priority, relative expiry, attempts and key are the caller's (V1, §2)."""
    job_id = queue.enqueue(
        "work", scope="tenant-7", priority=0, expires=timedelta(minutes=1), max_attempts=3, idempotency_key="k"
    ).job_id
    job = queue.get(job_id)
    assert (job.scope, job.priority, job.max_attempts, job.idempotency_key) == ("tenant-7", 0, 3, "k")
    assert job.expires_at == clock.wall_us() + 60 * SECOND


def test_the_handles_scope_is_meant_when_none_is_given(make_queue: MakeQueue) -> None:
    """`scope=None` is the handle's own, `SYSTEM` the empty one, which no text names (§2, §9)."""
    tenant = make_queue(scope="tenant")
    own = tenant.enqueue("work").job_id
    system = tenant.enqueue("work", scope=SYSTEM).job_id
    assert tenant.get(own).scope == "tenant"
    assert tenant.get(system).scope is SYSTEM
    assert [lease.job_id for lease in make_queue(scope=SYSTEM).lease_many(9)] == [system]


@pytest.mark.parametrize("state", STANDING)
def test_the_same_id_again_is_the_same_job(queue: Queue, clock: FakeClock, job_in: JobIn, state: JobState) -> None:
    """While it is active or completed, the job stays exactly as it is (V1)."""
    job_id = job_in(state)
    before = queue.get(job_id)
    clock.advance(1)
    answer = queue.enqueue("work", "second", job_id=job_id, priority=1, delay=5, max_attempts=9, expires=7)
    assert answer == Enqueued(job_id, created=False)
    after = queue.get(job_id)
    assert (after.state, after.payload, after.events) == (before.state, before.payload, before.events)
    assert after == before
    assert queue.stats().total == 1


@pytest.mark.parametrize("state", [JobState.DEAD, JobState.CANCELLED])
def test_the_same_id_after_death_or_cancel_is_queued_anew(
    queue: Queue, clock: FakeClock, job_in: JobIn, state: JobState
) -> None:
    """The same row: new payload, priority, times, `created_at`; counts at 0; generation and log go on (V1, G1)."""
    job_id = job_in(state)
    before = queue.get(job_id)
    clock.advance(1)
    answer = queue.enqueue("work", "second", job_id=job_id, priority=7, expires=60, max_attempts=2)
    job = queue.get(job_id)
    assert answer == Enqueued(job_id, created=True)
    assert (job.state, job.payload, job.priority, job.max_attempts) == (JobState.PENDING, "second", 7, 2)
    assert (job.created_at, job.expires_at) == (clock.wall_us(), clock.wall_us() + 60 * SECOND)
    assert (job.attempts, job.reaps, job.finished_at) == (0, 0, None)
    assert job.lease_generation == before.lease_generation
    assert job.events[: len(before.events)] == before.events
    assert job.events[-1][:2] == (clock.wall_us(), Transition.ENQUEUED)
    assert queue.stats().total == 1
    (lease,) = queue.lease_many(1)
    assert (lease.job_id, lease.payload, lease.attempts) == (job_id, "second", 1)
    assert lease.lease_generation == before.lease_generation + 1


def test_a_job_queued_anew_goes_to_the_end_of_the_line(queue: Queue, job_in: JobIn) -> None:
    """Its `created_at` is new, so it stands behind those that were there (V1, G4)."""
    again = job_in(JobState.DEAD)
    queue.enqueue("other")
    queue.enqueue("work", job_id=again)
    assert [lease.kind for lease in queue.lease_many(9)] == ["other", "work"]


def test_a_job_queued_anew_may_be_delayed(queue: Queue, clock: FakeClock, job_in: JobIn) -> None:
    """The new times count, also a gate (V1)."""
    job_id = job_in(JobState.CANCELLED)
    queue.enqueue("work", job_id=job_id, delay=30)
    job = queue.get(job_id)
    assert (job.state, job.not_before) == (JobState.SCHEDULED, clock.wall_us() + 30 * SECOND)


@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize(("kind", "scope"), [("other", None), ("work", "elsewhere"), ("work", SYSTEM)])
def test_the_same_id_with_another_scope_or_kind_is_refused(
    queue: Queue, job_in: JobIn, state: JobState, kind: str, scope: str | None
) -> None:
    """An id belongs to its scope and kind in every state; the job stays as it is (V1)."""
    job_id = job_in(state)
    before = queue.get(job_id)
    with pytest.raises(DuplicateJob) as refusal:
        queue.enqueue(kind, scope=scope, job_id=job_id)
    assert refusal.value.job_id == job_id
    assert queue.get(job_id) == before
    assert queue.stats(litequeue.ANY).total == (2 if state is JobState.WAITING else 1)  # and what it waits for


def test_a_batch_answers_in_order(queue: Queue) -> None:
    """Results stand in the order of the jobs; a later job of the batch meets the earlier ones (V1, V2)."""
    given = uuid4()
    batch = [
        NewJob("a"),
        NewJob("b", job_id=given),
        NewJob("c", idempotency_key="k"),
        NewJob("b", job_id=given),
        NewJob("d"),
        NewJob("c", idempotency_key="k"),
    ]
    results = queue.enqueue_many(iter(batch))
    assert [result.created for result in results] == [True, True, True, False, True, False]
    assert (results[1].job_id, results[3].job_id, results[5].job_id) == (given, given, results[2].job_id)
    assert [lease.kind for lease in queue.lease_many(9)] == ["a", "b", "c", "d"]
    assert [queue.get(result.job_id).kind for result in results] == ["a", "b", "c", "b", "d", "c"]


def test_an_empty_batch_is_nothing(queue: Queue) -> None:
    """No jobs, no results (V1)."""
    assert queue.enqueue_many([]) == []
    assert queue.stats().total == 0


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (NewJob("work", object()), PayloadError),
        (NewJob("work", b"x" * 2_000_000), PayloadError),
        (NewJob("work", idempotency_key="taken", on_conflict="raise"), DuplicateJob),
        (NewJob("work", job_id=UUID(int=7)), DuplicateJob),
    ],
    ids=["unpackable", "too large", "key taken", "id taken"],
)
def test_one_bad_job_stores_none_of_the_batch(queue: Queue, bad: NewJob, error: type[Exception]) -> None:
    """`enqueue_many` is one transaction: all of it or nothing (V1, G11)."""
    queue.enqueue("work", idempotency_key="taken")
    queue.enqueue("other", job_id=UUID(int=7))
    with pytest.raises(error):
        queue.enqueue_many([NewJob("good"), bad, NewJob("good")])
    assert queue.list(kind="good") == []
    assert queue.stats().total == 2


def test_a_batch_is_encoded_before_the_lock_is_taken(make_queue: MakeQueue) -> None:
    """A payload that cannot be stored is refused although another handle has the write lock (V1)."""
    owner, other = make_queue(), make_queue(busy_timeout=0)
    refused = threading.Event()

    def enqueue_beside() -> None:
        with pytest.raises(PayloadError):
            other.enqueue_many([NewJob("good"), NewJob("bad", {1, 2})])
        refused.set()

    with owner.transaction():
        thread = threading.Thread(target=enqueue_beside)
        thread.start()
        thread.join()
    assert refused.is_set()


def test_what_was_enqueued_is_there_after_reopening(make_queue: MakeQueue, clock: FakeClock) -> None:
    """Once `enqueue` has returned, the job is kept (G2)."""
    first = make_queue()
    pending = first.enqueue("work", {"n": 1}, priority=3).job_id
    scheduled = first.enqueue("work", delay=60).job_id
    records = [first.get(pending), first.get(scheduled)]
    first.close()
    clock.advance(3600)
    second = make_queue()
    assert [second.get(pending), second.get(scheduled)] == records
    assert [lease.job_id for lease in second.lease_many(9)] == [pending, scheduled]


def test_the_package_fixture_gives_a_fresh_queue(litequeue_db: Queue) -> None:
    """`litequeue_db` is an empty queue on the system's clock, ready for the main cycle (issue 2, V1, V3, V6)."""
    assert litequeue_db.stats().total == 0
    job_id = litequeue_db.enqueue("mail:send", {"to": "a@b.c"}).job_id
    (lease,) = litequeue_db.lease_many(1, kinds=["mail:"])
    lease.complete({"sent": True})
    job = litequeue_db.get(job_id)
    assert (job.state, job.result) == (JobState.COMPLETED, {"sent": True})
