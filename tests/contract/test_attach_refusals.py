"""What `litequeue.attach` and its verbs refuse, with the reason and what to do; nothing is changed (issue 7, §6)."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import (
    CannotOpen,
    JobNotFound,
    NotAQueue,
    Outbox,
    QueueBusy,
    QueueClosed,
    SchemaMismatch,
    StorageLost,
    UsageError,
)
from litequeue.sqlite import tables as tables_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Attached
    from tests.conftest import MakeQueue


def tables(connection: apsw.Connection) -> list[str]:
    """Return the names of the queue's objects in the application's database."""
    rows = connection.execute("SELECT name FROM sqlite_schema WHERE name LIKE 'litequeue%'").fetchall()
    return [str(name) for (name,) in rows]


# --- verbs


@pytest.mark.parametrize("before", [[], ["BEGIN"], ["BEGIN", "SELECT * FROM orders"], ["SAVEPOINT s"]], ids=str)
def test_a_verb_that_writes_wants_the_write_lock(app: apsw.Connection, attached: Attached, before: list[str]) -> None:
    """Without it, it would commit by itself, or fail half-way; the message says what to do (issue 7)."""
    for statement in before:
        app.execute(statement).fetchall()
    with pytest.raises(UsageError, match="BEGIN IMMEDIATE"):
        attached.enqueue("mail")
    with pytest.raises(UsageError, match="BEGIN IMMEDIATE"):
        attached.set("max_attempts", 1)
    assert app.in_transaction == bool(before)
    assert attached.stats().total == 0


def test_no_outbox_is_made_of_it_and_its_own_verb_is_named(attached: Attached) -> None:
    """Since it could not deliver (issue 8)."""
    with pytest.raises(UsageError, match=r"put_message\('mail', …, key=…\)"):
        Outbox(attached, "mail")  # type: ignore[arg-type]


def test_bad_arguments_are_told_as_everywhere(app: apsw.Connection, attached: Attached) -> None:
    """And leave the transaction alone (§6)."""
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        with pytest.raises(UsageError, match="priority"):
            attached.enqueue("mail", priority=256)
        with pytest.raises(litequeue.PayloadError):
            attached.enqueue("mail", object())
        with pytest.raises(JobNotFound):
            attached.cancel("00000000-0000-4000-8000-000000000001")
        attached.enqueue("mail")
    assert attached.stats().total == 1


def test_a_verb_beside_a_half_read_statement_that_writes_is_refused(app: apsw.Connection, attached: Attached) -> None:
    """SQLite opens no savepoint then; the statement goes on."""
    app.execute("BEGIN IMMEDIATE")
    writing = app.execute("INSERT INTO orders (id) VALUES (1), (2) RETURNING id")
    next(writing)
    with pytest.raises(UsageError, match="fetch"):
        attached.enqueue("mail")
    writing.fetchall()
    attached.enqueue("mail")
    app.execute("COMMIT")
    assert attached.stats().total == 1


def test_a_half_read_statement_that_reads_goes_on(app: apsw.Connection, attached: Attached) -> None:
    """Also when a verb fails."""
    with app:
        app.execute("INSERT INTO orders (id) VALUES (1), (2), (3)")
        reading = app.execute("SELECT id FROM orders ORDER BY id")
        assert next(reading) == (1,)
        attached.enqueue("mail")
        with pytest.raises(JobNotFound):
            attached.cancel("00000000-0000-4000-8000-000000000001")
        assert reading.fetchall() == [(2,), (3,)]


def test_an_authorizer_and_query_only_are_told_of(app: apsw.Connection, attached: Attached) -> None:
    """In words, not as damage of the file (§6)."""
    app.execute("BEGIN IMMEDIATE")
    app.set_authorizer(lambda action, *_: apsw.SQLITE_DENY if action == apsw.SQLITE_INSERT else apsw.SQLITE_OK)
    with pytest.raises(UsageError, match="authorizer"):
        attached.enqueue("mail")
    app.set_authorizer(None)
    app.execute("PRAGMA query_only = ON")
    with pytest.raises(UsageError, match="query_only"):
        attached.enqueue("mail")
    app.execute("PRAGMA query_only = OFF")
    attached.enqueue("mail")
    app.execute("COMMIT")


def test_a_closed_handle_and_a_closed_connection_are_no_more_use(app: apsw.Connection, attached: Attached) -> None:
    """`QueueClosed`; closing the handle leaves the connection open, and is idempotent (§6)."""
    with litequeue.attach(app) as other:
        pass
    other.close()
    with pytest.raises(QueueClosed), app:
        other.enqueue("mail")
    assert app.execute("SELECT 1").fetchall() == [(1,)]
    app.close()
    for verb in (lambda: attached.enqueue("mail"), attached.stats):
        with pytest.raises(QueueClosed, match="application has closed"):
            verb()
    attached.close()


def test_a_file_that_was_replaced_takes_no_more_jobs(app: apsw.Connection, attached: Attached, tmp_path: Path) -> None:
    """What is committed then is where nobody looks (§6 "replaced, deleted or renamed underneath")."""
    path = tmp_path / "queue.db"
    app.execute("BEGIN IMMEDIATE")
    path.rename(tmp_path / "moved.db")
    path.touch()
    for _ in range(2):
        with pytest.raises(StorageLost):
            attached.enqueue("mail")
    app.execute("ROLLBACK")


# --- connections


def test_only_an_open_connection_of_apsw_can_be_attached(app: apsw.Connection, tmp_path: Path) -> None:
    """The error names the argument and what was meant (§6)."""
    other = apsw.Connection(str(tmp_path / "other.db"))
    other.close()
    for given in (None, "queue.db", other, app.cursor()):
        with pytest.raises(UsageError, match=r"connection must be an open apsw\.Connection"):
            litequeue.attach(given)  # type: ignore[arg-type] # that is the test
    with pytest.raises(UsageError, match="scope"):
        litequeue.attach(app, scope="")
    assert tables(app) == []


@pytest.mark.parametrize("name", [":memory:", "", "file:name?mode=memory&cache=shared"])
def test_a_database_in_memory_is_refused(name: str) -> None:
    """No worker could reach it."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(name, flags)
    with pytest.raises(UsageError, match="memory"):
        litequeue.attach(connection)
    connection.close()


