"""`events`: what has happened to jobs, and what happens."""

from __future__ import annotations

import json
import re
import select
import signal
import struct
import sys
import time
from typing import TYPE_CHECKING, cast

import pytest

from litequeue import NewJob

if TYPE_CHECKING:
    from litequeue import Queue
    from tests.cli.conftest import Cli, Processes

PIPE_BYTES = 60_000
"""A pipe of 64 KiB that has so many takes no whole write of the command's any more."""


def test_the_last_events_are_listed(cli: Cli, queue: Queue) -> None:
    """A line each, in the order of their times, with their details; nothing in it steers a terminal (issue 8)."""
    job_id = queue.enqueue("mail:send").job_id
    (lease,) = queue.lease_many(1, worker_id="w")
    lease.fail("no \x1b[2J", retryable=False)
    first, *_, last = cli.done("events", "--utc").splitlines()
    assert re.fullmatch(rf"(\d{{4}}-\d\d-\d\d )?\d\d:\d\d:\d\d  enqueued    {job_id}  mail:send", first)
    assert last.split()[1:3] == ["dead", str(job_id)]
    assert "\x1b" not in last
    assert [line.split()[1] for line in cli.done("events", "--limit", "2").splitlines()] == ["failed", "dead"]
    assert cli.done("events", "--limit", "0") == ""
    found = cast("list[dict[str, object]]", cli.json("events"))
    assert [one["transition"] for one in found] == ["enqueued", "leased", "failed", "dead"]
    assert found[1] == {
        "at": queue.get(job_id).leased_at,
        "job_id": str(job_id),
        "scope": "default",
        "kind": "mail:send",
        "transition": "leased",
        "detail": "w",
    }


def test_events_are_those_of_a_kind_and_of_a_scope(cli: Cli, queue: Queue) -> None:
    """As `jobs ls` has it; with all scopes a line says which (issue 8)."""
    queue.enqueue_many([NewJob("mail:send"), NewJob("other"), NewJob("mail:bulk", scope="acme")])
    assert [line.split()[-1] for line in cli.done("events", "--kind", "mail:").splitlines()] == ["mail:send"]
    assert [line.split()[-2:] for line in cli.done("events", "--all-scopes", "--kind", "mail:").splitlines()] == [
        ["in", "default"],
        ["in", "acme"],
    ]
    assert cli.done("events", "--scope", "acme").split()[-1] == "mail:bulk"
    assert cli.json("events", "--scope", "none") == []
    assert "limit" in cli("events", "--limit", "-1").line_of_failure(2)


@pytest.mark.skipif(sys.platform == "win32", reason="the signals here are POSIX")
def test_what_happens_is_written_as_it_happens_until_it_is_told_to_stop(queue: Queue, processes: Processes) -> None:
    """In another process, from its beginning on; SIGTERM and Ctrl-C end it, with status 0 (issue 8)."""
    queue.enqueue("before")
    process = processes.start("events", "--follow", "--limit", "1", "--json")
    assert json.loads(processes.next_line(process))["kind"] == "before"
    (lease,) = queue.lease_many(1)
    lease.complete()
    names = [json.loads(processes.next_line(process))["transition"] for _ in range(2)]
    assert names == ["leased", "completed"]
    process.send_signal(signal.SIGTERM)
    outcome = processes.outcome(process)
    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")


@pytest.mark.skipif(sys.platform == "win32", reason="the signals here are POSIX")
def test_it_ends_though_nobody_reads_its_lines(queue: Queue, processes: Processes) -> None:
    """The pipe is full, and the line that is being written stays unwritten (issue 8)."""
    import fcntl  # noqa: PLC0415 - POSIX
    import termios  # noqa: PLC0415

    process = processes.start("events", "--follow", "--limit", "1", "--json")
    assert process.stdout is not None
    queue.enqueue("before")
    assert select.select([process.stdout], [], [], 30)[0]
    queue.enqueue_many(NewJob("work") for _ in range(600))
    waiting = struct.pack("i", 0)
    until = time.monotonic() + 30
    while struct.unpack("i", fcntl.ioctl(process.stdout, termios.FIONREAD, waiting))[0] < PIPE_BYTES:
        assert time.monotonic() < until, "the pipe is never full"
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="there is no `head` to be read by")
def test_it_ends_when_nobody_can_read_its_lines(queue: Queue, processes: Processes) -> None:
    """As with `head -1`, without another event (issue 8)."""
    queue.enqueue("before")
    process = processes.start("events", "--follow", "--limit", "1", "--json")
    processes.next_line(process)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(30) == 1
    assert process.stderr.read() == ""
