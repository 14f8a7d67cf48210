"""Many new jobs from lines, in batches, each a commit.

Invariant: when a line is refused, every job of the lines before it is in the file, none of the lines after it is, and
the error says where to go on. No line is held in memory that is longer than any job that the file takes. Leaves out:
what a line says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader

from litequeue import NewJob, Queue
from litequeue.cli.exact import NoForm
from litequeue.cli.failures import Failure
from litequeue.cli.input import NotJson, arriving_lines
from litequeue.cli.output import count_of
from litequeue.cli.stepwise import Stepwise
from litequeue.errors import (
    DuplicateJob,
    JobNotFound,
    LiteQueueError,
    PayloadError,
    QueueFull,
    RecordError,
    UsageError,
)

_BATCH = 500
"""Lines in one commit, at most."""
_LONGEST = 16
"""Bytes of a line for each byte of a stored payload: the worst, maps with empty bytes for their key, take ten."""
_BESIDE_BYTES = 1_048_576
"""What else a line may have in it: names, a thousand ids, an error, white space."""


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

    def load(self, stream: BufferedReader, job_of: Callable[[bytes], NewJob], told: Stepwise) -> Iterator[int]:
        """Enqueue the jobs of lines as they come; yield how many bytes have been read, after each commit.

        Raises:
            Failure: a line was refused; the jobs of those before it are in the file.
            KeyboardInterrupt: the process has been told to end.
        """
        number = read = 0
        most = _LONGEST * int(str(self._queue.settings()["max_payload"])) + _BESIDE_BYTES
        arriving = arriving_lines(stream, most)
        while True:
            try:
                with told.waiting():
                    lines = next(arriving, None)
            except NotJson as exc:
                raise self._failure(number + 1, exc) from exc
            if lines is None:
                return
            for line in lines:
                number += 1
                read += len(line) + 1
                if line.strip():
                    self._add(number, line, job_of)
            self._commit()
            yield read

    def told(self) -> str:
        """Say how many jobs were made, and how many were there already."""
        known = f", {self.known:,} there already" if self.known else ""
        return f"{count_of(self.made, 'job')} {self._done}{known}"

    def _add(self, number: int, line: bytes, job_of: Callable[[bytes], NewJob]) -> None:
        try:
            job = job_of(line)
        except (NotJson, NoForm, UsageError, RecordError) as exc:
            self._commit()
            raise self._failure(number, exc) from exc
        self._batch.append((number, job))
        if len(self._batch) == _BATCH:
            self._commit()

    def _commit(self) -> None:
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
                    raise self._failure(number, exc) from exc
        except LiteQueueError as exc:
            raise self._failure(batch[0][0], exc) from exc

    def _failure(self, number: int, cause: Exception) -> Failure:
        """Return the error for a line: what is wrong with it, and where the user may go on."""
        return Failure(f"line {number}: {cause}; {self.told()} before it")

    def _enqueue(self, jobs: Iterable[NewJob]) -> None:
        for enqueued in self._queue.enqueue_many(jobs):
            self.made += enqueued.created
            self.known += not enqueued.created
