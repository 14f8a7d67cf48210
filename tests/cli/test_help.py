"""Help: every command says what it does and how it is typed, and what it says is true."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING
from uuid import UUID

import click
import pytest
from click.testing import CliRunner

import litequeue
from litequeue import JobState, Queue
from litequeue.cli import litequeue as command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Cli

TASKS = """
import litequeue

tasks = litequeue.Tasks()


@tasks.task("mail:send")
def send(to=None):
    pass
"""
EXAMPLE_ID = UUID("0190a0c5-7b5e-7000-8000-000000000001")


def commands(group: click.Group, *before: str) -> Iterator[tuple[str, ...]]:
    """Return the words of each command, groups included."""
    yield before
    for name, member in group.commands.items():
        if isinstance(member, click.Group):
            yield from commands(member, *before, name)
        else:
            yield (*before, name)


ALL = [" ".join(words) for words in commands(command)]


def help_of(words: str) -> str:
    """Return the help of a command."""
    result = CliRunner().invoke(command, [*words.split(), "--help"])
    assert CliRunner().invoke(command, [*words.split(), "-h"]).stdout == result.stdout
    assert result.exit_code == 0
    return result.stdout


def examples(words: str) -> list[str]:
    """Return the examples in the help of a command."""
    _, _, after = help_of(words).partition("\nExamples:\n")
    return re.findall(r"^  \$ (.+)$", after, flags=re.MULTILINE)


def test_the_commands_are_those_of_the_contract() -> None:
    """The command has these verbs and no others (§9)."""
    assert sorted(ALL) == sorted(
        [
            "",
            "backup",
            "bench",
            "dead",
            "dead ls",
            "dead purge",
            "dead retry",
            "dead show",
            "doctor",
            "enqueue",
            "events",
            "init",
            "jobs",
            "jobs cancel",
            "jobs edit",
            "jobs export",
            "jobs import",
            "jobs ls",
            "jobs purge",
            "jobs retry",
            "jobs run-now",
            "jobs show",
            "kinds",
            "maintain",
            "metrics",
            "outbox",
            "outbox dead",
            "outbox discard",
            "pause",
            "pauses",
            "restore",
            "resume",
            "schedule",
            "schedule add",
            "schedule ls",
            "schedule next",
            "schedule now",
            "schedule pause",
            "schedule resume",
            "schedule rm",
            "schedule run",
            "scopes",
            "settings",
            "settings get",
            "settings set",
            "settings unset",
            "stats",
            "top",
            "weight",
            "work",
            "workers",
        ]
    )


@pytest.mark.parametrize("words", ALL)
def test_every_command_explains_itself_and_gives_an_example(words: str) -> None:
    """Help has a sentence, a line for each option and argument, and an example, on lines that fit; it needs no file."""
    text = help_of(words)
    assert re.search(r"^  [A-Z][^\n]+\.$", text, flags=re.MULTILINE)
    assert examples(words)
    assert max(map(len, text.splitlines())) <= 100
    found: click.Command = command
    for word in words.split():
        assert isinstance(found, click.Group)
        found = found.commands[word]
    assert all(option.help for option in found.params if isinstance(option, click.Option))


def make_files(example: str, folder: Path) -> None:
    """Make what an example finds beside its queue."""
    for name in ("mail.queue", "other.queue"):
        if name in example:
            litequeue.open(name, durability="normal").close()
    for name in ("jobs.jsonl", "dead.jsonl"):
        if name in example and " import" in example:
            (folder / name).write_text('{"kind": "mail:send"}\n', encoding="utf-8")
    if " work " in example:
        (folder / "app").mkdir()
        (folder / "app" / "tasks.py").write_text(TASKS, encoding="utf-8")


@pytest.mark.parametrize("words", [words for words in ALL if "\nCommands:\n" in help_of(words)])
def test_what_a_command_does_is_said_whole_where_it_is_listed(words: str) -> None:
    """On a terminal of 80 columns click cuts what is longer (issue 8)."""
    _, _, listed = help_of(words).partition("\nCommands:\n")
    assert not [line for line in listed.splitlines() if line.endswith("...")]


@pytest.mark.parametrize(
    "example",
    [
        example
        for words in ALL
        for example in examples(words)
        if not example.endswith(
            (" --every 5s", " schedule run", " --serve 9464", " --interval 5s", " --follow", " bench")
        )
    ],
)
def test_every_example_works_as_it_is_typed(example: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example of the help is accepted and does something, or says that there is nothing to do (status 3)."""
    with litequeue.open("app.queue", durability="normal") as queue:
        if " outbox " in example:
            queue.put_message("orders", "placed", key="7", message_id=EXAMPLE_ID)
        else:
            queue.enqueue("mail:send", job_id=EXAMPLE_ID, delay=60 if " run-now " in example else None)
        if " retry " in example or example.startswith("litequeue --db app.queue dead "):
            lease = queue.lease_next()
            assert lease is not None
            lease.fail("no", retryable=False)
        if " schedule " in example:
            queue.schedule("nightly", "@daily", "report")
        if " restore " in example:
            queue.backup("app.backup")
    make_files(example, folder)
    words = shlex.split(example.rpartition("| ")[2])
    while "=" in words[0]:
        monkeypatch.setenv(*words.pop(0).split("="))
    assert words.pop(0) == "litequeue"
    if "work" in words and "--until-empty" not in words:
        words.append("--until-empty")  # else it would go on for ever
    lines = '{"kind": "mail:send"}\n' if "import" in words else "1\n2\n"
    result = CliRunner().invoke(command, words, input=lines)
    nothing_to_do = not {"--once", "resume", "purge"}.isdisjoint(words) and result.exit_code == 3
    assert result.exit_code == 0 or nothing_to_do, result.output


