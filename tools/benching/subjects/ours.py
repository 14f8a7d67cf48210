"""This package, by its public verbs.

Only two things reach behind them: the rows that stay leased when this process has gone (a handle that is closed gives
back what it holds), and the count of syncs, for which SQLite's file system is wrapped before the file is opened.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast
from uuid import UUID

import litequeue
from benching.subject import MODES, Handle, Unsupported
from litequeue import ANY, JobState, Lease, NewJob, Queue, Worker, WorkerEvent

if TYPE_CHECKING:
    from litequeue.aio import AsyncLease

_KIND = "work"
_YEAR_S = 31_536_000
_FILL_STEP = 5_000
_BUSY_S = 60.0
_MOST_RESULTS = 10_000


class Subject:
    """A queue of this package."""

    name = "ours"
    serves_threads = True
    modes = MODES

    def __init__(self) -> None:
        self._last: UUID | None = None
        self._syncs: Callable[[], int] | None = None

    def open(self, folder: str, durability: str) -> None:
        """Open the queue as a user does."""
        mode = cast("litequeue.sqlite.store.Durability", durability)
        self._queue: Queue = litequeue.open(Path(folder, "app.queue"), durability=mode, busy_timeout=_BUSY_S)

    def pragmas(self) -> dict[str, object]:
        """Ask the connection that writes, as it is set for an enqueue."""
        return self._queue.surveyor().pragmas(durable=True)._asdict()

    def enqueue(self, payload: bytes) -> None:
        """Enqueue one."""
        self._last = self._queue.enqueue(_KIND, payload).job_id

    def enqueue_many(self, payloads: Sequence[bytes]) -> None:
        """Enqueue a batch."""
        self._queue.enqueue_many([NewJob(_KIND, payload) for payload in payloads])

    def lease(self) -> object | None:
        """Lease the next."""
        return self._queue.lease_next()

    def complete(self, token: object) -> None:
        """Complete it."""
        cast("Lease", token).complete()

    def lease_many(self, n: int) -> list[object]:
        """Lease a batch."""
        return cast("list[object]", self._queue.lease_many(n))

    def complete_many(self, tokens: list[object]) -> None:
        """Complete a batch."""
        self._queue.complete_many(cast("list[Lease]", tokens))

    def payload_id(self, token: object) -> bytes:
        """Return the payload."""
        return cast("bytes", cast("Lease", token).payload)

    def fill(self, sort: str, n: int) -> None:
        """Put rows in by the verbs that make them."""
        for start in range(0, n, _FILL_STEP):
            numbers = range(start, min(start + _FILL_STEP, n))
            self._queue.enqueue_many(_jobs(sort, numbers))
            if sort in ("completed", "dead", "leased"):
                leases = self._queue.lease_many(len(numbers), ttl=_YEAR_S)
                if sort == "completed":
                    self._queue.complete_many(leases)
                elif sort == "dead":
                    self._queue.fail_many(leases, "boom", retryable=False)
        if sort == "leased":
            self._queue._store.holdings.leases.clear()  # noqa: SLF001 - as if this process were still alive

    def fill_scopes(self, scopes: Sequence[str], jobs: int) -> None:
        """Enqueue for each scope, the first job of all before the second of any."""
        made = (NewJob(_KIND, b"fill", scope=scope) for _ in range(jobs) for scope in scopes)
        while step := list(itertools.islice(made, _FILL_STEP)):
            self._queue.enqueue_many(step)

    def lease_in_turn(self) -> tuple[object, str] | None:
        """Lease from every scope."""
        lease = self._queue.lease_next(scope=ANY)
        return None if lease is None else (lease, str(lease.scope))

    def look(self) -> None:
        """Get the job that was enqueued last."""
        if self._last is not None:
            self._queue.get(self._last)

    def maintain(self) -> None:
        """Keep nothing that is finished, and let maintenance do its work."""
        self._queue.set("completed_retention", 0)
        litequeue.Maintenance(self._queue).run_once()

    def wait(self, timeout: float) -> bool:
        """Wait for the bell."""
        return self._queue.wait(timeout)

    @contextlib.contextmanager
    def working(self, mode: str, at_once: int, handle: Handle, on_done: Callable[[], object] | None) -> Iterator[None]:
        """Run a worker with its defaults in a thread beside the caller's."""

        def hear(event: WorkerEvent) -> None:
            if on_done is not None and event.name == "completed":
                on_done()

        worker = Worker(
            self._queue,
            {_KIND: partial(_handled_async if mode == "asyncio" else _handled, handle)},
            concurrency=at_once,
            mode=cast("litequeue.worker.worker.Mode", mode),
            on_event=None if on_done is None else hear,
        )
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(worker.run)
            try:
                yield
            finally:
                worker.stop()
                running.result()

    def results(self) -> list[object]:
        """List the completed jobs: the file has no others that could be among them."""
        return [job.result for job in self._queue.list(state=JobState.COMPLETED, limit=_MOST_RESULTS)]

    def count_syncs(self) -> None:
        """Wrap SQLite's file system."""
        from benching.counting import count_syncs  # noqa: PLC0415 - only where it is wanted

        self._syncs = count_syncs()

    def syncs(self) -> int:
        """Return how many there have been."""
        if self._syncs is None:
            raise Unsupported("nobody counts")
        return self._syncs()

    def close(self) -> None:
        """Close the handle."""
        self._queue.close()


def _handled(handle: Handle, lease: Lease) -> object:
    return handle(cast("bytes", lease.payload))


async def _handled_async(handle: Handle, lease: AsyncLease) -> object:
    return handle(cast("bytes", lease.payload))


def _jobs(sort: str, numbers: range) -> Iterator[NewJob]:
    """Make the jobs of a sort of rows."""
    for number in numbers:
        payload = b"fill %d" % number
        match sort:
            case "delayed":
                yield NewJob(_KIND, payload, delay=_YEAR_S)
            case "other-kind":
                yield NewJob("other", payload)
            case "other-scope":
                yield NewJob(_KIND, payload, scope="elsewhere")
            case "keyed":
                yield NewJob("other", payload, idempotency_key=f"key {number}")
            case _:
                yield NewJob(_KIND, payload)
