"""`init` and `enqueue`: the two commands that make a file, and where a payload comes from."""

from __future__ import annotations

import io
import os
import stat
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

import litequeue
from litequeue import SYSTEM, Job, JobState

if TYPE_CHECKING:
    from pathlib import Path

    from litequeue import Queue
    from tests.cli.conftest import Cli

SECOND = 1_000_000


def enqueued(cli: Cli, *arguments: object, stdin: str | bytes | None = None) -> Job:
    """Enqueue by the command; return the job whose id it printed."""
    printed = cli.done("enqueue", *arguments, stdin=stdin)
    assert printed.count("\n") == 1
    with litequeue.open(cli.path, create=False) as queue:
        return queue.get(UUID(printed.strip()))


def test_init_makes_the_file_for_its_owner_only_and_may_be_repeated(cli: Cli, db: Path) -> None:
    """A new file has mode 0600; on a queue file `init` changes nothing and is done, too (§9, DESIGN §3)."""
    assert cli.done("init") == f"{db} is a queue file\n"
    if os.name == "posix":
        assert stat.S_IMODE(db.stat().st_mode) == 0o600
    cli.done("enqueue", "work", "1")
    cli.done("init")
    with litequeue.open(db, create=False) as queue:
        assert queue.stats().total == 1


def test_a_job_has_what_the_options_say(cli: Cli) -> None:
    """Scope, priority, attempts, key and id arrive as they were given (V1)."""
    job_id = "0190a0c5-7b5e-7000-8000-00000000abcd"
    options = ["--scope", "acme", "--priority", 7, "--max-attempts", 2, "--key", "k", "--id", job_id]
    job = enqueued(cli, "mail:send", '{"to": ["é", null, 1.5, true]}', *options)
    assert job.job_id == UUID(job_id)
    assert (job.scope, job.kind, job.state) == ("acme", "mail:send", JobState.PENDING)
    assert (job.priority, job.max_attempts, job.idempotency_key) == (7, 2, "k")
    assert job.payload == {"to": ["é", None, 1.5, True]}


def test_a_job_without_options_has_the_library_s_defaults(cli: Cli) -> None:
    """The command adds nothing of its own (V1)."""
    job = enqueued(cli, "work")
    assert (job.scope, job.priority, job.max_attempts, job.idempotency_key) == ("default", 100, None, None)
    assert (job.payload, job.not_before, job.expires_at) == (None, None, None)


def test_the_system_s_scope_has_an_option_because_it_has_no_name(cli: Cli) -> None:
    """`--system` is `SYSTEM`; with `--scope` it is wrong usage (§2)."""
    assert enqueued(cli, "vacuum", "null", "--system").scope is SYSTEM
    line = cli("enqueue", "vacuum", "null", "--system", "--scope", "a").line_of_failure(2)
    assert line == "--scope and --system exclude each other"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("30s", 30), ("5m", 300), ("1.5h", 5400), ("2d", 172_800), ("1e2", 100)],
)
def test_durations_are_seconds_or_have_a_unit(cli: Cli, text: str, seconds: float) -> None:
    """A delay and an expiry count from the moment of enqueueing (V1)."""
    job = enqueued(cli, "work", "1", "--delay", text, "--expires", text)
    assert job.not_before == job.expires_at == job.created_at + seconds * SECOND
    assert job.state is JobState.SCHEDULED


def test_a_time_has_a_zone(cli: Cli) -> None:
    """`--run-at` takes ISO 8601 with a zone; without one it is wrong usage, and nothing is made (V1, §6)."""
    wanted = datetime(2999, 1, 31, 7, tzinfo=UTC)
    for text in ("2999-01-31T08:00:00+01:00", "2999-01-31T07:00Z"):
        assert enqueued(cli, "work", "1", "--run-at", text).not_before == wanted.timestamp() * SECOND
    line = cli("enqueue", "work", "1", "--run-at", "2999-01-31T08:00:00").line_of_failure(2)
    assert line.startswith("--run-at must be an ISO 8601 time with its zone, such as ")
    assert line.endswith(", not before 1970, not 2999-01-31T08:00:00")
    assert "is not an ISO 8601 time" in cli("enqueue", "work", "1", "--run-at", "tomorrow").err


def test_a_file_that_is_made_is_told_of(cli: Cli) -> None:
    """Its name may be a slip: one line on standard error, once; a refused job has the one line of its error (§9)."""
    assert (
        cli("enqueue", "work", "[" + "1," * 1_100_000 + "1]").line_of_failure(1).startswith("the payload of work has")
    )
    cli.path = cli.path.with_name("other.queue")
    first = cli("enqueue", "work")
    assert (first.status, first.only_complaint()) == (0, f"made {cli.path}")
    assert cli("enqueue", "work").err == ""


