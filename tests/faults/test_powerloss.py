"""Power loss: the short form of `tools/powerloss.py`, its teeth, and the model of a disk that it rests on."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from typing import TYPE_CHECKING

import apsw
import pytest

import powerloss
from power_loss.disk import EVERYTHING, JOURNAL, MAIN, NOTHING, SECTOR_BYTES, WAL, Disk, Sort, Step, load

if TYPE_CHECKING:
    from pathlib import Path


def _played(*steps: tuple[Sort, str, int, bytes]) -> Disk:
    disk = Disk()
    for step in steps:
        disk.play(Step(*step))
    return disk


def _outcomes(disk: Disk, times: int = 400) -> Counter[tuple[tuple[str, bytes], ...]]:
    draw = random.Random(7)
    return Counter(tuple(sorted(disk.after_loss(draw).files.items())) for _ in range(times))


MADE = (Sort.CREATED, MAIN, 0, b"")
KEPT = (Sort.FOLDER_SYNCED, "", 0, b"")


def test_what_was_synced_is_there_and_the_rest_is_unsure() -> None:
    """A synced write survives every loss; an unsynced one survives some of them, whole or not at all (§7)."""
    disk = _played(MADE, KEPT, (Sort.WRITTEN, MAIN, 0, b"old"), (Sort.SYNCED, MAIN, 0, b""))
    assert set(_outcomes(disk)) == {((MAIN, b"old"),)}
    disk.play(Step(Sort.WRITTEN, MAIN, 1, b"nx"))
    assert set(_outcomes(disk)) == {((MAIN, b"old"),), ((MAIN, b"onx"),)}
    assert disk.after_loss(random.Random(0), NOTHING).files == {MAIN: b"old"}
    assert disk.after_loss(random.Random(0), EVERYTHING).files == {MAIN: b"onx"}


def test_the_sectors_of_a_write_are_torn_apart_at_their_boundaries() -> None:
    """Each sector of an unsynced write is old or new by itself, and none in between (§7)."""
    old, new = b"a" * 3 * SECTOR_BYTES, b"b" * 2 * SECTOR_BYTES
    start = SECTOR_BYTES // 2
    disk = _played(MADE, KEPT, (Sort.WRITTEN, MAIN, 0, old), (Sort.SYNCED, MAIN, 0, b""))
    disk.play(Step(Sort.WRITTEN, MAIN, start, new))
    found = {files[0][1] for files in _outcomes(disk)}
    bounds = (0, start, SECTOR_BYTES, 2 * SECTOR_BYTES, start + len(new), len(old))
    pieces = {tuple(sorted(set(image[a:b]))) for image in found for a, b in itertools.pairwise(bounds)}
    assert pieces == {(ord("a"),), (ord("b"),)}
    assert len(found) == 8


def test_later_changes_survive_without_earlier_ones_and_a_file_grows_without_its_contents() -> None:
    """Between two syncs nothing is ordered: not the writes, the truncation or the length (§7)."""
    disk = _played(MADE, KEPT, (Sort.WRITTEN, MAIN, 0, b"abc"), (Sort.SYNCED, MAIN, 0, b""))
    disk.play(Step(Sort.TRUNCATED, MAIN, 1, b""))
    disk.play(Step(Sort.WRITTEN, MAIN, 3, b"d"))
    found = {files[0][1] for files in _outcomes(disk, 2000)}
    assert {b"abc", b"a", b"abcd", b"a\0\0d", b"abc\0", b"a\0\0\0"} <= found


def test_a_name_is_sure_once_the_folder_was_synced() -> None:
    """A new file may be missing though it was synced; a deleted one may come back instead of a new one (§7)."""
    disk = _played(MADE, (Sort.WRITTEN, MAIN, 0, b"x"), (Sort.SYNCED, MAIN, 0, b""))
    assert set(_outcomes(disk)) == {(), ((MAIN, b"x"),)}
    disk.play(Step(Sort.FOLDER_SYNCED, "", 0, b""))
    for step in ((Sort.CREATED, b""), (Sort.WRITTEN, b"1"), (Sort.SYNCED, b""), (Sort.FOLDER_SYNCED, b"")):
        disk.play(Step(step[0], WAL, 0, step[1]))
    disk.play(Step(Sort.DELETED, WAL, 0, b""))
    disk.play(Step(Sort.CREATED, WAL, 0, b""))
    disk.play(Step(Sort.WRITTEN, WAL, 0, b"2"))
    disk.play(Step(Sort.SYNCED, WAL, 0, b""))
    sure = (MAIN, b"x")
    assert set(_outcomes(disk)) == {(sure,), (sure, (WAL, b"1")), (sure, (WAL, b"2"))}
    assert disk.after_loss(random.Random(0), NOTHING).misplaced == {WAL}
    disk.play(Step(Sort.FOLDER_SYNCED, "", 0, b""))
    assert set(_outcomes(disk)) == {(sure, (WAL, b"2"))}


SHORT = ("--workloads", "1", "--processes", "1")


@pytest.mark.slow
def test_no_mode_loses_more_than_it_says_and_no_file_is_damaged(capsys: pytest.CaptureFixture[str]) -> None:
    """At random places of a random log, in every mode: nothing acknowledged is lost that the mode keeps (G2, §7).

    The log is the same in each run of the suite; new ones are searched by the command.
    """
    status = powerloss.main(["--images", "800", "--verbs", "40", "--seed", "1", "--json", *SHORT])
    told = json.loads(capsys.readouterr().out)
    assert told["broken"] == []
    assert status == 0
    rows = {row["mode"]: row for row in told["tables"]["what was left"]}
    assert set(rows) == {"full", "enqueue", "normal", "mixed"}
    for row in rows.values():
        assert row["images"] == 200
        assert row["distinct"] > 50
        assert row["commits"] > 10
        assert row["by the package"] > 0
    assert rows["full"]["most commits behind"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("control", powerloss.CONTROLS)
def test_the_harness_finds_every_sabotage(control: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without syncs, on a disk that lies, with a folder that is forgotten or an early answer, promises break (§7)."""
    status = powerloss.main(["--images", "150", "--verbs", "20", "--seed", "1", "--control", control, "--json", *SHORT])
    told = json.loads(capsys.readouterr().out)
    assert status == 1
    assert told["broken_count"] > 5
    assert told["tables"]["what was left"][0]["acknowledged lost"] > 0


