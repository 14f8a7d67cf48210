"""`dead`: dead letters with their cause, one by one and by their error, in one file and in several."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest
from click.testing import CliRunner

import litequeue
from litequeue import ANY, JobState, NewJob, Queue
from litequeue.cli import litequeue as command
from litequeue.sqlite import causes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from uuid import UUID

    from tests.cli.conftest import Cli

UNKNOWN = "0190a0c5-7b5e-7000-8000-000000000001"


def die(queue: Queue, error: str, *jobs: NewJob) -> list[UUID]:
    """Enqueue jobs and let them die of an error; return their ids."""
    made = [enqueued.job_id for enqueued in queue.enqueue_many(jobs)]
    leases = queue.lease_many(1000, scope=ANY)
    assert len(leases) == len(jobs)
    assert queue.fail_many(leases, error, retryable=False) == []
    return made


def test_dead_letters_are_listed_with_their_cause_and_nothing_else_is(cli: Cli, queue: Queue) -> None:
    """In the order of `jobs ls`, by kind and scope (issue 8)."""
    (first,) = die(queue, "no such mailbox\nTraceback", NewJob("mail:send"))
    (second,) = die(queue, "disk full", NewJob("ingest"))
    (other,) = die(queue, "boom", NewJob("mail:send", scope="acme"))
    queue.enqueue("mail:send")
    lines = cli.done("dead", "ls").splitlines()[1:]
    assert [line.split()[:3] for line in lines] == [[str(first), "dead", "mail:send"], [str(second), "dead", "ingest"]]
    assert "no such mailbox" in lines[0]
    listed = cast("list[dict[str, object]]", cli.json("dead", "ls", "--kind", "mail:", "--all-scopes"))
    assert {(job["job_id"], job["state"]) for job in listed} == {(str(first), "dead"), (str(other), "dead")}
    for option, hint in ([], ", or look at the errors with --by-error"), (["--by-error"], ""):
        assert cli("dead", "ls", "--limit", "1", *option).only_complaint() == f"there may be more: raise --limit{hint}"


def test_errors_are_counted_with_the_last_job_that_died_of_each(cli: Cli, queue: Queue) -> None:
    """By kind and the first line of the error, the most frequent first; tracebacks do not count (issue 8)."""
    for number in range(3):
        die(queue, f"no such mailbox\nTraceback {number}", NewJob("mail:send"))
    (alone,) = die(queue, "no such mailbox", NewJob("mail:bulk"))
    (last,) = die(queue, "no such mailbox\nTraceback of the last", NewJob("mail:send"))
    die(queue, "boom\x1b[2J", NewJob("mail:send", scope="acme"))
    heading, first, second = cli.done("dead", "ls", "--by-error").splitlines()
    assert heading.split("  ")[0] == "JOBS"
    assert first.split()[:2] == ["4", "mail:send"]
    assert str(last) in first
    assert first.endswith("  no such mailbox")
    assert second.split()[:2] == ["1", "mail:bulk"]
    found = cast("list[dict[str, object]]", cli.json("dead", "ls", "--by-error"))
    assert [(one["jobs"], one["kind"], one["error"], one["last_job_id"]) for one in found] == [
        (4, "mail:send", "no such mailbox", str(last)),
        (1, "mail:bulk", "no such mailbox", str(alone)),
    ]
    assert found[0]["last_finished_at"] == queue.get(last).finished_at
    assert len(cli.done("dead", "ls", "--by-error", "--all-scopes").splitlines()) == 4
    assert r"boom\u001b[2J" in cli.done("dead", "ls", "--by-error", "--scope", "acme")
    assert len(cli("dead", "ls", "--by-error", "--limit", "1").out.splitlines()) == 2


def test_messages_of_several_lines_are_one_error_when_their_first_lines_are(cli: Cli, queue: Queue) -> None:
    """As those of databases, with the statement and its parameters below; `dead show` has these (issue 8)."""

    def insert(lease: litequeue.Lease) -> None:
        raise ValueError(f"UNIQUE constraint failed: a.b\n[SQL: INSERT]\n[parameters: ({lease.payload},)]")

    first, *_ = queue.enqueue_many(NewJob("work", number, max_attempts=1) for number in range(3))
    litequeue.Worker(queue, {"work": insert}, until_empty=True, maintenance=False).run()
    (found,) = cast("list[dict[str, object]]", cli.json("dead", "ls", "--by-error"))
    assert (found["jobs"], found["error"]) == (3, "ValueError: UNIQUE constraint failed: a.b")
    assert "[parameters: (0,)]" in cli.done("dead", "show", first.job_id)
    die(queue, "\r\nby hand\r\n1", NewJob("other"))
    die(queue, "by hand\n2", NewJob("other"))
    assert [line.split()[0] for line in cli.done("dead", "ls", "--by-error").splitlines()] == ["JOBS", "3", "2"]


def test_many_dead_letters_are_counted_page_by_page(cli: Cli, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a page of them, each counted once, and never more than a page is held (issue 8)."""
    monkeypatch.setattr(causes, "STEP", 7)
    for part in range(4):
        die(queue, "boom", *(NewJob("work", n, priority=n % 3) for n in range(25 * part, 25 * part + 25)))
    (found,) = cast("list[dict[str, object]]", cli.json("dead", "ls", "--by-error"))
    assert found["jobs"] == 100


