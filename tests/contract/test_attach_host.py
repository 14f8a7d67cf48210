"""An attached connection and its database stay the application's own: nothing of them is changed (issue 7)."""

from __future__ import annotations

import gc
import re
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, cast
from uuid import UUID

import apsw
import pytest

import litequeue
from litequeue import JobState, Maintenance
from litequeue.sqlite.functions import FUNCTIONS
from litequeue.sqlite.joining import Following
from litequeue.sqlite.statements import SQL

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Attached
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue

ACTING = frozenset(
    {"incremental_vacuum", "integrity_check", "optimize", "quick_check", "shrink_memory", "wal_checkpoint"}
)
"""Pragmas that do something when they are asked."""
OF_THE_SCHEMA = frozenset({"freelist_count", "page_count", "schema_version", "table_list", "module_list"})
"""Those that tell of the tables themselves, and of what SQLite has been asked for by name."""
SWITCHES = (
    *(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, apsw.SQLITE_DBCONFIG_ENABLE_VIEW),
    *(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE),
    *(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, apsw.SQLITE_DBCONFIG_DEFENSIVE, apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA),
    *(apsw.SQLITE_DBCONFIG_DQS_DML, apsw.SQLITE_DBCONFIG_DQS_DDL, apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA),
    apsw.SQLITE_DBCONFIG_REVERSE_SCANORDER,
)


def state(connection: apsw.Connection) -> dict[str, object]:
    """Return all that SQLite and apsw tell of a connection and of its file, but for the queue's tables."""
    names = [str(name) for (name,) in connection.execute("PRAGMA pragma_list").fetchall()]
    found: dict[str, object] = {
        name: connection.execute(f"PRAGMA {name}").fetchall() for name in names if name not in ACTING | OF_THE_SCHEMA
    }
    found["switches"] = [connection.config(switch, -1) for switch in SWITCHES]
    found["limits"] = [connection.limit(number) for number in range(apsw.SQLITE_LIMIT_WORKER_THREADS + 1)]
    rows = connection.execute("SELECT * FROM sqlite_schema").fetchall()
    found["others"] = [row for row in rows if not str(row[2]).startswith(("litequeue_", "sqlite_sequence"))]
    found["temporary"] = [row for row in connection.execute("PRAGMA database_list").fetchall() if row[1] == "temp"]
    attributes = ("cursor_factory", "exec_trace", "row_trace", "authorizer", "convert_binding", "convert_jsonb")
    found["apsw"] = [getattr(connection, name) for name in attributes]
    found["last"] = connection.last_insert_rowid()
    return found


def test_nothing_of_the_connection_or_of_the_file_is_set(app: apsw.Connection, clock: FakeClock) -> None:
    """Every pragma, switch and limit is as before: attached, after verbs that commit and that do not, and closed."""
    before = state(app)
    q = litequeue.attach(app, clock=clock)
    assert state(app) == before
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        q.enqueue("mail")
        q.set("max_attempts", 3)
    before["last"] = 1
    assert state(app) == before
    app.execute("BEGIN IMMEDIATE")
    q.enqueue("mail")
    app.execute("ROLLBACK")
    q.stats()
    q.close()
    assert state(app) == before


def test_the_applications_own_hooks_are_still_its_own(app: apsw.Connection, clock: FakeClock) -> None:
    """They hear of each commit, rollback and statement, and of the log; afterwards none of ours is left to be heard."""
    heard: list[str] = []

    def hear(word: str) -> bool:
        heard.append(word)
        return False

    app.set_commit_hook(lambda: hear("commit"))
    app.set_rollback_hook(lambda: heard.append("rollback"))
    app.set_wal_hook(lambda *_: hear("log"))
    app.set_update_hook(lambda _, __, table, ___: heard.append(table))
    app.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: heard.append(event["sql"].split()[0]))
    q = litequeue.attach(app, clock=clock)
    del heard[:]
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        q.enqueue("mail")
    assert [word for word in heard if word in {"orders", "commit", "log"}] == ["orders", "commit", "log"]
    app.execute("BEGIN IMMEDIATE")
    q.enqueue("mail")
    app.execute("ROLLBACK")
    assert heard[-1] == "rollback"
    del heard[:]
    q.stats()
    assert not {"commit", "rollback", "log"} & set(heard)
    del heard[:]
    app.execute("BEGIN IMMEDIATE")
    app.execute("INSERT INTO orders DEFAULT VALUES")
    app.execute("COMMIT")
    assert heard == ["BEGIN", "INSERT", "orders", "COMMIT", "commit", "log"]


