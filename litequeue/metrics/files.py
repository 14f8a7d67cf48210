"""Several files on one page: each is opened when it is asked for, and again when it was out of reach.

Invariant: what is wrong with one file is told on the page (`litequeue_up` 0, and a remark), and never keeps the others
from being read.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Sequence

from litequeue.errors import LiteQueueError
from litequeue.metrics import families as of
from litequeue.metrics.families import Page
from litequeue.metrics.of_file import FileMetrics
from litequeue.queue import Queue


class Files:
    """The metrics of files; `open_file` opens one by its path. For many threads."""

    def __init__(self, paths: Sequence[str], open_file: Callable[[str], Queue], max_kinds: int) -> None:
        self._watched = [_Watched(path, open_file, max_kinds) for path in paths]
        self._lock = threading.Lock()
        self.errors: list[LiteQueueError] = []
        """What was wrong with files on the last page, in their order."""

    def reach(self) -> None:
        """Open all files that are not open.

        Raises:
            LiteQueueError: one cannot be.
        """
        with self._lock:
            for watched in self._watched:
                watched.reach()

    def page(self, budget_s: float = math.inf) -> Page:
        """Return the metrics of now; each file has so much time to count, and goes on with it on the next page."""
        page = Page()
        with self._lock:
            self.errors = [error for one in self._watched if (error := one.add_to(page, budget_s)) is not None]
        return page

    def close(self) -> None:
        """Close all files; idempotent."""
        for watched in self._watched:
            watched.close()


class _Watched:
    """One file."""

    def __init__(self, path: str, open_file: Callable[[str], Queue], max_kinds: int) -> None:
        self._path = os.path.realpath(path)
        self._open_file = open_file
        self._max_kinds = max_kinds
        self._queue: Queue | None = None
        self._metrics: FileMetrics | None = None

    def reach(self) -> FileMetrics:
        """Open the file unless it is open."""
        if self._metrics is None:
            self._queue = self._open_file(self._path)
            self._metrics = FileMetrics(self._queue, self._max_kinds)
        return self._metrics

    def add_to(self, page: Page, budget_s: float) -> LiteQueueError | None:
        """Add what the file tells; return why it cannot be read."""
        try:
            self.reach().add_to(page, budget_s)
        except LiteQueueError as exc:
            self.close()
            page.add(self._path, of.UP, 0)
            page.remarks.append(str(exc))
            return exc
        return None

    def close(self) -> None:
        """Close the file, if it is open."""
        queue, self._queue, self._metrics = self._queue, None, None
        if queue is not None:
            with contextlib.suppress(LiteQueueError):
                queue.close()
