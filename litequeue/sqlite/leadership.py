"""Leadership: one process, or one thread of it, does something for a file while the others stand by.

Owns: an advisory lock on a sidecar `<file>-NAME`, which the kernel gives up the moment its holder dies. Invariants: a
forked child never keeps its parent's lock alive; who leads holds the lock of the sidecar that stands at its path. Where
there is no `flock` everybody leads, so only work that is safe beside itself may be led by it. The sidecar's time of
change says when that was last done, so that others can tell without a write into the queue.
"""

from __future__ import annotations

import contextlib
import os
import stat

from litequeue.errors import CannotOpen, LeadershipLost
from litequeue.sqlite import flock, forks
from litequeue.sqlite.gate import open_sidecar

MAINTENANCE = "maintenance"
"""Who keeps the file up."""


def mark(path: str, name: str, mode: int, now_us: int) -> None:
    """Note in a sidecar that what it stands for was done at this time; where the folder forbids it, that goes unnoted.

    It is no write into the queue and no sync: whoever reads it wants to know whether anybody does the work at all.
    """
    sidecar = f"{path}-{name}"
    with contextlib.suppress(OSError):
        if not os.path.lexists(sidecar):
            os.close(open_sidecar(sidecar, mode))
        if not stat.S_ISREG(os.lstat(sidecar).st_mode):  # somebody has put something else in its place
            return
        try:
            os.utime(sidecar, ns=(now_us * 1000, now_us * 1000))
        except PermissionError:  # another user's, which we may write: then the time is the system's
            os.utime(sidecar)


def marked_at(path: str, name: str) -> int | None:
    """Return the time that was noted last, µs since the epoch; `None` when there is no sidecar."""
    try:
        return os.lstat(f"{path}-{name}").st_mtime_ns // 1000
    except OSError:
        return None


class Leadership:
    """The lock on `<file>-NAME`; not for use by two threads at once."""

    def __init__(self, path: str, name: str, mode: int) -> None:
        self._path = f"{path}-{name}"
        self._mode = mode
        self._descriptor: int | None = None
        self._is_leading = False
        forks.register(self)

    def take(self) -> bool:
        """Lead, if nobody else does; tell whether this one leads now. Never waits.

        Raises:
            LeadershipLost: this one led, and its sidecar was replaced or removed; it leads no more.
            CannotOpen: the sidecar cannot be opened or made.
        """
        if not flock.HAS_LOCKS:
            return True
        if self._descriptor is not None and not self._is_at_its_path(self._descriptor):
            has_led = self._is_leading
            self.give()
            if has_led:
                raise LeadershipLost(self._path)
        if self._is_leading:
            return True
        if self._descriptor is None:
            try:
                self._descriptor = open_sidecar(self._path, self._mode)
            except OSError as exc:
                raise CannotOpen(self._path, exc.strerror or str(exc)) from exc
        # The sidecar may have gone between the opening and the lock.
        self._is_leading = flock.lock(self._descriptor) and self._is_at_its_path(self._descriptor)
        return self._is_leading

    def give(self) -> None:
        """Let another one lead."""
        self._is_leading = False
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _is_at_its_path(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self._path))
        except OSError:
            return False

    def before_fork(self) -> None:
        """Nothing to do before a fork."""

    def after_fork_in_parent(self) -> None:
        """Nothing to do in the parent."""

    def after_fork_in_child(self) -> None:
        """Close the inherited descriptor, so that the parent's death ends the parent's lead."""
        self.give()
