"""The file and its log do not grow without end: maintenance gives room back, and readers do not keep the log growing.

The log's bound is what a checkpoint comes at, and one transaction. While a reader holds a snapshot there is none: then
it grows with the load, and that is said (issue "Growth of the file").
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import apsw
import pytest

import litequeue
from litequeue import Maintenance, NewJob
from litequeue.sqlite import log, upkeep
from litequeue.sqlite.connection import CHECKPOINT_PAGES, PAGE_BYTES
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from litequeue import Queue
    from tests.faults.children import Children, Parent

MIB = 2**20
FRAME_BYTES = PAGE_BYTES + 24
DAY_S = 86_400


def _drain(queue: Queue, jobs: int, payload_bytes: int = 1000) -> None:
    """Enqueue and complete so many jobs."""
    queue.enqueue_many(NewJob("work", "x" * payload_bytes) for _ in range(jobs))
    while leases := queue.lease_many(1000):
        queue.complete_many(leases)


def _wal_bytes(queue: Queue) -> int:
    return Path(f"{queue.path}-wal").stat().st_size


# --- the file


def test_after_a_drain_and_its_retention_a_pass_gives_the_room_back(queue: Queue, clock: FakeClock) -> None:
    """The file is cut down to what is in use and 8 MiB for reuse, and the next pass leaves it alone (V11)."""
    _drain(queue, 9000, 4000)
    Maintenance(queue).run_once()
    full = Path(queue.path).stat().st_size
    assert full > 32 * MIB
    clock.advance(DAY_S + 1)
    report = Maintenance(queue).run_once()
    assert (report.pruned, report.wal_pages) == (9000, 0)
    size = Path(queue.path).stat().st_size
    assert report.freed_bytes == full - size
    assert 0 <= size - upkeep.SPARE_BYTES < MIB
    assert Maintenance(queue).run_once().freed_bytes == 0
    _drain(queue, 1000, 4000)
    queue.checkpoint_wal()
    assert Path(queue.path).stat().st_size == size, "what was kept is used again before the file grows"


def _with_unused(queue: Queue, clock: FakeClock, *, unused: int, used: int) -> None:
    """Leave so many pages unused in the file, and about so many in use, each by a job of one page."""
    queue.enqueue_many(NewJob("kept", "x" * 2 * PAGE_BYTES, delay=99 * DAY_S) for _ in range(used // 2))
    _drain(queue, unused // 2, 2 * PAGE_BYTES)
    clock.advance(DAY_S + 1)
    queue.prune()


@pytest.mark.parametrize(
    ("pages", "kept"),
    [
        ((150, 20), None),  # less than twice the spare bytes
        ((260, 900), None),  # less than a quarter of the file
        ((600, 20), 100),  # down to the spare bytes
        ((1600, 1600), 220),  # down to an eighth of what is in use
    ],
)
def test_room_is_given_back_when_it_is_much_and_some_is_kept(
    queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, pages: tuple[int, int], kept: int | None
) -> None:
    """Between the two bounds lies what comes and goes: a pass a minute later gives nothing back (V11)."""
    monkeypatch.setattr(upkeep, "SPARE_BYTES", 100 * PAGE_BYTES)
    _with_unused(queue, clock, unused=pages[0], used=pages[1])
    before = queue.stats().free_bytes // PAGE_BYTES
    given = queue.vacuum() // PAGE_BYTES
    after = queue.stats().free_bytes // PAGE_BYTES
    assert 0 <= given - (before - after) < 5, "and the pages that SQLite needs to find the others again"
    if kept is None:
        assert given == 0
    else:
        assert after == pytest.approx(kept, rel=0.15)
        assert queue.vacuum() == 0


def test_room_is_given_back_in_small_steps_that_let_others_in(
    path: Path, queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is a transaction of its own, about as short as the other steps of upkeep (V11)."""
    monkeypatch.setattr(upkeep, "SPARE_BYTES", 0)
    monkeypatch.setattr(upkeep, "SHRINK_S", 0)
    _with_unused(queue, clock, unused=200, used=0)
    steps = 0
    with litequeue.open(path, durability="normal", busy_timeout=0, clock=clock) as other:

        def work() -> None:
            nonlocal steps
            steps += 1
            other.enqueue("between")

        queue.between_steps = work
        queue.vacuum()
        assert steps > 10
        assert other.stats().total == steps


