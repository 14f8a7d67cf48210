"""The caller's transaction, however its connection begins one (V14, G4, G8, G11)."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from litequeue import QueueBusy, QueueFull, SchemaMismatch, UsageError, dbapi

if TYPE_CHECKING:
    from litequeue.sqlite.context import Context
    from litequeue.testing import FakeClock
    from tests.dbapi.conftest import Connect

pytestmark = pytest.mark.filterwarnings("ignore:this process writes")

has_autocommit = pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has no autocommit before Python 3.12")


def jobs(connection: sqlite3.Connection) -> list[str]:
    """Return the kinds of the jobs that a connection sees."""
    return [kind for (kind,) in connection.execute("SELECT kind FROM litequeue_job ORDER BY created_at")]


def put_row_and_job(connection: sqlite3.Connection) -> None:
    """Do what an application does."""
    connection.execute("INSERT INTO orders VALUES (1)")
    dbapi.enqueue(connection, "work")


MODES = [
    pytest.param({}, None, id="as it comes"),
    pytest.param({"isolation_level": "IMMEDIATE"}, None, id="immediate"),
    pytest.param({"isolation_level": None}, "BEGIN", id="by hand"),
    pytest.param({"isolation_level": None}, "BEGIN IMMEDIATE", id="by hand, immediate"),
    pytest.param({"autocommit": False}, None, id="autocommit off", marks=has_autocommit),
    pytest.param({"autocommit": True}, "BEGIN", id="autocommit on, by hand", marks=has_autocommit),
]
"""How a connection is opened, and what begins a transaction on it."""


@pytest.mark.parametrize(("options", "begin"), MODES)
@pytest.mark.parametrize("first", ["row", "job"])
def test_row_and_job_are_committed_or_rolled_back_together(
    connect: Connect, options: dict[str, Any], begin: str | None, first: str
) -> None:
    """Whichever comes first; and nobody else sees the job before the commit (V14)."""
    connection, other = connect(**options), connect(isolation_level=None)
    for number, is_kept in enumerate((False, True)):
        if begin:
            connection.execute(begin)
        if first == "row":
            connection.execute("INSERT INTO orders VALUES (?)", (number,))
        assert dbapi.enqueue(connection, "work").created
        if first == "job":
            connection.execute("INSERT INTO orders VALUES (?)", (number,))
        assert connection.in_transaction
        assert jobs(other) == []
        if begin:
            connection.execute("COMMIT" if is_kept else "ROLLBACK")
        elif is_kept:
            connection.commit()
        else:
            connection.rollback()
        assert jobs(other) == ["work"] * is_kept
        assert other.execute("SELECT id FROM orders").fetchall() == [(number,)] * is_kept


@pytest.mark.parametrize(
    "options", [{"isolation_level": None}, pytest.param({"autocommit": True}, marks=has_autocommit)]
)
def test_a_connection_that_commits_each_statement_is_refused(connect: Connect, options: dict[str, Any]) -> None:
    """The job would be there though the caller's rows may never be (issue "both or neither")."""
    connection = connect(**options)
    with pytest.raises(UsageError, match=r"commits each statement by itself.*BEGIN IMMEDIATE"):
        dbapi.enqueue(connection, "work")
    assert not connection.in_transaction
    assert jobs(connection) == []


def test_the_clock_is_read_under_the_write_lock(connect: Connect, clock: FakeClock) -> None:
    """From the call on nobody else may write, or `created_at` would not be the order of the commits (G4, G8)."""
    connection, other = connect(), connect(timeout=0)

    class Asked:
        def wall_us(self) -> int:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("INSERT INTO orders VALUES (1)")
            asked.append("under the lock")
            return clock.wall_us()

        monotonic_us = clock.monotonic_us
        boot_id = clock.boot_id

    asked: list[str] = []
    dbapi.enqueue(connection, "work", clock=Asked())
    assert asked == ["under the lock"]


def test_a_transaction_that_has_only_read_becomes_one_that_writes(connect: Connect) -> None:
    """As by every first write of a deferred transaction."""
    connection = connect(isolation_level=None)
    connection.execute("BEGIN")
    assert jobs(connection) == []
    dbapi.enqueue(connection, "work")
    connection.execute("COMMIT")
    assert jobs(connection) == ["work"]


