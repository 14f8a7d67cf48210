"""Records that cannot be read: that job alone is refused, and the others go on (§6 "a record that cannot be read", V3).

The damage is planted by a second connection of the same SQLite library, in this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import JobState, Maintenance, RecordError
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from uuid import UUID

    from litequeue import Job, Queue


@pytest.fixture
def clock() -> FakeClock:
    """Give the clock of the handle."""
    return FakeClock()


@pytest.fixture
def queue(path: Path, clock: FakeClock) -> Iterator[Queue]:
    """Give a handle on a fresh queue."""
    with litequeue.open(path, durability="normal", clock=clock) as opened:
        yield opened


@pytest.fixture
def plant(path: Path) -> Iterator[Callable[[str, UUID], None]]:
    """Give the means to change the row of a job behind the queue's back."""
    connection = apsw.Connection(str(path))

    def change(sql: str, job_id: UUID) -> None:
        connection.execute(sql, (job_id.bytes,)).fetchall()

    yield change
    connection.close()


WRONG_VERSION = "UPDATE litequeue_body SET payload = x'07c0' WHERE job_id = ?"
NO_PAYLOAD = "UPDATE litequeue_body SET payload = x'' WHERE job_id = ?"
NO_BODY = "DELETE FROM litequeue_body WHERE job_id = ?"
NOT_MSGPACK = "UPDATE litequeue_body SET payload = x'01c1' WHERE job_id = ?"
TWO_VALUES = "UPDATE litequeue_body SET payload = x'010101' WHERE job_id = ?"


def _listed(queue: Queue, job_id: UUID) -> Job:
    """Return a job as `list` shows it."""
    return next(job for job in queue.list() if job.job_id == job_id)


CAUSES = {WRONG_VERSION: "payload version 7", NO_PAYLOAD: "no payload", NO_BODY: "no payload"}


@pytest.mark.parametrize("damage", CAUSES, ids=["a wrong version byte", "an empty payload", "a missing body"])
@pytest.mark.parametrize("kinds", [None, ["work"], ["w:", "work"]])
def test_an_unreadable_job_is_dead_lettered_at_its_lease_and_the_next_one_is_taken(
    queue: Queue, plant: Callable[[str, UUID], None], damage: str, kinds: list[str] | None, clock: FakeClock
) -> None:
    """The cause is in its `last_error` and its log; it costs nobody a turn (V3)."""
    broken = [queue.enqueue("work", number).job_id for number in range(3)]
    good = queue.enqueue("work", "good").job_id
    for job_id in broken:
        plant(damage, job_id)
    clock.advance(1)
    lease = queue.lease_next(kinds)
    assert lease is not None
    assert (lease.job_id, lease.payload) == (good, "good")
    for job_id in broken:
        job = _listed(queue, job_id)
        assert (job.state, job.attempts, job.finished_at) == (JobState.DEAD, 0, clock.wall_us())
        assert CAUSES[damage] in (job.last_error or "")
        assert [event.transition.value for event in job.events] == ["enqueued", "dead"]


def test_a_batch_takes_the_readable_jobs_in_order(queue: Queue, plant: Callable[[str, UUID], None]) -> None:
    """Unreadable ones among them die; the batch is what is left (V3)."""
    made = [queue.enqueue("work", number).job_id for number in range(6)]
    for job_id in made[::2]:
        plant(WRONG_VERSION, job_id)
    assert [lease.payload for lease in queue.lease_many(6)] == [1, 3, 5]
    assert queue.stats().counts[JobState.DEAD] == 3


@pytest.mark.parametrize("damage", [WRONG_VERSION, NO_PAYLOAD, NOT_MSGPACK, TWO_VALUES])
def test_an_unreadable_payload_is_an_error_of_the_payload_alone(
    queue: Queue, plant: Callable[[str, UUID], None], damage: str
) -> None:
    """`get` and `list` show everything else of the job (§6)."""
    job_id = queue.enqueue("work", {"a": 1}, priority=3).job_id
    queue.enqueue("work", "good")
    plant(damage, job_id)
    for job in (queue.get(job_id), _listed(queue, job_id)):
        assert (job.kind, job.priority, job.state) == ("work", 3, JobState.PENDING)
        assert [event.transition.value for event in job.events] == ["enqueued"]
        with pytest.raises(RecordError) as caught:
            _ = job.payload
        assert caught.value.job_id == job_id
    assert [job.kind for job in queue.list()] == ["work", "work"]


def test_a_job_without_its_body_is_listed_and_can_be_worked_around(
    queue: Queue, plant: Callable[[str, UUID], None]
) -> None:
    """It is shown, counted, and only its payload is an error (§6)."""
    job_id = queue.enqueue("work").job_id
    plant(NO_BODY, job_id)
    (job,) = queue.list()
    assert job.job_id == job_id
    assert queue.stats().total == 1
    with pytest.raises(RecordError):
        _ = job.payload


