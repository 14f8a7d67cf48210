"""simplebroker: messages moved to a queue in flight, and deleted there when they are done.

That is what its documentation tells for work that must not be lost with several consumers; `read` loses the message
with its reader. `BrokerSession` keeps the connection, its fast way; durability is `SYNC_MODE`, read back through
`sidecar`, which asks on the broker's own connection. The busy timeout is 10 s, where it has 5.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from simplebroker import BrokerSession, resolve_config
from simplebroker.ext import PollingStrategy

from benching import stdlib_sqlite
from benching.subject import Unsupported

Message = tuple[str, int]
"""Body and id."""


class Subject:
    """Two queues of a broker, on one file."""

    name = "simplebroker"
    distribution = "simplebroker"
    delivery = "at least once"
    durabilities = ("full", "normal")

    def open(self, folder: str, durability: str) -> None:
        """Open it at the durability."""
        config = resolve_config(override={"BROKER_SYNC_MODE": durability.upper(), "BROKER_BUSY_TIMEOUT": 10_000})
        self._session = BrokerSession.connect(str(Path(folder, "broker.db")), config=config)
        self._work = self._session.queue("work")
        self._in_flight = self._session.queue("in-flight")
        self._polling: PollingStrategy | None = None

    def pragmas(self) -> dict[str, object]:
        """Read back through the sidecar."""
        with self._work.sidecar() as sidecar:

            def ask(query: str) -> object:
                (row,) = sidecar.run(query, fetch=True)
                return row[0]

            return stdlib_sqlite.read_back(ask)

    def enqueue(self, payload: bytes) -> None:
        """Write one; its messages are text."""
        self._work.write(payload.decode("latin-1"))

    def enqueue_many(self, payloads: Sequence[bytes]) -> None:
        """Have no batch: `insert_messages` restores messages that have their ids already."""
        raise Unsupported("no batch of new messages")

    def lease(self) -> Message | None:
        """Move the oldest one to the queue in flight."""
        message: Message | None = self._work.move_one("in-flight", with_timestamps=True)
        return message

    def complete(self, token: Message) -> None:
        """Delete it there."""
        if not self._in_flight.delete(message_id=token[1]):
            raise RuntimeError("the message was lost")

    def lease_many(self, n: int) -> list[Message]:
        """Move a batch."""
        messages: list[Message] = self._work.move_many("in-flight", n, with_timestamps=True)
        return messages

    def complete_many(self, tokens: list[Message]) -> None:
        """Delete the batch."""
        if self._in_flight.delete_many([token[1] for token in tokens]) != len(tokens):
            raise RuntimeError("a message was lost")

    def payload_id(self, token: Message) -> bytes:
        """Return the body."""
        return token[0].encode("latin-1")

    def unfinished(self) -> int:
        """Count the jobs that are to be done or in work."""
        return int(self._work.stats().pending) + int(self._in_flight.stats().pending)

    def fill(self, sort: str, n: int) -> None:
        """Put rows in; what is done is deleted, and nothing is delayed or keyed."""
        if n == 0:
            return
        if sort not in {"leased", "own-backlog", "other-scope"}:
            raise Unsupported(f"no rows of the sort {sort!r}")
        queue = self._session.queue("other") if sort == "other-scope" else self._work
        queue.write(stdlib_sqlite.FILLER.decode())
        if sort == "leased":
            self.lease()
        with self._work.sidecar(transaction=True) as sidecar:
            columns = [str(row[1]) for row in sidecar.run("PRAGMA table_info(messages)", fetch=True)]
            # Older ids: a newer one could be the one that the clock gives the next message.
            sidecar.run(stdlib_sqlite.multiplying(columns, "messages", {"ts": "ts - i"}), (n - 1,))

    def wait(self, timeout: float) -> bool:
        """Wait as its watcher does: bursts of looks at `PRAGMA data_version`, ever farther apart up to 0.1 s."""
        if self._polling is None:
            self._polling = PollingStrategy(threading.Event())
            self._polling.start(self._work.get_data_version)
        deadline = time.monotonic() + timeout
        while not self._work.has_pending():
            if time.monotonic() >= deadline:
                return False
            self._polling.wait_for_activity()
        self._polling.notify_activity()
        return True

    def close(self) -> None:
        """Close the session, which closes its queues."""
        self._session.close()
