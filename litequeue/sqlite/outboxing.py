"""Messages of outboxes: how they are put, and how an operator takes one away.

Invariants: a message is put once, whatever is put by its id again; one whose key has others waits behind them, and is
no job, so the length of a key costs nobody anything. Leaves out: who comes next (`relaying`).
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from litequeue import rules
from litequeue.errors import DuplicateJob, InvalidTransition, JobNotFound
from litequeue.ids import new_job_ids
from litequeue.model import Enqueued, JobState
from litequeue.rules import Verb
from litequeue.sqlite import enqueueing, moves, relaying
from litequeue.sqlite.context import Context
from litequeue.sqlite.inserting import insert
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.rows import Row
from litequeue.sqlite.statements import SQL


class EncodedMessage(NamedTuple):
    """A message that has passed every check that needs no lock."""

    scope: str
    key: str | None
    message_id: UUID | None
    payload: bytes


def put(context: Context, message: EncodedMessage) -> Enqueued:
    """Put a message behind those of its key, unless its id is there.

    Raises:
        PayloadError: it is larger than `max_payload`.
        QueueFull: `max_bytes`, or the room left on the disk, forbids it.
        DuplicateJob: its id belongs to something else.
    """
    scope, key, message_id, payload = message
    enqueueing.check_size(context, payload, "the message")
    if message_id is not None and _is_there(context, scope, message_id):
        enqueueing.sync_what_is_there(context)
        return Enqueued(message_id, created=False)
    enqueueing.check_reserve(context, len(payload))
    job_id = message_id or new_job_ids(context.now, 1)[0]
    last = None if key is None else context.one(SQL.outbox_last, scope, key)
    if last is None:
        insert(context, [(job_id, relaying.new_job(scope, payload))])
    if key is not None:
        position, kept = (1, None) if last is None else (last[0] + 1, payload)
        context.write(SQL.outbox_add, (scope, key, position, job_id.bytes, kept))
    enqueueing.check_max_bytes(context)
    return Enqueued(job_id, created=True)


def discard(context: Context, scope: str, message_id: UUID) -> None:
    """Take away a message that is not delivered, so that the next one of its key has its turn.

    Raises:
        JobNotFound: the outbox has no such message.
        InvalidTransition: it is delivered, or was discarded.
    """
    place = relaying.place_of(context, message_id.bytes)
    if place is not None and place.scope == scope and place.waits:
        relaying.take_out(context, place, message_id.bytes)
        return
    row = _row(context, message_id)
    if row is None or row.scope != scope:
        raise JobNotFound(message_id)
    state = JobState(row.state)
    if state is JobState.DEAD:
        moves.remove(context, [row])
    elif rules.may_act(Verb.CANCEL, state):
        moves.apply(context, [(row, rules.cancel(row, context.now))])
    else:
        raise InvalidTransition(message_id, state.name.lower(), "discard")


def waiting(reader: Reader, scope: str) -> int:
    """Count the messages that wait behind others of their key."""
    count: int = reader.all(SQL.outbox_waiting, scope)[0][0]
    return count


def _is_there(context: Context, scope: str, message_id: UUID) -> bool:
    found = relaying.place_of(context, message_id.bytes) or _row(context, message_id)
    if found is None:
        return False
    if found.scope != scope:
        raise DuplicateJob(f"the id {message_id} belongs to a job, or a message of another outbox", job_id=message_id)
    return True


def _row(context: Context, message_id: UUID) -> Row | None:
    found = context.one(SQL.row_by_id, message_id.bytes)
    return None if found is None else Row(*found)
