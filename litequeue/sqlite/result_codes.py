"""What SQLite's result codes mean in the words of `litequeue.errors`, whichever module hands them on.

Invariant: a code that the caller's own SQL may bring about (a constraint, a typo) means nothing here; it is the
caller's. Where none of it has part, such a code says that the file holds what no queue wrote. Leaves out: how a module
tells its codes (`failures` for apsw, `litequeue.dbapi`). Source: sqlite.org, "Result and Error Codes".
"""

from __future__ import annotations

from enum import IntEnum

from litequeue import clock
from litequeue.errors import (
    CannotOpen,
    LiteQueueError,
    QueueBusy,
    QueueFull,
    SchemaMismatch,
    StorageCorrupt,
    StorageLost,
)

ROLLED_BACK = "the transaction was rolled back"


class Code(IntEnum):
    """The primary codes that mean something here."""

    ERROR = 1
    PERM = 3
    BUSY = 5
    LOCKED = 6
    READONLY = 8
    IOERR = 10
    CORRUPT = 11
    FULL = 13
    CANTOPEN = 14
    PROTOCOL = 15
    TOOBIG = 18
    CONSTRAINT = 19
    MISMATCH = 20
    NOTADB = 26


_READONLY_DBMOVED = Code.READONLY | 4 << 8
_IOERR_SHORT_READ = Code.IOERR | 2 << 8
_IOERR_CORRUPTFS = Code.IOERR | 33 << 8
_CODES_OF_DAMAGE = (Code.ERROR, Code.TOOBIG, Code.CONSTRAINT, Code.MISMATCH)
_SIGNS_OF_DAMAGE = (AttributeError, LookupError, OverflowError, TypeError, ValueError)


def translate(  # noqa: PLR0911 - one a kind of failure
    code: int, reason: str, path: str, undone: str = ROLLED_BACK
) -> LiteQueueError | None:
    """Return the error to raise instead of one with this extended code, or `None` when it is not about the storage.

    `undone` says how far back the failure of a write has led.
    """
    match code & 0xFF:
        case Code.BUSY | Code.LOCKED | Code.PROTOCOL:  # the last: SQLite gave up a race
            return QueueBusy(f"{path} is busy: {reason}")
        case Code.FULL:
            return QueueFull(f"the disk is full ({path}); {undone}")
        case Code.CORRUPT | Code.NOTADB:
            return StorageCorrupt(f"{path} is damaged: {reason}")
        case Code.CANTOPEN:
            return CannotOpen(path, reason)
        case Code.READONLY if code == _READONLY_DBMOVED:
            return StorageLost(f"{path} was moved or removed underneath")
        case Code.READONLY | Code.PERM:
            return CannotOpen(path, "no permission to write")
        case Code.IOERR if code in (_IOERR_SHORT_READ, _IOERR_CORRUPTFS):
            return StorageCorrupt(f"{path} is damaged: it ends too early ({reason})")
        case Code.IOERR:
            return StorageLost(f"input or output on {path} failed: {reason}; {undone}")
        case Code.ERROR if "no such table: litequeue_" in reason:
            return SchemaMismatch(path, reason, "the queue's own tables")
        case _:
            return None


def meaning(exc: BaseException, code: int | None, path: str, undone: str = ROLLED_BACK) -> BaseException:
    """Return what an exception out of our own statements and records means: where no caller's SQL has part in it.

    `code` is its extended code when it is SQLite's. What these never raise, unless the file holds what no queue wrote,
    is damage.
    """
    if isinstance(exc, LiteQueueError) or clock.has_raised(exc):
        return exc
    if code is None:
        return damaged(path, exc) if isinstance(exc, _SIGNS_OF_DAMAGE) else exc
    known = translate(code, str(exc), path, undone)
    if known is None and code & 0xFF in _CODES_OF_DAMAGE:
        return damaged(path, exc)
    return known or exc


def damaged(path: str, cause: BaseException) -> StorageCorrupt:
    """Say that a file holds what no queue wrote."""
    return StorageCorrupt(f"{path} is damaged: a value in it is none that a queue writes ({cause})")
