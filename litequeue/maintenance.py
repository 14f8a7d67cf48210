"""Maintenance: what the dead left, what is due, what may go, the schedules, and the write-ahead log.

Owns: one bounded pass over a file and the loop around it. Invariants: nothing here is needed for work to go on (a lease
call promotes and reaps by itself), it only makes it timely and tidy; every step is safe beside everything else, so a
second maintainer does no harm; the loop lets one lead and the others stand by.
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import asdict, dataclass, replace
from queue import Empty, SimpleQueue

from litequeue import arguments
from litequeue.errors import CannotOpen, LeadershipLost, OutcomeUnknown, QueueBusy, QueueFull
from litequeue.lease import Duration
from litequeue.queue import Queue
from litequeue.scheduler import Scheduler
from litequeue.sqlite import leadership
from litequeue.sqlite.leadership import Leadership

_PROBE_S = 0.5
"""How soon a leader notices that a holder of leases has died."""
_STANDBY_S = 0.1
"""How soon one that stands by notices that the leader has died."""
_log = logging.getLogger("litequeue.maintenance")


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What one pass did."""

    reaped: int
    """Leases that had lapsed, or whose holder's process has died."""
    promoted: int
    """Gated jobs that were due (those that were too late to start are counted here as well)."""
    expired: int
    """Waiting jobs that can no longer start in time."""
    told: int
    """Ends of jobs of which those that wait for them were told, beyond what whoever ended them has done."""
    pruned: int
    """Finished jobs whose retention was over."""
    pulled_in: int
    """Back-offs shortened after the wall clock stepped back."""
    fired: int
    """Jobs that schedules have made."""
    freed_bytes: int
    """Room that deleted jobs had left in the file, given back to the disk."""
    wal_pages: int
    """Pages left in the write-ahead log after the checkpoint."""
    wal_bytes: int
    """The size of the log's file; it stays when the log begins anew, until it is cut beyond 64 MiB."""
    wal_held_s: int
    """For how long one reader has kept the log from being copied back, by what passes on this handle have seen."""

    def __bool__(self) -> bool:
        """Whether the pass made, moved or removed any job, or gave room back."""
        moved = (self.reaped, self.promoted, self.expired, self.told, self.pruned, self.pulled_in, self.fired)
        return any((*moved, self.freed_bytes))

    def as_dict(self) -> dict[str, int]:
        """Return the report as plain numbers."""
        return asdict(self)


