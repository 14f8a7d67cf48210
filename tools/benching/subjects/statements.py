"""This package's own statements on its own tables, and nothing else: what a verb costs where Python costs nothing.

No gate, no checks, no settings, no looks at the file, no codec, one thread. What this takes longer than `bare` is the
price of the tables (the payload apart, the indexes, the audit trail); what ours takes longer than this is the package's
Python and what it asks the system.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import litequeue
from benching.subject import Unsupported
from benching.subjects import bare
from litequeue.sqlite.statements import SQL

_SCOPE, _WORKER, _EVENT = "default", "worker", b"\x92\xcf" + bytes(9)
_FAR = 10**16
_GENERATION = 9
"""The place of the lease generation in a row; the payload comes last."""

Row = tuple[Any, ...]


class Subject(bare.Subject):
    """The statements."""

    name = "statements"

    def open(self, folder: str, durability: str) -> None:
        """Let the package make the file, and open it without the package."""
        path = Path(folder, "app.queue")
        litequeue.open(path).close()
        self._connect(path, durability)

    def enqueue(self, payload: bytes) -> None:
        """Look at the end of the line, and add a job and its body."""
        execute = self._execute
        execute("BEGIN IMMEDIATE")
        last = cast("list[Row]", execute(SQL.tail, (_SCOPE, 100)).fetchall())
        now = max(time.time_ns() // 1000, last[0][0] + 1 if last else 0)
        job_id = now.to_bytes(8) + os.urandom(8)  # rising, as those of the package
        execute(SQL.job_add, (_SCOPE, 0, 100, now, job_id, "work", None, None, None, None, _EVENT))
        execute(SQL.body_add, (job_id, _SCOPE, 100, now, payload))
        execute("COMMIT")

    def enqueue_many(self, payloads: Sequence[bytes]) -> None:
        """Add many in one transaction; their ids rise, as those of the package do."""
        now, token = time.time_ns() // 1000, os.urandom(8)
        ids = [token + number.to_bytes(8) for number in range(len(payloads))]
        rows = [
            (_SCOPE, 0, 100, now + number, job_id, "work", None, None, None, None, _EVENT)
            for number, job_id in enumerate(ids)
        ]
        bodies = [
            (job_id, _SCOPE, 100, now + number, payload)
            for number, (job_id, payload) in enumerate(zip(ids, payloads, strict=True))
        ]
        self._execute("BEGIN IMMEDIATE")
        self._executemany(SQL.job_add, rows)
        self._executemany(SQL.body_add, bodies)
        self._execute("COMMIT")

    def lease(self) -> object | None:
        """Lease the head."""
        leased = self.lease_many(1)
        return leased[0] if leased else None

    def complete(self, token: object) -> None:
        """Complete it."""
        self.complete_many([token])

    def lease_many(self, n: int) -> list[object]:
        """Read the heads, and move each by its key."""
        self._execute("BEGIN IMMEDIATE")
        rows = cast("list[Row]", self._execute(SQL.heads, (_SCOPE, n)).fetchall())
        taken = (_WORKER, 1, 1, _FAR, _EVENT, _SCOPE)
        self._executemany(SQL.lease, [(*taken, *row[2:5], row[_GENERATION]) for row in rows])
        self._execute("COMMIT")
        return cast("list[object]", rows)

    def complete_many(self, tokens: list[object]) -> None:
        """Find each by its fence, and move it."""
        rows = cast("list[Row]", tokens)
        fences = [(_SCOPE, *row[2:5], _WORKER, row[_GENERATION] + 1) for row in rows]
        self._execute("BEGIN IMMEDIATE")
        held = cast("list[Row]", list(self._executemany(SQL.held_to_complete, fences)))
        done = (2, 1, 0, None, None, _FAR, _EVENT)
        self._executemany(SQL.move, [(*done, *row[:5], _WORKER, row[_GENERATION]) for row in held])
        self._execute("COMMIT")

    def payload_id(self, token: object) -> bytes:
        """Return what the lease has read."""
        return cast("bytes", cast("Row", token)[-1])

    def fill(self, sort: str, n: int) -> None:
        """Leave the rows beside to the package."""
        raise Unsupported(f"the package itself is measured beside {n} rows ({sort})")

    def look(self) -> None:
        """Leave reads to the package."""
        raise Unsupported("the package itself is measured")
