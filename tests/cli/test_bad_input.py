"""Contract §6 on the command line: one clear line, the right status, no traceback, and files left as they were."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue.sqlite import filesystem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litequeue import Queue
    from tests.cli.conftest import Cli, Processes

SOME_ID = "0190a0c5-7b5e-7000-8000-000000000001"
READING = [
    ["stats"],
    ["jobs", "ls"],
    ["jobs", "show", SOME_ID],
    ["jobs", "retry", "--state", "dead"],
    ["jobs", "cancel", SOME_ID],
    ["jobs", "cancel", SOME_ID[:8]],
    ["dead", "ls"],
    ["scopes"],
    ["kinds"],
    ["dead", "show", SOME_ID],
    ["jobs", "purge", "--state", "dead", "--yes"],
    ["jobs", "edit", SOME_ID, "--priority", "1"],
    ["metrics"],
    ["maintain", "--once"],
    ["maintain"],
    ["settings", "get"],
    ["settings", "set", "lease_ttl", "60"],
    ["settings", "unset", "lease_ttl"],
]
"""What works on a file that is there."""
CREATING = [["init"], ["enqueue", "work", "1"], ["enqueue", "work", "--lines"]]
EVERY = pytest.mark.parametrize("words", [*READING, *CREATING], ids=" ".join)


def owner() -> str:
    """Return whose the files of this process are, as a refusal says it."""
    return f"{pwd.getpwuid(os.geteuid()).pw_name}'s"


def beside(path: Path) -> set[str]:
    """Return the names in a file's folder."""
    return {entry.name for entry in path.parent.iterdir()}


def state(path: Path) -> tuple[bytes, int]:
    """Return what is in a file and when it was last written; no connection of this process may be open on it."""
    return path.read_bytes(), path.stat().st_mtime_ns


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_file_that_is_not_there_is_not_made(cli: Cli, words: list[str]) -> None:
    """Only `init` and `enqueue` create a file; everything else says that there is none, and how to make it (§6, §9)."""
    line = cli(*words).line_of_failure(1)
    assert line == (f"cannot open {cli.path}: there is no such file; make it with `litequeue --db {cli.path} init`")
    assert beside(cli.path) == set()


@pytest.mark.parametrize("words", [*CREATING, ["stats"]], ids=" ".join)
def test_a_folder_that_is_not_there_is_not_made(cli: Cli, words: list[str]) -> None:
    """Not even by those that create a file (§6)."""
    cli.path = cli.path.parent / "none" / "app.queue"
    line = cli(*words, stdin="1\n").line_of_failure(1)
    assert line == f"cannot open {cli.path}: there is no folder {cli.path.parent}; make that folder first"


@EVERY
def test_a_folder_in_the_file_s_place_is_refused(cli: Cli, words: list[str]) -> None:
    """With the path and the reason (§6)."""
    cli.path.mkdir()
    line = cli(*words, stdin="1\n").line_of_failure(1)
    assert line == f"cannot open {cli.path}: it is a folder"
    assert list(cli.path.iterdir()) == []


@EVERY
def test_a_file_that_is_no_database_is_not_touched(cli: Cli, words: list[str]) -> None:
    """A text file given by mistake (§6)."""
    cli.path.write_text("Dear diary, this is not a database. " * 100)
    before = state(cli.path)
    line = cli(*words, stdin="1\n").line_of_failure(1)
    assert line == f"{cli.path} is not a queue file: it is not an SQLite database"
    assert state(cli.path) == before
    assert beside(cli.path) == {cli.path.name}


@EVERY
def test_another_application_s_database_is_not_touched(
    cli: Cli, sql: Callable[[str], list[tuple[object, ...]]], words: list[str]
) -> None:
    """Tables of an application, and no queue: the line names one of them (§6)."""
    sql("CREATE TABLE invoices (id INTEGER PRIMARY KEY)")
    before = state(cli.path)
    line = cli(*words, stdin="1\n").line_of_failure(1)
    assert line == f"{cli.path} is not a queue file: it belongs to another application (invoices)"
    assert state(cli.path) == before
    assert beside(cli.path) == {cli.path.name}


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_an_empty_file_is_no_queue_yet(cli: Cli, words: list[str]) -> None:
    """A command that works on a queue does not make one out of it (§6, §9)."""
    cli.path.touch()
    line = cli(*words).line_of_failure(1)
    assert line == f"{cli.path} is not a queue file: it is empty"
    assert cli.path.stat().st_size == 0


