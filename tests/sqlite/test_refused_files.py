"""Files that are not this version's queue: each is refused with the right error and left as it was, to a byte (§6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import NotAQueue, SchemaMismatch
from litequeue.sqlite import tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Fingerprint = Callable[[], dict[str, str]]

pytestmark = pytest.mark.slow


def _database(path: Path, *statements: str) -> None:
    """Make, or change, a database with SQL; it is closed afterwards."""
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


_FOREIGN: dict[str, Callable[[Path], object]] = {
    "a text file": lambda path: path.write_text("dear diary,\n" * 400),
    "a short text file": lambda path: path.write_text("hi"),
    "bytes": lambda path: path.write_bytes(bytes(range(256)) * 64),
    "another application's tables": lambda path: _database(path, "CREATE TABLE orders (id)"),
    "another application's view": lambda path: _database(path, "CREATE VIEW one AS SELECT 1"),
    "another application's mark": lambda path: _database(path, "PRAGMA application_id = 252006673"),
    "an empty UTF-16 database": lambda path: _database(
        path, "PRAGMA encoding = 'UTF-16'", "CREATE TABLE orders (id)", "DROP TABLE orders"
    ),
    "a UTF-16 database": lambda path: _database(path, "PRAGMA encoding = 'UTF-16'", "CREATE TABLE orders (id)"),
    "tables of a like name": lambda path: _database(path, "CREATE TABLE litequeue_metadata (id)"),
    "another application's WAL": lambda path: _database(path, "PRAGMA journal_mode = WAL", "CREATE TABLE orders (id)"),
}


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("what", _FOREIGN)
def test_what_is_not_a_queue_is_refused_and_left_as_it_was(
    path: Path, fingerprint: Fingerprint, what: str, *, create: bool
) -> None:
    """`NotAQueue` with path and reason; no byte is changed, and nothing is left beside the file (§6)."""
    _FOREIGN[what](path)
    before = fingerprint()
    with pytest.raises(NotAQueue) as caught:
        litequeue.open(path, create=create)
    assert caught.value.path == str(path)
    assert caught.value.reason
    assert fingerprint() == before


def test_an_empty_file_is_not_made_a_queue_without_create(path: Path, fingerprint: Fingerprint) -> None:
    """A 0-byte file is a new queue only for someone who may create one (§6)."""
    path.touch()
    before = fingerprint()
    with pytest.raises(NotAQueue):
        litequeue.open(path, create=False)
    assert fingerprint() == before
    litequeue.open(path).close()
    litequeue.open(path, create=False).close()


def test_a_file_of_another_application_that_is_in_use_is_left_alone(path: Path, fingerprint: Fingerprint) -> None:
    """Its own write-ahead log stays what it is while that application has it open (§6)."""
    theirs = apsw.Connection(str(path))
    theirs.execute("PRAGMA journal_mode = WAL").fetchall()
    theirs.execute("CREATE TABLE orders (id)")
    before = fingerprint()
    with pytest.raises(NotAQueue):
        litequeue.open(path)
    after = fingerprint()
    for files in (before, after):  # the shared memory says who reads, so it changes with every reader
        files.pop(f"{path.name}-shm")
    assert after == before
    theirs.execute("INSERT INTO orders VALUES (1)")
    theirs.close()


_JOB_COLUMNS = "scope TEXT, state INTEGER, job_id BLOB"

_CHANGES: dict[str, tuple[tuple[str, ...], str]] = {
    "a missing index": (("DROP INDEX litequeue_job_due",), "litequeue_job_due"),
    "a missing table": (("DROP TABLE litequeue_rerun",), "litequeue_rerun"),
    "a missing view": (("DROP VIEW litequeue_jobs",), "litequeue_jobs"),
    "a planted index": (("CREATE INDEX mine ON litequeue_job (kind)",), "mine"),
    "a planted table": (("CREATE TABLE litequeue_extra (a)",), "litequeue_extra"),
    "a planted trigger": (
        ("CREATE TRIGGER mine AFTER INSERT ON litequeue_job BEGIN DELETE FROM litequeue_body; END",),
        "mine",
    ),
    "a trigger on the view": (
        ("CREATE TRIGGER mine INSTEAD OF INSERT ON litequeue_jobs BEGIN SELECT 1; END",),
        "mine",
    ),
    "a changed index": (
        ("DROP INDEX litequeue_job_deadline", "CREATE INDEX litequeue_job_deadline ON litequeue_job (kind)"),
        "litequeue_job_deadline",
    ),
    "an added column": (("ALTER TABLE litequeue_outcome ADD COLUMN mine TEXT",), "litequeue_outcome"),
    "a changed table": (
        ("DROP TABLE litequeue_outcome", "CREATE TABLE litequeue_outcome (job_id, result, last_error)"),
        "litequeue_outcome",
    ),
    "a view in place of a table": (
        (
            f"CREATE TABLE mine ({_JOB_COLUMNS})",
            "DROP TABLE litequeue_rerun",
            "CREATE VIEW litequeue_rerun AS SELECT * FROM mine",
        ),
        "litequeue_rerun",
    ),
    "a changed view": (
        ("DROP VIEW litequeue_jobs", "CREATE VIEW litequeue_jobs AS SELECT 1"),
        "litequeue_jobs",
    ),
    "a newer version": (("UPDATE litequeue_meta SET schema_version = 999",), "999"),
    "a version before the first": (("UPDATE litequeue_meta SET schema_version = 0",), "0"),
    "a version that is none": (
        (
            "DROP TABLE litequeue_meta",
            "CREATE TABLE litequeue_meta (schema_version)",
            "INSERT INTO litequeue_meta VALUES ('2')",
        ),
        "version 2",
    ),
    "no version": (("DELETE FROM litequeue_meta",), "None"),
    "a version table of another shape": (
        ("DROP TABLE litequeue_meta", "CREATE TABLE litequeue_meta (a)"),
        "version",
    ),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_changed_queue_tables_are_refused_and_left_as_they_are(
    path: Path, fingerprint: Fingerprint, change: str
) -> None:
    """`SchemaMismatch` says what was found and what was expected; the file is not touched (§6)."""
    statements, named = _CHANGES[change]
    with litequeue.open(path) as queue:
        queue.enqueue("work")
    _database(path, *statements)
    before = fingerprint()
    with pytest.raises(SchemaMismatch) as caught:
        litequeue.open(path)
    assert caught.value.path == str(path)
    assert named in caught.value.found
    assert f"version {tables.VERSION}" in caught.value.expected
    assert fingerprint()[path.name] == before[path.name]


@pytest.mark.parametrize("table", ["litequeue_host", "litequeue_meta"])
def test_a_queue_without_the_row_that_all_agree_on_is_refused(path: Path, table: str) -> None:
    """By an error of the package, not by whatever looking for a row that is not there throws (§6)."""
    litequeue.open(path).close()
    connection = apsw.Connection(str(path))
    connection.execute(f"DELETE FROM {table}")
    connection.close()
    with pytest.raises((litequeue.StorageCorrupt, litequeue.SchemaMismatch)):
        litequeue.open(path)


def test_an_open_handle_meets_tables_that_were_changed_underneath(path: Path) -> None:
    """A queue table dropped beside an open handle is a `SchemaMismatch` of the verb that meets it (§6)."""
    with litequeue.open(path) as queue:
        queue.enqueue("work")
        _database(path, "DROP TABLE litequeue_rerun", "DROP TABLE litequeue_body")
        with pytest.raises(SchemaMismatch):
            queue.enqueue("work")


def test_the_users_own_tables_may_live_in_the_file(path: Path) -> None:
    """Other tables, their indexes, triggers and views are the user's business, and so is when they come (§6, §2)."""
    with litequeue.open(path) as queue:
        queue.enqueue("work")
    _database(
        path,
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, mailed)",
        "CREATE INDEX orders_mailed ON orders (mailed)",
        "CREATE TRIGGER on_order AFTER INSERT ON orders BEGIN UPDATE orders SET mailed = 0 WHERE id = new.id; END",
        "CREATE VIEW open_jobs AS SELECT * FROM litequeue_jobs WHERE state = 'pending'",
    )
    with litequeue.open(path) as queue, queue.transaction() as tx:
        tx.execute("INSERT INTO orders (id) VALUES (1)")
        tx.enqueue("mail")
        assert tx.execute("SELECT mailed FROM orders") == [(0,)]
        assert tx.execute("SELECT kind FROM open_jobs ORDER BY created_at") == [("work",), ("mail",)]


def test_a_table_less_database_becomes_a_queue(path: Path) -> None:
    """A database without tables is a new file, whatever its page size (§6)."""
    _database(path, "PRAGMA page_size = 512", "PRAGMA user_version = 7")
    with litequeue.open(path) as queue:
        queue.enqueue("work")
    with litequeue.open(path, create=False) as queue:
        assert queue.stats().total == 1
