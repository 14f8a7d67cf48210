"""A worker that asks an idle queue: it writes nothing, and waits for nobody (DESIGN §3, V3)."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import Completed, NewJob, QueueBusy
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litequeue import Queue


@pytest.fixture
def clock() -> FakeClock:
    """Give the clock of all handles."""
    return FakeClock()


@pytest.fixture
def holder(path: Path, clock: FakeClock) -> Iterator[Queue]:
    """Give a handle whose transactions hold the write lock while others ask."""
    with litequeue.open(path, durability="normal", clock=clock) as opened:
        yield opened


@pytest.fixture
def asker(path: Path, clock: FakeClock, holder: Queue) -> Iterator[Queue]:
    """Give the handle that asks; it would wait two seconds for a lock."""
    assert holder.path == str(path)
    with litequeue.open(path, durability="normal", busy_timeout=2.0, clock=clock) as opened:
        yield opened


FILTERS = [None, ["work"], ["w:"], ["w:", "work", "other"]]


@pytest.mark.parametrize("kinds", FILTERS)
def test_an_idle_queue_answers_none_at_once_although_the_write_lock_is_held(
    holder: Queue, asker: Queue, kinds: list[str] | None
) -> None:
    """From the second question on at the latest, a lease call on an idle queue is a read (DESIGN §3)."""
    assert asker.lease_next(kinds) is None
    with holder.transaction():
        began = time.monotonic()
        for _ in range(20):
            assert asker.lease_next(kinds) is None
            assert asker.lease_many(10, kinds) == []
        assert time.monotonic() - began < 1.0


def test_the_first_question_to_an_idle_queue_is_a_read_too(holder: Queue, asker: Queue) -> None:
    """`None` at once: a probe that only reads comes before any write transaction on an idle queue (V3, DESIGN §3)."""
    with holder.transaction():
        began = time.monotonic()
        assert asker.lease_next() is None
        assert time.monotonic() - began < 1.0


def test_an_exchange_that_found_nothing_makes_the_next_question_a_read(holder: Queue, asker: Queue) -> None:
    """Whoever has handed in its last run and got no other waits for no lock until there is work (DESIGN §3)."""
    asker.enqueue("work")
    (lease,) = asker.lease_many(1)
    assert asker.exchange([Completed(lease)], 1).leases == []
    with holder.transaction():
        began = time.monotonic()
        assert asker.exchange([], 1).leases == []
        assert asker.lease_next() is None
        assert time.monotonic() - began < 1.0


def test_an_idle_queue_is_asked_without_a_write(path: Path, holder: Queue, asker: Queue) -> None:
    """No commit, no frame in the write-ahead log, no statement that needs the write lock (DESIGN §3)."""
    holder.enqueue("later", delay=100)
    holder.enqueue("elsewhere", scope="other")
    assert asker.lease_next() is None
    wal = path.with_name(f"{path.name}-wal")
    size = wal.stat().st_size
    watcher = apsw.Connection(str(path))
    version = watcher.pragma("data_version")
    for _ in range(50):
        assert asker.lease_next() is None
        assert asker.lease_next(["work"]) is None
    assert watcher.pragma("data_version") == version
    assert wal.stat().st_size == size
    watcher.close()


def test_an_idle_worker_sees_new_work_at_once(holder: Queue, asker: Queue, clock: FakeClock) -> None:
    """Being idle is no habit: what is enqueued, due, lapsed or freed elsewhere is leased by the next call (§3)."""
    assert asker.lease_next() is None
    holder.enqueue("new")
    lease = asker.lease_next()
    assert lease is not None
    lease.complete()
    assert asker.lease_next() is None
    holder.enqueue("delayed", delay=10)
    assert asker.lease_next() is None
    clock.advance(10)
    lease = asker.lease_next()
    assert lease is not None
    lease.complete()
    assert asker.lease_next() is None
    holder.enqueue("held")
    assert holder.lease_next(ttl=5) is not None
    assert asker.lease_next() is None
    clock.advance(5.1)
    assert asker.lease_next() is None, "reaped now, its back-off begins"
    clock.advance(10.1)
    assert asker.lease_next() is not None


def test_a_question_of_one_scope_or_kind_does_not_lock_for_the_work_of_others(holder: Queue, asker: Queue) -> None:
    """Ready work of another scope or kind leaves the question a read (DESIGN §3)."""
    holder.enqueue_many([NewJob("other"), NewJob("x:y"), NewJob("work", scope="elsewhere")])
    assert asker.lease_next(["work", "w:"]) is None
    with holder.transaction():
        began = time.monotonic()
        assert asker.lease_next(["work", "w:"]) is None
        assert asker.lease_next(scope="third") is None
        assert time.monotonic() - began < 1.0


def test_reads_wait_for_no_writer(holder: Queue, asker: Queue) -> None:
    """`get`, `list`, `stats` and `settings` answer beside an open write transaction (V13)."""
    job_id = holder.enqueue("work").job_id
    with holder.transaction() as tx:
        tx.enqueue("not committed")
        began = time.monotonic()
        assert asker.get(job_id).kind == "work"
        assert len(asker.list()) == 1
        assert asker.stats().total == 1
        assert asker.settings()["lease_ttl"] == 300
        assert time.monotonic() - began < 1.0


def test_a_lease_of_ready_work_does_wait_for_the_lock(path: Path, holder: Queue, clock: FakeClock) -> None:
    """What is there cannot be taken without it: `QueueBusy` after the time-out, never a wrong `None` (§6)."""
    holder.enqueue("work")
    with (
        litequeue.open(path, busy_timeout=0.1, clock=clock) as impatient,
        holder.transaction(),
        pytest.raises(QueueBusy),
    ):
        impatient.lease_next()


def test_threads_that_read_do_not_wait_for_a_thread_that_writes(holder: Queue) -> None:
    """One handle has a connection of its own for reads (V13)."""
    job_id = holder.enqueue("work").job_id
    seen: list[str] = []
    with holder.transaction() as tx:
        tx.enqueue("not committed")
        thread = threading.Thread(target=lambda: seen.append(holder.get(job_id).kind))
        thread.start()
        thread.join(5)
    assert seen == ["work"]
