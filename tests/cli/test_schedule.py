"""`schedule`: from a shell (issue 6, §9)."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litequeue import SYSTEM

if TYPE_CHECKING:
    from litequeue import Queue
    from tests.cli.conftest import Cli, Processes


def test_a_schedule_is_declared_with_all_that_it_takes(cli: Cli, queue: Queue) -> None:
    """Each option arrives; the next boundary is printed."""
    words = "--timezone Europe/Berlin --misfire latest --system --priority 7 --max-attempts 3 --expires 5m"
    said = cli.done("schedule", "add", "nightly", "30 2 * * *", "report", '{"day": 1}', *words.split())
    (made,) = queue.schedules()
    assert said == f"next at {made.boundary.replace(tzinfo=None).isoformat()}Z\n"
    assert (made.name, made.spec, made.kind, made.payload) == ("nightly", "30 2 * * *", "report", {"day": 1})
    assert (made.timezone, made.misfire, made.scope, made.priority) == ("Europe/Berlin", "latest", SYSTEM, 7)
    assert (made.max_attempts, made.expires) == (3, 300.0)
    assert cli.done("schedule", "add", "nightly", "30 2 * * *", "report", "--timezone", "Europe/Berlin") == said


def test_schedules_are_listed(cli: Cli, queue: Queue) -> None:
    """A heading and a line each; in JSON every field by its name."""
    assert cli.done("schedule", "ls") == ""
    assert cli.json("schedule", "ls") == []
    made = queue.schedule("tick", "@every 5m", "work", b"\x00", scope=SYSTEM)
    queue.schedule("daily", "@daily", "report", timezone="Europe/Berlin")
    queue.pause_schedule("daily")
    heading, daily, tick = cli.done("schedule", "ls", "--utc").splitlines()
    columns = ["NAME", "SPEC", "ZONE", "KIND", "NEXT (UTC)", "LAST (UTC)", "FIRED", "SKIPPED"]
    assert re.split(r" {2,}", heading) == columns
    assert daily.split() == ["daily", "@daily", "Europe/Berlin", "report", "paused", "-", "0", "0"]
    moment = f"{made.boundary:%Y-%m-%d %H:%M:%S}"
    assert tick.split() == ["tick", "@every", "5m", "UTC", "work", *moment.split(), "-", "0", "0"]
    here = f"{made.boundary.astimezone():%Y-%m-%d %H:%M:%S}"
    heading, _, tick = cli.done("schedule", "ls").splitlines()
    assert ("(UTC)" not in heading, here in tick) == (True, True)
    told = cli.json("schedule", "ls")
    assert isinstance(told, list)
    assert told[1] == {
        "name": "tick",
        "spec": "@every 5m",
        "timezone": "UTC",
        "kind": "work",
        "scope": None,
        "priority": 100,
        "max_attempts": None,
        "expires": None,
        "misfire": "all",
        "is_paused": False,
        "boundary": made.boundary.isoformat(),
        "created_at": made.created_at,
        "last_boundary": None,
        "last_fired_at": None,
        "fired": 0,
        "skipped": 0,
        "payload": {"$bytes": "AA=="},
    }


def test_the_next_boundaries_are_shown_in_the_zone(cli: Cli, queue: Queue) -> None:
    """And in UTC beside it; a paused schedule is said to be one."""
    queue.schedule("daily", "0 12 * * *", "report", timezone="Asia/Kolkata")
    lines = cli.done("schedule", "next", "daily", "-n", 5).splitlines()
    assert len(lines) == 5
    for line in lines:
        local, utc = line.split()
        assert local.endswith("T12:00:00+05:30")
        assert utc.endswith("T06:30:00Z")
    assert cli.json("schedule", "next", "daily", "-n", 5) == [line.split()[0] for line in lines]
    assert cli.done("schedule", "next", "daily") == f"{lines[0]}\n"
    queue.pause_schedule("daily")
    paused = cli("schedule", "next", "daily")
    assert (paused.status, paused.out) == (0, f"{lines[0]}\n")
    assert paused.err == "litequeue: daily is paused: these are its boundaries from where it was\n"
    assert cli("schedule", "next", "daily", "-n", 0).status == 2


def test_a_schedule_is_paused_resumed_run_and_removed(cli: Cli, queue: Queue) -> None:
    """Each by its name, with a line that says so."""
    queue.schedule("tick", "@every 5m", "work", "p")
    assert cli.done("schedule", "pause", "tick") == "paused tick\n"
    assert queue.schedules()[0].is_paused
    job = queue.get(cli.done("schedule", "now", "tick").strip())
    assert (job.kind, job.payload, job.boundary) == ("work", "p", None)
    assert cli.done("schedule", "resume", "tick") == "resumed tick\n"
    assert not queue.schedules()[0].is_paused
    assert cli.done("schedule", "rm", "tick") == "removed tick\n"
    assert queue.schedules() == []


@pytest.mark.parametrize("verb", ["rm", "pause", "resume", "next", "now"])
def test_a_name_that_is_not_there_is_an_error(cli: Cli, queue: Queue, verb: str) -> None:
    """One line, status 1 (§9)."""
    assert queue.schedules() == []
    assert cli("schedule", verb, "nobody").line_of_failure(1) == "no schedule 'nobody'"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["a", "61 * * * *", "work"], "not '61 * * * *'; bad minute"),
        (["a", "@every 0s", "work"], "not '@every 0s'; the interval must be from 1 s to 36,500 d"),
        (["a", "@daily", "work", "--timezone", "Mars/X"], "not 'Mars/X'"),
        (["a", "@daily", "work", "{"], "PAYLOAD is not JSON"),
        (["x" * 201, "@daily", "work"], "NAME must be 1 to 200 characters"),
        (["a", "@daily", "work", "--priority", "256"], "priority must be"),
    ],
)
def test_a_wrong_schedule_is_wrong_usage(cli: Cli, queue: Queue, words: list[str], line: str) -> None:
    """One line that quotes what was given, status 2 (§9)."""
    assert line in cli("schedule", "add", *words).line_of_failure(2)
    assert queue.schedules() == []


@pytest.mark.parametrize("words", [["add", "a", "@daily", "work"], ["ls"], ["rm", "a"], ["next", "a"], ["run"]])
def test_no_schedule_command_makes_a_file(cli: Cli, words: list[str]) -> None:
    """Only `init`, `enqueue` and `restore` do (§9)."""
    assert "make it with" in cli("schedule", *words).line_of_failure(1)
    assert not cli.path.exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the signals here are POSIX")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_fires_until_a_signal(queue: Queue, processes: Processes, number: int) -> None:
    """Status 0, and nothing said; it has fired meanwhile (§9)."""
    queue.schedule("tick", "@every 1s", "work")
    process = processes.start("schedule", "run")
    assert queue.wait(20)
    process.send_signal(number)
    outcome = processes.outcome(process)
    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")
    lease = queue.lease_next()
    assert lease is not None
    assert lease.boundary is not None


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no such lock there")
def test_run_without_its_lock_file_is_an_error(queue: Queue, processes: Processes) -> None:
    """Distinct from a clean end: status 1 and a line (issue 6)."""
    queue.schedule("tick", "@every 1s", "work")
    process = processes.start("schedule", "run")
    assert queue.wait(20)
    Path(f"{queue.path}-schedules").unlink()
    outcome = processes.outcome(process)
    assert outcome.status == 1
    assert outcome.only_complaint().endswith("-schedules was replaced or removed: another process may lead by now")
