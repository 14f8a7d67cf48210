"""The tripwire, which tells whether the file that we write to is still the one at its path.

Owns the identity (device, inode) of the database, of its `-wal` and of its `-shm`. Looking at all three before each
write and after each commit is dear, so most looks are at their folder alone: whoever removes, renames or replaces a
file changes the folder's time. Invariants: what is written to is only ever asked for its inode, with `statx`: asking
for times makes ext4 write the inode at the next fsync, which costs a commit about 75 µs (DESIGN §3); a folder's time
counts only once it is older than any clock tick. Falls back to `os.stat` where `statx` is missing. It is a late alarm;
the protection is the gate.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from typing import Protocol

Identity = tuple[int, int]
"""Device and inode."""


Folder = tuple[int, int, int, int]
"""What tells one state of a folder from the next: inode, seconds and nanoseconds of its last change, device."""

FILE, LOG, SHARED = 0, 1, 2
ALL_FILES = (FILE, LOG, SHARED)
"""Before anything is written or closed: with another `-shm` than the others', SQLite's locks protect nobody."""
AFTER_COMMIT = (FILE, LOG)
"""Before anything is acknowledged: is it where the others will look for it?"""

_SUFFIXES = ("", "-wal", "-shm")
_LOOK_AGAIN_S = 0.1
"""How long a folder that has not changed is believed: something may be mounted over a file."""
_TICK_S = 0.05
"""A folder that changed within this may change again without another time: the kernel's clock ticks in up to 10 ms."""
_COARSE_TICK_S = 2.5
"""The same where times are whole seconds (old ext4 inodes), or every other one (FAT)."""
_FOLDERS_HAVE_TIMES = sys.platform != "win32"


class Tripwire:
    """Remembers which database, `-wal` and `-shm` were opened, and tells when one of them is another or gone."""

    __slots__ = ("_armed", "_folder", "_look_again_at", "_paths", "_unchanged", "_way")

    def __init__(self, path: str) -> None:
        self._paths = tuple(os.fsencode(path + suffix) for suffix in _SUFFIXES)
        self._folder = os.path.dirname(self._paths[FILE]) or b"."
        self._way = _cheapest_way()
        self._armed: tuple[Identity | None, ...] | None = None
        self._unchanged: Folder | None = None
        """The folder as it was when all three files were found in their places."""
        self._look_again_at = 0.0

    @property
    def armed(self) -> tuple[Identity | None, ...] | None:
        """What `present` returned when armed."""
        return self._armed

    @property
    def file(self) -> Identity | None:
        """The database's identity when armed."""
        return self._armed[FILE] if self._armed else None

    def arm(self) -> None:
        """Remember what is at the paths now; all three exist once a transaction has begun."""
        self._unchanged = None
        self._armed = tuple(self._way.identity(path) for path in self._paths)

    def disarm(self) -> None:
        """Forget: the connection is about to be closed."""
        self._armed = self._unchanged = None

    def is_tripped(self, parts: tuple[int, ...] = ALL_FILES) -> bool:
        """Tell whether one of these files is no longer the remembered one."""
        armed = self._armed
        if armed is None:
            return False
        folder = self._way.folder(self._folder)  # before the files: what changes later counts as a change
        if folder is not None and folder == self._unchanged and time.monotonic() < self._look_again_at:
            return False
        found = tuple(self._way.identity(path) for path in self._paths)
        is_whole = found == armed
        self._unchanged = folder if is_whole and folder is not None and _is_settled(folder) else None
        self._look_again_at = time.monotonic() + _LOOK_AGAIN_S
        return not is_whole and any(found[part] != armed[part] for part in parts)


def present(path: str) -> tuple[Identity | None, ...]:
    """Return what lies at the three paths now: the database, its `-wal` and its `-shm`."""
    way = _cheapest_way()
    return tuple(way.identity(os.fsencode(path + suffix)) for suffix in _SUFFIXES)


def _is_settled(folder: Folder) -> bool:
    """Tell whether another change from now on is sure to get another time."""
    _, seconds, nanoseconds, _ = folder
    return time.time() - seconds - nanoseconds / 1e9 > (_TICK_S if nanoseconds else _COARSE_TICK_S)


class _Way(Protocol):
    """How to ask for what is at a path."""

    def identity(self, path: bytes) -> Identity | None:
        """Return which file it is, or `None` when there is none."""

    def folder(self, path: bytes) -> Folder | None:
        """Return the state of a folder, or `None` when there is none, or when its time says nothing here."""


class _ByStat:
    """In the way that all platforms have."""

    def identity(self, path: bytes) -> Identity | None:
        """Return which file it is, or `None` when there is none."""
        try:
            status = os.stat(path)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def folder(self, path: bytes) -> Folder | None:
        """Return the state of a folder, or `None` when there is none, or when its time says nothing here."""
        try:
            status = os.stat(path)
        except OSError:
            return None
        when = divmod(status.st_mtime_ns, 1_000_000_000)
        return (status.st_ino, *when, status.st_dev) if _FOLDERS_HAVE_TIMES else None


class _ByStatx:
    """With Linux's `statx`, which asks for no more than is wanted; for one thread at a time.

    Its call keeps the interpreter's lock, which costs less than letting go of it.
    """

    _HERE, _DONT_SYNC, _MTIME, _INODE = -100, 0x4000, 0x40, 0x100
    _IDENTITY = struct.Struct("=32xQ96xQ")
    _FOLDER = struct.Struct("=32xQ72xqI12xQ")
    """Source: statx(2), `struct statx`."""

    __slots__ = ("_address", "_buffer", "_statx")

    def __init__(self) -> None:
        self._statx = ctypes.PyDLL(None).statx  # AttributeError: a C library without it
        self._buffer = ctypes.create_string_buffer(256)
        self._address = ctypes.c_void_p(ctypes.addressof(self._buffer))

    def identity(self, path: bytes) -> Identity | None:
        """Return which file it is, or `None` when there is none."""
        if self._statx(self._HERE, path, self._DONT_SYNC, self._INODE, self._address) != 0:
            return None
        inode, device = self._IDENTITY.unpack_from(self._buffer)
        return device, inode

    def folder(self, path: bytes) -> Folder | None:
        """Return the state of a folder, or `None` when there is none."""
        if self._statx(self._HERE, path, self._DONT_SYNC, self._INODE | self._MTIME, self._address) != 0:
            return None
        found: Folder = self._FOLDER.unpack_from(self._buffer)
        return found


def _cheapest_way() -> _Way:
    """Return the cheapest way that this platform has to ask."""
    if sys.platform != "linux":
        return _ByStat()
    try:
        return _ByStatx()
    except (OSError, AttributeError):
        return _ByStat()
