"""Moving the tables of an earlier version forward to those of `schema.sql`, in place.

Owns: the one transaction that does it. Invariants: it is done by the only connection that there is, of whatever
program, so that nobody writes by the rules of the earlier version into the tables of this one; it is done whole or not
at all, whatever cuts it off; afterwards each of the queue's objects has the very statement that it has in a new file.

The steps follow from the two schemas, so no version needs any of its own: what is missing is made, empty; a table that
differs is made anew and takes over the columns of the same name, so a new column has a default or allows for NULL; what
this version does not have goes. Leaves out: the gate, which the caller holds, and which versions there are (`tables`).

Source: sqlite.org, "ALTER TABLE", section 7, and "PRAGMA locking_mode". With `legacy_alter_table` a table that is
renamed leaves the views and triggers of an application as they were written.
"""

from __future__ import annotations

import logging
import os
import time

import apsw

from litequeue.errors import QueueBusy, QueueFull
from litequeue.sqlite import connection as connections
from litequeue.sqlite import filesystem, schema, tables
from litequeue.sqlite.connection import Patience, pragma
from litequeue.sqlite.gate import lockers
from litequeue.sqlite.place import Place
from litequeue.sqlite.tables import Thing

_LOCK_S = 1.0
"""How long somebody is waited for who only passes, as an examination does, before the version is looked at again."""
_ASIDE = "litequeue_aside"
"""What a table is called while its content moves over to the new one."""
_ORDER = ("table", "index", "trigger", "view")
_TWICE = 2
"""How often the new tables are on the disk at the end: in the log, and then in the file."""
_log = logging.getLogger("litequeue")


def move_forward(place: Place, deadline: float) -> bool:
    """Move the queue at `place` to this version, unless it is; tell whether the file was had for it.

    It is not while anybody has it open, also when the one who does has just moved it.

    Raises:
        QueueFull: the disk has no room for the new tables beside the old ones; nothing was done.
        SchemaMismatch, apsw.Error: it cannot be read, or not be written; nothing was done.
    """
    path = place.path
    patience = Patience()
    patience.deadline = min(deadline, time.monotonic() + _LOCK_S)
    connection = connections.connect(path, patience, create=False)
    try:
        try:
            pragma(connection, "locking_mode = EXCLUSIVE")  # before it first reads, so that it is alone or nothing
            connections.use_wal(connection, path)
        except (apsw.BusyError, apsw.LockedError):
            return False
        pragma(connection, "synchronous = FULL")
        connection.config(apsw.SQLITE_DBCONFIG_LEGACY_ALTER_TABLE, 1)
        with connections.immediate(connection):
            version = schema.check(connection, path, or_earlier=True)
            if version != tables.VERSION:
                _refuse_without_room(connection, place, version)
                rebuild(connection, _things(connection), tables.expected(tables.VERSION))
                connection.execute("UPDATE litequeue_meta SET schema_version = ?", (tables.VERSION,))
                schema.check(connection, path)
    finally:
        connections.close_last(connection)  # what it has logged is copied back, or of no use
    if version != tables.VERSION:
        _log.info("%s: moved from schema version %s to %s", path, version, tables.VERSION)
    return True


def in_use(path: str) -> QueueBusy:
    """Say that a file of an earlier version is not moved, and who has it open, as far as the system tells."""
    inode = os.stat(path).st_ino
    pids = {pid for mode in ("READ", "WRITE") for pid in lockers(inode, "POSIX", mode) if pid > 0}
    who = f" (process {', '.join(map(str, sorted(pids)))})" if pids else ""
    return QueueBusy(
        f"{path} is of an earlier version, and cannot be moved to schema version {tables.VERSION} while something else "
        f"has it open{who}: stop that first"
    )


def rebuild(connection: apsw.Connection, found: frozenset[Thing], wanted: frozenset[Thing]) -> None:
    """Make of what is found what is wanted, in the open transaction; `legacy_alter_table` has to be on."""
    anew = _made_anew(found, wanted)
    for thing in found:
        if thing.sort != "table" and (thing not in wanted or thing.table in anew):
            _drop(connection, thing)
    for thing in wanted - found:
        if thing.name in anew:
            connection.execute(f'ALTER TABLE "{thing.name}" RENAME TO {_ASIDE}')
            connection.execute(thing.sql)
            _take_over(connection, thing.name)
            connection.execute(f"DROP TABLE {_ASIDE}")
    for thing in found:
        if thing.sort == "table" and thing.name not in {other.name for other in wanted}:
            _drop(connection, thing)
    for thing in sorted(wanted - _things(connection), key=lambda thing: _ORDER.index(thing.sort)):
        connection.execute(thing.sql)


def _things(connection: apsw.Connection) -> frozenset[Thing]:
    return tables.ours(connection.execute(tables.OBJECTS).fetchall())


def _made_anew(found: frozenset[Thing], wanted: frozenset[Thing]) -> set[str]:
    """Return the names of the tables that both have, in different forms."""
    old, new = ({thing.name for thing in some if thing.sort == "table"} for some in (found - wanted, wanted - found))
    return old & new


def _take_over(connection: apsw.Connection, table: str) -> None:
    """Fill a new table from the one that was put aside, in the order of its key, so that it grows at its end only."""
    kept = [f'"{name}"' for name in _columns(connection, table) if name in _columns(connection, _ASIDE)]
    columns, order = ", ".join(kept), ", ".join(f'"{name}"' for name in _columns(connection, table, of_key=True))
    connection.execute(f'INSERT INTO "{table}" ({columns}) SELECT {columns} FROM {_ASIDE} ORDER BY {order}')  # noqa: S608
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'").fetchall():
        # Ids that were given out once are never given out again, though their rows may be gone.
        (last,) = connection.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = ?", (_ASIDE,)).fetchall()[0]
        if last is not None:
            connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last))


def _columns(connection: apsw.Connection, table: str, *, of_key: bool = False) -> list[str]:
    rows = connection.execute("SELECT name, pk FROM pragma_table_info(?)", (table,)).fetchall()
    if not of_key:
        return [str(name) for name, _ in rows]
    return [str(name) for position, name in sorted((int(str(pk)), str(name)) for name, pk in rows) if position]


def _drop(connection: apsw.Connection, thing: Thing) -> None:
    connection.execute(f'DROP {thing.sort} "{thing.name}"')


def _refuse_without_room(connection: apsw.Connection, place: Place, version: int) -> None:
    """Refuse before anything is written what would fill the disk.

    Raises:
        QueueFull: it would.
    """
    anew = _made_anew(tables.expected(version), tables.expected(tables.VERSION))
    needed = _TWICE * _size(connection, [thing.name for thing in tables.expected(version) if thing.table in anew])
    free = filesystem.free_bytes(place.folder)
    if free is not None and needed > free:
        raise QueueFull(
            f"{place.path} is of schema version {version}, and to move it to version {tables.VERSION} takes "
            f"{needed:,} bytes of the disk for a while: only {free:,} are free"
        )


def _size(connection: apsw.Connection, names: list[str]) -> int:
    """Return how many bytes tables and indexes take; where SQLite cannot tell, those of the whole file."""
    if not names:
        return 0
    if "ENABLE_DBSTAT_VTAB" not in apsw.compile_options:
        pages = int(str(pragma(connection, "page_count"))) - int(str(pragma(connection, "freelist_count")))
        return pages * int(str(pragma(connection, "page_size")))
    statement = "SELECT pgsize FROM dbstat WHERE name = ? AND aggregate = TRUE"
    return sum(int(str(size)) for name in names for (size,) in connection.execute(statement, (name,)).fetchall())
