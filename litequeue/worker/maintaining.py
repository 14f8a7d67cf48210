"""Maintenance beside a worker, in a thread and with a handle of its own.

Invariants: of all workers and maintainers of a file one leads, the others stand by (`Maintenance.run`); a failure is
logged and tried again, so upkeep does not end unseen while the worker goes on.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from litequeue.errors import LiteQueueError
from litequeue.maintenance import Maintenance
from litequeue.queue import Queue

_RETRY_S = 5.0
_log = logging.getLogger("litequeue.worker")


@contextmanager
def maintained(queue: Queue) -> Iterator[None]:
    """Maintain the file of a queue meanwhile; the handle is closed at the end."""
    thread = _Maintainer(queue)
    thread.start()
    try:
        yield
    finally:
        thread.stop()


class _Maintainer(threading.Thread):
    def __init__(self, queue: Queue) -> None:
        super().__init__(name="litequeue-maintenance", daemon=True)
        self._queue = queue
        self._maintenance = Maintenance(queue)
        self._ended: SimpleQueue[None] = SimpleQueue()

    def stop(self) -> None:
        """End it after its present step, and wait for that."""
        self._ended.put(None)
        self._maintenance.stop()
        self.join()

    def run(self) -> None:
        try:
            while True:
                try:
                    self._maintenance.run()
                except LiteQueueError as exc:
                    _log.warning("maintenance of %s failed, and begins again: %s", self._queue.path, exc)
                with contextlib.suppress(Empty):
                    self._ended.get(timeout=_RETRY_S)
                    break
        finally:
            with contextlib.suppress(LiteQueueError):
                self._queue.close()
