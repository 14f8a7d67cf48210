"""Connections of every sort: what their owner has set on them, and what they are on (§6)."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import warnings
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import litequeue
from litequeue import CannotOpen, NotAQueue, SchemaMismatch, StorageLost, UsageError, dbapi
from litequeue.dbapi import bells, engine, places
from litequeue.dbapi.engine import _in_order
from litequeue.sqlite import statements
from litequeue.sqlite.examining import problems

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.dbapi.conftest import Connect
    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.filterwarnings("ignore:this process writes")


def count(connection: sqlite3.Connection) -> int:
    """Return how many jobs a connection sees."""
    connection.row_factory = None
    (number,) = connection.execute("SELECT count(*) FROM litequeue_job").fetchone()
    assert isinstance(number, int)
    return number


def enqueue_all_ways(connection: sqlite3.Connection) -> None:
    """Let each statement that reads have something to read."""
    for on_conflict in ("return", "return", "reset"):
        dbapi.enqueue(connection, "work", idempotency_key="k", on_conflict=on_conflict)
    job_id = dbapi.enqueue(connection, "work").job_id
    assert not dbapi.enqueue(connection, "work", job_id=job_id).created


@pytest.mark.parametrize("row_factory", [sqlite3.Row, lambda _, row: {"row": row}])
def test_what_the_connection_makes_of_rows_does_not_matter(
    connection: sqlite3.Connection, row_factory: Callable[..., object]
) -> None:
    """And it goes on to make that of the application's."""
    connection.row_factory = row_factory
    enqueue_all_ways(connection)
    assert connection.row_factory is row_factory
    assert count(connection) == 2


@pytest.mark.parametrize("text_factory", [bytes, str.upper])
def test_what_the_connection_makes_of_text_does_not_matter(
    connection: sqlite3.Connection, text_factory: Callable[..., object]
) -> None:
    """And it is as it was afterwards, also when the call raises."""
    connection.text_factory = text_factory
    enqueue_all_ways(connection)
    with pytest.raises(UsageError):
        dbapi.enqueue(connection, "work", delay=-1)
    with pytest.raises(litequeue.DuplicateJob):
        dbapi.enqueue(connection, "work", idempotency_key="k", on_conflict="raise")
    assert connection.text_factory is text_factory
    assert count(connection) == 2


