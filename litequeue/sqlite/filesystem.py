"""What lies under the file: which file systems break SQLite, and how much room is left.

Owns: the list of file systems and the reading of Linux's mount table. Invariant: a file system known to break
SQLite's locks or its shared memory is refused, one that is not known is warned about (contract §6). Where the
mount table cannot be read (macOS, Windows) nothing is said about local paths.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Callable
from typing import Literal

from litequeue.facilities import PROC

try:
    import pwd
except ImportError:  # Windows
    pwd = None  # type: ignore[assignment]

FREE_SPACE_RESERVE_BYTES = 16 * 2**20
"""What enqueue leaves free on the disk, so that acknowledgements still have room."""
_INDEX_BYTES = 64 * 1024
"""32 KiB of index, and the first pages of the log."""

_BREAKS_SQLITE = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs"})
_SOUND = frozenset(
    [
        "ext2",
        "ext3",
        "ext4",
        "xfs",
        "btrfs",
        "f2fs",
        "zfs",
        "tmpfs",
        "ramfs",
        "overlay",
        "bcachefs",
        "jfs",
        "reiserfs",
        "nilfs2",
        "ntfs3",
        "vfat",
        "exfat",
        "ubifs",
    ]
)
_MOUNT_TABLE = f"{PROC}/self/mountinfo"
_ASK_EVERY_S = 0.1

Verdict = Literal["sound", "breaks", "unknown"]


def kind_of(folder: str) -> str | None:
    """Return the name of the file system that holds a folder, or `None` when the platform does not tell."""
    if os.path.splitdrive(folder)[0].startswith("\\\\"):  # of another machine; nowhere but on Windows
        return "smbfs"
    try:
        with open(_MOUNT_TABLE, encoding="utf-8", errors="surrogateescape") as table:
            return kind_in(table.read(), folder)
    except OSError:
        return None


def kind_in(mount_table: str, folder: str) -> str | None:
    """Find the innermost mount of a folder in the text of a mount table; of equal ones the last wins.

    Source: proc(5), `/proc/pid/mountinfo`: the mount point is field 5, the type follows a lone hyphen.
    """
    best, kind = -1, None
    for line in mount_table.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:  # noqa: PLR2004 - the field of the mount point
            continue
        point = _unescaped(fields[4])
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, kind = len(point), after.split(" ")[0]
    return kind


def owner_of(path: str) -> str:
    """Return whose a file or folder is, and its mode, in words that follow a refusal; empty where nothing tells."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    if pwd is None:
        return f" (its mode is {stat.S_IMODE(found.st_mode):04o})"
    try:
        owner = f"{pwd.getpwuid(found.st_uid).pw_name}'s"
    except KeyError:
        owner = f"of the user {found.st_uid}"
    return f" (it is {owner}, mode {stat.S_IMODE(found.st_mode):04o})"


def judge(kind: str | None) -> Verdict:
    """Say whether SQLite is safe there."""
    if kind is None or kind in _SOUND:
        return "sound"
    return "breaks" if kind in _BREAKS_SQLITE else "unknown"


def free_bytes(folder: str) -> int | None:
    """Return the room left for an ordinary user, or `None` when the platform does not tell."""
    try:
        return shutil.disk_usage(folder).free
    except AttributeError:  # the platform has none of the calls that it is made of
        return None


def is_full(folder: str) -> bool:
    """Tell whether there is certainly less room than SQLite wants for the index of a log that it begins."""
    free = free_bytes(folder)
    return free is not None and free < _INDEX_BYTES


class Room:
    """The free space under a file, asked for at most ten times a second.

    It is asked for between transactions only: what an open one has taken is not on the disk, or not all of it. What the
    write-ahead log owes to the file is not free.
    """

    __slots__ = ("_asked_at", "_folder", "_free", "_may_ask", "_owed_bytes", "taken_bytes")

    def __init__(self, folder: str, owed_bytes: Callable[[], int]) -> None:
        self._folder = folder
        self._owed_bytes = owed_bytes
        self._asked_at = -1.0
        self._free: int | None = None
        self._may_ask = True
        self.taken_bytes = 0
        """What the present transaction has taken."""

    def begin(self) -> None:
        """Begin a transaction."""
        self._may_ask = True
        self.taken_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Set room for so much aside until the disk is asked again; tell whether the reserve stays whole."""
        if self._may_ask:
            self._may_ask = False
            moment = time.monotonic()
            if moment - self._asked_at > _ASK_EVERY_S or self._asked_at < 0:
                free = free_bytes(self._folder)
                self._free = None if free is None else free - self._owed_bytes()
                self._asked_at = moment
        if self._free is None:
            return True
        if size_bytes > self._free - FREE_SPACE_RESERVE_BYTES:
            return False
        self._free -= size_bytes
        self.taken_bytes += size_bytes
        return True

    def back_to(self, taken_bytes: int) -> None:
        """Give back what was taken beyond this, as it has been undone."""
        if self._free is not None:
            self._free += self.taken_bytes - taken_bytes
        self.taken_bytes = taken_bytes

    def ask_again(self) -> None:
        """Let the next transaction ask, however lately one has: the file gives room back to the disk."""
        self._asked_at = -1.0

    def is_short(self) -> bool:
        """Whether so little is free that what the file does not need should go back to the disk."""
        free = free_bytes(self._folder)
        return free is not None and free < 2 * FREE_SPACE_RESERVE_BYTES


def _unescaped(field: str) -> str:
    """Undo the octal escapes of white space in the mount table."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
