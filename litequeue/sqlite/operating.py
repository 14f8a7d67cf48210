"""What an operator does to a job by its id (V9, V10, V16, V17): cancel, retry, edit and remove.

Invariant: each job is answered for itself; a refusal changes nothing and does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from litequeue import rules
from litequeue.errors import DuplicateJob, InvalidTransition, JobNotFound
from litequeue.model import Edit, JobState
from litequeue.rules import Verb
from litequeue.sqlite import chaining, moves, relaying, upkeep
from litequeue.sqlite.context import Context
from litequeue.sqlite.rows import Row
from litequeue.sqlite.statements import SQL

Refusal = JobNotFound | InvalidTransition | DuplicateJob


def cancel(context: Context, job_ids: Sequence[UUID]) -> list[Refusal]:
    """Stop waiting and leased jobs; a holder's next word is refused, for its row has moved.

    One that the end of another one given has cancelled is not refused.
    """
    stopped: set[UUID] = set()

    def stop(row: Row) -> None:
        stopped.add(row.uuid)
        moves.apply(context, [(row, rules.cancel(row, context.now))])

    may_follow = _stoppable(context, job_ids) if len(job_ids) > 1 and context.settings.has_chains else set()
    refusals = _each(context, job_ids, Verb.CANCEL, stop)
    return [refusal for refusal in refusals if refusal.job_id not in may_follow - stopped]


def _stoppable(context: Context, job_ids: Sequence[UUID]) -> set[UUID]:
    found = [context.one(SQL.row_by_id, job_id.bytes) for job_id in job_ids]
    rows = [Row(*values) for values in found if values is not None]
    return {row.uuid for row in rows if rules.may_act(Verb.CANCEL, JobState(row.state))}


def retry(context: Context, job_ids: Sequence[UUID]) -> list[Refusal]:
    """Bring finished jobs back anew, and let gated ones go now."""

    def bring_back(row: Row) -> Refusal | None:
        taken = _key_taken(context, row)
        if taken is None:
            moves.apply(context, [(row, rules.retry(row, JobState(row.state)))])
        return taken

    return _each(context, job_ids, Verb.RETRY, bring_back)


def edit(context: Context, job_ids: Sequence[UUID], change: Edit) -> list[Refusal]:
    """Change priority and gate of jobs that wait; each keeps its `created_at`, its counts and its payload."""

    def move(row: Row) -> None:
        not_before = change.not_before(context.now)
        if row.state == JobState.WAITING and not_before is not None:
            chaining.delay(context, row.job_id, not_before)
        found = rules.edit(JobState(row.state), row.priority, upkeep.gate_of(context, row), change, context.now)
        moves.rekey(
            context,
            row,
            state=found.to,
            priority=found.priority,
            created_at=row.created_at,
            attempts=row.attempts,
            reaps=row.reaps,
            max_attempts=row.max_attempts,
            not_before=found.not_before,
            expires_at=row.expires_at,
            idempotency_key=row.idempotency_key,
            events=found.events,
            payload=None,
        )

    return _each(context, job_ids, Verb.EDIT, move)


def remove(context: Context, job_ids: Sequence[UUID]) -> list[Refusal]:
    """Remove finished jobs with all that belongs to them, unless a repeat would not be known any more."""

    def drop(row: Row) -> Refusal | None:
        state = JobState(row.state)
        if row.scope.startswith(relaying.SCOPE_PREFIX) and state is JobState.DEAD:
            return InvalidTransition(row.uuid, state.name.lower(), Verb.REMOVE, ", and its outbox has to discard it")
        if rules.is_key_kept(row, state, context.now, window_us=context.settings.idempotency_window_us):
            return InvalidTransition(
                row.uuid, state.name.lower(), Verb.REMOVE, ", and its idempotency key still counts"
            )
        moves.remove(context, [row])
        return None

    return _each(context, job_ids, Verb.REMOVE, drop)


def _each(context: Context, job_ids: Sequence[UUID], verb: Verb, act: Callable[[Row], Refusal | None]) -> list[Refusal]:
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
        refusal = act(row)
        if refusal is not None:
            refusals.append(refusal)
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
