"""Whether a file has come or gone in a folder since one last looked, told by the kernel (Linux's inotify).

A look at a path costs about 9 µs in the midst of a verb, one at the kernel's queue 3, so the tripwire looks at its
files only when something has happened beside them. One inotify instance serves all handles of a process. Invariants:
`changes` is another number before any event is taken off the queue, so nobody who asks after a change finds the old
one; an event of any folder counts for all; a forked child begins anew. Where the kernel tells nothing (its limits, the
platform) `watch` says so. Leaves out: what is looked for then (`tripwire`), and the bells (`watching`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator
from typing import NamedTuple

from litequeue.sqlite import forks
from litequeue.sqlite.inotify import COMINGS_AND_GOINGS, HAS_INOTIFY, Inotify


class Watch(NamedTuple):
    """A folder that is watched."""

    inotify: Inotify
    key: int


class Folders:
    """The folders that this process watches."""

    def __init__(self) -> None:
        self.changes = 0
        """Another number whenever something has happened, once `take` has been called for what `inotify` has."""
        self._numbers: Iterator[int] = itertools.count(1)
        self._inotify: Inotify | None = None
        self._watchers: dict[int, int] = {}
        self._lock = threading.RLock()
        self._pid = os.getpid()
        forks.know(self)

    def watch(self, folder: str) -> Watch | None:
        """Watch a folder until `leave`; `None` where the kernel does not tell."""
        if not HAS_INOTIFY:
            return None
        if self._pid != os.getpid():  # a fork that ran no hooks
            self.after_fork_in_child()
        with self._lock:
            try:
                if self._inotify is None:
                    self._inotify = Inotify(waits=False)
                key = self._inotify.watch(folder, COMINGS_AND_GOINGS)
            except OSError:
                return None
            self._watchers[key] = self._watchers.get(key, 0) + 1
            return Watch(self._inotify, key)

    def leave(self, watch: Watch) -> None:
        """Watch a folder no longer, unless another one does."""
        with self._lock:
            if watch.inotify is self._inotify:
                left = self._watchers.get(watch.key, 0) - 1
                if left > 0:
                    self._watchers[watch.key] = left
                else:
                    self._watchers.pop(watch.key, None)
                    watch.inotify.unwatch(watch.key)

    def take(self, watch: Watch) -> None:
        """Take events off the queue, once everybody can know of them."""
        self.changes = next(self._numbers)
        with contextlib.suppress(OSError):  # another thread was faster
            watch.inotify.heard()

    def before_fork(self) -> None:
        """Nothing to do before a fork."""

    def after_fork_in_parent(self) -> None:
        """Nothing to do in the parent."""

    def after_fork_in_child(self) -> None:
        """Leave the parent its events."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._watchers.clear()
        inotify, self._inotify = self._inotify, None
        if inotify is not None:
            with contextlib.suppress(OSError):
                inotify.close()


FOLDERS = Folders()
