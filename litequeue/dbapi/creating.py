"""The queue's tables in a file that an application has made."""

from __future__ import annotations

from litequeue.dbapi import callers, writing
from litequeue.dbapi.engine import Connection
from litequeue.sqlite import tables

_META = "INSERT INTO litequeue_meta (id, schema_version, settings_version) VALUES (1, ?, 1)"
_HOST = "INSERT INTO litequeue_host (id, boot_id, lease_offset) VALUES (1, '', 0)"
"""No boot has this id: the first opening sets the lease clock, as after a boot."""


def create(given: object) -> bool:
    """Make the tables unless they are there; see `litequeue.dbapi.create_tables`."""
    return writing.alone(callers.of(given).connection, _create)


def _create(connection: Connection, path: str) -> bool:
    writing.check_encoding(connection, path)
    if not tables.check_free(path, connection.all(tables.OBJECTS)):
        writing.check_tables(connection, path)
        return False
    for statement in tables.statements():
        connection.execute(statement)
    connection.execute(_META, (tables.VERSION,))
    connection.execute(_HOST)
    return True
