"""The disk is full, or fails, at any write or sync of a verb: whoever asked hears the truth, and the next verb works.

A shim under SQLite (a VFS of apsw, the default one of a child process) lets n writes or syncs pass and fails the later
ones. Each verb is tried with a failure at its first, second, third … operation.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import JobState, LiteQueueError, NewJob, OutcomeUnknown, QueueFull, UsageError
from litequeue.sqlite import filesystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from litequeue import Lease, Queue
    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow


class Disk(apsw.VFS):
    """The ordinary file system, until it is told to fail."""

    def __init__(self) -> None:
        self.left: int | None = None
        """How many operations of the watched sort still succeed; `None`: all."""
        self.sort = ""
        self.failures = 0
        super().__init__("failing", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - apsw's name
        """Open a file of ours."""
        return File(self, name, flags)

    def check(self, sort: str) -> None:
        """Let an operation of this sort pass, or fail."""
        if self.left is None or (sort == "sync") != (self.sort == "sync error"):
            return
        if self.left > 0:
            self.left -= 1
            return
        self.failures += 1
        match self.sort:
            case "full":
                raise apsw.FullError
            case _:
                raise apsw.IOError


class File(apsw.VFSFile):
    """A file whose writes and syncs may fail."""

    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - apsw's name
        """Write."""
        self._disk.check("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - apsw's name
        """Sync."""
        self._disk.check("sync")
        super().xSync(flags)


def _prepare(queue: Queue) -> dict[str, tuple[Callable[[], object], Callable[[Queue], bool]]]:
    """Return each verb, ready to be called, with the question whether it has been done."""
    taken = queue.enqueue("taken").job_id
    lease = queue.lease_next(["taken"])
    assert lease is not None
    ready = queue.enqueue("ready").job_id

    def has_new(other: Queue) -> bool:
        return bool(other.list(kind="new"))

    def transact() -> None:
        with queue.transaction() as tx:
            tx.execute("CREATE TABLE mine (a)")
            tx.enqueue("new", "x" * 3000)

    return {
        "enqueue": (lambda: queue.enqueue("new"), has_new),
        "enqueue_many": (lambda: queue.enqueue_many(NewJob("new", "x" * 3000) for _ in range(4)), has_new),
        "transaction": (transact, has_new),
        "lease_next": (lambda: queue.lease_next(["ready"]), lambda other: other.get(ready).state is JobState.LEASED),
        "complete": (lease.complete, lambda other: other.get(taken).state is JobState.COMPLETED),
        "cancel": (lambda: queue.cancel(ready), lambda other: other.get(ready).state is JobState.CANCELLED),
    }


def _fail_at(nth: int, disk: Disk, path: str, verb: str, sort: str) -> tuple[Exception | None, bool, list[str]]:
    """Fail a verb after `nth` operations, in a fresh file; return its error, whether it failed, and what is wrong."""
    queue = litequeue.open(path, durability="full")
    work, is_done = _prepare(queue)[verb]
    disk.left, disk.sort, disk.failures = nth, sort, 0
    error: Exception | None = None
    try:
        work()
    except Exception as exc:  # noqa: BLE001 - told to the test
        error = exc
    disk.left = None
    wrong: list[str] = []
    with litequeue.open(path) as other:
        done = is_done(other)
    if error is None and not done:
        wrong.append("acknowledged, and not there")
    if error is not None and done and not isinstance(error, OutcomeUnknown):
        wrong.append(f"{error!r}, and it was done")
    try:
        if not done:
            work()
        queue.enqueue("afterwards")
        with litequeue.open(path) as other, other.transaction() as tx:
            if not is_done(other) or not other.list(kind="afterwards"):
                wrong.append("not what was acknowledged afterwards")
            if tx.execute("PRAGMA integrity_check") != [("ok",)]:
                wrong.append("damaged")
        queue.close()
    except LiteQueueError as exc:
        wrong.append(f"afterwards {exc!r}")
    return error, disk.failures > 0, wrong


def _fail_everywhere(parent: Parent, path: str, verb: str, sort: str) -> None:
    """Fail each operation of a verb, one after the other; tell what was wrong and what was raised."""
    disk = Disk()
    all_wrong: list[str] = []
    raised: list[str] = []
    for nth in itertools.count():
        error, failed, wrong = _fail_at(nth, disk, f"{path}{nth}", verb, sort)
        if not failed:
            break
        all_wrong += [f"{nth}: {one}" for one in wrong]
        raised.append(type(error).__name__)
    parent.result({"wrong": all_wrong, "raised": raised})
    os._exit(0)


@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many", "transaction", "lease_next", "complete", "cancel"])
@pytest.mark.parametrize("sort", ["full", "write error", "sync error"])
def test_a_verb_whose_disk_fails_tells_the_truth_and_the_next_one_works(
    path: str, processes: Children, verb: str, sort: str
) -> None:
    """What raised did nothing, or is `OutcomeUnknown`; a full disk is `QueueFull`; the handle works on (G11, §6)."""
    found = processes.run(_fail_everywhere, path, verb, sort)
    assert isinstance(found, dict)
    assert found["wrong"] == []
    allowed = {"full": {"QueueFull"}, "write error": {"StorageLost", "OutcomeUnknown"}}
    assert set(found["raised"]) <= allowed.get(sort, {"StorageLost", "OutcomeUnknown"})
    assert len(found["raised"]) >= (1 if sort == "sync error" else 3), "the verb was failed at each of its operations"


def _fill_inside(parent: Parent, path: str) -> None:
    """Let the disk be full in the middle of a caller's own transaction."""
    disk = Disk()
    queue = litequeue.open(path)
    queue.enqueue("taken")
    said: list[str] = []

    def verb(work: Callable[[], object]) -> None:
        try:
            work()
            said.append("answered")
        except LiteQueueError as exc:
            said.append(f"{type(exc).__name__}{' of the whole' if 'rolled' in str(exc) else ''}")

    leases: list[Lease] = []

    def transact() -> None:
        with queue.transaction() as tx:
            leases.extend(tx.lease_many(1))
            tx.execute("CREATE TABLE mine (a)")
            tx.execute("PRAGMA cache_spill")  # a small cache spills to the log before COMMIT
            disk.left, disk.sort = 0, "full"
            verb(lambda: tx.enqueue_many(NewJob("new", os.urandom(100_000)) for _ in range(60)))
            verb(lambda: tx.enqueue("new"))
            disk.left = None
            verb(lambda: tx.enqueue("new"))

    verb(transact)
    verb(lambda: leases[0].complete())  # noqa: PLW0108 - there is none before
    verb(lambda: queue.enqueue("afterwards"))
    parent.result({"said": said, "jobs": sorted(f"{job.kind} {job.state.name}" for job in queue.list())})


