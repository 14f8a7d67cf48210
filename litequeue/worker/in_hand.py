"""What a worker has in hand: the runs whose jobs it holds.

Owns: from the lease to the moment the queue knows what became of it, each run's place (with an executor, or waiting out
a pause between two tries), its heartbeats, and its time limit. Invariant: a lease is extended as long as it is in hand,
and no longer. Leaves out: what is handed to the queue, and when (`dispatcher`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

from litequeue.lease import Lease
from litequeue.worker.events import Events
from litequeue.worker.heartbeat import Heartbeat
from litequeue.worker.run import Executor, Plan, Run


class InHand:
    """The runs, for the thread of the dispatcher; `cancel` may be called from any."""

    def __init__(self, plan: Plan, executor: Executor, heartbeat: Heartbeat, events: Events) -> None:
        self._handlers = plan.handlers
        self._has_limits = plan.has_limits
        self._executor = executor
        self._heartbeat = heartbeat
        self._events = events
        self._runs: dict[Lease, Run] = {}
        self._resting: list[Run] = []
        self._put_by: list[Run] = []
        self._limit_at = math.inf
        """When the first of them is to be told that its time is over."""

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(list(self._runs.values()))

    @property
    def next_at(self) -> float:
        """When there is something to do for one of them: a pause or a time limit ends."""
        return min([self._limit_at, *(run.starts_at for run in self._resting)])

    def begin(self, leases: Sequence[Lease]) -> int:
        """Let handlers begin on what was leased, and on what was put by; return how many."""
        put_by, self._put_by = self._put_by, []
        now = time.monotonic()
        for run in put_by:
            run.starts_at = now
            if run.lease.lost:
                self.forget(run)
        runs = [*(run for run in put_by if not run.lease.lost), *self.keep(leases)]
        self._start(runs)
        return len(runs)

    def put_by(self, leases: Sequence[Lease]) -> None:
        """Take leases in hand whose handlers begin with the next ones: what ended before them is not handed in yet."""
        self._put_by += self.keep(leases)

    def keep(self, leases: Sequence[Lease]) -> list[Run]:
        """Take leases in hand, and do not begin yet."""
        return [self._keep(lease, 0.0) for lease in leases]

    def rest(self, lease: Lease, pause_s: float) -> None:
        """Keep a job that has failed and was leased again at once; it begins when its pause is over."""
        self._resting.append(self._keep(lease, pause_s))

    def attend(self, now: float) -> int:
        """Begin what has rested, and tell those whose time is over to stop; return how many have begun.

        A thread may not listen: then it keeps its lease, and its place.
        """
        rested = [run for run in self._resting if run.starts_at <= now or run.lease.lost]
        for run in rested:
            self._resting.remove(run)
        for run in rested:
            if run.lease.lost:
                self.forget(run)
        begun = [run for run in rested if not run.lease.lost]
        self._start(begun)
        if self._limit_at <= now:
            self._cancel_overdue(now)
        return len(begun)

    def take_unbegun(self) -> list[Run]:
        """Return those that have not begun, or wait for their next try, which is not to come."""
        unbegun = self._put_by + self._resting
        self._put_by, self._resting = [], []
        return unbegun

    def find(self, lease: Lease) -> Run | None:
        """Return the run of a lease that is in hand."""
        return self._runs.get(lease)

    def cancel(self, run: Run) -> None:
        """Tell a handler to stop."""
        self._executor.cancel(run)

    def forget(self, run: Run) -> None:
        """Let go of a run: the queue knows what became of its job."""
        self._runs.pop(run.lease, None)
        self._heartbeat.forget(run.lease)

    def _keep(self, lease: Lease, pause_s: float) -> Run:
        run = self._runs[lease] = Run(lease, self._handlers.find(lease.kind), time.monotonic() + pause_s)
        self._heartbeat.watch(lease, pause_s)
        return run

    def _start(self, runs: Sequence[Run]) -> None:
        if not runs:
            return
        for run in runs:
            if self._has_limits and run.handler.timeout_s is not None:
                run.limit_at = run.starts_at + run.handler.timeout_s
                self._limit_at = min(self._limit_at, run.limit_at)
            run.has_begun = True
            self._events.started(run.lease)
        self._executor.start(runs)

    def _cancel_overdue(self, now: float) -> None:
        self._limit_at = math.inf
        for run in self:
            if run.limit_at <= now and not run.has_timed_out:
                run.has_timed_out = True
                self.cancel(run)
                self._events.timed_out(run.lease, now - run.starts_at)
            elif not run.has_timed_out:
                self._limit_at = min(self._limit_at, run.limit_at)