def test_a_converter_of_sqlites_own_types_is_refused(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have its say in our rows; one of the application's types has not."""
    monkeypatch.setattr(sqlite3, "converters", dict(sqlite3.converters))
    connection = connect(detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES)
    enqueue_all_ways(connection)
    sqlite3.register_converter("INTEGER", lambda text: (int(text),))
    try:
        with pytest.raises(UsageError, match=r"turns values of SQLite's own types into tuple"):
            dbapi.enqueue(connection, "work")
    finally:
        sqlite3.register_converter("INTEGER", int)
    assert count(connection) == 2


def test_a_subclass_of_the_connection_will_do(connect: Connect) -> None:
    """As an application, or a library that watches it, may have."""

    class Watched(sqlite3.Connection):
        pass

    connection = connect(factory=Watched)
    enqueue_all_ways(connection)
    assert count(connection) == 2


@pytest.mark.parametrize("given", [None, 7, "app.db", object(), sqlite3.connect, threading])
def test_what_is_no_connection_is_refused(given: object) -> None:
    """By one error that says what is (§6)."""
    for call in (lambda: dbapi.enqueue(given, "work"), lambda: dbapi.create_tables(given)):
        with pytest.raises(UsageError, match="connection must be a connection to an SQLite database"):
            call()


def test_a_connection_that_cannot_be_used_says_so(connection: sqlite3.Connection) -> None:
    """In another thread than its own, and closed (§6)."""
    told: list[str] = []

    def attempt() -> None:
        with pytest.raises(UsageError) as refused:
            dbapi.enqueue(connection, "work")
        told.append(str(refused.value))

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    connection.close()
    attempt()
    assert "thread" in told[0]
    assert "closed database" in told[1]


def test_a_connection_of_several_threads_will_do(connect: Connect) -> None:
    """Where the application has seen to it that they take turns."""
    connection = connect(check_same_thread=False)
    thread = threading.Thread(target=enqueue_all_ways, args=(connection,))
    thread.start()
    thread.join()
    connection.commit()
    assert count(connection) == 2


@pytest.mark.parametrize("database", [":memory:", ""])
def test_a_database_without_a_file_is_refused(database: str) -> None:
    """No worker could open it."""
    connection = sqlite3.connect(database)
    with closing(connection), pytest.raises(UsageError, match="in memory: a queue needs a file"):
        dbapi.create_tables(connection)


def test_a_file_without_a_queue_says_what_makes_one(connect: Connect, tmp_path: Path) -> None:
    """And no transaction is begun (§6)."""
    connection = connect(str(tmp_path / "other.db"))
    connection.execute("CREATE TABLE mine (a)")
    with pytest.raises(NotAQueue, match="create_tables"):
        dbapi.enqueue(connection, "work")
    assert not connection.in_transaction


def test_a_connection_that_may_only_read_is_refused(connect: Connect, path: str) -> None:
    """By the contract's error (§6)."""
    connection = connect(f"file:{path}?mode=ro", uri=True)
    with pytest.raises(CannotOpen, match="no permission to write"):
        dbapi.enqueue(connection, "work")
    assert not connection.in_transaction


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE litequeue_meta SET schema_version = 77", "schema version 77"),
        ("CREATE TRIGGER mine AFTER INSERT ON litequeue_job BEGIN SELECT 1; END", "with an unknown mine"),
        ("CREATE INDEX mine ON litequeue_job (kind)", "with an unknown mine"),
        ("DROP INDEX litequeue_job_due", "without litequeue_job_due"),
        ("ALTER TABLE litequeue_job ADD COLUMN mine TEXT", "with a changed litequeue_job"),
        ("DROP TABLE litequeue_setting", "without litequeue_setting"),
        ("CREATE TEMP TABLE litequeue_body (a)", "temporary tables named litequeue_body"),
        ("CREATE TEMP TRIGGER t AFTER INSERT ON main.litequeue_job BEGIN SELECT 1; END", "temporary triggers"),
    ],
)
def test_other_tables_than_ours_are_refused(connection: sqlite3.Connection, change: str, said: str) -> None:
    """With what was found and what was expected, as at every opening; nothing is written (§6)."""
    connection.execute(change)
    connection.commit()
    with pytest.raises(SchemaMismatch, match=said):
        dbapi.enqueue(connection, "work")
    assert not connection.in_transaction
    assert count(connection) == 0


def test_a_damaged_value_is_damage(connection: sqlite3.Connection) -> None:
    """And not an error of Python's (§6)."""
    connection.execute("INSERT INTO litequeue_setting VALUES ('rate', 'never')")
    connection.commit()
    with pytest.raises(litequeue.StorageCorrupt, match="damaged"):
        dbapi.enqueue(connection, "work")
    assert not connection.in_transaction


# --- making the tables


def test_the_tables_are_made_beside_the_applications(connect: Connect, tmp_path: Path) -> None:
    """Once, in a transaction of their own; and the file opens as a queue from then on, rows and all."""
    path = str(tmp_path / "mine.db")
    connection = connect(path)
    connection.execute("CREATE TABLE mine (a)")
    connection.execute("PRAGMA user_version = 5")
    connection.execute("PRAGMA application_id = 99")
    assert dbapi.create_tables(connection)
    assert not connection.in_transaction
    assert not dbapi.create_tables(connection)
    assert connection.execute("PRAGMA user_version").fetchone() == (5,)
    assert connection.execute("PRAGMA application_id").fetchone() == (99,)
    with connection:
        connection.execute("INSERT INTO mine VALUES (1)")
        job_id = dbapi.enqueue(connection, "work", "it").job_id
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()
    with litequeue.open(path) as queue, queue.transaction() as tx:
        assert tx.execute("PRAGMA journal_mode") == [("wal",)]
        lease = tx.lease_next()
        assert lease is not None
        assert (lease.job_id, lease.payload) == (job_id, "it")
        assert tx.execute("SELECT a FROM mine") == [(1,)]
    assert problems(path) == []


