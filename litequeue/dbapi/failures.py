"""A DB-API's errors in the words of `litequeue.errors`; what SQLite's codes mean is in `sqlite.result_codes`.

Invariant: an error is told by the code that SQLite gave it; one of the module itself, such as that of a connection that
is closed or belongs to another thread, is the caller's mistake.
"""

from __future__ import annotations

from litequeue.dbapi.engine import Given
from litequeue.errors import StorageLost, UsageError
from litequeue.sqlite import result_codes
from litequeue.sqlite.result_codes import Code


def code_of(exc: BaseException) -> int | None:
    """Return SQLite's extended result code; `None` for what SQLite has not said."""
    code = getattr(exc, "sqlite_errorcode", None)
    return code if isinstance(code, int) else None


def is_busy(exc: BaseException) -> bool:
    """Tell whether a lock was not had."""
    code = code_of(exc)
    return code is not None and code & 0xFF in (Code.BUSY, Code.LOCKED, Code.PROTOCOL)


def meaning(exc: BaseException, given: Given, path: str, undone: str) -> BaseException:
    """Return what an exception out of our own statements on a connection means; `undone` is how far back it has led."""
    code = code_of(exc)
    misuse = getattr(given, "ProgrammingError", None)  # DB-APIs give their errors to their connections
    if code is None and isinstance(misuse, type) and isinstance(exc, misuse):
        return UsageError(f"the connection cannot be used here: {exc}")
    if isinstance(exc, FileNotFoundError):  # renamed or removed since it was looked at
        return StorageLost(f"{path} was moved or removed underneath")
    return result_codes.meaning(exc, code, path, undone)
