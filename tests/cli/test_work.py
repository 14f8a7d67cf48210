"""`work` as a process: signals, the drain, the live line on a terminal, and never a traceback (issue 5)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from litequeue import JobState

if sys.platform == "win32":
    pytest.skip("the signals, pipes and terminals here are POSIX", allow_module_level=True)

from tests.cli.screen import Screen, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from litequeue import Queue
    from tests.cli.conftest import Processes

pytestmark = pytest.mark.slow

MODULE = '''
import os, subprocess, sys, threading
import litequeue

def held(lease):
    """Runs until a line comes on standard input; then it has had its effect."""
    print("running", flush=True)
    sys.stdin.readline()
    return "done"

def listening(lease):
    """Runs until it is told to stop."""
    print("running", flush=True)
    while not lease.cancelled:
        threading.Event().wait(0.001)
    raise RuntimeError("told to stop")

def deaf(lease):
    """Runs for ever, and so does a thread that it has started."""
    threading.Thread(target=threading.Event().wait, daemon=False).start()
    print("running", flush=True)
    threading.Event().wait()

def checkpointed(lease):
    lease.checkpoint(b"page 3", progress=0.25, note="three of twelve")
    lease.note("a long page")
    lease.checkpoint(b"page 6", progress=0.5, note="six of twelve")
    held(lease)

def chatty(lease):
    """Writes in every way there is."""
    number = lease.payload
    print("printed", number)
    sys.stderr.write(f"complained {number}\\n")
    os.write(1, b"wri")
    os.write(1, f"tten {number}\\n".encode())
    subprocess.run(["echo", "echoed", str(number)], check=True)

def failing(lease):
    raise ValueError(f"bad {lease.payload}")

handlers = {name: globals()[name] for name in ("held", "listening", "deaf", "checkpointed", "chatty", "failing")}
'''


@pytest.fixture
def app(db: Path, queue: Queue) -> Path:
    """Give a module `app` beside the queue."""
    assert queue.path == str(db)
    path = db.with_name("app.py")
    path.write_text(MODULE, encoding="utf-8")
    return path


@pytest.fixture
def start(processes: Processes, app: Path) -> Callable[..., subprocess.Popen[str]]:
    """Give what starts `work` on the module; the handlers hear of standard input."""
    assert app.exists()

    def go(*words: str) -> subprocess.Popen[str]:
        return processes.start("work", "app:handlers", "--no-maintenance", *words, stdin=subprocess.PIPE)

    return go


def let_end(process: subprocess.Popen[str]) -> None:
    """Let a held handler end."""
    assert process.stdin is not None
    process.stdin.write("go on\n")
    process.stdin.flush()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_runs_end_and_leases_no_more(
    start: Callable[..., subprocess.Popen[str]], processes: Processes, queue: Queue, number: signal.Signals
) -> None:
    """The running job is completed, the waiting one is untouched, and the status is 0 (item 6)."""
    running, waiting = queue.enqueue("held").job_id, queue.enqueue("held").job_id
    process = start("--concurrency", "1")
    assert processes.next_line(process) == "running"
    process.send_signal(number)
    while "stopping: 1 job may run on for up to" not in processes.next_line(process, "stderr"):
        pass
    let_end(process)
    outcome = processes.outcome(process)
    assert (outcome.status, outcome.out) == (0, "")
    assert outcome.err.splitlines()[-1].endswith(
        "ended: completed 1, failed 0, dead 0, snoozed 0, released 0, interrupted 0, lost 0"
    )
    assert queue.get(running).result == "done"
    assert (queue.get(waiting).state, queue.get(waiting).attempts) == (JobState.PENDING, 0)


@pytest.mark.parametrize("kind", ["listening", "deaf"])
@pytest.mark.parametrize("is_told_twice", [False, True])
def test_what_does_not_end_in_time_is_given_back(
    start: Callable[..., subprocess.Popen[str]], processes: Processes, queue: Queue, kind: str, *, is_told_twice: bool
) -> None:
    """After the drain, or at the second signal: pending, no attempt counted, another may lease it; status 4 (item 6).

    The process waits for no thread then, or the handler would go on beside whoever has its job.
    """
    job_id = queue.enqueue(kind).job_id
    process = start("--drain-timeout", "1h" if is_told_twice else "0s")
    assert processes.next_line(process) == "running"
    process.send_signal(signal.SIGTERM)
    if is_told_twice:
        while "stopping: 1 job may run on for up to" not in processes.next_line(process, "stderr"):
            pass
        process.send_signal(signal.SIGTERM)
    outcome = processes.outcome(process)
    assert outcome.status == 4
    assert outcome.err.splitlines()[-1] == "litequeue: 1 running job given back"
    job = queue.get(job_id)
    assert (job.state, job.attempts, job.reaps) == (JobState.PENDING, 0, 0)
    lease = queue.lease_next()
    assert lease is not None
    assert lease.job_id == job_id


def test_signals_in_a_storm_end_it_as_cleanly(
    start: Callable[..., subprocess.Popen[str]], processes: Processes, queue: Queue
) -> None:
    """A supervisor that repeats itself, while it gives back, closes and ends: no traceback, nothing left leased."""
    job_id = queue.enqueue("listening").job_id
    process = start()
    assert processes.next_line(process) == "running"
    for _ in range(200):
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
    outcome = processes.outcome(process)
    assert outcome.status == 4
    assert "Traceback" not in outcome.err
    assert queue.get(job_id).state is JobState.PENDING


@pytest.mark.parametrize("mode", ["threads", "processes", "asyncio"])
def test_each_mode_works_the_queue_off(
    start: Callable[..., subprocess.Popen[str]], processes: Processes, queue: Queue, mode: str
) -> None:
    """The module is found from the current folder in child processes, too; one line an end (items 3 and 10)."""
    ids = [queue.enqueue("chatty", number).job_id for number in range(3)]
    failed = queue.enqueue("failing", "\x1b[2Jluck", max_attempts=1).job_id
    outcome = processes.outcome(start("--mode", mode, "--until-empty", "--concurrency", "1"))
    assert outcome.status == 0
    assert [queue.get(job_id).state for job_id in ids] == [JobState.COMPLETED] * 3
    assert queue.get(failed).state is JobState.DEAD
    ends = re.findall(r"^\S+Z (?:INFO   |WARNING) (completed|failed|dead) \w+ (\S+), ", outcome.err, re.MULTILINE)
    assert sorted(ends) == sorted(("completed", str(job_id)) for job_id in ids)
    assert len(re.findall(str(failed), outcome.err)) == 1
    assert f"Z WARNING job {failed} (failing) is dead: ValueError: bad \\u001b[2Jluck\n" in outcome.err
    assert "\x1b" not in outcome.err
    assert sorted(outcome.out.split("\n")) == sorted(
        ["", *(f"{word} {number}" for number in range(3) for word in ("printed", "written", "echoed"))]
    )


def test_a_running_job_shows_how_far_it_is(
    start: Callable[..., subprocess.Popen[str]], processes: Processes, queue: Queue
) -> None:
    """`jobs show` has the progress, the note, the checkpoint and the log of a job while it runs (item 10, V5)."""
    job_id = str(queue.enqueue("checkpointed").job_id)
    process = start()
    assert processes.next_line(process) == "running"
    shown = processes.run("jobs", "show", job_id, "--utc").out
    fields = dict(line.split(None, 1) for line in shown.splitlines() if not line.startswith(" ") and " " in line)
    assert (fields["state"], fields["progress"], fields["note"]) == ("leased", "50%", "six of twelve")
    assert (fields["checkpoints"], fields["continuation"]) == ("2", '{"$bytes": "cGFnZSA2"}')
    events = re.findall(r"^  \S+ \S+Z \([^)]*\) +(\w+) *(.*)$", shown, re.MULTILINE)
    assert [name for name, _ in events] == ["enqueued", "leased", "note", "checkpoint"]
    assert events[2:] == [("note", "a long page"), ("checkpoint", "2 times")]
    assert "50% six of twelve" in processes.run("jobs", "ls").out
    let_end(process)
    process.send_signal(signal.SIGTERM)
    assert processes.outcome(process).status == 0
    assert queue.get(job_id).progress is None


def test_a_log_that_nobody_reads_does_not_end_the_work(
    start: Callable[..., subprocess.Popen[str]], processes: Processes, queue: Queue
) -> None:
    """Whoever reads the log may go away: jobs go on, and no traceback takes their place (item 7)."""
    process = start()
    processes.next_line(process, "stderr")
    assert process.stderr is not None
    process.stderr.close()
    job_id = queue.enqueue("failing", "it").job_id
    while queue.get(job_id).state is not JobState.RETRYABLE:
        assert process.poll() is None
    queue.enqueue("held")
    assert processes.next_line(process) == "running"
    let_end(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """Give a terminal."""
    terminal = Terminal()
    yield terminal
    terminal.close()


@pytest.fixture
def at_terminal(processes: Processes, app: Path, terminal: Terminal) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Give what starts `work` on the module, with the terminal as its own."""
    assert app.exists()

    def go(*words: str, term: str = "xterm") -> subprocess.Popen[str]:
        with os.fdopen(os.dup(terminal.descriptor), "r+b", buffering=0) as stream:
            return processes.start(
                *("work", "app:handlers", "--no-maintenance", *words),
                stdin=stream.fileno(),
                stdout=stream.fileno(),
                stderr=stream.fileno(),
                environment={"TERM": term},
                before=terminal.take_over,
            )

    yield go
    processes.end()