def test_the_tables_are_part_of_an_open_transaction(connect: Connect, tmp_path: Path) -> None:
    """As in a migration: rolled back, there are none (issue "create tables")."""
    connection = connect(str(tmp_path / "mine.db"), isolation_level=None)
    for end in ("ROLLBACK", "COMMIT"):
        connection.execute("BEGIN")
        assert dbapi.create_tables(connection)
        dbapi.enqueue(connection, "work")
        connection.execute(end)
    assert count(connection) == 1


def test_tables_are_not_made_beside_others_of_their_names(connect: Connect, tmp_path: Path) -> None:
    """With what was found; nothing is made (§6)."""
    connection = connect(str(tmp_path / "mine.db"))
    connection.execute("CREATE TABLE litequeue_jobs (a)")
    with pytest.raises(SchemaMismatch, match="litequeue_jobs"):
        dbapi.create_tables(connection)
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("litequeue_jobs",)]


def test_tables_are_not_made_in_another_encoding(connect: Connect, tmp_path: Path) -> None:
    """Nor is anything else done to the file; a queue's log is appended as bytes (§6)."""
    connection = connect(str(tmp_path / "mine.db"))
    connection.execute("PRAGMA encoding = 'UTF-16le'")
    connection.execute("CREATE TABLE mine (a)")
    with pytest.raises(NotAQueue, match="UTF-16le, not UTF-8"):
        dbapi.create_tables(connection)
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("mine",)]


# --- the process


def test_the_module_brings_no_apsw(path: str) -> None:
    """Nor a standard module that nobody has asked for, however much of it is used (DESIGN §3)."""
    program = """
import sys, warnings
import litequeue.dbapi
assert not {"apsw", "sqlite3", "_sqlite3"} & set(sys.modules)
import sqlite3
warnings.simplefilter("ignore")
connection = sqlite3.connect(sys.argv[1])
litequeue.dbapi.create_tables(connection)
litequeue.dbapi.enqueue(connection, "work", idempotency_key="k", delay=5)
litequeue.dbapi.enqueue_many(connection, [litequeue.NewJob("work", idempotency_key="k", on_conflict="reset")])
connection.commit()
litequeue.dbapi.ring(connection)
assert "apsw" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program, path], check=True, timeout=60)


def test_a_library_with_the_reset_bug_is_warned_about_once(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the caller stands, by its version; one without the bug is not (issue 7, item 2)."""
    monkeypatch.setattr(places, "_warned", set())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        monkeypatch.setattr(places, "_SOUND_SQLITE", sqlite3.sqlite_version_info)
        dbapi.enqueue(connection, "work")
        assert not told
        monkeypatch.setattr(places, "_SOUND_SQLITE", (99, 0, 0))
        dbapi.enqueue(connection, "work")
        dbapi.enqueue_many(connection, [litequeue.NewJob("work")])
    (warning,) = told
    assert "WAL-reset bug" in str(warning.message)
    assert sqlite3.sqlite_version in str(warning.message)
    assert "docs/guide/dbapi.md, 'An old SQLite'" in str(warning.message)
    assert warning.filename == __file__


