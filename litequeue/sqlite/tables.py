"""The queue's tables, as `schema.sql` makes them: told from its text alone, for every engine that meets a queue file.

Owns the versions and the comparison of what a file has with what it should have. Invariant: SQLite keeps the text of a
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

VERSION = 2
"""What `schema.sql` is; those before it are kept in `earlier`, by their numbers."""
PREFIX = "litequeue_"
OBJECTS = "SELECT type, name, tbl_name, sql FROM main.sqlite_schema"
TEMPORARY = "SELECT name, tbl_name FROM sqlite_temp_schema"

_FIRST = 1
_MADE = re.compile(r"CREATE (?:UNIQUE )?(TABLE|INDEX|VIEW) (\w+)(?: ON (\w+))?")
_BETWEEN = re.compile(r"(?:\s+|--[^\n]*\n)*")
_STATEMENT = re.compile(r"(?:[^;'-]|'[^']*'|--[^\n]*\n|-)+;")


class Thing(NamedTuple):
    """A table, index, trigger or view, as SQLite remembers it."""

    sort: str
    name: str
    table: str
    sql: str


class EarlierVersion(SchemaMismatch):
    """The tables are whole, and those of a version that `litequeue.open` moves forward."""


def text(version: int | None = None) -> str:
    """Return the statements that make the tables of a version, this one unless it is named, as they stand in a file."""
    name = "schema.sql" if version in (None, VERSION) else f"earlier/{version}.sql"
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def statements(version: int | None = None) -> list[str]:
    """Return them one by one, in order, without what stands between them."""
    whole = text(version)
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
        EarlierVersion: it is an earlier version, and whole.
        SchemaMismatch: another version, or tables, indexes, triggers or views that differ.
    """
    version = version_of(path, versions)
    check_objects(path, version, objects)
    refuse_earlier(path, version)


def version_of(path: str, versions: Iterable[tuple[object, ...]]) -> int:
    """Return the version that the rows of a file's version name.

    Raises:
        SchemaMismatch: a newer or unknown one.
    """
    version = next((row[0] for row in versions), None)
    if not isinstance(version, int) or not _FIRST <= version <= VERSION:
        raise SchemaMismatch(path, f"schema version {version}", f"version {VERSION}")
    return version


def refuse_earlier(path: str, version: int) -> None:
    """Refuse a version that has to be moved forward first.

    Raises:
        EarlierVersion: it is one.
    """
    if version != VERSION:
        wanted = f"version {VERSION}, to which `litequeue.open` moves it"
        raise EarlierVersion(path, f"schema version {version}", wanted)


def check_objects(path: str, version: int, objects: Iterable[tuple[object, ...]]) -> None:
    """Hold what a file has against what its version makes: the rows of `OBJECTS`.

    Raises:
        SchemaMismatch: tables, indexes, triggers or views that differ.
    """
    found = ours(objects)
    wanted = expected(version)
    if found != wanted:
        different = {thing.name for thing in found ^ wanted}
        missing = {thing.name for thing in wanted} - {thing.name for thing in found}
        added = {thing.name for thing in found} - {thing.name for thing in wanted}
        parts = (
            ("without", missing),
            ("with an unknown", added),
            ("with a changed", different - missing - added),
        )
        said = "; ".join(f"{word} {', '.join(sorted(names))}" for word, names in parts if names)
        raise SchemaMismatch(path, f"queue tables {said}", f"those of version {version}")


def check_free(path: str, objects: Iterable[tuple[object, ...]]) -> bool:
    """Tell whether the queue's tables are not there, nor anything else of their names, of the rows of `OBJECTS`.

    Raises:
        SchemaMismatch: other things have such names.
    """
    names = {thing.name for thing in ours(objects)}
    if names and f"{PREFIX}meta" not in names:
        raise SchemaMismatch(path, f"no queue, and {', '.join(sorted(names))}", f"nothing named {PREFIX}…")
    return not names


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
def expected(version: int) -> frozenset[Thing]:
    """Return what a file of a version has."""
    return frozenset(_made(statement) for statement in statements(version))


def _made(statement: str) -> Thing:
    """Return what SQLite remembers of a statement that makes something."""
    match = _MADE.match(statement)
    if match is None:
        raise ValueError(f"schema.sql makes something else than tables, indexes and views: {statement[:40]!r}")
    sort, name, table = match.groups()
    return Thing(sort.lower(), name, table or name, statement)
