"""SQLite's codes: one meaning each, whichever module hands them on (§6)."""

from __future__ import annotations

import apsw
import pytest

from litequeue.errors import (
    CannotOpen,
    LiteQueueError,
    QueueBusy,
    QueueFull,
    SchemaMismatch,
    StorageCorrupt,
    StorageLost,
)
from litequeue.sqlite import failures, result_codes
from litequeue.sqlite.result_codes import Code

MEANINGS: list[tuple[int, type[LiteQueueError] | None]] = [
    (apsw.SQLITE_BUSY, QueueBusy),
    (apsw.SQLITE_BUSY_SNAPSHOT, QueueBusy),
    (apsw.SQLITE_LOCKED, QueueBusy),
    (apsw.SQLITE_PROTOCOL, QueueBusy),
    (apsw.SQLITE_FULL, QueueFull),
    (apsw.SQLITE_CORRUPT, StorageCorrupt),
    (apsw.SQLITE_NOTADB, StorageCorrupt),
    (apsw.SQLITE_CANTOPEN, CannotOpen),
    (apsw.SQLITE_READONLY, CannotOpen),
    (apsw.SQLITE_PERM, CannotOpen),
    (apsw.SQLITE_READONLY_DBMOVED, StorageLost),
    (apsw.SQLITE_IOERR_WRITE, StorageLost),
    (apsw.SQLITE_IOERR_SHORT_READ, StorageCorrupt),
    (apsw.SQLITE_IOERR_CORRUPTFS, StorageCorrupt),
    (apsw.SQLITE_CONSTRAINT, None),
    (apsw.SQLITE_MISMATCH, None),
    (apsw.SQLITE_TOOBIG, None),
    (apsw.SQLITE_ERROR, None),
    (apsw.SQLITE_INTERRUPT, None),
]


@pytest.mark.parametrize(("code", "expected"), MEANINGS)
def test_a_code_has_one_meaning(code: int, expected: type[LiteQueueError] | None) -> None:
    """The same from apsw's exception; what may be the caller's own has none."""
    known = result_codes.translate(code, "why", "some.queue")
    assert type(known) is (expected or type(None))
    exc = apsw.exception_for(code)
    assert isinstance(exc, apsw.Error)
    assert type(failures.translate(exc, "some.queue")) is type(known)


def test_an_exception_without_a_code_is_told_by_its_class() -> None:
    """As when apsw, or a test, raises it by itself."""
    assert type(failures.translate(apsw.FullError("full"), "some.queue")) is QueueFull
    assert failures.translate(apsw.ThreadingViolationError("here"), "some.queue") is None


def test_a_missing_table_of_ours_is_another_schema() -> None:
    """One of the caller's own is its own business."""
    missing = result_codes.translate(Code.ERROR, "no such table: litequeue_job", "some.queue")
    assert isinstance(missing, SchemaMismatch)
    assert result_codes.translate(Code.ERROR, "no such table: orders", "some.queue") is None


@pytest.mark.parametrize("code", [Code.CONSTRAINT, Code.MISMATCH, Code.TOOBIG, Code.ERROR])
def test_what_our_own_statements_never_raise_is_damage(code: Code) -> None:
    """And so is what only a value that no queue writes can bring about; other exceptions are what they are."""
    assert isinstance(result_codes.meaning(RuntimeError("odd"), code, "some.queue"), StorageCorrupt)
    assert isinstance(result_codes.meaning(TypeError("odd"), None, "some.queue"), StorageCorrupt)
    interrupt = KeyboardInterrupt()
    assert result_codes.meaning(interrupt, None, "some.queue") is interrupt
