"""Jobs that wait for other jobs to end: their gates, what these miss, and how they are told.

Each waiting job has a gate, which counts what it is missing, and a row for each job that it misses: so a batch of any
size costs its last job no more than its first. Invariants: a gate misses exactly the jobs that it has rows for, and its
job is in the state WAITING exactly while it misses any; who ends a job that is missed writes a notice in the same
transaction, and notices are worked off in their order and in bounded steps, so that whoever dies, each gate is told of
each end once. A notice names the last gate that it concerns: a job that comes back and ends again tells those that have
begun to wait for it in between. Leaves out: the moves of the jobs (`moves`), and what an end leads to (`rules`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from litequeue import rules
from litequeue.errors import JobNotFound
from litequeue.ids import stored_job_id
from litequeue.model import Dependencies, JobState, OnParentFailure
from litequeue.rules import Move
from litequeue.sqlite import settings_table
from litequeue.sqlite.context import Context
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.rows import Row, Values
from litequeue.sqlite.statements import SQL

_SHOWN = 100
"""Missing jobs, and children, that `Queue.dependencies` names."""
_ALL_GATES = 2**63 - 1


class Parents(NamedTuple):
    """What a new job is to wait for, as it stands now."""

    missing: list[UUID]
    """Those that have not ended."""
    ended: Counter[JobState]
    """How the others have, counted."""
    failed: str | None
    """Says which of these has not completed, if any has not."""

    def cancels(self, on_parent_failure: OnParentFailure) -> str | None:
        """Say why the job is cancelled at once; `None` when it is not."""
        return self.failed if on_parent_failure == "cancel" else None


class Told(NamedTuple):
    """What a step has come to."""

    moves: list[tuple[Row, Move]]
    """What is to become of waiting jobs."""
    done: int
    """How much the step has done, of what it was to do at most; never 0."""


def look(
    reader: Reader, parents: Collection[UUID], cancelled: Collection[UUID] = (), active: Collection[UUID] = ()
) -> Parents:
    """Look at the jobs that a new one is to wait for.

    Those that are `active` are known not to have ended; those `cancelled` have just been, and may be gone by now.

    Raises:
        JobNotFound: there is none of such an id.
    """
    missing: list[UUID] = []
    ended: Counter[JobState] = Counter()
    failed: str | None = None
    for job_id in parents:
        if job_id in active:
            missing.append(job_id)
            continue
        state = JobState.CANCELLED if job_id in cancelled else _state(reader, job_id)
        if not state.is_terminal:
            missing.append(job_id)
            continue
        ended[state] += 1
        if state is not JobState.COMPLETED and failed is None:
            failed = _failure(job_id.bytes, state)
    return Parents(missing, ended, failed)


def _state(reader: Reader, job_id: UUID) -> JobState:
    found = reader.one(SQL.row_by_id, job_id.bytes)
    if found is None:
        raise JobNotFound(job_id, " to wait for: there never was one, or its retention is over")
    return JobState(Row(*found).state)


def add(
    context: Context, job_id: UUID, parents: Parents, on_parent_failure: OnParentFailure, not_before: int | None
) -> None:
    """Make the gate of a job that was just made; where it misses others the job is in the state WAITING."""
    missing, ended, _ = parents
    counts = (ended[JobState.COMPLETED], ended[JobState.DEAD], ended[JobState.CANCELLED])
    total = len(missing) + sum(counts)
    context.write(SQL.gate_begun, ())
    gate: int = context.all(SQL.last_gate)[0][0]
    context.write(SQL.gate_add, (gate, job_id.bytes, total, len(missing), *counts, on_parent_failure, not_before))
    context.cursor.executemany(SQL.dependency_add, [(parent.bytes, gate) for parent in missing])
    if not context.settings.has_chains:
        settings_table.chains_begin(context)


def forget(context: Context, job_ids: Iterable[bytes]) -> None:
    """Remove the gates of jobs that go, or are queued anew; none of them waits."""
    context.cursor.executemany(SQL.gate_remove, [(job_id,) for job_id in job_ids])


def delay(context: Context, job_id: bytes, not_before: int | None) -> None:
    """Set another delay for a job that waits."""
    context.write_exactly(SQL.gate_delay, [(not_before, job_id)])


def note(context: Context, moved: Sequence[tuple[Row, Move]]) -> bool:
    """Write down what gates are to be told of these moves; tell whether there is anything."""
    has_any = False
    for row, move in moved:
        if row.state == JobState.WAITING and _close(context, row.job_id):
            has_any = True
        if move.to.is_terminal:
            last_gate = context.all(SQL.last_gate_of_parent, row.job_id)[0][0]
            if last_gate is not None:
                context.write(SQL.notice_add, (last_gate, row.job_id, int(move.to)))
                has_any = True
    return has_any


def is_behind(reader: Reader) -> bool:
    """Tell whether anything is yet to be told."""
    return reader.settings.has_chains and reader.one(SQL.notice_first) is not None


def step(context: Context, limit: int) -> Told | None:
    """Work the first notice off, or `limit` gates of it; `None` when there is none."""
    first = context.one(SQL.notice_first)
    if first is None:
        return None
    notice, gate, parent_id, state = first
    if parent_id is None:
        missed: list[bytes] = [found[0] for found in context.all(SQL.parents_of_gate, gate, limit)]
        context.write_exactly(SQL.dependency_remove, [(missing, gate) for missing in missed])
        told, count = [], len(missed)
    else:
        found = context.all(SQL.gates_of_parent, parent_id, gate, limit)
        context.write_exactly(SQL.dependency_remove, [(parent_id, row[0]) for row in found])
        told, count = _tell(context, parent_id, JobState(state), found), len(found)
    if count < limit:
        context.write_exactly(SQL.notice_remove, [(notice,)])
    return Told(told, max(count, 1))


def dependencies(reader: Reader, job_id: UUID) -> Dependencies:
    """Return what a job waits for and has waited for, and how many wait for it.

    Raises:
        JobNotFound: there is no such job.
    """
    if reader.one(SQL.row_by_id, job_id.bytes) is None:
        raise JobNotFound(job_id)
    children: int = reader.all(SQL.children, job_id.bytes)[0][0]
    waiting = reader.all(SQL.gates_of_parent, job_id.bytes, _ALL_GATES, _SHOWN) if children else []
    children_ids = tuple(stored_job_id(child_id) for _, child_id, *_ in waiting if child_id is not None)
    found = reader.one(SQL.gate_of_job, job_id.bytes)
    if found is None:
        return Dependencies(0, 0, 0, 0, 0, (), children, children_ids)
    gate, total, missing, completed, dead, cancelled, _, _ = found
    missed = reader.all(SQL.parents_of_gate, gate, _SHOWN) if missing else []
    waits_for = tuple(stored_job_id(parent_id) for (parent_id,) in missed)
    return Dependencies(total, completed, dead, cancelled, missing, waits_for, children, children_ids)


def _close(context: Context, job_id: bytes) -> bool:
    """Let a gate miss nothing, since its job waits no more; tell whether it did miss anything."""
    found = context.one(SQL.gate_of_job, job_id)
    if found is None or context.write(SQL.gate_close, (found[0],)) == 0:
        return False
    context.write(SQL.notice_add, (found[0], None, None))
    return True


def _tell(context: Context, parent_id: bytes, state: JobState, found: Sequence[Values]) -> list[tuple[Row, Move]]:
    """Tell gates of the end of a parent; return what becomes of their jobs."""
    counts = (state is JobState.COMPLETED, state is JobState.DEAD, state is JobState.CANCELLED)
    decided: list[tuple[Row, Move]] = []
    for gate, job_id, missing, on_parent_failure, not_before in found:
        if not missing or context.write(SQL.gate_told, (*counts, gate)) == 0:
            continue  # its job waits no more
        is_cancelled = rules.is_cancelled_by(state, on_parent_failure)
        if not is_cancelled and missing > 1:
            continue
        of_job = context.one(SQL.row_by_id, job_id)
        if of_job is None or Row(*of_job).state != JobState.WAITING:
            continue
        row = Row(*of_job)
        if is_cancelled:
            decided.append((row, rules.cancel(row, context.now, _failure(parent_id, state))))
        else:
            decided.append((row, rules.let_go(row, context.now, not_before=not_before)))
    return decided


def _failure(parent_id: bytes, state: JobState) -> str:
    return f"job {stored_job_id(parent_id)}, for which it waited, is {state}"