def test_the_examples_change_the_queue_as_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first example of the whole command enqueues a job with the payload that it shows."""
    monkeypatch.chdir(tmp_path)
    words = shlex.split(examples("")[0])
    assert CliRunner().invoke(command, words[1:]).exit_code == 0
    with litequeue.open("app.queue") as queue:
        (job,) = queue.list(JobState.PENDING)
    assert (job.kind, job.payload) == ("mail:send", {"to": "a@example.org"})


def test_the_version_is_the_package_s() -> None:
    """`--version` says it, without a file."""
    assert CliRunner().invoke(command, ["--version"]).stdout == f"litequeue, version {litequeue.__version__}\n"


def test_a_command_without_a_file_says_how_to_name_one(cli: Cli) -> None:
    """Neither `--db` nor LITEQUEUE_DB is wrong usage, with a line that names both (§9)."""
    result = CliRunner().invoke(command, ["stats"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == ("litequeue: which queue file? give --db FILE before the command, or set LITEQUEUE_DB\n")
    assert not cli.path.exists()


def test_the_file_may_come_from_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """LITEQUEUE_DB names the file, and `--db` goes before it (§9)."""
    monkeypatch.setenv("LITEQUEUE_DB", str(tmp_path / "other.queue"))
    assert CliRunner().invoke(command, ["enqueue", "here", "1"]).exit_code == 0
    cli.done("init")
    with litequeue.open(tmp_path / "other.queue", create=False) as other:
        assert kinds(other) == ["here"]
    with litequeue.open(cli.path, create=False) as given:
        assert kinds(given) == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["work", "app:tasks", "--db", "x"], "litequeue --db x work app:tasks"),
        (["work", "--db=my queue", "app:tasks", "--quiet"], "litequeue --db 'my queue' work app:tasks --quiet"),
        (["jobs", "ls", "--json", "--db", "x"], "litequeue --db x jobs ls --json"),
        (["jobs", "--db", "x", "ls"], "litequeue --db x jobs ls"),
        (["stats", "--db"], "litequeue --db FILE stats"),
    ],
)
def test_the_file_after_the_command_is_told_with_the_line_that_was_meant(words: list[str], line: str) -> None:
    """`--db` goes before the command: what is to be typed stands in the message (§9)."""
    result = CliRunner().invoke(command, words, prog_name="litequeue")
    assert (result.exit_code, result.output) == (2, f"litequeue: --db goes before the command: {line}\n")


@pytest.mark.parametrize("words", [["stats", "--nope"], ["nope"], ["jobs", "ls", "--state", "nope"], ["enqueue"]])
def test_wrong_usage_is_status_2(cli: Cli, words: list[str]) -> None:
    """Unknown options, commands and choices, and missing arguments, end with 2 and create nothing (§9)."""
    outcome = cli(*words)
    assert (outcome.status, outcome.out) == (2, "")
    assert "Error: " in outcome.err
    assert not cli.path.exists()


def kinds(queue: Queue) -> list[str]:
    """Return the kinds of a queue's jobs."""
    return [job.kind for job in queue.list()]
