"""What only a worker's process knows: how its runs went and how long they took, since its start.

Invariant: nothing is written or asked for it, it is counted from what the worker tells its hook anyway.
"""

from __future__ import annotations

import threading
from collections import Counter
from uuid import UUID

from litequeue.clock import Clock
from litequeue.histogram import LONG_S, Histogram
from litequeue.metrics import families as of
from litequeue.metrics.families import Kinds, Page
from litequeue.worker import WorkerEvent

_FINAL = frozenset({"completed", "settled", "dead", "discarded"})
"""After these the job runs no more; one that its handler has ended by its own word may."""


class WorkerMetrics:
    """Counts the events of one or several workers of this process."""

    def __init__(self, clock: Clock, max_kinds: int) -> None:
        self._clock = clock
        self._kinds = Kinds(max_kinds)
        self._lock = threading.Lock()
        self._runs: Counter[tuple[str, str]] = Counter()
        self._timeouts: Counter[str] = Counter()
        self._running: dict[tuple[UUID, int], str] = {}
        self._waits: dict[str, Histogram] = {}
        self._run_times: dict[str, Histogram] = {}
        self._latencies: dict[str, Histogram] = {}

    def on_event(self, event: WorkerEvent) -> None:
        """Count an event."""
        with self._lock:
            kind = self._kinds.label(event.kind)
            match event.name:
                case "started":
                    self._running[event.job_id, event.generation] = kind
                    if event.attempt == 1:
                        _observe(self._waits, kind, self._since(event))
                case "timed_out":
                    self._timeouts[kind] += 1
                case _:
                    self._running.pop((event.job_id, event.generation), None)
                    self._runs[kind, event.name] += 1
                    if event.duration_s is not None:
                        _observe(self._run_times, kind, event.duration_s)
                    if event.name in _FINAL:
                        _observe(self._latencies, kind, self._since(event))

    def add_to(self, page: Page, db: str) -> None:
        """Add what was counted."""
        with self._lock:
            for (kind, outcome), count in sorted(self._runs.items()):
                page.add(db, of.RUNS, count, kind, outcome)
            for kind, count in sorted(self._timeouts.items()):
                page.add(db, of.TIMEOUTS, count, kind)
            running = Counter(self._running.values())
            for kind in sorted(self._waits.keys() | self._run_times.keys() | running.keys()):
                page.add(db, of.RUNNING, running[kind], kind)
            for definition, by_kind in (
                (of.WORKER_WAIT, self._waits),
                (of.WORKER_RUN, self._run_times),
                (of.WORKER_LATENCY, self._latencies),
            ):
                for kind, histogram in sorted(by_kind.items(), key=_name):
                    page.add_histogram(db, definition, histogram.observed(), kind)

    def _since(self, event: WorkerEvent) -> float:
        """Return how many seconds ago the job was enqueued."""
        return max(0, self._clock.wall_us() - event.created_at) / 1_000_000


def _observe(by_kind: dict[str, Histogram], kind: str, value: float) -> None:
    by_kind.setdefault(kind, Histogram(LONG_S)).observe(value)


def _name(item: tuple[str, Histogram]) -> str:
    return item[0]
