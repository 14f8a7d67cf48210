"""Histograms: how often something took how long, counted by this process since its start.

Invariants: what was observed is counted once, from whatever thread, and nothing here waits: each thread counts in cells
of its own, so there is no lock that a fork could leave held. A forked child begins with nothing. Leaves out: names,
labels, and how they are written (`metrics`).
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from typing import NamedTuple

QUICK_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
"""Bounds for what should take milliseconds."""
LONG_S = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21600.0)
"""Bounds for what takes milliseconds or hours."""


class Observed(NamedTuple):
    """What a histogram has at one moment."""

    buckets: list[tuple[float, int]]
    """For each bound how many were at most that, in the order of the bounds."""
    observations: int
    total: float
    """Their sum."""


class Histogram:
    """Counts observations by size; for many threads."""

    __slots__ = ("_bounds", "_cells")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._cells: dict[tuple[int, int], _Cell] = {}
        """By process and thread."""

    def observe(self, value: float) -> None:
        """Count one."""
        own = os.getpid(), threading.get_ident()
        cell = self._cells.get(own)
        if cell is None:
            cell = self._cells[own] = _Cell(len(self._bounds) + 1)
        cell.counts[bisect_left(self._bounds, value)] += 1
        cell.total += value

    def observed(self) -> Observed:
        """Return what this process has counted."""
        mine = [cell for (pid, _), cell in self._cells.copy().items() if pid == os.getpid()]
        counts = [sum(of_bound) for of_bound in zip(*(cell.counts for cell in mine), strict=True)]
        counts = counts or [0] * (len(self._bounds) + 1)
        below = 0
        buckets = []
        for bound, count in zip(self._bounds, counts, strict=False):
            below += count
            buckets.append((bound, below))
        return Observed(buckets, below + counts[-1], sum(cell.total for cell in mine))


class _Cell:
    """What one thread has counted."""

    __slots__ = ("counts", "total")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.total = 0.0
