"""The queue's tables: made once, checked at every open.

Invariants: a new file gets all of its tables in one transaction or none; a file that is something else is not touched;
queue tables that differ in anything from `schema.sql`, or from that of the earlier version that they say they are,
foreign indexes and triggers included, are refused. Leaves out: how an earlier version becomes this one (`migrating`).
"""

from __future__ import annotations

from typing import cast

import apsw

from litequeue.clock import Clock
from litequeue.errors import NotAQueue, SchemaMismatch, StorageCorrupt
from litequeue.sqlite import tables
from litequeue.sqlite.connection import PAGE_BYTES, Runner, check_encoding, immediate, pragma, use_wal
from litequeue.sqlite.tables import PREFIX

APPLICATION_ID = 0x6C517565
"""`lQue`, in the header of files that hold nothing but a queue."""


def is_new(connection: apsw.Connection, path: str) -> bool:
    """Tell whether the file has no tables at all, so that a queue may be made in it.

    Raises:
        NotAQueue: it holds something else: tables of an application but no queue, or another application's mark.
        StorageCorrupt: it was a queue.
    """
    names = [cast("str", row[0]) for row in connection.execute("SELECT name FROM sqlite_schema").fetchall()]
    if f"{PREFIX}meta" in names:
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
            fill(connection, clock)
            pragma(connection, f"application_id = {APPLICATION_ID}")


def is_there(connection: Runner) -> bool:
    """Tell whether the file has the queue's tables, among others or alone."""
    return any(name == f"{PREFIX}meta" for _, name, *_ in connection.execute(tables.OBJECTS).fetchall())


def check_free(connection: Runner, path: str) -> None:
    """Make sure that the queue's tables are there, or nothing of their names.

    Raises:
        SchemaMismatch: other things have such names.
    """
    tables.check_free(path, connection.execute(tables.OBJECTS).fetchall())


def fill(connection: Runner, clock: Clock) -> None:
    """Make the tables in the open write transaction, beside whatever else is there; nothing of the file is set."""
    connection.execute(tables.text()).fetchall()
    meta = "INSERT INTO litequeue_meta (id, schema_version, settings_version) VALUES (1, ?, 1)"
    connection.execute(meta, (tables.VERSION,))
    connection.execute("INSERT INTO litequeue_host (id, boot_id, lease_offset) VALUES (1, ?, 0)", (clock.boot_id(),))


def version_of(connection: Runner, path: str) -> int:
    """Return which version a file's tables say they are.

    Raises:
        SchemaMismatch: a newer or unknown one.
    """
    check_encoding(connection, path)
    try:
        versions = connection.execute("SELECT schema_version FROM litequeue_meta").fetchall()
    except apsw.SQLError as exc:
        known = f"version {tables.VERSION}"
        raise SchemaMismatch(path, f"a queue whose version cannot be read ({exc})", known) from exc
    return tables.version_of(path, versions)


def check(connection: Runner, path: str, *, or_earlier: bool = False) -> int:
    """Hold the queue's tables against the ones that their version makes; return that version.

    Raises:
        EarlierVersion: they are whole, but of an earlier version; with `or_earlier` they will do.
        SchemaMismatch: a newer or unknown version, or tables, indexes, triggers or views that differ.
    """
    version = version_of(connection, path)
    tables.check_objects(path, version, connection.execute(tables.OBJECTS).fetchall())
    if not or_earlier:
        tables.refuse_earlier(path, version)
    return version


def check_not_shadowed(connection: Runner, path: str) -> None:
    """Refuse temporary tables by the names of the queue's, and triggers on those; see `tables.check_not_shadowed`."""
    tables.check_not_shadowed(path, connection.execute(tables.TEMPORARY).fetchall())