def test_a_connection_that_cannot_write_or_lets_nobody_in_is_refused(app: apsw.Connection, tmp_path: Path) -> None:
    """Read-only, `query_only`, exclusive: with the reason, and nothing is made."""
    reader = apsw.Connection(str(tmp_path / "queue.db"), apsw.SQLITE_OPEN_READONLY)
    with pytest.raises(UsageError, match="read-only"):
        litequeue.attach(reader)
    reader.close()
    app.execute("PRAGMA query_only = ON")
    with pytest.raises(UsageError, match="query_only"):
        litequeue.attach(app)
    app.execute("PRAGMA query_only = OFF")
    app.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
    with pytest.raises(UsageError, match="exclusive"):
        litequeue.attach(app)
    assert tables(app) == []


@pytest.mark.skipif(sys.platform == "win32", reason="its VFSes have other names")
@pytest.mark.parametrize("vfs", ["unix-excl", "unix-none", "unix-dotfile"])
def test_a_connection_whose_locks_nobody_sees_is_refused(tmp_path: Path, vfs: str) -> None:
    """A worker would write at the same time, or find the file locked for good."""
    path = str(tmp_path / "other.db")
    made = apsw.Connection(path)
    made.execute("PRAGMA journal_mode = DELETE").fetchall()
    made.execute("CREATE TABLE orders (id)")
    made.close()
    connection = apsw.Connection(f"file:{path}?vfs={vfs}", apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)
    try:
        with pytest.raises(UsageError, match=f"its vfs is {vfs}"):
            litequeue.attach(connection)
        assert tables(connection) == []
    finally:
        connection.close()


def test_functions_that_stand_in_for_sqlites_are_refused(app: apsw.Connection) -> None:
    """The queue's statements would call them."""
    app.create_scalar_function("Length", lambda *_: 0, 1)
    app.create_scalar_function("mine", lambda *_: 0, 1)
    with pytest.raises(UsageError, match=r"not length,"):
        litequeue.attach(app)
    assert tables(app) == []


# --- databases


def test_a_database_that_has_no_write_ahead_log_is_refused_with_the_pragma_to_run(tmp_path: Path) -> None:
    """The journal mode is the application's to change; then it may be attached (issue 7)."""
    connection = apsw.Connection(str(tmp_path / "app.db"))
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    with pytest.raises(CannotOpen, match="PRAGMA journal_mode = WAL"):
        litequeue.attach(connection)
    assert connection.execute("PRAGMA journal_mode").fetchall() == [("delete",)]
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    litequeue.attach(connection).close()
    connection.close()


