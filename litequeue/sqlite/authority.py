"""What the caller's own SQL may not do inside `transaction()` (V14).

Invariant: transaction control, ATTACH, and pragmas that set something are refused, for they would end or weaken the
transaction behind our back; so is every write to the queue's own tables.
"""

from __future__ import annotations

import apsw

_FORBIDDEN = frozenset({apsw.SQLITE_TRANSACTION, apsw.SQLITE_SAVEPOINT, apsw.SQLITE_ATTACH, apsw.SQLITE_DETACH})
_READS = frozenset({apsw.SQLITE_READ, apsw.SQLITE_SELECT, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE})
_ASKING_PRAGMAS = frozenset(
    [
        "foreign_key_check",
        "foreign_key_list",
        "index_info",
        "index_list",
        "index_xinfo",
        "integrity_check",
        "quick_check",
        "table_info",
        "table_list",
        "table_xinfo",
    ]
)
_OURS = "litequeue_"


def is_refused(action: int, first: str | None, second: str | None) -> bool:
    """Tell whether the caller's statement must not be prepared; the arguments are those of SQLite's authorizer.

    Source: sqlite.org, "Authorizer Action Codes".
    """
    if action in _FORBIDDEN:
        return True
    if action == apsw.SQLITE_PRAGMA:
        return second is not None and (first or "").lower() not in _ASKING_PRAGMAS
    if action in _READS:
        return False
    if action == apsw.SQLITE_UPDATE:
        second = None  # a column of the caller's own table may have any name
    names = [name.lower() for name in (first, second) if name is not None]
    return any(name.startswith(_OURS) for name in names)
