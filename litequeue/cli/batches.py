"""Many new jobs from lines, in batches, each a commit.

Invariant: when a line is refused, every job of the lines before it is in the file, none of the lines after it is, and
the error says where to go on. Leaves out: what a line says.
"""

from __future__ import annotations

from collections.abc import Iterable

from litequeue import NewJob, Queue
from litequeue.cli.failures import Failure
from litequeue.cli.output import count_of
from litequeue.errors import DuplicateJob, JobNotFound, LiteQueueError, PayloadError, QueueFull

_BATCH = 500
"""Lines in one commit, at most."""


class Loader:
    """Enqueues numbered jobs in batches, and knows how many are in the file."""

    def __init__(self, queue: Queue, done: str) -> None:
        """Enqueue into a queue; `done` is what is said to have been done with the jobs."""
        self.made = 0
        """Jobs that were not there before."""
        self.known = 0
        """Lines whose job was there already."""
        self._done = done
        self._queue = queue
        self._batch: list[tuple[int, NewJob]] = []

    def add(self, number: int, job: NewJob) -> None:
        """Take the job of a line; commit when there are enough."""
        self._batch.append((number, job))
        if len(self._batch) == _BATCH:
            self.commit()

    def commit(self) -> None:
        """Enqueue what was taken.

        Raises:
            Failure: a job was refused; those before it are in the file.
        """
        batch, self._batch = self._batch, []
        if not batch:
            return
        try:
            self._enqueue(job for _, job in batch)
        except (PayloadError, QueueFull, DuplicateJob, JobNotFound):
            # Nothing of the batch is in the file: one by one, up to the line at fault.
            for number, job in batch:
                try:
                    self._enqueue((job,))
                except LiteQueueError as exc:
                    raise self.failure(number, exc) from exc
        except LiteQueueError as exc:
            raise self.failure(batch[0][0], exc) from exc

    def failure(self, number: int, cause: Exception) -> Failure:
        """Return the error for a line: what is wrong with it, and where the user may go on."""
        return Failure(f"line {number}: {cause}; {self.told()} before it")

    def told(self) -> str:
        """Say how many jobs were made, and how many were there already."""
        known = f", {self.known:,} there already" if self.known else ""
        return f"{count_of(self.made, 'job')} {self._done}{known}"

    def _enqueue(self, jobs: Iterable[NewJob]) -> None:
        for enqueued in self._queue.enqueue_many(jobs):
            self.made += enqueued.created
            self.known += not enqueued.created
