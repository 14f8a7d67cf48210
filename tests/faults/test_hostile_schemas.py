"""Queue tables that were tampered with: refused by name, and nothing that was planted is run (§6).

Beside the plain changes of tests/sqlite/test_refused_files.py: tables that look alike, objects under our names, and a
schema that was written by hand.
"""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner

import litequeue
from litequeue import SchemaMismatch, StorageCorrupt
from litequeue.cli import litequeue as command

pytestmark = pytest.mark.slow


def _commands_refuse(path: str) -> None:
    """See that each command ends with one line that no terminal obeys; a traceback is an error of the test."""
    for words in ("stats", "enqueue work", "maintain --once"):
        result = CliRunner().invoke(command, ["--db", path, *words.split()])
        assert isinstance(result.exception, SystemExit), result
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        assert result.stderr.rstrip("\n").isprintable()


CHANGED = {
    "a virtual table in place of a table": (
        "DROP TABLE litequeue_rerun",
        "CREATE VIRTUAL TABLE litequeue_rerun USING fts5(job_id, priority)",
    ),
    "a table without STRICT": (
        "DROP TABLE litequeue_outcome",
        "CREATE TABLE litequeue_outcome (job_id BLOB PRIMARY KEY, result BLOB, last_error TEXT) WITHOUT ROWID",
    ),
    "a column that is computed": ("ALTER TABLE litequeue_rerun ADD COLUMN g TEXT AS (hex(payload)) VIRTUAL",),
    "a check that calls a function": ("ALTER TABLE litequeue_rerun ADD COLUMN c TEXT CHECK (abs(c) > 0)",),
    "a default that calls a function": (
        "DROP TABLE litequeue_setting",
        "CREATE TABLE litequeue_setting (name TEXT PRIMARY KEY, value ANY DEFAULT (zeroblob(9))) STRICT, WITHOUT ROWID",
    ),
    "a view that calls a function": (
        "DROP VIEW litequeue_jobs",
        "CREATE VIEW litequeue_jobs AS SELECT load_extension('/tmp/evil.so')",
    ),
    "an index that calls a function": ("CREATE INDEX mine ON litequeue_job (abs(priority))",),
    "a trigger of our name on another's table": (
        "CREATE TABLE orders (id)",
        "CREATE TRIGGER litequeue_mine AFTER INSERT ON orders BEGIN SELECT 1; END",
    ),
    "an index of our name on another's table": (
        "CREATE TABLE orders (id)",
        "CREATE INDEX Litequeue_mine ON orders (id)",
    ),
    "a table in other letters": ("DROP TABLE litequeue_rerun", "CREATE TABLE LiteQueue_Rerun (job_id)"),
    "a column with a quoted name": ('ALTER TABLE litequeue_rerun ADD COLUMN "payload " BLOB',),
}


@pytest.mark.parametrize("change", CHANGED)
def test_queue_tables_that_only_look_alike_are_refused(path: str, change: str) -> None:
    """`SchemaMismatch`; nothing planted is run, and the file is left as it is (§6)."""
    with litequeue.open(path) as queue:
        queue.enqueue("work")
    connection = apsw.Connection(path)
    for statement in CHANGED[change]:
        connection.execute(statement).fetchall()
    connection.close()
    before = Path(path).read_bytes()
    with pytest.raises(SchemaMismatch):
        litequeue.open(path)
    _commands_refuse(path)
    assert Path(path).read_bytes() == before


_TRIGGER = "CREATE TRIGGER evil AFTER INSERT ON litequeue_job BEGIN DELETE FROM litequeue_body; END"
_ADD = "INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES"
WRITTEN = {
    "a trigger under another table's name": f"{_ADD} ('trigger', 'evil', 'orders', 0, '{_TRIGGER}')",
    "a trigger that says it is a table": f"{_ADD} ('table', 'evil', 'evil', 0, '{_TRIGGER}')",
    "an index under another table's name": (
        "UPDATE sqlite_schema SET sql = 'CREATE UNIQUE INDEX by_id ON litequeue_job (kind)' WHERE name = 'by_id'"
    ),
    "a view that says it is a table": f"{_ADD} ('table', 'evil', 'evil', 0, 'CREATE VIEW litequeue_v AS SELECT 1')",
    "a table that comes twice": "INSERT INTO sqlite_schema SELECT * FROM sqlite_schema WHERE name = 'litequeue_job'",
    "names that are no text": f"{_ADD} (x'ff', x'fffe', x'ff', 0, '{_TRIGGER}')",
    "a statement that creates nothing": f"{_ADD} ('trigger', 'a', 'b', 0, 'DROP TABLE litequeue_job')",
    "no names": f"{_ADD} (NULL, NULL, NULL, NULL, NULL)",
    "the schema's own page as a table": "UPDATE sqlite_schema SET rootpage = 1 WHERE name = 'litequeue_job'",
    "a page that there is not": "UPDATE sqlite_schema SET rootpage = 99999 WHERE name = 'litequeue_job'",
    "a name that steers a terminal": f"{_ADD} ('table', char(27) || '[2J', 'b', 0, 'CREATE TABLE ' || char(27))",
}


@pytest.mark.parametrize("written", WRITTEN)
def test_a_schema_that_was_written_by_hand_is_refused(path: str, written: str) -> None:
    """What `writable_schema` has put there is never run: a named error, and the file is left as it is (§6)."""
    with litequeue.open(path) as queue:
        queue.enqueue("work")
    connection = apsw.Connection(path)
    for statement in (
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, entry TEXT)",
        "CREATE UNIQUE INDEX by_id ON orders (entry)",
        "PRAGMA writable_schema = ON",
        WRITTEN[written],
    ):
        connection.execute(statement).fetchall()
    connection.close()
    before = Path(path).read_bytes()
    with pytest.raises((StorageCorrupt, SchemaMismatch)):
        litequeue.open(path)
    _commands_refuse(path)
    assert Path(path).read_bytes() == before


def test_a_trigger_on_a_users_table_cannot_reach_the_queues(path: str) -> None:
    """It may live in the file, and what it does to the queue's tables is refused as the user's own SQL is (V14)."""
    with litequeue.open(path) as queue:
        queue.enqueue("work")
    connection = apsw.Connection(path)
    connection.execute("CREATE TABLE orders (id)")
    connection.execute("CREATE TRIGGER mine AFTER INSERT ON orders BEGIN DELETE FROM litequeue_job; END")
    connection.close()
    with litequeue.open(path) as queue:
        with pytest.raises(litequeue.UsageError), queue.transaction() as tx:
            tx.execute("INSERT INTO orders VALUES (1)")
        assert queue.stats().total == 1


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TEMP TRIGGER mine AFTER INSERT ON litequeue_job BEGIN SELECT 1; END",
        "CREATE TEMP TRIGGER mine AFTER INSERT ON main.litequeue_job BEGIN SELECT 1; END",
        "CREATE TEMP TABLE litequeue_body (job_id)",
        "CREATE TEMP VIEW litequeue_body AS SELECT 1",
        "CREATE TEMP TABLE LITEQUEUE_JOB AS SELECT 1",
    ],
)
def test_temporary_objects_cannot_stand_before_the_queues_tables(path: str, sql: str) -> None:
    """Neither by their names nor as triggers on them (V14)."""
    with litequeue.open(path) as queue:
        with pytest.raises(litequeue.UsageError), queue.transaction() as tx:
            tx.execute(sql)
        queue.enqueue("work")
        assert queue.stats().total == 1
