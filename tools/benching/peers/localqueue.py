"""localqueue: `SimpleQueue`, whose engine is Rust with a SQLite of its own.

Durability is its `DurabilityMode`; the settings are read back by its own `diagnostics`, the only way to its
connection. Payloads pass through as bytes, by the smallest `serializer` that it allows: JSON would cost it time.
`get` with a timeout of 0, not `get_nowait`, which takes a busy file for an empty one. `put_many` is its only batch.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

from localqueue import DurabilityMode, Empty, Job, SimpleQueue
from localqueue.worker import Worker

from benching import stdlib_sqlite
from benching.polling import Polled
from benching.subject import Handle, Unsupported

MODES = {"full": DurabilityMode.DURABLE, "normal": DurabilityMode.RELAXED}


class Bytes:
    """Payloads as they are."""

    def dumps(self, payload: bytes) -> bytes:
        """Return them."""
        return payload

    def loads(self, payload: bytes) -> bytes:
        """Return them."""
        return payload


class Subject(Polled[Job]):
    """`SimpleQueue` in one folder."""

    name = "localqueue"
    distribution = "localqueue"
    delivery = "at least once"
    durabilities = ("full", "normal")
    modes = ("threads",)

    def open(self, folder: str, durability: str) -> None:
        """Open it at the durability."""
        super().__init__()
        self._folder = folder
        self._durability = MODES[durability]
        self._queue = self._named("work")

    def _named(self, name: str) -> SimpleQueue:
        return SimpleQueue(self._folder, name, durability=self._durability, serializer=Bytes())

    def pragmas(self) -> dict[str, object]:
        """Read back by its diagnostics."""
        told = self._queue.diagnostics()
        return {
            "page_size": told.page_size,
            "journal_mode": told.journal_mode,
            "synchronous": told.synchronous,
            "sqlite": told.sqlite_version,
        }

    def enqueue(self, payload: bytes) -> None:
        """Put one."""
        self._queue.put(payload)

    def enqueue_many(self, payloads: Sequence[bytes]) -> None:
        """Put all in one transaction."""
        self._queue.put_many(list(payloads))

    def take(self) -> Job | None:
        """Get one, which is leased until it is acknowledged."""
        return self.wait_and_take(0)

    def wait_and_take(self, timeout: float) -> Job | None:
        """Get one by its own wait, which looks again after 10 ms, and then ever later up to 0.25 s."""
        try:
            job: Job = self._queue.get(timeout=timeout)
        except Empty:
            return None
        return job

    def complete(self, token: Job) -> None:
        """Acknowledge, with the receipt that fences it."""
        self._queue.ack(token)

    def lease_many(self, n: int) -> list[Job]:
        """Have no batch."""
        raise Unsupported("no batch of leases")

    def complete_many(self, tokens: list[Job]) -> None:
        """Have no batch."""
        raise Unsupported("no batch of leases")

    def payload_id(self, token: Job) -> bytes:
        """Return the data."""
        payload: bytes = token.data
        return payload

    def unfinished(self) -> int:
        """Count the jobs that are to be done or in work."""
        counts = self._queue.stats()
        return int(counts["ready"]) + int(counts["processing"])

    @contextlib.contextmanager
    def working(self, mode: str, at_once: int, handle: Handle, on_done: Callable[[], object] | None) -> Iterator[None]:
        """Run so many workers, each in a thread: one of them does one job after the other."""
        workers = [Worker(self._queue, lambda job: handle(job.data)) for _ in range(at_once)]
        with ThreadPoolExecutor(at_once) as pool:
            running = [pool.submit(worker.run) for worker in workers]
            try:
                yield
            finally:
                for worker in workers:
                    worker.stop()
                for one in running:
                    one.result()

    def fill(self, sort: str, n: int) -> None:
        """Put rows in. Its SQLite is closed meanwhile: a second one in the process would drop the first one's locks.

        So no other handle of this process may have the file open.
        """
        if n == 0:
            return
        changed = {"id": "NULL"}
        if sort == "other-scope":
            with self._named("other") as other:
                other.put(stdlib_sqlite.FILLER)
        else:
            self._queue.put(stdlib_sqlite.FILLER, uuid4().hex if sort == "keyed" else None)
            if sort in {"completed", "keyed"}:
                self._queue.ack(self._queue.get(timeout=0))
                changed["job_id"] = "job_id || i"  # NULL stays NULL
            elif sort == "dead":
                self._queue.fail(self._queue.get(timeout=0))
            elif sort == "delayed":
                self._queue.nack(self._queue.get(timeout=0), delay=86_400)
            elif sort == "leased":
                self._queue.get(timeout=0).extend_lease(86_400)
                changed["receipt"] = "receipt || i"
            elif sort != "own-backlog":
                raise Unsupported(f"no rows of the sort {sort!r}")
        self._queue.close()
        with contextlib.closing(sqlite3.connect(Path(self._folder, "localqueue.db"))) as connection:
            stdlib_sqlite.multiply(connection, "messages", n - 1, **changed)
        self._queue = self._named("work")

    def close(self) -> None:
        """Close it."""
        self._queue.close()