@pytest.mark.parametrize("words", CREATING, ids=" ".join)
def test_an_empty_file_becomes_a_queue_where_one_may_be_made(cli: Cli, words: list[str]) -> None:
    """`init` and `enqueue` take a 0-byte file for a new one (§6)."""
    cli.path.touch()
    cli.done(*words, stdin="1\n")
    assert cli.done("stats")


@EVERY
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE litequeue_meta SET schema_version = 99", "found schema version 99, expected version 2"),
        (
            "CREATE TRIGGER mine AFTER INSERT ON litequeue_job BEGIN SELECT 1; END",
            "found queue tables with an unknown mine, expected those of version 2",
        ),
        (
            "DROP INDEX litequeue_job_due",
            "found queue tables without litequeue_job_due, expected those of version 2",
        ),
        (
            "ALTER TABLE litequeue_host ADD COLUMN mood TEXT",
            "found queue tables with a changed litequeue_host, expected those of version 2",
        ),
    ],
)
def test_other_tables_than_the_expected_ones_are_refused(
    cli: Cli, sql: Callable[[str], list[tuple[object, ...]]], words: list[str], damage: str, said: str
) -> None:
    """A newer schema, and tables or triggers that somebody changed: found and expected, and no change (§6)."""
    cli.done("init")
    sql(damage)
    before = state(cli.path)
    assert cli(*words, stdin="1\n").line_of_failure(1) == f"{cli.path}: {said}"
    assert state(cli.path) == before


@EVERY
def test_a_truncated_file_is_said_to_be_damaged(cli: Cli, words: list[str]) -> None:
    """And nothing is written (§6)."""
    cli.done("init")
    cli.path.write_bytes(cli.path.read_bytes()[: 3 * 2048])
    before = state(cli.path)
    line = cli(*words, stdin="1\n").line_of_failure(1)
    assert line.startswith(f"{cli.path} is damaged: ")
    assert state(cli.path) == before


