"""apsw's errors in the words of `litequeue.errors`, in this one place.

Invariant: an error that comes from the caller's own SQL (a constraint, a typo) is not translated; it is the caller's.
Leaves out: what SQLite's codes mean (`result_codes`).
"""

from __future__ import annotations

import apsw

from litequeue.errors import LiteQueueError
from litequeue.sqlite import result_codes
from litequeue.sqlite.result_codes import Code

_CODE_OF = {type(apsw.exception_for(code)): code for code in Code}


def translate(exc: apsw.Error, path: str) -> LiteQueueError | None:
    """Return the error to raise instead, or `None` when this one is not about the storage."""
    return result_codes.translate(_code(exc), str(exc), path)


def meaning(exc: BaseException, path: str) -> BaseException:
    """Return what an exception out of our own statements and records means: where no caller's SQL has part in it."""
    return result_codes.meaning(exc, _code(exc) if isinstance(exc, apsw.Error) else None, path)


def _code(exc: apsw.Error) -> int:
    """Return SQLite's extended result code, 0 for what apsw itself has found."""
    return getattr(exc, "extendedresult", _CODE_OF.get(type(exc), 0))
