"""Examining a file: a sound one has no problem, and whatever no verb writes is found, each by its code."""

from __future__ import annotations

import hashlib
import os
import sys
from typing import TYPE_CHECKING, cast
from uuid import UUID

import apsw
import pytest

import litequeue
from litequeue import ANY, JobState, NewJob
from litequeue.sqlite.examining import PAGE, examine, problems
from litequeue.sqlite.findings import CATALOGUE, Tally
from litequeue.sqlite.invariants import LEADS_TO
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOST = "x'00000000000000000000000000000000'"
TWICE = """
INSERT INTO litequeue_job SELECT scope, 6, priority, created_at, job_id, kind, attempts, reaps, max_attempts,
    lease_generation, NULL, NULL, leased_at, NULL, 0, 0, NULL, NULL, NULL, created_at, NULL, events
FROM litequeue_job WHERE state = 0
"""
READY = "SELECT job_id FROM litequeue_job WHERE state = 0"
GONE = "SELECT job_id FROM litequeue_job WHERE state = 6 AND scope = 'default'"
PLANTED = [
    # What another program may have written, and what is found by it.
    ("job.id", "UPDATE litequeue_job SET job_id = x'00' WHERE state = 0"),
    ("job.name", "UPDATE litequeue_job SET kind = '' WHERE state = 0"),
    ("job.name", "UPDATE litequeue_job SET idempotency_key = char(7) WHERE state = 0"),
    ("job.name", "UPDATE litequeue_job SET worker_id = char(7) WHERE state = 1"),
    ("job.priority", "UPDATE litequeue_job SET priority = 256 WHERE state = 0"),
    ("job.lease", "UPDATE litequeue_job SET worker_id = NULL WHERE state = 1"),
    ("job.lease", "UPDATE litequeue_job SET holder = NULL WHERE state = 1"),
    ("job.lease", "UPDATE litequeue_job SET leased_at = NULL WHERE state = 1"),
    ("job.lease", "UPDATE litequeue_job SET lease_deadline = NULL WHERE state = 1"),
    ("job.lease", "UPDATE litequeue_job SET holder = 1 WHERE state = 0"),
    ("job.lease", "UPDATE litequeue_job SET beats = 1 WHERE state = 0"),
    ("job.gate", "UPDATE litequeue_job SET not_before = NULL WHERE state = 3"),
    ("job.gate", "UPDATE litequeue_job SET not_before = 1 WHERE state = 0"),
    ("job.finished", "UPDATE litequeue_job SET finished_at = NULL WHERE state = 2"),
    ("job.finished", "UPDATE litequeue_job SET finished_at = created_at - 1 WHERE state = 4"),
    ("job.finished", "UPDATE litequeue_job SET finished_at = created_at WHERE state = 1"),
    ("job.counts", "UPDATE litequeue_job SET attempts = lease_generation + 1"),
    ("job.counts", "UPDATE litequeue_job SET reaps = attempts + 1"),
    ("job.counts", "UPDATE litequeue_job SET attempts = 0 WHERE state = 1"),
    ("job.max_attempts", "UPDATE litequeue_job SET max_attempts = 0 WHERE state = 0"),
    ("job.times", "UPDATE litequeue_job SET expires_at = -1 WHERE state = 0"),
    ("job.events", "UPDATE litequeue_job SET events = x'c1' WHERE state = 0"),
    ("job.events", "UPDATE litequeue_job SET events = x'' WHERE state = 0"),
    ("job.events", "UPDATE litequeue_job SET events = x'920102' WHERE state = 1"),
    ("job.last_event", "UPDATE litequeue_job SET events = CAST(events || x'920106' AS BLOB) WHERE state = 0"),
    ("job.payload", "UPDATE litequeue_body SET payload = x'ff'"),
    ("job.payload", "UPDATE litequeue_body SET payload = x''"),
    ("job.payload", "UPDATE litequeue_body SET payload = x'01c1'"),
    ("job.result", "UPDATE litequeue_outcome SET result = x'02' WHERE result IS NOT NULL"),
    ("job.body", "DELETE FROM litequeue_body"),
    ("job.body", "UPDATE litequeue_body SET priority = priority + 1"),
    ("job.body", "UPDATE litequeue_body SET scope = 'other'"),
    ("body.orphan", "DELETE FROM litequeue_job WHERE state = 0"),
    ("job.twice", TWICE),
    ("outcome.orphan", f"INSERT INTO litequeue_outcome VALUES ({LOST}, NULL, 'boom')"),
    ("continuation.orphan", f"INSERT INTO litequeue_continuation VALUES ({LOST}, x'00', NULL, NULL)"),
    (
        "continuation.orphan",
        "INSERT INTO litequeue_continuation SELECT job_id, x'00', NULL, NULL FROM litequeue_job WHERE state = 0",
    ),
    ("continuation.missing", "DELETE FROM litequeue_continuation"),
    ("continuation.progress", "UPDATE litequeue_continuation SET progress = 1.5"),
    ("rerun.orphan", f"INSERT INTO litequeue_rerun VALUES ({LOST}, 100, NULL, NULL, NULL, x'01c0')"),
    (
        "rerun.orphan",
        "INSERT INTO litequeue_rerun SELECT job_id, 100, NULL, NULL, NULL, x'01c0' FROM litequeue_job WHERE state = 2",
    ),
    ("outbox.order", "UPDATE litequeue_outbox SET payload = NULL"),
    ("outbox.order", "UPDATE litequeue_outbox SET payload = x'01c0'"),
    ("outbox.missing", f"UPDATE litequeue_outbox SET job_id = {LOST} WHERE payload IS NULL"),
    ("slot.missing", "DELETE FROM litequeue_slot"),
    ("slot.missing", "UPDATE litequeue_slot SET scope = 'default'"),
    ("slot.orphan", f"INSERT INTO litequeue_slot VALUES ('running', 'litequeue:all', {LOST})"),
    ("slot.orphan", "UPDATE litequeue_slot SET kind = 'ready'"),
    ("gate.missing", "DELETE FROM litequeue_gate"),
    ("gate.lost", "DELETE FROM litequeue_dependency"),
    ("gate.lost", "UPDATE litequeue_gate SET parents = 3, missing = 3"),
    ("gate.count", "UPDATE litequeue_gate SET missing = 1, completed = 1"),
    ("gate.state", "UPDATE litequeue_gate SET missing = 0, dead = 2"),
    ("gate.state", "UPDATE litequeue_gate SET job_id = (SELECT job_id FROM litequeue_job WHERE state = 0)"),
    ("gate.sum", "UPDATE litequeue_gate SET cancelled = 1"),
    ("gate.sum", "UPDATE litequeue_gate SET parents = 3"),
    ("gate.orphan", f"UPDATE litequeue_gate SET job_id = {LOST}"),
    ("dependency.orphan", "INSERT INTO litequeue_dependency SELECT job_id, 99 FROM litequeue_job WHERE state = 0"),
    ("dependency.lost", f"UPDATE litequeue_dependency SET parent_id = {LOST} WHERE parent_id IN ({READY})"),
    ("dependency.untold", f"UPDATE litequeue_dependency SET parent_id = ({GONE}) WHERE parent_id IN ({READY})"),
    ("setting.value", "INSERT INTO litequeue_setting VALUES ('rate', 'fast')"),
    ("setting.value", "INSERT INTO litequeue_scope_setting VALUES ('litequeue:each', '', 'concurrency', 0)"),
    ("setting.value", "UPDATE litequeue_weight SET weight = 1"),
    ("turn.values", "UPDATE litequeue_turn SET served = 0"),
    ("turn.values", "UPDATE litequeue_turn SET served = 1001"),
    ("schedule.values", "UPDATE litequeue_schedule SET name = char(7) WHERE name = 'tick'"),
    ("schedule.values", "UPDATE litequeue_schedule SET kind = ''"),
    ("schedule.values", "UPDATE litequeue_schedule SET scope = 'litequeue:mine'"),
    ("schedule.values", "UPDATE litequeue_schedule SET priority = 256"),
    ("schedule.values", "UPDATE litequeue_schedule SET max_attempts = 0"),
    ("schedule.values", "UPDATE litequeue_schedule SET expires_us = -1"),
    ("schedule.values", "UPDATE litequeue_schedule SET spec = '61 * * * *'"),
    ("schedule.values", "UPDATE litequeue_schedule SET boundary = last_boundary WHERE last_boundary IS NOT NULL"),
    ("schedule.values", "UPDATE litequeue_schedule SET boundary = -1"),
    ("schedule.values", "UPDATE litequeue_schedule SET last_fired_at = NULL"),
    ("schedule.payload", "UPDATE litequeue_schedule SET payload = x'ff'"),
    ("host.rows", "DELETE FROM litequeue_host"),
    ("setting.value", "INSERT INTO litequeue_setting VALUES ('lease_ttl', -1)"),
    ("setting.value", "INSERT INTO litequeue_setting VALUES ('lease_ttl', 'soon')"),
    ("setting.value", "INSERT INTO litequeue_kind_setting VALUES ('work', 'max_attempts', 0)"),
    ("setting.value", "INSERT INTO litequeue_kind_setting VALUES ('work', 'max_bytes', 1000000)"),
    ("file.schema", "CREATE TRIGGER planted AFTER INSERT ON litequeue_job BEGIN SELECT 1; END"),
    ("file.schema", "CREATE INDEX planted ON litequeue_job (kind)"),
    ("file.schema", "DROP VIEW litequeue_jobs"),
    ("file.schema", "UPDATE litequeue_meta SET schema_version = 99"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a file with a job in every state, one that runs with a checkpoint, and nobody who has it open."""
    path = tmp_path / "app.queue"
    queue = litequeue.open(path, durability="normal")
    queue.set("concurrency", 3, kind="running")
    queue.enqueue_many(NewJob("done", n) for n in range(2))
    for lease in queue.lease_many(2):
        lease.complete({"n": 1})
    queue.enqueue("dead")
    queue.lease_many(1)[0].fail("boom", retryable=False)
    queue.enqueue("again")
    queue.lease_many(1)[0].fail("boom", delay=60)
    queue.cancel(queue.enqueue("gone").job_id)
    later = queue.enqueue("later", delay=60, idempotency_key="once")
    queue.enqueue("running", idempotency_key="run")
    queue.set_weight("default", 2)
    queue.lease_many(1, scope=ANY)[0].checkpoint(b"half", progress=0.5)
    queue.enqueue("running", "newest", idempotency_key="run", on_conflict="reset")
    ready = queue.enqueue("ready")
    queue.enqueue("waits", after=[later.job_id, ready.job_id])
    queue.schedule("tick", "@every 1s", "work", scope="ticks")
    plant(path, "UPDATE litequeue_schedule SET boundary = boundary - 1000000")
    assert queue.fire_schedules().jobs == 1
    queue.cancel(queue.list(scope="ticks")[0].job_id)
    queue.schedule("nightly", "30 2 * * *", "work", timezone="Europe/Berlin", expires=60, max_attempts=2)
    for n in range(2):
        queue.put_message("mail", n, key="one")
    counts = queue.stats().counts
    assert all(counts[state] for state in JobState)
    queue._store.holdings.start_afresh(is_open=False)
    queue.close()
    return path


def plant(path: Path, *statements: str) -> None:
    """Write what no verb writes, through a connection that knows nothing of the queue's rules."""
    connection = apsw.Connection(str(path))
    try:
        for statement in ("PRAGMA ignore_check_constraints = 1", *statements):
            connection.execute(statement).fetchall()
    finally:
        connection.close()


def codes(path: Path) -> set[str]:
    """Return the codes of the problems of a file."""
    return {line.partition(":")[0] for line in problems(str(path))}


def test_a_file_with_a_job_in_every_state_has_no_problem(path: Path) -> None:
    """What the verbs write is what an examination expects (§2, §3)."""
    assert problems(str(path)) == []


@pytest.mark.parametrize(("code", "statement"), PLANTED)
def test_what_no_verb_writes_is_found(path: Path, code: str, statement: str) -> None:
    """Each broken rule by its code (§2, §3)."""
    plant(path, statement)
    assert code in codes(path)


def test_every_problem_is_planted_by_a_test_of_these() -> None:
    """A code that nothing provokes may be one that cannot be found at all."""
    elsewhere = {
        *("file.empty", "file.foreign", "file.unreadable", "file.integrity", "file.index", "file.encoding"),
        *("job.values", "file.links", "sidecar.kind", "sidecar.access", "disk.breaks", "disk.full"),
    }
    assert {code for code, sort in CATALOGUE.items() if sort.severity == "problem"} == elsewhere | {
        code for code, _ in PLANTED
    }


def test_an_examination_leaves_no_trace(path: Path, fingerprint: Callable[[], dict[str, str]]) -> None:
    """Neither the file nor what lies beside it is changed, and nothing is made (§6)."""
    before = fingerprint()
    problems(str(path))
    assert fingerprint() == before


def test_a_crashed_file_is_examined_with_its_log_and_keeps_it(path: Path, tmp_path: Path) -> None:
    """What was committed and not yet copied back is looked at, and is not copied back by that (§6)."""
    plant(path, "UPDATE litequeue_job SET priority = 256 WHERE state = 0")
    copy = tmp_path / "crashed.queue"
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE litequeue_job SET priority = 100 WHERE state = 0")
    log = path.with_name(path.name + "-wal").read_bytes()
    copy.write_bytes(path.read_bytes())
    connection.close()
    copy.with_name("crashed.queue-wal").write_bytes(log)
    digest = hashlib.sha256(copy.read_bytes()).digest()
    assert problems(str(copy)) == []
    assert hashlib.sha256(copy.read_bytes()).digest() == digest
    assert copy.with_name("crashed.queue-wal").read_bytes() == log


def test_a_connection_in_a_transaction_is_examined_in_it(path: Path) -> None:
    """A harness sees what it has not committed."""
    connection = apsw.Connection(str(path))
    connection.execute("BEGIN")
    connection.execute("UPDATE litequeue_job SET priority = 256 WHERE state = 0")
    assert {line.partition(":")[0] for line in problems(connection)} == {
        *("job.priority", "job.body", "body.orphan", "dependency.lost")
    }
    connection.execute("ROLLBACK")
    assert problems(connection) == []
    connection.close()


def test_the_walk_goes_on_page_by_page(path: Path) -> None:
    """No row is left out where one page ends and the next begins, and progress is told."""
    with litequeue.open(path, durability="normal") as queue:
        queue.enqueue_many(NewJob("many", n) for n in range(3 * PAGE))
    connection = apsw.Connection(str(path))
    tally, told = Tally(), []
    examine(connection, FakeClock(), tally, lambda done, total: told.append((done, total)))
    connection.close()
    jobs = 3 * PAGE + 11
    (counted,) = [finding for finding in tally.findings() if finding.code == "job.count"]
    assert counted.text == f"jobs: {jobs:,}"
    assert told[-1] == (2 * jobs, 2 * jobs)
    plant(path, "UPDATE litequeue_job SET reaps = 9 WHERE kind = 'many'")
    assert f"({3 * PAGE:,})" in next(line for line in problems(str(path)) if line.startswith("job.counts"))


def test_a_finding_names_some_of_its_jobs(path: Path) -> None:
    """Enough to look at one, whatever their number; an id that is none is shown as it is."""
    plant(path, "UPDATE litequeue_job SET reaps = 99")
    line = next(line for line in problems(str(path)) if line.startswith("job.counts"))
    shown = line.rpartition(": ")[2].split(", ")
    assert len(shown) == 3
    assert all(UUID(one) for one in shown)
    plant(path, "UPDATE litequeue_job SET job_id = x'beef' WHERE kind = 'ready'")
    assert "job.id: a job's id is not 16 bytes: x'beef'" in problems(str(path))


def test_every_transition_that_moves_a_job_says_where_to() -> None:
    """Those that say nothing of a state are those that move nothing (§3)."""
    moves_nothing = {"extended", "checkpoint", "note", "truncated"}
    assert {str(transition) for transition in litequeue.Transition} == {str(one) for one in LEADS_TO} | moves_nothing
    assert frozenset().union(*LEADS_TO.values()) == set(JobState)


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"", "file.empty"), (b"SQLite", "file.foreign"), (b"hello" * 1000, "file.foreign")],
    ids=["empty", "short", "text"],
)
def test_what_is_no_queue_is_said_to_be_none(tmp_path: Path, content: bytes, code: str) -> None:
    """An empty file, and one that is no database (§6)."""
    path = tmp_path / "other"
    path.write_bytes(content)
    assert codes(path) == {code}
    assert [one.name for one in tmp_path.iterdir()] == ["other"]


