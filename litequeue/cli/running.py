"""Commands that run until they are told to stop: the thread that does the work, and the one that hears of signals.

Invariants: the work has a thread of its own, because a signal handler may interrupt the main thread anywhere, and what
it then calls must not need a lock that this thread holds; so a handler does nothing but note the signal, and the main
thread does nothing but wait for the next one. What only shows something ends though nobody takes its output any more
(Ctrl-S, a pager that is not read on). Leaves out: what stopping means.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from queue import Empty, SimpleQueue
from typing import TypeVar

from litequeue.worker.signals import heard_by

T = TypeVar("T")

_LOOK_S = 1.0
"""Where a wait is not interrupted by signals (Windows), their handlers run when it ends."""


_PATIENCE_S = 1.0
"""Output that is not taken holds up whoever writes it; so long it may be, and so long again after it was let go."""


class OutputStuck(SystemExit):
    """The command was told to end and does, with status 0, while a thread of it still waits for its output to be taken.

    Nothing more must be written then, and nothing waited for.
    """


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

    def heed(self, work: Callable[[], T], stop: Callable[[], None], let_go: Callable[[], None] | None = None) -> T:
        """Do the work in a thread of its own, and call `stop` at each signal; return or raise what it came to.

        A signal that came before is heeded at once. Work that only shows something has a `let_go`, which is called when
        it has not ended a second after the first signal: to make the terminal take what is written, as far as possible.

        Raises:
            OutputStuck: it has not ended another second later.
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

        thread = threading.Thread(target=run, name="litequeue-command", daemon=let_go is not None)
        thread.start()
        try:
            while self._next() is _Said.SIGNAL:
                stop()
                if let_go is not None:
                    self._await_output(let_go)
                    break
        except OutputStuck:
            raise
        except BaseException:
            stop()
            thread.join()
            raise
        thread.join()
        for error in errors:
            raise error
        return outcome[0]

    def _await_output(self, let_go: Callable[[], None]) -> None:
        """Wait for the end of the work, which was told to, but not for ever."""
        if not self._ends_within(_PATIENCE_S):
            let_go()
            if not self._ends_within(_PATIENCE_S):
                raise OutputStuck(0)

    def _ends_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        try:
            while self._said.get(timeout=max(0.0, until - time.monotonic())) is _Said.SIGNAL:
                pass
        except Empty:
            return False
        return True

    def _next(self) -> _Said:
        while True:
            try:
                return self._said.get(timeout=_LOOK_S)
            except Empty:
                continue


@contextmanager
def signals(also: Collection[signal.Signals] = ()) -> Iterator[Signals]:
    """Note the signals that ask a process to end; once one has come, they say nothing new after the block."""
    noted = Signals()
    with heard_by(noted.note, is_end=True, also=also):
        yield noted
