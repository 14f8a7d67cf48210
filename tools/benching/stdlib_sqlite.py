"""What is done to a live `sqlite3` connection of another library: read its settings back, and multiply a row of its.

Invariants: the settings come from the connection that the library itself works with; a row that is multiplied was
written by the library, so that a file with a million rows is one that it could have made, only sooner.
For the peers' environment: our own package never meets `sqlite3`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

FILLER = b"x" * 100
"""The payload of rows that only lie there."""

Ask = Callable[[str], object]
"""Runs a query on the live connection and returns the first column of its first row."""


def asker(connection: sqlite3.Connection) -> Ask:
    """Return how to ask `connection`."""

    def ask(query: str) -> object:
        return connection.execute(query).fetchone()[0]

    return ask


def read_back(ask: Ask) -> dict[str, object]:
    """Return the settings that the figures depend on."""
    return {
        "page_size": ask("PRAGMA page_size"),
        "journal_mode": ask("PRAGMA journal_mode"),
        "synchronous": ask("PRAGMA synchronous"),
        "sqlite": ask("SELECT sqlite_version()"),
    }


def multiply(connection: sqlite3.Connection, table: str, n: int, **changed: str) -> None:
    """Add `n` copies of the newest row of `table`, in one transaction.

    `changed` gives SQL for the columns that differ: `i` counts the copies from 1, every other name is the row's.
    """
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    with connection:
        connection.execute(multiplying(columns, table, changed), (n,))


def multiplying(columns: list[str], table: str, changed: dict[str, str]) -> str:
    """Return the statement behind `multiply`; it takes the number of copies."""
    values = ", ".join(changed.get(column, f'"{column}"') for column in columns)
    names = ", ".join(f'"{column}"' for column in columns)
    return (
        f"INSERT INTO {table} ({names}) "  # noqa: S608 - names of our own adapters
        "WITH RECURSIVE counted (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM counted LIMIT ?), "
        f"model AS (SELECT * FROM {table} ORDER BY rowid DESC LIMIT 1) "
        f"SELECT {values} FROM model, counted"
    )
