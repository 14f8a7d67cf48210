"""Who fires a file's schedules, and when.

Owns: the lead, by a lock on `<file>-schedules`, and the rhythm: at the time of the next boundary, and half a second
later at most where the clock was set or a schedule was added. Invariants: one of all processes leads, the others stand
by and take over within about 0.1 s of its death (half a second for maintenance); nothing rests on that, since a second
ticker can fire no boundary twice. Leaves out: what a firing is (`firing`).
"""

from __future__ import annotations

import logging
import time
from typing import Protocol

from litequeue.errors import OutcomeUnknown, QueueBusy, UsageError
from litequeue.queue import Queue
from litequeue.sqlite.leadership import Leadership

LOOK_S = 0.5
"""How soon a leader notices that the clock was set, or that a schedule was added."""
_STANDBY_S = 0.1
"""How soon one that stands by notices that the leader has died, and any that it is to stop."""
_log = logging.getLogger("litequeue.schedules")


class Stop(Protocol):
    """What says that it is enough; a `threading.Event` does."""

    def is_set(self) -> bool:
        """Tell whether it is."""
        ...


class Scheduler:
    """Fires the schedules of one file as long as it leads; not for use by two threads at once."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._leadership: Leadership | None = None
        self._told: dict[str, str] = {}

    def lead(self) -> bool:
        """Lead, if nobody else does; tell whether this one does now.

        Raises:
            LeadershipLost: the lock file of this leader was replaced or removed.
            CannotOpen: there is no room or no permission for the lock file.
        """
        if self._leadership is None:
            self._leadership = Leadership(self._queue.path, "schedules", self._queue.mode)
        return self._leadership.take()

    def fire(self) -> int:
        """Fire what is due, whoever leads; return how many jobs that made."""
        fires = self._queue.fire_schedules()
        if fires.jobs:
            made = f"{fires.jobs} job{'' if fires.jobs == 1 else 's'}"
            _log.info("%s: schedules have made %s", self._queue.path, made, extra={"fired": fires.jobs})
        for name, reason in fires.refused.items():
            if self._told.get(name) != str(reason):
                _log.warning("schedule %s is due and cannot be fired: %s", name, reason, extra={"schedule": name})
        self._told = {name: str(reason) for name, reason in fires.refused.items()}
        return fires.jobs

    def tick(self) -> float:
        """Fire what is due, if this one leads or nobody does; return in how many seconds to come again.

        As long as nothing is due, nobody becomes the leader, so a file without schedules has no lock file for them.

        Raises:
            LeadershipLost: the lock file of this leader was replaced or removed.
        """
        is_due, upcoming_s = self._queue.until_boundary()
        if is_due and self.lead():
            self.fire()
            _, upcoming_s = self._queue.until_boundary()
        return LOOK_S if upcoming_s is None else min(LOOK_S, upcoming_s)

    def give(self) -> None:
        """Let another one lead."""
        if self._leadership is not None:
            self._leadership.give()


def run_schedules(queue: Queue, stop: Stop) -> None:
    """Fire the schedules of a file, and do nothing else for it, until `stop` is set.

    For those who run no maintenance, which does this too. `stop` is a `threading.Event`, or whatever has `is_set`; it
    is looked at ten times a second, and may be set by a signal handler. One process leads, the others stand by and take
    over within about 0.1 s of its death. A boundary is fired at its time by the clock of the handle. A file that is
    busy is tried again.

    Raises:
        UsageError: `stop` has no `is_set`.
        LeadershipLost: the lock file was replaced or removed underneath, so another one may lead by now; nothing was
            fired twice. Return and error are distinct: it only returns when `stop` is set.
        StorageLost, StorageCorrupt, QueueClosed: the file is of no more use.
        CannotOpen: there is no room or no permission for the lock file.
    """
    if not callable(getattr(stop, "is_set", None)):
        raise UsageError.of("stop", stop, "an Event, or whatever has is_set()")
    queue.until_boundary()  # a file that is lost is said to be so, not that it has no room for a lock file
    scheduler = Scheduler(queue)
    is_standing_by = False
    try:
        while not stop.is_set():
            if not scheduler.lead():
                if not is_standing_by:
                    _log.info("another process fires the schedules of %s: standing by", queue.path)
                is_standing_by = True
                _rest(_STANDBY_S, stop)
                continue
            if is_standing_by:
                _log.info("taking over the schedules of %s", queue.path)
            is_standing_by = False
            try:
                pause_s = scheduler.tick()
            except (QueueBusy, OutcomeUnknown) as exc:
                _log.warning("the schedules of %s will be tried again: %s", queue.path, exc)
                pause_s = LOOK_S
            _rest(pause_s, stop)
    finally:
        scheduler.give()


def _rest(seconds: float, stop: Stop) -> None:
    """Wait in short steps: an `Event` that a signal handler sets while its own `wait` is under way may lock up."""
    until = time.monotonic() + seconds
    while not stop.is_set() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _STANDBY_S))