def test_where_nothing_is_dead_the_listing_is_empty(cli: Cli) -> None:
    """Status 0 and no line; in JSON an empty list (§9)."""
    cli.done("init")
    assert cli.done("dead", "ls") == cli.done("dead", "ls", "--by-error") == ""
    assert cli.json("dead", "ls") == cli.json("dead", "ls", "--by-error") == []


def test_one_dead_letter_is_shown_with_its_error(cli: Cli, queue: Queue) -> None:
    """As `jobs show` has it; another job is refused with its state (issue 8)."""
    (gone,) = die(queue, "boom\nTraceback", NewJob("work"))
    queue.enqueue("child", after=[queue.enqueue("other").job_id, gone], on_parent_failure="run")
    assert "Traceback" in cli.done("dead", "show", gone)
    assert cli.json("dead", "show", gone) == cli.json("jobs", "show", gone)
    waiting = queue.enqueue("work").job_id
    assert cli("dead", "show", waiting).line_of_failure(1) == f"job {waiting} is not dead: it is pending"
    assert cli("dead", "show", UNKNOWN).line_of_failure(1) == f"no job {UNKNOWN}"


def test_a_dead_letter_is_named_by_as_much_as_no_other_dead_one_has(cli: Cli, queue: Queue) -> None:
    """Jobs that live may begin so, too; of two dead ones both are told, and nothing is done (issue 8)."""
    queue.enqueue_many(NewJob("work", job_id=f"0190a0c5-7b5e-7000-8000-00000000000{n}") for n in range(4))
    line = cli("dead", "show", "0190a0").line_of_failure(1)
    assert line == "no dead job has an id that begins with 0190a0"
    first, second = (queue.lease_many(1)[0] for _ in range(2))
    first.fail("boom", retryable=False)
    assert cast("dict[str, object]", cli.json("dead", "show", "0190a0"))["job_id"] == str(first.job_id)
    assert cli.done("dead", "retry", "0190-a0") == "1 job retried\n"
    queue.cancel(first.job_id)
    second.fail("boom", retryable=False)
    assert cli.done("dead", "purge", "0190a0", "--yes") == "1 job removed\n"
    left = queue.lease_many(2)
    assert queue.fail_many(left, "boom", retryable=False) == []
    line = cli("dead", "retry", "0190a0").line_of_failure(1)
    told = ", ".join(str(lease.job_id) for lease in left)
    assert line == f"more than one dead job has an id that begins with 0190a0: {told}"


def test_dead_letters_are_retried_by_id_or_all_of_them(cli: Cli, queue: Queue) -> None:
    """Of a kind and scope; jobs in other states are not meant (V10)."""
    mail, ingest = die(queue, "boom", NewJob("mail:send"), NewJob("ingest"))
    queue.cancel(queue.enqueue("mail:send").job_id)
    assert cli.done("dead", "retry", ingest) == "1 job retried\n"
    assert cli.done("dead", "retry", "--all", "--kind", "mail:") == "1 job retried\n"
    assert [queue.get(job_id).state for job_id in (mail, ingest)] == [JobState.PENDING] * 2
    assert queue.stats().counts[JobState.CANCELLED] == 1
    assert cli("dead", "retry", "--all").status == 3


def test_dead_letters_are_purged_when_it_is_confirmed(cli: Cli, queue: Queue) -> None:
    """By id or all of them; without a terminal --yes confirms it (V17)."""
    first, _ = die(queue, "boom", NewJob("mail:send"), NewJob("ingest"))
    line = cli("dead", "purge", "--all").line_of_failure(2)
    assert line == "this would remove 2 jobs, every dead one in scope default, for good: confirm it with --yes"
    assert cli.done("dead", "purge", first, "--yes") == "1 job removed\n"
    assert cli.done("dead", "purge", "--all", "--yes") == "1 job removed\n"
    assert queue.stats().total == 0