def test_a_transaction_that_has_read_too_early_is_told_to_begin_anew(connect: Connect) -> None:
    """It cannot write any more, and waiting does not help; begun anew it can (G11, §6)."""
    connection, other = connect(isolation_level=None), connect(isolation_level=None)
    connection.execute("BEGIN")
    assert jobs(connection) == []
    other.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(QueueBusy, match=r"another transaction has committed.*roll it back.*BEGIN IMMEDIATE"):
        dbapi.enqueue(connection, "work")
    assert connection.in_transaction
    connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    dbapi.enqueue(connection, "work")
    connection.execute("COMMIT")
    assert jobs(other) == ["work"]


@pytest.mark.parametrize("begin", [None, "BEGIN"])
def test_a_lock_that_another_has_is_queue_busy(connect: Connect, begin: str | None) -> None:
    """Nothing was done, no transaction was begun, and the message says what to do (G11, §6)."""
    connection, other = connect(timeout=0), connect(isolation_level=None)
    if begin:
        connection.execute(begin)
    other.execute("BEGIN IMMEDIATE")
    advice = "roll your transaction back" if begin else "try again"
    with pytest.raises(QueueBusy, match=rf"nothing was done.*{advice}"):
        dbapi.enqueue(connection, "work")
    assert connection.in_transaction is bool(begin)
    other.execute("COMMIT")
    connection.rollback()
    put_row_and_job(connection)
    connection.commit()
    assert jobs(other) == ["work"]


def test_a_savepoint_of_the_callers_takes_the_job_along(connect: Connect) -> None:
    """A part of a transaction that is rolled back leaves no job, and the rest of it is kept (V14)."""
    connection = connect(isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    dbapi.enqueue(connection, "kept")
    connection.execute("SAVEPOINT part")
    put_row_and_job(connection)
    connection.execute("ROLLBACK TO part")
    connection.execute("COMMIT")
    assert jobs(connection) == ["kept"]


def test_a_transaction_that_sqlite_gives_up_is_told_as_lost(connect: Connect) -> None:
    """The caller's rows are gone with it, so the error must not read as if only the job were (G11)."""
    connection = connect()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}").fetchall()
    connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(QueueFull, match="SQLite has rolled your whole transaction back"):
        dbapi.enqueue(connection, "work", bytes(500_000))
    assert not connection.in_transaction
    assert connection.execute("SELECT id FROM orders").fetchall() == []


ALONE = [
    pytest.param({}, id="as it comes"),
    pytest.param({"isolation_level": None}, id="by hand"),
    pytest.param({"autocommit": True}, id="autocommit on", marks=has_autocommit),
]


@pytest.mark.parametrize("options", ALONE)
def test_tables_that_are_refused_leave_no_transaction_open(
    connect: Connect, tmp_path: Path, options: dict[str, Any]
) -> None:
    """With `autocommit=True` a connection's `rollback` does nothing, and would leave the lock to nobody (G11)."""
    other_file = str(tmp_path / "other.db")
    connection = connect(other_file, **options)
    connection.execute("CREATE TABLE litequeue_notes (id)")
    connection.execute("CREATE TABLE orders (id)")
    with pytest.raises(SchemaMismatch):
        dbapi.create_tables(connection)
    assert not connection.in_transaction
    connect(other_file, timeout=0.1, isolation_level=None).execute("INSERT INTO orders VALUES (1)")


@pytest.mark.parametrize(("options", "begin"), MODES)
def test_a_savepoint_that_cannot_be_undone_ends_the_transaction(
    connect: Connect, options: dict[str, Any], begin: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the connection ends one: nothing that may be half of a call is left to be committed (G11)."""
    connection = connect(**options)
    if begin:
        connection.execute(begin)
    connection.execute("INSERT INTO orders VALUES (1)")

    def lose_the_savepoint(context: Context, _: object) -> None:
        context.connection.execute("RELEASE litequeue_verb")
        raise ArithmeticError

    monkeypatch.setattr("litequeue.sqlite.enqueueing.enqueue", lose_the_savepoint)
    with pytest.raises(ArithmeticError):
        dbapi.enqueue(connection, "work")
    if connection.in_transaction:
        connection.execute("COMMIT")
    assert connect(isolation_level=None).execute("SELECT count(*) FROM orders").fetchall() == [(0,)]
