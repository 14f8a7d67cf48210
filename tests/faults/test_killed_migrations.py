"""Migrations that are cut off: by a kill at each thing that SQLite asks of the disk, by a power loss, by a full disk.

Whatever cuts them off, the file is of the old version or of the new one, with the same jobs, and opening it goes on.
The version that it is moved to is the one after this, so that the table of the jobs is always made anew.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
import make_fixture
from harness.failing import KINDS, Disk, Fault, Kind, Part
from litequeue import LiteQueueError
from litequeue.sqlite import connection as connections
from litequeue.sqlite import tables
from litequeue.sqlite.examining import problems
from power_loss import disk as lost
from power_loss.recording import Recorder, RecordingVFS

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue.sqlite.connection import Patience
    from tests.faults.children import Children, Parent
    from tests.sqlite import test_migrating as next_version
else:  # the folders of the tests are no packages
    _place = Path(__file__).parent.parent / "sqlite" / "test_migrating.py"
    _spec = importlib.util.spec_from_file_location("litequeue_next_version", _place)
    next_version = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(next_version)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and forks are POSIX"),
]

MOST_OPERATIONS = 5000
PATIENCE_S = 110.0


def _begin() -> None:
    """Be the next version, and let SQLite write pages of an open transaction at once, as it does with large files."""
    logging.getLogger("litequeue").setLevel(logging.ERROR)
    next_version.next_version()
    connect: Callable[..., apsw.Connection] = vars(connections)["connect"]

    def connect_with_little_memory(path: str, patience: Patience, *, create: bool) -> apsw.Connection:
        connection = connect(path, patience, create=create)
        connection.execute("PRAGMA cache_size = 1").fetchall()
        return connection

    vars(connections)["connect"] = connect_with_little_memory


def _migrate(path: Path) -> None:
    litequeue.open(path, clock=make_fixture.clock()).close()


class Seen:
    """What a file holds, whichever version it is of."""

    def __init__(self, path: Path) -> None:
        connection = apsw.Connection(str(path))
        try:
            self.whole = connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            (self.version,) = connection.execute("SELECT schema_version FROM litequeue_meta").fetchall()[0]
            self.rows = [
                connection.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2, 3, 4, 5").fetchall()
                for table, columns in (
                    ("litequeue_job", "*"),
                    ("litequeue_body", "*"),
                    ("litequeue_outcome", "job_id, result, last_error, 1, 1"),
                    ("litequeue_setting", "name, value, 1, 1, 1"),
                    ("orders", "id, job, 1, 1, 1"),
                )
            ]
            self.objects = tables.ours(connection.execute(tables.OBJECTS).fetchall())
        finally:
            connection.close()


def _judged(path: Path, before: Seen) -> str:
    """Tell which version the file is of, or what is wrong with it; then open it, which has to go on."""
    seen = Seen(path)
    if not seen.whole or seen.rows != before.rows:
        return f"damaged or changed: whole {seen.whole}"
    if seen.version not in (before.version, tables.VERSION):
        return f"version {seen.version}"
    if seen.objects != tables.expected(int(str(seen.version))):
        return f"a mixture that says it is version {seen.version}"
    _migrate(path)
    after = Seen(path)
    wrong = problems(str(path), make_fixture.clock())
    if (after.version, after.rows) != (tables.VERSION, before.rows) or wrong:
        return f"afterwards it is version {after.version}, {wrong}"
    return "new" if seen.version == tables.VERSION else "old"


def _in_fork(work: Callable[[], object]) -> int:
    """Run work in a fork; return how it ended."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - the status is the answer
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _killed_at(path: Path, nth: int, part: Part) -> Callable[[], None]:
    """Return a migration that is killed at the so-manieth thing that it asks of the disk."""

    def run() -> None:
        disk = Disk()
        disk.at_fault = lambda: os.kill(os.getpid(), signal.SIGKILL)
        disk.arm(Fault(Kind(None, 0, part), nth, for_good=False))
        _migrate(path)

    return run


