"""When events happened, whatever the wall clock has done meanwhile: moments by the monotonic clock.

An event has the time of the wall clock, which steps: back or forth when it is set, forth while the machine sleeps. So
who looks at events notes both clocks at each look; between two steps they are a fixed distance apart, and that is an
era. Invariant: an event has a moment if its time lies within what an era of the last minute has had of the wall clock.
Leaves out: what happened in the moment of a step itself, where two eras overlap; such an event has the later moment.
"""

from __future__ import annotations

from dataclasses import dataclass

KEPT_US = 60_000_000
"""Moments lie so far back at most."""
OPEN_US = 1_000_000
"""For so long before it is committed, at most, an event is expected to have its time."""
_STEP_US = 50_000
"""A clock that is slewed, or is read late, differs by less between two looks."""


@dataclass(slots=True)
class _Era:
    """A time without a step."""

    ahead_us: int
    """By how much the wall clock is ahead of the monotonic one."""
    begin: int
    until: int
    """Between which moments it was: of the last look before it and the first one after it."""


class Moments:
    """Knows the last eras; for one thread."""

    def __init__(self) -> None:
        self._eras: list[_Era] = []
        self.now = 0
        """The monotonic clock at the last look, µs."""

    def note(self, wall_us: int, monotonic_us: int) -> bool:
        """Note both clocks as they are now; tell whether the wall clock has stepped since the last time."""
        ahead_us = wall_us - monotonic_us
        before = self._eras[-1] if self._eras else None
        began, self.now = self.now, monotonic_us
        if before is not None:
            before.until = monotonic_us
            if abs(ahead_us - before.ahead_us) <= _STEP_US:
                before.ahead_us = ahead_us
                return False
        self._eras = [era for era in self._eras if era.until >= monotonic_us - KEPT_US]
        self._eras.append(_Era(ahead_us, monotonic_us if before is None else began, monotonic_us))
        return before is not None

    @property
    def wall(self) -> int:
        """The wall clock at the last look, µs since the epoch."""
        return self.now + self._eras[-1].ahead_us

    @property
    def wall_since(self) -> int:
        """What the wall clock has shown since its last step, at the least; µs since the epoch."""
        return self._eras[-1].begin + self._eras[-1].ahead_us

    def of(self, at: int) -> int | None:
        """Return the moment of a time of the wall clock; `None` when it has none lately."""
        for era in reversed(self._eras):
            moment = at - era.ahead_us
            if max(era.begin - OPEN_US, self.now - KEPT_US) <= moment <= era.until + OPEN_US:
                return moment
        return None

    def place_of(self, at: int) -> int:
        """Return the moment of a time, or where it would be if the wall clock had never stepped."""
        moment = self.of(at)
        return at - self._eras[-1].ahead_us if moment is None else moment
