"""The write gate: a fair turn for every process that writes, checkpoints, opens or closes the file.

SQLite's own waiting starves some waiters for seconds; an advisory lock on a sidecar file, tried every 0.3 ms, does not
(DESIGN §3). It also keeps an intruding SQLite of the same process from dropping our locks unseen. Invariant:
correctness never rests on the gate, only on SQLite's lock: after a second of waiting, or where `fcntl` does not exist,
the caller goes on without it. Owns the sidecar's descriptor; a forked child drops it and opens its own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_RETRY_S = 0.0003
_LONGEST_WAIT_S = 1.0


class Gate:
    """The lock on `<file>-lock`. Not for use by two threads at once: the handle's thread lock comes first."""

    def __init__(self, path: str, mode: int) -> None:
        self._path = path
        self._mode = mode
        self._descriptor: int | None = None

    def __del__(self) -> None:
        self.close()  # an interrupted opening must not leave the others waiting

    def enter(self, deadline: float) -> bool:
        """Wait for a turn until `deadline` (`time.monotonic`), at most a second; tell whether it was had.

        Raises:
            OSError: the sidecar cannot be opened or created.
        """
        descriptor = self._sidecar()
        if fcntl is None:
            return False
        give_up = min(deadline, time.monotonic() + _LONGEST_WAIT_S)
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= give_up:
                    return False
                time.sleep(_RETRY_S)
            else:
                return True

    def leave(self) -> None:
        """End the turn; without one this does nothing."""
        if self._descriptor is not None and fcntl is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the sidecar; this ends the turn as well, unless the descriptor was inherited.

        In a forked child this is right, and `leave` never is: the lock belongs to the description that the child shares
        with its parent, and only an explicit unlock, or the last close, ends it.
        """
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _sidecar(self) -> int:
        """Open the sidecar unless it is open; a database that is created takes over its permissions."""
        if self._descriptor is None:
            self._descriptor = open_sidecar(self._path, self._mode)
        return self._descriptor


def open_sidecar(path: str, mode: int, *, create: bool = True) -> int:
    """Open a lock file beside the queue, creating it with just this mode; children that `exec` do not inherit it.

    Raises:
        OSError: it cannot be opened or made, or something else has been put in its place: a link to another file, a
            pipe, a device. That is neither opened nor locked.
    """
    flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
    if create:
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
            if hasattr(os, "fchmod"):
                os.fchmod(descriptor, mode)  # the umask has no say in what the caller asked for
            return descriptor
    _refuse_stranger(os.lstat(path), path)
    descriptor = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        _refuse_stranger(os.fstat(descriptor), path)  # put there between the two
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_stranger(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not an ordinary file", path)
