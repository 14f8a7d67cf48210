"""The tripwire, which tells whether the file that we write to is still the one at its path.

Owns the identity (device, inode) of the database, of its `-wal` and of its `-shm`. Invariant: it only ever asks for the
inode, with `statx`: asking for times makes ext4 write the inode at the next fsync, which costs a commit about 75 µs
(DESIGN §3). Falls back to `os.stat` where `statx` is missing. It is a late alarm; the protection is the gate.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

Identity = tuple[int, int]
"""Device and inode."""

_SUFFIXES = ("", "-wal", "-shm")
_AT_FDCWD = -100
_AT_STATX_DONT_SYNC = 0x4000
_STATX_INO = 0x100
_STATX_BYTES = 256
_INODE_OFFSET = 32
_DEVICE_OFFSET = 136


FILE, LOG, SHARED = 0, 1, 2
ALL_FILES = (FILE, LOG, SHARED)
"""Before anything is written or closed: with another `-shm` than the others', SQLite's locks protect nobody."""
AFTER_COMMIT = (FILE, LOG)
"""Before anything is acknowledged: is it where the others will look for it?"""


class Tripwire:
    """Remembers which database, `-wal` and `-shm` were opened, and tells when one of them is another or gone."""

    def __init__(self, path: str) -> None:
        self._paths = tuple(os.fsencode(path + suffix) for suffix in _SUFFIXES)
        self._identify = _identifier()
        self._armed: tuple[Identity | None, ...] | None = None

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
        self._armed = tuple(self._identify(path) for path in self._paths)

    def disarm(self) -> None:
        """Forget: the connection is about to be closed."""
        self._armed = None

    def is_tripped(self, parts: tuple[int, ...] = ALL_FILES) -> bool:
        """Tell whether one of these files is no longer the remembered one."""
        armed = self._armed
        if armed is None:
            return False
        return any(self._identify(self._paths[part]) != armed[part] for part in parts)


def present(path: str) -> tuple[Identity | None, ...]:
    """Return what lies at the three paths now: the database, its `-wal` and its `-shm`."""
    identify = _identifier()
    return tuple(identify(os.fsencode(path + suffix)) for suffix in _SUFFIXES)


def _by_stat(path: bytes) -> Identity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _identifier() -> Callable[[bytes], Identity | None]:
    """Return the cheapest way that this platform has to ask for an inode."""
    if sys.platform != "linux":
        return _by_stat
    try:
        statx = ctypes.CDLL(None).statx
    except (OSError, AttributeError):
        return _by_stat
    statx.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    address = ctypes.addressof(buffer)
    inode = ctypes.c_uint64.from_buffer(buffer, _INODE_OFFSET)
    device = ctypes.c_uint64.from_buffer(buffer, _DEVICE_OFFSET)

    def by_statx(path: bytes) -> Identity | None:
        if statx(_AT_FDCWD, path, _AT_STATX_DONT_SYNC, _STATX_INO, address) != 0:
            return None
        return device.value, inode.value

    return by_statx
