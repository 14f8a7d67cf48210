"""The table of what the caller's own SQL may do inside `transaction()`, action by action (V14)."""

from __future__ import annotations

import apsw
import pytest

from litequeue.sqlite.authority import is_refused

Action = tuple[str, str | None, str | None]
"""SQLite's name of it, and its first two arguments."""

REFUSED: list[Action] = [
    # The end of the transaction behind our back.
    ("TRANSACTION", "BEGIN", None),
    ("TRANSACTION", "COMMIT", None),
    ("TRANSACTION", "ROLLBACK", None),
    ("SAVEPOINT", "BEGIN", "mine"),
    ("SAVEPOINT", "RELEASE", "litequeue_verb"),
    ("SAVEPOINT", "ROLLBACK", "litequeue_verb"),
    # Other files.
    ("ATTACH", ":memory:", None),
    ("ATTACH", None, None),
    ("DETACH", "other", None),
    # Pragmas that set something.
    ("PRAGMA", "synchronous", "OFF"),
    ("PRAGMA", "journal_mode", "DELETE"),
    ("PRAGMA", "writable_schema", "1"),
    ("PRAGMA", "wal_checkpoint", "TRUNCATE"),
    ("PRAGMA", "user_version", "7"),
    ("PRAGMA", "new_one", ""),
    # The queue's own tables.
    ("INSERT", "litequeue_job", None),
    ("INSERT", "LiteQueue_Job", None),
    ("UPDATE", "litequeue_job", "state"),
    ("DELETE", "litequeue_body", None),
    ("DROP_TABLE", "litequeue_meta", None),
    ("ALTER_TABLE", "main", "litequeue_job"),
    ("CREATE_INDEX", "mine", "litequeue_job"),
    ("DROP_INDEX", "litequeue_job_deadline", "litequeue_job"),
    ("CREATE_TRIGGER", "mine", "litequeue_job"),
    ("CREATE_TEMP_TRIGGER", "mine", "litequeue_job"),
    ("CREATE_TRIGGER", "litequeue_mine", "orders"),
    ("CREATE_VIEW", "litequeue_mine", None),
    ("DROP_VIEW", "litequeue_jobs", None),
    ("CREATE_TABLE", "litequeue_mine", None),
    ("CREATE_VTABLE", "litequeue_mine", "fts5"),
    ("REINDEX", "litequeue_job_deadline", None),
    ("ANALYZE", "litequeue_job", None),
]

ALLOWED: list[Action] = [
    # The caller's own tables.
    ("INSERT", "orders", None),
    ("UPDATE", "orders", "mailed"),
    ("UPDATE", "orders", "litequeue_job_id"),
    ("DELETE", "orders", None),
    ("INSERT", "sqlite_master", None),
    ("UPDATE", "sqlite_master", "sql"),
    ("CREATE_TABLE", "orders", None),
    ("CREATE_TABLE", "my_litequeue_notes", None),
    ("CREATE_TABLE", "litequeuenotes", None),
    ("DROP_TABLE", "orders", None),
    ("ALTER_TABLE", "main", "orders"),
    ("CREATE_INDEX", "by_mailed", "orders"),
    ("CREATE_TRIGGER", "mine", "orders"),
    ("CREATE_VIEW", "mine", None),
    ("REINDEX", "by_mailed", None),
    ("ANALYZE", "orders", None),
    # Reading, the queue's tables too.
    ("SELECT", None, None),
    ("READ", "orders", "mailed"),
    ("READ", "litequeue_job", "state"),
    ("READ", "sqlite_sequence", "seq"),
    ("FUNCTION", None, "litequeue_anything"),
    ("RECURSIVE", None, None),
    # Pragmas that only ask.
    ("PRAGMA", "user_version", None),
    ("PRAGMA", "foreign_keys", None),
    ("PRAGMA", "table_info", "orders"),
    ("PRAGMA", "TABLE_INFO", "orders"),
    ("PRAGMA", "table_xinfo", "litequeue_job"),
    ("PRAGMA", "index_list", "orders"),
    ("PRAGMA", "foreign_key_check", "orders"),
    ("PRAGMA", "integrity_check", "1"),
    ("PRAGMA", "quick_check", "orders"),
]


def code(action: str) -> int:
    """Return SQLite's number of an action."""
    found: int = getattr(apsw, f"SQLITE_{action}")
    return found


@pytest.mark.parametrize(("action", "first", "second"), REFUSED)
def test_what_would_end_or_weaken_the_transaction_is_refused(
    action: str, first: str | None, second: str | None
) -> None:
    """Transaction control, ATTACH, pragmas that set, and changes to the queue's own tables (V14)."""
    assert is_refused(code(action), first, second)


@pytest.mark.parametrize(("action", "first", "second"), ALLOWED)
def test_the_callers_own_work_is_allowed(action: str, first: str | None, second: str | None) -> None:
    """Its own tables may live in the file, and reading does no harm (V14)."""
    assert not is_refused(code(action), first, second)
