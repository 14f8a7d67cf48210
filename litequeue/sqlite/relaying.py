"""The order within a key of an outbox: the next message becomes a job in the commit in which the one before it ends.

Invariants: of each key the first message, and no other, is a job; it stands until it is delivered or discarded, so
while it is held, waits out its back-off or is dead, none behind it is delivered. Each end costs a fixed number of
seeks, however many messages wait. Leaves out: how messages are put (`outboxing`), and what jobs are made of
(`inserting`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from litequeue.arguments import RESERVED_PREFIX
from litequeue.sqlite.context import Context
from litequeue.sqlite.inserting import Encoded, insert
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.rows import Row
from litequeue.sqlite.statements import SQL

SCOPE_PREFIX = RESERVED_PREFIX + "outbox:"
_KIND_PREFIX = "outbox:"
_PRIORITY = 100


class Place(NamedTuple):
    """Where a message stands that is not delivered."""

    scope: str
    key: str
    position: int
    waits: bool
    """Whether others of its key are before it."""


def kind_of(name: str) -> str:
    """Return the kind of the jobs of an outbox, by which its settings go."""
    return _KIND_PREFIX + name


def new_job(scope: str, payload: bytes) -> Encoded:
    """Return the job of a message."""
    kind = kind_of(scope.removeprefix(SCOPE_PREFIX))
    return Encoded(None, scope, kind, _PRIORITY, None, None, None, None, None, "return", payload)


def place_of(reader: Reader, job_id: bytes) -> Place | None:
    """Find a message that has a key; `None` when it is delivered, discarded, or none."""
    found = reader.one(SQL.outbox_message, job_id)
    return None if found is None else Place(found[0], found[1], found[2], bool(found[3]))


def advance(context: Context, ended: Iterable[Row]) -> None:
    """Let those come next whose turn it is after these jobs, which have been delivered, discarded or removed."""
    for row in ended:
        if row.scope.startswith(SCOPE_PREFIX):
            place = place_of(context, row.job_id)
            if place is not None:  # else it has no key, or was delivered before
                take_out(context, place, row.job_id)
                _begin_first(context, place.scope, place.key)


def take_out(context: Context, place: Place, job_id: bytes) -> None:
    """Remove a message from the order of its key."""
    context.write_exactly(SQL.outbox_remove, [(*place[:3], job_id)])


def _begin_first(context: Context, scope: str, key: str) -> None:
    found = context.one(SQL.outbox_first, scope, key)
    if found is not None:
        position, job_id, payload = found
        context.write_exactly(SQL.outbox_begin, [(scope, key, position, job_id)])
        insert(context, [(UUID(bytes=job_id), new_job(scope, payload))])