def test_the_warning_points_at_the_application_whatever_it_called(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many calls of the package are between the two."""
    monkeypatch.setattr(places, "_SOUND_SQLITE", (99, 0, 0))
    calls: list[Callable[[], object]] = [
        lambda: dbapi.create_tables(connection),
        lambda: dbapi.enqueue_many(connection, [litequeue.NewJob("work")]),
    ]
    for call in calls:
        monkeypatch.setattr(places, "_warned", set())
        with pytest.warns(UserWarning, match="WAL-reset bug") as told:
            call()
        assert [warning.filename for warning in told] == [__file__]


def test_a_task_is_enqueued_by_the_job_that_it_makes(connection: sqlite3.Connection) -> None:
    """And who gives it the connection is told so (issue 8)."""
    tasks = litequeue.Tasks()

    @tasks.task("mail", max_attempts=3)
    def mail(to: str) -> None: ...

    with pytest.raises(UsageError, match=r"dbapi\.enqueue_many\(connection, \[task\.new_job"):
        mail.enqueue(connection, "a@example.org")  # type: ignore[arg-type] # it has no `enqueue`
    (made,) = dbapi.enqueue_many(connection, [mail.new_job("a@example.org")])
    assert made.created


def test_a_library_that_cannot_read_the_tables_is_refused(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its version and the one that is needed (§6)."""
    monkeypatch.setattr(places, "_LEAST_SQLITE", (99, 1, 2))
    with pytest.raises(CannotOpen, match=rf"SQLite is {sqlite3.sqlite_version}; 99\.1\.2 or newer"):
        dbapi.enqueue(connection, "work")


def test_a_file_that_is_open_as_a_queue_is_refused(path: str, connection: sqlite3.Connection) -> None:
    """Two SQLites in one process destroy it; after the handle's end it may be used (DESIGN §3)."""
    with litequeue.open(path):
        with pytest.raises(UsageError, match="open as a queue in this process"):
            dbapi.enqueue(connection, "work")
        with pytest.raises(UsageError, match="open as a queue in this process"):
            dbapi.create_tables(connection)
    enqueue_all_ways(connection)


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="nothing tells what this process has open")
def test_a_queue_is_not_opened_beside_a_connection_that_enqueues(path: str, connection: sqlite3.Connection) -> None:
    """Until that is closed; other files are other matters (DESIGN §3)."""
    enqueue_all_ways(connection)
    connection.commit()
    with pytest.raises(CannotOpen, match="through another SQLite"):
        litequeue.open(path)
    ours = apsw.Connection(path)
    with pytest.raises(CannotOpen, match="through another SQLite"):
        litequeue.attach(ours)
    ours.close()
    litequeue.open(f"{path}.other").close()
    connection.close()
    with litequeue.open(path) as queue:
        assert queue.stats().total == 2


