"""Copying a whole queue file, page by page, out of one snapshot, and making the copy fit to be opened.

Owns: what a copy is. Invariants: it is what one moment of the source was, the application's own tables included; it has
been checked by SQLite and against the schema before anybody gets it; its leases belong to nobody: no boot has the id
that it names, so that its first opening lapses them all (contract §8). Leaves out: where it goes (`backing_up`,
`restoring`).

SQLite's backup, not `VACUUM INTO`: the latter renumbers rows of tables without an integer key, does not sync what it
has made, and took twice as long, for all of which it would pin the source's write-ahead log. The backup reads in
an open transaction of the source, so that writers beside it never make it begin again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

from litequeue.errors import CannotOpen, LiteQueueError, NotAQueue, QueueFull, StorageCorrupt
from litequeue.sqlite import schema
from litequeue.sqlite.connection import Patience, close_last, connect, immediate, pragma, use_wal
from litequeue.sqlite.failures import translate
from litequeue.sqlite.statements import SQL
from litequeue.sqlite.visiting import Inherited

Progress = Callable[[int, int], None]
"""Called with what has been done of how much."""

_STEP_PAGES = 1000
_TIMEOUT_S = 10.0


def copy_out(source: apsw.Connection, made: str, path: str, target: str, progress: Progress | None) -> None:
    """Fill a file from the open snapshot of the queue at `path`; `target` is what the file is for.

    Raises:
        LiteQueueError: what `failure` says.
    """
    try:
        connection = connect(made, Patience(), create=False)
        with closing(connection):
            pragma(connection, "journal_mode = OFF")  # nobody else opens it, and an unfinished one is thrown away
            pragma(connection, "synchronous = FULL")
            copy_pages(source, connection, progress)
    except apsw.Error as exc:
        raise failure(exc, path, target) from exc


def copy_pages(
    source: apsw.Connection,
    target: apsw.Connection,
    progress: Progress | None,
    check: Callable[[], None] | None = None,
) -> None:
    """Copy all pages in one transaction of the target; `check` is called once the target's lock is held.

    Raises:
        apsw.Error: no room, a lock that was not had, or one of the two cannot be read or written; nothing was changed.
    """
    backup = target.backup("main", source, "main")
    inherited = Inherited(backup)
    copier = os.getpid()
    try:
        backup.step(1)
        if check is not None:
            check()
        while not backup.done:
            backup.step(_STEP_PAGES)
            if progress is not None:
                progress(backup.page_count - backup.remaining, backup.page_count)
        backup.finish()
    finally:
        if os.getpid() == copier:
            del inherited
            backup.close(force=True)  # rolls back what is not complete


def finish(made: str, path: str) -> int:
    """Take the leases of a copy away from everybody, check it, and sync it; return how many jobs it has.

    Raises:
        StorageCorrupt: SQLite finds it damaged, so its source is.
        NotAQueue, SchemaMismatch: it is no queue, or one of a newer version.
    """
    patience = Patience()
    patience.deadline = time.monotonic() + _TIMEOUT_S
    connection = connect(made, patience, create=False)
    with closing(connection):
        pragma(connection, "locking_mode = EXCLUSIVE")  # no shared memory: nobody else opens it
        if schema.is_new(connection, path):
            raise NotAQueue(path, "it is empty")
        schema.check(connection, path, or_earlier=True)
        use_wal(connection, path)
        pragma(connection, "synchronous = FULL")
        with immediate(connection):
            connection.execute(SQL.host_unbooted)
            connection.execute(SQL.holders_clear)
        said = str(pragma(connection, "integrity_check(1)"))
        if said != "ok":
            raise StorageCorrupt(f"{path} is damaged: {' '.join(said.split())}")
        jobs = connection.execute(SQL.body_count).fetchall()[0][0]
        connection.wal_checkpoint(None, apsw.SQLITE_CHECKPOINT_TRUNCATE)
        return int(str(jobs))


@contextmanager
def closing(connection: apsw.Connection, *, keep_log: bool = False) -> Iterator[None]:
    """Close a connection at the end of a `with` block, or let go of it in a forked child.

    With `keep_log`, a write-ahead log stays as it is.
    """
    inherited = Inherited(connection)
    opener = os.getpid()
    try:
        yield
    finally:
        if os.getpid() == opener:
            del inherited
            if keep_log:
                connection.close()
            else:
                close_last(connection)


def failure(exc: apsw.Error | OSError, source: str, target: str) -> LiteQueueError:
    """Return what it means that a copy from `source` to `target` failed."""
    match exc:
        case OSError():
            return CannotOpen(exc.filename or target, exc.strerror or str(exc))
        case apsw.FullError():
            return QueueFull(f"{target} cannot be written: the disk is full")
        case apsw.IOError():
            return CannotOpen(target, f"copying from {source} failed ({exc})")
        case _:
            return translate(exc, source) or StorageCorrupt(f"{source} is damaged: {exc}")
