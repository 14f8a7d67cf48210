"""A process that stands still in the worst place, and how long the others wait for it.

A stopped process (SIGSTOP, a debugger, a frozen container) keeps its locks. With the write lock in its hands nobody can
write, and each verb says so within its `busy_timeout`; with only the gate, everybody goes on (DESIGN §3).
"""

from __future__ import annotations

import random
import signal
import threading
import time
from typing import TYPE_CHECKING, cast

import apsw
import pytest

import litequeue
from litequeue import QueueBusy
from litequeue.sqlite import ofd
from litequeue.sqlite.gate import _FIRST_IN_LINE as FIRST_IN_LINE
from litequeue.sqlite.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow

SLACK_S = 0.9
"""What a loaded machine may add to a wait."""


def _hold_the_write_lock(parent: Parent, path: str) -> None:
    queue = litequeue.open(path)
    with queue.transaction() as tx:
        tx.enqueue("of the stopped one")
        parent.say("held")
        parent.hear()


def _hold_the_gate(parent: Parent, path: str) -> None:
    queue = litequeue.open(path)
    queue._store._gate.enter(time.monotonic() + 10)
    parent.say("held")
    parent.hear()
    queue._store._gate.leave()


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _is_busy(work: Callable[[], object]) -> None:
    with pytest.raises(QueueBusy):
        work()


def test_writers_beside_a_stopped_holder_of_the_write_lock_are_busy_in_time(path: str, processes: Children) -> None:
    """`QueueBusy` within `busy_timeout`, nothing done; reads go on; after SIGCONT all is well (§6, G11)."""
    with litequeue.open(path, busy_timeout=0.4) as queue:
        job_id = queue.enqueue("leased").job_id
        lease = queue.lease_next()
        assert lease is not None
        stopped = processes.start(_hold_the_write_lock, path)
        assert stopped.hear() == "held"
        stopped.signal(signal.SIGSTOP)
        for verb in (lambda: queue.enqueue("refused"), lease.complete, lambda: queue.set("lease_ttl", 5)):
            seconds = _seconds(lambda verb=verb: _is_busy(verb))  # type: ignore[misc]
            assert 0.3 <= seconds <= 0.4 + SLACK_S
        assert [job.kind for job in queue.list()] == ["leased"]
        assert queue.get(job_id).state is litequeue.JobState.LEASED
        stopped.signal(signal.SIGCONT)
        stopped.say("go on")
        stopped.result()
        lease.complete()
        queue.enqueue("accepted")
        assert sorted(job.kind for job in queue.list()) == ["accepted", "leased", "of the stopped one"]
        assert queue.settings()["lease_ttl"] == 300


@pytest.mark.parametrize("busy_timeout", [0.3, 10.0])
def test_writers_beside_a_stopped_holder_of_the_gate_go_on(path: str, processes: Children, busy_timeout: float) -> None:
    """The gate is waited for at most about a second, or for as long as the verb may wait at all (DESIGN §3)."""
    with litequeue.open(path, busy_timeout=busy_timeout) as queue:
        stopped = processes.start(_hold_the_gate, path)
        assert stopped.hear() == "held"
        stopped.signal(signal.SIGSTOP)
        seconds = _seconds(lambda: queue.enqueue("work"))
        assert seconds <= min(busy_timeout, 1.0) + SLACK_S
        queue.checkpoint_wal()
        stopped.signal(signal.SIGCONT)
        stopped.say("go on")
        stopped.result()
        assert _seconds(lambda: queue.enqueue("work")) < SLACK_S
        assert queue.stats().total == 2


def _stand_first_in_line(parent: Parent, path: str) -> None:
    gate = Gate(f"{path}-lock", 0o600)
    gate.enter(time.monotonic() + 10)
    gate.leave()
    ofd.lock(cast("int", gate._descriptor), FIRST_IN_LINE, 1)
    parent.say("standing")
    parent.hear()


@pytest.mark.skipif(not ofd.HAS_LOCKS, reason="without such locks there is no line")
def test_many_go_on_beside_a_stopped_first_in_line(path: str, processes: Children) -> None:
    """It keeps the place for ever; two that contend try less often then, and every turn is had (G5, G10)."""
    litequeue.open(path).close()
    stopped = processes.start(_stand_first_in_line, path)
    assert stopped.hear() == "standing"
    stopped.signal(signal.SIGSTOP)
    working = [processes.start(_enqueue, path, 100) for _ in range(2)]
    for child in working:
        assert cast("float", child.result()) < SLACK_S
    with litequeue.open(path) as queue:
        assert queue.stats().total == 200


def _enqueue(_parent: Parent, path: str, times: int) -> float:
    """Enqueue one by one; return how long the longest took."""
    with litequeue.open(path, durability="normal") as queue:
        return max(_seconds(lambda: queue.enqueue("work")) for _ in range(times))


def test_opening_and_closing_beside_a_stopped_holder_of_the_gate_goes_on(path: str, processes: Children) -> None:
    """An opening, and a close, wait a bounded time for the gate and then go on (§6, DESIGN §3)."""
    litequeue.open(path).close()
    stopped = processes.start(_hold_the_gate, path)
    assert stopped.hear() == "held"
    stopped.signal(signal.SIGSTOP)

    def open_and_close() -> None:
        with litequeue.open(path, busy_timeout=0.3) as queue:
            assert queue.stats().total == 0

    assert _seconds(open_and_close) <= 2 * 0.3 + SLACK_S


