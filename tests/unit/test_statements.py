"""The file of statements: how it is split, and that it and its record are the same (DESIGN §2, STYLE "SQL")."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib import resources

import pytest

from litequeue.sqlite import statements
from litequeue.sqlite.statements import SQL, Statements, parse

FILE = resources.files("litequeue.sqlite").joinpath("statements.sql").read_text(encoding="utf-8")


def test_a_file_is_split_at_its_headings() -> None:
    """Comments and line breaks are left behind, and so is the last semicolon (STYLE "SQL")."""
    text = """\
-- What this file is for.

-- name: one
-- Why it is so.
SELECT a,
       b
FROM t;

-- ## A chapter

-- name: two
SELECT 2
"""
    assert parse(text) == {"one": "SELECT a, b FROM t", "two": "SELECT 2"}


def test_parts_are_put_in_where_they_are_named() -> None:
    """Also into other parts; a part is no statement (STYLE "SQL")."""
    text = """\
-- part: key
a = ? AND b = ?
-- part: where
WHERE <key>
-- name: get
SELECT c FROM t <where>;
-- name: put
UPDATE t SET c = ? <where> AND d < 5 AND e > 6;
"""
    assert parse(text) == {
        "get": "SELECT c FROM t WHERE a = ? AND b = ?",
        "put": "UPDATE t SET c = ? WHERE a = ? AND b = ? AND d < 5 AND e > 6",
    }


@pytest.mark.parametrize("sort", ["name", "part"])
def test_a_name_that_stands_twice_is_refused(sort: str) -> None:
    """The second would silently win (STYLE "SQL")."""
    with pytest.raises(ValueError, match=f"the {sort} a stands twice"):
        parse(f"-- {sort}: a\nSELECT 1;\n-- {sort}: b\nSELECT 2;\n-- {sort}: a\nSELECT 3;\n")


def test_a_part_and_a_statement_may_have_one_name() -> None:
    """They are named in different places (STYLE "SQL")."""
    assert parse("-- part: a\nc\n-- name: a\nSELECT <a>;\n") == {"a": "SELECT c"}


@pytest.mark.parametrize("text", ["-- name: a\nSELECT <b>;\n", "-- name: a\nSELECT <b>;\n-- part: b\nc\n"])
def test_a_part_that_is_not_defined_above_is_refused(text: str) -> None:
    """A typo must not reach the database (STYLE "SQL")."""
    with pytest.raises(ValueError, match="no part is named b"):
        parse(text)


def test_the_record_and_the_file_agree() -> None:
    """Name by name, and text by text (STYLE "SQL")."""
    found = parse(FILE)
    assert {field.name for field in fields(Statements)} == set(found)
    assert {name: getattr(SQL, name) for name in found} == found


@pytest.mark.parametrize(
    "text", [FILE + "\n-- name: extra\nSELECT 1;\n", FILE.replace("-- name: head\n", "-- name: hed\n")]
)
def test_a_file_that_differs_from_the_record_fails_the_import(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """It names what is too much and what is missing (STYLE "SQL")."""
    differing = parse(text)
    monkeypatch.setattr(statements, "parse", lambda _: differing)
    with pytest.raises(ValueError, match=r"differ in \['extra'\]|differ in \['head', 'hed'\]"):
        statements._load()


@pytest.mark.parametrize("field", fields(Statements), ids=lambda field: field.name)
def test_a_statement_is_whole_and_plain(field: object) -> None:
    """One statement, nothing left to put in, no comment that would swallow its end, no `*` (STYLE "SQL")."""
    sql: str = getattr(SQL, getattr(field, "name", ""))
    assert sql.split(maxsplit=1)[0] in {"SELECT", "INSERT", "UPDATE", "DELETE", "WITH"}
    assert ";" not in sql
    assert "--" not in sql
    assert not re.search(r"<\w+>", sql)
    assert not re.search(r"SELECT\s+\*|\.\*", sql)


def test_the_schema_at_the_root_is_the_one_in_the_package(pytestconfig: pytest.Config) -> None:
    """There it is read by people, here by the program (DESIGN §1)."""
    inside = resources.files("litequeue.sqlite").joinpath("schema.sql").read_text(encoding="utf-8")
    assert (pytestconfig.rootpath / "schema.sql").read_text(encoding="utf-8") == inside