NUMBERS = r"running (\d+)   done (\d+)   failed (\d+)   ([\d.,]+)/s   backlog (\d+)"


def bottom(terminal: Terminal) -> re.Match[str] | None:
    """Return the numbers of the live line, when there is one."""
    return re.fullmatch(rf"(?:stopping   )?{NUMBERS}", terminal.screen.lines()[-1])


def has_seen(screen: Screen, text: str, times: int) -> bool:
    """Tell whether something has been written so often above the last row."""
    return "".join(screen.scrolled()).count(text) == times


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_the_live_line_stays_below_whatever_handlers_write(
    at_terminal: Callable[..., subprocess.Popen[str]], terminal: Terminal, queue: Queue, mode: str
) -> None:
    """Prints, raw writes, child processes and the log: each line whole, above a line with the numbers (item 10)."""
    for number in range(20):
        queue.enqueue("chatty", number)
    queue.enqueue("failing", "luck")
    queue.enqueue("listening")
    queue.enqueue("listening")
    process = at_terminal("--concurrency", "1", "--mode", mode, "--drain-timeout", "0s")
    terminal.wait_for(lambda _: (line := bottom(terminal)) and line[1] == "1" and line[3] == "1" and line[5] == "1")
    line = bottom(terminal)
    assert line is not None
    assert line[2] == "20"
    terminal.type("\x03")  # Ctrl-C
    assert process.wait(timeout=60) == 4
    terminal.wait_for(lambda screen: any("given back" in line for line in screen.lines()))
    assert terminal.screen.is_whole
    lines = terminal.screen.scrolled()
    assert not [line for line in lines if re.search(NUMBERS, line)]
    written = [f"{word} {n}" for n in range(20) for word in ("printed", "complained", "written", "echoed")]
    assert sorted(
        line for line in lines if line.split()[0] in {"printed", "complained", "written", "echoed"}
    ) == sorted(written)
    assert [line for line in lines if "WARNING failed failing" in line]
    assert not [line for line in lines if "completed chatty" in line]
    assert [line for line in lines if " stopping" in line]


SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
while os.WIFSTOPPED((status := os.waitpid(child, os.WUNTRACED)[1])):
    os.tcsetpgrp(0, os.getpgrp())
    print("stopped", flush=True)
    while (word := sys.stdin.readline().strip()):
        if word == "fg":
            os.tcsetpgrp(0, child)
        os.kill(child, signal.SIGCONT)
        if word == "fg":
            break
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""As much of a shell as has job control: Ctrl-Z stops nobody whose parent is in another session."""


def test_the_terminal_is_whole_while_the_process_is_stopped_or_in_the_background(
    db: Path, app: Path, terminal: Terminal, queue: Queue
) -> None:
    """Ctrl-Z gives the terminal back, `bg` draws nothing into it, and with `fg` the line is there again (item 10)."""
    assert app.exists()
    queue.enqueue("listening")
    words = ["--db", str(db), "work", "app:handlers", "--no-maintenance", "--drain-timeout", "0s"]
    with subprocess.Popen(
        [sys.executable, "-c", SHELL, sys.executable, "-m", "litequeue", *words],
        stdin=terminal.descriptor,
        stdout=terminal.descriptor,
        stderr=terminal.descriptor,
        cwd=db.parent,
        env={**os.environ, "TERM": "xterm"},
        preexec_fn=terminal.take_over,  # noqa: PLW1509 - no other thread of ours holds a lock that the child would need
    ) as shell:
        try:
            for times in (1, 2):
                terminal.wait_for(lambda _: (line := bottom(terminal)) and line[1] == "1")
                terminal.type("\x1a")  # Ctrl-Z
                terminal.wait_for(partial(has_seen, text="stopped", times=times))
                assert terminal.screen.is_whole
                assert bottom(terminal) is None
                terminal.type("bg\n")
                queue.enqueue("failing", f"number {times}")
                terminal.wait_for(partial(has_seen, text=f"number {times}", times=1))
                assert terminal.screen.is_whole
                terminal.type("fg\n")
            terminal.wait_for(lambda _: bottom(terminal))
            terminal.type("\x03")
            assert shell.wait(timeout=60) == 4
        finally:
            shell.kill()
    terminal.close()
    assert terminal.screen.is_whole


@pytest.mark.parametrize(("words", "term"), [(["--quiet"], "xterm"), ([], "dumb")])
def test_a_terminal_may_be_left_alone(
    at_terminal: Callable[..., subprocess.Popen[str]], terminal: Terminal, queue: Queue, words: list[str], term: str
) -> None:
    """With `--quiet`, and where a live line cannot be drawn, there are lines only (item 10)."""
    for number in range(3):
        queue.enqueue("failing", number)
    process = at_terminal("--until-empty", *words, term=term)
    assert process.wait(timeout=60) == 0
    terminal.close()
    lines = [*terminal.screen.scrolled(), terminal.screen.lines()[-1]]
    assert sum("WARNING failed failing" in line for line in lines) == 3
    assert sum("INFO" in line for line in lines) == (0 if words else 2)
    assert "running" not in "".join(lines)
