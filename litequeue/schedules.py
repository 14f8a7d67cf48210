"""When a schedule fires: from its spec to its boundaries, and what becomes of those that were missed.

Owns: the reading of specs (cron expressions are `cronsim`'s to read and to follow) and the plan of a firing.
Invariants: a boundary comes from the schedule, never from "now", so nothing drifts; however long nobody looked, a plan
takes a bounded time. All times are µs since the epoch. Leaves out: where schedules are kept and how jobs are made of
them (`sqlite/scheduling`), and when somebody looks (`scheduler`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo

from litequeue import arguments
from litequeue.errors import InvalidSpec, UsageError, missing_extra
from litequeue.model import Misfire

MISFIRE_GRACE_US = 60_000_000
"""A boundary that is found later than this has been missed; up to it, it is fired as if nothing had been."""
MAX_REPLAYED = 64
"""Boundaries that one pass fires at most, the latest ones. Within the grace there are fewer, as no interval is shorter
than a second."""
MAX_COUNTED = 10_000
"""Boundaries of a cron expression that are counted one by one, some tenths of a second; beyond, they are "at least"."""

_EVERY = re.compile(r"@every ([0-9]+(?:\.[0-9]+)?)(s|m|h|d)", re.ASCII)
_LEAST_S = 1
_MOST_S = 36_500 * 86_400
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_KNOWN_US = 1_735_689_600_000_000
"""The beginning of 2025: an expression that nothing matches for fifty years from then on is refused."""


class Due(NamedTuple):
    """The boundaries from a stored one up to a moment."""

    latest: list[int]
    """The last `MAX_REPLAYED` of them, in order."""
    total: int
    """How many there are; of a cron expression, at least so many when there are more than `MAX_COUNTED`."""


@dataclass(frozen=True, slots=True)
class Every:
    """`@every`: a fixed interval, whatever the clock on the wall says."""

    interval_us: int

    def first(self, now: int) -> int:
        """Return the first boundary of a schedule that begins now."""
        return now + self.interval_us

    def after(self, moment: int, boundary: int) -> int:
        """Return the first boundary after a moment, of those that follow `boundary` at the interval, or are it."""
        return max(boundary, boundary + ((moment - boundary) // self.interval_us + 1) * self.interval_us)

    def due(self, boundary: int, now: int) -> Due:
        """Return the boundaries from one up to now."""
        count = (now - boundary) // self.interval_us + 1
        first = max(0, count - MAX_REPLAYED)
        return Due([boundary + step * self.interval_us for step in range(first, count)], count)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a time zone, as Debian's cron has it also where the clocks are changed (`cronsim`).

    Times that are named by minute and hour come once a day: one in an hour that is left out comes right after it, one
    in an hour that comes twice only the first time. Where the minute or the hour begins with `*`, they follow time as
    it passes.
    """

    expression: str
    zone: tzinfo

    def first(self, now: int) -> int:
        """Return the first boundary of a schedule that begins now."""
        return self.after(now, now)

    def after(self, moment: int, boundary: int) -> int:  # noqa: ARG002 - it needs nothing to count from
        """Return the first boundary after a moment.

        Raises:
            InvalidSpec: none comes in fifty years.
        """
        found = next(self._walk(moment), None)
        if found is None:
            raise InvalidSpec(self.expression, "no time in the next fifty years matches it")
        return found

    def due(self, boundary: int, now: int) -> Due:
        """Return the boundaries from one up to now; after a long time without walking through all of them."""
        latest = deque([boundary], MAX_REPLAYED)
        count = 1
        for found in takewhile(lambda found: found <= now, self._walk(boundary)):
            latest.append(found)
            count += 1
            if count > MAX_COUNTED:
                return Due(self._latest(boundary, now), count)
        return Due(list(latest), count)

    def _latest(self, boundary: int, now: int) -> list[int]:
        """Find the last boundaries up to now, from ever further back until there are enough."""
        back_us = MAX_REPLAYED * 60_000_000
        while True:
            start = max(boundary, now - back_us)
            latest = deque(takewhile(lambda found: found <= now, self._walk(start)), MAX_REPLAYED)
            if len(latest) == MAX_REPLAYED or start == boundary:
                return list(latest)
            back_us *= 2

    def _walk(self, moment: int) -> Iterator[int]:
        """Return the boundaries after a moment, one by one.

        `cronsim` follows an expression without `*` by the clock on the wall, so that in an hour that comes twice it
        would return to times before the moment.
        """
        from cronsim import CronSim  # noqa: PLC0415 - of an extra: `rule` has made sure that it is there

        last = moment
        try:
            for found in CronSim(self.expression, (_EPOCH + moment * _MICROSECOND).astimezone(self.zone)):
                boundary = (found - _EPOCH) // _MICROSECOND
                if boundary > last:
                    yield boundary
                    last = boundary
        except (OverflowError, ValueError):  # beyond the years of `datetime`
            return


