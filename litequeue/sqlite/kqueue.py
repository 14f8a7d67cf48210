"""The kqueue of macOS and the BSDs, as much of it as one watcher needs. Written by its manual; it has never been run.

It has been tried with a stand-in (docs/platforms.md). Invariants: a watch is for one event and gone after it, as in
`inotify`; a forked child has no kqueue, whatever the number of its parent's is to it, so it closes none. Source:
kqueue(2). Leaves out: whom an event wakes (`watching`).
"""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from typing import Protocol, cast

_MOST_EVENTS = 64


class _Event(Protocol):
    @property
    def ident(self) -> int: ...


class _Queue(Protocol):
    def control(self, changes: Sequence[_Event] | None, most: int) -> Sequence[_Event]: ...

    def close(self) -> None: ...


class _Select(Protocol):
    """The module `select` of these systems; what it is on the present one, a type checker knows."""

    KQ_EV_ADD: int
    KQ_EV_ONESHOT: int
    KQ_FILTER_VNODE: int
    KQ_NOTE_WRITE: int
    KQ_NOTE_EXTEND: int
    KQ_NOTE_ATTRIB: int
    KQ_NOTE_DELETE: int
    KQ_NOTE_RENAME: int

    def kqueue(self) -> _Queue: ...

    def kevent(self, ident: int, kind: int, flags: int, fflags: int, /) -> _Event: ...


HAS_KQUEUE = hasattr(select, "kqueue")
_select = cast("_Select", select)


class Kqueue:
    """One kqueue, and the descriptors of the files that it watches."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._queue = _select.kqueue()
        self._descriptors: dict[str, int] = {}

    def arm(self, path: str, descriptor: int) -> int:
        """Watch for the next event on a file; return the key that `heard` will tell."""
        known = self._descriptors.get(path)
        if known is None or not os.path.samestat(os.fstat(known), os.fstat(descriptor)):
            self._descriptors[path] = os.dup(descriptor)  # a watch lives as long as its descriptor
            if known is not None:
                os.close(known)
        flags = _select.KQ_EV_ADD | _select.KQ_EV_ONESHOT
        watched = self._descriptors[path]
        notes = _select.KQ_NOTE_WRITE | _select.KQ_NOTE_EXTEND | _select.KQ_NOTE_ATTRIB
        notes |= _select.KQ_NOTE_DELETE | _select.KQ_NOTE_RENAME
        self._queue.control([_select.kevent(watched, _select.KQ_FILTER_VNODE, flags, notes)], 0)
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
