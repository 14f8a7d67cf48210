"""What an operator changes of a job that waits: its priority and when it is due, alone and in bulk (V16)."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from litequeue import InvalidTransition, JobNotFound, JobState, Maintenance, NewJob, Transition, UsageError
from litequeue.sqlite.examining import problems

if TYPE_CHECKING:
    from uuid import UUID

    from litequeue import Queue
    from litequeue.testing import FakeClock
    from tests.conftest import JobIn, MakeQueue

SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GATED = (JobState.RETRYABLE, JobState.SCHEDULED)
UNCHAINED = (JobState.PENDING, *GATED)
WAITING = (*UNCHAINED, JobState.WAITING)
OTHERS = (JobState.LEASED, JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED)


def leased(queue: Queue) -> list[object]:
    """Lease everything that is ready; return the payloads in their order."""
    return [lease.payload for lease in queue.lease_many(100)]


@pytest.mark.parametrize("state", WAITING)
def test_a_waiting_job_gets_another_priority_and_keeps_everything_else(
    queue: Queue, clock: FakeClock, job_in: JobIn, state: JobState
) -> None:
    """State, place in time, gate, counts, payload, key and log: all of it stays but the priority (V16)."""
    job_id = job_in(state, payload={"n": 1}, key="k")
    before = queue.get(job_id)
    clock.advance(1)
    queue.edit(job_id, priority=7)
    job = queue.get(job_id)
    assert (job.priority, job.state, job.not_before) == (7, state, before.not_before)
    for name in ("created_at", "payload", "attempts", "reaps", "lease_generation", "idempotency_key", "last_error"):
        assert getattr(job, name) == getattr(before, name), name
    assert job.events == [*before.events, (clock.wall_us(), Transition.EDITED, "priority 7")]
    assert queue.list() == [job]


def test_a_new_priority_is_a_new_place_in_the_line(queue: Queue, clock: FakeClock) -> None:
    """Ahead of what is less urgent; among its own it stands where its enqueueing puts it (V16, G4)."""
    ids = []
    for number in range(6):
        ids.append(queue.enqueue("work", number, priority=100 if number < 3 else 50).job_id)
        clock.advance(1)
    queue.edit(ids[1], priority=50)
    queue.edit(ids[4], priority=200)
    queue.edit(ids[2], priority=0)
    queue.enqueue("work", 6, priority=50)
    assert leased(queue) == [2, 1, 3, 5, 6, 0, 4]


def test_what_is_enqueued_later_stays_behind_a_job_that_has_moved(queue: Queue, clock: FakeClock) -> None:
    """The wall clock steps back after it was enqueued: new jobs of its new priority still come after it (G4, V16)."""
    job_id = queue.enqueue("work", "moved").job_id
    queue.edit(job_id, priority=50)
    clock.step_wall(-3600)
    queue.enqueue("work", "later", priority=50)
    assert leased(queue) == ["moved", "later"]


@pytest.mark.parametrize("state", UNCHAINED)
@pytest.mark.parametrize("how", ["delay", "run_at"])
def test_a_waiting_job_gets_another_gate(
    queue: Queue, clock: FakeClock, job_in: JobIn, state: JobState, how: str
) -> None:
    """It is scheduled for then, whatever it waited for, and ready when that comes, not before (V16)."""
    job_id = job_in(state)
    before = queue.get(job_id)
    due = clock.wall_us() + 90 * SECOND
    if how == "delay":
        queue.edit(job_id, delay=timedelta(seconds=90))
    else:
        queue.edit(job_id, run_at=EPOCH + timedelta(microseconds=due))
    job = queue.get(job_id)
    assert (job.state, job.not_before, job.attempts) == (JobState.SCHEDULED, due, before.attempts)
    assert job.events[-1][1:] == (Transition.EDITED, "in 90 s")
    clock.advance(89.999)
    assert queue.lease_next() is None
    clock.advance(0.001)
    assert [lease.job_id for lease in queue.lease_many(5)] == [job_id]


def test_a_job_that_waits_for_others_is_due_when_they_have_ended_and_its_time_has_come(
    queue: Queue, clock: FakeClock
) -> None:
    """It goes on waiting; the new delay counts from the edit, whether its parent ends before or after (V16)."""
    parents = [queue.enqueue("parent", n).job_id for n in range(2)]
    children = [queue.enqueue("child", n, after=[parents[n]], delay=3600).job_id for n in range(2)]
    assert queue.edit_many(children, delay=60, priority=7) == []
    assert [(job.state, job.not_before, job.priority) for job in map(queue.get, children)] == [
        (JobState.WAITING, None, 7)
    ] * 2
    assert [queue.get(child).events[-1].detail for child in children] == ["priority 7, in 60 s"] * 2
    first, second = queue.lease_many(2, ["parent"])
    first.complete()
    assert queue.get(children[0]).state is JobState.SCHEDULED
    clock.advance(60)
    second.complete()
    assert [lease.payload for lease in queue.lease_many(5, ["child"])] == [0, 1]
    assert problems(queue.path, clock) == []


@pytest.mark.parametrize("state", UNCHAINED)
def test_a_gate_that_is_past_makes_it_ready(queue: Queue, job_in: JobIn, state: JobState) -> None:
    """A delay of nothing, or a date that has gone by: pending now, its attempts as they were (V16)."""
    job_id = job_in(state)
    before = queue.get(job_id)
    queue.edit(job_id, delay=0)
    assert (queue.get(job_id).state, queue.get(job_id).not_before) == (JobState.PENDING, None)
    queue.edit(job_id, delay=60)
    queue.edit(job_id, run_at=EPOCH, priority=3)
    job = queue.get(job_id)
    assert (job.state, job.not_before, job.attempts, job.priority) == (JobState.PENDING, None, before.attempts, 3)
    assert [event.detail for event in job.events[-3:]] == ["now", "in 60 s", "priority 3, now"]


@pytest.mark.parametrize("state", OTHERS)
def test_a_job_that_runs_or_has_ended_is_not_edited(queue: Queue, job_in: JobIn, state: JobState) -> None:
    """`InvalidTransition` with its state, and it stays as it is: the holder's key is not moved under it (V16, G1)."""
    job_id = job_in(state)
    before = queue.get(job_id)
    with pytest.raises(InvalidTransition, match=f"cannot edit job {job_id}: it is {state}") as refusal:
        queue.edit(job_id, priority=1, delay=0)
    assert refusal.value.job_id == job_id
    assert queue.get(job_id) == before


