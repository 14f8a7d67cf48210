"""Handlers that bring trouble along: the process to which they travel halts at a certain point, or cannot begin.

A test meets it by files in a folder. In the process of the test nothing happens.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import handled

from litequeue import QueueBusy, Retry
from litequeue.queue import Options, Queue
from litequeue.worker import child, heartbeat
from litequeue.worker.dispatcher import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litequeue import Lease
    from litequeue.worker.run import Run


class Troubled:
    """A handler, and what befalls the process that it comes to."""

    def __init__(self, folder: Path, befalls: Callable[[Path], None], function: Callable[[Lease], object]) -> None:
        self._given = folder, befalls, function

    def __call__(self, lease: Lease) -> object:
        """Run the function."""
        return self._given[2](lease)

    def __reduce__(
        self,
    ) -> tuple[Callable[..., Troubled], tuple[Path, Callable[[Path], None], Callable[[Lease], object], int]]:
        """Travel, and cause the trouble at the end of the way."""
        return _arrived, (*self._given, os.getpid())


def _arrived(
    folder: Path, befalls: Callable[[Path], None], function: Callable[[Lease], object], came_from: int
) -> Troubled:
    if os.getpid() != came_from:
        befalls(folder)
    return Troubled(folder, befalls, function)


def halt_before_it_tells(folder: Path) -> None:
    """Halt between the lease and the word that a handler begins, until the process is told to drain."""
    told = threading.Event()
    stop, start = Dispatcher.stop, child._Announced.start

    def told_to_stop(self: Dispatcher) -> None:
        told.set()
        stop(self)

    def halted(self: child._Announced, runs: Sequence[Run]) -> None:
        folder.joinpath("leased").touch()
        told.wait(handled.PATIENCE_S)
        start(self, runs)

    Dispatcher.stop = told_to_stop  # type: ignore[method-assign]
    child._Announced.start = halted  # type: ignore[method-assign]


def find_it_busy(folder: Path) -> None:
    """Not get into the file, in the first processes that try."""
    opened = Options.opened

    def tried(self: Options) -> Queue:
        place = folder / "tried"
        with place.open("a", encoding="utf-8") as file:
            file.write("once\n")
        if len(place.read_text(encoding="utf-8").splitlines()) <= 4:
            raise QueueBusy("somebody else is at it")
        return opened(self)

    Options.opened = tried  # type: ignore[method-assign]


def be_killed_as_it_starts(folder: Path) -> None:
    """Be killed, as by a system that is short of memory, the first processes."""
    place = folder / "killed"
    with place.open("a", encoding="utf-8") as file:
        file.write("once\n")
    if len(place.read_text(encoding="utf-8").splitlines()) <= 4:
        os.kill(os.getpid(), signal.SIGKILL)


def never_look(_: Path) -> None:
    """Not look between heartbeats whether leases are lost."""
    heartbeat._LOOK_S = 3600.0


def again_later(lease: Lease) -> None:
    """Ask to be tried again, after a pause that the worker waits out."""
    handled.note(lease, "begun")
    raise Retry(60, "not yet")


def complete_and_hang(lease: Lease) -> NoReturn:
    """Complete the job, and never end."""
    lease.complete("by its own word")
    handled.deaf(lease)
