"""Locks on a whole file, of its open file description, where there are such: `flock` of the BSDs, Linux and macOS.

They end with the last copy of the descriptor, so with their process, and two descriptors of one process meet as those
of two do. Nobody here waits for one. Source: flock(2).
"""

from __future__ import annotations

import contextlib

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = hasattr(fcntl, "flock")


def lock(descriptor: int) -> bool:
    """Take the exclusive lock, if it is free; tell whether it was.

    Raises:
        OSError: this file has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def share(descriptor: int) -> None:
    """Take a shared lock instead, unless somebody else has an exclusive one.

    Raises:
        OSError: this file has no locks.
    """
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def unlock(descriptor: int) -> None:
    """Let go of it."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
