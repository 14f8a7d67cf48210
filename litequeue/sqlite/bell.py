"""The bell: what a commit that made work ready does, so that waiting processes hear of it (DESIGN §4).

Owns `<file>-bell` as the ringer sees it. Invariants: the ring comes after COMMIT, by whoever has the turn to write, and
never fails the verb; it is a broadcast, so no waiter takes it from another. On Linux to ring is to read one byte: that
is an event for inotify, and no inode gets dirty for it (0.9 µs; 1.4 for a write, 3.2 for open and close; 1.2, 1.7 and
3.7 beside a watcher). Where only kqueue hears, it is a write. Leaves out: who hears (`watching`), and what a waiter
does then (`arrivals`).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
import time

from litequeue.sqlite.gate import open_sidecar
from litequeue.sqlite.place import Place

HAS_INOTIFY = sys.platform == "linux"
HAS_KQUEUE = sys.platform == "darwin"
_LOOK_AGAIN_S = 1.0
"""How long a ringer may go on with a bell that was removed: as long as a waiter may go on without one."""
_log = logging.getLogger("litequeue")


class Bell:
    """One handle's way to ring. Only for whoever has the handle's turn to write."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._descriptor: int | None = None
        self._look_again_at = 0.0
        self._has_failed = False

    def __del__(self) -> None:
        self.close()

    def ring(self) -> None:
        """Wake every process that waits on the file; a bell that cannot be rung is logged, once."""
        if not (HAS_INOTIFY or HAS_KQUEUE):
            return
        try:
            moment = time.monotonic()
            if self._descriptor is None or moment >= self._look_again_at:
                self._descriptor = self._at_its_path()
                self._look_again_at = moment + _LOOK_AGAIN_S
            if HAS_KQUEUE or not os.pread(self._descriptor, 1, 0):  # an empty file makes no event when it is read
                _strike(self._descriptor)
        except OSError as exc:
            self.close()
            if not self._has_failed:
                self._has_failed = True
                _log.warning("waiting workers of %s are not woken, its bell failed: %s", self._place.path, exc)

    def close(self) -> None:
        """Let go of the file; the next ring opens it again."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _at_its_path(self) -> int:
        """Return a descriptor of the file that is at the path now; a removed one is made again."""
        path = self._place.bell_path
        if self._descriptor is not None and not _is_at(path, self._descriptor):
            self.close()
        if self._descriptor is None:
            self._descriptor = open_sidecar(path, self._place.mode)
        return self._descriptor


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _strike(descriptor: int) -> None:
    """Write the byte, unless the file has another name: then it may be anybody's."""
    if os.fstat(descriptor).st_nlink > 1:
        raise OSError(errno.EMLINK, "it has another name, too")
    os.pwrite(descriptor, b"\n", 0)
