"""What waits, and for how long: the part of an examination that depends on the time.

Invariant: nothing here breaks a promise by itself, so nothing here is a problem; what maintenance is about to do in its
ordinary rhythm is not even worth a warning. Times are compared within one page of one walk, by the clocks of then.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from litequeue.model import Event, JobState
from litequeue.sqlite import filesystem, presence
from litequeue.sqlite.findings import Tally
from litequeue.sqlite.invariants import Stored
from litequeue.sqlite.place import Place
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.statements import SQL

_AHEAD_US = 5_000_000
"""How far the clock may have stepped back, or another process may be ahead, before that is said."""
_LATE_PASSES = 3
"""Passes of maintenance that may go by before something is late."""
_FAR_US = 366 * 86_400 * 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Waiting:
    """Counts what waits, and what lies where no clock has been."""

    def __init__(self, tally: Tally, path: str) -> None:
        self._tally = tally
        is_sound = filesystem.judge(filesystem.kind_of(os.path.dirname(path))) == "sound"
        self._place = Place(path, 0o600, create=False, has_presence=is_sound)
        self._late_us = 0
        self._holders: set[int | None] = set()
        self._dead_holders: set[int | None] = set()
        self._jobs = 0
        self._dead = 0
        self._oldest: int | None = None
        self.is_booted = True
        """Whether the file has been opened since the machine started, so that its lease clock is set."""

    def begin(self, reader: Reader) -> None:
        """Begin a page."""
        self._late_us = _LATE_PASSES * reader.settings.reaper_interval_us
        holders = reader.all(SQL.holders)
        self._holders = {holder_id for holder_id, _ in holders}
        self._dead_holders = set(presence.dead(self._place, holders))

    def see(self, reader: Reader, job: Stored, events: list[Event]) -> None:
        """Look at one job."""
        self._jobs += 1
        match job.state:
            case JobState.LEASED:
                self._leased(reader, job)
            case JobState.DEAD:
                self._dead += 1
            case JobState.PENDING:
                self._oldest = job.created_at if self._oldest is None else min(self._oldest, job.created_at)
            case _:
                pass
        if JobState(job.state).is_waiting:
            self._gated(reader, job, events)
        times = [job.created_at, job.leased_at or 0, job.finished_at or 0, *(event.at for event in events)]
        if max(times) > reader.now + _AHEAD_US:
            self._tally.add("clock.ahead", f"first found {_shown(max(times))}", job_id=job.job_id)

    def finish(self) -> None:
        """Add what is known only at the end."""
        self._tally.add("job.count", f"{self._jobs:,}")
        if self._dead:
            self._tally.add("job.dead", f"{self._dead:,}")
        if self._oldest is not None:
            self._tally.add("job.ready", _shown(self._oldest))
        if not self.is_booted:
            self._tally.add("host.boot")

    def _leased(self, reader: Reader, job: Stored) -> None:
        """Hold a lease against the lease clock, which is another one before the first opening after a boot."""
        if job.lease_deadline is None or not self.is_booted:
            return
        if job.lease_deadline <= reader.lease_now - self._late_us:
            self._tally.add("lease.lapsed", job_id=job.job_id)
        if job.lease_deadline > reader.lease_now + _FAR_US:
            self._tally.add("lease.far", job_id=job.job_id)
        if job.lease_deadline > reader.lease_now and job.holder not in self._holders:
            self._tally.add("lease.holder", job_id=job.job_id)
        if job.holder in self._dead_holders:
            self._tally.add("lease.dead", job_id=job.job_id)

    def _gated(self, reader: Reader, job: Stored, events: list[Event]) -> None:
        settings = reader.settings.of(job.kind)
        if job.attempts >= (job.max_attempts or settings.max_attempts):
            self._tally.add("job.spent", job_id=job.job_id)
        if job.expires_at is not None and job.expires_at <= reader.now - self._late_us:
            self._tally.add("job.overdue", job_id=job.job_id)
        if job.not_before is None:
            return
        if job.not_before <= reader.now - self._late_us:
            self._tally.add("job.due", job_id=job.job_id)
        is_set_ahead = bool(events) and events[-1].at > reader.now
        is_long = job.not_before - reader.now > settings.backoff_cap_us
        if job.state == JobState.RETRYABLE and is_set_ahead and is_long:
            self._tally.add("job.distant", job_id=job.job_id)


def _shown(moment_us: int) -> str:
    try:
        return f"{_EPOCH + timedelta(microseconds=moment_us):%Y-%m-%dT%H:%M:%SZ}"
    except (OverflowError, ValueError):
        return str(moment_us)
