"""The live line of `work`: what runs, what was done, how fast, and what waits.

Owns: the numbers, and how often they are asked for and shown. Invariants: to count what waits takes longer the more
jobs a file has, so it is done by a handle of its own, once a second at most, and takes no more than a hundredth of the
time, however large the file; nothing that goes wrong here does harm to the work. Leaves out: how a line stays in its
place (`bottom_row`).
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from litequeue import JobState, Queue, arguments
from litequeue.cli import bottom_row
from litequeue.cli.bottom_row import BottomRow
from litequeue.errors import LiteQueueError
from litequeue.model import Scope, SpecialScope
from litequeue.worker import WorkerEvent

_DRAW_S = 0.25
_WINDOW_S = 5.0
"""The rate is that of so many seconds."""
_LEAST_PAUSE_S = 1.0
_SHARE = 100
"""Between two counts lie so many times what the last one took."""
_DONE = frozenset({"completed", "settled"})
_FAILED = frozenset({"failed", "retried", "dead", "discarded"})
_MANY = 100
"""From here on a rate has no fraction."""

Clock = Callable[[], float]


class Tally:
    """Counts the ends of runs; give it to a worker as `on_event`."""

    def __init__(self) -> None:
        self.done = 0
        self.failed = 0

    def __call__(self, event: WorkerEvent) -> None:
        """Count one."""
        self.done += event.name in _DONE
        self.failed += event.name in _FAILED


class Backlog:
    """How many jobs of some kinds are ready, counted sparingly."""

    def __init__(self, count: Callable[[], int], clock: Clock = time.monotonic) -> None:
        self._count = count
        self._clock = clock
        self._next_at = -math.inf
        self._found: int | None = None

    def latest(self) -> int | None:
        """Return the last count, or a new one when it is time for that; `None` when there is none yet."""
        began_at = self._clock()
        if began_at >= self._next_at:
            try:
                self._found = self._count()
            except LiteQueueError:  # busy, or lost: the worker says so
                self._found = None
            now = self._clock()
            self._next_at = now + max(_LEAST_PAUSE_S, _SHARE * (now - began_at))
        return self._found


class Rate:
    """How many runs end in a second, over the last few."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque([(clock(), 0)])

    def per_second(self, total: int) -> float:
        """Return the rate, given how many have ended by now."""
        now = self._clock()
        while len(self._seen) > 1 and self._seen[1][0] <= now - _WINDOW_S:
            self._seen.popleft()
        self._seen.append((now, total))
        since, before = self._seen[0]
        return (total - before) / (now - since) if now > since else 0.0


def line(running: int, tally: Tally, rate: float, backlog: int | None) -> str:
    """Write the numbers."""
    speed = f"{rate:,.0f}" if rate >= _MANY else f"{rate:.1f}"
    waiting = "?" if backlog is None else f"{backlog:,}"
    return f"running {running}   done {tally.done:,}   failed {tally.failed:,}   {speed}/s   backlog {waiting}"


def count_ready(queue: Queue, scope: Scope | SpecialScope | None, kinds: tuple[str, ...]) -> int:
    """Count the jobs that are ready for a worker of these kinds, those that a limit or a pause holds back, too."""
    by_kind = queue.stats(scope).by_kind
    return sum(
        counts.get(JobState.PENDING, 0)
        for kind, counts in by_kind.items()
        if any(arguments.matches(name, kind) for name in kinds)
    )


def terminal() -> int | None:
    """Return the descriptor of standard error when it is a terminal that can show a live line."""
    if not bottom_row.HAS_JOB_CONTROL or os.environ.get("TERM", "dumb") == "dumb":
        return None
    try:
        descriptor = sys.stderr.fileno()
        return descriptor if os.isatty(descriptor) and min(os.get_terminal_size(descriptor)) > 0 else None
    except (AttributeError, OSError, ValueError):  # there is no standard error, or none that is a file
        return None


@contextmanager
def shown(descriptor: int, text: Callable[[], str]) -> Iterator[None]:
    """Keep a line up to date at the bottom of a terminal for the length of a `with` block."""
    row = BottomRow(descriptor)
    ended = threading.Event()

    def draw() -> None:
        while not ended.is_set():
            now = text()
            if not ended.is_set():
                row.draw(now)
            ended.wait(_DRAW_S)

    thread = threading.Thread(target=draw, name="litequeue-live", daemon=True)
    with _whole_while_stopped(row):
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_DRAW_S)  # not for longer: a terminal may take nothing more
            row.close()


@contextmanager
def _whole_while_stopped(row: BottomRow) -> Iterator[None]:
    """Give the terminal back when Ctrl-Z stops this process; the next drawing takes the row again."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTSTP) != signal.SIG_DFL:
        yield
        return

    def stop(number: int, _frame: FrameType | None) -> None:
        with row.given_back():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)  # stops here, until it is continued
            signal.signal(number, stop)

    signal.signal(signal.SIGTSTP, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
