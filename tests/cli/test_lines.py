"""`enqueue --lines`: many jobs from a pipe, as they come, and where it stopped when one was refused."""

from __future__ import annotations

import io
import json
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litequeue import Queue
    from tests.cli.conftest import Cli


def payloads(queue: Queue) -> list[object]:
    """Return the payloads of the pending jobs, in lease order."""
    found: list[object] = []
    after = None
    while page := queue.list(JobState.PENDING, limit=1000, after=after):
        found += [job.payload for job in page]
        after = page[-1]
    return found


class Arriving(io.BytesIO):
    """An input whose parts become readable one by one; what is not bytes is raised, or called, when it is its turn."""

    def __init__(self, parts: Iterable[object]) -> None:
        super().__init__()
        self._parts = iter(parts)

    def read1(self, _size: int | None = -1) -> bytes:
        """Return the next part."""
        for part in self._parts:
            if isinstance(part, BaseException):
                raise part
            if callable(part):
                part()
                continue
            assert isinstance(part, bytes)
            return part
        return b""


def test_each_line_is_a_job_in_the_order_of_the_lines(cli: Cli) -> None:
    """Five thousand lines, more than one commit, come in order; the last needs no line end (V1, G4)."""
    text = "\n".join(json.dumps({"n": n}) for n in range(5000))
    assert cli.done("enqueue", "work", "--lines", stdin=text) == "5000 jobs enqueued\n"
    with litequeue.open(cli.path, create=False) as queue:
        assert payloads(queue) == [{"n": n} for n in range(5000)]


def test_the_options_go_for_every_line(cli: Cli) -> None:
    """Scope, priority, delay and attempts are those of all jobs of the call (V1)."""
    options = ["--scope", "acme", "--priority", 3, "--delay", "1h", "--max-attempts", 2]
    assert cli.done("enqueue", "work", "-", "--lines", *options, stdin="1\n2\n") == "2 jobs enqueued\n"
    with litequeue.open(cli.path, scope="acme") as queue:
        for job in queue.list():
            assert (job.state, job.priority, job.max_attempts) == (JobState.SCHEDULED, 3, 2)


def test_blank_lines_and_windows_line_ends_are_no_jobs(cli: Cli, queue: Queue) -> None:
    """White space around a line does not matter, and a line of nothing else is skipped."""
    assert cli.done("enqueue", "work", "--lines", stdin="1\r\n\n  \t\n 2 \n\n") == "2 jobs enqueued\n"
    assert payloads(queue) == [1, 2]


def test_lines_that_arrive_in_pieces_are_put_together(cli: Cli, queue: Queue) -> None:
    """A pipe cuts anywhere, inside a line and inside a character."""
    whole = '"é"\n[1,\t2]\n"last"'.encode()
    pieces = [whole[at : at + 1] for at in range(len(whole))]
    assert cli("enqueue", "work", "--lines", stdin=Arriving(pieces)).out == "3 jobs enqueued\n"
    assert payloads(queue) == ["é", [1, 2], "last"]


def test_a_line_may_be_longer_than_what_a_pipe_holds(cli: Cli, queue: Queue) -> None:
    """A payload of several hundred kilobytes comes in many reads."""
    big = "x" * 700_000
    assert cli.done("enqueue", "work", "--lines", stdin=f'"{big}"\n1\n') == "2 jobs enqueued\n"
    assert payloads(queue) == [big, 1]