def test_no_callback_of_ours_outlives_a_transaction(
    app: apsw.Connection, attached: Attached, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows a transaction is taken off the connection at its end, whichever that is."""
    taken: list[tuple[str, bool]] = []

    class Spy:
        """Stands for the connection where callbacks are set."""

        def __init__(self, connection: apsw.Connection) -> None:
            self._connection = connection

        def trace_v2(self, mask: int, callback: Callable[[dict[str, object]], None] | None, *, id: object) -> None:  # noqa: A002 - apsw's
            taken.append(("trace", callback is not None))
            self._connection.trace_v2(mask, callback, id=id)

        def set_rollback_hook(self, callback: Callable[[], None] | None, *, id: object) -> None:  # noqa: A002 - apsw's
            taken.append(("rollback", callback is not None))
            self._connection.set_rollback_hook(callback, id=id)

        def __getattr__(self, name: str) -> object:
            return getattr(self._connection, name)

    begin = Following.__init__

    def spied(
        this: Following, connection: apsw.Connection, doubt: Callable[[], None], end: Callable[[bool], None]
    ) -> None:
        begin(this, cast("apsw.Connection", Spy(connection)), doubt, end)

    monkeypatch.setattr(Following, "__init__", spied)
    for end in ("COMMIT", "ROLLBACK"):
        app.execute("BEGIN IMMEDIATE")
        attached.enqueue("mail")
        attached.enqueue("mail")
        app.execute(end)
        for what in ("trace", "rollback"):
            assert [is_set for sort, is_set in taken if sort == what][-1] is False
        count = len(taken)
        app.execute("SELECT 1").fetchall()
        assert len(taken) == count


def test_the_connection_ends_with_its_last_user(tmp_path: Path) -> None:
    """Nothing of ours keeps it alive until a collection of garbage: SQLite's last one out copies the log back."""
    gc.disable()
    try:
        connection = apsw.Connection(str(tmp_path / "app.db"))
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        known = weakref.ref(connection)
        q = litequeue.attach(connection)
        for end in ("COMMIT", "ROLLBACK"):
            connection.execute("BEGIN IMMEDIATE")
            q.enqueue("mail")
            connection.execute(end)
        q.stats()
        del q
        assert known() is connection
        del connection
        assert known() is None
        assert not (tmp_path / "app.db-wal").exists()
    finally:
        gc.enable()


def strange(connection: apsw.Connection) -> None:
    """Give a connection all the habits that an application's may have."""

    def refuse(*_: object) -> bool:
        return False

    class Factory(apsw.Cursor):
        def execute(self, *_: object, **__: object) -> Factory:
            raise AssertionError

    connection.set_row_trace(lambda cursor, row: dict(zip((d[0] for d in cursor.get_description()), row, strict=True)))
    connection.set_exec_trace(refuse)
    connection.cursor_factory = Factory
    connection.convert_jsonb = lambda *_: "converted"
    connection.create_scalar_function("scope", lambda *_: "mine", -1)
    connection.create_collation("mine", lambda a, b: (a > b) - (a < b))


def test_habits_of_the_connection_have_no_say_in_the_queues_statements(
    app: apsw.Connection, clock: FakeClock, make_queue: MakeQueue
) -> None:
    """Tracers, a cursor factory, conversions, functions, strictness about quotes, foreign keys, recursive triggers."""
    for switch, value in ((apsw.SQLITE_DBCONFIG_DQS_DML, 0), (apsw.SQLITE_DBCONFIG_DQS_DDL, 0)):
        app.config(switch, value)
    for pragma in ("foreign_keys", "recursive_triggers", "reverse_unordered_selects", "cell_size_check"):
        app.execute(f"PRAGMA {pragma} = ON")
    strange(app)
    plain = apsw.Cursor(app)
    plain.exec_trace = lambda *_: True
    with litequeue.attach(app, clock=clock) as q:
        plain.execute("BEGIN IMMEDIATE")
        job_id = UUID(bytes=b"\xc7\x0ea-text-of-json")  # a text, in the JSON of SQLite
        q.enqueue("mail", [1, 2], idempotency_key="a", job_id=job_id)
        assert q.enqueue("mail", idempotency_key="a").job_id == job_id
        with pytest.raises(litequeue.DuplicateJob):
            q.enqueue("mail", idempotency_key="a", on_conflict="raise")
        plain.execute("COMMIT")
        assert q.get(job_id).payload == [1, 2]
        assert q.stats().total == 1
        lease = make_queue().lease_next()
        assert lease is not None
        plain.execute("BEGIN IMMEDIATE")
        q.complete(lease, "done")
        plain.execute("COMMIT")
        assert (q.get(job_id).state, lease.settled) == (JobState.COMPLETED, True)


def test_databases_that_are_attached_by_the_same_names_are_left_alone(
    app: apsw.Connection, attached: Attached, tmp_path: Path
) -> None:
    """SQLite looks into the main one first; the transaction is that of the main one, too."""
    app.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
    app.execute("CREATE TABLE other.litequeue_job (x)")
    app.execute("BEGIN")
    app.execute("INSERT INTO other.litequeue_job VALUES (1)")
    with pytest.raises(litequeue.UsageError, match="BEGIN IMMEDIATE"):
        attached.enqueue("mail")
    app.execute("INSERT INTO orders DEFAULT VALUES")
    attached.enqueue("mail")
    app.execute("COMMIT")
    assert attached.stats().total == 1
    assert app.execute("SELECT count(*) FROM other.litequeue_job").fetchall() == [(1,)]


def test_the_file_is_a_queue_for_everyone_else(
    app: apsw.Connection, attached: Attached, make_queue: MakeQueue, tmp_path: Path
) -> None:
    """Workers, maintenance, doctor, backup and restore take it as it is, with the application's tables."""
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        attached.enqueue("mail")
    queue = make_queue()
    Maintenance(queue).run_once()
    assert queue.backup(tmp_path / "backup").jobs == 1
    queue.close()
    found = litequeue.doctor(attached.path)
    assert not [finding for finding in found.findings if finding.severity is litequeue.Severity.PROBLEM]
    with pytest.raises(litequeue.QueueBusy):  # the application has it open
        litequeue.restore(tmp_path / "backup", attached.path, overwrite=True)
    litequeue.restore(tmp_path / "backup", tmp_path / "restored.db")
    with litequeue.open(tmp_path / "restored.db") as restored, restored.transaction() as tx:
        assert tx.execute("SELECT count(*) FROM orders") == [(1,)]
        assert tx.stats().total == 1
    header = app.execute("SELECT * FROM pragma_application_id, pragma_user_version").fetchall()
    assert header == [(0, 0)]


def test_the_functions_that_statements_call_are_known() -> None:
    """An application's own by one of these names is refused, so the list has to be whole (issue 7)."""
    texts = [getattr(SQL, name) for name in SQL.__slots__]
    called = {name.lower() for text in texts for name in re.findall(r"\b([a-z_]+)\(", text, re.IGNORECASE)}
    assert called - {"cast", "in", "json_each", "values"} <= FUNCTIONS