def test_a_damaged_page_is_found_by_what_reads_it(cli: Cli, sql: Callable[[str], list[tuple[object, ...]]]) -> None:
    """One line, whatever SQLite finds wrong in the middle of a listing (§6)."""
    cli.done("enqueue", "work", "--lines", stdin="1\n" * 500)
    ((page,),) = sql("SELECT rootpage FROM sqlite_schema WHERE name = 'litequeue_job'")
    assert isinstance(page, int)
    data = bytearray(cli.path.read_bytes())
    data[(page - 1) * 2048 : page * 2048] = b"\xa5" * 2048
    cli.path.write_bytes(data)
    before = state(cli.path)
    for words in (["jobs", "ls"], ["stats"], ["enqueue", "work", "1"], ["maintain", "--once"]):
        assert "is damaged" in cli(*words).line_of_failure(1), words
    assert state(cli.path)[0] == before[0]


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        (["", "1"], "KIND"),
        (["k" * 256, "1"], "KIND"),
        (["a\tb", "1"], "KIND"),
        (["caf\udce9", "1"], "KIND"),
        (["work", "1", "--scope", ""], "--scope"),
        (["work", "1", "--scope", "litequeue:x"], "--scope"),
        (["work", "1", "--scope", "a\nb"], "--scope"),
        (["work", "1", "--key", ""], "--key"),
        (["work", "1", "--key", "k" * 256], "--key"),
        (["work", "1", "--priority", "256"], "--priority"),
        (["work", "1", "--priority", "-1"], "--priority"),
        (["work", "1", "--delay", "-1"], "--delay"),
        (["work", "1", "--delay", "nan"], "--delay"),
        (["work", "1", "--expires", "inf"], "--expires"),
        (["work", "1", "--delay", "9999999d"], "--delay"),
        (["work", "1", "--max-attempts", "0"], "--max-attempts"),
        (["work", "1", "--run-at", "2031-05-04T08:00"], "--run-at"),
        (["work", "1", "--run-at", "1969-05-04T08:00Z"], "--run-at"),
    ],
)
def test_an_argument_out_of_bounds_is_wrong_usage(cli: Cli, arguments: list[str], argument: str) -> None:
    """The line names the argument as it was written, its bounds and its value; no file is made (§6, §9)."""
    line = cli("enqueue", *arguments).line_of_failure(2)
    assert line.startswith(f"{argument} must be ")
    assert ", not " in line
    assert beside(cli.path) == set()


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        (["jobs", "ls", "--limit", "0"], "--limit"),
        (["jobs", "ls", "--limit", "10001"], "--limit"),
        (["jobs", "ls", "--kind", ""], "--kind"),
        (["jobs", "ls", "--scope", "litequeue:x"], "--scope"),
        (["jobs", "retry", "--state", "dead", "--kind", "a\nb"], "--kind"),
        (["stats", "--scope", ""], "--scope"),
        (["maintain", "--every", "0"], "--every"),
        (["maintain", "--every", "-1"], "--every"),
        (["settings", "set", "lease_ttl", "1", "--kind", ""], "--kind"),
    ],
)
def test_bounds_hold_for_every_command(cli: Cli, words: list[str], argument: str) -> None:
    """Wrong usage is the same everywhere (§6, §9)."""
    cli.done("init")
    assert cli(*words).line_of_failure(2).startswith(f"{argument} must be ")


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ('"' + "x" * 1_048_576 + '"', "the payload of work has 1,048,582 bytes encoded; max_payload allows 1,048,576"),
        ("[18446744073709551616]", "payload cannot be stored: a whole number beyond 64 bits at '$[0]'"),
        (r'{"a": "\ud800"}', "payload cannot be stored: text that UTF-8 cannot hold (a lone surrogate) at '$.a'"),
    ],
)
def test_a_payload_that_cannot_be_stored_stores_nothing(cli: Cli, queue: Queue, payload: str, said: str) -> None:
    """Too large, beyond msgpack, not UTF-8: status 1 with the size or the place (§6)."""
    assert cli("enqueue", "work", payload).line_of_failure(1) == said
    assert queue.stats().total == 0


def test_a_full_queue_refuses_jobs_and_still_takes_orders(cli: Cli, queue: Queue) -> None:
    """`max_bytes` reached: enqueue says so; cancel, retry and maintenance work (§6)."""
    job_id = queue.enqueue("work").job_id
    queue.set("max_bytes", 65_536)
    line = cli("enqueue", "work", '"' + "x" * 100_000 + '"').line_of_failure(1)
    assert "max_bytes" in line
    assert "65,536" in line
    cli.done("jobs", "cancel", job_id)
    cli.done("jobs", "retry", job_id)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "words",
    [
        ["enqueue", "work", "1"],
        ["jobs", "cancel", SOME_ID],
        ["settings", "set", "lease_ttl", "60"],
        ["settings", "unset", "lease_ttl"],
    ],
    ids=" ".join,
)
def test_a_lock_that_is_not_had_in_time_is_said(cli: Cli, queue: Queue, words: list[str]) -> None:
    """Another process writes for too long: status 1, nothing was done (§6)."""
    queue.enqueue("work", job_id=SOME_ID)
    with queue.transaction():
        outcome = cli(*words)
    assert outcome.status == 1
    assert outcome.only_complaint() == f"the write lock of {cli.path} was not had within 0.05 s"
    assert (queue.stats().total, queue.settings()["lease_ttl"]) == (1, 300)


@pytest.mark.usefixtures("impatient")
def test_reading_waits_for_no_writer(cli: Cli, queue: Queue) -> None:
    """Listings and counts work while somebody writes (V13)."""
    queue.enqueue("work", job_id=SOME_ID)
    with queue.transaction():
        for words in (["stats"], ["jobs", "ls"], ["jobs", "show", SOME_ID], ["settings", "get"]):
            assert cli.done(*words)


@EVERY
def test_a_network_file_system_is_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """With the reason; no file is made there (§6)."""
    monkeypatch.setattr(filesystem, "kind_of", lambda _folder: "nfs")
    line = cli(*words, stdin="1\n").line_of_failure(1)
    assert line.startswith(f"cannot open {cli.path}: SQLite's locks do not hold on a nfs file system")
    assert beside(cli.path) == set()


