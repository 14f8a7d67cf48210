"""One verb among others in a transaction: what it raises undoes it and leaves the others alone (contract G11)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import apsw

from litequeue.sqlite.connection import bare_cursor
from litequeue.sqlite.context import Context

T = TypeVar("T")


def in_savepoint(context: Context, work: Callable[[Context], T]) -> T:
    """Do a verb's work under a savepoint.

    Raises: what the work raises. Then nothing of it is left, or there is no transaction any more: SQLite itself gives
        one up when the disk is full or fails, and by `ON CONFLICT ROLLBACK`.
    """
    marks = context.marks()
    context.cursor.execute("SAVEPOINT litequeue_verb")
    try:
        result = work(context)
    except BaseException:
        context.back_to(marks)
        _undo(context.connection)
        raise
    context.cursor.execute("RELEASE litequeue_verb")
    return result


def _undo(connection: apsw.Connection) -> None:
    """Go back to the savepoint; a damaged file may not let the transaction live."""
    if not connection.in_transaction:
        return
    cursor = bare_cursor(connection)
    try:
        cursor.execute("ROLLBACK TO litequeue_verb")
        cursor.execute("RELEASE litequeue_verb")
    except apsw.Error:
        with contextlib.suppress(apsw.Error):  # it may be over by now
            cursor.execute("ROLLBACK")