@pytest.mark.parametrize("verb", ["retry", "purge"])
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "give the ids of dead letters, or --all"),
        ([UNKNOWN, "--all"], "give the ids of dead letters, or --all"),
        ([UNKNOWN, "--kind", "a"], "--kind, --older-than and scopes go with --state; an id needs none"),
    ],
)
def test_ids_and_all_are_two_ways_to_say_which(cli: Cli, verb: str, arguments: list[str], line: str) -> None:
    """Anything else is wrong usage, before the file is opened (§9)."""
    assert cli("dead", verb, *arguments).line_of_failure(2) == line


@pytest.fixture
def two(queue: Queue, tmp_path: Path) -> list[str]:
    """Give two files, the first with two dead letters and the second with one, as options."""
    die(queue, "boom", NewJob("work"), NewJob("work"))
    with litequeue.open(tmp_path / "second one.queue") as second:
        die(second, "bang", NewJob("other"))
    return ["--db", queue.path, "--db", str(tmp_path / "second one.queue")]


def several(two: list[str], *words: str) -> str:
    """Run the command on both files, which must succeed; return what it printed."""
    result = CliRunner().invoke(command, [*two, *words])
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def test_what_failed_and_where_is_one_view_of_several_files(two: list[str]) -> None:
    """Each file under its name, in the order in which they were given; JSON is one list that names them (issue 8)."""
    first, second = two[1], two[3]
    lines = several(two, "dead", "ls", "--by-error").splitlines()
    assert [line.split()[0] if line[0].isdigit() else line for line in lines if "JOBS" not in line] == [
        f"{first}:",
        "2",
        f"{second}:",
        "1",
    ]
    assert [job["db"] for job in json.loads(several(two, "dead", "ls", "--json"))] == [first, first, second]
    causes = json.loads(several(two, "dead", "ls", "--by-error", "--json"))
    assert [(one["db"], one["error"], one["jobs"]) for one in causes] == [(first, "boom", 2), (second, "bang", 1)]
    counts = json.loads(several(two, "stats", "--json"))
    assert [(one["db"], one["counts"]["dead"]) for one in counts] == [(first, 2), (second, 1)]
    shown = several(two, "stats")
    assert shown.startswith(f"{first}:\nscope ")
    assert f"\n\n{second}:\nscope " in shown


def test_a_file_where_nothing_is_dead_says_so_in_that_view(
    two: list[str], tmp_path: Path, terminal: Callable[[int], None]
) -> None:
    """On a terminal, so that it is not taken for one that was not looked at; elsewhere it has no line (issue 8)."""
    third = tmp_path / "third.queue"
    litequeue.open(third).close()
    assert "third" not in several([*two, "--db", str(third)], "dead", "ls")
    terminal(100)
    result = CliRunner().invoke(command, [*two, "--db", str(third), "dead", "ls"])
    assert (result.exit_code, "third" in result.stdout) == (0, False)
    assert result.stderr == f"litequeue: {third}: nothing is dead in scope default\n"


@pytest.mark.parametrize(
    "words", [["stats"], ["stats", "--json"], ["dead", "ls"], ["dead", "ls", "--by-error", "--json"]], ids=" ".join
)
def test_a_file_that_cannot_be_read_hides_no_other(two: list[str], tmp_path: Path, words: list[str]) -> None:
    """It has a line on standard error, and the status is 1, as with `top` (§9)."""
    gone, broken = tmp_path / "gone.queue", tmp_path / "broken.queue"
    broken.write_bytes(b"no database" * 100)
    result = CliRunner().invoke(command, ["--db", str(gone), *two[:2], "--db", str(broken), *two[2:], *words])
    assert result.exit_code == 1
    first, second = result.stderr.splitlines()
    assert first == f"litequeue: cannot open {gone}: there is no such file"
    assert second.startswith("litequeue: ")
    assert str(broken) in second
    assert [path in result.stdout for path in (two[1], two[3])] == [True, True]
    assert not gone.exists()


def test_other_commands_take_one_file(two: list[str]) -> None:
    """Wrong usage, with those that take several (§9)."""
    result = CliRunner().invoke(command, [*two, "jobs", "ls"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "litequeue: this command works on one file: "
        "only `stats`, `top`, `dead ls` and `metrics` take --db several times\n"
    )


def test_a_path_in_the_environment_is_one_file(two: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is in it, spaces and colons too (§9)."""
    monkeypatch.setenv("LITEQUEUE_DB", two[3])
    result = CliRunner().invoke(command, ["dead", "ls", "--by-error"])
    assert (result.exit_code, "bang" in result.stdout) == (0, True)
