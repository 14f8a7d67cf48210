"""The queue's tables: made once, checked at every open.

Invariants: a new file gets all of its tables in one transaction or none; a file that is something else is not touched;
queue tables that differ from `schema.sql` in anything, foreign indexes and triggers included, are refused.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import NamedTuple, cast

import apsw

from litequeue.clock import Clock
from litequeue.errors import NotAQueue, SchemaMismatch, StorageCorrupt
from litequeue.sqlite.connection import PAGE_BYTES, check_encoding, immediate, pragma, use_wal

VERSION = 1
APPLICATION_ID = 0x6C517565
"""`lQue`, in the header of files that hold nothing but a queue."""

_PREFIX = "litequeue_"
_OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_schema"


class _Thing(NamedTuple):
    """A table, index, trigger or view, as SQLite remembers it."""

    sort: str
    name: str
    table: str
    sql: str


def is_new(connection: apsw.Connection, path: str) -> bool:
    """Tell whether the file has no tables at all, so that a queue may be made in it.

    Raises:
        NotAQueue: it holds something else: tables of an application but no queue, or another application's mark.
        StorageCorrupt: it was a queue.
    """
    names = [cast("str", row[0]) for row in connection.execute("SELECT name FROM sqlite_schema").fetchall()]
    if f"{_PREFIX}meta" in names:
        return False
    mark = cast("int", pragma(connection, "application_id"))
    if mark == APPLICATION_ID and not names:  # mark and tables are made in one transaction
        raise StorageCorrupt(f"{path} is damaged: it is marked as a queue, and its tables are gone")
    if names or mark != 0:
        others = ", ".join(sorted(names)[:3]) or f"application id {mark:#x}"
        raise NotAQueue(path, f"it belongs to another application ({others})")
    return True


def create(connection: apsw.Connection, path: str, clock: Clock) -> None:
    """Make the tables in an empty file, in one transaction; a killed creator leaves an empty file behind.

    Another process may have done it meanwhile; then this one finds it done.
    """
    check_encoding(connection, path)
    pragma(connection, f"page_size = {PAGE_BYTES}")
    pragma(connection, "auto_vacuum = INCREMENTAL")
    use_wal(connection, path)
    pragma(connection, "synchronous = FULL")
    with immediate(connection):
        if is_new(connection, path):
            connection.execute(_text()).fetchall()
            pragma(connection, f"application_id = {APPLICATION_ID}")
            connection.execute(
                "INSERT INTO litequeue_meta (id, schema_version, settings_version) VALUES (1, ?, 1)", (VERSION,)
            )
            connection.execute(
                "INSERT INTO litequeue_host (id, boot_id, lease_offset) VALUES (1, ?, 0)", (clock.boot_id(),)
            )


def check(connection: apsw.Connection, path: str) -> None:
    """Hold the queue's tables against the ones that this version makes.

    Raises:
        SchemaMismatch: another version, or tables, indexes, triggers or views that differ.
    """
    check_encoding(connection, path)
    try:
        rows = connection.execute("SELECT schema_version FROM litequeue_meta").fetchall()
    except apsw.SQLError as exc:
        raise SchemaMismatch(path, f"a queue whose version cannot be read ({exc})", f"version {VERSION}") from exc
    version = rows[0][0] if rows else None
    if version != VERSION:
        raise SchemaMismatch(path, f"schema version {version}", f"version {VERSION}")
    found = _ours(connection)
    expected = _expected()
    if found != expected:
        different = {thing.name for thing in found ^ expected}
        missing = {thing.name for thing in expected} - {thing.name for thing in found}
        added = {thing.name for thing in found} - {thing.name for thing in expected}
        parts = (
            ("without", missing),
            ("with an unknown", added),
            ("with a changed", different - missing - added),
        )
        said = "; ".join(f"{word} {', '.join(sorted(names))}" for word, names in parts if names)
        raise SchemaMismatch(path, f"queue tables {said}", f"those of version {VERSION}")


def check_not_shadowed(connection: apsw.Connection, path: str) -> None:
    """Refuse temporary tables by the names of the queue's: they would take what is written to those.

    Raises:
        SchemaMismatch: there is one.
    """
    names = connection.execute("SELECT name FROM sqlite_temp_schema").fetchall()
    ours = sorted(str(name) for (name,) in names if str(name).lower().startswith(_PREFIX))
    if ours:
        raise SchemaMismatch(path, f"temporary tables named {', '.join(ours)}", "none of these names")


def _ours(connection: apsw.Connection) -> frozenset[_Thing]:
    rows = connection.execute(_OBJECTS).fetchall()
    things = [_Thing(str(sort), str(name), str(table), str(sql)) for sort, name, table, sql in rows]
    return frozenset(
        thing for thing in things if thing.name.lower().startswith(_PREFIX) or thing.table.lower().startswith(_PREFIX)
    )


@cache
def _expected() -> frozenset[_Thing]:
    connection = apsw.Connection(":memory:")
    try:
        connection.execute(_text()).fetchall()
        return _ours(connection)
    finally:
        connection.close()


def _text() -> str:
    return resources.files(__package__).joinpath("schema.sql").read_text(encoding="utf-8")
