"""The floor: a queue written by hand on apsw, as fast as such code can be.

One narrow table in the order of leasing, the payload in the row, no other index, no events, no fencing, no limits, no
gate; one connection, one thread. It shares with ours what is no feature: page size, autocheckpoint, write-ahead log,
`synchronous`, and finished jobs that stay in the table.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import apsw

from benching.subject import Unsupported

Key = tuple[int, int, bytes, bytes]
"""Priority, creation, id, payload."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS job (
    scope TEXT NOT NULL,
    state INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    id BLOB NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (scope, state, priority, created_at, id)
) WITHOUT ROWID, STRICT
"""
_INSERT = "INSERT INTO job VALUES (?, 0, 100, ?, ?, ?)"
_HEAD = (
    "SELECT priority, created_at, id, payload FROM job WHERE scope = 'default' AND state = 0"
    " ORDER BY priority, created_at, id LIMIT ?"
)
_LEASE = "UPDATE job SET state = 1 WHERE scope = 'default' AND state = 0 AND priority = ? AND created_at = ? AND id = ?"
_COMPLETE = (
    "UPDATE job SET state = 2 WHERE scope = 'default' AND state = 1 AND priority = ? AND created_at = ? AND id = ?"
)
_LOOK = "SELECT payload FROM job WHERE scope = 'default' AND state = 0 AND priority = 100 AND created_at = ? AND id = ?"
_CHECKPOINT_PAGES = 4000
_BUSY_MS = 10_000
_FILL_STEP = 5_000


class Subject:
    """The bare queue."""

    name = "bare"

    def __init__(self) -> None:
        self._last: tuple[int, bytes] = (0, b"")

    def open(self, folder: str, durability: str) -> None:
        """Open the file, with as little as is needed."""
        self._connect(Path(folder, "bare.db"), durability)
        self._execute(_SCHEMA)

    def _connect(self, path: Path, durability: str) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.set_busy_timeout(_BUSY_MS)
        self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # or a rebound statement is prepared again
        synchronous = "FULL" if durability == "full" else "NORMAL"
        for setting in (
            "page_size = 2048",
            "journal_mode = WAL",
            f"synchronous = {synchronous}",
            f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
        ):
            self._connection.execute(f"PRAGMA {setting}").fetchall()
        cursor = self._connection.cursor()
        self._execute = cursor.execute
        self._executemany = cursor.executemany

    def pragmas(self) -> dict[str, object]:
        """Ask the connection that did the work."""
        asked = ("page_size", "journal_mode", "synchronous")
        told = {name: self._connection.execute(f"PRAGMA {name}").fetchall()[0][0] for name in asked}
        return {**told, "sqlite": apsw.sqlite_lib_version()}

    def enqueue(self, payload: bytes) -> None:
        """Insert a row."""
        execute = self._execute
        self._last = now, job_id = time.time_ns() // 1000, os.urandom(16)
        execute("BEGIN IMMEDIATE")
        execute(_INSERT, ("default", now, job_id, payload))
        execute("COMMIT")

    def enqueue_many(self, payloads: Sequence[bytes]) -> None:
        """Insert rows in one transaction."""
        self._insert("default", payloads)

    def lease(self) -> object | None:
        """Take the head and move it by its key."""
        execute = self._execute
        execute("BEGIN IMMEDIATE")
        row = execute(_HEAD, (1,)).fetchone()
        if row is not None:
            execute(_LEASE, row[:3])
        execute("COMMIT")
        return cast("object", row)

    def complete(self, token: object) -> None:
        """Move the row by its key."""
        execute = self._execute
        execute("BEGIN IMMEDIATE")
        execute(_COMPLETE, cast("Key", token)[:3])
        execute("COMMIT")

    def lease_many(self, n: int) -> list[object]:
        """Take a run of the head and move it in one transaction."""
        execute = self._execute
        execute("BEGIN IMMEDIATE")
        rows = execute(_HEAD, (n,)).fetchall()
        self._executemany(_LEASE, [row[:3] for row in rows])
        execute("COMMIT")
        return cast("list[object]", rows)

    def complete_many(self, tokens: list[object]) -> None:
        """Move the rows in one transaction."""
        self._execute("BEGIN IMMEDIATE")
        self._executemany(_COMPLETE, [cast("Key", token)[:3] for token in tokens])
        self._execute("COMMIT")

    def payload_id(self, token: object) -> bytes:
        """Return what the lease has read."""
        return cast("Key", token)[3]

    def fill(self, sort: str, n: int) -> None:
        """Put rows in of the sorts that this table knows."""
        if sort not in ("completed", "leased", "other-scope", "own-backlog"):
            raise Unsupported(f"there is no {sort} job in so narrow a table")
        for start in range(0, n, _FILL_STEP):
            payloads = [b"fill %d" % number for number in range(start, min(start + _FILL_STEP, n))]
            self._insert("elsewhere" if sort == "other-scope" else "default", payloads)
            if sort in ("completed", "leased"):
                tokens = self.lease_many(_FILL_STEP)
                if sort == "completed":
                    self.complete_many(tokens)

    def look(self) -> None:
        """Read one row by its key."""
        self._execute(_LOOK, self._last).fetchone()

    def wait(self, timeout: float) -> bool:  # noqa: ARG002 - the interface
        """Nothing tells it."""
        raise Unsupported("nothing tells it of work")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _insert(self, scope: str, payloads: Sequence[bytes]) -> None:
        first, token = time.time_ns() // 1000, os.urandom(8)
        rows = zip(
            itertools.repeat(scope),
            range(first, first + len(payloads)),
            [token + number.to_bytes(8) for number in range(len(payloads))],
            payloads,
            strict=False,
        )
        self._execute("BEGIN IMMEDIATE")
        self._executemany(_INSERT, rows)
        self._execute("COMMIT")
