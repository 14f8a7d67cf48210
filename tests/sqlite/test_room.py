"""No room for more jobs: `max_bytes` and the free-space reserve stop enqueue, and only enqueue (§6 "QueueFull")."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import apsw
import pytest

import litequeue
from litequeue import DuplicateJob, Enqueued, JobState, Maintenance, NewJob, QueueFull
from litequeue.sqlite import filesystem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litequeue import Queue

RESERVE = filesystem.FREE_SPACE_RESERVE_BYTES
NAME = UUID("0197d9a0-0000-7000-8000-000000000001")


class Space:
    """The free space that the package is told of."""

    def __init__(self) -> None:
        self.free: int | None = 2**40

    def __call__(self, _folder: str) -> int | None:
        """Answer in the place of the operating system."""
        return self.free


@pytest.fixture
def space(monkeypatch: pytest.MonkeyPatch) -> Space:
    """Give what decides how much is free; it is asked anew at each enqueue."""
    answered = Space()
    monkeypatch.setattr(filesystem, "free_bytes", answered)
    monkeypatch.setattr(filesystem, "_ASK_EVERY_S", -1.0)
    return answered


@pytest.fixture
def queue(path: Path) -> Iterator[Queue]:
    """Give a handle on a fresh queue."""
    with litequeue.open(path, durability="normal") as opened:
        yield opened


def _fill(queue: Queue) -> int:
    """Enqueue until the queue is full; return how many were stored."""
    for stored in range(10_000):
        try:
            queue.enqueue("work", "x" * 1000)
        except QueueFull:
            return stored
    raise AssertionError("it is never full")


def test_max_bytes_stops_enqueue_and_nothing_else(queue: Queue) -> None:
    """At `max_bytes` enqueue is `QueueFull`; lease, complete, fail, retry and cancel go on (§6, §5)."""
    queue.set("max_bytes", 220_000)
    stored = _fill(queue)
    assert 50 < stored < 200
    assert queue.stats().total == stored
    assert queue.stats().file_bytes < 220_000 + 10 * 2048, "what is asked for is counted, not the pages that it takes"
    first, second, third, fourth = queue.lease_many(4)
    first.extend()
    first.checkpoint(b"x" * 100)
    first.complete("done")
    second.fail("boom")
    third.release()
    fourth.fail("never", retryable=False)
    queue.cancel(second.job_id)
    queue.retry(fourth.job_id)
    queue.set("lease_ttl", 60)
    with pytest.raises(QueueFull, match="max_bytes"):
        queue.enqueue("work", "x" * 1000)


def test_what_was_pruned_makes_room_again(queue: Queue) -> None:
    """Pages that deleted jobs have left do not count (§5 "max_bytes")."""
    queue.set("max_bytes", 200_000)
    queue.set("completed_retention", 0)
    stored = _fill(queue)
    queue.complete_many(queue.lease_many(stored))
    assert queue.stats().total == 0
    assert _fill(queue) > stored * 0.8


def test_a_batch_that_would_pass_max_bytes_is_refused_as_a_whole(queue: Queue) -> None:
    """Nothing of it is stored, also inside a transaction, which goes on (§6, G11)."""
    queue.set("max_bytes", 200_000)
    batch = [NewJob("work", "x" * 50_000) for _ in range(5)]
    with pytest.raises(QueueFull):
        queue.enqueue_many(batch)
    assert queue.stats().total == 0
    with queue.transaction() as tx:
        tx.enqueue("kept")
        with pytest.raises(QueueFull):
            tx.enqueue_many(batch)
    assert [job.kind for job in queue.list()] == ["kept"]


def test_the_reserve_stops_enqueue_and_nothing_else(queue: Queue, space: Space) -> None:
    """With less free than the reserve, enqueue is `QueueFull`; acknowledgements still have room (§6)."""
    queue.enqueue_many(NewJob("work") for _ in range(3))
    space.free = RESERVE
    with pytest.raises(QueueFull, match="free on the disk"):
        queue.enqueue("refused")
    with pytest.raises(QueueFull):
        queue.enqueue_many([NewJob("refused")])
    first, second, third = queue.lease_many(3)
    first.complete({"answer": 42})
    second.fail("boom")
    third.checkpoint(b"half")
    third.release()
    queue.retry(first.job_id)
    queue.set("max_attempts", 3)
    assert queue.stats().counts[JobState.PENDING] == 2
    space.free = RESERVE + 200_000  # a payload wants room twice: in the log, and in the file
    queue.enqueue("accepted", "x" * 50_000)
    with pytest.raises(QueueFull):
        queue.enqueue("too large for what is left", "x" * 150_000)


def test_a_batch_without_room_is_refused_before_it_is_written(queue: Queue, space: Space) -> None:
    """Written first and then refused, it would have filled the disk with its log (§6 "QueueFull")."""
    queue.enqueue("first")
    log = Path(f"{queue.path}-wal")
    before = log.stat().st_size
    space.free = RESERVE + 4_000_000
    with pytest.raises(QueueFull):
        queue.enqueue_many(NewJob("refused", "x" * 900_000) for _ in range(6))
    assert log.stat().st_size == before


def test_a_repetition_is_answered_without_any_room(queue: Queue, space: Space) -> None:
    """Nothing is stored for a job that is there already (V1, V2, §6)."""
    first = queue.enqueue("work", idempotency_key="k")
    space.free = 0
    assert queue.enqueue("work", idempotency_key="k") == Enqueued(first.job_id, created=False)
    with pytest.raises(QueueFull):
        queue.enqueue("work", idempotency_key="another")


def test_maintenance_gives_room_back_to_a_disk_that_is_short_of_it(queue: Queue, space: Space) -> None:
    """A file that has grown up to the reserve would refuse jobs for ever, however few it holds (§6, V11)."""
    queue.set("completed_retention", 0)
    queue.enqueue_many(NewJob("work", "x" * 20_000) for _ in range(100))
    queue.complete_many(queue.lease_many(100))
    queue.checkpoint_wal()
    unused = queue.stats()
    assert unused.free_bytes > 1_000_000, "with room on the disk the pages are kept for reuse"
    assert queue.vacuum() == 0
    assert queue.stats().free_bytes == unused.free_bytes
    space.free = RESERVE
    assert queue.vacuum() >= unused.free_bytes
    assert queue.checkpoint_wal() == 0
    assert queue.stats().free_bytes == 0
    assert Path(queue.path).stat().st_size < unused.file_bytes - 1_000_000
    assert Path(f"{queue.path}-wal").stat().st_size == 0, "the log's room goes back as well"


def test_room_that_maintenance_has_made_is_used_at_once(
    queue: Queue, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next job is not refused for what was free before, however short the pass was (§6 `QueueFull`)."""
    monkeypatch.setattr(filesystem, "_ASK_EVERY_S", 3600.0)
    space.free = RESERVE
    with pytest.raises(QueueFull):
        queue.enqueue("refused")
    space.free = 2 * RESERVE
    Maintenance(queue).run_once()
    queue.enqueue("accepted")