def test_a_log_beside_an_empty_file_is_not_thrown_away(path: Path, fingerprint: Callable[[], dict[str, str]]) -> None:
    """SQLite would, even when it only reads: it may be all that there is of a queue (G2)."""
    log = path.with_name("app.queue-wal")
    path.write_bytes(b"")
    log.write_bytes(b"all that is left")
    before = fingerprint()
    assert codes(path) == {"file.integrity"}
    with pytest.raises(litequeue.StorageCorrupt, match="its write-ahead log is not"):
        litequeue.restore(path, path.with_name("new.queue"))
    with litequeue.open(path.with_name("other.queue")) as queue:
        queue.backup(path.with_name("app.backup"))
    with pytest.raises(litequeue.StorageCorrupt, match="its write-ahead log is not"):
        litequeue.restore(path.with_name("app.backup"), path, overwrite=True)
    after = fingerprint()
    assert {name: after.get(name) for name in before} == before


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX links and pipes")
@pytest.mark.parametrize(
    "suffix", ["-wal", "-shm", "-journal", "-lock", "-maintenance", "-schedules", "-bell", "-done"]
)
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_stands_in_the_place_of_a_sidecar_is_not_opened(path: Path, suffix: str, kind: str) -> None:
    """It is said, and nobody waits for a pipe (§6)."""
    beside = path.with_name(f"app.queue{suffix}")
    beside.unlink(missing_ok=True)
    if kind == "link":
        beside.symlink_to(path.with_name("elsewhere"))
    elif kind == "pipe":
        os.mkfifo(beside)
    else:
        beside.mkdir()
    found = {finding.code for finding in litequeue.doctor(path, fix=True).findings}
    assert "sidecar.kind" in found
    assert ("file.unseen" in found) == (suffix in ("-wal", "-shm", "-journal"))
    assert not path.with_name("elsewhere").exists()


