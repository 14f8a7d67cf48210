"""huey: `SqliteHuey`, a task a job, as its consumer takes them.

Delivers at most once: taking a task deletes it, and nothing is acknowledged afterwards, so `complete` does nothing.
`fsync` chooses between FULL and OFF, and its default is FULL; there is no NORMAL. The busy timeout is 10 s, where it
has 5, so that many processes get as much patience as our bare queue.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from huey import SqliteHuey
from huey.api import Task
from huey.consumer import Consumer

from benching import stdlib_sqlite
from benching.polling import Polled
from benching.subject import Handle, Unsupported

_handles: list[Handle] = []
"""What the consumer of this process, while there is one, does with a payload."""


def work(payload: bytes) -> None:
    """Be the function of every task."""
    for handle in _handles:
        handle(payload)


class Subject(Polled[Task]):
    """huey on one file."""

    name = "huey"
    distribution = "huey"
    delivery = "at most once"
    durabilities = ("full",)
    modes = ("threads",)

    def open(self, folder: str, durability: str) -> None:
        """Open it, always at FULL."""
        self._path = str(Path(folder, "huey.db"))
        self._huey, self._work = self._queue("work")
        consumer = Consumer(self._huey)
        super().__init__(consumer.default_delay, consumer.backoff, consumer.max_delay)

    def _queue(self, name: str) -> tuple[SqliteHuey, Task]:
        huey = SqliteHuey(name, filename=self._path, fsync=True, timeout=10)
        return huey, huey.task()(work)

    @property
    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection = self._huey.storage.conn
        return connection

    def pragmas(self) -> dict[str, object]:
        """Read back from the storage's own connection."""
        return stdlib_sqlite.read_back(stdlib_sqlite.asker(self._connection))

    def enqueue(self, payload: bytes) -> None:
        """Call the task, which enqueues it."""
        self._work(payload)

    def enqueue_many(self, payloads: Sequence[bytes]) -> None:
        """Have no batch: `map` and groups enqueue one by one."""
        raise Unsupported("no batch in one transaction")

    def take(self) -> Task | None:
        """Dequeue, as the consumer's worker does."""
        task: Task | None = self._huey.dequeue()
        return task

    def complete(self, token: Task) -> None:
        """Do nothing: the task went when it was taken."""

    def lease_many(self, n: int) -> list[Task]:
        """Have no batch."""
        raise Unsupported("no batch")

    def complete_many(self, tokens: list[Task]) -> None:
        """Have no batch."""
        raise Unsupported("no batch")

    def payload_id(self, token: Task) -> bytes:
        """Return the task's argument."""
        payload: bytes = token.args[0]
        return payload

    def unfinished(self) -> int:
        """Count the jobs that are to be done or in work."""
        count: int = self._huey.pending_count()
        return count

    @contextlib.contextmanager
    def working(self, mode: str, at_once: int, handle: Handle, on_done: Callable[[], object] | None) -> Iterator[None]:
        """Run a consumer with its defaults."""
        consumer = Consumer(self._huey, workers=at_once)
        _handles.append(handle)
        consumer.start()
        try:
            yield
        finally:
            consumer.stop(graceful=True)
            _handles.remove(handle)

    def fill(self, sort: str, n: int) -> None:
        """Put rows in; finished, failed, taken and keyed tasks leave none."""
        if n == 0:
            return
        if sort == "own-backlog":
            self.enqueue(stdlib_sqlite.FILLER)
            table = "task"
        elif sort == "other-scope":
            other, work = self._queue("other")
            work(stdlib_sqlite.FILLER)
            other.storage.close()
            table = "task"
        elif sort == "delayed":
            self._huey.add_schedule(self._work.s(stdlib_sqlite.FILLER, delay=86_400))
            table = "schedule"
        else:
            raise Unsupported(f"no rows of the sort {sort!r}")
        stdlib_sqlite.multiply(self._connection, table, n - 1, id="NULL")

    def close(self) -> None:
        """Close the connection."""
        self._huey.storage.close()
