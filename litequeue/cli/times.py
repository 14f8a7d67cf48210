"""Times as a person reads them: by the clock on the wall here or in UTC, and how far they are from now.

Owns: the option `--utc`. Invariant: an absolute time always says its zone, but for the local one of a listing, whose
heading does. Leaves out: JSON, whose times are µs since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ParamSpec, TypeVar

import click

from litequeue.cli.output import NOTHING
from litequeue.clock import SystemClock

P = ParamSpec("P")
R = TypeVar("R")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_US = 1_000_000
_STEPS = ((60, 1, "s"), (90 * 60, 60, "min"), (36 * 3600, 3600, "h"), (float("inf"), 86_400, "d"))
"""Up to how many seconds a distance is told in which unit."""


def utc_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--utc`."""
    return click.option("--utc", is_flag=True, help="Show times in UTC, not by the clock here.")(command)


@dataclass(frozen=True, slots=True)
class Times:
    """How to write times: from which moment they are looked at, and in which zone."""

    now_us: int
    is_utc: bool

    @classmethod
    def now(cls, *, utc: bool) -> Times:
        """Look from the present moment."""
        return cls(SystemClock().wall_us(), utc)

    @property
    def zone(self) -> str:
        """What the heading of a column of `short` times says of their zone."""
        return " (UTC)" if self.is_utc else ""

    def short(self, moment_us: int | None) -> str:
        """Write a time to the second."""
        moment = self._moment(moment_us)
        return str(moment_us or NOTHING) if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"

    def brief(self, moment_us: int) -> str:
        """Write a time to the second, without the date when that is today's."""
        moment, now = self._moment(moment_us), self._moment(self.now_us)
        is_today = moment is not None and now is not None and moment.date() == now.date()
        return f"{moment:%H:%M:%S}" if is_today else self.short(moment_us)

    def full(self, moment_us: int | None) -> str:
        """Write a time to the µs, with its zone and its distance from now."""
        moment = self._moment(moment_us)
        if moment is None or moment_us is None:
            return str(moment_us or NOTHING)
        offset = f"{moment:%z}"
        zone = "Z" if self.is_utc else f" {offset[:3]}:{offset[3:5]}"
        return f"{moment:%Y-%m-%d %H:%M:%S.%f}{zone} ({self.distance(moment_us)})"

    def distance(self, moment_us: int | None) -> str:
        """Write how far a time is from now, in its largest unit."""
        if moment_us is None:
            return NOTHING
        seconds = abs(moment_us - self.now_us) // _SECOND_US
        if seconds == 0:
            return "now"
        size, unit = next((size, unit) for most, size, unit in _STEPS if seconds < most)
        text = f"{seconds // size:,} {unit}"
        return f"in {text}" if moment_us > self.now_us else f"{text} ago"

    def _moment(self, moment_us: int | None) -> datetime | None:
        """Return the datetime, or `None` when there is none that Python's years could hold."""
        if moment_us is None:
            return None
        try:
            moment = _EPOCH + timedelta(microseconds=moment_us)
            return moment if self.is_utc else moment.astimezone()
        except (OverflowError, ValueError, OSError):
            return None
