"""What a file should have, told from the text of `schema.sql` alone (DESIGN §2)."""

from __future__ import annotations

import apsw
import pytest

from litequeue.sqlite import tables

VERSIONS = range(1, tables.VERSION + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_told_from_the_text_is_what_sqlite_remembers(version: int) -> None:
    """Of every table, index and view, byte for byte: a file is compared with it at every open (§6)."""
    connection = apsw.Connection(":memory:")
    for statement in tables.statements(version):
        connection.execute(statement).fetchall()
    found = connection.execute(tables.OBJECTS).fetchall()
    assert tables.ours(found) == tables.expected(version)
    assert {thing.sort for thing in tables.expected(version)} == {"table", "index", "view"}
    connection.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_statements_are_the_whole_text(version: int) -> None:
    """Comments between them aside; each is one, so that what takes one at a time makes the tables, too."""
    whole = apsw.Connection(":memory:")
    whole.execute(tables.text(version)).fetchall()
    assert tables.ours(whole.execute(tables.OBJECTS).fetchall()) == tables.expected(version)
    whole.close()
    assert not any(statement.endswith(";") for statement in tables.statements(version))
