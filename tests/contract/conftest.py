"""What the tests of attached connections have: an application with a database and a connection of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litequeue import Attached
    from litequeue.testing import FakeClock


@pytest.fixture
def app(tmp_path: Path) -> Iterator[apsw.Connection]:
    """Give the application's connection; its database, with a table of orders, is where `make_queue` opens handles."""
    connection = apsw.Connection(str(tmp_path / "queue.db"))
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, mailed INTEGER NOT NULL DEFAULT 0)")
    yield connection
    connection.close()


@pytest.fixture
def attached(app: apsw.Connection, clock: FakeClock) -> Iterator[Attached]:
    """Give the verbs on the application's connection, by the test's clock."""
    with litequeue.attach(app, clock=clock) as q:
        yield q
