"""The tripwire, which tells whether the file that we write to is still the one at its path.

Owns the identity (device, inode) of the database, of its `-wal` and of its `-shm`. Looking at them before each write
and after each commit is dear, so it is done when something has come or gone in their folder (`folders`), and every now
and then all the same. Invariant: it only ever asks for the inode, with `statx`: asking for times makes ext4 write the
inode at the next fsync, which costs a commit about 75 µs (DESIGN §3). Falls back to `os.stat` where `statx` is missing,
and looks each time where the kernel does not tell of a folder. It is a late alarm; the protection is the gate.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from collections.abc import Callable

from litequeue.facilities import c_library
from litequeue.sqlite.folders import FOLDERS, Watch

Identity = tuple[int, int]
"""Device and inode."""


FILE, LOG, SHARED = 0, 1, 2
ALL_FILES = (FILE, LOG, SHARED)
"""Before anything is written or closed: with another `-shm` than the others', SQLite's locks protect nobody."""
AFTER_COMMIT = (FILE, LOG)
"""Before anything is acknowledged: is it where the others will look for it?"""

_SUFFIXES = ("", "-wal", "-shm")
_LOOK_AGAIN_S = 0.1
"""How long the silence of a folder is believed: one further up may be renamed, or something mounted over a file."""


class Tripwire:
    """Remembers which database, `-wal` and `-shm` were opened, and tells when one of them is another or gone."""

    __slots__ = ("_armed", "_has_news", "_look_again_at", "_paths", "_seen", "_watch", "_way")

    def __init__(self, path: str) -> None:
        self._paths = tuple(os.fsencode(path + suffix) for suffix in _SUFFIXES)
        self._way = _cheapest_way()
        self._armed: tuple[Identity | None, ...] | None = None
        self._watch: Watch | None = None
        self._has_news: Callable[[int], object] = _never
        """Whether the kernel has anything to tell of any folder; asked with how long to wait, in ms."""
        self._seen: int | None = None
        """The number of the last change after which all three files were found in their places."""
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
        self.disarm()
        self._watch = FOLDERS.watch(os.fsdecode(os.path.dirname(self._paths[FILE])) or ".")
        if self._watch is not None:
            news = select.poll()
            news.register(self._watch.inotify.descriptor, select.POLLIN)
            self._has_news = news.poll
        self._armed = tuple(self._way(path) for path in self._paths)

    def disarm(self) -> None:
        """Forget: the connection is about to be closed."""
        self._armed = self._seen = None
        watch, self._watch = self._watch, None
        if watch is not None:
            FOLDERS.leave(watch)

    def is_tripped(self, parts: tuple[int, ...] = ALL_FILES) -> bool:
        """Tell whether one of these files is no longer the remembered one."""
        armed = self._armed
        if armed is None:
            return False
        if self._watch is None:
            return any(self._way(self._paths[part]) != armed[part] for part in parts)
        if self._has_news(0):
            FOLDERS.take(self._watch)
        changes = FOLDERS.changes  # before the files: what happens later is another one
        if changes == self._seen and time.monotonic() < self._look_again_at:
            return False
        found = tuple(self._way(path) for path in self._paths)
        self._seen = changes if found == armed else None
        self._look_again_at = time.monotonic() + _LOOK_AGAIN_S
        return any(found[part] != armed[part] for part in parts)


def present(path: str) -> tuple[Identity | None, ...]:
    """Return what lies at the three paths now: the database, its `-wal` and its `-shm`."""
    way = _cheapest_way()
    return tuple(way(os.fsencode(path + suffix)) for suffix in _SUFFIXES)


def _never(_: int) -> object:
    return None


def _by_stat(path: bytes) -> Identity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class _ByStatx:
    """With Linux's `statx`, which asks for no more than is wanted; for one thread at a time."""

    _HERE, _DONT_SYNC, _INODE = -100, 0x4000, 0x100
    _IDENTITY = struct.Struct("=32xQ96xQ")
    """Inode and device. Source: statx(2), `struct statx`."""

    __slots__ = ("_address", "_buffer", "_statx")

    def __init__(self, libc: ctypes.CDLL) -> None:
        self._statx = libc.statx
        self._buffer = ctypes.create_string_buffer(256)
        self._address = ctypes.c_void_p(ctypes.addressof(self._buffer))

    def __call__(self, path: bytes) -> Identity | None:
        """Return which file it is, or `None` when there is none."""
        if self._statx(self._HERE, path, self._DONT_SYNC, self._INODE, self._address) != 0:
            return None
        inode, device = self._IDENTITY.unpack_from(self._buffer)
        return device, inode


def _cheapest_way() -> Callable[[bytes], Identity | None]:
    """Return the cheapest way that this platform has to ask."""
    libc = c_library("statx", kind=ctypes.PyDLL)  # its call keeps the interpreter's lock: dearer is to let go of it
    return _by_stat if libc is None else _ByStatx(libc)
