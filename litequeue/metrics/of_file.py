"""What a file tells of itself: counts, ages, sizes, and a sample of what was completed lately.

Invariant: all of it is read, without the write lock, on a handle that nobody else waits for; what costs more the larger
the file is has its pace (`pacing`). Leaves out: what only processes know (`of_worker`).
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial

from litequeue.metrics import families as of
from litequeue.metrics.families import Definition, Kinds, Page
from litequeue.metrics.pacing import Paced
from litequeue.model import JobState
from litequeue.queue import Queue
from litequeue.sqlite.surveying import Counted, Done

RECENT_S = 300
QUANTILES = (0.5, 0.9, 0.99)


class FileMetrics:
    """The metrics of one file, read by a handle of its own; not for use by two threads at once."""

    def __init__(self, queue: Queue, max_kinds: int) -> None:
        self._queue = queue
        surveyor = self._surveyor = queue.surveyor()
        self._kinds = Kinds(max_kinds)
        self._jobs: Paced[Counted] = Paced(surveyor.jobs)
        self._oldest: Paced[dict[str, int]] = Paced(surveyor.oldest)
        self._done: Paced[list[Done]] = Paced(partial(surveyor.done, RECENT_S * 1_000_000))

    def add_to(self, page: Page, budget_s: float = math.inf) -> None:
        """Add what the file tells; what takes longer than the budget is told at a later time.

        Raises:
            LiteQueueError: the file cannot be read.
        """
        db = self._queue.path
        until = time.monotonic() + budget_s
        state = self._surveyor.state()
        if self._jobs.refresh(until) and self._jobs.found is not None:
            sizes: Counter[str] = Counter()
            for (kind, _), count in self._jobs.found.jobs.items():
                sizes[kind] += count
            self._kinds.renew(sizes)
        self._oldest.refresh(until)
        self._done.refresh(until)
        page.add(db, of.UP, 1)
        page.add(db, of.FILE_BYTES, state.file_bytes)
        page.add(db, of.FREE_BYTES, state.free_bytes)
        page.add(db, of.WAL_BYTES, state.wal_bytes)
        page.add(db, of.LAPSED, state.lapsed)
        if state.maintenance_age_s is not None:
            page.add(db, of.MAINTENANCE_AGE, state.maintenance_age_s)
        if self._jobs.found is not None:
            page.add(db, of.COUNT_AGE, self._jobs.age_s)
            self._add_counts(page, db, self._jobs.found)
        self._add_oldest(page, db, self._oldest.found or {})
        self._add_done(page, db, self._done.found or [])

    def _add_counts(self, page: Page, db: str, counted: Counted) -> None:
        jobs: Counter[tuple[str, JobState]] = Counter()
        reaps: Counter[str] = Counter()
        for (kind, state), count in counted.jobs.items():
            jobs[self._kinds.label(kind), state] += count
        for kind, count in counted.reaps.items():
            reaps[self._kinds.label(kind)] += count
        page.add(db, of.SCOPES, counted.scopes)
        for kind in sorted(reaps):
            page.add(db, of.REAPS, reaps[kind], kind)
            for state in JobState:
                page.add(db, of.JOBS, jobs[kind, state], kind, state.name.lower())

    def _add_oldest(self, page: Page, db: str, oldest: dict[str, int]) -> None:
        now_us = self._queue.options.clock.wall_us()
        ages_s: dict[str, float] = {}
        for kind, ready_at in oldest.items():
            label = self._kinds.label(kind)
            ages_s[label] = max(ages_s.get(label, 0.0), (now_us - ready_at) / 1_000_000)
        for kind in sorted(ages_s):
            page.add(db, of.OLDEST_READY, ages_s[kind], kind)

    def _add_done(self, page: Page, db: str, done: list[Done]) -> None:
        by_kind: defaultdict[str, list[Done]] = defaultdict(list)
        for one in done:
            by_kind[self._kinds.label(one.kind)].append(one)
        for kind, sample in sorted(by_kind.items()):
            page.add(db, of.RECENT, len(sample), kind)
            _add_quantiles(page, db, of.RECENT_WAIT, kind, (one.wait_s for one in sample))
            _add_quantiles(page, db, of.RECENT_RUN, kind, (one.run_s for one in sample))
            _add_quantiles(page, db, of.RECENT_LATENCY, kind, (one.latency_s for one in sample))


def _add_quantiles(page: Page, db: str, definition: Definition, kind: str, values: Iterable[float | None]) -> None:
    """Add values that occur in the sample: the least one that so large a part of it does not exceed."""
    known = sorted(value for value in values if value is not None)
    for quantile in QUANTILES if known else ():
        page.add(db, definition, known[math.ceil(quantile * len(known)) - 1], kind, str(quantile))
