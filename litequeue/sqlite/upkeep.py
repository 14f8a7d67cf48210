"""Upkeep (V11): what lapsed, what is due, what is too late, what may go.

Owns: one bounded step of each, and the questions that tell whether a step is worth a write lock. Invariant: a step
touches at most `limit` jobs and is safe beside everything else; repeating it until it answers 0 finishes the work.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from typing import NamedTuple

from litequeue import codec, rules
from litequeue.errors import RecordError
from litequeue.model import JobState, Transition
from litequeue.settings import Settings
from litequeue.sqlite import moves, presence
from litequeue.sqlite.context import Context
from litequeue.sqlite.place import Place
from litequeue.sqlite.reader import Reader, onward
from litequeue.sqlite.ringing import announce
from litequeue.sqlite.rows import AFTER_ALL_NAMES, NEXT_NAME, Key, Row, Values
from litequeue.sqlite.statements import SQL

STEP = 100
"""Jobs moved in one transaction: about two milliseconds under the lock."""
SHRINK_S = 0.002
"""How long one transaction gives pages back; each may have to be searched for, and may move another one."""
SPARE_BYTES = 8 * 2**20
"""Room that always stays in the file for reuse, and an eighth of what is in use where that is more."""
LOOK = 1000
"""Finished jobs looked at in one step of pruning, without the lock; scopes looked at in one of promotion."""

_RETENTIONS: dict[int, str] = {
    JobState.COMPLETED: "completed_retention",
    JobState.DEAD: "dead_retention",
    JobState.CANCELLED: "cancelled_retention",
}
_GROUP_START = (-1, b"")
_BEFORE_ALL: Key = ("", -1, -1, *_GROUP_START)
Gate = tuple[int, str, int, int, int, bytes]
"""(not_before, and the full key): where a gated job stands among those of all scopes."""
_AFTER_ALL_KEYS: Key = (AFTER_ALL_NAMES, 9, 0, 0, b"")
_INCREMENTAL = 2
"""`PRAGMA auto_vacuum` of a file that gives pages back when it is told to."""
_SHRINK_PAGES = 16
"""Pages given back between two looks at the clock."""
_FEW = 10
"""Due jobs of each scope in one step, while more wait than fit into it."""


class Prunable(NamedTuple):
    """Finished jobs whose retention is over, and where to look on; `None` is the end."""

    rows: list[Row]
    after: Key | None


def reap(context: Context, limit: int) -> int:
    """Take back up to `limit` jobs, of any scope, whose lease has lapsed; return how many."""
    rows = _rows(context, SQL.lapsed, context.lease_now, limit)
    moves.apply(context, [(row, _reaped(context, row, rules.LEASE_EXPIRED)) for row in rows])
    return len(rows)


def dead_holders(reader: Reader, place: Place) -> list[int]:
    """Return the ids of the holders whose process has died."""
    return presence.dead(place, reader.all(SQL.holders))


def held_by(reader: Reader, holder_id: int) -> list[Row]:
    """Return what a holder has leased; for a dead one that is final once its death is known."""
    return _rows(reader, SQL.held_by, holder_id)


def reap_found(context: Context, found: list[Row]) -> int:
    """Take back those of a dead holder's jobs that still stand as they were found; return how many."""
    leases = {(row.job_id, row.lease_generation) for row in found}
    rows = context.each(SQL.row_at, [row.key for row in found])
    held = [row for row in rows if (row.job_id, row.lease_generation) in leases]
    moves.apply(context, [(row, _reaped(context, row, rules.WORKER_DIED)) for row in held])
    return len(held)


def forget_holder(context: Context, holder_id: int) -> None:
    """Remove the row of a holder that has no leases any more."""
    context.write(SQL.holder_remove, (holder_id,))


def promote(context: Context, scope: str | None, limit: int) -> int:
    """Make up to `limit` due jobs of a scope, or of any, ready; return how many were moved."""
    if scope is None:
        return _promote(context, _rows(context, SQL.due_anywhere, context.now, limit))
    return _promote(context, _rows(context, SQL.due, scope, context.now, limit))


def expire(context: Context, scope: str | None, limit: int) -> int:
    """Bury up to `limit` waiting jobs of a scope, or of any, that can no longer start in time; return how many."""
    if scope is None:
        rows = _rows(context, SQL.overdue_anywhere, context.now, limit)
    else:
        rows = _rows(context, SQL.overdue, scope, context.now, limit)
    moves.apply(context, [(row, rules.expire(row, context.now)) for row in rows])
    return len(rows)