@pytest.mark.slow
def test_a_log_can_be_had_again_and_has_all_that_a_power_loss_may_meet(tmp_path: Path) -> None:
    """The same seed makes the same log: creation by a rollback journal, checkpoints, logs begun anew, deletions."""
    logs = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        workload = powerloss.recorded(folder / "app.log", 5, "normal", 60, None)
        assert workload.broken == []
        logs.append(load(folder / "app.log"))
    assert [step[:3] for step in logs[0]] == [step[:3] for step in logs[1]]  # the data has the process id
    log = logs[0]
    assert {step.suffix for step in log if step.sort is Sort.DELETED} == {WAL, JOURNAL}
    asked = {step.number & ~apsw.SQLITE_SYNC_DATAONLY for step in log if step.sort is Sort.SYNCED}
    assert asked == {apsw.SQLITE_SYNC_FULL}, "macOS syncs only the system's own cache otherwise"
    headers = [at for at, step in enumerate(log) if step[:3] == (Sort.WRITTEN, WAL, 0)]
    created = [at for at, step in enumerate(log) if step[:2] == (Sort.CREATED, WAL)]
    assert len(headers) > len(created) > 1, "a log was written over from its start"
    assert sum(step[:3] == (Sort.WRITTEN, MAIN, 0) for step in log) > 3, "the creation writes it twice"
