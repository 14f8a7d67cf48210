"""The queue's tables, as `schema.sql` makes them: told from its text alone, for every engine that meets a queue file.

Owns the version and the comparison of what a file has with what it should have. Invariant: SQLite keeps the text of a
statement that makes something as it was given, so what the statements of the file would make is known without making
it. Leaves out: asking a connection (`schema`, `litequeue.dbapi`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import NamedTuple

from litequeue.errors import SchemaMismatch

VERSION = 1
PREFIX = "litequeue_"
OBJECTS = "SELECT type, name, tbl_name, sql FROM main.sqlite_schema"
TEMPORARY = "SELECT name, tbl_name FROM sqlite_temp_schema"

_MADE = re.compile(r"CREATE (?:UNIQUE )?(TABLE|INDEX|VIEW) (\w+)(?: ON (\w+))?")
_BETWEEN = re.compile(r"(?:\s+|--[^\n]*\n)*")
_STATEMENT = re.compile(r"(?:[^;'-]|'[^']*'|--[^\n]*\n|-)+;")


class Thing(NamedTuple):
    """A table, index, trigger or view, as SQLite remembers it."""

    sort: str
    name: str
    table: str
    sql: str


def text() -> str:
    """Return the statements that make the tables, as they stand in `schema.sql`."""
    return resources.files(__package__).joinpath("schema.sql").read_text(encoding="utf-8")


def statements() -> list[str]:
    """Return them one by one, in order, without what stands between them."""
    whole = text()
    found: list[str] = []
    at = _BETWEEN.match(whole, 0)
    while at is not None and at.end() < len(whole):
        statement = _STATEMENT.match(whole, at.end())
        if statement is None:
            raise ValueError(f"schema.sql has no whole statement at {whole[at.end() :][:40]!r}")
        found.append(statement[0].removesuffix(";"))
        at = _BETWEEN.match(whole, statement.end())
    return found


def check(path: str, versions: Iterable[tuple[object, ...]], objects: Iterable[tuple[object, ...]]) -> None:
    """Hold what a file has against what this version makes: the rows of its version, and those of `OBJECTS`.

    Raises:
        SchemaMismatch: another version, or tables, indexes, triggers or views that differ.
    """
    version = next((row[0] for row in versions), None)
    if version != VERSION:
        raise SchemaMismatch(path, f"schema version {version}", f"version {VERSION}")
    found = ours(objects)
    expected = _expected()
    if found != expected:
        different = {thing.name for thing in found ^ expected}
        missing = {thing.name for thing in expected} - {thing.name for thing in found}
        added = {thing.name for thing in found} - {thing.name for thing in expected}
        parts = (
            ("without", missing),
            ("with an unknown", added),
            ("with a changed", different - missing - added),
        )
        said = "; ".join(f"{word} {', '.join(sorted(names))}" for word, names in parts if names)
        raise SchemaMismatch(path, f"queue tables {said}", f"those of version {VERSION}")


def check_not_shadowed(path: str, temporary: Iterable[tuple[object, ...]]) -> None:
    """Refuse temporary tables by the names of the queue's, which would take what is written to those; and triggers.

    Raises:
        SchemaMismatch: there is one among the rows of `TEMPORARY`.
    """
    found = [(str(name), str(table).lower()) for name, table in temporary]
    shadows = sorted(name for name, _ in found if name.lower().startswith(PREFIX))
    if shadows:
        raise SchemaMismatch(path, f"temporary tables named {', '.join(shadows)}", "none of these names")
    triggers = sorted(name for name, table in found if table.startswith(PREFIX))
    if triggers:
        raise SchemaMismatch(path, f"temporary triggers on the queue's tables: {', '.join(triggers)}", "none on them")


def ours(objects: Iterable[tuple[object, ...]]) -> frozenset[Thing]:
    """Return what belongs to the queue, or to one of its tables, of the rows of `OBJECTS`."""
    things = [Thing(str(sort), str(name), str(table), str(sql)) for sort, name, table, sql in objects]
    return frozenset(
        thing for thing in things if thing.name.lower().startswith(PREFIX) or thing.table.lower().startswith(PREFIX)
    )


@cache
def _expected() -> frozenset[Thing]:
    return frozenset(_made(statement) for statement in statements())


def _made(statement: str) -> Thing:
    """Return what SQLite remembers of a statement that makes something."""
    match = _MADE.match(statement)
    if match is None:
        raise ValueError(f"schema.sql makes something else than tables, indexes and views: {statement[:40]!r}")
    sort, name, table = match.groups()
    return Thing(sort.lower(), name, table or name, statement)
