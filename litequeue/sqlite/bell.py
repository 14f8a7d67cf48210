"""The bells: what a commit does so that waiting processes hear of it (DESIGN §4).

Owns as the ringer sees them: `<file>-bell`, for commits that made work ready, and `<file>-done`, for those that ended a
job; this one is rung only where somebody who waits for a job has made it, and looked for once a second at most, so that
nobody else pays for it. Invariants: the ring comes after COMMIT, by whoever has the turn to write, and never fails the
verb; it is a broadcast, so no waiter takes it from another. On Linux to ring is to read one byte: that is an event for
inotify, and no inode gets dirty for it (0.9 µs; 1.4 for a write, 3.2 for open and close; 1.2, 1.7 and 3.7 beside a
watcher). Where only kqueue hears, it is a write. Leaves out: who hears (`watching`), and what a waiter does then
(`arrivals`, `results`).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time

from litequeue.sqlite.gate import open_sidecar
from litequeue.sqlite.inotify import HAS_INOTIFY
from litequeue.sqlite.kqueue import HAS_KQUEUE
from litequeue.sqlite.place import Place

_LOOK_AGAIN_S = 1.0
"""How long a ringer may go on with a bell that was removed, or without one that was made; waiters know that."""
_log = logging.getLogger("litequeue")


class Bell:
    """One handle's way to ring one bell. Only for whoever has the handle's turn to write."""

    def __init__(self, place: Place, path: str, *, makes: bool) -> None:
        """Ring the bell at `path`; `makes` is whether it is made where it is missing."""
        self._place = place
        self._path = path
        self._makes = makes
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
            if moment >= self._look_again_at or (self._descriptor is None and self._makes):
                self._look_again_at = moment + _LOOK_AGAIN_S
                self._descriptor = self._at_its_path()
            if self._descriptor is None:  # nobody waits
                return
            if HAS_KQUEUE or not os.pread(self._descriptor, 1, 0):  # an empty file makes no event when it is read
                _strike(self._descriptor)
        except OSError as exc:
            self.close()
            if not self._has_failed:
                self._has_failed = True
                _log.warning("who waits for %s is not woken, its bell failed: %s", self._place.path, exc)

    def close(self) -> None:
        """Let go of the file; the next ring opens it again."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _at_its_path(self) -> int | None:
        """Return a descriptor of the file that is at the path now; `None` where there is none, and none is made."""
        path = self._path
        if self._descriptor is not None and not _is_at(path, self._descriptor):
            self.close()
        if self._descriptor is None:
            try:
                self._descriptor = open_sidecar(path, self._place.mode, create=self._makes)
            except FileNotFoundError:
                if self._makes:
                    raise
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
