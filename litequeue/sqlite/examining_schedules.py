"""What holds for every schedule, and what an examination says of those that nobody fires.

Invariant: pure; what is a problem was written by no verb. Leaves out: the walk over the rows (`examining`).
"""

from __future__ import annotations

from collections.abc import Iterator

from litequeue import arguments, codec, schedules
from litequeue.errors import InvalidSpec, RecordError, UsageError
from litequeue.model import placed
from litequeue.sqlite import scheduling
from litequeue.sqlite.findings import Tally
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.rows import Values
from litequeue.sqlite.scheduling import Stored

_LATE_PASSES = 3
"""Passes of maintenance that may go by before something is late."""


def look_over(reader: Reader, found: Values, tally: Tally) -> None:
    """Add what there is to say of one schedule."""
    try:
        row = scheduling.stored(found)
    except RecordError as exc:
        tally.add("schedule.values", str(exc))
        return
    for reason in _broken(row):
        tally.add("schedule.values", f"{row.name!r}: {reason}")
    try:
        codec.decode(row.payload, f"schedule {row.name!r}")
    except RecordError as exc:
        tally.add("schedule.payload", str(exc))
    try:
        schedules.rule(row.spec, row.timezone)
    except InvalidSpec as exc:
        tally.add("schedule.values", f"{row.name!r}: {exc}")
    except UsageError as exc:
        tally.add("schedule.foreign", f"{row.name!r}: {exc}")
    if not row.is_paused and row.boundary <= reader.now - _LATE_PASSES * reader.settings.reaper_interval_us:
        tally.add("schedule.late", repr(row.name))


def _broken(row: Stored) -> Iterator[str]:
    try:
        arguments.schedule_name(row.name)
        if row.scope:
            arguments.scope_name(row.scope)
        expires_s = None if row.expires_us is None else row.expires_us / 1_000_000
        placed(row.kind, None, row.priority, None, None, expires_s, row.max_attempts, None, "return", None)
    except UsageError as exc:
        yield str(exc)
    if row.last_boundary is not None and row.last_boundary >= row.boundary:
        yield f"its boundary {row.boundary} is not after {row.last_boundary}, which was fired"
    if min(row.boundary, row.created_at, row.fired, row.skipped) < 0:
        yield "a time or a count is negative"
    if (row.last_boundary is None) != (row.last_fired_at is None):
        yield "last_boundary and last_fired_at disagree on whether it was ever fired"
