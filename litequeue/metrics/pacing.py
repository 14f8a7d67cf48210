"""Pacing: a survey whose cost grows with the file takes a bounded part of the time, and of each scrape.

Invariants: what takes up to 20 ms is asked anew each time; what takes longer is kept for a hundred times as long, so it
takes a hundredth of the time, but never for more than five minutes; one that is not done within a scrape goes on in the
next. Leaves out: what is surveyed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from litequeue.sqlite.walks import Walk

T = TypeVar("T")

CHEAP_S = 0.02
SHARE = 100
MOST_KEPT_S = 300.0


class Paced(Generic[T]):
    """A survey that is asked again and again; not for use by two threads at once."""

    def __init__(self, begin: Callable[[], Walk[T]], clock: Callable[[], float] = time.monotonic) -> None:
        self._begin = begin
        self._clock = clock
        self._walk: Walk[T] | None = None
        self._spent_s = 0.0
        self._next_at = -math.inf
        self._found_at = -math.inf
        self.found: T | None = None
        """What it came to last; `None` before the first time."""

    @property
    def age_s(self) -> float:
        """How old that is."""
        return max(0.0, self._clock() - self._found_at)

    def refresh(self, until: float) -> bool:
        """Go on with it when it is time for that, a step at least; tell whether there is something new."""
        began_at = self._clock()
        if self._walk is None:
            if began_at < self._next_at:
                return False
            self._walk = self._begin()
            self._spent_s = 0.0
        try:
            while True:
                next(self._walk)
                if self._clock() >= until:
                    self._spent_s += self._clock() - began_at
                    return False
        except StopIteration as end:
            now = self._clock()
            self._spent_s += now - began_at
            self.found = end.value
            self._found_at = now
            kept_s = min(SHARE * self._spent_s, MOST_KEPT_S)
            self._next_at = now + kept_s if self._spent_s > CHEAP_S else -math.inf
            self._walk = None
            return True
        except BaseException:
            self._walk = None
            raise
