"""Watching: figures of files, asked for again and again.

Invariants: they are read without the write lock, and between two steps of a survey no snapshot is open; what takes
longer than 20 ms is kept and takes a hundredth of the time (`metrics.pacing`). A file that cannot be read is
`OutOfReach`, with the reason, and is opened anew each time until it can. Leaves out: when to ask.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from litequeue.errors import LiteQueueError
from litequeue.metrics.of_file import RECENT_S
from litequeue.metrics.pacing import Paced
from litequeue.metrics.reaching import Reached
from litequeue.queue import Queue
from litequeue.sqlite.causes import Cause
from litequeue.sqlite.flow import Flow
from litequeue.sqlite.surveying import Counted, Done, Running
from litequeue.top.figures import FileFigures, Kept, OutOfReach

T = TypeVar("T")
Clock = Callable[[], float]

MOST_RUNNING = 200
"""Leased jobs of each file that are looked at."""


class Watch:
    """Looks at files; `open_file` opens one by its path. Not for use by two threads at once.

    Rates are those of the last `window_s` seconds.
    """

    def __init__(
        self,
        paths: Sequence[str],
        open_file: Callable[[str], Queue],
        window_s: float,
        clock: Clock = time.monotonic,
    ) -> None:
        self.window_s = window_s
        self._clock = clock
        sight = partial(_Sight, window_us=round(window_s * 1_000_000), clock=clock)
        self._reached = [Reached(path, open_file, sight) for path in paths]

    def reach(self) -> None:
        """Open all files that are not open.

        Raises:
            LiteQueueError: one cannot be.
        """
        for reached in self._reached:
            reached.reach()

    def look(self, budget_s: float = math.inf) -> list[FileFigures | OutOfReach]:
        """Return the figures of now, in the order of the paths.

        Each file has its share of the time to count in, and goes on with what it has not done at the next look.
        """
        return [self._look_at(reached, budget_s / len(self._reached)) for reached in self._reached]

    def close(self) -> None:
        """Close all files; idempotent."""
        for reached in self._reached:
            reached.close()

    def _look_at(self, reached: Reached[_Sight], budget_s: float) -> FileFigures | OutOfReach:
        until = self._clock() + budget_s
        try:
            return reached.look(lambda sight: sight.figures(until))
        except LiteQueueError as exc:
            return OutOfReach(reached.path, str(exc))


class _Sight:
    """One file, through a handle of its own."""

    def __init__(self, queue: Queue, window_us: int, clock: Clock) -> None:
        self._queue = queue
        surveyor = self._surveyor = queue.surveyor()
        self._flow: Paced[Flow] = Paced(partial(surveyor.flow, window_us), clock)
        self._running: Paced[list[Running]] = Paced(partial(surveyor.running, MOST_RUNNING), clock)
        self._oldest: Paced[dict[str, int]] = Paced(surveyor.oldest, clock)
        self._done: Paced[list[Done]] = Paced(partial(surveyor.done, RECENT_S * 1_000_000), clock)
        self._causes: Paced[list[Cause]] = Paced(surveyor.causes, clock)
        self._counted: Paced[Counted] = Paced(surveyor.jobs, clock)

    def figures(self, until: float) -> FileFigures:
        """Ask for what it is time for, a step of each at least.

        Raises:
            LiteQueueError: the file cannot be read.
        """
        state = self._surveyor.state()
        for survey in (self._flow, self._running, self._oldest, self._done, self._causes, self._counted):
            survey.refresh(until)
        return FileFigures(
            path=self._queue.path,
            at_us=self._queue.options.clock.wall_us(),
            state=state,
            flow=_kept(self._flow),
            running=_kept(self._running),
            oldest=_kept(self._oldest),
            done=_kept(self._done),
            causes=_kept(self._causes),
            counted=_kept(self._counted),
        )


def _kept(survey: Paced[T]) -> Kept[T] | None:
    return None if survey.found is None else Kept(survey.found, survey.age_s)
