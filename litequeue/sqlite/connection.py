"""One connection: opened, hardened, and let go.

Owns: the flags and pragmas that every connection of the queue has (DESIGN §3). Invariants: pragmas are run one by one
and fetched; a connection that must never be closed (inherited through a fork, or on a file that was replaced) is
abandoned for good instead, because a close would drop locks or checkpoint a file that is not ours.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import time
from collections.abc import Iterator

import apsw

from litequeue.errors import CannotOpen, NotAQueue
from litequeue.sqlite import filesystem

CHECKPOINT_PAGES = 4000
"""The write-ahead log is copied back when it has so many pages: larger means a better p99 (DESIGN §2)."""
PAGE_BYTES = 2048
PARTIAL_SUFFIX = ".litequeue-partial"
"""The end of the names of files that are not finished, which nobody may take for a queue."""

_LONGEST_SUFFIX = "-maintenance"
_LEAST_SQLITE = (3, 51, 3)
_BUSY_STEP_S = 0.001
_STATEMENTS = 500
"""How many uses of others a statement outlives in the cache of apsw, where each row of a batch is one."""

Runner = apsw.Connection | apsw.Cursor
"""What runs statements: a connection of the queue's own, or a bare cursor of one that is not."""


class Patience:
    """Until when this connection may wait for SQLite's lock; moved forward by each transaction."""

    __slots__ = ("deadline",)

    def __init__(self) -> None:
        self.deadline = 0.0

    def __call__(self, _: int) -> bool:
        """SQLite's busy handler: wait a millisecond, as long as there is time."""
        if time.monotonic() >= self.deadline:
            return False
        time.sleep(_BUSY_STEP_S)
        return True


def check_library(path: str) -> None:
    """Refuse an SQLite that loses commits.

    Raises:
        CannotOpen: SQLite is older than 3.51.3. Source: sqlite.org, "The WAL-reset bug".
    """
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < _LEAST_SQLITE:
        least = ".".join(map(str, _LEAST_SQLITE))
        raise CannotOpen(path, f"SQLite {apsw.sqlite_lib_version()} has the WAL-reset bug; {least} or newer is needed")


def make_file(path: str, mode: int) -> None:
    """Make an empty file with no more than these permissions, without opening it, where the platform can.

    Elsewhere SQLite makes it a moment later. The write-ahead log and the shared memory take over its permissions.
    """
    with contextlib.suppress(AttributeError, OSError):
        os.mknod(path, mode | stat.S_IFREG)


def connect(path: str, patience: Patience, *, create: bool) -> apsw.Connection:
    """Open a file and harden the connection.

    Raises:
        CannotOpen: no such folder, no permission, a folder in its place, or absent without `create`.
    """
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    try:
        connection = apsw.Connection(path, flags, statementcachesize=_STATEMENTS)
    except apsw.Error as exc:
        raise CannotOpen(path, why_not(path, create=create) or str(exc)) from exc
    try:
        if connection.readonly("main"):
            raise CannotOpen(path, f"no permission to write it{filesystem.owner_of(path)}")
        connection.set_busy_handler(patience)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        pragma(connection, "fullfsync = 1")  # macOS: a plain fsync leaves it to the drive when, and in which order
    except BaseException:
        connection.close()
        raise
    return connection


def why_not(path: str, *, create: bool) -> str | None:
    """Say in a person's words why a path cannot be opened, when that can be seen."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        return "it is a folder"
    if not os.path.isdir(folder):
        return f"there is no folder {folder}"
    if not os.path.exists(path):
        if not create:
            return "there is no such file"
        place, access, needed = folder, os.W_OK | os.X_OK, f"write in {folder}"
    else:
        place, access, needed = path, os.R_OK | os.W_OK, "read and write it"
    is_allowed = os.access(place, access)
    return _why_not_beside(path) if is_allowed else f"no permission to {needed}{filesystem.owner_of(place)}"


def _why_not_beside(path: str) -> str | None:
    """Say what SQLite would write to that is not the queue's, under the names of its files.

    A second name of the file itself is none of them, and it is refused too: who opens it by that name has another
    `-wal`, so the commits of the one are lost to the other. Source: sqlite.org, "How To Corrupt An SQLite Database
    File", section 2.4.
    """
    for suffix in ("", "-wal", "-shm", "-journal", _LONGEST_SUFFIX):
        try:
            status = os.lstat(path + suffix)
        except OSError as exc:
            if exc.errno == errno.ENAMETOOLONG:
                return "its name leaves no room for those of the files beside it"
            continue
        if suffix == _LONGEST_SUFFIX:
            continue
        what = f"the {suffix} beside it" if suffix else "it"
        if not stat.S_ISREG(status.st_mode):
            return f"{what} is not an ordinary file"
        if status.st_nlink > 1:
            return f"{what} has {status.st_nlink} names (hard links), and commits by one are lost to the others"
    return None


@contextlib.contextmanager
def immediate(connection: apsw.Connection) -> Iterator[None]:
    """Write for the length of a `with` block, outside of any verb; whatever ends it but its end rolls it back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def bare_cursor(connection: apsw.Connection) -> apsw.Cursor:
    """Make a cursor that gives rows and values as they are, whatever its connection does to those of others."""
    cursor = apsw.Cursor(connection)  # not by its factory
    cursor.convert_binding = cursor.convert_jsonb = None
    if connection.exec_trace is not None:
        cursor.exec_trace = _run_it
    if connection.row_trace is not None:
        cursor.row_trace = _give_it
    return cursor


def _run_it(_cursor: apsw.Cursor, _sql: str, _bindings: apsw.Bindings | None) -> bool:
    return True


def _give_it(_cursor: apsw.Cursor, row: apsw.SQLiteValues) -> apsw.SQLiteValues:
    return row


def pragma(connection: Runner, text: str) -> object:
    """Run one pragma and return its value, or `None` when it has none."""
    rows = connection.execute(f"PRAGMA {text}").fetchall()
    return rows[0][0] if rows else None


def use_wal(connection: apsw.Connection, path: str) -> None:
    """Make sure that the file is in WAL mode.

    Raises:
        CannotOpen: the file system offers no shared memory.
    """
    mode = pragma(connection, "journal_mode = WAL")
    if mode != "wal":
        raise CannotOpen(path, f"write-ahead logging is not possible here (journal mode {mode})")


def check_encoding(connection: Runner, path: str) -> None:
    """Refuse a file that is not UTF-8: event logs are appended as bytes by SQL.

    Raises:
        NotAQueue: another encoding.
    """
    encoding = pragma(connection, "encoding")
    if encoding != "UTF-8":
        raise NotAQueue(path, f"its text encoding is {encoding}, not UTF-8")


def close_last(connection: apsw.Connection) -> None:
    """Close in the ordinary way: the last one out copies the write-ahead log back and removes it."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    connection.close()


def abandon(one: apsw.Connection | apsw.Cursor | apsw.Backup | None) -> None:
    """Never close this, not even at exit: its destructor is not to run."""
    if one is not None:
        with contextlib.suppress(AttributeError):  # only CPython has an API to leak with
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))