Rule = Every | Cron
"""What a spec means."""


class Plan(NamedTuple):
    """What is to be done with the boundaries that have come due."""

    fire: list[int]
    """A job for each, in order."""
    skipped: int
    """For so many none, at least."""
    upcoming: int
    """The boundary after them."""


def plan(rule: Rule, misfire: Misfire, boundary: int, now: int) -> Plan:
    """Say what to do with the boundaries from the stored one, which is due, up to now.

    Those within `MISFIRE_GRACE_US` have not been missed. Of the others, `all` fires up to `MAX_REPLAYED`, the latest
    ones; `skip` none; `latest` none but the latest boundary of all that are due.

    Raises:
        InvalidSpec: no further boundary comes in fifty years.
    """
    due = rule.due(boundary, now)
    since = now - MISFIRE_GRACE_US
    fire = due.latest
    if boundary < since:
        match misfire:
            case "latest":
                fire = due.latest[-1:]
            case "skip":
                fire = [at for at in due.latest if at >= since]
            case "all":
                pass
    return Plan(fire, due.total - len(fire), rule.after(now, boundary))


def normal(spec: object) -> str:
    """Return a spec with single spaces, as it is stored.

    Raises:
        InvalidSpec: it is no text that could be one.
    """
    try:
        return arguments.text("spec", " ".join(spec.split()) if isinstance(spec, str) else spec)
    except UsageError as exc:
        raise InvalidSpec(spec, f"it must be {exc.bounds}") from exc


@lru_cache(maxsize=1024)
def rule(spec: str, timezone: str) -> Rule:
    """Return what a spec means in a time zone.

    Raises:
        InvalidSpec: neither `@every`, nor a name such as `@daily`, nor five fields that `cronsim` can read.
        UsageError: an unknown time zone; or `cronsim`, of the extra `cron`, is not installed.
    """
    place = zone(timezone)
    if spec.startswith("@every"):
        return Every(_interval_us(spec))
    expression = _NAMED.get(spec.lower(), spec).upper()
    if expression.startswith("@"):
        raise InvalidSpec(spec, f"the names are @every with an interval, {', '.join(_NAMED)}{_meant(spec)}")
    if len(expression.split()) != _FIELDS:
        fields = "minute, hour, day of the month, month, day of the week"
        raise InvalidSpec(spec, f"it must be five fields: {fields}{_meant(spec)}")
    try:
        from cronsim import CronSim, CronSimError  # noqa: PLC0415 - of an extra
    except ImportError as exc:
        raise missing_extra("cron", repr(spec), "cronsim") from exc
    cron = Cron(expression, place)
    try:
        CronSim(expression, _EPOCH)
        cron.first(_KNOWN_US)
    except InvalidSpec as exc:
        raise InvalidSpec(spec, exc.reason) from exc
    except (CronSimError, ValueError) as exc:
        raise InvalidSpec(spec, str(exc).lower()) from exc
    return cron


def _meant(spec: str) -> str:
    """Ask whether a name or an interval was meant that is written in nearly this way."""
    said = "".join(spec.lower().split()).removeprefix("@")
    for known in (f"@{said}", f"@every {said.removeprefix('every')}"):
        if known in _NAMED or _EVERY.fullmatch(known):
            return f"; did you mean {known!r}?"
    return ""


def zone(name: object) -> tzinfo:
    """Return a time zone by its IANA name; UTC is known everywhere.

    Raises:
        UsageError: it is unknown to this system.
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(arguments.text("timezone", name))
    except (KeyError, ValueError, OSError) as exc:  # unknown, no name that could be a file's, a folder of zones
        raise UsageError.of(
            "timezone", name, "an IANA time zone that this system knows, such as Europe/Berlin"
        ) from exc


def _interval_us(spec: str) -> int:
    found = _EVERY.fullmatch(spec)
    if found is None:
        raise InvalidSpec(spec, f"@every takes a number with s, m, h or d, such as @every 90s{_meant(spec)}")
    microseconds = Fraction(found[1]) * arguments.UNITS_S[found[2]] * 1_000_000
    if not _LEAST_S * 1_000_000 <= microseconds <= _MOST_S * 1_000_000:
        raise InvalidSpec(spec, f"the interval must be from {_LEAST_S} s to {_MOST_S // 86_400:,} d")
    if microseconds.denominator != 1:
        raise InvalidSpec(spec, "the interval must be whole µs")
    return int(microseconds)
