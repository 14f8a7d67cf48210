"""Leadership: one process, or one thread of it, does something for a file while the others stand by.

Owns: an advisory lock on a sidecar `<file>-NAME`, which the kernel gives up the moment its holder dies. Invariants: a
forked child never keeps its parent's lock alive; who leads holds the lock of the sidecar that stands at its path. Where
`fcntl` does not exist everybody leads, so only work that is safe beside itself may be led by it.
"""

from __future__ import annotations

import contextlib
import os

from litequeue.errors import CannotOpen, LeadershipLost
from litequeue.sqlite import forks
from litequeue.sqlite.gate import open_sidecar

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


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
        if fcntl is None:
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
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._is_leading = self._is_at_its_path(self._descriptor)  # it may have gone between the opening and the lock
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
