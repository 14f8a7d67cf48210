"""The caller's own SQL inside a transaction of the queue (V14): what it may do, and what it is told when it may not.

Owns the authorizer of the connection that writes. Invariant: only the caller's statements are asked about, and none of
them comes out of the statement cache: what is cached is not asked about again (DESIGN §3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import apsw

from litequeue.sqlite import authority, schema
from litequeue.sqlite.rows import Values

SQLValue = None | int | float | str | bytes
Parameters = Sequence[SQLValue] | Mapping[str, SQLValue]


class Guard:
    """Lets the caller's statements do what they may."""

    __slots__ = ("_has_altered", "_is_guarding")

    def __init__(self) -> None:
        self._is_guarding = False
        self._has_altered = False

    def run(self, connection: apsw.Connection, sql: str, parameters: Parameters, path: str) -> list[Values]:
        """Run the caller's own statements: no transaction control, no ATTACH, nothing on the queue's tables.

        Raises:
            SchemaMismatch: a table was renamed to what the queue's are called, which SQLite does not say beforehand.
            apsw.Error: see `Transaction.execute`.
        """
        self._is_guarding = True
        self._has_altered = False
        try:
            rows = connection.execute(sql, parameters, can_cache=False).fetchall()
        finally:
            self._is_guarding = False
        if self._has_altered:
            schema.check(connection, path)
            schema.check_not_shadowed(connection, path)
        return cast("list[Values]", rows)

    def authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """Say whether a statement may be prepared."""
        if self._is_guarding:
            self._has_altered |= action == apsw.SQLITE_ALTER_TABLE
            if authority.is_refused(action, first, second):
                return apsw.SQLITE_DENY
        return apsw.SQLITE_OK
