"""A stand-in for the kqueue of macOS, made of Linux's inotify: as much of it as a watcher of files sees.

Owns the rules of the manual that the package rests on: a filter belongs to a descriptor and goes with it; one with
ONESHOT is gone after its event; who waits is told of what was asked for only. A write is an event, a read is none.
Source: kqueue(2). Leaves out: timers, sockets, processes, and that a fork inherits none.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

EV_ADD, EV_ONESHOT = 0x1, 0x10
FILTER_VNODE = -4
NOTES = {"DELETE": 0x1, "WRITE": 0x2, "EXTEND": 0x4, "ATTRIB": 0x8, "LINK": 0x10, "RENAME": 0x20}
_IN_OF = {"DELETE": 0x400, "WRITE": 0x2, "EXTEND": 0x2, "ATTRIB": 0x4, "LINK": 0x4, "RENAME": 0x800}
_IN_ONESHOT, _IN_MASK_ADD = 0x8000_0000, 0x2000_0000
_EVENT = struct.Struct("iIII")


@dataclass(frozen=True)
class Kevent:
    """`struct kevent`, as Python has it."""

    ident: int
    filter: int
    flags: int
    fflags: int


class Kqueue:
    """One kqueue."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = self._libc.inotify_init1(os.O_CLOEXEC)
        assert self._inotify >= 0
        self._watched: dict[int, Kevent] = {}

    def control(self, changes: Sequence[Kevent] | None, most: int, timeout: float | None = None) -> list[Kevent]:
        """Take the changes, and wait for up to `most` events."""
        assert timeout is None, "nobody here waits for a while"
        for change in changes or ():
            assert (change.filter, change.flags) == (FILTER_VNODE, EV_ADD | EV_ONESHOT), "all that is played here"
            os.fstat(change.ident)  # EBADF
            events = sum({_IN_OF[name] for name, bit in NOTES.items() if change.fflags & bit})
            path = f"/proc/self/fd/{change.ident}".encode()
            key = self._libc.inotify_add_watch(self._inotify, path, events | _IN_ONESHOT)
            if key < 0:
                raise OSError(ctypes.get_errno(), "it cannot be watched")
            self._watched[key] = change
        found: list[Kevent] = []
        while most and not found:
            told = os.read(self._inotify, 4096)
            offset = 0
            while offset < len(told):
                key, _, _, name_bytes = _EVENT.unpack_from(told, offset)
                offset += _EVENT.size + name_bytes
                watched = self._watched.pop(key, None)
                if watched is not None and _is_open(watched.ident):
                    found.append(watched)
        return found[:most]

    def close(self) -> None:
        """Let go of it."""
        os.close(self._inotify)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def names() -> dict[str, object]:
    """Return what a module `select` has of it."""
    notes = {f"KQ_NOTE_{name}": bit for name, bit in NOTES.items()}
    return {
        "kqueue": Kqueue,
        "kevent": Kevent,
        "KQ_EV_ADD": EV_ADD,
        "KQ_EV_ONESHOT": EV_ONESHOT,
        "KQ_FILTER_VNODE": FILTER_VNODE,
        **notes,
    }
