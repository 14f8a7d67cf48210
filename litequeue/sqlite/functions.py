"""SQLite's functions that the queue's statements call, on a connection of the application's.

Invariant: a connection on which one of them is the application's own is refused, as its answers would be stored and
believed. Leaves out: whose connection it is (`hosting`, `litequeue.dbapi`).
"""

from __future__ import annotations

from collections.abc import Iterable

from litequeue.errors import UsageError

FUNCTIONS = frozenset({"coalesce", "count", "instr", "json_each", "length", "max", "min", "row_number", "sum"})
"""Those that are called, in lower case."""
OWN = "SELECT DISTINCT name FROM pragma_function_list WHERE builtin = 0"


def check(connection: object, own: Iterable[tuple[object, ...]]) -> None:
    """Refuse a connection for what `OWN` has found on it.

    Raises:
        UsageError: there are functions of the application's by names of those that are called.
    """
    shadowed = sorted(FUNCTIONS & {str(name).lower() for (name,) in own})
    if shadowed:
        bounds = f"one that leaves SQLite's functions as they are (not {', '.join(shadowed)}, which the queue calls)"
        raise UsageError.of("connection", connection, bounds)
