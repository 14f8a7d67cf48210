"""Waiting as a library's own worker does it: take what is there, else sleep and look again.

Owns what such a look has taken: the next lease hands it out. Invariant: a delay that has grown while nothing came
starts anew after a job, as in the workers that this stands for.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

Token = TypeVar("Token")


class Polled(ABC, Generic[Token]):
    """Subjects whose library cannot wait without taking."""

    def __init__(self, first_delay: float = 0.0, growth: float = 1.0, longest_delay: float = 0.0) -> None:
        """Say how the library's worker sleeps; nothing, when it has a wait of its own (`wait_and_take`)."""
        self._first_delay = self._delay = first_delay
        self._growth = growth
        self._longest_delay = max(first_delay, longest_delay)
        self._waited_for: Token | None = None

    @abstractmethod
    def take(self) -> Token | None:
        """Take one job, or return `None` when there is none."""

    def wait_and_take(self, timeout: float) -> Token | None:
        """Take one job, waiting for it as the library's worker does."""
        deadline = time.monotonic() + timeout
        while (taken := self.take()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(left, self._delay))
            self._delay = min(self._delay * self._growth, self._longest_delay)
        self._delay = self._first_delay
        return taken

    def lease(self) -> Token | None:
        """Take one job: the one that was waited for, if there is one."""
        waited_for, self._waited_for = self._waited_for, None
        return self.take() if waited_for is None else waited_for

    def wait(self, timeout: float) -> bool:
        """Wait for a job, and keep it for the next lease."""
        if self._waited_for is None:
            self._waited_for = self.wait_and_take(timeout)
        return self._waited_for is not None