def kill_at_every_operation(_parent: Parent, name: str, stride: int, first: int) -> list[str]:
    """Kill the migration of one of the kept files at each operation in turn; tell what was left after each."""
    _begin()
    outcomes: list[str] = []
    for nth in range(first, MOST_OPERATIONS, stride):
        with tempfile.TemporaryDirectory(prefix="litequeue-kill-") as folder:
            kept = make_fixture.unpacked(1, name, Path(folder) / "kept.queue")
            before = Seen(kept)
            path = make_fixture.unpacked(1, name, Path(folder) / "app.queue")
            status = _in_fork(_killed_at(path, nth, (Part.NOTHING, Part.HALF, Part.ALL)[nth // stride % 3]))
            outcomes.append(_judged(path, before))
            if status == 0:
                return outcomes
            assert status == -signal.SIGKILL
    raise AssertionError("there are more operations than that")


@pytest.mark.parametrize("name", ["closed", "killed"])
def test_a_kill_at_any_operation_leaves_the_old_or_the_new(processes: Children, name: str) -> None:
    """First always the old one, then always the new one, with the same jobs (G2, §7)."""
    stride = 11
    outcomes = processes.start(kill_at_every_operation, name, stride, random.randrange(stride)).result(PATIENCE_S)
    assert isinstance(outcomes, list)
    assert set(outcomes) == {"old", "new"}
    assert outcomes == sorted(outcomes, key=["old", "new"].index)
    assert outcomes.count("old") > 5
    assert outcomes.count("new") > 1


class _Witness(Recorder):
    """A recorder that only writes down: the file that it watches is nobody else's to look at meanwhile."""

    def _watch(self, connection: apsw.Connection) -> None:
        """Look at no connection."""


def lose_power(_parent: Parent, name: str, seed: int, images: int) -> dict[str, int]:
    """Record a migration, and judge what a disk may hold after a power loss at random places of it."""
    _begin()
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="litequeue-power-") as folder:
        kept = make_fixture.unpacked(1, name, Path(folder) / "kept.queue")
        path = make_fixture.unpacked(1, name, Path(folder) / "app.queue")
        steps: list[lost.Step] = []
        for suffix in lost.SUFFIXES:
            if path.with_name(path.name + suffix).exists():
                content = path.with_name(path.name + suffix).read_bytes()
                steps.append(lost.Step(lost.Sort.CREATED, suffix, 0, b""))
                steps.append(lost.Step(lost.Sort.WRITTEN, suffix, 0, content))
                steps.append(lost.Step(lost.Sort.SYNCED, suffix, 0, b""))
        steps.append(lost.Step(lost.Sort.FOLDER_SYNCED, "", 0, b""))
        begun = len(steps)
        before = Seen(kept)
        log = Path(folder) / "log"
        assert _in_fork(lambda: _record(path, log, {step.suffix for step in steps})) == 0
        steps += lost.load(log)
        places = [at for at in range(begun, len(steps) + 1) if at == len(steps) or steps[at].sort < lost.Sort.COMMITTED]
        counts: dict[str, int] = {}
        for place in sorted([*draw.choices(places, k=images), *[len(steps)] * 5]):
            disk = lost.Disk()
            for step in steps[:place]:
                disk.play(step)
            found = Path(folder) / f"at-{place}"
            found.mkdir(exist_ok=True)
            for suffix, content in disk.after_loss(draw).files.items():
                found.joinpath(f"app.queue{suffix}").write_bytes(content)
            outcome = _judged(found / "app.queue", before)
            if place == len(steps) and outcome == "old":
                outcome = "it was answered, and is the old one"
            counts[outcome] = counts.get(outcome, 0) + 1
            for left in found.iterdir():
                left.unlink()
        return counts


def _record(path: Path, log: Path, existing: set[str]) -> None:
    recorder = _Witness(str(path), None)
    recorder._existing |= existing
    recording = RecordingVFS(recorder, random.Random(1))
    queue = litequeue.open(path, clock=make_fixture.clock())
    assert recording is not None, "it goes when nobody has it"
    lost.dump(log, [step for step in recorder.steps if step.sort < lost.Sort.COMMITTED])
    queue.close()


@pytest.mark.parametrize("name", ["closed", "killed"])
def test_a_power_loss_leaves_the_old_or_the_new(processes: Children, name: str) -> None:
    """Once it has been opened, always the new one (§7: the schema moves under `full`)."""
    counts = processes.start(lose_power, name, random.randrange(2**31), 60).result(PATIENCE_S)
    assert isinstance(counts, dict)
    assert set(counts) == {"old", "new"}
    assert counts["old"] > 0
    assert counts["new"] >= 5


def fail_at_every_write(_parent: Parent, kind: str, stride: int, first: int, for_good: bool) -> list[list[str]]:
    """Let the disk fail at each of its operations in turn; tell what was raised, and what was left after each."""
    _begin()
    outcomes: list[list[str]] = []
    disk = Disk()
    for nth in range(first, MOST_OPERATIONS, stride):
        with tempfile.TemporaryDirectory(prefix="litequeue-full-") as folder:
            before = Seen(make_fixture.unpacked(1, "killed", Path(folder) / "kept.queue"))
            path = make_fixture.unpacked(1, "killed", Path(folder) / "app.queue")
            disk.arm(Fault(KINDS[kind], nth, for_good=for_good))
            said = ""
            try:
                _migrate(path)
            except LiteQueueError as exc:
                said = type(exc).__name__
            is_met = disk.failures > 0
            disk.disarm()
            outcomes.append([said, _judged(path, before)])
            if not is_met:
                return outcomes
    raise AssertionError("there are more operations than that")


@pytest.mark.parametrize("for_good", [True, False])
@pytest.mark.parametrize("kind", ["full", "full, half written", "write", "fsync"])
def test_a_disk_that_is_full_or_fails_leaves_the_old_one(processes: Children, kind: str, for_good: bool) -> None:
    """`QueueFull` or `CannotOpen`, and all as it was; once there is room, opening it goes on (G11, §6).

    Only a sync that fails leaves open whether it was moved; then too the next opening finds one or the other.
    """
    stride = 1 if kind == "fsync" else 6
    started = processes.start(fail_at_every_write, kind, stride, random.randrange(stride), for_good)
    outcomes = started.result(PATIENCE_S)
    assert isinstance(outcomes, list)
    assert {left for _, left in outcomes} <= {"old", "new"}
    assert {said for said, _ in outcomes} == {"", "QueueFull" if kind.startswith("full") else "CannotOpen"}
    assert {left for said, left in outcomes if not said} == {"new"}
    assert kind == "fsync" or [left for _, left in outcomes].count("old") > 5