class Flood:
    """Where in the scopes promotion goes on when more jobs are due than one step takes."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = ""


def step(context: Context, scope: str | None, flood: Flood) -> int:
    """Do what a lease call does before it answers that nothing is ready, in a scope or in all (contract §3)."""
    moved = reap(context, STEP) + expire(context, scope, STEP)
    if context.settings.has_chains:
        moved += moves.tell(context, STEP)
    if scope is not None:
        return moved + promote(context, scope, STEP)
    return moved + _promote(context, _due_anywhere(context, flood))


def _due_anywhere(reader: Reader, flood: Flood) -> list[Row]:
    """Return up to `STEP` due jobs of any scope; of more, a few of each scope in turn, so that none hides another's."""
    earliest = _rows(reader, SQL.due_anywhere, reader.now, STEP)
    if len(earliest) < STEP:
        return earliest
    found = {row.key: row for row in _few_of_each(reader, flood)}
    for row in earliest:
        if len(found) < STEP:
            found[row.key] = row
    return list(found.values())


def _few_of_each(reader: Reader, flood: Flood) -> Iterator[Row]:
    """Walk round the scopes that have due jobs, from where the last walk ended, for as many as a step takes."""
    start, below = flood.at, AFTER_ALL_NAMES
    looks, found = LOOK, 0
    while looks > 0 and found < STEP:
        scope, looked = reader.all(SQL.due_scope, flood.at, below, reader.now, looks)[0]
        looks -= looked
        if scope is not None:
            rows = _rows(reader, SQL.due, scope, reader.now, min(_FEW, STEP - found))
            flood.at = onward(scope, flood.at) + NEXT_NAME
            found += len(rows)
            yield from rows
        elif below == start:
            break
        else:
            flood.at, below = "", start


def _promote(context: Context, rows: list[Row]) -> int:
    moves.apply(context, [(row, rules.promote(row, context.now)) for row in rows])
    return len(rows)


class Distant(NamedTuple):
    """Pauses that are longer than they were made, with when each was made, and where to look on; `None` is the end."""

    found: list[tuple[Row, int]]
    after: Gate | None


def distant(reader: Reader, after: Gate | None) -> Distant:
    """Find pauses that a backward step of the wall clock made longer (§5), after a place, in the order of their gates.

    Looks at up to `LOOK` that are longer than the least cap of any kind, without the lock.
    """
    place = (reader.now + _least_cap_us(reader.settings), *_AFTER_ALL_KEYS) if after is None else after
    rows = _rows(reader, SQL.distant, *place, LOOK)
    found = []
    for row in rows:
        gate = row.not_before or 0
        if gate - reader.now > reader.settings.of(row.kind).backoff_cap_us:
            set_at = _last_event_at(reader, row)
            if rules.pulled_in(gate, set_at, reader.now) is not None:
                found.append((row, set_at))
    last = (rows[-1].not_before or 0, *rows[-1].key) if len(rows) == LOOK else None
    return Distant(found, last if last is None else onward(last, place))


def pull_in(context: Context, found: list[tuple[Row, int]]) -> int:
    """Set the gates of those jobs that still stand as they were found; return how many.

    The log says so: by its last event the next pass sees that the gate was set by the clock of now, and stands.
    """
    set_at = {(row.job_id, row.lease_generation, row.not_before): moment for row, moment in found}
    bindings: list[Values] = []
    for row in context.each(SQL.row_at, [row.key for row, _ in found]):
        moment = set_at.get((row.job_id, row.lease_generation, row.not_before), 0)
        gate = rules.pulled_in(row.not_before or 0, moment, context.now)
        if gate is not None:
            announce(context, [(row.scope, gate)])
            more = moves.event_bytes(context, row, ((Transition.NOTE, rules.PULLED_IN),))
            bindings.append((gate, more, *row.key, row.lease_generation))
    context.write_exactly(SQL.regate, bindings)
    return len(bindings)


def gate_of(reader: Reader, row: Row) -> int | None:
    """Return a job's gate as it is meant: of a pause that a backward step of the clock made longer, its own length."""
    gate = row.not_before
    if gate is None or row.state != JobState.RETRYABLE:
        return gate
    if gate - reader.now <= reader.settings.of(row.kind).backoff_cap_us:
        return gate
    pulled = rules.pulled_in(gate, _last_event_at(reader, row), reader.now)
    return gate if pulled is None else pulled


def scopes(reader: Reader) -> Iterator[str]:
    """Walk the distinct scopes that have jobs, one seek each, in order."""
    start = ""
    while (found := reader.one(SQL.scope_from, start)) is not None:
        scope: str = onward(found[0], start)
        yield scope
        start = scope + NEXT_NAME


def has_lapsed(reader: Reader) -> bool:
    """Tell whether `reap` would find something."""
    return reader.one(SQL.lapsed, reader.lease_now, 1) is not None


def has_due(reader: Reader, scope: str | None) -> bool:
    """Tell whether `promote` would find something, in a scope or in any."""
    if scope is None:
        return reader.one(SQL.due_anywhere, reader.now, 1) is not None
    return reader.one(SQL.due, scope, reader.now, 1) is not None


