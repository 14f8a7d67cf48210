"""Locks of open file descriptions, on a range of bytes: those of Linux.

Unlike POSIX's own they belong to a descriptor: the closing of another one leaves them, they bind the own process too,
and the kernel ends them when the last copy of the descriptor is closed. Source: fcntl(2), "Open file description
locks", and `fcntl_locking(2)`.

Of Linux only, where others have the names, too: macOS lays `struct flock` out in another way, which would be read
wrongly, and there such a lock and a `flock` on the same file meet, so holders (`presence`) would shut the gate.
"""

from __future__ import annotations

import os
import struct
import sys

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK")

_FLOCK = "hhqqi"
"""`struct flock`: type, whence, start, length, process (0 for these)."""


def share(descriptor: int, start: int, length: int) -> None:
    """Take a shared lock, or keep it.

    Raises:
        OSError: another descriptor has the range exclusively, or this one may not read.
    """
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _range(fcntl.F_RDLCK, start, length))


def lock(descriptor: int, start: int, length: int) -> None:
    """Take an exclusive lock, or keep it.

    Raises:
        BlockingIOError: another descriptor has some of the range.
        OSError: this file has no locks.
    """
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _range(fcntl.F_WRLCK, start, length))


def unlock(descriptor: int, start: int, length: int) -> None:
    """Let go of what this descriptor has of a range."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _range(fcntl.F_UNLCK, start, length))


def is_locked(descriptor: int, start: int, length: int) -> bool:
    """Tell whether another descriptor has some of a range."""
    answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _range(fcntl.F_WRLCK, start, length))
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


def _range(kind: int, start: int, length: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0)