def test_a_slow_producer_s_lines_are_enqueued_as_they_come(cli: Cli, queue: Queue) -> None:
    """What has arrived is in the queue before the next part is waited for: `tail -f | litequeue enqueue` works."""
    seen: list[list[object]] = []

    def look() -> None:
        seen.append(payloads(queue))

    outcome = cli("enqueue", "work", "--lines", stdin=Arriving([b"1\n2\n3", look, b"0\n4", look, b"\n"]))
    assert outcome.out == "4 jobs enqueued\n"
    assert seen == [[1, 2], [1, 2, 30]]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"a":', "not JSON: Expecting value at character 6"),
        (b"NaN", "not JSON: NaN is not a JSON number"),
        (b'"\xff"', "not UTF-8: byte 0xff at position 2"),
        (b"18446744073709551616", "payload cannot be stored: a whole number beyond 64 bits at '$'"),
        (rb'{"a": ["\ud800"]}', "payload cannot be stored: text that UTF-8 cannot hold (a lone surrogate) at '$.a[0]'"),
        (b'"%s"' % (b"x" * 2000), "the payload of work has 2,004 bytes encoded; max_payload allows 1,000"),
        (b"[" * 200_000, "not readable as JSON: nested too deep"),
    ],
)
def test_a_line_that_is_refused_is_named_and_all_before_it_are_in(
    cli: Cli, queue: Queue, bad: bytes, reason: str
) -> None:
    """Status 1, with the line's number and how many jobs were enqueued before it; none after it is (§6, §9)."""
    queue.set("max_payload", 1000)
    lines = b"".join(b"%d\n" % n for n in range(700)) + b"\n" + bad + b"\n7\n8\n"
    line = cli("enqueue", "work", "--lines", stdin=lines).line_of_failure(1)
    assert line == f"line 702: {reason}; 700 jobs enqueued before it"
    assert payloads(queue) == list(range(700))


def test_a_full_queue_takes_what_fits_and_says_how_much_that_was(cli: Cli, queue: Queue) -> None:
    """`max_bytes` in the middle: the number in the message is the number in the file (§6, G11)."""
    queue.set("max_bytes", 200_000)
    lines = "".join(f'"{n:>3000}"\n' for n in range(100))
    line = cli("enqueue", "work", "--lines", stdin=lines).line_of_failure(1)
    stored = len(payloads(queue))
    assert 10 < stored < 70
    assert line.startswith(f"line {stored + 1}: the queue ")
    assert line.endswith(f"; {stored} jobs enqueued before it")
    assert "max_bytes" in line


@pytest.mark.usefixtures("impatient")
def test_a_busy_queue_is_said_with_the_line_to_go_on_at(cli: Cli, queue: Queue) -> None:
    """The lock not had in time: nothing of that part is in, everything before it is (§6, G11)."""
    with ExitStack() as held:
        parts = [b"1\n2\n", lambda: held.enter_context(queue.transaction()), b"3\n4\n"]
        outcome = cli("enqueue", "work", "--lines", stdin=Arriving(parts))
    line = outcome.line_of_failure(1)
    assert line.startswith("line 3: the write lock of ")
    assert line.endswith("; 2 jobs enqueued before it")
    assert payloads(queue) == [1, 2]


def test_ctrl_c_ends_with_130_and_says_what_is_in(cli: Cli, queue: Queue) -> None:
    """An interrupted load says how much of it was enqueued (§9)."""
    outcome = cli("enqueue", "work", "--lines", stdin=Arriving([b"1\n2\n", KeyboardInterrupt()]))
    assert outcome.line_of_failure(130) == "interrupted; 2 jobs enqueued"
    assert payloads(queue) == [1, 2]


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_no_lines_are_nothing_to_do(cli: Cli, text: str) -> None:
    """Status 3, so that a script can tell (§9)."""
    outcome = cli("enqueue", "work", "--lines", stdin=text)
    assert (outcome.status, outcome.out, outcome.err) == (3, "0 jobs enqueued\n", f"litequeue: made {cli.path}\n")


@pytest.mark.parametrize("options", [["--key", "k"], ["--id", "0190a0c5-7b5e-7000-8000-000000000001"]])
def test_what_names_one_job_does_not_go_with_many(cli: Cli, options: list[str]) -> None:
    """One key for all lines would silently be one job (§9)."""
    line = cli("enqueue", "work", "--lines", *options, stdin="1\n2\n").line_of_failure(2)
    assert line == "--key and --id are for one job, --lines is for many"
    assert not cli.path.exists()


def test_lines_come_from_standard_input_only(cli: Cli) -> None:
    """A payload as an argument beside `--lines` is wrong usage (§9)."""
    line = cli("enqueue", "work", "1", "--lines", stdin="2\n").line_of_failure(2)
    assert line == "--lines reads payloads from standard input, so there is no PAYLOAD argument"
