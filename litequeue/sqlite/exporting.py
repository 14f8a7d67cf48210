"""Going through the jobs of a file one by one (`Queue.exporter`), so that they can be enqueued in another.

Jobs are walked by their ids, which never change, and not by their keys, which do whenever a job moves: so each job that
is there all the while comes once, as it stands at its moment, whatever workers do meanwhile. The walk ends at the last
id that there was when it began, or it would never end beside a busy producer. Invariant: each step is a snapshot of its
own, of a bounded number of jobs, and nothing is held open between two. Leaves out: in what form jobs are written
(`cli`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from litequeue.arguments import MAX_PARENTS
from litequeue.ids import stored_job_id
from litequeue.model import Job, JobState, OnParentFailure
from litequeue.sqlite import reading
from litequeue.sqlite.reader import Reader, onward
from litequeue.sqlite.statements import SQL

if TYPE_CHECKING:
    from litequeue.sqlite.store import Store

STEP = 100
"""Jobs in one step: their payloads are in memory at once."""


class Waits(NamedTuple):
    """What a job waits for."""

    parents: tuple[UUID, ...]
    """The jobs that have not ended; one more than `after` takes where they are too many for it."""
    on_parent_failure: OnParentFailure
    not_before: int | None
    """Its delay, which counts once it waits no more, µs since the epoch."""

    @property
    def is_too_many(self) -> bool:
        """Whether no job can be enqueued to wait for them: only a batch can."""
        return len(self.parents) > MAX_PARENTS


class Found(NamedTuple):
    """A job, and what it waits for if it does."""

    job: Job
    waits: Waits | None


class Step(NamedTuple):
    """What one step has come to."""

    looked_at: int
    """Jobs that the step has passed, whether they were asked for or not."""
    found: list[Found]


class Exporter:
    """Goes through the jobs of a file. Make one with `Queue.exporter`."""

    def __init__(self, store: Store, states: Collection[JobState], kind: str | None, scope: str | None) -> None:
        self._store = store
        codes = "".join(str(int(state)) for state in states)
        self._wanted = (codes, scope, *reading.kind_range(kind))

    def count(self) -> int:
        """Return how many jobs there are to look at; reads the key of each once."""
        with self._store.read() as reader:
            count: int = reader.all(SQL.body_count)[0][0]
        return count

    def steps(self) -> Iterator[Step]:
        """Return the jobs that were asked for, in the order of their ids, in steps; a step may have none.

        Raises:
            StorageCorrupt: a record is damaged.
        """
        with self._store.read() as reader:
            end = reader.one(SQL.last_id)
        after = b""
        while end is not None and after < end[0]:
            with self._store.read() as reader:
                found = reader.all(SQL.export_ids, after, *end, STEP)
                if not found:  # the last ones have gone
                    return
                last = onward(found[-1][0], after + b"\0")
                rows = reader.all(SQL.exported, after, last, *self._wanted)
                step = Step(len(found), [_found(reader, reading.job(reader, row)) for row in rows])
            after = last
            yield step


def _found(reader: Reader, job: Job) -> Found:
    if job.state is not JobState.WAITING:
        return Found(job, None)
    gate = reader.one(SQL.gate_of_job, job.job_id.bytes)
    if gate is None:
        return Found(job, None)
    gate_id, *_, on_parent_failure, not_before = gate
    parents = tuple(stored_job_id(raw) for (raw,) in reader.all(SQL.parents_of_gate, gate_id, MAX_PARENTS + 1))
    return Found(job, Waits(parents, on_parent_failure, not_before))
