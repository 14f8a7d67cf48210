"""Linux's inotify, as much of it as is needed: for the bells, and for the folders of the files that are open.

Invariant: the watch of a bell is for one event and gone after it, so that the rings of a busy queue cost a process that
does not wait nothing, and one that waits a single wake-up. Source: inotify(7). Leaves out: whom an event wakes
(`watching`), and what it means for the files of a folder (`folders`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from litequeue.facilities import c_library

_IN_ACCESS = 0x1
"""How the ringer rings."""
_IN_MODIFY = 0x2
"""How it rings a bell that was empty."""
_IN_ATTRIB, _IN_DELETE_SELF, _IN_MOVE_SELF = 0x4, 0x400, 0x800
"""The bell may have been removed: at the first the last name of it is gone, though somebody has it open."""
_IN_DONT_FOLLOW, _IN_ONESHOT = 0x0200_0000, 0x8000_0000
_WATCHED = _IN_ACCESS | _IN_MODIFY | _IN_ATTRIB | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_DONT_FOLLOW | _IN_ONESHOT
COMINGS_AND_GOINGS = 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800 | 0x0100_0000
"""Something was moved out of a folder or into it, made or deleted in it; the folder was deleted or moved itself."""
_EVENT = struct.Struct("iIII")
"""`struct inotify_event`: the watch, what happened, a cookie, the length of the name that follows."""
_READ_BYTES = 4096
_FUNCTIONS = ("inotify_init1", "inotify_add_watch", "inotify_rm_watch")

HAS_INOTIFY = c_library(*_FUNCTIONS) is not None


class Inotify:
    """One inotify instance."""

    def __init__(self, *, waits: bool = True) -> None:
        libc = c_library(*_FUNCTIONS)
        if libc is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._libc = libc
        self._libc.inotify_add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]
        self.descriptor = _checked(self._libc.inotify_init1(os.O_CLOEXEC | (0 if waits else os.O_NONBLOCK)))

    def arm(self, path: str, _descriptor: int) -> int:
        """Watch for the next event on a bell; return the key that `heard` will tell."""
        return self.watch(path, _WATCHED)

    def watch(self, path: str, events: int) -> int:
        """Watch for these events; return the key that `heard` will tell, the same for the same file."""
        return _checked(self._libc.inotify_add_watch(self.descriptor, os.fsencode(path), events))

    def unwatch(self, key: int) -> None:
        """Watch no longer; one that has gone by itself is passed over."""
        self._libc.inotify_rm_watch(self.descriptor, key)

    def heard(self) -> list[int]:
        """Wait for events; return their keys, -1 for those that the kernel could not keep."""
        events = os.read(self.descriptor, _READ_BYTES)
        keys = []
        offset = 0
        while offset < len(events):
            key, _, _, name_bytes = _EVENT.unpack_from(events, offset)
            keys.append(key)
            offset += _EVENT.size + name_bytes
        return keys

    def close(self) -> None:
        """Let go of it, in a forked child too."""
        os.close(self.descriptor)


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