def test_another_applications_file_is_said_to_be_foreign(tmp_path: Path) -> None:
    """Its tables are named, and it is left alone (§6)."""
    path = tmp_path / "other"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE invoices (id)")
    connection.close()
    (line,) = problems(str(path))
    assert line.startswith("file.foreign")
    assert "invoices" in line


def test_a_file_in_another_encoding_is_found(tmp_path: Path) -> None:
    """Event logs are appended as bytes, so the file must be UTF-8 (§6)."""
    path = tmp_path / "other"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA encoding = 'UTF-16'")
    connection.execute("CREATE TABLE litequeue_meta (id)")
    connection.close()
    assert "file.encoding" in codes(path)


def test_an_index_that_differs_from_its_table_is_told_apart_from_damage(path: Path) -> None:
    """It can be made anew from the table; other damage cannot (§6)."""
    plant(
        path,
        "PRAGMA writable_schema = 1",
        "UPDATE sqlite_schema SET sql = replace(sql, 'WHERE state = 0', 'WHERE state = 9')"
        " WHERE name = 'litequeue_job_ready'",
        "PRAGMA writable_schema = RESET",
        "REINDEX litequeue_job_ready",
        "PRAGMA writable_schema = 1",
        "UPDATE sqlite_schema SET sql = replace(sql, 'WHERE state = 9', 'WHERE state = 0')"
        " WHERE name = 'litequeue_job_ready'",
        "PRAGMA writable_schema = RESET",
    )
    assert codes(path) == {"file.index"}


def test_a_broken_page_is_found_and_the_rest_looked_at(path: Path) -> None:
    """Damage is a finding, never an exception (§6)."""
    connection = apsw.Connection(str(path))
    sql = "SELECT (rootpage - 1) * page_size, page_size FROM sqlite_schema, pragma_page_size WHERE name = ?"
    start, page_bytes = cast("tuple[int, int]", connection.execute(sql, ("litequeue_job",)).fetchall()[0])
    connection.close()
    data = bytearray(path.read_bytes())
    data[start : start + page_bytes] = b"\xff" * page_bytes
    path.write_bytes(data)
    assert {"file.integrity", "file.unreadable"} <= codes(path)


def test_a_truncated_file_is_found(path: Path) -> None:
    """The end is missing (§6)."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert codes(path) & {"file.integrity", "file.unreadable"}


def test_an_absent_file_is_no_finding(tmp_path: Path) -> None:
    """There is nothing to examine (§9)."""
    with pytest.raises(litequeue.CannotOpen, match="there is no such file"):
        problems(str(tmp_path / "absent"))
    assert list(tmp_path.iterdir()) == []
