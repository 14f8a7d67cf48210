"""`bench`: this machine, this disk, what can one expect; in files of its own, and nothing is left behind (issue 8)."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from click.testing import CliRunner

from litequeue import JobState, bench
from litequeue.cli import litequeue as command
from litequeue.sqlite import filesystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Queue
    from litequeue.sqlite.store import Durability
    from tests.cli.conftest import Cli

ALL: tuple[Durability, ...] = ("full", "enqueue", "normal")


def ticking(step_ns: int) -> Callable[[], int]:
    """Give a clock by which each call takes so long."""
    now = 0

    def tick() -> int:
        nonlocal now
        now += step_ns
        return now

    return tick


def test_rates_are_those_of_the_clock_and_pragmas_those_of_the_connection(tmp_path: Path) -> None:
    """By a clock by which each call takes 50 ms; `synchronous` is read back where the work was done (§7)."""
    told: list[tuple[int, int]] = []
    report = bench.measure(str(tmp_path), ALL, 1.8, progress=lambda *at: told.append(at), clock=ticking(50_000_000))
    assert report.rounds == 3
    assert told == [(step, 36) for step in range(1, 37)]
    assert list(tmp_path.iterdir()) == []
    assert len(report.results) == 12
    for one in report.results:
        rate = 20.0 * one.work.batch
        assert one.jobs_per_s == pytest.approx((rate, rate, rate))
        assert one.p50_us == one.p99_us == (50_000, 50_000, 50_000)
        assert (one.pragmas.journal_mode, one.pragmas.page_size) == ("wal", 2048)
    assert [(one.durability, one.work.is_enqueue, one.pragmas.synchronous) for one in report.results] == [
        (durability, is_enqueue, 1 if durability == "normal" or (durability == "enqueue" and not is_enqueue) else 2)
        for durability in ALL
        for is_enqueue in (True, False, True, False)
    ]


def test_what_is_measured_is_really_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are enqueued and completed, as many as are counted, and none is leased in vain."""
    left: list[tuple[int, int]] = []
    stand = bench._Stand
    timed = stand.timed

    def look(self: bench._Stand, work: bench.Work) -> bench._Sample:
        before = self.queue.stats()
        sample = timed(self, work)
        after = self.queue.stats()
        left.append((work.batch, sample.jobs))
        if work.is_enqueue:
            assert after.total - before.total == sample.jobs
        else:
            ended = [stats.counts[JobState.COMPLETED] for stats in (before, after)]
            assert ended[1] - ended[0] == sample.jobs
        return sample

    monkeypatch.setattr(stand, "timed", look)
    monkeypatch.setattr(bench, "WORKS", bench.WORKS[::-1])  # so that there is nothing to lease at first
    bench.measure(str(tmp_path), ("normal",), 1.2, clock=ticking(5_000_000))
    assert left == [(100, 2_000), (100, 2_000), (1, 20), (1, 20)] * 3


def test_the_file_that_is_named_is_not_touched(cli: Cli, queue: Queue, db: Path) -> None:
    """It is measured beside it, on the same disk; the file need not be there (issue 8)."""
    queue.enqueue("work")
    queue.close()
    before = {path.name: path.read_bytes() for path in db.parent.iterdir()}
    found = cast("dict[str, object]", json.loads(cli.done("bench", "--time", "1s", "--durability", "normal", "--json")))
    assert {path.name: path.read_bytes() for path in db.parent.iterdir()} == before
    assert found["folder"] == str(db.parent)
    assert found["file_system"] == filesystem.kind_of(str(db.parent))
    results = cast("list[dict[str, object]]", found["results"])
    assert [(one["work"], one["at_once"], one["synchronous"]) for one in results] == [
        ("enqueue", 1, 1),
        ("lease and complete", 1, 1),
        ("enqueue", 100, 1),
        ("lease and complete", 100, 1),
    ]
    rate = cast("dict[str, float]", results[0]["jobs_per_s"])
    assert 0 < rate["least"] <= rate["median"] <= rate["most"]


def test_a_person_reads_rates_their_spread_and_how_they_reach_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table for each durability; the current folder where nothing else is named."""
    monkeypatch.delenv("LITEQUEUE_DB", raising=False)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command, ["bench", "--time", "1s", "--durability", "normal"])
    assert (result.exit_code, result.stderr) == (0, "")
    first, second, _, durability, heading, *rows = result.stdout.splitlines()
    assert first.startswith(f"{tmp_path}, file system ")
    assert first.endswith("page size 2048, journal mode wal")
    assert second == "jobs of 100 bytes, 3 rounds"
    assert durability == "durability normal: synchronous is normal (1)"
    assert heading.split() == ["WORK", "AT", "ONCE", "JOBS/S", "BETWEEN", "P50", "P99"]
    assert [row.split("  ")[0] for row in rows] == ["enqueue", "lease and complete"] * 2
    assert max(map(len, (heading, *rows))) <= 80
    assert list(tmp_path.iterdir()) == []


def test_where_there_is_too_little_room_nothing_is_made(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not fill a disk that a queue needs; the line has both numbers (issue 8)."""
    monkeypatch.setattr(filesystem, "free_bytes", lambda _: bench.ROOM_BYTES - 1)
    line = cli("bench").line_of_failure(1)
    assert line == f"{tmp_path} has 134,217,727 bytes free; a run needs 134,217,728"
    assert list(tmp_path.iterdir()) == []


def test_bounds_and_folders_are_checked_before_anything_is_made(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the bounds, or the folder (§9)."""
    assert cli("bench", "--time", "0.5").line_of_failure(2) == "--time is 0.5 s; it must be 1 to 300 s"
    assert cli("bench", "--time", "1h").line_of_failure(2) == "--time is 3600 s; it must be 1 to 300 s"
    nowhere = tmp_path / "nowhere"
    line = cli("bench", "--folder", nowhere).line_of_failure(1)
    assert line == f"cannot measure in {nowhere}: there is no such folder"
    monkeypatch.setattr(os, "access", lambda *_: False)
    line = cli("bench", "--folder", tmp_path).line_of_failure(1)
    assert line.startswith(f"cannot measure in {tmp_path}: no permission to write there (it")
    result = CliRunner().invoke(command, ["--db", "a", "--db", "b", "bench"])
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="the signals here are POSIX")
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_it_at_once_and_nothing_is_left_behind(cli: Cli, tmp_path: Path, number: str) -> None:
    """In the midst of its work, with status 130 and one line (§9)."""
    has_begun = threading.Event()

    def interrupt() -> None:
        while not list(tmp_path.glob(f"{bench.FOLDER_PREFIX}*/*")):
            has_begun.wait(0.01)
        os.kill(os.getpid(), signal.Signals[number])

    thread = threading.Thread(target=interrupt)
    thread.start()
    outcome = cli("bench", "--time", "300s")
    thread.join()
    assert outcome.line_of_failure(130) == "interrupted"
    assert list(tmp_path.iterdir()) == []
