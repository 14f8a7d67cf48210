"""Several files on one page.

Invariant: what is wrong with one file is told on the page (`litequeue_up` 0, and a remark), and never keeps the others
from being read.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import partial

from litequeue.errors import LiteQueueError
from litequeue.metrics import families as of
from litequeue.metrics.families import Page
from litequeue.metrics.of_file import FileMetrics
from litequeue.metrics.reaching import Reached
from litequeue.queue import Queue


class Files:
    """The metrics of files; `open_file` opens one by its path. For many threads."""

    def __init__(self, paths: Sequence[str], open_file: Callable[[str], Queue], max_kinds: int) -> None:
        sight = partial(FileMetrics, max_kinds=max_kinds)
        self._reached = [Reached(path, open_file, sight) for path in paths]
        self._lock = threading.Lock()
        self.errors: list[LiteQueueError] = []
        """What was wrong with files on the last page, in their order."""

    def reach(self) -> None:
        """Open all files that are not open.

        Raises:
            LiteQueueError: one cannot be.
        """
        with self._lock:
            for reached in self._reached:
                reached.reach()

    def page(self, budget_s: float = math.inf) -> Page:
        """Return the metrics of now; each file has so much time to count, and goes on with it on the next page."""
        page = Page()
        with self._lock:
            self.errors = [error for one in self._reached if (error := _add(one, page, budget_s)) is not None]
        return page

    def close(self) -> None:
        """Close all files; idempotent."""
        for reached in self._reached:
            reached.close()


def _add(reached: Reached[FileMetrics], page: Page, budget_s: float) -> LiteQueueError | None:
    """Add what a file tells; return why it cannot be read."""
    try:
        reached.look(lambda metrics: metrics.add_to(page, budget_s))
    except LiteQueueError as exc:
        page.add(reached.path, of.UP, 0)
        page.remarks.append(str(exc))
        return exc
    return None
