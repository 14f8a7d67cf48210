"""Locks on a whole file, of its open file description, where there are such: `flock` of the BSDs, Linux and macOS.

They end with the last copy of the descriptor, so with their process, and two descriptors of one process meet as those
of two do. Nobody here waits for one. Source: flock(2).
"""

from __future__ import annotations

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


def share(descriptor: int) -> bool:
    """Take a shared lock instead, if nobody else has an exclusive one; tell whether it was had.

    Raises:
        OSError: this file has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Let go of it."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
