"""What a user might write whose application has its own connection: `litequeue.dbapi`, without a second SQLite."""

from __future__ import annotations

import sqlite3
import sys
from uuid import UUID

import litequeue.dbapi
from litequeue import Enqueued, NewJob


def place(connection: sqlite3.Connection, number: int) -> UUID:
    """Commit an order with its jobs."""
    connection.execute("INSERT INTO orders VALUES (?)", (number,))
    receipt: Enqueued = litequeue.dbapi.enqueue(connection, "mail:receipt", {"order": number}, priority=5)
    litequeue.dbapi.enqueue_many(connection, [NewJob("order:ship", number)])
    connection.commit()
    litequeue.dbapi.ring(connection)
    return receipt.job_id


if __name__ == "__main__":
    opened = sqlite3.connect(sys.argv[1], isolation_level="IMMEDIATE")
    opened.execute("PRAGMA journal_mode = WAL")
    opened.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    assert litequeue.dbapi.create_tables(opened)
    place(opened, 7)
    opened.close()
    loaded = sorted(name for name in sys.modules if name.partition(".")[0] in {"apsw", "sqlalchemy", "django", "click"})
    assert not loaded, loaded