def test_no_option_is_silently_without_effect(cli: Cli) -> None:
    """Of a delay and a time none wins, and what goes with another option wants it; nothing is made (§9)."""
    line = cli("enqueue", "work", "--delay", "5m", "--run-at", "2999-01-31T08:00:00Z").line_of_failure(2)
    assert line == "--delay and --run-at exclude each other"
    for words in (("--on-conflict", "reset", "--key"), ("--on-parent-failure", "run", "--after")):
        option, value, other = words
        assert cli("enqueue", "work", option, value).line_of_failure(2) == f"{option} goes with {other}"
    assert not cli.path.exists()


def test_a_repeated_key_answers_with_the_job_that_has_it(cli: Cli) -> None:
    """Done, with the same id on standard output and a word on standard error (V2)."""
    first = cli.done("enqueue", "work", "1", "--key", "k")
    again = cli("enqueue", "work", "2", "--key", "k")
    assert (again.status, again.out) == (0, first)
    assert again.only_complaint() == f"job {first.strip()} was there already"


def test_a_repeated_key_may_be_refused_or_take_the_new_payload(cli: Cli, queue: Queue) -> None:
    """`--on-conflict raise` is an error, `reset` lets the newest payload count (V2)."""
    first = UUID(cli.done("enqueue", "work", "1", "--key", "k").strip())
    line = cli("enqueue", "work", "2", "--key", "k", "--on-conflict", "raise").line_of_failure(1)
    assert line == f"key 'k' of work belongs to job {first}"
    assert queue.get(first).payload == 1
    assert cli("enqueue", "work", "3", "--key", "k", "--on-conflict", "reset").status == 0
    assert queue.get(first).payload == 3


def test_an_id_of_another_kind_is_an_error(cli: Cli) -> None:
    """The same id with another kind is another job's: refused (V1)."""
    job_id = cli.done("enqueue", "work", "1").strip()
    line = cli("enqueue", "play", "1", "--id", job_id).line_of_failure(1)
    assert line == f"job {job_id} exists with scope 'default' and kind 'work'"


def test_a_payload_comes_from_standard_input_when_asked(cli: Cli) -> None:
    """With `-`; white space around it does not matter."""
    assert enqueued(cli, "work", "-", stdin=b'\n {"a": "\xc3\xa9"}\r\n').payload == {"a": "é"}


def test_an_empty_input_is_an_error_when_a_payload_was_asked_for(cli: Cli) -> None:
    """A producer that died says nothing: that is not a payload of null."""
    line = cli("enqueue", "work", "-", stdin="").line_of_failure(1)
    assert line == "standard input is not JSON: Expecting value at character 1"


class Untouchable(io.BytesIO):
    """An input that must not be read."""

    def read(self, size: int | None = -1) -> bytes:
        """Refuse, but for the nothing that the test runner asks for to see that this is a stream of bytes."""
        assert size == 0
        return b""


@pytest.mark.parametrize("words", [["work", "1"], ["work"]], ids=["with PAYLOAD", "without"])
def test_standard_input_is_left_alone_unless_it_was_asked_for(cli: Cli, words: list[str]) -> None:
    """In a shell's `while read` loop the command must not eat the rest of the loop's input, nor wait for a pipe."""
    assert cli("enqueue", *words, stdin=Untouchable(b"[2]")).status == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hello", "not JSON: Expecting value at character 1"),
        ("{'a': 1}", "not JSON: Expecting property name enclosed in double quotes at character 2"),
        ("[1] [2]", "not JSON: Extra data at character 5"),
        ("[NaN]", "not JSON: NaN is not a JSON number"),
        ("-Infinity", "not JSON: -Infinity is not a JSON number"),
        ("[1e999]", "not readable as JSON: 1e999 is beyond what a number can hold"),
        ("[" * 100_000, "not readable as JSON: nested too deep"),
        ("9" * 5000, "not readable as JSON: Exceeds the limit (4300 digits)"),
    ],
)
def test_a_payload_that_is_not_json_is_refused_with_the_place(cli: Cli, text: str, reason: str) -> None:
    """As an argument it is wrong usage (2), from standard input an error (1); no file is made (§6, §9)."""
    if not text.startswith("-"):
        assert cli("enqueue", "work", text).line_of_failure(2).startswith(f"PAYLOAD is {reason}")
    assert cli("enqueue", "work", "-", stdin=text).line_of_failure(1).startswith(f"standard input is {reason}")
    assert not cli.path.exists()


def test_an_input_that_is_not_utf8_is_refused_with_the_place(cli: Cli) -> None:
    """No traceback, no guess at another encoding (§6)."""
    line = cli("enqueue", "work", "-", stdin=b'"caf\xe9"').line_of_failure(1)
    assert line == "standard input is not UTF-8: byte 0xe9 at position 5"
