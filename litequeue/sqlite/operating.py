"""What an operator does to a job by its id (V9, V10): cancel and retry.

Invariant: each job is answered for itself; a refusal changes nothing and does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from litequeue import rules
from litequeue.errors import DuplicateJob, InvalidTransition, JobNotFound
from litequeue.model import JobState
from litequeue.rules import Move, Verb
from litequeue.sqlite import moves
from litequeue.sqlite.context import Context
from litequeue.sqlite.rows import Row
from litequeue.sqlite.statements import SQL

Refusal = JobNotFound | InvalidTransition | DuplicateJob


def cancel(context: Context, job_ids: Sequence[UUID]) -> list[Refusal]:
    """Stop waiting and leased jobs; a holder's next word is refused, for its row has moved."""
    return _each(context, job_ids, Verb.CANCEL, lambda row: rules.cancel(row, context.now))


def retry(context: Context, job_ids: Sequence[UUID]) -> list[Refusal]:
    """Bring finished jobs back anew, and let gated ones go now."""
    return _each(context, job_ids, Verb.RETRY, lambda row: rules.retry(row, JobState(row.state)))


def _each(context: Context, job_ids: Sequence[UUID], verb: Verb, decide: Callable[[Row], Move]) -> list[Refusal]:
    refusals: list[Refusal] = []
    for job_id in job_ids:
        found = context.one(SQL.row_by_id, job_id.bytes)
        if found is None:
            refusals.append(JobNotFound(job_id))
            continue
        row = Row(*found)
        state = JobState(row.state)
        if not rules.may_act(verb, state):
            refusals.append(InvalidTransition(job_id, state.name.lower(), verb))
            continue
        if verb is Verb.RETRY:
            taken = _key_taken(context, row)
            if taken is not None:
                refusals.append(taken)
                continue
        moves.apply(context, [(row, decide(row))])
    return refusals


def _key_taken(context: Context, row: Row) -> DuplicateJob | None:
    """Say whether another active job has this job's idempotency key by now."""
    if row.idempotency_key is None:
        return None
    found = context.one(SQL.row_by_key, row.scope, row.kind, row.idempotency_key)
    if found is None or Row(*found).job_id == row.job_id:
        return None
    other = Row(*found).uuid
    message = f"cannot retry job {row.uuid}: its key {row.idempotency_key!r} belongs to job {other} now"
    return DuplicateJob(message, job_id=other, idempotency_key=row.idempotency_key)
