"""How a job says which boundary of which schedule it was made for: by its idempotency key.

Owns: the form of that key, and boundaries as datetimes. Invariant: callers cannot give such a key (`arguments`), so a
job that has one was made by its schedule. Leaves out: when a schedule has its boundaries (`schedules`).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from litequeue.arguments import RESERVED_PREFIX

_PREFIX = f"{RESERVED_PREFIX}schedule:"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def key(name: str, boundary_us: int) -> str:
    """Return the idempotency key of the job that a schedule makes at a boundary (µs since the epoch)."""
    return f"{_PREFIX}{name}:{boundary_us}"


def boundary_of(idempotency_key: str | None) -> datetime | None:
    """Return the boundary that a key names, in UTC; `None` for every other key, and when there is none."""
    if idempotency_key is None or not idempotency_key.startswith(_PREFIX):
        return None
    text = idempotency_key.rpartition(":")[2]
    return moment(int(text)) if text.isascii() and text.isdigit() else None


def moment(microseconds: int) -> datetime | None:
    """Return a time as a datetime in UTC; `None` beyond the year 9999."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None
