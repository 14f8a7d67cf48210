"""The collector: metrics of a file, and of a worker in this process, as text or for `prometheus_client`.

Invariants: a scrape never raises for what is wrong with the file, it says `litequeue_up 0` and why; it reads on a
handle of its own, so a worker's verbs do not wait for it. Leaves out: what is read (`of_file`, `of_worker`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from litequeue import arguments
from litequeue.errors import LiteQueueError, UsageError, missing_extra
from litequeue.metrics import families as of
from litequeue.metrics.families import Page
from litequeue.metrics.of_file import FileMetrics
from litequeue.metrics.of_worker import WorkerMetrics
from litequeue.metrics.text import render
from litequeue.queue import Queue
from litequeue.worker import WorkerEvent

if TYPE_CHECKING:
    from prometheus_client.core import Metric

MAX_KINDS = 100
MOST_KINDS = 10_000
BUDGET_S = 1.0
"""How long a scrape may count; what is not done by then goes on in the next one."""


class Collector:
    """Metrics of one queue file for Prometheus; `close` it, or use it as a context manager.

    `Worker(…, on_event=collector.on_event)` counts the runs of this process. `text()` is what Prometheus scrapes. With
    the extra `prometheus`, `prometheus_client.REGISTRY.register(collector)` adds the same metrics to your own.

    The first `max_kinds` kinds (1 to 10,000), the largest first, have values of their own, the rest shares the kind
    `(other)`. With `file=False` only what this process itself has seen is told: where several processes of one file are
    scraped, one of them, or `litequeue metrics --serve`, tells of the file.

    Raises:
        UsageError: an argument out of its bounds.
    """

    def __init__(self, queue: Queue, *, file: bool = True, max_kinds: int = MAX_KINDS) -> None:
        given: object = queue
        if not isinstance(given, Queue):
            raise UsageError.of("queue", given, "a Queue, from litequeue.open")
        self._queue = queue
        self._has_file = bool(file)
        self._max_kinds = arguments.whole("max_kinds", max_kinds, 1, MOST_KINDS)
        self._worker = WorkerMetrics(queue.options.clock, max_kinds)
        self._gate_waits = queue.surveyor().gate_waits
        self._lock = threading.Lock()
        self._own: Queue | None = None
        self._file: FileMetrics | None = None
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def on_event(self, event: WorkerEvent) -> None:
        """Count what a worker tells; give this to `Worker(on_event=…)`, or call it from a hook of your own."""
        self._worker.on_event(event)

    def text(self) -> str:
        """Return the metrics in Prometheus' text format, version 0.0.4.

        It takes about a second at most: in a large file, counts may be missing at first, and are then kept for a while
        (`litequeue_jobs_count_age_seconds`). A file that cannot be read has `litequeue_up` 0.
        """
        return render(self._page())

    def describe(self) -> Iterator[Metric]:
        """Return the names of the metrics, as `prometheus_client` asks for them when this is registered.

        Raises:
            UsageError: `prometheus_client`, of the extra `prometheus`, is not installed.
        """
        metric = _metric()
        for definition in (*(of.OF_FILE if self._has_file else ()), *of.OF_PROCESS):
            yield metric(definition.name.removesuffix("_total"), definition.help, definition.type)

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of now; `prometheus_client` calls this at each scrape.

        Raises:
            UsageError: `prometheus_client`, of the extra `prometheus`, is not installed.
        """
        metric = _metric()
        for definition, samples in self._page().families():
            family = metric(definition.name.removesuffix("_total"), definition.help, definition.type)
            for sample in samples:
                family.add_sample(definition.name + sample.suffix, sample.labels, sample.value)
            yield family

    def close(self) -> None:
        """Close the handle that it reads with; idempotent. From then on only what this process has seen is told."""
        with self._lock:
            self._is_closed = True
            self._forget()

    def add_to(self, page: Page, budget_s: float = BUDGET_S) -> LiteQueueError | None:
        """Add all metrics to a page, which may have those of other files; return why the file could not be read."""
        error = None
        if self._has_file:
            with self._lock:
                error = None if self._is_closed else self._add_file(page, budget_s)
        waits = self._gate_waits.observed()
        page.add_histogram(self._queue.path, of.GATE_WAIT, waits)
        self._worker.add_to(page, self._queue.path)
        return error

    def _page(self) -> Page:
        page = Page()
        self.add_to(page)
        return page

    def _add_file(self, page: Page, budget_s: float) -> LiteQueueError | None:
        try:
            if self._file is None:
                self._own = self._queue.sibling()
                self._file = FileMetrics(self._own, self._max_kinds)
            self._file.add_to(page, budget_s)
        except LiteQueueError as exc:
            self._forget()
            page.add(self._queue.path, of.UP, 0)
            page.remarks.append(str(exc))
            return exc
        return None

    def _forget(self) -> None:
        """Let go of the handle: the next scrape opens the file anew, for it may be there again."""
        own, self._own, self._file = self._own, None, None
        if own is not None:
            with contextlib.suppress(LiteQueueError):
                own.close()


def _metric() -> type[Metric]:
    """Return `prometheus_client`'s class of metrics."""
    try:
        from prometheus_client.core import Metric  # noqa: PLC0415 - only with the extra
    except ImportError as exc:
        raise missing_extra("prometheus", "a registry of prometheus_client's", "prometheus_client") from exc
    return Metric
