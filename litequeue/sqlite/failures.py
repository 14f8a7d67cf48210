"""apsw's errors in the words of `litequeue.errors`, in this one place.

Invariant: an error that comes from the caller's own SQL (a constraint, a typo) is not translated; it is the caller's.
"""

from __future__ import annotations

import apsw

from litequeue.errors import (
    CannotOpen,
    LiteQueueError,
    QueueBusy,
    QueueFull,
    SchemaMismatch,
    StorageCorrupt,
    StorageLost,
)

ROLLED_BACK = "; the transaction was rolled back"


def translate(exc: apsw.Error, path: str) -> LiteQueueError | None:  # noqa: PLR0911 - one a kind of failure
    """Return the error to raise instead, or `None` when this one is not about the storage."""
    reason = str(exc)
    match exc:
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():  # the last: SQLite gave up a race
            return QueueBusy(f"{path} is busy: {reason}")
        case apsw.FullError():
            return QueueFull(f"the disk is full ({path}){ROLLED_BACK}")
        case apsw.CorruptError() | apsw.NotADBError():
            return StorageCorrupt(f"{path} is damaged: {reason}")
        case apsw.CantOpenError():
            return CannotOpen(path, reason)
        case apsw.ReadOnlyError() if _code(exc) == apsw.SQLITE_READONLY_DBMOVED:
            return StorageLost(f"{path} was moved or removed underneath")
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return CannotOpen(path, "no permission to write")
        case apsw.IOError() if _code(exc) in _TRUNCATED:
            return StorageCorrupt(f"{path} is damaged: it ends too early ({reason})")
        case apsw.IOError():
            return StorageLost(f"input or output on {path} failed: {reason}{ROLLED_BACK}")
        case apsw.SQLError() if "no such table: litequeue_" in reason:
            return SchemaMismatch(path, reason, "the queue's own tables")
        case _:
            return None


def meaning(exc: BaseException, path: str) -> BaseException:
    """Return what an exception out of our own statements and records means: where no caller's SQL has part in it.

    What they never raise, unless the file holds what no queue wrote, is damage.
    """
    if isinstance(exc, LiteQueueError):
        return exc
    known = translate(exc, path) if isinstance(exc, apsw.Error) else None
    if known is None and isinstance(exc, _SIGNS_OF_DAMAGE):
        return damaged(path, exc)
    return known or exc


def damaged(path: str, cause: BaseException) -> StorageCorrupt:
    """Say that a file holds what no queue wrote."""
    return StorageCorrupt(f"{path} is damaged: a value in it is none that a queue writes ({cause})")


def _code(exc: apsw.Error) -> int:
    """Return SQLite's extended result code; an error that apsw itself raises has none."""
    return getattr(exc, "extendedresult", 0)


_SIGNS_OF_DAMAGE = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.SQLError,
    apsw.TooBigError,
    AttributeError,
    LookupError,
    OverflowError,
    TypeError,
    ValueError,
)
_TRUNCATED = (apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS)
