"""gigq: `JobQueue` and its `Worker`, whose two halves of `process_one` are called one after the other.

A worker looks for timed-out jobs before every claim, so `lease` does; only loading and calling the function is left
out. Has no setting for durability: WAL at SQLite's own FULL, read back from `get_connection`, the thread's connection.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict

from gigq import Job, JobQueue, JobStatus, Worker
from gigq.db_utils import close_connection, get_connection

from benching import stdlib_sqlite
from benching.polling import Polled
from benching.subject import Handle, Unsupported

_POLL_S = 1  # of a worker that is only there while there are jobs: it sleeps through its end
_handles: list[Handle] = []
"""What the worker of this process, while there is one, does with a payload."""


class Claim(TypedDict):
    """What we use of a claimed job."""

    id: str
    execution_id: str
    params: dict[str, str]


def work(payload: str) -> None:
    """Be the function of every job; without a worker it fails, so that jobs can be made that did."""
    if not _handles:
        raise NotImplementedError(payload)
    for handle in _handles:
        handle(payload.encode("latin-1"))


class Subject(Polled[Claim]):
    """`JobQueue` on one file."""

    name = "gigq"
    distribution = "gigq"
    delivery = "at least once"
    durabilities = ("full",)
    modes = ("threads",)

    def open(self, folder: str, durability: str) -> None:
        """Open it, always at FULL."""
        self._path = str(Path(folder, "gigq.db"))
        self._queue = JobQueue(self._path)
        self._worker = Worker(self._path)
        super().__init__(self._worker.polling_interval)

    @property
    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection = get_connection(self._path)
        return connection

    def pragmas(self) -> dict[str, object]:
        """Read back from this thread's connection."""
        return stdlib_sqlite.read_back(stdlib_sqlite.asker(self._connection))

    def enqueue(self, payload: bytes) -> None:
        """Submit one; its parameters are JSON."""
        self._queue.submit(Job("work", work, {"payload": payload.decode("latin-1")}))

    def enqueue_many(self, payloads: Sequence[bytes]) -> None:
        """Have no batch."""
        raise Unsupported("no batch")

    def take(self) -> Claim | None:
        """Claim one, as a worker does."""
        self._worker._check_for_timeouts()  # noqa: SLF001 - the halves of `process_one`
        claim: Claim | None = self._worker._claim_job()  # noqa: SLF001
        return claim

    def complete(self, token: Claim) -> None:
        """Complete it, as a worker does."""
        self._worker._complete_job(token["id"], token["execution_id"], JobStatus.COMPLETED)  # noqa: SLF001

    def lease_many(self, n: int) -> list[Claim]:
        """Have no batch."""
        raise Unsupported("no batch")

    def complete_many(self, tokens: list[Claim]) -> None:
        """Have no batch."""
        raise Unsupported("no batch")

    def payload_id(self, token: Claim) -> bytes:
        """Return the parameter."""
        return token["params"]["payload"].encode("latin-1")

    def unfinished(self) -> int:
        """Count the jobs that are to be done or in work."""
        counts: dict[str, int] = self._queue.stats()
        return counts["pending"] + counts["running"]

    @contextlib.contextmanager
    def working(self, mode: str, at_once: int, handle: Handle, on_done: Callable[[], object] | None) -> Iterator[None]:
        """Run a worker with so many threads."""
        worker = Worker(self._path, polling_interval=_POLL_S, concurrency=at_once)
        _handles.append(handle)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(worker.start)
            try:
                yield
            finally:
                worker.stop()
                running.result()
                _handles.remove(handle)

    def fill(self, sort: str, n: int) -> None:
        """Put rows in; a file holds one queue, and jobs have no keys."""
        if n == 0:
            return
        if sort not in {"completed", "dead", "delayed", "leased", "own-backlog"}:
            raise Unsupported(f"no rows of the sort {sort!r}")
        retry_delay = 86_400 if sort == "delayed" else 0
        timeout = 86_400 if sort == "leased" else 300
        parameters = {"payload": stdlib_sqlite.FILLER.decode()}
        self._queue.submit(Job("work", work, parameters, timeout=timeout, retry_delay=retry_delay))
        if sort == "delayed":
            self._worker.process_one()  # its function fails, so it is tried again later
        elif sort != "own-backlog" and (claim := self.take()) is not None:
            if sort == "completed":
                self.complete(claim)
            elif sort == "dead":
                self._worker._complete_job(claim["id"], claim["execution_id"], JobStatus.FAILED, error="it failed")  # noqa: SLF001
        made = {"id": "substr(id, 1, 24) || printf('%012x', i)"}
        stdlib_sqlite.multiply(self._connection, "jobs", n - 1, **made)
        if sort != "own-backlog":
            made["job_id"] = "substr(job_id, 1, 24) || printf('%012x', i)"
            stdlib_sqlite.multiply(self._connection, "job_executions", n - 1, **made)

    def close(self) -> None:
        """Close this thread's connection."""
        close_connection(self._path)