def test_a_payload_of_known_version_that_does_not_decode_is_the_holders_to_fail(
    queue: Queue, plant: Callable[[str, UUID], None]
) -> None:
    """Only the version byte is looked at in a lease; the rest is `RecordError` when it is asked for (V3)."""
    job_id = queue.enqueue("work").job_id
    plant(NOT_MSGPACK, job_id)
    lease = queue.lease_next()
    assert lease is not None
    with pytest.raises(RecordError):
        _ = lease.payload
    lease.fail("unreadable", retryable=False)
    assert queue.get(job_id).state is JobState.DEAD


def test_an_unreadable_result_is_an_error_of_the_result_alone(queue: Queue, plant: Callable[[str, UUID], None]) -> None:
    """The payload still reads (§6)."""
    job_id = queue.enqueue("work", "good").job_id
    lease = queue.lease_next()
    assert lease is not None
    lease.complete("result")
    plant("UPDATE litequeue_outcome SET result = x'09' WHERE job_id = ?", job_id)
    job = queue.get(job_id)
    assert job.payload == "good"
    with pytest.raises(RecordError):
        _ = job.result


EVENTS = {
    "short garbage": "x'c1c1'",
    "nothing": "x''",
    "a long run of garbage": "zeroblob(5000) || x'c1'",
    "a long run of numbers": "CAST(replace(hex(zeroblob(2500)), '0', char(7)) AS BLOB)",
    "a long run of garbage at its end": "CAST(events || replace(hex(zeroblob(2500)), '0', char(5)) AS BLOB)",
}


@pytest.mark.parametrize("events", EVENTS)
def test_a_job_whose_log_cannot_be_read_does_not_stop_the_queue(
    queue: Queue, plant: Callable[[str, UUID], None], clock: FakeClock, events: str
) -> None:
    """Neither lease nor reap, promote, complete, cancel or maintenance is stopped by it, for any job (§6, G5)."""
    made = [queue.enqueue("work", number).job_id for number in range(6)]
    held = queue.lease_next()
    assert held is not None
    for job_id in made[:4]:
        plant(f"UPDATE litequeue_job SET events = CAST({EVENTS[events]} AS BLOB) WHERE job_id = ?", job_id)
    clock.advance(400)  # the lease has lapsed
    assert Maintenance(queue).run_once().reaped == 1
    clock.advance(4000)
    queue.cancel(made[3])
    done: set[object] = set()
    while (lease := queue.lease_next()) is not None:
        done.add(lease.payload)
        lease.complete()
    assert done == {0, 1, 2, 4, 5}


@pytest.mark.parametrize("events", EVENTS)
def test_an_unreadable_log_is_an_error_of_the_log_alone(
    queue: Queue, plant: Callable[[str, UUID], None], events: str
) -> None:
    """`get` shows the job; only `events` is `RecordError`, or what could be read of it (§6)."""
    job_id = queue.enqueue("work", "good").job_id
    plant(f"UPDATE litequeue_job SET events = CAST({EVENTS[events]} AS BLOB) WHERE job_id = ?", job_id)
    job = queue.get(job_id)
    assert job.payload == "good"
    if events != "nothing":
        with pytest.raises(RecordError) as caught:
            _ = job.events
        assert caught.value.job_id == job_id


def test_an_unreadable_log_of_a_distant_back_off_does_not_stop_maintenance(
    queue: Queue, plant: Callable[[str, UUID], None], clock: FakeClock
) -> None:
    """After a step of the wall clock back, maintenance pulls back-offs in, past the one it cannot read (§5, §6)."""
    broken, good = queue.enqueue("work").job_id, queue.enqueue("work").job_id
    for lease in queue.lease_many(2):
        lease.fail("boom")
    plant("UPDATE litequeue_job SET events = x'c1c1' WHERE job_id = ?", broken)
    clock.step_wall(-86_400)
    Maintenance(queue).run_once()
    assert (queue.get(good).not_before or 0) <= clock.wall_us() + 3_600_000_000


def test_an_unreadable_job_can_be_cancelled_retried_and_pruned(
    queue: Queue, plant: Callable[[str, UUID], None], clock: FakeClock
) -> None:
    """An operator's verbs by id work on it as on any other one (V9, V10, V11)."""
    job_id = queue.enqueue("work").job_id
    plant(WRONG_VERSION, job_id)
    assert queue.lease_next() is None
    assert queue.get(job_id).state is JobState.DEAD
    queue.retry(job_id)
    queue.cancel(job_id)
    clock.advance(90_000)
    queue.prune()
    assert queue.list() == []