def test_the_holder_of_a_job_that_was_edited_before_its_lease_completes_it(queue: Queue) -> None:
    """Its lease has the key of the new place (G1, G7)."""
    job_id = queue.enqueue("work", priority=9).job_id
    queue.edit(job_id, priority=1)
    (lease,) = queue.lease_many(1)
    assert lease.priority == 1
    lease.complete("done")
    assert queue.get(job_id).result == "done"
    queue.retry(job_id)
    assert queue.get(job_id).priority == 1


def test_a_waiting_process_hears_of_a_job_that_an_edit_makes_ready(queue: Queue, make_queue: MakeQueue) -> None:
    """An edit rings as an enqueue does (G5)."""
    job_id = queue.enqueue("work", delay=3600).job_id
    other = make_queue()
    assert not other.wait(timeout=0)
    queue.edit(job_id, delay=0)
    assert other.wait(timeout=0)


def test_a_pause_that_was_edited_is_pulled_in_as_before(queue: Queue, clock: FakeClock) -> None:
    """A back-off keeps its length when the clock has stepped back, though an edit has logged a later word (§5, V16)."""
    queue.set("backoff_cap", 20)
    job_id = queue.enqueue("work").job_id
    (lease,) = queue.lease_many(1)
    lease.fail("boom", delay=100)
    clock.step_wall(-86_400)
    queue.edit(job_id, priority=7)
    assert queue.get(job_id).not_before == clock.wall_us() + 100 * SECOND
    Maintenance(queue).run_once()
    assert queue.get(job_id).not_before == clock.wall_us() + 100 * SECOND


