"""A piece of work of the queue in the caller's transaction, on its DB-API connection.

Invariants: the write lock is had before anything is read, so that keys and `created_at` are of the moment of the commit
(G4, V2) and the clock is read under it (G8); the work is done under a savepoint, and what raises leaves the transaction
as it was (G11): none, if none was open. Leaves out: COMMIT, which is the caller's, and with it the sync (§7).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from litequeue import clock as clocks
from litequeue.clock import Clock
from litequeue.dbapi import bells, callers, failures, places
from litequeue.dbapi.engine import Connection, Given, borrowed
from litequeue.errors import NotAQueue, QueueBusy, UsageError
from litequeue.settings import Settings
from litequeue.sqlite import settings_table, tables
from litequeue.sqlite.context import Context
from litequeue.sqlite.filesystem import Room
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.result_codes import Code
from litequeue.sqlite.statements import SQL

if TYPE_CHECKING:
    import apsw

T = TypeVar("T")

_SYNCED = 2
"""PRAGMA synchronous: FULL; EXTRA is more."""


def write(given: object, work: Callable[[Context], T], clock: Clock) -> T:
    """Do a piece of work in the caller's transaction; it rings after the commit where the caller can be told of that.

    Raises: see `litequeue.dbapi.enqueue`, and what the work raises.
    """
    caller = callers.of(given)

    def do(connection: Connection, path: str) -> T:
        _lock(connection, path)
        check_encoding(connection, path)
        check_tables(connection, path)
        context = _context(connection, path, clock)
        return _in_savepoint(connection, lambda: noted(context, path))

    def noted(context: Context, path: str) -> T:
        result = work(context)
        if context.rings and caller.after_commit is not None:
            caller.after_commit(path, partial(bells.ring_for, path))
        return result

    return _translated(caller.connection, do)


def alone(given: Given, work: Callable[[Connection, str], T]) -> T:
    """Do a piece of work in the caller's transaction, or in one of its own when none is open."""

    def do(connection: Connection, path: str) -> T:
        if connection.in_transaction:
            return _in_savepoint(connection, lambda: work(connection, path))
        connection.execute("BEGIN IMMEDIATE")
        result = work(connection, path)
        connection.execute("COMMIT")
        return result

    return _translated(given, do)


def has_tables(connection: Connection) -> bool:
    """Tell whether there are tables of a queue."""
    return bool(connection.all("SELECT 1 FROM main.sqlite_schema WHERE name = 'litequeue_meta'"))


def check_encoding(connection: Connection, path: str) -> None:
    """Refuse a file that is not UTF-8: event logs are appended as bytes by SQL.

    Raises:
        NotAQueue: another encoding.
    """
    ((encoding,),) = connection.all("PRAGMA encoding")
    if encoding != "UTF-8":
        raise NotAQueue(path, f"its text encoding is {encoding}, not UTF-8")


def check_tables(connection: Connection, path: str) -> None:
    """Hold the queue's tables against the ones that this version makes.

    Raises:
        SchemaMismatch: another version, or tables, indexes, triggers or views that differ; or the caller's temporary
            tables have their names.
    """
    versions = connection.all("SELECT schema_version FROM main.litequeue_meta")
    tables.check(path, versions, connection.all(tables.OBJECTS))
    tables.check_not_shadowed(path, connection.all(tables.TEMPORARY))


def _translated(given: Given, do: Callable[[Connection, str], T]) -> T:
    """Do something on a connection that may write here; what it raises is said in the words of this package."""
    path, undone = "the database", "nothing was done"
    try:
        with borrowed(given) as connection:
            path = places.path_of(connection)
            places.enter(connection, path)
            was_open = connection.in_transaction
            try:
                return do(connection, path)
            except BaseException as exc:
                if not was_open and connection.in_transaction:
                    connection.rollback()
                elif was_open and not connection.in_transaction:
                    undone = "SQLite has rolled your whole transaction back"
                    exc.add_note(f"litequeue: {undone}")
                raise
    except Exception as exc:
        known = failures.meaning(exc, given, path, undone)
        if known is not exc:
            raise known from exc
        raise


def _lock(connection: Connection, path: str) -> None:
    """Take the write lock by a write that changes nothing; a connection that begins by itself begins here.

    Raises:
        QueueBusy: it was not had.
        NotAQueue: there are no tables of a queue.
        UsageError: no transaction is open after it.
    """
    was_open = connection.in_transaction
    try:
        connection.execute(SQL.lock)
    except Exception as exc:
        if failures.is_busy(exc):
            raise QueueBusy(f"the write lock of {path} was not had ({exc}): {_what_to_do(exc, was_open)}") from exc
        if not has_tables(connection):
            reason = "it has no tables of a queue; `litequeue.dbapi.create_tables` or `litequeue.open` makes them"
            raise NotAQueue(path, reason) from exc
        raise
    if not connection.in_transaction:
        raise UsageError(
            "the connection commits each statement by itself, so a job would be in no transaction of yours: begin one "
            "first (BEGIN IMMEDIATE; in Django, transaction.atomic())"
        )


def _what_to_do(exc: Exception, was_open: bool) -> str:
    if not was_open:
        return "nothing was done, try again"
    if failures.code_of(exc) == Code.BUSY | 2 << 8:  # SQLITE_BUSY_SNAPSHOT
        return (
            "another transaction has committed since this one began to read, so it cannot write any more; roll it back "
            "and do it again, begun by BEGIN IMMEDIATE"
        )
    return "nothing was done; roll your transaction back and do it again"


def _context(connection: Connection, path: str, clock: Clock) -> Context:
    """Begin the queue's part of the transaction: read what every process agrees on, then the clock."""
    engine = cast("apsw.Connection", connection)  # it has what the rooms that enqueue ask of one
    cursor = cast("apsw.Cursor", connection.cursor)
    reader = Reader(engine, 0, 0, Settings(), cursor)
    settings = settings_table.read(reader)
    ((_, lease_offset),) = reader.all(SQL.host)
    ((synchronous,),) = reader.all("PRAGMA main.synchronous")
    room = Room(os.path.dirname(path), partial(_owed_bytes, connection, path))
    wall_us, monotonic_us = clocks.now(clock)
    return Context(
        engine,
        cursor,
        wall_us,
        monotonic_us + lease_offset,
        settings,
        0,
        None,
        _refuse_holder,
        room,
        keeps_jobs=True,
        is_synced=synchronous >= _SYNCED,
    )


def _owed_bytes(connection: Connection, path: str) -> int:
    """By how much the file is to grow when the write-ahead log is copied back."""
    whole_bytes = cast("int", connection.all(SQL.file_size)[0][0])
    return max(0, whole_bytes - os.stat(path).st_size)


def _refuse_holder(_: Context) -> int:
    raise UsageError("a connection of a DB-API leases nothing")


def _in_savepoint(connection: Connection, work: Callable[[], T]) -> T:
    connection.execute("SAVEPOINT litequeue_verb")
    try:
        result = work()
    except BaseException:
        if connection.in_transaction:
            _undo(connection)
        raise
    connection.execute("RELEASE litequeue_verb")
    return result


def _undo(connection: Connection) -> None:
    """Go back to the savepoint; a damaged file may not let the transaction live."""
    try:
        connection.execute("ROLLBACK TO litequeue_verb")
        connection.execute("RELEASE litequeue_verb")
    except Exception as exc:
        if failures.code_of(exc) is None:
            raise
        with suppress(Exception):  # it may be over by now
            connection.rollback()
