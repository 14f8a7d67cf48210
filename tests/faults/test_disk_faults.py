"""The disk is full, or fails: whoever asked hears the truth, what failed never comes back, and the next verb works.

The harness `tools/iofaults.py` fails every operation of every verb; here is its short form with its negative controls,
and, with processes that are killed in earnest, what it stands for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from harness.failing import KINDS, Disk, Fault, Sort
from litequeue import JobState, LiteQueueError, NewJob, QueueFull, UsageError
from litequeue.sqlite import filesystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litequeue import Lease
    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow

TOOL = Path(__file__).resolve().parents[2] / "tools" / "iofaults.py"


def _harness(*arguments: str) -> tuple[int, dict[str, object]]:
    """Run the harness; return its exit status and what it found."""
    command = [sys.executable, str(TOOL), "--json", "--processes", "1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return done.returncode, found


def test_no_promise_breaks_at_a_sample_of_all_fault_points() -> None:
    """What raised did nothing, or says so; errors are the documented ones; handle and file go on (G2, G11, §6)."""
    status, found = _harness("--points", "90", "--limits", "large batch in a quota")
    assert (status, found["broken"]) == (0, [])
    tables = found["tables"]
    assert isinstance(tables, dict)
    by_kind, room = tables["answers by kind of fault"], tables["room: a queue worked off at its limit"]
    assert sum(row["points"] for row in by_kind) >= 80
    assert {"answered", "CannotOpen", "QueueFull", "StorageLost"} <= by_kind[0].keys()
    assert room[0]["refused jobs"] > 0
    assert room[0]["acknowledged"] > 50


@pytest.mark.parametrize(
    ("control", "arguments"),
    [
        ("swallowed-error", ["--seed", "1", "--points", "12", "--verbs", "complete", "--limits"]),
        ("blind-undo", ["--seed", "1", "--points", "40", "--verbs", "extend on", "--limits"]),
        ("no-reserve", ["--points", "0", "--limits", "reserve of a quota"]),
    ],
)
def test_the_harness_sees_a_sabotage(control: str, arguments: list[str]) -> None:
    """A run that cannot fail proves nothing."""
    status, found = _harness("--control", control, *arguments)
    assert status == 1
    assert found["broken"]


def _fail_a_sync(parent: Parent, path: str, for_good: bool) -> None:
    """Let the sync of a commit fail; tell what was raised, and what a look-up says; then wait to be killed."""
    disk = Disk()
    queue = litequeue.open(path)
    queue.enqueue("warm")
    disk.arm(None)
    queue.enqueue("first")
    assert disk.done[Sort.SYNC] == 1
    before_the_sync = disk.done.total() - 1  # it is the last thing that an enqueue asks of the disk
    disk.arm(Fault(KINDS["disk gone"], before_the_sync, for_good))
    said = ""
    try:
        queue.enqueue("failed")
    except LiteQueueError as exc:
        said = type(exc).__name__
    disk.disarm()
    parent.say(said)
    if parent.hear() == "look":
        parent.say(" ".join(job.kind for job in queue.list()))
    parent.hear()


@pytest.mark.parametrize(
    ("said", "asked", "survives"),
    [
        ("StorageLost", "nothing", False),
        ("OutcomeUnknown", "look", False),
        ("OutcomeUnknown", "nothing", True),
    ],
)
def test_a_commit_whose_sync_failed_stays_what_its_caller_was_told(
    path: str, processes: Children, said: str, asked: str, survives: bool
) -> None:
    """Its frames lie whole in the log, where the recovery after a `kill -9` finds them (G11).

    They are written over before an error says that nothing was done. Where the disk lets nobody do that, the outcome is
    unknown, as the last case shows: nobody saw the job, and it is there. A look-up settles it first.
    """
    child = processes.start(_fail_a_sync, path, said == "OutcomeUnknown")
    assert child.hear() == said
    child.say(asked)
    if asked == "look":
        assert child.hear() == "warm first"
    child.kill()
    with litequeue.open(path) as queue:
        assert [job.kind for job in queue.list()] == ["warm", "first", *(["failed"] if survives else [])]


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
            disk.arm(Fault(KINDS["full"], 0, for_good=True))
            verb(lambda: tx.enqueue_many(NewJob("new", os.urandom(100_000)) for _ in range(60)))
            verb(lambda: tx.enqueue("new"))
            disk.disarm()
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