def test_a_pass_in_the_middle_of_which_the_room_is_used_again_ends(
    queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was to be given back is counted once; a busy queue is not chased (V11)."""
    monkeypatch.setattr(upkeep, "SPARE_BYTES", 0)
    monkeypatch.setattr(upkeep, "SHRINK_S", 0)
    _with_unused(queue, clock, unused=200, used=0)

    def use_again() -> None:
        queue.enqueue_many(NewJob("again", "x" * PAGE_BYTES) for _ in range(100))

    queue.between_steps = use_again
    assert 0 < queue.vacuum() < 200 * PAGE_BYTES


@pytest.mark.parametrize("vacuum", ["NONE", "FULL"])
def test_a_file_of_an_application_keeps_its_own_way(path: Path, clock: FakeClock, vacuum: str) -> None:
    """Where the file cannot give pages back, or does it by itself, nothing is tried (§6)."""
    litequeue.open(path).close()
    application = apsw.Connection(str(path))
    application.execute(f"PRAGMA auto_vacuum = {vacuum}")
    application.execute("VACUUM")
    application.close()
    with litequeue.open(path, durability="normal", busy_timeout=0.1, clock=clock) as queue:
        _drain(queue, 5000, 4000)
        clock.advance(DAY_S + 1)
        assert queue.prune() == 5000
        free = queue.stats().free_bytes
        assert (free > 16 * MIB) == (vacuum == "NONE")
        writer = apsw.Connection(str(path))
        writer.execute("BEGIN IMMEDIATE")
        assert queue.vacuum() == 0, "not even the write lock is asked for"
        writer.close()
        assert queue.stats().free_bytes == free


# --- the log


def _hold_a_snapshot(parent: Parent, path: str) -> None:
    """Read, and stay in the snapshot until told to end it."""
    reader = apsw.Connection(path)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM litequeue_meta").fetchall()
    parent.say("held")
    parent.hear()
    reader.execute("COMMIT")
    reader.close()


def _commits(queue: Queue, clock: FakeClock, number: int) -> None:
    """Commit so often, a hundred times a second by the clock, about 50 pages each time."""
    for _ in range(number):
        queue.enqueue_many(NewJob("work", "x" * 4000) for _ in range(20))
        clock.advance(0.01)


@pytest.mark.slow
def test_a_reader_that_holds_a_snapshot_lets_the_log_grow_and_is_told_of(
    queue: Queue, clock: FakeClock, processes: Children, caplog: pytest.LogCaptureFixture
) -> None:
    """For as long as it does, in proportion to the load; a pass after its end cuts the log, which stays short then."""
    child = processes.start(_hold_a_snapshot, queue.path)
    child.hear()
    passes = Maintenance(queue)
    report = passes.run_once()
    sizes = []
    with caplog.at_level(logging.WARNING, logger="litequeue"):
        for _ in range(3):
            _commits(queue, clock, 250)
            clock.advance(20)
            report = passes.run_once()
            sizes.append(report.wal_bytes)
            assert report.wal_bytes == _wal_bytes(queue)
            assert report.wal_pages == pytest.approx(report.wal_bytes / FRAME_BYTES, rel=0.05)
    assert sizes[2] > 64 * MIB
    assert sizes[2] - sizes[1] == pytest.approx(sizes[1] - sizes[0], rel=0.2)
    assert report.wal_held_s >= 40
    told = [record.getMessage() for record in caplog.records if "a reader has kept" in record.getMessage()]
    assert told, "by the handle that writes as well as by the pass"
    assert len(told) <= 3, "not at every checkpoint"
    child.say("end")
    child.result()
    report = passes.run_once()
    assert (report.wal_pages, report.wal_bytes, report.wal_held_s) == (0, 0, 0)
    _commits(queue, clock, 200)
    assert _wal_bytes(queue) <= (CHECKPOINT_PAGES + 200) * FRAME_BYTES


def test_a_reader_that_stays_is_waited_for_once(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that waits for readers holds all writers up: not again for one that it has waited for in vain."""
    monkeypatch.setattr(log, "CHECKPOINT_PAGES", 100)
    monkeypatch.setattr(log, "_AGAIN_PAGES", 50)
    monkeypatch.setattr(log, "_READERS_S", 0)
    modes: list[int] = []
    checkpoint = log.Log._checkpoint

    def noted(self: log.Log, connection: apsw.Connection, mode: int) -> int:
        modes.append(mode)
        return checkpoint(self, connection, mode)

    monkeypatch.setattr(log.Log, "_checkpoint", noted)
    reader = apsw.Connection(queue.path)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM litequeue_meta").fetchall()
    for _ in range(300):
        queue.enqueue("work")
    reader.execute("COMMIT")
    assert modes.count(apsw.SQLITE_CHECKPOINT_PASSIVE) > 10
    assert modes.count(apsw.SQLITE_CHECKPOINT_RESTART) <= 1
    before = _wal_bytes(queue)
    for _ in range(300):
        queue.enqueue("work")
    assert _wal_bytes(queue) < before + 100 * FRAME_BYTES, "and once it has ended the log begins anew"
    reader.close()


class _Relay:
    """Two threads that read in turns, each beginning before the other one ends, so that somebody always reads."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._begun = [threading.Semaphore(0), threading.Semaphore(0)]
        self._is_ending = False
        self._threads = [threading.Thread(target=self._read, args=(number,)) for number in range(2)]
        self.snapshots = 0

    def __enter__(self) -> Self:
        self._begun[0].release()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending = True
        for thread in self._threads:
            thread.join()

    def _read(self, number: int) -> None:
        reader = apsw.Connection(self._path)
        while not self._is_ending:
            self._begun[number].acquire()
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM litequeue_meta").fetchall()
            self.snapshots += 1
            self._begun[1 - number].release()  # only now the other one ends its own
            self._begun[number].acquire(timeout=1)
            self._begun[number].release()
            reader.execute("COMMIT")
        self._begun[1 - number].release(2)
        reader.close()


def test_readers_that_follow_each_other_closely_do_not_let_the_log_grow(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no moment at which nobody reads; without waiting for one the log would never begin anew."""
    monkeypatch.setattr(log, "CHECKPOINT_PAGES", 200)
    monkeypatch.setattr(log, "_AGAIN_PAGES", 50)
    commits, is_short = 0, False
    with _Relay(queue.path) as relay:
        while not (is_short and relay.snapshots > 20) and commits < 40_000:
            for _ in range(2000):
                queue.enqueue("work")
            commits += 2000
            is_short = _wal_bytes(queue) < 3 * commits * FRAME_BYTES / 2
    assert relay.snapshots > 20
    assert is_short, "less than half of all that was written; how soon depends on how busy the machine is"


@pytest.mark.parametrize(("pages", "wait_s"), [(5_000, 0.1), (20_000, 0.4), (1_000_000, 2.0)])
def test_a_longer_log_waits_longer_for_its_readers(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, pages: int, wait_s: float
) -> None:
    """Readers of some tenths of a second that overlap would keep it growing, though none of them stays."""
    store = queue._store
    connection, patience = store._writer.connection, store._writer.patience
    assert connection is not None
    waits: dict[int, float] = {}
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(store.log, "_checkpoint", lambda _, mode: waits.__setitem__(mode, patience.deadline - now))
    store.log._pages = pages
    store.log.copy_back_if_due(connection, patience, store._gate)
    assert waits == pytest.approx({apsw.SQLITE_CHECKPOINT_PASSIVE: 0.0, apsw.SQLITE_CHECKPOINT_RESTART: wait_s})
