"""Commands that run until they are told to stop: the thread that does the work, and the one that hears of signals.

Invariants: the work has a thread of its own, because a signal handler may interrupt the main thread anywhere, and what
it then calls must not need a lock that this thread holds; so a handler does nothing but note the signal, and the main
thread does nothing but wait for the next one. Leaves out: what stopping means.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from queue import Empty, SimpleQueue
from typing import TypeVar

from litequeue.worker.signals import heard_by

T = TypeVar("T")

_LOOK_S = 1.0
"""Where a wait is not interrupted by signals (Windows), their handlers run when it ends."""


class _Said(Enum):
    """What the main thread waits for."""

    SIGNAL = auto()
    ENDED = auto()


class Signals:
    """The signals that ask this process to end, in the order in which they come; made by `signals`."""

    def __init__(self) -> None:
        self._said: SimpleQueue[_Said] = SimpleQueue()

    def note(self) -> None:
        """Say that a signal has come; safe in its handler, as `SimpleQueue.put` may interrupt itself."""
        self._said.put(_Said.SIGNAL)

    def heed(self, work: Callable[[], T], stop: Callable[[], None]) -> T:
        """Do the work in a thread of its own, and call `stop` at each signal; return or raise what it came to.

        A signal that came before is heeded at once.
        """
        outcome: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                outcome.append(work())
            except BaseException as exc:  # noqa: BLE001 - raised again below, in the main thread
                errors.append(exc)
            finally:
                self._said.put(_Said.ENDED)

        thread = threading.Thread(target=run, name="litequeue-command")
        thread.start()
        try:
            while self._next() is _Said.SIGNAL:
                stop()
        except BaseException:
            stop()
            raise
        finally:
            thread.join()
        for error in errors:
            raise error
        return outcome[0]

    def _next(self) -> _Said:
        while True:
            try:
                return self._said.get(timeout=_LOOK_S)
            except Empty:
                continue


@contextmanager
def signals() -> Iterator[Signals]:
    """Note the signals that ask a process to end; once one has come, they say nothing new after the block."""
    noted = Signals()
    with heard_by(noted.note, is_end=True):
        yield noted