def test_a_full_disk_in_a_callers_transaction_undoes_the_whole_of_it(path: str, processes: Children) -> None:
    """SQLite gives the transaction up: the verb says so, later ones are refused, nothing is stored (G11, §6)."""
    found = processes.run(_fill_inside, path)
    assert found == {
        "said": ["QueueFull of the whole", *["UsageError of the whole"] * 3, "LeaseConflict", "answered"],
        "jobs": ["afterwards PENDING", "taken PENDING"],
    }


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of 2 MB; only root may mount one."""
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("only root can mount a file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "litequeue-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)  # noqa: S607 - found by PATH


def test_a_disk_that_another_program_filled_refuses_jobs_and_works_again_afterwards(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`QueueFull` and nothing half done; once there is room again, everything goes on (§6)."""
    monkeypatch.setattr(filesystem, "FREE_SPACE_RESERVE_BYTES", -(2**40))  # let SQLite meet the end of the disk
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 600_000)
    with litequeue.open(small_disk / "app.queue") as queue:
        job_id = queue.enqueue("first").job_id
        stored = 1
        while True:
            try:
                stored += len(queue.enqueue_many(NewJob("work", os.urandom(5000)) for _ in range(4)))
            except QueueFull:
                break
        assert 4 <= stored < 400
        assert queue.stats().total == stored
        lease = None
        try:
            lease = queue.lease_next()
        except QueueFull:
            assert queue.get(job_id).state is JobState.PENDING
        ballast.unlink()
        queue.enqueue("afterwards")
        lease = lease or queue.lease_next()
        assert lease is not None
        lease.complete()
        assert queue.stats().total == stored + 1
        with queue.transaction() as tx:
            assert tx.execute("PRAGMA integrity_check") == [("ok",)]


def test_a_transaction_that_went_on_after_it_was_given_up_is_refused(path: str) -> None:
    """A caller's own `ON CONFLICT ROLLBACK` ends the transaction; the block is told, nothing is stored (G11, V14)."""
    with litequeue.open(path) as queue:
        with queue.transaction() as tx:
            tx.execute("CREATE TABLE mine (a UNIQUE ON CONFLICT ROLLBACK)")
            tx.execute("INSERT INTO mine VALUES (1)")

        def go_on() -> None:
            with queue.transaction() as tx:
                tx.enqueue("refused")
                with pytest.raises(apsw.ConstraintError):
                    tx.execute("INSERT INTO mine VALUES (1)")
                with pytest.raises(UsageError):
                    tx.enqueue("refused")

        with pytest.raises(UsageError, match="rolled"):
            go_on()
        assert queue.list() == []
        queue.enqueue("afterwards")
