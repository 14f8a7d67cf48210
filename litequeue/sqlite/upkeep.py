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
from litequeue.model import JobState
from litequeue.settings import Settings
from litequeue.sqlite import moves, presence
from litequeue.sqlite.context import Context
from litequeue.sqlite.place import Place
from litequeue.sqlite.reader import Reader, onward
from litequeue.sqlite.ringing import announce
from litequeue.sqlite.rows import Key, Row
from litequeue.sqlite.statements import SQL

STEP = 100
"""Jobs moved in one transaction: about two milliseconds under the lock."""
SHRINK_S = 0.002
"""How long one transaction gives pages back; each may have to be searched for, and may move another one."""
SPARE_BYTES = 8 * 2**20
"""Room that always stays in the file for reuse, and an eighth of what is in use where that is more."""
LOOK = 1000
"""Finished jobs looked at in one step of pruning, without the lock."""

_RETENTIONS: dict[int, str] = {
    JobState.COMPLETED: "completed_retention",
    JobState.DEAD: "dead_retention",
    JobState.CANCELLED: "cancelled_retention",
}
_GROUP_START = (-1, b"")
_BEFORE_ALL: Key = ("", -1, -1, *_GROUP_START)
_INCREMENTAL = 2
"""`PRAGMA auto_vacuum` of a file that gives pages back when it is told to."""
_SHRINK_PAGES = 16
"""Pages given back between two looks at the clock."""
_NEXT = "\x01"
"""Below every character that a scope's name may have."""


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


def promote(context: Context, scope: str, limit: int) -> int:
    """Make up to `limit` due jobs of a scope ready; return how many were moved."""
    rows = _rows(context, SQL.due, scope, context.now, limit)
    moves.apply(context, [(row, rules.promote(row, context.now)) for row in rows])
    return len(rows)


def expire(context: Context, scope: str, limit: int) -> int:
    """Bury up to `limit` waiting jobs of a scope that can no longer start in time; return how many."""
    rows = _rows(context, SQL.overdue, scope, context.now, limit)
    moves.apply(context, [(row, rules.expire(row, context.now)) for row in rows])
    return len(rows)


def step(context: Context, scope: str) -> int:
    """Do what a lease call does before it answers that nothing is ready (contract §3)."""
    return reap(context, STEP) + expire(context, scope, STEP) + promote(context, scope, STEP)


def distant(reader: Reader, scope: str) -> list[tuple[Row, int]]:
    """Find the back-offs of a scope that a backward step of the wall clock made longer, and the gates to set (§5).

    Looks at every back-off that is longer than its kind's cap, without the lock.
    """
    found = []
    for row in _rows(reader, SQL.distant, scope, reader.now + _least_cap_us(reader.settings)):
        old_gate = row.not_before or 0
        settings = reader.settings.of(row.kind)
        if old_gate - reader.now > settings.backoff_cap_us:
            usual_us = settings.backoff_us(row.attempts, 1.0)
            gate = rules.pulled_in(old_gate, _last_event_at(reader, row), reader.now, usual_us)
            if gate is not None and gate < old_gate:
                found.append((row, gate))
    return found


def pull_in(context: Context, found: list[tuple[Row, int]]) -> int:
    """Set the gates of those jobs that still stand as they were found; return how many."""
    announce(context, [(row.scope, gate) for row, gate in found])
    return sum(context.write(SQL.regate, (gate, *row.key, row.lease_generation)) for row, gate in found)


def scopes(reader: Reader) -> Iterator[str]:
    """Walk the distinct scopes that have jobs, one seek each, in order."""
    start = ""
    while (found := reader.one(SQL.scope_from, start)) is not None:
        scope: str = onward(found[0], start)
        yield scope
        start = scope + _NEXT


def has_lapsed(reader: Reader) -> bool:
    """Tell whether `reap` would find something."""
    return reader.one(SQL.lapsed, reader.lease_now, 1) is not None


def has_due(reader: Reader, scope: str) -> bool:
    """Tell whether `promote` would find something."""
    return reader.one(SQL.due, scope, reader.now, 1) is not None


def has_overdue(reader: Reader, scope: str) -> bool:
    """Tell whether `expire` would find something."""
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
