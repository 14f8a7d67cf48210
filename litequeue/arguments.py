"""The checks of what a caller gives: names, durations, counts and times.

Owns: the bounds of every argument (contract §2 and §6) and the conversion of durations and datetimes to µs.
Invariant: whatever passes here can be stored; whatever does not raises one `UsageError` that names the argument, its
value and the bounds. Leaves out: payloads (`codec`) and what a state allows (`rules`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from uuid import UUID

from litequeue.errors import UsageError

MAX_TEXT_CHARS = 255
MAX_PRIORITY = 255
MAX_COUNT = 1_000_000
MAX_PARENTS = 1_000
"""Jobs that one job waits for; a batch has no such bound."""
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
"""The units in which people write durations."""
MAX_DURATION_S = 3_153_600_000
"""A hundred years: far beyond use, and no sum with a wall clock overflows SQLite's integer."""
MAX_SCHEDULE_CHARS = 200
"""Of the name of a schedule: a key that has it in it has a boundary too."""
MAX_OUTBOX_CHARS = 200
"""Of the name of an outbox: its scope has it in it."""
MIN_ID_DIGITS = 4
"""Fewer of an id are no beginning of one, but a typing mistake."""
ID_DIGITS = 32
RESERVED_PREFIX = "litequeue:"
"""Of scopes and idempotency keys: such ones are the queue's own."""

_UNSTORABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_ID_DIGITS = re.compile(f"[0-9a-f]{{{MIN_ID_DIGITS},{ID_DIGITS}}}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT_BOUNDS = f"1 to {MAX_TEXT_CHARS} characters without control characters or lone surrogates"


@lru_cache(maxsize=4096)
def _is_storable(text: str) -> bool:
    return 0 < len(text) <= MAX_TEXT_CHARS and _UNSTORABLE.search(text) is None


def text(argument: str, value: object) -> str:
    """Check a name: a kind, a key or a worker id.

    Raises:
        UsageError: not text, empty, too long, or with a character that is refused.
    """
    if isinstance(value, str) and _is_storable(value):
        return value
    raise UsageError.of(argument, value, _TEXT_BOUNDS)


def kind(value: object) -> str:
    """Check a kind, or a filter of kinds.

    Raises:
        UsageError: not a name; of a task, it says how that is enqueued, and where its kind is.
    """
    if not isinstance(value, str) and hasattr(value, "new_job"):
        name = getattr(value, "__name__", "task")
        hint = f"to enqueue a task: {name}.enqueue(q, …), and its kind is {name}.kind"
        raise UsageError.of("kind", value, "text", hint)
    return text("kind", value)


class OwnScope(str):
    """The name of a scope that is the queue's own: a caller's text, though it be the same, does not name it."""

    __slots__ = ()


def scope_name(value: object) -> str:
    """Check the name of a scope; names beginning `litequeue:` are reserved.

    Raises:
        UsageError: not a name, or a reserved one.
    """
    if isinstance(value, OwnScope):
        return str(value)
    name = text("scope", value)
    if name.startswith(RESERVED_PREFIX):
        bounds = f"a name that does not begin with the reserved {RESERVED_PREFIX!r}"
        raise UsageError.of("scope", name, bounds)
    return name


def idempotency_key(value: object) -> str:
    """Check the key of a new job; keys beginning `litequeue:` are reserved.

    Raises:
        UsageError: not a name, or a reserved one.
    """
    key = text("idempotency_key", value)
    if key.startswith(RESERVED_PREFIX):
        bounds = f"a key that does not begin with the reserved {RESERVED_PREFIX!r}"
        raise UsageError.of("idempotency_key", key, bounds)
    return key


def schedule_name(value: object) -> str:
    """Check the name of a schedule.

    Raises:
        UsageError: not a name, or longer than a key has room for.
    """
    name = text("name", value)
    if len(name) > MAX_SCHEDULE_CHARS:
        raise UsageError.of("name", name, f"1 to {MAX_SCHEDULE_CHARS} characters")
    return name


def outbox_name(value: object) -> str:
    """Check the name of an outbox.

    Raises:
        UsageError: not a name, or longer than a scope has room for.
    """
    name = text("name", value)
    if len(name) > MAX_OUTBOX_CHARS:
        raise UsageError.of("name", name, f"1 to {MAX_OUTBOX_CHARS} characters")
    return name


def whole(argument: str, value: object, least: int, most: int) -> int:
    """Check a whole number between two bounds, both included."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise UsageError.of(argument, value, f"a whole number from {least} to {most}")


def duration_us(argument: str, value: object, *, positive: bool = False, most_s: float = MAX_DURATION_S) -> int:
    """Convert seconds (int or float) or a `timedelta` to µs.

    Raises:
        UsageError: negative, not finite, too long, or zero where `positive` is asked for.
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 <= seconds <= most_s:
        microseconds = round(seconds * 1_000_000)
        if microseconds or not positive:
            return microseconds
    least = "more than 0 and" if positive else "0 or more and"
    raise UsageError.of(argument, value, f"seconds or a timedelta, {least} at most {most_s:,}")


def moment_us(argument: str, value: object) -> int:
    """Convert an aware datetime to µs since the epoch.

    Raises:
        UsageError: not a datetime, naive, or before the epoch.
    """
    if isinstance(value, datetime) and value.tzinfo is not None and value.utcoffset() is not None:
        microseconds = (value - _EPOCH) // timedelta(microseconds=1)
        if microseconds >= 0:
            return microseconds
    raise UsageError.of(argument, value, "an aware datetime (with a time zone) not before 1970")


def job_id(argument: str, value: object) -> UUID:
    """Accept a UUID, or the text of one.

    Raises:
        UsageError: neither.
    """
    if isinstance(value, UUID):
        return value
    if isinstance(value, str):
        try:
            return UUID(value)
        except ValueError:
            pass
    hint = "give its .job_id" if hasattr(value, "job_id") else ""
    raise UsageError.of(argument, value, "a UUID or the text of one", hint)


def id_digits(argument: str, value: object) -> str:
    """Return the hex digits that an id, or its beginning, consists of: 4 to 32, in lower case.

    Raises:
        UsageError: fewer, more, or something else than these and dashes.
    """
    digits = value.replace("-", "").lower() if isinstance(value, str) else ""
    if _ID_DIGITS.fullmatch(digits):
        return digits
    raise UsageError.of(argument, value, f"a job id, or {MIN_ID_DIGITS} to {ID_DIGITS} hex digits that it begins with")


def parents(value: object, own_id: UUID | None) -> tuple[UUID, ...]:
    """Check the ids of the jobs that a new one waits for; each counts once.

    Raises:
        UsageError: not a list, something in it that is no id, its own id, or too many.
    """
    if isinstance(value, (str, bytes, UUID)) or not isinstance(value, Iterable):
        raise UsageError.of("after", value, "a list of job ids")
    ids = tuple(dict.fromkeys(job_id("after", item) for item in value))
    if len(ids) > MAX_PARENTS:
        raise UsageError.of("after", len(ids), f"at most {MAX_PARENTS:,} job ids", "a batch waits for any number")
    if own_id is not None and own_id in ids:
        raise UsageError.of("after", str(own_id), "ids of other jobs: none can wait for itself")
    return ids


def timeout_s(argument: str, value: object) -> float:
    """Check a time to wait, in seconds: 0 or more, finite."""
    return duration_us(argument, value) / 1_000_000


def number(argument: str, value: object, least: float, most: float) -> float:
    """Check a finite number between two bounds, both included."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most:
        return float(value)
    raise UsageError.of(argument, value, f"a number from {least:g} to {most:g}")


def kind_filters(value: object) -> tuple[str, ...] | None:
    """Check a lease filter: exact kinds and prefixes (ending in `:`); `None` means every kind.

    Raises:
        UsageError: empty, a lone string (a list was meant), or with a bad name in it.
    """
    if value is None:
        return None
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise UsageError.of("kinds", value, "a list of kinds and prefixes, or None for all")
    filters = tuple(dict.fromkeys(text("kinds", item) for item in value))
    if not filters:
        raise UsageError.of("kinds", value, "a list of at least one kind or prefix, or None for all")
    return filters


def matches(kind_filter: str, kind: str) -> bool:
    """Tell whether a kind filter, exact or a prefix ending in `:`, takes this kind."""
    return kind == kind_filter or (kind_filter.endswith(":") and kind.startswith(kind_filter))
