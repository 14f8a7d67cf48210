"""Waiting for the end of a job (`Queue.wait_for`): by a bell of its own, `<file>-done`.

It is made by the first who has to wait, so that a queue whose users never do pays nothing for it; ringers look for it
now and then, and until each has had the time for that, nobody relies on it:

    ringer: looks for the bell, finds none          it will look again within a second
    waiter: makes the bell, looks, sleeps shortly   and so for longer than a second, though a ring wakes it too
    ringer: ends the job, does not ring             the next look finds it
    waiter: sleeps, once every ringer has looked    a ring comes after each commit that ends a job

Invariants: those of `arrivals`, whose way of waiting this is; a job has ended when it is completed, dead or cancelled,
or is there no more. Leaves out: the ring (`bell`), and who hears it (`watching`).
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from litequeue.errors import JobFailed, JobNotFound, WaitTimeout
from litequeue.model import Job, JobState
from litequeue.sqlite import reading
from litequeue.sqlite.arrivals import Lookout
from litequeue.sqlite.rows import Row
from litequeue.sqlite.statements import SQL

if TYPE_CHECKING:
    from uuid import UUID

    from litequeue.lease import Duration
    from litequeue.sqlite.reader import Reader
    from litequeue.sqlite.store import Store
    from litequeue.sqlite.watching import Listener

_ALL_KNOW_S = 1.1
"""After so long all ringers have looked for a bell: a little longer than they may go without (`bell`)."""


def is_known_to_all(listener: Listener) -> bool:
    """Tell whether all ringers have had the time to find the bell that somebody listens to."""
    return time.monotonic() - listener.known_since >= _ALL_KNOW_S


class JobWaiter(Lookout):
    """Waits for the end of one job, until it is interrupted. Make one with `Queue.job_waiter`."""

    def __init__(self, store: Store, job_id: UUID) -> None:
        super().__init__(store, store.place.done_path)
        self._job_id = job_id

    def wait(self, timeout: Duration | None = None) -> Job:
        """Wait as `Queue.wait_for` does, and raise what it does; an interrupt is a `WaitTimeout` before the time."""
        seen = _Seen(self._job_id)
        if not self._until(seen.look, timeout, looks_first=True) or seen.job is None:
            raise WaitTimeout(self._job_id, None if seen.state is None else str(seen.state))
        if seen.job.state is JobState.DEAD:
            raise JobFailed(seen.job)
        return seen.job

    def _watch(self, listener: Listener) -> bool:
        return super()._watch(listener) and is_known_to_all(listener)


class _Seen:
    """What one wait has seen of a job."""

    def __init__(self, job_id: UUID) -> None:
        self._job_id = job_id
        self.state: JobState | None = None
        self.job: Job | None = None
        """The record, once it has ended."""

    def look(self, reader: Reader) -> float:
        """Return 0 when it has ended, infinity before; its payload is only read once."""
        found = reader.one(SQL.row_by_id, self._job_id.bytes)
        if found is None:
            raise JobNotFound(self._job_id)
        self.state = JobState(Row(*found).state)
        if not self.state.is_terminal:
            return math.inf
        self.job = reading.get(reader, self._job_id)
        return 0
