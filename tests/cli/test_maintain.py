"""`maintain`: one pass, or a process of its own that is told to stop, stands by, and takes over."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from litequeue import JobState, Maintenance, MaintenanceReport, Queue
from litequeue.cli.maintain import _text
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from uuid import UUID

    from tests.cli.conftest import Cli, Processes
    from tests.conftest import MakeQueue

LEFT = r"(; \d+ pages? left in the write-ahead log of [\d,]+ bytes)?"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the signals and locks here are POSIX")


@pytest.fixture
def past(make_queue: MakeQueue, db: Path) -> Queue:
    """Give a handle on `db` whose clocks are in the past, so that what it makes due later is due to the command now."""
    return make_queue(path=db, clock=FakeClock())


def make_due(past: Queue) -> UUID:
    """Enqueue a job that maintenance will promote at once."""
    return past.enqueue("work", delay=1).job_id


def test_a_report_tells_what_went_back_to_the_disk_and_who_holds_the_log() -> None:
    """The bytes given back, and for how long a reader has kept the log from being copied back (V11)."""
    report = MaintenanceReport(0, 0, 0, 4, 9, 0, 2, 3_000_000, wal_pages=12, wal_bytes=70_000, wal_held_s=1_234)
    assert _text(report) == (
        "told 4, pruned 9, fired 2; 3,000,000 bytes given back; "
        "12 pages left in the write-ahead log of 70,000 bytes, which a reader has held for 1,234 s"
    )
    assert _text(replace(report, told=0, pruned=0, fired=0, wal_pages=0)) == "3,000,000 bytes given back"
    assert _text(MaintenanceReport(*[0] * 11)) == "nothing was due"


def test_once_does_one_pass_and_prints_its_report(cli: Cli, past: Queue, crash: Callable[[Queue], None]) -> None:
    """Reap, promote, expire and prune, each counted; a second pass finds nothing to do: status 3 (V11, §9)."""
    finished = past.enqueue("work").job_id
    lease = past.lease_next()
    assert lease is not None
    lease.complete()
    held = past.enqueue("work").job_id
    assert past.lease_next() is not None
    due, late = make_due(past), past.enqueue("work", expires=1).job_id
    crash(past)
    outcome = cli("maintain", "--once")
    assert outcome.status == 0
    assert outcome.only_complaint() == f"job {late} (work) is dead: expired"
    assert re.fullmatch(f"reaped 1, promoted 1, expired 1, pruned 1{LEFT}", outcome.out.strip())
    states = {line.split()[0]: line.split()[1] for line in cli.done("jobs", "ls").splitlines()[1:]}
    assert states == {str(held): "retryable", str(due): "pending", str(late): "dead"}
    assert str(finished) not in states
    again = cli("maintain", "--once")
    assert (again.status, again.err) == (3, "")
    assert re.fullmatch(f"nothing was due{LEFT}", again.out.strip())


def test_a_dead_letter_is_a_warning_on_standard_error(cli: Cli, past: Queue, crash: Callable[[Queue], None]) -> None:
    """Somebody should know: the job and the cause, in one line (V11, G6)."""
    job_id = past.enqueue("work", max_attempts=1).job_id
    assert past.lease_next() is not None
    crash(past)
    outcome = cli("maintain", "--once")
    assert outcome.status == 0
    assert outcome.only_complaint() == f"job {job_id} (work) is dead: lease expired"


def test_once_and_every_exclude_each_other(cli: Cli) -> None:
    """One pass has no interval (§9)."""
    cli.done("init")
    line = cli("maintain", "--once", "--every", "5").line_of_failure(2)
    assert line == "--once and --every exclude each other"


def test_a_signal_may_come_while_a_lock_is_held(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler runs between any two steps of the main thread, so it must not need what a pass may be holding.

    Timeline: the pass takes a lock; the signal comes; the handler asks the pass to stop, for which it needs that lock.
    In one and the same thread this waits for ever.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    lock, stopped, gave_way = threading.Lock(), threading.Event(), threading.Event()

    def run(_self: Maintenance, _every: float | None) -> None:
        with lock:
            os.kill(os.getpid(), signal.SIGTERM)
        stopped.wait()

    def stop(_self: Maintenance) -> None:
        if lock.acquire(timeout=5):
            gave_way.set()
            lock.release()
        stopped.set()

    monkeypatch.setattr(Maintenance, "run", run)
    monkeypatch.setattr(Maintenance, "stop", stop)
    cli.done("init")
    try:
        cli.done("maintain")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert gave_way.is_set()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_at_once(processes: Processes, past: Queue, number: signal.Signals) -> None:
    """A line for the pass that did something, then status 0 without waiting for the next pass (§9)."""
    job_id = make_due(past)
    process = processes.start("maintain")
    line = processes.next_line(process)
    moment, _, report = line.partition(" ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", moment)
    assert re.fullmatch(f"promoted 1{LEFT}", report)
    assert past.get(job_id).state is JobState.PENDING
    process.send_signal(number)
    outcome = processes.outcome(process)
    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")


@pytest.mark.slow
def test_signals_that_come_in_a_storm_end_it_as_cleanly(processes: Processes, past: Queue) -> None:
    """A supervisor that repeats itself, while it stops and closes: status 0 all the same (§9)."""
    make_due(past)
    process = processes.start("maintain", "--every", "0.001")
    processes.next_line(process)
    for _ in range(200):
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
    assert processes.outcome(process).status == 0


@pytest.mark.slow
def test_it_goes_on_by_its_interval_and_is_silent_about_idle_passes(processes: Processes, past: Queue) -> None:
    """Each pass that did something prints a line; many that did nothing lie between, and print none (§9)."""
    make_due(past)
    process = processes.start("maintain", "--every", "0.01")
    for _ in range(3):
        assert "promoted 1" in processes.next_line(process)
        make_due(past)
    assert "promoted 1" in processes.next_line(process)
    process.send_signal(signal.SIGTERM)
    outcome = processes.outcome(process)
    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")


@pytest.mark.slow
def test_it_follows_the_interval_in_the_file(processes: Processes, past: Queue) -> None:
    """Without `--every` the setting `reaper_interval` counts (§5)."""
    past.set("reaper_interval", 0.01)
    make_due(past)
    process = processes.start("maintain")
    assert "promoted 1" in processes.next_line(process)
    make_due(past)
    assert "promoted 1" in processes.next_line(process)
    process.send_signal(signal.SIGTERM)
    assert processes.outcome(process).status == 0


@pytest.mark.slow
def test_a_second_one_stands_by_and_takes_over_when_the_first_is_killed(
    processes: Processes, past: Queue, db: Path
) -> None:
    """One maintains; the other waits, says so, and goes on at once after a SIGKILL (issue 2, item 6)."""
    make_due(past)
    leader = processes.start("maintain", "--every", "1h")
    assert "promoted 1" in processes.next_line(leader)
    second = processes.start("maintain", "--every", "1h")
    standing_by = f"litequeue: another process maintains {db}: standing by"
    assert processes.next_line(second, "stderr") == standing_by
    job_id = make_due(past)  # the leader sleeps for an hour, so only a successor will promote it
    leader.kill()
    assert processes.next_line(second, "stderr") == f"litequeue: taking over the maintenance of {db}"
    assert "promoted 1" in processes.next_line(second)
    assert past.get(job_id).state is JobState.PENDING
    second.send_signal(signal.SIGTERM)
    outcome = processes.outcome(second)
    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")


@pytest.mark.slow
def test_one_that_stands_by_ends_cleanly_too(processes: Processes, past: Queue) -> None:
    """SIGTERM while waiting for the lead: status 0, and the leader is not disturbed (§9)."""
    make_due(past)
    leader = processes.start("maintain", "--every", "0.01")
    processes.next_line(leader)
    second = processes.start("maintain")
    assert "standing by" in processes.next_line(second, "stderr")
    second.send_signal(signal.SIGTERM)
    assert processes.outcome(second).status == 0
    make_due(past)
    assert "promoted 1" in processes.next_line(leader)
    leader.send_signal(signal.SIGTERM)
    assert processes.outcome(leader).status == 0


@pytest.mark.slow
def test_once_works_beside_a_maintainer(processes: Processes, past: Queue, cli: Cli) -> None:
    """`--once` asks nobody for the lead: an operator wants it done now (issue 2, item 6)."""
    make_due(past)
    leader = processes.start("maintain", "--every", "1h")
    processes.next_line(leader)
    make_due(past)
    assert "promoted 1" in cli.done("maintain", "--once")
    leader.send_signal(signal.SIGTERM)
    assert processes.outcome(leader).status == 0


@pytest.mark.slow
def test_a_file_that_is_moved_away_ends_it_with_an_error(processes: Processes, past: Queue, db: Path) -> None:
    """Status 1 and one line: the file underneath is no longer the one that was opened (§6)."""
    make_due(past)
    process = processes.start("maintain", "--every", "0.01")
    processes.next_line(process)
    past.close()
    db.rename(db.with_name("elsewhere.queue"))
    outcome = processes.outcome(process)
    assert outcome.line_of_failure(1).startswith(f"{db} ")


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_it_without_a_traceback(processes: Processes, past: Queue) -> None:
    """`litequeue maintain | head -1` ends at the second line that nobody reads (§9)."""
    make_due(past)
    process = processes.start("maintain", "--every", "0.01")
    processes.next_line(process)
    assert process.stdout is not None
    process.stdout.close()
    make_due(past)
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait() == 1