def has_overdue(reader: Reader, scope: str | None) -> bool:
    """Tell whether `expire` would find something, in a scope or in any."""
    if scope is None:
        return reader.one(SQL.overdue_anywhere, reader.now, 1) is not None
    return reader.one(SQL.overdue, scope, reader.now, 1) is not None


def prunable(reader: Reader, after: Key | None) -> Prunable:
    """Look at up to `LOOK` finished jobs in key order, after a place; return those whose retention is over.

    Group by group (scope, state, priority), each only up to the youngest `created_at` that can be over, because
    `finished_at` is never before it (DESIGN §2).
    """
    looked = 0
    over: list[Row] = []
    place: Key | None = _BEFORE_ALL if after is None else after
    while place is not None:
        before = place
        retention = _RETENTIONS.get(place[1])
        least_us = None if retention is None else reader.settings.least_retention_us(retention)
        if least_us is not None:
            rows = _rows(reader, SQL.finished, *place, reader.now - least_us, LOOK)
            over += [row for row in rows if _is_over(reader, row)]
            looked += len(rows)
            if len(rows) == LOOK:
                return Prunable(over, onward(rows[-1].key, (*place[:4], place[4] + b"\0")))
        group = reader.one(SQL.group_after, *place[:3])
        place = None if group is None else (group[0], group[1], group[2], *_GROUP_START)
        if place is not None:
            onward(place, (*before[:3], 0, b""))
        looked += 1
        if looked >= LOOK:
            break
    return Prunable(over, place)


def prune(context: Context, found: list[Row]) -> int:
    """Remove those of the found jobs that are still as they were found; return how many."""
    rows = context.each(SQL.row_at, [row.key for row in found])
    over = [row for row in rows if _is_over(context, row)]
    moves.remove(context, over)
    return len(over)


class Surplus(NamedTuple):
    """Pages to give back to the disk."""

    pages: int
    page_bytes: int


def surplus(reader: Reader, *, is_short_of_room: bool) -> Surplus:
    """Return the pages that are to be given back: all that are unused when the disk is short of room.

    Else none before they are a quarter of the file and `2 * SPARE_BYTES`, and then down to what is kept for reuse: a
    queue whose jobs come and go would otherwise move pages at each pass, and ask the disk for them again soon. A file
    that was another application's first cannot give any back (its `auto_vacuum`), or does so by itself.
    """
    pages, unused, page_bytes, vacuum = reader.all(SQL.room)[0]
    if vacuum != _INCREMENTAL:
        return Surplus(0, page_bytes)
    if is_short_of_room:
        return Surplus(unused, page_bytes)
    if unused * page_bytes <= 2 * SPARE_BYTES or unused <= pages // 4:
        return Surplus(0, page_bytes)
    return Surplus(unused - max(SPARE_BYTES // page_bytes, (pages - unused) // 8), page_bytes)


class Shrunk(NamedTuple):
    """What a step has given back."""

    unused: int
    """Pages that were unused."""
    pages: int
    """By how many the file is shorter: those, and some in which SQLite has kept where each page belongs."""


def shrink(context: Context, most: int) -> Shrunk:
    """Give up to `most` unused pages back, for `SHRINK_S`; the file is cut when the log is copied back."""
    pages, unused = context.all(SQL.room)[0][:2]
    began = time.monotonic()
    for left in range(most, 0, -_SHRINK_PAGES):
        context.connection.execute(f"PRAGMA incremental_vacuum({min(left, _SHRINK_PAGES)})").fetchall()
        if time.monotonic() - began >= SHRINK_S:
            break
    pages_left, unused_left = context.all(SQL.room)[0][:2]
    return Shrunk(unused - unused_left, pages - pages_left)


def _last_event_at(reader: Reader, row: Row) -> int:
    """Return when a job's last event was logged, by the wall clock of then; 0 when its log cannot be read."""
    with contextlib.suppress(RecordError):
        events = codec.decode_events(reader.all(SQL.events, *row.key)[0][0], row.uuid)
        return events[-1].at if events else 0
    return 0


def _reaped(context: Context, row: Row, cause: str) -> rules.Move:
    settings = context.settings.of(row.kind)
    return rules.reap(
        row,
        context.now,
        cause=cause,
        max_attempts=row.max_attempts or settings.max_attempts,
        pause_us=settings.backoff_us(row.attempts, random.random()),
    )


def _is_over(reader: Reader, row: Row) -> bool:
    kept_us = moves.retention_us(reader, row.kind, JobState(row.state), row.idempotency_key)
    return kept_us is not None and (row.finished_at or 0) + kept_us <= reader.now


def _least_cap_us(settings: Settings) -> int:
    return min(settings.of(kind).backoff_cap_us for kind in ("", *settings.by_kind))


def _rows(reader: Reader, statement: str, *values: object) -> list[Row]:
    return [Row(*found) for found in reader.all(statement, *values)]
