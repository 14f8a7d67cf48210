"""litequeue (litements): `LiteQueue`, the package on PyPI that has our import name, hence never in our environment.

Pins `synchronous=NORMAL` on its write connection, `conn`, which is where the settings are read back from. A batch is
puts inside its documented `transaction()`; `pop` opens a transaction itself, so there is no batch of leases. The busy
timeout is 10 s, where it has sqlite3's 5.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from benching import stdlib_sqlite
from benching.subject import Unsupported

_litequeue = importlib.import_module("litequeue")  # an import statement would be checked against our own package


class Message(Protocol):
    """What we use of the library's record."""

    data: str
    message_id: str
    claim_id: int


class Subject:
    """`LiteQueue` on one file."""

    name = "litequeue (litements)"
    distribution = "litequeue"
    delivery = "at least once"
    durabilities = ("normal",)

    def open(self, folder: str, durability: str) -> None:
        """Open it, always at NORMAL."""
        self._queue = _litequeue.LiteQueue(str(Path(folder, "litequeue.db")), timeout=10)

    def pragmas(self) -> dict[str, object]:
        """Read back from the write connection."""
        return stdlib_sqlite.read_back(stdlib_sqlite.asker(self._queue.conn))

    def enqueue(self, payload: bytes) -> None:
        """Put one; its data are text."""
        self._queue.put(payload.decode("latin-1"))

    def enqueue_many(self, payloads: Sequence[bytes]) -> None:
        """Put all in one transaction."""
        with self._queue.transaction(mode="IMMEDIATE"):
            for payload in payloads:
                self._queue.put(payload.decode("latin-1"))

    def lease(self) -> Message | None:
        """Pop: the message is locked until it is done."""
        message: Message | None = self._queue.pop()
        return message

    def complete(self, token: Message) -> None:
        """Mark it done, with the claim that fences it."""
        if not self._queue.done(token.message_id, claim_id=token.claim_id):
            raise RuntimeError("the claim was lost")

    def lease_many(self, n: int) -> list[Message]:
        """Have no batch."""
        raise Unsupported("no batch of leases: pop opens its own transaction")

    def complete_many(self, tokens: list[Message]) -> None:
        """Have no batch, as there is none to lease."""
        raise Unsupported("no batch of leases: pop opens its own transaction")

    def payload_id(self, token: Message) -> bytes:
        """Return the data."""
        return token.data.encode("latin-1")

    def unfinished(self) -> int:
        """Count the jobs that are to be done or in work."""
        count: int = self._queue.active_count()
        return count

    def fill(self, sort: str, n: int) -> None:
        """Put rows in; a file holds one queue, and nothing is delayed."""
        if n == 0:
            return
        if sort not in {"completed", "dead", "leased", "own-backlog", "keyed"}:
            raise Unsupported(f"no rows of the sort {sort!r}")
        text = stdlib_sqlite.FILLER.decode()
        self._queue.put(text, idempotency_key=uuid4().hex if sort == "keyed" else None)
        if sort != "own-backlog":
            message = self._queue.pop()
            if sort in {"completed", "keyed"}:
                self._queue.done(message.message_id, claim_id=message.claim_id)
            elif sort == "dead":
                self._queue.mark_failed(message.message_id, claim_id=message.claim_id)
        changed = {"message_id": "substr(message_id, 1, 24) || printf('%012x', i)"}
        if sort == "keyed":
            changed["idempotency_key"] = "idempotency_key || i"
        stdlib_sqlite.multiply(self._queue.conn, "Queue", n - 1, **changed)

    def wait(self, timeout: float) -> bool:
        """Have no wait and no worker."""
        raise Unsupported("no blocking pop and no worker")

    def close(self) -> None:
        """Close its connections."""
        self._queue.close()
