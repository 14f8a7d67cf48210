"""Applying decisions: the one place where a row leaves its key for the next.

Every transition but the lease goes through `apply`. Invariants: the row is matched by its full key, its worker and its
generation, and the count is checked (contract G1, G7); what lives only as long as a lease goes with it; a finished job
whose retention is 0 goes at once; a trigger that `reset` kept during a run becomes what `rules` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from litequeue import codec, rules
from litequeue.ids import new_job_ids
from litequeue.model import JobState, Transition, lease_summary
from litequeue.rules import Move, TriggerFate
from litequeue.sqlite import chaining, relaying, slots
from litequeue.sqlite.context import Context, DeadLetter
from litequeue.sqlite.inserting import Encoded, insert
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.ringing import announce
from litequeue.sqlite.rows import Row, Values
from litequeue.sqlite.statements import SQL

Events = tuple[tuple[Transition, str], ...]
"""Lines for a job's log: what happened, and a detail."""


class Trigger(NamedTuple):
    """A trigger kept by `reset` during a run; its times are absolute."""

    priority: int
    not_before: int | None
    expires_at: int | None
    max_attempts: int | None
    payload: bytes


def apply(  # noqa: C901, PLR0912 - one pass over a batch, where calls would cost as much as what they do
    context: Context, moves: Sequence[tuple[Row, Move]], results: Sequence[bytes | None] | None = None
) -> None:
    """Move each row to where its decision says; `results` go with completions, in the same order."""
    moved: list[Values] = []
    removed: list[Row] = []
    waiting: list[tuple[str, int | None]] = []
    triggered: list[tuple[Row, Move, Trigger]] = []
    delivered: list[Row] = []
    encoded: dict[Events, bytes] = {}
    for index, (row, decided) in enumerate(moves):
        move = decided
        if row.idempotency_key is not None and row.state == JobState.LEASED:
            trigger = _take_trigger(context, row)
            if trigger is not None:
                if rules.trigger_fate(move.to) is TriggerFate.FOLD:
                    move = rules.folded(move, trigger.not_before, trigger.expires_at, context.now)
                triggered.append((row, move, trigger))
        if row.checkpoints:
            context.write(SQL.continuation_remove, (row.job_id,))
        to = move.to
        is_end = to.is_terminal
        context.has_ended |= is_end
        if is_end and retention_us(context, row.kind, to, row.idempotency_key) == 0:
            removed.append(row)  # a completed key is kept for its window
        else:
            events = ending(row, move)
            more = encoded.get(events)
            if more is None:
                more = encoded[events] = _encoded(context, events)
            make_room(context, row, len(more))
            fixed = (to, move.attempts, move.reaps, move.not_before, move.expires_at, move.finished_at, more)
            moved.append((*fixed, *row.key, row.worker_id, row.lease_generation))
            write_outcome(context, row, move, None if results is None else results[index])
            if is_end and to is not JobState.DEAD and row.scope.startswith(relaying.SCOPE_PREFIX):
                delivered.append(row)
        if to.is_waiting:
            waiting.append((row.scope, move.not_before))
        elif to is JobState.DEAD:
            context.dead_letters.append(DeadLetter(row.uuid, row.kind, move.error or ""))
    announce(context, waiting)
    if context.settings.has_limits:
        slots.give(context, [row for row, _ in moves if row.state == JobState.LEASED])
    if moved:
        context.write_exactly(SQL.move, moved)
    is_awaited = context.settings.has_chains and chaining.note(context, moves)
    remove(context, removed)
    relaying.advance(context, delivered)
    for row, move, trigger in triggered:
        _pull(context, row, move, trigger)
    if is_awaited and not context.is_telling:
        context.tells_left -= tell(context, context.tells_left)
        context.rings |= chaining.is_behind(context)  # whoever waits for work does the rest


def tell(context: Context, limit: int) -> int:
    """Tell up to `limit` gates of the ends that they wait for, in order, and move their jobs; return how many were.

    What these moves lead to in turn comes behind what is noted already, and is within the limit as well.
    """
    done = 0
    context.is_telling = True
    try:
        while done < limit and (told := chaining.step(context, limit - done)) is not None:
            done += told.done
            apply(context, told.moves)
    finally:
        context.is_telling = False
    return done


def remove(context: Context, rows: Sequence[Row]) -> None:
    """Delete jobs with all that belongs to them."""
    if not rows:
        return
    context.write_exactly(SQL.job_remove, [(*row.key, row.lease_generation) for row in rows])
    ids = [(row.job_id,) for row in rows]
    context.cursor.executemany(SQL.body_remove, ids)
    context.cursor.executemany(SQL.outcome_remove, ids)
    if context.settings.has_chains:
        chaining.forget(context, [row.job_id for row in rows])
    relaying.advance(context, rows)