def test_a_long_transaction_cannot_take_the_reserve(queue: Queue, space: Space) -> None:
    """What it has enqueued is not on the disk yet, so that the disk still says that there is room (§6, V14)."""
    space.free = RESERVE + 230_000
    with queue.transaction() as tx:
        tx.enqueue("accepted", "x" * 60_000)
        with pytest.raises(QueueFull):
            tx.enqueue("refused", "x" * 60_000)


def test_what_a_long_log_owes_to_the_file_is_not_free(queue: Queue, space: Space) -> None:
    """A backup or another reader that stays keeps it from being copied back; that needs room later (§6 `QueueFull`).

    Seen: the copy filled the disk, and from then on no acknowledgement and no maintenance had room.
    """
    with contextlib.closing(apsw.Connection(queue.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM litequeue_job").fetchall()
        queue.enqueue_many(NewJob("work", "x" * 900_000) for _ in range(14))
        space.free = RESERVE + 4_000_000
        with pytest.raises(QueueFull):
            queue.enqueue("refused")
        with litequeue.open(queue.path) as newcomer, pytest.raises(QueueFull):
            newcomer.enqueue("refused")
    for lease in queue.lease_many(5):
        lease.complete()
    assert queue.checkpoint_wal() == 0
    queue.enqueue("accepted")


def test_jobs_that_were_undone_take_no_room(queue: Queue, space: Space) -> None:
    """A verb that fails in a transaction leaves it as it was before, its room on the disk too (G11)."""
    queue.enqueue("first", job_id=NAME)
    space.free = RESERVE + 200_000
    with queue.transaction() as tx:
        for _ in range(5):
            with pytest.raises(DuplicateJob):
                tx.enqueue_many([NewJob("work", "x" * 60_000), NewJob("of another kind", job_id=NAME)])
        tx.enqueue("accepted", "x" * 60_000)


def test_a_follower_that_finds_no_room_leaves_the_lease_held(queue: Queue, space: Space) -> None:
    """`then` is an enqueue: refused, it undoes the completion too, and the lease goes on (V6, G11)."""
    queue.enqueue("work")
    lease = queue.lease_next()
    assert lease is not None
    space.free = 0
    with pytest.raises(QueueFull):
        lease.complete(then=[NewJob("next")])
    assert queue.get(lease.job_id).state is JobState.LEASED
    lease.complete()


def test_where_free_space_cannot_be_asked_for_nothing_is_refused(queue: Queue, space: Space) -> None:
    """No answer is no reason (§6)."""
    space.free = None
    queue.enqueue("work")
