"""A DB-API connection of SQLite, as the rooms that enqueue see one: with the few words of apsw's that these use.

Invariants: statements run on a cursor of our own, whose rows are plain tuples whatever the connection makes of rows; a
value that is none of SQLite's types has been through a converter, and is refused rather than stored or believed; no
module of a DB-API is imported. Leaves out: transactions (`writing`), and what errors mean (`failures`).
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Protocol, Self, cast

from litequeue.errors import UsageError

Values = Sequence[object]
_PLACE = re.compile(r"\?(\d*)|:(\w+)")
_PLAIN = frozenset({int, float, str, bytes, type(None)})


class Rows(Protocol):
    """A cursor of a DB-API for SQLite."""

    row_factory: object

    @property
    def rowcount(self) -> int:
        """How many rows the last write has changed."""
        ...

    def execute(self, sql: str, parameters: Values, /) -> object:
        """Run one statement."""
        ...

    def executemany(self, sql: str, parameters: Iterable[Values], /) -> object:
        """Run a write for each binding."""
        ...

    def fetchall(self) -> list[tuple[object, ...]]:
        """Return all rows."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class Given(Protocol):
    """A connection of a DB-API for SQLite, such as `sqlite3.Connection`."""

    text_factory: object

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    @property
    def total_changes(self) -> int:
        """How many rows have been changed since the connection was opened."""
        ...

    def cursor(self) -> Rows:
        """Return what runs statements."""
        ...

    def commit(self) -> None:
        """End the transaction."""
        ...

    def rollback(self) -> None:
        """Undo the transaction."""
        ...


class Cursor:
    """Runs our statements on a connection."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        rows.row_factory = None

    def execute(self, statement: str, values: Values = ()) -> Self:
        """Run one statement."""
        sql, order = _in_order(statement)
        self._rows.execute(sql, values if order is None else [values[at] for at in order])
        return self

    def executemany(self, statement: str, many: Iterable[Values]) -> Self:
        """Run a write for each binding."""
        sql, order = _in_order(statement)
        self._rows.executemany(sql, many if order is None else ([values[at] for at in order] for values in many))
        return self

    def fetchall(self) -> list[tuple[object, ...]]:
        """Return all rows.

        Raises:
            UsageError: a converter or a cursor of the application's has been at work on them.
        """
        rows = self._rows.fetchall()
        for row in rows:
            if type(row) is not tuple:
                raise UsageError(
                    f"the cursors of this connection turn rows into {type(row).__name__}: use one that does not"
                )
            for value in row:
                if type(value) not in _PLAIN:
                    raise UsageError(
                        f"this connection turns values of SQLite's own types into {type(value).__name__} "
                        "(detect_types and register_converter): use one that does not"
                    )
        return rows

    @property
    def rowcount(self) -> int:
        """How many rows the last write has changed."""
        return self._rows.rowcount

    def close(self) -> None:
        """Let go of it."""
        self._rows.close()


class Connection:
    """The caller's connection, for the length of one call."""

    __slots__ = ("cursor", "given")

    def __init__(self, given: Given) -> None:
        self.given = given
        self.cursor = Cursor(_own_cursor(given))

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.given.in_transaction

    def execute(self, statement: str, values: Values = ()) -> Cursor:
        """Run one statement."""
        return self.cursor.execute(statement, values)

    def all(self, statement: str, values: Values = ()) -> list[tuple[object, ...]]:
        """Run one statement and return its rows."""
        return self.cursor.execute(statement, values).fetchall()

    def total_changes(self) -> int:
        """Return how many rows have been changed since the connection was opened."""
        return self.given.total_changes

    def changes(self) -> int:
        """Return how many rows the last write has changed."""
        return self.cursor.rowcount

    def rollback(self) -> None:
        """Undo the transaction; where a connection has `autocommit=True`, its own `rollback` does nothing."""
        if getattr(self.given, "autocommit", None) is True:
            self.cursor.execute("ROLLBACK")
        else:
            self.given.rollback()


@contextmanager
def borrowed(given: Given) -> Iterator[Connection]:
    """Use a caller's connection for the length of a `with` block, after which it is as it was.

    What it makes of text belongs to the connection, not to a cursor, so it is set aside for so long; threads that share
    a connection take turns, or one would find what another has set.
    """
    with _turns.of(given):
        text_factory = given.text_factory
        given.text_factory = str
        try:
            connection = Connection(given)
            try:
                yield connection
            finally:
                connection.cursor.close()
        finally:
            given.text_factory = text_factory


class _Turns:
    """A lock for each connection that is in use; connections of `sqlite3` take no weak references."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[int, tuple[threading.RLock, int]] = {}
        """By the identity of a connection, which is alive as long as somebody has or awaits the turn: and how many."""

    @contextmanager
    def of(self, given: Given) -> Iterator[None]:
        """Have a connection for oneself."""
        key = id(given)
        with self._guard:
            lock, users = self._locks.get(key) or (threading.RLock(), 0)
            self._locks[key] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, users = self._locks.pop(key)
                if users > 1:
                    self._locks[key] = lock, users - 1


_turns = _Turns()


def _start_afresh() -> None:
    """Begin anew in a forked child: a thread that it has not may have had a turn."""
    global _turns  # noqa: PLW0603 - there is one
    _turns = _Turns()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)


def _own_cursor(given: Given) -> Rows:
    """Return a cursor as the DB-API makes it, whatever a class derived from its connection does about cursors."""
    makers = [kind for kind in type(given).__mro__ if "cursor" in vars(kind)]
    return cast("Rows", makers[-1].cursor(given)) if makers else given.cursor()  # type: ignore[attr-defined]


@cache
def _in_order(statement: str) -> tuple[str, tuple[int, ...] | None]:
    """Return a statement with nothing but plain places, and which binding belongs in each; `None` is one after another.

    SQLite numbers a named place where it first stands; DB-APIs take bindings by place for plain places only.
    """
    order: list[int] = []
    named: dict[str, int] = {}
    count = 0
    for number, name in _PLACE.findall(statement):
        if number:
            at = int(number) - 1
        elif name:
            at = named.setdefault(name, count)
        else:
            at = count
        count = max(count, at + 1)
        order.append(at)
    if order == list(range(len(order))):
        return _PLACE.sub("?", statement), None
    return _PLACE.sub("?", statement), tuple(order)