class Maintenance:
    """Upkeep of one queue file."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._is_stopping = False
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._scheduler = Scheduler(queue)
        self._told = ""
        self._reaped_between = 0
        self._fired_between = 0
        self._looked_at = 0.0

    def run_once(self) -> MaintenanceReport:
        """Do one pass over the whole file, in bounded steps, whoever else maintains it; return what was done (V11).

        Schedules are fired first, and again in the midst of a long pass.

        Raises:
            QueueBusy: a lock was not had within the handle's `busy_timeout`; what was done until then stays done.
        """
        queue = self._queue
        self._reaped_between = self._fired_between = 0
        self._looked_at = time.monotonic()
        queue.between_steps = self._keep_pace
        try:
            report = MaintenanceReport(
                fired=self._scheduler.fire(),
                reaped=queue.reap_expired() + queue.reap_dead(),
                pulled_in=queue.pull_in(),
                promoted=queue.promote_due(),
                expired=queue.expire_overdue(),
                told=queue.tell_waiting(),
                pruned=queue.prune(),
                freed_bytes=queue.vacuum(),
                wal_pages=queue.checkpoint_wal(),
                wal_bytes=queue.wal_bytes,
                wal_held_s=queue.wal_held_s,
            )
        finally:
            queue.between_steps = None
        leadership.mark(queue.path, leadership.MAINTENANCE, queue.mode, queue.options.clock.wall_us())
        report = replace(report, reaped=report.reaped + self._reaped_between, fired=report.fired + self._fired_between)
        if report:
            _log.info("maintenance of %s: %s", queue.path, report, extra=report.as_dict())
        return report

    def run(self, every: Duration | None = None) -> None:
        """Maintain until `stop()` is called from another thread or a signal handler.

        A pass comes every `every` seconds; `None` follows the setting `reaper_interval`. Twice a second the leader
        looks whether a process that holds leases has died, and does a pass at once when one has. It fires schedules at
        the time of their boundaries, unless another process leads in that (`run_schedules`), and at each pass in any
        case. One maintainer of a file leads, the others stand by and take over within about 0.1 s of its death. A file
        that is busy or full is tried again at the next pass.

        Raises:
            UsageError: `every` is not more than 0.
            StorageLost, StorageCorrupt, QueueClosed: the file is of no more use.
        """
        pause_s = None if every is None else arguments.duration_us("every", every, positive=True) / 1_000_000
        self._queue.reaper_interval()  # a file that is lost is said to be so, not that it has no room for a lock file
        lead = Leadership(self._queue.path, leadership.MAINTENANCE, self._queue.mode)
        is_standing_by = False
        try:
            while not self._is_stopping:
                if not self._leads(lead):
                    if not is_standing_by:
                        _log.info("another process maintains %s: standing by", self._queue.path)
                    is_standing_by = True
                    self._wait(_STANDBY_S)
                    continue
                if is_standing_by:
                    _log.info("taking over the maintenance of %s", self._queue.path)
                is_standing_by = False
                self._rest(self._pass(pause_s))
        finally:
            self._scheduler.give()
            lead.give()

    def stop(self) -> None:
        """Let `run()` return after its present pass; safe in a signal handler, which an `Event` is not."""
        self._is_stopping = True
        self._wake.put(None)

    def _wait(self, seconds: float) -> None:
        with contextlib.suppress(Empty):
            self._wake.get(timeout=seconds)

    def _rest(self, seconds: float) -> None:
        """Wait for the next pass, firing schedules meanwhile; it comes at once when a holder of leases has died."""
        until = time.monotonic() + seconds
        while not self._is_stopping and (left := until - time.monotonic()) > 0:
            pause_s = _PROBE_S
            with contextlib.suppress(QueueBusy):
                pause_s = self._tick()
                if self._queue.has_dead():
                    return
            self._wait(min(left, pause_s, _PROBE_S))

    def _leads(self, lead: Leadership) -> bool:
        """Lead, if nobody else does; tell whether this one does now."""
        try:
            return lead.take()
        except LeadershipLost as exc:  # another one may maintain too by now, which does no harm
            _log.warning("maintenance of %s stands by: %s", self._queue.path, exc)
            return False

    def _tick(self) -> float:
        """Fire what is due, if this one leads in that; return in how many seconds to come again."""
        try:
            pause_s = self._scheduler.tick()
        except (LeadershipLost, CannotOpen, OutcomeUnknown) as exc:  # at the next pass they are fired without the lead
            if str(exc) != self._told:
                _log.warning("the schedules of %s will be tried again: %s", self._queue.path, exc)
            self._told = str(exc)
            return _PROBE_S
        self._told = ""
        return pause_s

    def _keep_pace(self) -> None:
        """Do in the middle of a pass, which may be a long one, what is done as often between two."""
        if time.monotonic() - self._looked_at >= _PROBE_S:
            self._reaped_between += self._queue.reap_dead()
            self._fired_between += self._scheduler.fire()
            self._looked_at = time.monotonic()

    def _pass(self, pause_s: float | None) -> float:
        """Do one pass; return how long to wait for the next."""
        try:
            self.run_once()
            return self._queue.reaper_interval() if pause_s is None else pause_s
        except (QueueBusy, QueueFull, OutcomeUnknown) as exc:
            _log.warning("maintenance of %s will be tried again: %s", self._queue.path, exc)
            return 1.0 if pause_s is None else pause_s
