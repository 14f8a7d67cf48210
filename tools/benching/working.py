"""What the workloads of workers share: whose worker it is, how many jobs it has done, and what its processes use.

Standard library only. Invariants: where handlers run in this process the count is kept by them, so that nothing is
listened to that a user would not listen to; every wait has an end; processor time is that of all threads of a process,
as the kernel keeps it.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol, cast

from benching.order import Order
from benching.subject import MODES, Subject, Unsupported, Working

_PATIENCE_S = 60.0
_MB = 1e6


class Progress:
    """How many jobs have been done, counted in whatever thread; tells when there were so many."""

    def __init__(self, marks: Iterable[int]) -> None:
        self._count = itertools.count(1)
        self._reached: dict[int, SimpleQueue[int]] = {mark: SimpleQueue() for mark in marks}

    def note(self, _payload: bytes = b"") -> None:
        """Count one; a handler that does nothing else."""
        reached = self._reached.get(next(self._count))
        if reached is not None:
            reached.put(time.perf_counter_ns())

    def reached_at(self, mark: int, within_s: float = _PATIENCE_S) -> int:
        """Wait until so many were done; return when that was, ns.

        Raises:
            RuntimeError: that takes too long.
        """
        try:
            return self._reached[mark].get(timeout=within_s)
        except Empty:
            raise RuntimeError(f"after {within_s:g} s fewer than {mark} jobs were done") from None


class Counting(Protocol):
    """A handler that counts its jobs where it is given the means."""

    def __call__(self, payload: bytes, progress: Progress | None = None) -> object:
        """Handle a job."""


def mode_of(order: Order) -> str:
    """Return where handlers are to run."""
    return MODES[int(order["numbers"]["mode"])]


def working(subject: Subject, order: Order, progress: Progress, handle: Counting) -> AbstractContextManager[None]:
    """Let the subject's worker run meanwhile, and count the jobs that it has done.

    In this process `handle` has the progress given to it, and counts; from other processes the library has to tell.

    Raises:
        Unsupported: it has no such worker.
    """
    mode = mode_of(order)
    if mode not in getattr(subject, "modes", ()):
        raise Unsupported("no worker of this sort, or none that can be driven")
    worker = cast("Working", subject)
    at_once = int(order["numbers"]["at once"])
    if mode == "processes":
        return worker.working(mode, at_once, handle, on_done=progress.note)
    return worker.working(mode, at_once, partial(handle, progress=progress), on_done=None)


def nothing(payload: bytes, progress: Progress | None = None) -> None:
    """Be the handler that does nothing with its payload."""
    if progress is not None:
        progress.note(payload)


def family() -> list[int]:
    """Return the ids of this process and of those that it has started.

    Raises:
        Unsupported: the platform does not tell.
    """
    if sys.platform != "linux":
        raise Unsupported("what a process uses is only read on Linux")
    found = [os.getpid()]
    for thread in Path("/proc/self/task").iterdir():
        found += map(int, (thread / "children").read_text(encoding="ascii").split())
    return found


def processor_s(process: int) -> float:
    """Return the processor time of all threads that a process has and has had, s."""
    return time.clock_gettime((~process << 3) | 2)  # how Linux numbers the clocks of other processes


def memory_mb(process: int) -> float:
    """Return the memory of a process that is resident, shared pages too, MB."""
    pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / _MB
