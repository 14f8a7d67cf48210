"""Firing, as a queue does it: the schedules that are due, one by one.

Invariants: what is to be done is worked out without the lock, and done in one transaction a schedule, which finds the
schedule as it was seen or does nothing; so any number of callers may do this at once. A schedule that cannot be fired
keeps no other from it. Leaves out: when it is done, and by whom (`scheduler`).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import NamedTuple

from litequeue.errors import LiteQueueError, PayloadError, QueueFull, RecordError, UsageError
from litequeue.sqlite import scheduling
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.rows import Values
from litequeue.sqlite.scheduling import Fired, Planned
from litequeue.upkeep import Upkeep

_log = logging.getLogger("litequeue.schedules")


class Fires(NamedTuple):
    """What a pass over the due schedules came to."""

    jobs: int
    """Made."""
    refused: dict[str, LiteQueueError]
    """Why which schedules could not be fired; they are still due."""


class Firing(Upkeep):
    """The part of a `Queue` that fires its file's schedules."""

    def fire_schedules(self) -> Fires:
        """Make the jobs of all boundaries that have come by now, whoever else does so.

        What comes meanwhile is left to the next call, or this one might never end.
        """
        self._store.refuse_inside()
        jobs = 0
        refused: dict[str, LiteQueueError] = {}
        after, until = scheduling.BEFORE_ALL, None
        while True:
            rows, until = self._look(partial(scheduling.due, after=after, until=until))
            if not rows:
                return Fires(jobs, refused)
            for row in rows:
                try:
                    jobs += self._fire_one(row, until)
                except (RecordError, UsageError, PayloadError, QueueFull) as exc:
                    refused[str(row[0])] = exc
            after = scheduling.place_of(rows[-1])

    def until_boundary(self) -> tuple[bool, float | None]:
        """Tell whether a schedule is due, and in how many seconds the next boundary after now comes, if any does."""

        def look(reader: Reader) -> tuple[bool, float | None]:
            upcoming_us = scheduling.upcoming_us(reader)
            return scheduling.is_due(reader), None if upcoming_us is None else upcoming_us / 1_000_000

        return self._look(look)

    def _fire_one(self, row: Values, now: int) -> int:
        """Fire one schedule; return how many jobs that made."""
        wanted = scheduling.planned(row, now)
        fired = self._do(partial(scheduling.fire, wanted=wanted), durable=True)
        if fired is None:
            return 0
        if fired.skipped:
            _tell(wanted, fired)
        return fired.jobs


def _tell(wanted: Planned, fired: Fired) -> None:
    """Log that boundaries were skipped; as a warning when that was not asked for."""
    misfire = wanted.seen.misfire
    _log.log(
        logging.WARNING if misfire == "all" else logging.INFO,
        "schedule %s: %d boundaries that were missed are skipped, %d are fired (misfire=%s)",
        wanted.seen.name,
        fired.skipped,
        len(wanted.plan.fire),
        misfire,
        extra={"schedule": wanted.seen.name, "skipped": fired.skipped, "fired": len(wanted.plan.fire)},
    )