def test_a_database_of_another_encoding_is_refused(tmp_path: Path) -> None:
    """Event logs are appended as bytes (§6)."""
    connection = apsw.Connection(str(tmp_path / "app.db"))
    for pragma in ("encoding = 'UTF-16le'", "journal_mode = WAL"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    with pytest.raises(NotAQueue, match="UTF-16le"):
        litequeue.attach(connection)
    assert tables(connection) == []
    connection.close()


def _newer(connection: apsw.Connection) -> None:
    connection.execute("UPDATE litequeue_meta SET schema_version = 99")


def _trigger(connection: apsw.Connection) -> None:
    connection.execute("CREATE TRIGGER mine AFTER INSERT ON litequeue_job BEGIN SELECT 1; END")


def _column(connection: apsw.Connection) -> None:
    connection.execute("ALTER TABLE litequeue_weight ADD COLUMN mine INTEGER")


def _temporary_table(connection: apsw.Connection) -> None:
    connection.execute("CREATE TEMP TABLE litequeue_job (x)")


def _temporary_view(connection: apsw.Connection) -> None:
    connection.execute("CREATE TEMP VIEW litequeue_body AS SELECT 1")


def _temporary_trigger(connection: apsw.Connection) -> None:
    connection.execute("CREATE TEMP TRIGGER mine AFTER INSERT ON main.litequeue_job BEGIN SELECT 1; END")


CHANGES = [_newer, _trigger, _column, _temporary_table, _temporary_view, _temporary_trigger]


@pytest.mark.parametrize("change", CHANGES[1:], ids=lambda change: change.__name__)
def test_tables_that_change_beneath_a_handle_are_noticed_by_its_next_verb(
    app: apsw.Connection, attached: Attached, change: Callable[[apsw.Connection], None]
) -> None:
    """In the very transaction, after a verb that found them right, and again after one was rolled back (§6)."""
    for _ in range(2):
        app.execute("BEGIN IMMEDIATE")
        attached.enqueue("mail")
        change(app)
        with pytest.raises(SchemaMismatch):
            attached.enqueue("mail")
        with pytest.raises(SchemaMismatch):
            attached.stats()
        app.execute("ROLLBACK")
    app.execute("BEGIN IMMEDIATE")
    app.execute("CREATE TABLE mine (x)")
    attached.enqueue("mail")
    app.execute("ROLLBACK")
    app.execute("BEGIN IMMEDIATE")
    change(app)  # the same version number as before, for something else
    with pytest.raises(SchemaMismatch):
        attached.enqueue("mail")
    app.execute("ROLLBACK")
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        attached.enqueue("mail")
    assert attached.stats().total == 1


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_tables_of_another_version_or_changed_ones_are_not_attached(
    app: apsw.Connection, attached: Attached, change: Callable[[apsw.Connection], None]
) -> None:
    """As they are not opened (§6)."""
    change(app)
    with pytest.raises(SchemaMismatch):
        litequeue.attach(app)
    assert not app.in_transaction
    attached.close()


@pytest.mark.parametrize("version", range(1, tables_of.VERSION))
def test_tables_of_an_earlier_version_want_to_be_opened_first(
    app: apsw.Connection, tmp_path: Path, version: int
) -> None:
    """They are moved forward by `litequeue.open`, which the message says, and not in the application's transaction."""
    for statement in tables_of.statements(version):
        app.execute(statement)
    app.execute("INSERT INTO litequeue_meta (id, schema_version, settings_version) VALUES (1, ?, 1)", (version,))
    app.execute("INSERT INTO litequeue_host (id, boot_id, lease_offset) VALUES (1, 'boot', 0)")
    with pytest.raises(SchemaMismatch, match=r"litequeue\.open"):
        litequeue.attach(app)
    assert app.execute("SELECT schema_version FROM litequeue_meta").fetchall() == [(version,)]
    app.close()
    litequeue.open(tmp_path / "queue.db").close()
    app = apsw.Connection(str(tmp_path / "queue.db"))
    with litequeue.attach(app) as q:
        assert q.stats().total == 0
    app.close()


def test_something_else_by_the_names_of_the_queue_is_left_alone(app: apsw.Connection) -> None:
    """In the database, and in the temporary one; nothing is made beside it (§6)."""
    app.execute("CREATE TEMP TABLE litequeue_meta (x)")
    with pytest.raises(SchemaMismatch):
        litequeue.attach(app)
    app.execute("DROP TABLE temp.litequeue_meta")
    app.execute("CREATE TABLE litequeue_weight (mine)")
    with pytest.raises(SchemaMismatch, match="litequeue_weight"):
        litequeue.attach(app)
    app.execute("BEGIN IMMEDIATE")
    app.execute("INSERT INTO orders DEFAULT VALUES")
    with pytest.raises(SchemaMismatch):
        litequeue.attach(app)
    assert app.in_transaction
    app.execute("COMMIT")
    assert tables(app) == ["litequeue_weight"]
    assert app.execute("SELECT count(*) FROM orders").fetchall() == [(1,)]


# --- making the tables


def test_the_tables_are_made_in_the_applications_transaction_when_it_has_the_lock(
    app: apsw.Connection, tmp_path: Path
) -> None:
    """They go with it when it is rolled back; the handle says so, and a new one makes them anew (issue 7)."""
    app.execute("BEGIN IMMEDIATE")
    q = litequeue.attach(app)
    q.enqueue("mail")
    app.execute("ROLLBACK")
    assert tables(app) == []
    app.execute("BEGIN IMMEDIATE")
    with pytest.raises(UsageError, match="attach the connection anew"):
        q.enqueue("mail")
    q = litequeue.attach(app)
    q.enqueue("mail")
    app.execute("COMMIT")
    assert q.stats().total == 1
    with litequeue.open(tmp_path / "queue.db", create=False) as queue:
        assert queue.stats().total == 1


def test_tables_that_were_rolled_back_are_not_believed_when_the_version_of_the_schema_comes_again(
    app: apsw.Connection,
) -> None:
    """The handle that was attached in that transaction looks anew (§6)."""
    app.execute("BEGIN IMMEDIATE")
    q = litequeue.attach(app)
    version = app.execute("PRAGMA schema_version").fetchall()
    app.execute("ROLLBACK")
    tables_made = 0
    while app.execute("PRAGMA schema_version").fetchall() != version:
        tables_made += 1
        app.execute(f"CREATE TABLE other_{tables_made} (x)")
    app.execute("BEGIN IMMEDIATE")
    with pytest.raises(UsageError, match="attach the connection anew"):
        q.enqueue("mail")
    app.execute("ROLLBACK")


@pytest.mark.parametrize("before", [["BEGIN"], ["BEGIN", "SELECT * FROM orders"]], ids=str)
def test_the_tables_are_not_made_in_a_transaction_that_has_no_lock(app: apsw.Connection, before: list[str]) -> None:
    """But where they are, such a transaction may attach, and read (issue 7)."""
    for statement in before:
        app.execute(statement).fetchall()
    with pytest.raises(UsageError, match="BEGIN IMMEDIATE"):
        litequeue.attach(app)
    app.execute("ROLLBACK")
    litequeue.attach(app).close()
    for statement in before:
        app.execute(statement).fetchall()
    with litequeue.attach(app) as q:
        assert q.stats().total == 0
    app.execute("ROLLBACK")


def test_a_hook_or_a_lock_that_keeps_the_tables_from_being_made_is_told_of(
    app: apsw.Connection, tmp_path: Path
) -> None:
    """Nothing is left of them, and no transaction open (§6)."""
    app.set_commit_hook(lambda: True)
    with pytest.raises(UsageError, match="hook"):
        litequeue.attach(app)
    app.set_commit_hook(None)
    other = apsw.Connection(str(tmp_path / "queue.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(QueueBusy):
        litequeue.attach(app)
    other.execute("ROLLBACK")
    other.close()
    assert not app.in_transaction
    assert tables(app) == []


# --- one SQLite in a process


def test_sqlite3_is_refused_a_file_that_is_attached(app: apsw.Connection, attached: Attached, tmp_path: Path) -> None:
    """As it is one that is open as a queue, until the connection is closed (DESIGN §3)."""
    path = tmp_path / "queue.db"
    for given in (path, str(path), f"file:{path}"):
        with pytest.raises(UsageError, match="second SQLite"):
            sqlite3.connect(given, uri=True)
    attached.close()
    app.close()
    sqlite3.connect(path).close()


def test_a_file_that_has_two_names_is_refused(app: apsw.Connection, tmp_path: Path) -> None:
    """As it is at `litequeue.open`: by the other name it has another log (§6)."""
    os.link(tmp_path / "queue.db", tmp_path / "other name")
    with pytest.raises(CannotOpen, match="hard links"):
        litequeue.attach(app)
    assert tables(app) == []


def test_handles_and_attached_connections_may_be_on_one_file(
    app: apsw.Connection, attached: Attached, make_queue: MakeQueue
) -> None:
    """They have one SQLite; each sees what the others commit (DESIGN §3)."""
    with make_queue() as queue:
        queue.enqueue("a")
        with app:
            app.execute("INSERT INTO orders DEFAULT VALUES")
            attached.enqueue("b")
        assert queue.stats().total == attached.stats().total == 2
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        attached.enqueue("c")
    assert attached.stats().total == 3
