"""The anchor: locks on SQLite's own descriptors that another SQLite of this process can neither drop nor pass.

When any descriptor of a file is closed, POSIX takes all of this process's locks on it away; and between two SQLites of
one process these locks hold nobody off at all. So a second SQLite that merely looks into the file and closes it again
takes itself for the last one out, copies the log back beside our commits and removes it (DESIGN §3). OFD locks belong
to a descriptor, outlive that, and bind the own process too. Invariant: while a handle of this process is open, each of
its descriptors of the database and of the shared memory has a shared OFD lock where SQLite's last one out, and the
first one in, want an exclusive one. Nothing is opened or closed for it. Where there are no such locks or no `/proc`
this does nothing. Leaves out the write lock, which is the gate's to guard.

Source: fcntl(2), "Open file description locks"; SQLite's file format, §2.4 (WAL-index locks) and `os_unix.c`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from litequeue.facilities import PROC
from litequeue.sqlite import ofd

_DESCRIPTORS = f"{PROC}/self/fd"
_RANGES = (
    ("", 0x40000002, 510),  # SHARED: every connection reads there; the last one out writes
    ("-shm", 128, 1),  # DMS, the "dead man's switch": whoever finds it free empties the shared memory
)


def hold(path: str) -> None:
    """Lock every descriptor that this process has of the file and of its `-shm`; again does no harm."""
    _each(path, ofd.share)


def let_go(path: str) -> None:
    """Unlock them: SQLite's own last one out wants the exclusive lock."""
    _each(path, ofd.unlock)


def _each(path: str, change: Callable[[int, int, int], None]) -> None:
    if not ofd.HAS_LOCKS:
        return
    ranges = {}
    for suffix, start, length in _RANGES:
        with contextlib.suppress(OSError):
            status = os.stat(path + suffix)
            ranges[status.st_dev, status.st_ino] = (start, length)
    with contextlib.suppress(OSError):  # no /proc
        for name in os.listdir(_DESCRIPTORS):
            with contextlib.suppress(OSError):  # closed meanwhile, or only for writing
                status = os.fstat(int(name))
                place = ranges.get((status.st_dev, status.st_ino))
                if place is not None:
                    change(int(name), *place)
