"""A file that is opened when it is asked for, and again when it was out of reach.

Invariant: after any error of the library the handle is let go, so that the next look opens the file that stands at the
path then. Leaves out: what is looked at.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Generic, TypeVar

from litequeue.errors import LiteQueueError
from litequeue.queue import Queue

Sight = TypeVar("Sight")
T = TypeVar("T")


class Reached(Generic[Sight]):
    """One file by its path, and what looks at it through a handle; not for use by two threads at once."""

    def __init__(self, path: str, open_file: Callable[[str], Queue], sight: Callable[[Queue], Sight]) -> None:
        self.path = os.path.realpath(path)
        self._open_file = open_file
        self._make = sight
        self._queue: Queue | None = None
        self._sight: Sight | None = None

    def reach(self) -> Sight:
        """Open the file unless it is open; return what looks at it.

        Raises:
            LiteQueueError: it cannot be opened.
        """
        if self._sight is None:
            self._queue = self._open_file(self.path)
            self._sight = self._make(self._queue)
        return self._sight

    def look(self, at: Callable[[Sight], T]) -> T:
        """Look at the file.

        Raises:
            LiteQueueError: it cannot be opened or read; it is opened anew by the next look.
        """
        try:
            return at(self.reach())
        except LiteQueueError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file, if it is open."""
        queue, self._queue, self._sight = self._queue, None, None
        if queue is not None:
            with contextlib.suppress(LiteQueueError):
                queue.close()