def test_an_unknown_file_system_gets_a_warning_of_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """FUSE works, and the line does not look like a Python warning (§6)."""
    cli.done("init")
    monkeypatch.setattr(filesystem, "kind_of", lambda _folder: "fuse.sshfs")
    outcome = cli("enqueue", "work", "1")
    assert outcome.status == 0
    assert outcome.only_complaint() == (
        f"warning: {cli.path} lies on a fuse.sshfs file system, which litequeue has not been tested on"
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", [0o000, 0o400, 0o200])
def test_a_file_without_permission_is_refused(
    processes: Processes, db: Path, obedient: Callable[[], None] | None, mode: int
) -> None:
    """Unreadable, unwritable: the path and the reason, and the file as it was (§6)."""
    with litequeue.open(db) as queue:
        queue.enqueue("work")
    before = state(db)
    db.chmod(mode)
    for words in (["stats"], ["enqueue", "work", "1"], ["init"], ["maintain"]):
        outcome = processes.run(*words, before=obedient)
        assert outcome.line_of_failure(1).startswith(f"cannot open {db}: no permission to "), words
        assert outcome.err.endswith(f"(it is {owner()}, mode {mode:04o})\n")
    db.chmod(0o600)
    assert state(db) == before


@pytest.mark.slow
def test_a_folder_without_permission_is_refused(
    processes: Processes, db: Path, obedient: Callable[[], None] | None
) -> None:
    """Where no file can be made, the line says in which folder (§6)."""
    db.parent.chmod(0o500)
    try:
        outcome = processes.run("enqueue", "work", "1", before=obedient)
    finally:
        db.parent.chmod(0o700)
    told = f"cannot open {db}: no permission to write in {db.parent} (it is {owner()}, mode 0500)"
    assert outcome.line_of_failure(1) == told
    assert beside(db) == set()


@pytest.mark.slow
def test_a_lock_file_without_permission_is_refused(
    processes: Processes, db: Path, obedient: Callable[[], None] | None
) -> None:
    """A sidecar that another user has made is no reason for a traceback (§6)."""
    with litequeue.open(db) as queue:
        queue.enqueue("work")
    lock = db.with_name(f"{db.name}-lock")
    lock.touch()
    lock.chmod(0o000)
    line = processes.run("stats", before=obedient).line_of_failure(1)
    assert line == (
        f"cannot open {db}: its lock file {lock} cannot be opened: Permission denied (it is {owner()}, mode 0000)"
    )


@pytest.mark.skipif(os.name != "posix", reason="a name that is no UTF-8 exists on POSIX only")
@pytest.mark.parametrize("words", ["init", "doctor", "stats", "top --once", "jobs ls", "restore --overwrite {other}"])
def test_a_name_that_is_not_utf8_is_refused(cli: Cli, words: str) -> None:
    """One line, which shows the name as far as it can be shown (§6)."""
    other = cli.path.with_name("caf\udce9.queue")
    other.touch()
    if "{other}" in words:
        cli("init")
    else:
        cli.path = other
    line = cli(*words.format(other=other).split()).line_of_failure(1)
    assert line.startswith("cannot open ")
    assert "its name is not valid UTF-8" in line


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_name_of_a_log_is_refused(cli: Cli, suffix: str) -> None:
    """SQLite removes a file by that name when it opens the other one, and all jobs with it (G2, §6)."""
    assert cli("init").status == 0
    first = cli.path
    cli.path = first.with_name(first.name + suffix)
    assert "SQLite's logs of other files" in cli("enqueue", "lost").line_of_failure(1)
    assert not cli.path.exists()


def test_a_database_beside_the_queue_s_tables_is_the_user_s_business(
    cli: Cli, sql: Callable[[str], list[tuple[object, ...]]]
) -> None:
    """Other tables in the file do not disturb the commands (§6)."""
    cli.done("init")
    sql("CREATE TABLE invoices (id INTEGER PRIMARY KEY)")
    cli.done("enqueue", "work", "1")
    assert len(cli.done("jobs", "ls").splitlines()) == 2
    assert apsw.Connection(str(cli.path)).execute("SELECT count(*) FROM invoices").fetchall() == [(0,)]
