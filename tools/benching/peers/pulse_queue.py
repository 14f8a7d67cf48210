"""pulse-queue: `Store`, the synchronous half that its asyncio workers stand on, called without their threads.

Pins `synchronous=NORMAL` and a busy timeout of 5 s, read back from `_conn`, its one connection. Leases come from the
queue "work" only, as its workers' do when they are given queues.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pulse_queue import HandlerRegistry, Store, Task, TaskContext, Worker, WorkerPool

from benching import stdlib_sqlite
from benching.polling import Polled
from benching.subject import Handle, Unsupported

WORKER = "bench"
POLL_S: float = inspect.signature(Worker).parameters["poll_interval"].default


class Subject(Polled[Task]):
    """`Store` on one file."""

    name = "pulse-queue"
    distribution = "pulse-queue"
    delivery = "at least once"
    durabilities = ("normal",)
    modes = ("asyncio",)

    def open(self, folder: str, durability: str) -> None:
        """Open it, always at NORMAL."""
        super().__init__(POLL_S)
        self._store = Store(Path(folder, "pulse.db"), default_queue="work")

    @property
    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection = self._store._conn  # noqa: SLF001 - it has no public name
        return connection

    def pragmas(self) -> dict[str, object]:
        """Read back from the store's connection."""
        return stdlib_sqlite.read_back(stdlib_sqlite.asker(self._connection))

    def enqueue(self, payload: bytes) -> None:
        """Add one; its payloads are JSON."""
        self._store.enqueue(payload.decode("latin-1"))

    def enqueue_many(self, payloads: Sequence[bytes]) -> None:
        """Have no batch."""
        raise Unsupported("no batch")

    def take(self) -> Task | None:
        """Lease one."""
        task: Task | None = self._store.lease_next_task(WORKER, queues=("work",))
        return task

    def complete(self, token: Task) -> None:
        """Complete it, with the epoch that fences it."""
        if not self._store.complete_task(token.id, WORKER, token.lease_epoch):
            raise RuntimeError("the lease was lost")

    def lease_many(self, n: int) -> list[Task]:
        """Have no batch."""
        raise Unsupported("no batch")

    def complete_many(self, tokens: list[Task]) -> None:
        """Have no batch."""
        raise Unsupported("no batch")

    def payload_id(self, token: Task) -> bytes:
        """Return the payload, read as its worker does before it calls a handler."""
        payload: str = json.loads(token.payload)
        return payload.encode("latin-1")

    def unfinished(self) -> int:
        """Count the jobs that are to be done or in work."""
        asked = "SELECT count(*) FROM tasks WHERE queue = 'work' AND state IN ('PENDING', 'RUNNING', 'RETRY')"
        return int(str(stdlib_sqlite.asker(self._connection)(asked)))  # its own count cannot be asked for both

    @contextlib.contextmanager
    def working(self, mode: str, at_once: int, handle: Handle, on_done: Callable[[], object] | None) -> Iterator[None]:
        """Run a pool of so many workers on a loop in a thread."""
        over = asyncio.Event()
        loops: list[asyncio.AbstractEventLoop] = []
        started = threading.Event()

        async def work(task: TaskContext) -> None:
            handle(task.payload.encode("latin-1"))

        async def serve() -> None:
            registry = HandlerRegistry({"work": work})
            pool = WorkerPool(
                self._store,
                registry,
                concurrency=at_once,
                queues=("work",),
                type_resolver=lambda _payload: "work",
                handle_signals=False,
            )
            loops.append(asyncio.get_running_loop())
            await pool.start()
            started.set()
            await over.wait()
            pool.stop()
            await pool.aclose()

        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(asyncio.run, serve())
            started.wait()
            try:
                yield
            finally:
                loops[0].call_soon_threadsafe(over.set)
                running.result()

    def fill(self, sort: str, n: int) -> None:
        """Put rows in; every row has its key, which is its id."""
        if n == 0:
            return
        if sort not in {"completed", "dead", "delayed", "leased", "other-scope", "own-backlog"}:
            raise Unsupported(f"no rows of the sort {sort!r}")
        self._store.enqueue(
            stdlib_sqlite.FILLER.decode(),
            queue="other" if sort == "other-scope" else "work",
            delay=86_400 if sort == "delayed" else 0,
        )
        table = "tasks"
        if sort in {"completed", "dead", "leased"}:
            task = self._store.lease_next_task(WORKER, queues=("work",), lease_ttl=86_400)
            if sort == "completed":
                self.complete(task)
            elif sort == "dead":
                self._store.dead_letter(task.id, WORKER, task.lease_epoch, "it failed")
                table = "dead_letter_queue"
        stdlib_sqlite.multiply(self._connection, table, n - 1, id="substr(id, 1, 20) || printf('%012x', i)")

    def close(self) -> None:
        """Close its connection."""
        self._store.close()
