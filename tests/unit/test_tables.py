"""What a file should have, told from the text of `schema.sql` alone (DESIGN §2)."""

from __future__ import annotations

import apsw

from litequeue.sqlite import tables


def test_what_is_told_from_the_text_is_what_sqlite_remembers() -> None:
    """Of every table, index and view, byte for byte: a file is compared with it at every open (§6)."""
    connection = apsw.Connection(":memory:")
    for statement in tables.statements():
        connection.execute(statement).fetchall()
    found = connection.execute(tables.OBJECTS).fetchall()
    assert tables.ours(found) == tables._expected()
    assert {thing.sort for thing in tables._expected()} == {"table", "index", "view"}
    connection.close()


def test_the_statements_are_the_whole_text() -> None:
    """Comments between them aside; each is one, so that what takes one at a time makes the tables, too."""
    whole = apsw.Connection(":memory:")
    whole.execute(tables.text()).fetchall()
    assert tables.ours(whole.execute(tables.OBJECTS).fetchall()) == tables._expected()
    whole.close()
    assert not any(statement.endswith(";") for statement in tables.statements())
