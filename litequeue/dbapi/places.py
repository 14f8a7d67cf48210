"""The file that a DB-API connection is on, and whether this process may use it so.

Owns the checks that come before anything is done: of the file, of this process's other
SQLite, of the library's version.
"""

from __future__ import annotations

import inspect
import os
import warnings

from litequeue.dbapi import failures
from litequeue.dbapi.engine import Connection, Given, borrowed
from litequeue.errors import CannotOpen, StorageLost, UsageError
from litequeue.sqlite import functions, intruders

_LEAST_SQLITE = (3, 37, 0)
"""The first with STRICT tables. Source: sqlite.org, "STRICT Tables"."""
_SOUND_SQLITE = (3, 51, 3)
"""The first without the WAL-reset bug. Source: sqlite.org, "Write-Ahead Logging"."""
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_warned: set[str] = set()


def place_of(given: Given) -> str:
    """Return the real path of the file that a connection is on.

    Raises:
        UsageError: it is on none, or cannot be used here.
    """
    try:
        with borrowed(given) as connection:
            return path_of(connection)
    except Exception as exc:
        known = failures.meaning(exc, given, "the database", "nothing was done")
        if known is not exc:
            raise known from exc
        raise


def path_of(connection: Connection) -> str:
    """Return the real path of the connection's main database.

    Raises:
        UsageError: it is in memory.
    """
    for _, name, path in connection.all("PRAGMA database_list"):
        if name == "main" and isinstance(path, str) and path:
            return os.path.realpath(path)
    raise UsageError("the connection is to a database in memory: a queue needs a file, which its workers open too")


def enter(connection: Connection, path: str) -> None:
    """Make sure that this connection may write to a queue file in this process.

    Raises:
        StorageLost: the file is no longer the one at its path.
        UsageError: the process has the file open through `litequeue.open`; or the connection only reads, or calls
            functions of the application's.
        CannotOpen: its SQLite is too old.
    """
    if not intruders.has_descriptor(path):
        raise StorageLost(f"{path} was moved, replaced or removed underneath: open the connection anew")
    intruders.visit(path)
    if connection.all("PRAGMA query_only") != [(0,)]:
        raise UsageError.of("connection", connection.given, "one that may write (PRAGMA query_only is set)")
    ((found,),) = connection.all("SELECT sqlite_version()")
    version = tuple(int(part) for part in str(found).split("."))
    if version < _LEAST_SQLITE:
        raise CannotOpen(path, f"this connection's SQLite is {found}; {_shown(_LEAST_SQLITE)} or newer is needed")
    functions.check(connection.given, connection.all(functions.OWN))
    if version < _SOUND_SQLITE and not _warned:
        _warned.add(str(found))
        warnings.warn(
            f"this process writes to {path} through SQLite {found}, which has the WAL-reset bug (rarely, two processes "
            f"that checkpoint at once damage the file); {_shown(_SOUND_SQLITE)} or newer has not. What to do until "
            "then: docs/guide/dbapi.md, 'An old SQLite'",
            stacklevel=_application_level(),
        )


def _application_level() -> int:
    """Count the frames from our caller to the first one outside of this package, as a `stacklevel` of that caller."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


def _shown(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
