"""The command as a process: pipes, terminals, full disks and locales, and never a traceback (§9)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import NewJob

if TYPE_CHECKING:
    from litequeue import Queue
    from tests.cli.conftest import Cli, Processes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="the pipes, terminals and devices here are POSIX"),
]


def test_the_module_and_the_script_are_the_same_command(processes: Processes, db: Path) -> None:
    """`python -m litequeue` and `litequeue` (§9)."""
    job_id = processes.run("enqueue", "work", "1").out.strip()
    script = Path(sys.executable).with_name("litequeue")
    if not script.exists():
        pytest.skip("the package is not installed with its script")
    shown = subprocess.run(
        [script, "jobs", "show", job_id], env={"LITEQUEUE_DB": str(db)}, capture_output=True, check=True
    )
    assert job_id.encode() in shown.stdout


def test_a_pipe_feeds_jobs_as_they_are_written(processes: Processes, queue: Queue) -> None:
    """Through a real pipe, in pieces that do not end where lines do."""
    process = processes.start("enqueue", "work", "--lines", stdin=subprocess.PIPE)
    assert process.stdin is not None
    for piece in ("1\n[2", ",3]\n", '"é"'):
        process.stdin.write(piece)
        process.stdin.flush()
    outcome = processes.outcome(process)
    assert (outcome.status, outcome.out, outcome.err) == (0, "3 jobs enqueued\n", "")
    assert [job.payload for job in queue.list()] == [1, [2, 3], "é"]


@pytest.mark.parametrize("words", [["jobs", "ls"], ["jobs", "ls", "--json"]])
def test_a_reader_that_goes_away_is_no_traceback(processes: Processes, queue: Queue, words: list[str]) -> None:
    """`litequeue jobs ls | head -1`: more than a pipe holds, and nobody who reads it (§9)."""
    queue.enqueue_many(NewJob("work", n) for n in range(2000))
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as nobody:
        process = processes.start(*words, "--limit", "2000", stdout=nobody)
    outcome = processes.outcome(process)
    assert (outcome.status, outcome.err) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_output_that_cannot_be_written_is_an_error(processes: Processes, queue: Queue) -> None:
    """`litequeue stats > /dev/full`: one line, status 1 (§9)."""
    queue.enqueue("work")
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        process = processes.start("stats", stdout=full)
    assert processes.outcome(process).line_of_failure(1) == "No space left on device"


def test_a_terminal_is_not_waited_for(processes: Processes, queue: Queue) -> None:
    """Without PAYLOAD and at a terminal, the job has none; nobody has to press Ctrl-D."""
    leader, terminal = os.openpty()
    with os.fdopen(leader, "rb"), os.fdopen(terminal, encoding="utf-8") as stdin:
        outcome = processes.outcome(processes.start("enqueue", "work", stdin=stdin))
    assert (outcome.status, outcome.err) == (0, "")
    assert [job.payload for job in queue.list()] == [None]


def test_a_closed_standard_input_is_no_traceback(processes: Processes, queue: Queue) -> None:
    """Under a supervisor that closes it: no payload, or an error when one was asked for (§9)."""
    outcome = processes.run("enqueue", "work", before=lambda: os.close(0))
    assert (outcome.status, outcome.err) == (0, "")
    assert [job.payload for job in queue.list()] == [None]
    for words in (["enqueue", "work", "-"], ["enqueue", "work", "--lines"]):
        assert processes.run(*words, before=lambda: os.close(0)).line_of_failure(1) == "standard input is closed"


def test_a_terminal_that_lacks_characters_is_no_traceback(processes: Processes, queue: Queue) -> None:
    """In a locale that is not UTF-8, what cannot be printed is escaped (§9)."""
    job_id = queue.enqueue("work", "€").job_id
    process = processes.start("jobs", "show", str(job_id), environment={"PYTHONIOENCODING": "latin-1"})
    outcome = processes.outcome(process)
    assert (outcome.status, outcome.err) == (0, "")
    assert r'"\u20ac"' in outcome.out


def test_an_argument_that_is_not_utf8_is_wrong_usage(cli: Cli, db: Path) -> None:
    """Bytes on the command line that are no text: one line, no file (§6)."""
    command: list[str | bytes] = [sys.executable, "-m", "litequeue", "--db", str(db), "enqueue", b"caf\xe9", "1"]
    outcome = subprocess.run(command, capture_output=True, check=False)
    assert (outcome.returncode, outcome.stdout) == (2, b"")
    assert outcome.stderr.startswith(b"litequeue: KIND must be ")
    assert outcome.stderr.count(b"\n") == 1
    assert not cli.path.exists()


def test_a_job_enqueued_by_one_process_is_worked_off_by_another(processes: Processes, db: Path) -> None:
    """The command and the library share the file (G2)."""
    assert processes.run("enqueue", "work", '{"n": 1}').status == 0
    with litequeue.open(db, create=False) as queue:
        lease = queue.lease_next()
        assert lease is not None
        lease.complete(lease.payload)
    assert '"result": {"n": 1}' in processes.run("jobs", "ls", "--json").out
