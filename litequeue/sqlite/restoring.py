"""A restore: the content of a backup, in place of a queue that nobody has open, in one step.

Invariants: the backup is copied, checked and made fit beside the target before the target is touched at all; a target
that exists keeps its inode, and is overwritten in one transaction of SQLite's with a rollback journal, under its
exclusive lock; one that does not exist appears whole. Whatever dies when, the next opening finds the old queue or the
new one. Leaves out: what a copy is (`copying`).

Not by renaming over an existing file: a process that waits for the lock, or for the gate, has the old inode open, and
would go on to write a log at the path of the new one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from litequeue.errors import CannotOpen, LiteQueueError, NotAQueue, QueueBusy
from litequeue.model import Copied
from litequeue.sqlite import copying, opening, schema
from litequeue.sqlite.backing_up import refuse_logs
from litequeue.sqlite.connection import Patience, connect, pragma, use_wal
from litequeue.sqlite.copying import Progress
from litequeue.sqlite.gate import Gate
from litequeue.sqlite.partial import partial, publish
from litequeue.sqlite.place import Place
from litequeue.sqlite.presence import is_attended
from litequeue.sqlite.statements import SQL
from litequeue.sqlite.surroundings import is_own
from litequeue.sqlite.visiting import turn, visit

_LOCK_S = 1.0
"""How long a passing reader is waited for, before the target is said to be in use."""


def restore(
    source: str | os.PathLike[str], place: Place, *, overwrite: bool, progress: Progress | None = None
) -> Copied:
    """Put the content of `source` at `place`.

    Raises:
        CannotOpen: the source cannot be read, the target cannot be written, or holds jobs and is not to be overwritten.
        NotAQueue, SchemaMismatch, StorageCorrupt: one of the two is no queue, one of a newer version, or damaged.
        QueueBusy: somebody has the target open.
        QueueFull: no room.
    """
    path = opening.real_path(source)
    if os.path.lexists(path) and is_own(path, place.path):
        raise CannotOpen(path, "it is the very file that it would be restored to, or belongs to it")
    if os.path.lexists(place.path):  # refuse before anything is copied what would be refused after it
        with turn(place.path), _target(place.path) as target:
            _refuse(target, place, overwrite=overwrite)
    try:
        with partial(place.path, place.mode) as made:
            _take(path, made, place.path, progress)
            jobs = copying.finish(made, path)
            file_bytes = os.stat(made).st_size
            with _gate(place):
                _put(made, place, overwrite=overwrite)
    except (apsw.Error, OSError) as exc:
        raise copying.failure(exc, path, place.path) from exc
    return Copied(place.path, jobs, file_bytes)


def _take(path: str, made: str, target: str, progress: Progress | None) -> None:
    """Copy the backup, with what its write-ahead log holds; it is left as it was."""
    with visit(path) as connection:
        try:
            connection.execute("BEGIN")
            if schema.is_new(connection, path):
                raise NotAQueue(path, "it is empty")
            schema.check(connection, path, or_earlier=True)
        except (apsw.Error, UnicodeDecodeError) as exc:
            raise opening.refusal(exc, path) from exc
        copying.copy_out(connection, made, path, target, progress)


def _put(made: str, place: Place, *, overwrite: bool) -> None:
    """Let the finished copy be the target, in one step."""
    path = place.path
    if not os.path.lexists(path):
        refuse_logs(path)
        publish(made, path, overwrite=False)
        return
    source = connect(made, Patience(), create=False)
    with copying.closing(source), _target(path) as target:
        _refuse(target, place, overwrite=overwrite)
        _lock_out_everybody(target, path)
        copying.copy_pages(source, target, None, check=lambda: _refuse_log(path))


@contextmanager
def _target(path: str) -> Iterator[apsw.Connection]:
    """Open the file that is to be overwritten, which has to be a queue, or empty.

    Raises:
        NotAQueue, SchemaMismatch, StorageCorrupt: it is something else, or damaged; it was not touched.
        QueueBusy: a lock was not had.
    """
    patience = Patience()
    patience.deadline = time.monotonic() + _LOCK_S
    opening.refuse_cut_off(path)
    has_log = os.path.exists(f"{path}-wal")
    connection = connect(path, patience, create=False)
    with copying.closing(connection, keep_log=has_log):
        try:
            if not schema.is_new(connection, path):
                schema.check(connection, path, or_earlier=True)
        except (apsw.Error, UnicodeDecodeError) as exc:
            raise _moved_away(opening.refusal(exc, path)) from exc
        except LiteQueueError as exc:
            _moved_away(exc)
            raise
        yield connection


def _refuse(target: apsw.Connection, place: Place, *, overwrite: bool) -> None:
    """Refuse to overwrite jobs, unless told to, and in any case those of a handle that lives.

    A handle has no connection between a fork and its next verb; SQLite does not know of it then.

    Raises:
        CannotOpen: there are jobs.
        QueueBusy: a handle is open.
        StorageCorrupt: the jobs cannot be counted.
    """
    path = place.path
    if is_attended(place):
        raise _in_use(path)
    if overwrite:
        return
    try:
        jobs = 0 if schema.is_new(target, path) else int(str(target.execute(SQL.body_count).fetchall()[0][0]))
    except (apsw.Error, UnicodeDecodeError) as exc:
        raise _moved_away(opening.refusal(exc, path)) from exc
    if jobs:
        held = "1 job, which is" if jobs == 1 else f"{jobs:,} jobs, which are"
        raise CannotOpen(path, f"it holds {held} replaced only with `overwrite`")


def _moved_away(error: BaseException) -> BaseException:
    error.add_note("what is there was left alone: move it away, with all that lies beside it, and restore then")
    return error


def _lock_out_everybody(target: apsw.Connection, path: str) -> None:
    """Leave WAL mode, which SQLite only does for the only connection that there is, an idle one counted.

    A file that is not in that mode goes into it first, for outside of it an idle connection holds no lock.

    Raises:
        QueueBusy: somebody has the file open.
    """
    try:
        use_wal(target, path)
        pragma(target, "synchronous = EXTRA")  # the journal's end is synced too, or a power loss brings the old back
        mode = pragma(target, "journal_mode = DELETE")
    except (apsw.BusyError, apsw.LockedError) as exc:
        raise _in_use(path) from exc
    if mode != "delete":
        raise _in_use(path)


def _refuse_log(path: str) -> None:
    """Look, under the exclusive lock, whether somebody came in before it and went into WAL mode again.

    Raises:
        QueueBusy: so it is; nothing has been changed.
    """
    if os.path.lexists(f"{path}-wal"):
        raise _in_use(path)


def _in_use(path: str) -> QueueBusy:
    return QueueBusy(f"{path} is in use: close every program that has it open before restoring")


@contextmanager
def _gate(place: Place) -> Iterator[None]:
    """Keep everybody from opening the target; after a second of waiting SQLite's own lock has to do."""
    had_sidecar = os.path.lexists(place.lock_path)
    gate = Gate(place.lock_path, place.mode)
    try:
        gate.enter(time.monotonic() + _LOCK_S)
        yield
    except BaseException:
        if not had_sidecar:
            gate.remove()
        raise
    finally:
        gate.close()
