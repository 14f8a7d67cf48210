"""persist-queue: `SQLiteAckQueue`, its queue with acknowledgement, pickling as by default.

Has no setting for durability: WAL at SQLite's own FULL, read back from `_putter`, the connection that it writes with.
One thread needs one connection, so `multithreading` stays off. `auto_resume` is off: it would give the jobs of other
processes to the one that opens the file. Jobs are named by their id (`raw`), which spares it the search for the item.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TypedDict

from persistqueue import Empty, SQLiteAckQueue

from benching import stdlib_sqlite
from benching.polling import Polled
from benching.subject import Unsupported


class Item(TypedDict):
    """What a raw `get` returns."""

    pqid: int
    data: bytes
    timestamp: float


class Subject(Polled[Item]):
    """`SQLiteAckQueue` on one file."""

    name = "persist-queue"
    distribution = "persist-queue"
    delivery = "at least once"
    durabilities = ("full",)

    def open(self, folder: str, durability: str) -> None:
        """Open it, always at FULL."""
        super().__init__()
        self._folder = folder
        self._queue = self._named("work")

    def _named(self, name: str) -> SQLiteAckQueue:
        return SQLiteAckQueue(self._folder, name=name, auto_resume=False)

    @property
    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection = self._queue._putter  # noqa: SLF001 - it has no public name
        return connection

    def pragmas(self) -> dict[str, object]:
        """Read back from the connection that it writes with."""
        return stdlib_sqlite.read_back(stdlib_sqlite.asker(self._connection))

    def enqueue(self, payload: bytes) -> None:
        """Put one."""
        self._queue.put(payload)

    def enqueue_many(self, payloads: Sequence[bytes]) -> None:
        """Have no batch: every put commits."""
        raise Unsupported("no batch")

    def take(self) -> Item | None:
        """Get one, which stays until it is acknowledged."""
        try:
            item: Item = self._queue.get(block=False, raw=True)
        except Empty:
            return None
        return item

    def wait_and_take(self, timeout: float) -> Item | None:
        """Get one by its own wait, which looks when this process puts, every 10 s, and at the end."""
        try:
            item: Item = self._queue.get(timeout=timeout, raw=True)
        except Empty:
            return None
        return item

    def complete(self, token: Item) -> None:
        """Acknowledge."""
        self._queue.ack(token)

    def lease_many(self, n: int) -> list[Item]:
        """Have no batch."""
        raise Unsupported("no batch")

    def complete_many(self, tokens: list[Item]) -> None:
        """Have no batch."""
        raise Unsupported("no batch")

    def payload_id(self, token: Item) -> bytes:
        """Return the item."""
        return token["data"]

    def unfinished(self) -> int:
        """Count the jobs that are to be done or in work."""
        asked = "SELECT count(*) FROM ack_queue_work WHERE status < 5"  # its own counts are this handle's only
        return int(str(stdlib_sqlite.asker(self._connection)(asked)))

    def fill(self, sort: str, n: int) -> None:
        """Put rows in; it knows no delays and no keys."""
        if n == 0:
            return
        if sort not in {"completed", "dead", "leased", "own-backlog", "other-scope"}:
            raise Unsupported(f"no rows of the sort {sort!r}")
        scope = "other" if sort == "other-scope" else "work"
        queue = self._named(scope)
        queue.put(stdlib_sqlite.FILLER)
        if sort in {"completed", "dead", "leased"}:
            item = queue.get(block=False, raw=True)
            if sort == "completed":
                queue.ack(item)
            elif sort == "dead":
                queue.ack_failed(item)
        queue.close()
        stdlib_sqlite.multiply(self._connection, f"ack_queue_{scope}", n - 1, _id="NULL")

    def close(self) -> None:
        """Close its connections."""
        self._queue.close()