def event_bytes(context: Context, row: Row, events: Events) -> bytes:
    """Encode what is to be appended to a row's log, and make room for it."""
    encoded = _encoded(context, events)
    make_room(context, row, len(encoded))
    return encoded


def _encoded(context: Context, events: Events) -> bytes:
    return b"".join([codec.encode_event(context.now, *event) for event in events])


def make_room(context: Context, row: Row, more_bytes: int) -> None:
    """Shorten a row's log when it has no room for so many bytes more."""
    if row.events_bytes + more_bytes > codec.MAX_EVENTS_BYTES:
        old: bytes = context.all(SQL.events, *row.key)[0][0]
        shorter = codec.trimmed_events(old, more_bytes)
        context.write_exactly(SQL.events_replace, [(shorter, *row.key, row.lease_generation)])


def rekey(
    context: Context,
    row: Row,
    *,
    state: JobState,
    priority: int,
    created_at: int,
    attempts: int,
    reaps: int,
    max_attempts: int | None,
    not_before: int | None,
    expires_at: int | None,
    idempotency_key: str | None,
    events: Events,
    payload: bytes | None,
) -> None:
    """Give a waiting or finished job a new place, gate and payload; `None` keeps the one that it has."""
    if state is not JobState.WAITING:
        announce(context, [(row.scope, not_before)])
    more = event_bytes(context, row, events)
    changed = (
        int(state),
        priority,
        created_at,
        attempts,
        reaps,
        max_attempts,
        not_before,
        expires_at,
        idempotency_key,
        more,
    )
    context.write_exactly(SQL.rekey, [(*changed, *row.key, row.lease_generation)])
    if payload is not None:
        context.write_exactly(SQL.body_replace, [(priority, created_at, payload, row.job_id)])
    elif (priority, created_at) != (row.priority, row.created_at):
        context.write_exactly(SQL.body_moved, [(priority, created_at, row.job_id)])


def ending(row: Row, move: Move) -> Events:
    """Return what is logged of a move: first, in one line each, the heartbeats and checkpoints of a lease that ends."""
    if row.beats or row.checkpoints:
        return (*lease_summary(row.beats, row.checkpoints), *move.events)
    return move.events


def write_outcome(context: Context, row: Row, move: Move, result: bytes | None = None) -> None:
    """Keep what the ended run left; a success without a result clears the error of an earlier one."""
    if move.error is not None:
        error = codec.clip(move.error, codec.MAX_ERROR_BYTES)
        context.write(SQL.outcome_put, (row.job_id, None, error))
    elif move.to is JobState.COMPLETED:
        if result is not None:
            context.write(SQL.outcome_put, (row.job_id, result, None))
        elif row.may_have_outcome:
            context.write(SQL.outcome_remove, (row.job_id,))


def retention_us(reader: Reader, kind: str, state: JobState, key: str | None) -> int | None:
    """Return how long a job of this kind stays after it finished so, in µs; `None` is forever."""
    return rules.retention_us(
        state,
        reader.settings.of(kind),
        has_key=key is not None,
        window_us=reader.settings.idempotency_window_us,
    )


def _take_trigger(context: Context, row: Row) -> Trigger | None:
    """Fetch and remove the trigger that waits for this run to end; only a leased job with a key can have one."""
    found = context.one(SQL.rerun, row.job_id)
    if found is None:
        return None
    context.write_exactly(SQL.rerun_remove, [(row.job_id,)])
    return Trigger(*found)


def _pull(context: Context, row: Row, move: Move, trigger: Trigger) -> None:
    """Let the trigger have its effect, now that the run's row has moved."""
    match rules.trigger_fate(move.to):
        case TriggerFate.NEW_JOB:
            new = Encoded(
                job_id=None,
                scope=row.scope,
                kind=row.kind,
                priority=trigger.priority,
                max_attempts=trigger.max_attempts,
                delay_us=None,
                run_at=trigger.not_before,
                expires_us=None,
                idempotency_key=row.idempotency_key,
                on_conflict="return",
                payload=trigger.payload,
                expires_on=trigger.expires_at,
            )
            insert(context, [(new_job_ids(context.now, 1)[0], new)])
        case TriggerFate.FOLD:
            moved = row._replace(state=int(move.to), events_bytes=0)
            rekey(
                context,
                moved,
                state=move.to,
                priority=trigger.priority,
                created_at=row.created_at,
                attempts=move.attempts,
                reaps=move.reaps,
                max_attempts=trigger.max_attempts or row.max_attempts,
                not_before=move.not_before,
                expires_at=move.expires_at,
                idempotency_key=row.idempotency_key,
                events=(),
                payload=trigger.payload,
            )
        case TriggerFate.DROP:
            pass
