"""The state of a queue file, and which jobs are in it.

Owns what "the same state" means after a power loss: every row of every table, the caller's own included, and the
schema. Leaves out what lies beneath (pages, free lists, the log), and whether a state keeps the queue's own rules
(`litequeue.sqlite.examining`).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, cast

import msgpack

if TYPE_CHECKING:
    import apsw


def digest(connection: apsw.Connection) -> bytes:
    """Return a digest of all that is committed; equal for equal states only."""
    things = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").fetchall()
    hashed = hashlib.blake2b(msgpack.packb(things), digest_size=16)
    for sort, name, _, _ in things:
        if sort == "table":
            rows = connection.execute(f'SELECT * FROM "{name}" NOT INDEXED').fetchall()  # noqa: S608 - its own tables
            hashed.update(msgpack.packb((name, rows)))
    return hashed.digest()


NOTHING_YET: Final = hashlib.blake2b(msgpack.packb([]), digest_size=16).digest()
"""The digest of a database without any table."""


def job_ids(connection: apsw.Connection) -> list[bytes]:
    """Return the ids of all jobs."""
    return [cast("bytes", row[0]) for row in connection.execute("SELECT job_id FROM litequeue_job").fetchall()]
