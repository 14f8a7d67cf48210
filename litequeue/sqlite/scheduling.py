"""Schedules as rows: declared, paused, removed, and fired.

Invariants: the jobs of boundaries and the advance of the stored boundary are one transaction, and the advance is a
compare-and-set on the boundary that was seen, so whoever comes second makes nothing; a boundary never goes back below
one that was fired. A row that cannot be read is that schedule's trouble alone. Leaves out: what a spec means, and what
becomes of missed boundaries (`schedules`).
"""

from __future__ import annotations

from typing import NamedTuple

from litequeue import boundaries, codec, schedules
from litequeue.errors import RecordError, ScheduleNotFound, StorageCorrupt, UsageError
from litequeue.model import Enqueued, Misfire, Schedule, public_scope
from litequeue.schedules import Plan, Rule
from litequeue.sqlite import enqueueing
from litequeue.sqlite.context import Context
from litequeue.sqlite.inserting import Encoded
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.rows import Values
from litequeue.sqlite.statements import SQL

PAGE = 100
"""Due schedules in one look."""
BEFORE_ALL = (-1, "")
"""The place before all, in the order of (boundary, name)."""
_TEXT, _WHOLE, _MAYBE_WHOLE = (str,), (int,), (int, type(None))
_TYPES: tuple[tuple[type, ...], ...] = (
    *(_TEXT,) * 5,
    _WHOLE,
    *(_MAYBE_WHOLE,) * 2,
    _TEXT,
    *(_WHOLE,) * 3,
    *(_MAYBE_WHOLE,) * 2,
    *(_WHOLE,) * 2,
    (bytes,),
)
"""What the columns of the part `schedule` may be, in their order; the table is STRICT, but files are damaged."""


class Declared(NamedTuple):
    """A schedule that has passed every check that needs no lock."""

    name: str
    spec: str
    timezone: str
    rule: Rule
    kind: str
    scope: str
    priority: int
    max_attempts: int | None
    expires_us: int | None
    misfire: Misfire
    payload: bytes


class Stored(NamedTuple):
    """A row, as the part `schedule` reads it; times are µs since the epoch."""

    name: str
    spec: str
    timezone: str
    kind: str
    scope: str
    priority: int
    max_attempts: int | None
    expires_us: int | None
    misfire: Misfire
    is_paused: int
    boundary: int
    created_at: int
    last_boundary: int | None
    last_fired_at: int | None
    fired: int
    skipped: int
    payload: bytes

    @property
    def rule(self) -> Rule:
        """What the spec means. Raises `InvalidSpec` or `UsageError` when this process cannot tell."""
        return schedules.rule(self.spec, self.timezone)

    def job(self, boundary: int | None) -> Encoded:
        """Return the job for a boundary, or for none."""
        key = None if boundary is None else boundaries.key(self.name, boundary)
        return Encoded(
            None,
            self.scope,
            self.kind,
            self.priority,
            self.max_attempts,
            None,
            None,
            self.expires_us,
            key,
            "return",
            self.payload,
        )


class Due(NamedTuple):
    """A page of schedules whose boundary has come."""

    rows: list[Values]
    """`stored` reads each."""
    until: int
    """The time up to which that was looked at."""


class Planned(NamedTuple):
    """A firing that was worked out without the lock, from a row and at a time as they were then."""

    seen: Stored
    now: int
    plan: Plan


class Fired(NamedTuple):
    """What a firing came to."""

    jobs: int
    skipped: int


def declare(context: Context, wanted: Declared) -> Schedule:
    """Add a schedule, or change the one of this name; the same rule goes on where it is, another one begins now.

    Raises:
        PayloadError: the payload is beyond `max_payload`.
        RecordError: the one that is there cannot be read.
    """
    enqueueing.check_size(context, wanted.payload, "the payload of schedule", repr(wanted.name))
    found = context.one(SQL.schedule, wanted.name)
    known = None if found is None else stored(found)
    if known is None:
        boundary = wanted.rule.first(context.now)
    elif known.timezone == wanted.timezone and _is_rule(known, wanted.rule):
        boundary = known.boundary
    else:
        boundary = wanted.rule.first(max(context.now, known.last_boundary or 0))
    job = (wanted.kind, wanted.scope, wanted.priority, wanted.max_attempts, wanted.expires_us)
    values = (wanted.name, wanted.spec, wanted.timezone, *job, wanted.misfire, boundary, context.now, wanted.payload)
    context.write(SQL.schedule_put, values)
    return public(one(context, wanted.name))


def one(reader: Reader, name: str) -> Stored:
    """Return the row of a schedule.

    Raises:
        ScheduleNotFound: there is none.
        RecordError: it cannot be read.
    """
    found = reader.one(SQL.schedule, name)
    if found is None:
        raise ScheduleNotFound(name)
    return stored(found)


def every(reader: Reader) -> list[Schedule]:
    """Return all schedules, by name.

    Raises:
        RecordError: one cannot be read.
    """
    return [public(stored(found)) for found in reader.all(SQL.schedules)]


def remove(context: Context, name: str) -> None:
    """Remove a schedule; jobs that it has made stay.

    Raises:
        ScheduleNotFound: there is none.
    """
    if not context.write(SQL.schedule_remove, (name,)):
        raise ScheduleNotFound(name)


