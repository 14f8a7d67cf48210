"""The kqueue of macOS, as much of it as one watcher needs. Written by its manual; it has never been run.

Invariants: a watch is for one event and gone after it, as in `inotify`; a forked child has no kqueue, whatever the
number of its parent's is to it, so it closes none. Source: kqueue(2). Leaves out: whom an event wakes (`watching`).
"""

from __future__ import annotations

import os
import select
import sys

_MOST_EVENTS = 64

if sys.platform == "darwin":
    _WATCHED = (
        select.KQ_NOTE_WRITE
        | select.KQ_NOTE_EXTEND
        | select.KQ_NOTE_ATTRIB
        | select.KQ_NOTE_DELETE
        | select.KQ_NOTE_RENAME
    )

    class Kqueue:
        """One kqueue, and the descriptors of the files that it watches."""

        def __init__(self) -> None:
            self._pid = os.getpid()
            self._queue = select.kqueue()
            self._descriptors: dict[str, int] = {}

        def arm(self, path: str, descriptor: int) -> int:
            """Watch for the next event on a file; return the key that `heard` will tell."""
            known = self._descriptors.get(path)
            if known is None or not os.path.samestat(os.fstat(known), os.fstat(descriptor)):
                self._descriptors[path] = os.dup(descriptor)  # a watch lives as long as its descriptor
                if known is not None:
                    os.close(known)
            flags = select.KQ_EV_ADD | select.KQ_EV_ONESHOT
            watched = self._descriptors[path]
            self._queue.control([select.kevent(watched, select.KQ_FILTER_VNODE, flags, _WATCHED)], 0)
            return watched

        def heard(self) -> list[int]:
            """Wait for events; return their keys."""
            return [event.ident for event in self._queue.control(None, _MOST_EVENTS)]

        def close(self) -> None:
            """Let go of it; in a forked child of the files only."""
            for descriptor in self._descriptors.values():
                os.close(descriptor)
            if self._pid == os.getpid():
                self._queue.close()
            else:
                _inherited.append(self)

    _inherited: list[Kqueue] = []
    """Kept, or their end would close whatever has their number here."""