def test_a_date_is_not_pulled_in(queue: Queue, clock: FakeClock) -> None:
    """What an operator has set for a failed job is a date and no pause: a step of the clock does not move it (§5)."""
    job_id = queue.enqueue("work").job_id
    queue.lease_many(1)[0].fail("boom")
    queue.edit(job_id, delay=86_400)
    due = queue.get(job_id).not_before
    clock.step_wall(-3600)
    Maintenance(queue).run_once()
    assert queue.get(job_id).not_before == due


def test_an_edit_keeps_when_the_job_must_have_started(queue: Queue, clock: FakeClock) -> None:
    """`expires_at` stays: a job that is put off beyond it dies as it would have (V16, V11)."""
    job_id = queue.enqueue("work", expires=30).job_id
    queue.edit(job_id, delay=60)
    clock.advance(31)
    assert queue.lease_next() is None
    job = queue.get(job_id)
    assert (job.state, job.last_error) == (JobState.DEAD, "expired")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "nothing to change"),
        ({"priority": 256}, "priority must be a whole number from 0 to 255"),
        ({"priority": -1}, "priority must be a whole number from 0 to 255"),
        ({"priority": True}, "priority must be a whole number from 0 to 255"),
        ({"delay": -1}, "delay must be seconds or a timedelta"),
        ({"delay": "5m"}, "delay must be seconds or a timedelta"),
        ({"run_at": datetime(2031, 1, 1)}, "run_at must be an aware datetime"),  # noqa: DTZ001 - that is the point
    ],
)
def test_what_is_out_of_bounds_changes_nothing(queue: Queue, arguments: dict[str, object], said: str) -> None:
    """One `UsageError` that names the argument, and the job stays as it is (§6)."""
    job_id = queue.enqueue("work").job_id
    before = queue.get(job_id)
    with pytest.raises(UsageError, match=said):
        queue.edit(job_id, **arguments)  # type: ignore[arg-type]
    assert queue.get(job_id) == before


def test_in_bulk_each_job_is_answered_for_itself(queue: Queue, job_in: JobIn) -> None:
    """A refusal stops none of the others; a roll back leaves no trace (V16, V14)."""
    jobs: dict[JobState, UUID] = {state: job_in(state, kind=state.name) for state in (*WAITING, *OTHERS)}
    unknown = uuid4()
    with suppress(RuntimeError), queue.transaction() as tx:
        tx.edit_many(jobs.values(), priority=1)
        raise RuntimeError
    assert {job.priority for job in queue.list()} == {100}
    refusals = queue.edit_many([*jobs.values(), unknown], priority=1)
    assert [(type(one), one.job_id) for one in refusals] == [
        *((InvalidTransition, jobs[state]) for state in OTHERS),
        (JobNotFound, unknown),
    ]
    assert [queue.get(jobs[state]).priority for state in WAITING] == [1] * 4
    assert queue.edit_many([], priority=1) == []
    assert queue.edit_many([jobs[JobState.PENDING]] * 2, priority=2) == []


def test_edited_jobs_are_sound(queue: Queue, clock: FakeClock, job_in: JobIn) -> None:
    """Row, body and log agree: an examination of the file finds nothing to say (V16, G7)."""
    for number, state in enumerate(WAITING):
        queue.edit(job_in(state, kind=f"k{number}"), priority=number, delay=None if number else 30)
    queue.enqueue_many(NewJob("work", b"x" * 10_000, priority=n) for n in range(3))
    for job in queue.list(kind="work"):
        queue.edit(job.job_id, priority=9)
    assert [job.payload for job in queue.list(kind="work")] == [b"x" * 10_000] * 3
    assert problems(queue.path, clock) == []