def pause(context: Context, name: str) -> None:
    """Let a schedule rest.

    Raises:
        ScheduleNotFound: there is none.
    """
    if not context.write(SQL.schedule_pause, (name,)):
        raise ScheduleNotFound(name)


def resume(context: Context, name: str) -> None:
    """Let a schedule that rests go on with its first boundary that lies ahead; one that does not rest is let alone.

    Raises:
        ScheduleNotFound: there is none.
    """
    row = one(context, name)
    if row.is_paused:
        boundary = row.boundary if row.boundary > context.now else row.rule.after(context.now, row.boundary)
        context.write(SQL.schedule_resume, (boundary, name))


def run_now(context: Context, name: str) -> Enqueued:
    """Enqueue one job of a schedule, which has no boundary.

    Raises:
        ScheduleNotFound: there is none.
    """
    return enqueueing.enqueue(context, [one(context, name).job(None)])[0]


def is_due(reader: Reader) -> bool:
    """Tell whether the boundary of any schedule has come."""
    return bool(reader.all(SQL.schedules_due, reader.now, *BEFORE_ALL, 1))


def due(reader: Reader, after: tuple[int, str], until: int | None) -> Due:
    """Look for schedules whose boundary has come, after a place in the order of (boundary, name), up to `until` or now.

    Raises:
        StorageCorrupt: they are out of order.
    """
    until = reader.now if until is None else min(until, reader.now)
    found = reader.all(SQL.schedules_due, until, *after, PAGE)
    if found and not place_of(found[-1]) > after:
        raise StorageCorrupt("the schedules are out of order: their index and its table differ")
    return Due(found, until)


def place_of(found: Values) -> tuple[int, str]:
    """Return where a row stands in the order of `due`."""
    return found[Stored._fields.index("boundary")], found[0]


def planned(found: Values, now: int) -> Planned:
    """Work out what is to be done with a schedule that is due by now.

    Raises:
        RecordError: the row cannot be read.
        InvalidSpec, UsageError: this process does not know what its spec means.
    """
    row = stored(found)
    return Planned(row, now, schedules.plan(row.rule, row.misfire, row.boundary, now))


def fire(context: Context, wanted: Planned) -> Fired | None:
    """Make the jobs of a plan and advance the boundary; `None` when the schedule is no longer as it was seen.

    Raises:
        PayloadError, QueueFull: as for an enqueue.
    """
    seen, planned_at, plan = wanted
    if context.now < planned_at:  # the wall clock has stepped back since
        return None
    found = context.one(SQL.schedule, seen.name)
    row = None if found is None else stored(found)
    if row is None or row.is_paused or _course(row) != _course(seen):
        return None
    made = enqueueing.enqueue(context, [row.job(boundary) for boundary in plan.fire]) if plan.fire else []
    jobs = sum(one.created for one in made)
    last = (plan.fire[-1], context.now) if plan.fire else (None, None)
    context.write_exactly(SQL.schedule_advance, [(plan.upcoming, *last, jobs, plan.skipped, seen.name, seen.boundary)])
    return Fired(jobs, plan.skipped)


def upcoming_us(reader: Reader) -> int | None:
    """Return how long it is until the next boundary that has not come yet; `None` when there is none."""
    found = reader.one(SQL.schedule_upcoming, reader.now)
    if found is None or not isinstance(found[0], int):
        return None
    return found[0] - reader.now


def stored(found: Values) -> Stored:
    """Read a row.

    Raises:
        RecordError: a column is of another type than its table says: a flipped bit makes bytes of a text.
    """
    for column, value, allowed in zip(Stored._fields, found, _TYPES, strict=True):
        if type(value) not in allowed:
            raise RecordError(f"schedule {found[0]!r}: its {column} is stored as {type(value).__name__}")
    return Stored(*found)


def public(row: Stored) -> Schedule:
    """Return a row as callers see it.

    Raises:
        RecordError: its boundary is beyond what a datetime can hold.
    """
    boundary = boundaries.moment(row.boundary)
    if boundary is None:
        raise RecordError(f"schedule {row.name!r}: its boundary is {row.boundary}")
    return Schedule(
        name=row.name,
        spec=row.spec,
        timezone=row.timezone,
        kind=row.kind,
        scope=public_scope(row.scope),
        priority=row.priority,
        max_attempts=row.max_attempts,
        expires=None if row.expires_us is None else row.expires_us / 1_000_000,
        misfire=row.misfire,
        is_paused=bool(row.is_paused),
        boundary=boundary,
        created_at=row.created_at,
        last_boundary=None if row.last_boundary is None else boundaries.moment(row.last_boundary),
        last_fired_at=row.last_fired_at,
        fired=row.fired,
        skipped=row.skipped,
        encoded_payload=row.payload,
        decoder=codec.DECODER,
    )


def _is_rule(known: Stored, rule: Rule) -> bool:
    try:
        return known.rule == rule
    except UsageError:
        return False


def _course(row: Stored) -> tuple[object, ...]:
    """Return what a plan rests on."""
    return row.spec, row.timezone, row.misfire, row.boundary
