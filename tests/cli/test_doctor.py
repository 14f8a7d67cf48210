"""`doctor`: a line for each finding, an exit status that scripts can use, and mending that loses nothing."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import JobState
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litequeue import Queue
    from tests.cli.conftest import Cli, Processes
    from tests.conftest import MakeQueue

LOST = "x'00000000000000000000000000000000'"


def codes(cli: Cli, *options: str) -> dict[str, str]:
    """Run the command; return the severity of each finding by its code."""
    outcome = cli("doctor", "--json", *options)
    return {finding["code"]: finding["severity"] for finding in json.loads(outcome.out)["findings"]}


def test_a_healthy_file_has_facts_and_status_0(cli: Cli) -> None:
    """Nothing to complain about, and how the file is (§9)."""
    cli.done("enqueue", "work")
    *lines, verdict = cli.done("doctor").splitlines()
    assert verdict == "nothing is wrong"
    assert {line.split()[0] for line in lines} == {"fact"}
    assert any("SQLite" in line for line in lines)
    assert any("jobs: 1" in line for line in lines)


def test_a_problem_is_a_line_and_status_1(cli: Cli, sql: Callable[[str], list[tuple[object, ...]]]) -> None:
    """The finding on standard output, one clear line on standard error (§9)."""
    job_id = cli.done("enqueue", "work").strip()
    sql("UPDATE litequeue_job SET reaps = 7")
    outcome = cli("doctor")
    assert outcome.status == 1
    assert outcome.only_complaint() == f"{cli.path} has 1 problem"
    first = outcome.out.splitlines()[0]
    assert first.split()[:2] == ["problem", "job.counts"]
    assert first.endswith(job_id)
    assert outcome.out.splitlines()[-1] == "1 problem"


def test_the_last_line_says_how_much_is_wrong(cli: Cli, sql: Callable[[str], list[tuple[object, ...]]]) -> None:
    """Warnings are no problem, and each number has its word (issue 8)."""
    cli.done("enqueue", "work")
    sql("INSERT INTO litequeue_setting VALUES ('newer', 1)")
    outcome = cli("doctor")
    assert (outcome.status, outcome.out.splitlines()[-1]) == (0, "no problem, 1 warning")
    sql("UPDATE litequeue_job SET reaps = 7")
    sql("INSERT INTO litequeue_setting VALUES ('newest', 1)")
    outcome = cli("doctor")
    last = outcome.out.splitlines()[-1]
    assert (outcome.status, last.startswith("1 problem, ")) == (1, True)


def test_json_has_every_finding(cli: Cli) -> None:
    """An object that a script can read; healthy files too (§9)."""
    cli.done("init")
    form = cli.json("doctor")
    assert isinstance(form, dict)
    assert form["is_healthy"] is True
    assert form["path"] == str(cli.path)
    assert form["mended"] == []
    assert {"code", "severity", "text", "count", "examples", "mendable"} == set(form["findings"][0])


@pytest.mark.parametrize("options", [(), ("--fix",)])
def test_a_file_that_is_not_there_is_not_made(cli: Cli, tmp_path: Path, options: tuple[str, ...]) -> None:
    """Only `init`, `enqueue` and `restore` create a file (§9)."""
    assert "there is no such file" in cli("doctor", *options).line_of_failure(1)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_opened_is_examined_all_the_same(
    cli: Cli, sql: Callable[[str], list[tuple[object, ...]]]
) -> None:
    """What `open` refuses is said, and what can be looked at is; --fix does not touch it (§6)."""
    cli.done("enqueue", "work")
    sql("CREATE TRIGGER planted AFTER INSERT ON litequeue_job BEGIN SELECT 1; END")
    sql(f"INSERT INTO litequeue_outcome VALUES ({LOST}, NULL, 'boom')")
    assert "planted" in cli("jobs", "ls").line_of_failure(1)
    for options in ((), ("--fix",)):
        found = codes(cli, *options)
        assert found["file.schema"] == found["outcome.orphan"] == "problem"
        assert found["job.count"] == "fact"


def test_a_file_in_use_is_examined(cli: Cli, queue: Queue) -> None:
    """Also while a write transaction is open (V13)."""
    queue.enqueue("work")
    with queue.transaction() as tx:
        tx.enqueue("more")
        assert "jobs: 1" in cli.done("doctor")
    assert "jobs: 2" in cli.done("doctor")


def test_fix_mends_what_loses_nothing(cli: Cli, sql: Callable[[str], list[tuple[object, ...]]]) -> None:
    """Leftovers that nothing finds go; everything else stays (V11)."""
    kept = cli.done("enqueue", "work").strip()
    sql(f"INSERT INTO litequeue_outcome VALUES ({LOST}, NULL, 'boom')")
    sql(f"INSERT INTO litequeue_continuation VALUES ({LOST}, x'00', NULL, NULL)")
    sql(f"INSERT INTO litequeue_rerun VALUES ({LOST}, 100, NULL, NULL, NULL, x'01c0')")
    sql(f"INSERT INTO litequeue_body VALUES ({LOST}, 'default', 100, 1, x'01c0')")
    outcome = cli("doctor", "--fix")
    assert outcome.status == 1
    lines = [line.split()[:2] for line in outcome.out.splitlines()]
    assert ["mended", "removed"] in lines
    # A payload and a trigger may be all that is left of a job: a person decides.
    assert [line for line in lines if line[0] == "problem"] == [["problem", "body.orphan"], ["problem", "rerun.orphan"]]
    assert sql("SELECT count(*) FROM litequeue_body") == [(2,)]
    assert sql("SELECT count(*) FROM litequeue_rerun") == [(1,)]
    # The outcome had a body with its id, so it may belong to something.
    assert sql("SELECT count(*) FROM litequeue_outcome") == [(1,)]
    assert kept in cli.done("jobs", "ls")


def test_fix_removes_an_outcome_only_when_every_job_has_its_body(
    cli: Cli, sql: Callable[[str], list[tuple[object, ...]]]
) -> None:
    """Where a body is missing, an outcome without one may still have its job."""
    cli.done("enqueue", "work")
    sql(f"INSERT INTO litequeue_outcome VALUES ({LOST}, NULL, 'boom')")
    sql("DELETE FROM litequeue_body")
    cli("doctor", "--fix")
    assert sql("SELECT count(*) FROM litequeue_outcome") == [(1,)]
    sql("DELETE FROM litequeue_job")
    assert "outcome.orphan" not in codes(cli, "--fix")
    assert sql("SELECT count(*) FROM litequeue_outcome") == [(0,)]


def test_fix_makes_an_index_anew(cli: Cli, db: Path) -> None:
    """From its table, which stays as it is (§6)."""
    job_id = cli.done("enqueue", "work").strip()
    with_other_index(db)
    assert codes(cli)["file.index"] == "problem"
    assert "made the indexes of the jobs anew" in cli.done("doctor", "--fix")
    assert "file.index" not in codes(cli)
    with litequeue.open(db) as queue:
        lease = queue.lease_next(kinds=["work"])
        assert lease is not None
        assert str(lease.job_id) == job_id


def with_other_index(db: Path) -> None:
    """Let an index forget its rows, in one connection: SQLite reads the schema again after each change."""
    connection = apsw.Connection(str(db))
    for before, after in (("state = 0", "state = 9"), ("state = 9", "state = 0")):
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, ?, ?) WHERE name = 'litequeue_job_ready'",
            (f"WHERE {before}", f"WHERE {after}"),
        )
        connection.execute("PRAGMA writable_schema = RESET").fetchall()
        if after == "state = 9":
            connection.execute("REINDEX litequeue_job_ready")
    connection.close()


@pytest.fixture
def past(make_queue: MakeQueue, db: Path) -> Queue:
    """Give a handle whose wall clock is long past, so that what it makes due is late to the command."""
    return make_queue(path=db, clock=FakeClock())


def test_what_nobody_does_is_a_warning_and_fix_does_it(cli: Cli, past: Queue) -> None:
    """Late promotions and expiries mean that no maintenance runs; nothing is removed by it (V11)."""
    due = past.enqueue("work", delay=1).job_id
    late = past.enqueue("work", expires=1).job_id
    finished = past.enqueue("old").job_id
    (lease,) = past.lease_many(1, kinds=["old"])
    lease.complete()
    past.close()
    found = codes(cli)
    assert found["job.due"] == found["job.overdue"] == "warning"
    mended = cli("doctor", "--fix")
    assert mended.status == 0
    assert "promoted due jobs: 1" in mended.out
    assert "buried jobs that were too late to start: 1" in mended.out
    with litequeue.open(cli.path) as queue:
        assert queue.get(due).state is JobState.PENDING
        assert queue.get(late).state is JobState.DEAD
        assert queue.get(finished).state is JobState.COMPLETED  # its retention is over, but pruning loses something


def test_a_file_that_nobody_has_opened_since_the_boot_says_so(cli: Cli, past: Queue) -> None:
    """Its lease clock is not set yet, so nothing is said of its leases (§8)."""
    past.enqueue("work")
    past.lease_many(1)
    past._store.holdings.leases.clear()
    past.close()
    found = codes(cli)
    assert found["host.boot"] == "fact"
    assert "lease.lapsed" not in found


def test_times_ahead_of_the_clock_are_a_warning(cli: Cli, make_queue: MakeQueue, db: Path) -> None:
    """The wall clock has stepped back, or another host has written (§8)."""
    clock = FakeClock()
    clock.step_wall(86_400 * 365 * 100)
    make_queue(path=db, clock=clock).enqueue("work")
    assert codes(cli)["clock.ahead"] == "warning"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions and links")
def test_what_lies_beside_the_file_is_looked_at(cli: Cli, db: Path, tmp_path: Path) -> None:
    """Permissions, links, leftovers, other names (DESIGN §3)."""
    cli.done("init")
    db.with_name("app.queue-lock").chmod(0o644)
    (tmp_path / "elsewhere").touch()
    db.with_name("app.queue-maintenance").symlink_to(tmp_path / "elsewhere")
    (tmp_path / ".app.queue.12345678.litequeue-partial").touch()
    os.link(db, tmp_path / "other-name")
    db.with_name("app.queue-journal").write_bytes(b"\0" * 512)
    db.with_name("app.queue-journal").chmod(0o600)
    found = codes(cli)
    for code in ("sidecar.mode", "sidecar.leftover", "log.hot"):
        assert found[code] == "warning"
    assert found["sidecar.kind"] == found["file.links"] == "problem"
    assert "app.queue-lock (644 instead of 600)" in cli("doctor").out


def test_settings_and_limits_are_looked_at(cli: Cli, sql: Callable[[str], list[tuple[object, ...]]]) -> None:
    """A name of a newer version, and a file that is nearly full (§5)."""
    cli.done("enqueue", "work", json.dumps("x" * 20_000))
    cli.done("settings", "set", "max_bytes", "65536")
    sql("INSERT INTO litequeue_setting VALUES ('newer', 1)")
    found = codes(cli)
    assert found["setting.unknown"] == found["file.limit"] == "warning"


def test_an_applications_own_file_is_told_as_a_fact(cli: Cli, sql: Callable[[str], list[tuple[object, ...]]]) -> None:
    """Its tables are its business (§6)."""
    cli.done("init")
    sql("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    assert codes(cli)["file.application"] == "fact"
    assert ": 1 table of its own\n" in cli.done("doctor")
    sql("CREATE TABLE customers (id INTEGER PRIMARY KEY)")
    assert ": 2 tables of its own\n" in cli.done("doctor")


def test_another_journal_mode_is_mended(cli: Cli, sql: Callable[[str], list[tuple[object, ...]]]) -> None:
    """The next opening would set it as well (DESIGN §3)."""
    cli.done("init")
    sql("PRAGMA journal_mode = DELETE")
    assert codes(cli)["file.journal"] == "warning"
    assert "set the journal mode to WAL" in cli.done("doctor", "--fix")
    assert "file.journal" not in codes(cli)


def test_a_kind_of_limit_was_lowered_since(cli: Cli, queue: Queue) -> None:
    """A waiting job that has had its attempts runs once more: no rule is broken, but somebody may wonder (V7)."""
    queue.enqueue("work")
    (lease,) = queue.lease_many(1)
    lease.fail("boom")
    queue.set("max_attempts", 1)
    assert codes(cli)["job.spent"] == "warning"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_a_file_that_can_only_be_read_is_examined(
    processes: Processes, cli: Cli, db: Path, obedient: Callable[[], None] | None
) -> None:
    """In a folder where nothing can be made; --fix says that it may not write (§6)."""
    cli.done("enqueue", "work")
    db.chmod(0o400)
    db.with_name("app.queue-lock").chmod(0o400)
    db.parent.chmod(0o500)
    try:
        outcome = processes.run("doctor", before=obedient)
        assert (outcome.status, outcome.only_complaint()) == (1, f"{db} has 1 problem")
        assert "sidecar.access" in outcome.out
        assert "jobs: 1" in outcome.out
    finally:
        db.parent.chmod(0o700)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_a_file_that_cannot_be_read_is_an_error(
    processes: Processes, cli: Cli, db: Path, obedient: Callable[[], None] | None
) -> None:
    """With the reason, and no traceback (§9)."""
    cli.done("enqueue", "work")
    db.chmod(0)
    outcome = processes.run("doctor", before=obedient)
    assert "no permission" in outcome.line_of_failure(1)
