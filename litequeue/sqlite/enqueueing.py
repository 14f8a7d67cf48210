"""Enqueue (V1, V2): new jobs, repeated ids, repeated keys.

Owns: the encoding of a `NewJob` before the lock is taken, the room checks, and the application of what `rules` says of
a repeat. Invariant: results come in the order of the jobs, and a later job of the same call sees the earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from litequeue import codec, rules
from litequeue.errors import DuplicateJob, PayloadError, QueueFull, UsageError
from litequeue.ids import new_job_ids
from litequeue.model import Enqueued, JobState, NewJob, Placed, Transition
from litequeue.rules import Repeat
from litequeue.sqlite import chaining
from litequeue.sqlite.context import Context
from litequeue.sqlite.filesystem import FREE_SPACE_RESERVE_BYTES
from litequeue.sqlite.inserting import Encoded, insert, next_created_at
from litequeue.sqlite.moves import apply, rekey
from litequeue.sqlite.rows import Row
from litequeue.sqlite.statements import SQL


def encode(jobs: Iterable[NewJob], default_scope: str) -> list[Encoded]:
    """Encode jobs; nothing of this needs the lock.

    Raises:
        UsageError: something that is not a `NewJob`.
        PayloadError: a payload that cannot be stored.
    """
    given: object = jobs
    if not isinstance(given, Iterable):
        raise UsageError.of("jobs", given, "an iterable of NewJob objects")
    return [_encode(job, default_scope) for job in jobs]


def _encode(job: NewJob, default_scope: str) -> Encoded:
    if not isinstance(job, NewJob):
        raise UsageError.of("jobs", job, "NewJob objects")
    return encode_one(job.placed, job.payload, default_scope)


def encode_last(job: NewJob, default_scope: str) -> Encoded:
    """Encode the job that follows a group, however that ends.

    Raises:
        UsageError: not a `NewJob`, or one that waits for others, or may reset one that is there.
        PayloadError: its payload cannot be stored.
    """
    if not isinstance(job, NewJob):
        raise UsageError.of("then", job, "a NewJob")
    if job.placed.after:
        raise UsageError.of("then", job, "a job without `after`: it waits for the group")
    if job.placed.on_conflict == "reset":
        raise UsageError.of("on_conflict", job.placed.on_conflict, "return or raise for a job that waits for others")
    return _encode(job, default_scope)._replace(on_parent_failure="run")


def encode_one(placed: Placed, payload: object, default_scope: str) -> Encoded:
    """Encode a job whose other arguments have been checked.

    Raises:
        PayloadError: the payload cannot be stored.
    """
    (
        kind,
        scope,
        priority,
        delay_us,
        run_at,
        expires_us,
        max_attempts,
        idempotency_key,
        on_conflict,
        job_id,
        after,
        on_parent_failure,
        expires_on,
    ) = placed
    return Encoded(
        job_id,
        default_scope if scope is None else scope,
        kind,
        priority,
        max_attempts,
        delay_us,
        run_at,
        expires_us,
        idempotency_key,
        on_conflict,
        codec.encode(payload),
        after,
        on_parent_failure,
        expires_on,
    )


def enqueue(context: Context, jobs: list[Encoded], then: Encoded | None = None) -> list[Enqueued]:
    """Enqueue in order; a job `then` comes last, and waits for all the others.

    Raises:
        PayloadError: a payload beyond `max_payload`.
        QueueFull: `max_bytes` is reached.
        DuplicateJob: an id of another scope or kind, or a key with `on_conflict="raise"`.
        JobNotFound: a job to wait for that is not there.
    """
    plain_bytes = named_bytes = 0
    has_named = False
    for job in jobs if then is None else (*jobs, then):
        check_size(context, job.payload, "the payload of", job.kind)
        if job.is_named:
            has_named = True
            named_bytes += len(job.payload)
        else:
            plain_bytes += len(job.payload)
    if plain_bytes:  # before anything is written: a large batch fills the disk before it is committed
        check_reserve(context, plain_bytes)
    changes = context.connection.total_changes()
    results: list[Enqueued] = []
    plain: list[tuple[UUID, Encoded]] = []
    cancelled: set[UUID] = set()
    for job, fresh_id in zip(jobs, new_job_ids(context.now, len(jobs)), strict=True):
        if job.is_plain:
            plain.append((fresh_id, job))
            results.append(Enqueued(fresh_id, created=True))
        else:
            insert(context, plain)
            plain = []
            results.append(_enqueue_named(context, job, job.job_id or fresh_id, cancelled))
    insert(context, plain)
    if then is not None:
        results.append(_follow(context, then, results, cancelled))
    if context.connection.total_changes() > changes:
        if has_named:  # they may have been there already, and a repetition is answered on a full disk too
            check_reserve(context, named_bytes)
        check_max_bytes(context)
    else:
        sync_what_is_there(context)
    return results


def sync_what_is_there(context: Context) -> None:
    """Let a commit that answers with what is there already be as safe as one that makes it.

    What is there may be another handle's, of a mode that has not synced it. SQLite syncs the log with a commit that has
    something to write.
    """
    if context.is_synced:
        context.write(SQL.settings_changed, ())


def check_size(context: Context, encoded: bytes, *what: str) -> None:
    """Hold an encoded value against `max_payload`.

    Raises:
        PayloadError: it is larger; the message names both sizes.
    """
    most = context.settings.max_payload_bytes
    if len(encoded) > most:
        raise PayloadError(f"{' '.join(what)} has {len(encoded):,} bytes encoded; max_payload allows {most:,}")


def check_reserve(context: Context, payload_bytes: int) -> None:
    """Make sure that there is room on the disk: in the log now, and in the file when the log is copied back.

    Raises:
        QueueFull: there is not.
    """
    if not context.room.take(2 * payload_bytes):
        raise QueueFull(
            f"{payload_bytes:,} bytes more would touch the {FREE_SPACE_RESERVE_BYTES:,} kept free on the disk"
        )


def check_max_bytes(context: Context) -> None:
    """Hold what has just been written, and is not committed yet, against the limit; what raises is rolled back.

    Raises:
        QueueFull: `max_bytes` is passed.
    """
    most = context.settings.max_bytes
    if most is None:
        return
    used: int = context.all(SQL.pages_used)[0][0]
    if used > most:
        raise QueueFull(f"the queue would use {used:,} bytes; max_bytes allows {most:,}")


class _Group(NamedTuple):
    """The jobs that the last one of a batch waits for."""

    members: Sequence[UUID]
    made: frozenset[UUID]
    """Those that were made just now."""


def _follow(context: Context, then: Encoded, results: Sequence[Enqueued], cancelled: set[UUID]) -> Enqueued:
    """Enqueue the job that waits for the end of these, some of which have been cancelled at once."""
    members = tuple(dict.fromkeys(result.job_id for result in results))
    made = frozenset(result.job_id for result in results if result.created) - cancelled
    answer = _enqueue_named(
        context, then, then.job_id or new_job_ids(context.now, 1)[0], cancelled, _Group(members, made)
    )
    if answer.job_id in members:
        raise UsageError(f"then is job {answer.job_id} of the group itself, by its id or its key")
    return answer


def _enqueue_named(
    context: Context, job: Encoded, job_id: UUID, cancelled: set[UUID], group: _Group | None = None
) -> Enqueued:
    """Enqueue a job that may be there already, by its id or by its key, or that waits for others.

    Those of this call that waited in vain are `cancelled`: at once, so that no later one of it folds into them.
    """
    dead: Row | None = None
    if job.job_id is not None:
        same = _find(context, SQL.row_by_id, job_id.bytes)
        if same is not None:
            is_same_target = (same.scope, same.kind) == (job.scope, job.kind)
            match rules.repeat_of_id(JobState(same.state), same_target=is_same_target):
                case Repeat.REFUSE:
                    message = f"job {job_id} exists with scope {same.scope!r} and kind {same.kind!r}"
                    raise DuplicateJob(message, job_id=job_id)
                case Repeat.EXISTING if not _is_trigger(job, same):
                    return Enqueued(job_id, created=False)
                case Repeat.REQUEUE:
                    dead = same
        elif context.one(SQL.outbox_message, job_id.bytes) is not None:
            raise DuplicateJob(f"job {job_id} would have the id of a message in an outbox", job_id=job_id)
    if job.idempotency_key is not None:
        answer = _enqueue_keyed(context, job, job.idempotency_key)
        if answer is not None:
            return answer
    _make(context, job, job_id, dead, cancelled, group)
    return Enqueued(job_id, created=True)


def _make(  # noqa: PLR0917 - only `_enqueue_named` calls it
    context: Context,
    job: Encoded,
    job_id: UUID,
    dead: Row | None,
    cancelled: set[UUID],
    group: _Group | None,
) -> None:
    """Make a job, or queue a dead or cancelled one anew, behind the others that it is to wait for."""
    parents = None
    if group is not None:
        parents = chaining.look(context, group.members, cancelled, group.made)
    elif job.after:
        parents = chaining.look(context, job.after, cancelled)
    cause = None if parents is None else parents.cancels(job.on_parent_failure)
    waits = parents is not None and (cause is not None or bool(parents.missing))
    if dead is None:
        insert(context, [(job_id, job)], waits=waits)
    else:
        _requeue(context, dead, job, waits=waits)
    if parents is not None:
        chaining.add(context, job_id, parents, job.on_parent_failure, job.not_before(context.now))
    cancelled.discard(job_id)
    if cause is not None and (row := _find(context, SQL.row_by_id, job_id.bytes)) is not None:
        apply(context, [(row, rules.cancel(row, context.now, cause))])
        cancelled.add(job_id)


def _is_trigger(job: Encoded, same: Row) -> bool:
    """Tell whether a repeated id comes with the key of its active job and asks for a reset: no trigger is lost (V2)."""
    is_active = same.state != JobState.COMPLETED
    return is_active and job.on_conflict == "reset" and job.idempotency_key == same.idempotency_key is not None


def _enqueue_keyed(context: Context, job: Encoded, key: str) -> Enqueued | None:
    """Answer by the job that has the key, or `None` when a new one is to be made."""
    other = _find(context, SQL.row_by_key, job.scope, job.kind, key)
    if other is None:
        since = context.now - context.settings.idempotency_window_us
        other = _find(context, SQL.row_by_done_key, job.scope, job.kind, key, since)
    if other is None:
        return None
    match rules.repeat_of_key(JobState(other.state), job.on_conflict):
        case Repeat.REFUSE:
            message = f"key {key!r} of {job.kind} belongs to job {other.uuid}"
            raise DuplicateJob(message, job_id=other.uuid, idempotency_key=key)
        case Repeat.NEW:
            return None
        case Repeat.RESET:
            _reset(context, other, job)
        case Repeat.KEEP_TRIGGER:
            times = (job.not_before(context.now), job.expires_at(context.now))
            kept = (job.priority, *times, job.max_attempts, job.payload)
            context.write(SQL.rerun_put, (other.job_id, *kept))
        case _:
            pass
    return Enqueued(other.uuid, created=False)


def _requeue(context: Context, row: Row, new: Encoded, *, waits: bool) -> None:
    """Queue a dead or cancelled job anew in the same row: generation and log go on (V1)."""
    state, gate = (JobState.WAITING, None) if waits else rules.gate(new.not_before(context.now), context.now)
    if context.settings.has_chains:
        chaining.forget(context, (row.job_id,))
    rekey(
        context,
        row,
        state=state,
        priority=new.priority,
        created_at=next_created_at(context, new.scope, new.priority, waits=waits),
        attempts=0,
        reaps=0,
        max_attempts=new.max_attempts,
        not_before=gate,
        expires_at=new.expires_at(context.now),
        idempotency_key=new.idempotency_key,
        events=((Transition.ENQUEUED, "again"),),
        payload=new.payload,
    )


def _reset(context: Context, row: Row, new: Encoded) -> None:
    """Give a waiting job the new trigger's payload, priority and times; it keeps its place and its counts (V2).

    One that waits for other jobs goes on waiting for them.
    """
    state, gate = rules.gate(new.not_before(context.now), context.now)
    if row.state == JobState.WAITING:
        state, gate = JobState.WAITING, None
        chaining.delay(context, row.job_id, new.not_before(context.now))
    rekey(
        context,
        row,
        state=state,
        priority=new.priority,
        created_at=row.created_at,
        attempts=row.attempts,
        reaps=row.reaps,
        max_attempts=new.max_attempts or row.max_attempts,
        not_before=gate,
        expires_at=new.expires_at(context.now),
        idempotency_key=row.idempotency_key,
        events=((Transition.ENQUEUED, "reset"),),
        payload=new.payload,
    )


def _find(context: Context, statement: str, *values: object) -> Row | None:
    found = context.one(statement, *values)
    return None if found is None else Row(*found)