def _ring_in_a_fork(parent: Parent, path: str) -> None:
    """Fork while another thread rings, and ring in the child."""
    dbapi.ring(path)
    with bells._lock:
        parent.join(parent.fork(lambda: dbapi.ring(path)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_forked_child_rings_though_its_parent_was_about_to(path: str, processes: Children) -> None:
    """Nobody in the child would ever let go of the lock (issue 7, item 2: forks)."""
    processes.run(_ring_in_a_fork, path)


def test_every_statement_runs_with_plain_places() -> None:
    """Each has as many of them as it takes, and says which binding each one is (STYLE "SQL")."""
    assert _in_order("a = ? AND b = :b AND +b = :b AND c = ?") == ("a = ? AND b = ? AND +b = ? AND c = ?", (0, 1, 1, 2))
    assert _in_order("a = ?2 AND b = ?1") == ("a = ? AND b = ?", (1, 0))
    assert _in_order("VALUES (?, ?)") == ("VALUES (?, ?)", None)
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in (statements.SQL.row_by_id, statements.SQL.row_by_key, statements.SQL.rekey):
            sql, order = _in_order(statement)
            assert order is not None
            assert sql.count("?") == len(order)
            assert sqlite3.complete_statement(f"{sql};")
        assert connection.execute(*_bound("SELECT ?, :x, +:x, ?", (1, 2, 3))).fetchall() == [(1, 2, 2, 3)]


def _bound(statement: str, values: tuple[object, ...]) -> tuple[str, list[object]]:
    sql, order = _in_order(statement)
    return sql, [values[at] for at in order or ()]


@pytest.mark.parametrize("name", ["min", "LENGTH", "coalesce", "json_each"])
def test_functions_of_the_applications_by_the_names_of_sqlites_are_refused(
    connection: sqlite3.Connection, name: str
) -> None:
    """Their answers would be stored, or taken for damage; others do not matter (as for `attach`)."""
    connection.create_function("shout", 1, str.upper)
    dbapi.enqueue(connection, "work")
    connection.create_function(name, 1, lambda _: None)
    with pytest.raises(UsageError, match=rf"leaves SQLite's functions as they are \(not {name.lower()}"):
        dbapi.enqueue(connection, "work")
    assert count(connection) == 1


class Upper(sqlite3.Cursor):
    """Answers as it likes."""

    def fetchall(self) -> list[Any]:
        """Return something else."""
        return [{"row": row} for row in super().fetchall()]


class Loud(sqlite3.Connection):
    """Hands out such cursors."""

    def cursor(self, factory: object = Upper) -> Any:  # noqa: ANN401 - what it likes
        """Return one."""
        assert factory is Upper
        return super().cursor(Upper)


class Around:
    """A connection that is none of `sqlite3`'s, but has one inside."""

    def __init__(self, inner: sqlite3.Connection) -> None:
        self.inner = inner

    text_factory: object = str
    commit = rollback = property(lambda self: self.inner.commit)
    in_transaction = property(lambda self: self.inner.in_transaction)
    total_changes = property(lambda self: self.inner.total_changes)

    def cursor(self) -> Upper:
        """Return one whose rows are no rows."""
        return self.inner.cursor(Upper)


def test_cursors_of_the_applications_do_not_matter(connect: Connect) -> None:
    """Of a class derived from `sqlite3.Connection`; where they cannot be gone around, they are refused."""
    connection = connect(factory=Loud)
    enqueue_all_ways(connection)
    assert connection.cursor().execute("SELECT count(*) FROM litequeue_job").fetchall() == [{"row": (2,)}]
    connection.rollback()
    with pytest.raises(UsageError, match="turn rows into dict"):
        dbapi.enqueue(Around(connect()), "work")


def test_threads_that_share_a_connection_take_turns(connect: Connect) -> None:
    """Each finds text as text, and the connection has its own `text_factory` in the end."""
    connection = connect(check_same_thread=False)
    connection.text_factory = bytes
    failures: list[Exception] = []
    start = threading.Barrier(4)

    def enqueue_some() -> None:
        start.wait(60)
        try:
            for _ in range(40):
                dbapi.enqueue(connection, "work")
        except Exception as exc:  # noqa: BLE001 - whatever it is
            failures.append(exc)

    threads = [threading.Thread(target=enqueue_some) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    finally:
        sys.setswitchinterval(interval)
    assert failures == []
    assert connection.text_factory is bytes
    assert count(connection) == 160
    assert engine._turns._locks == {}


def replace(path: str) -> None:
    """Put a copy in the file's place."""
    copy = path + ".copy"
    Path(copy).write_bytes(Path(path).read_bytes())
    Path(copy).replace(path)


@pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir() and sys.platform != "darwin", reason="nothing tells what is open"
)
@pytest.mark.parametrize("happens", [replace, os.unlink, lambda path: Path(path).rename(path + ".gone")])
@pytest.mark.parametrize("has_written", [False, True])
def test_a_file_that_is_gone_acknowledges_nothing(
    connect: Connect, tmp_path: Path, happens: Callable[[str], object], *, has_written: bool
) -> None:
    """Nobody would ever find the job (§6)."""
    file = str(tmp_path / "own.db")
    connection = connect(file)
    connection.execute("CREATE TABLE orders (id)")
    dbapi.create_tables(connection)
    connection.commit()
    dbapi.enqueue(connection, "work")
    connection.commit()
    if has_written:
        connection.execute("INSERT INTO orders VALUES (1)")
    happens(file)
    for call in (lambda: dbapi.enqueue(connection, "work"), lambda: dbapi.create_tables(connection)):
        with pytest.raises(StorageLost, match="moved, replaced or removed"):
            call()
        assert connection.in_transaction == has_written


def test_what_cannot_be_used_is_said(connection: sqlite3.Connection) -> None:
    """In our words, not the module's."""
    connection.execute("PRAGMA query_only = 1")
    for call in (lambda: dbapi.enqueue(connection, "work"), lambda: dbapi.create_tables(connection)):
        with pytest.raises(UsageError, match="PRAGMA query_only is set"):
            call()
    connection.close()
    with pytest.raises(UsageError, match="cannot be used here"):
        dbapi.ring(connection)
