"""Going through the jobs of a file one by one (`Queue.exporter`), so that they can be enqueued in another.

Jobs are walked by what never changes of them, and not by their keys, which do whenever a job moves: so each job that
is there all the while comes once, as it stands at its moment, whatever workers do meanwhile. First come those that have
never waited for others, by their ids, then those that do or did, by their gates: a gate is numbered when it is made,
and what it misses was there before, so each job comes after those that it waits for. A job that is dead or cancelled
and is queued anew meanwhile may be missed, or come twice. The walks end at the last id and the last gate that there
were when they began, or they would never end beside a busy producer. Invariant: each step is a snapshot of its own, of
a bounded number of jobs and bytes, and nothing is held open between two. Leaves out: in what form jobs are written
(`cli`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from litequeue import rules
from litequeue.arguments import MAX_PARENTS
from litequeue.ids import stored_job_id
from litequeue.model import Job, JobState, OnParentFailure
from litequeue.sqlite import chaining, reading
from litequeue.sqlite.reader import Reader, onward
from litequeue.sqlite.rows import Row
from litequeue.sqlite.statements import SQL

if TYPE_CHECKING:
    from litequeue.sqlite.store import Store

STEP = 100
"""Jobs in one step, at most."""
STEP_BYTES = 1_048_576
"""A step ends with the job that reaches so much, stored: what one has is in memory at once."""


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
    """A job, and what it waits for if it does.

    One that runs while its key was triggered again is what that trigger would have made of it, had it waited (V2).
    """

    job: Job
    waits: Waits | None
    is_awaited: bool
    """Whether others wait for it, as far as they have been told."""


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
        """Return the jobs that were asked for, in steps; a step may have none.

        Those that have never waited for others come in the order of their ids, then the others, each after all that it
        waits for. One that waits for a job that has failed already, and is to be cancelled for that, does not come.

        Raises:
            StorageCorrupt: a record is damaged.
        """
        with self._store.read() as reader:
            last_id = reader.one(SQL.last_id)
            last_gate: int = reader.all(SQL.last_gate)[0][0]
        if last_id is not None:
            yield from self._by_ids(last_id[0])
            yield from self._by_gates(last_gate)

    def _by_ids(self, end: bytes) -> Iterator[Step]:
        after = b""
        while after < end:
            with self._store.read() as reader:
                found = reader.all(SQL.export_ids, after, end, STEP)
                if not found:  # the last ones have gone
                    return
                alone = [job_id for job_id, has_gate in found if not has_gate]
                step = self._step(reader, alone)
            last = found[-1][0] if step.looked_at == len(alone) else alone[step.looked_at - 1]
            after = onward(last, after + b"\0")
            yield step

    def _by_gates(self, end: int) -> Iterator[Step]:
        after = 0
        while after < end:
            with self._store.read() as reader:
                found = reader.all(SQL.export_gates, after, end, STEP)
                if not found:
                    return
                step = self._step(reader, [job_id for _, job_id in found])
            gate, job_id = found[step.looked_at - 1]
            after, _ = onward((gate, job_id), (after + 1, b""))
            yield step

    def _step(self, reader: Reader, job_ids: Sequence[bytes]) -> Step:
        """Look at jobs, up to the one that makes it enough."""
        found: list[Found] = []
        size = looked_at = 0
        for job_id in job_ids:
            looked_at += 1
            row = reader.one(SQL.exported, job_id, *self._wanted)
            one = None if row is None else _found(reader, reading.job(reader, row))
            if one is not None:
                found.append(one)
                size += _size(one.job)
            if size >= STEP_BYTES:
                break
        return Step(looked_at, found)


def _size(job: Job) -> int:
    return len(job.encoded_payload) + len(job.encoded_result or b"") + len(job.continuation or b"")


def _found(reader: Reader, job: Job) -> Found | None:
    """Return what is told of a job; `None` when it is about to be cancelled."""
    has_chains = reader.settings.has_chains
    is_awaited = has_chains and reader.all(SQL.last_gate_of_parent, job.job_id.bytes)[0][0] is not None
    if job.state is JobState.LEASED:
        return Found(_with_trigger(reader, job), None, is_awaited)
    gate = reader.one(SQL.gate_of_job, job.job_id.bytes) if job.state is JobState.WAITING else None
    if gate is None:
        return Found(job, None, is_awaited)
    gate_id, *_, on_parent_failure, not_before = gate
    missed = [raw for (raw,) in reader.all(SQL.parents_of_gate, gate_id, MAX_PARENTS + 1)]
    if len(missed) <= MAX_PARENTS and chaining.is_behind(reader):  # some of these may have ended
        ended = {raw: state for raw in missed if (state := _state(reader, raw)) is not None and state.is_terminal}
        if any(rules.is_cancelled_by(state, on_parent_failure) for state in ended.values()):
            return None
        missed = [raw for raw in missed if raw not in ended]
    parents = tuple(stored_job_id(raw) for raw in missed)
    return Found(job, Waits(parents, on_parent_failure, not_before), is_awaited)


def _state(reader: Reader, job_id: bytes) -> JobState | None:
    row = reader.one(SQL.row_by_id, job_id)
    return None if row is None else JobState(Row(*row).state)


def _with_trigger(reader: Reader, job: Job) -> Job:
    kept = reader.one(SQL.rerun, job.job_id.bytes)
    if kept is None:
        return job
    priority, not_before, expires_at, max_attempts, payload = kept
    return replace(
        job,
        priority=priority,
        not_before=not_before,
        expires_at=expires_at,
        max_attempts=max_attempts or job.max_attempts,
        encoded_payload=payload,
    )