def test_opening_beside_a_stopped_holder_of_the_write_lock_reads_at_once(path: str, processes: Children) -> None:
    """Neither an opening nor a read needs the write lock (V13)."""
    litequeue.open(path).close()
    stopped = processes.start(_hold_the_write_lock, path)
    assert stopped.hear() == "held"
    stopped.signal(signal.SIGSTOP)
    with litequeue.open(path, busy_timeout=0.3) as queue:
        assert queue.list() == []


def test_one_deadline_covers_the_thread_lock_the_gate_and_sqlites_lock(path: str, processes: Children) -> None:
    """A verb that waits half its time for another thread has only the other half left for other processes (§6)."""
    with litequeue.open(path, busy_timeout=2.0) as queue:
        stopped = processes.start(_hold_the_write_lock, path)
        assert stopped.hear() == "held"
        stopped.signal(signal.SIGSTOP)
        began = threading.Event()

        def wait_too() -> None:
            began.set()
            _is_busy(lambda: queue.enqueue("first"))

        thread = threading.Thread(target=wait_too)
        thread.start()
        began.wait()
        assert _seconds(lambda: _is_busy(lambda: queue.enqueue("second"))) <= 2.0 + SLACK_S
        thread.join()


def test_two_handles_of_one_process_wait_for_each_other_in_time(path: str) -> None:
    """A verb on one handle inside a transaction on another one is `QueueBusy`, not a deadlock (§6)."""
    with litequeue.open(path) as first, litequeue.open(path, busy_timeout=0.3) as second:
        with first.transaction() as tx:
            tx.enqueue("first")
            assert _seconds(lambda: _is_busy(lambda: second.enqueue("refused"))) <= 0.3 + SLACK_S
            assert second.list() == []
        second.enqueue("second")
        assert [job.kind for job in first.list()] == ["first", "second"]


class Disk(apsw.VFS):
    """The ordinary file system, on which a checkpoint stands still at its first page."""

    def __init__(self, parent: Parent) -> None:
        self.parent = parent
        self.is_armed = False
        super().__init__("standing", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - apsw's name
        """Open a file of ours."""
        return File(self, name, flags, is_database=bool(flags[0] & apsw.SQLITE_OPEN_MAIN_DB))


class File(apsw.VFSFile):
    """A file that waits for the test before the database itself is written to."""

    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int], *, is_database: bool) -> None:
        self._disk = disk
        self._is_database = is_database
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - apsw's name
        """Write, but in a checkpoint only when the test says so."""
        if self._is_database and self._disk.is_armed:
            self._disk.is_armed = False
            self._disk.parent.say("copies back")
            self._disk.parent.hear()
        super().xWrite(data, offset)


def _stand_still_in_a_checkpoint(parent: Parent, path: str) -> None:
    """Copy the write-ahead log back, and stop in the middle of it."""
    disk = Disk(parent)
    queue = litequeue.open(path)
    queue.enqueue("work")
    disk.is_armed = True
    queue.checkpoint_wal()


def test_a_checkpoint_that_stands_still_stops_nobody(path: str, processes: Children) -> None:
    """Others write, read and maintain beside it; they leave the copying to it (DESIGN §3, V11)."""
    with litequeue.open(path) as queue:
        standing = processes.start(_stand_still_in_a_checkpoint, path)
        assert standing.hear() == "copies back"
        queue.enqueue("work")
        assert len(queue.list()) == 2
        assert litequeue.Maintenance(queue).run_once().reaped == 0
        standing.say("go on")
        standing.result()
        assert litequeue.Maintenance(queue).run_once().wal_pages == 0


def _write(parent: Parent, path: str) -> None:
    """Enqueue for ever; say each acknowledged job, and wait to be told to go on."""
    queue = litequeue.open(path)
    while True:
        parent.say(str(queue.enqueue("work").job_id))


def test_processes_stopped_at_random_moments_lose_nothing(path: str, processes: Children) -> None:
    """Whatever a stopped writer holds, another is served or hears `QueueBusy`, and what each hears is true (G11)."""
    draw = random.Random(4)
    acknowledged: set[str] = set()
    refused = 0
    writer = processes.start(_write, path)
    acknowledged.add(writer.hear())
    with litequeue.open(path, busy_timeout=0.05) as queue:
        for _ in range(40):
            acknowledged.update(writer.hear() for _ in range(draw.randrange(1, 6)))
            writer.signal(signal.SIGSTOP)
            try:
                acknowledged.add(str(queue.enqueue("mine").job_id))
            except QueueBusy:
                refused += 1
            writer.signal(signal.SIGCONT)
        writer.kill()
        acknowledged.update(writer.rest())
        stored = {str(job.job_id) for job in queue.list(limit=10_000)}
        assert acknowledged - stored == set()
        mine = queue.stats().by_kind.get("mine", {})  # a writer may stand in its commit all forty times
        assert mine.get(litequeue.JobState.PENDING, 0) == 40 - refused
