"""A disk that fails on purpose: a VFS of apsw over the ordinary one, which a harness tells when to fail, and how.

Owns: what may fail (`Sort`), how (`Kind`), the counting of operations, a quota, and the image of the files at any
moment, read through SQLite's own file objects: in a process that has the file open nothing else may open it (DESIGN
§3). Invariants: disarmed, it is the ordinary file system; of a write that fails exactly the named part reaches the
file. Leaves out: the shared memory, which apsw lets nobody see, and power loss (`harness.disk`): a sync is counted, and
fails when told, but is not passed on to hardware that nobody takes the power from here.
"""

from __future__ import annotations

import os
import weakref
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import apsw

if TYPE_CHECKING:
    from collections.abc import Callable

VFS_NAME = "litequeue-failing"
_SUFFIXES = ("", "-wal", "-journal")


class Sort(Enum):
    """What SQLite asks of a disk."""

    WRITE = apsw.SQLITE_IOERR_WRITE
    SYNC = apsw.SQLITE_IOERR_FSYNC
    TRUNCATE = apsw.SQLITE_IOERR_TRUNCATE
    READ = apsw.SQLITE_IOERR_READ
    SIZE = apsw.SQLITE_IOERR_FSTAT
    LOCK = apsw.SQLITE_IOERR_LOCK
    OPEN = apsw.SQLITE_CANTOPEN
    DELETE = apsw.SQLITE_IOERR_DELETE
    ACCESS = apsw.SQLITE_IOERR_ACCESS


class Part(Enum):
    """How much of an operation happens before its error comes."""

    NOTHING = 0.0
    HALF = 0.5
    ALL = 1.0


class Kind(NamedTuple):
    """One way to fail."""

    sort: Sort | None
    """What fails; `None` is everything, each with its own error: the disk is gone."""
    code: int
    """SQLite's extended result code; 0 is the usual one of the sort."""
    part: Part = Part.NOTHING


KINDS: dict[str, Kind] = {
    "full": Kind(Sort.WRITE, apsw.SQLITE_FULL),
    "full, half written": Kind(Sort.WRITE, apsw.SQLITE_FULL, Part.HALF),
    "full, all written": Kind(Sort.WRITE, apsw.SQLITE_FULL, Part.ALL),
    "write": Kind(Sort.WRITE, 0),
    "write, half done": Kind(Sort.WRITE, 0, Part.HALF),
    "write, all done": Kind(Sort.WRITE, 0, Part.ALL),
    "fsync": Kind(Sort.SYNC, 0),
    "truncate": Kind(Sort.TRUNCATE, 0),
    "truncate, done": Kind(Sort.TRUNCATE, 0, Part.ALL),
    "read": Kind(Sort.READ, 0),
    "file size": Kind(Sort.SIZE, 0),
    "lock": Kind(Sort.LOCK, 0),
    "open": Kind(Sort.OPEN, 0),
    "delete": Kind(Sort.DELETE, 0),
    "directory fsync": Kind(Sort.DELETE, apsw.SQLITE_IOERR_DIR_FSYNC, Part.ALL),
    "access": Kind(Sort.ACCESS, 0),
    "disk gone": Kind(None, 0),
}


class Fault(NamedTuple):
    """What fails, from the nth of its operations on (0 is the first), once or for good."""

    kind: Kind
    nth: int
    for_good: bool


class Disk(apsw.VFS):
    """The ordinary file system, until it is told to fail. The default VFS of its process from its making on."""

    def __init__(self, *, swallows: bool = False) -> None:
        self.done: Counter[Sort] = Counter()
        """Operations since the counting began."""
        self.failures = 0
        """How many have failed since the disk was armed."""
        self.at_fault: Callable[[], None] = lambda: None
        """Called at each failure, when what it lets through has happened and the error has not been raised yet."""
        self.quota_bytes: int | None = None
        """How many bytes all files that were ever opened may have together."""
        self._swallows = swallows
        self._fault: Fault | None = None
        self._met = 0
        self._files: weakref.WeakSet[File] = weakref.WeakSet()
        self._paths: set[str] = set()
        super().__init__(VFS_NAME, "unix", makedefault=True)

    def arm(self, fault: Fault | None) -> None:
        """Count from here on, and fail as told."""
        self._fault = fault
        self._met = 0
        self.failures = 0
        self.done.clear()

    def disarm(self) -> None:
        """Be the ordinary file system again; what was counted stays."""
        self._fault = None

    def error(self, sort: Sort) -> Exception | None:
        """Count an operation; return the error that it has to end with, if any."""
        self.done[sort] += 1
        fault = self._fault
        if fault is None or fault.kind.sort not in (sort, None):
            return None
        self._met += 1
        if self._met <= fault.nth or (self._met > fault.nth + 1 and not fault.for_good):
            return None
        self.failures += 1
        return apsw.exception_for(fault.kind.code or sort.value)

    def failed(self, error: Exception) -> None:
        """End an operation with its error, unless this disk is one that keeps errors for itself."""
        self.at_fault()
        if not self._swallows:
            raise error

    def part(self) -> Part:
        """Return how much of a failing operation happens."""
        return Part.NOTHING if self._swallows or self._fault is None else self._fault.kind.part

    def used_bytes(self) -> int:
        """Return the size of all the files together."""
        return sum(_size_of(path) for path in self._paths)

    def free_bytes(self) -> int:
        """Return what the quota leaves."""
        assert self.quota_bytes is not None  # noqa: S101 - only asked under a quota
        return max(0, self.quota_bytes - self.used_bytes())

    def grown(self, path: str, end: int) -> int:
        """Return up to where a write that wants to reach `end` of a file may go, by the quota."""
        if self.quota_bytes is None:
            return end
        size = _size_of(path)
        return end if end <= size else min(end, size + self.free_bytes())

    def forget_paths(self) -> None:
        """Count no earlier file in the quota."""
        self._paths.clear()

    def image(self, path: str) -> dict[str, bytes]:
        """Return the content of a database's files by suffix: what a process killed now would leave."""
        found: dict[str, bytes] = {}
        for suffix in _SUFFIXES:
            whole = path + suffix
            if os.path.exists(whole):  # noqa: PTH110 - an unlinked file may still be open
                live = [file for file in self._files if file.path == whole and file.is_open]
                found[suffix] = live[0].content() if live else _content(whole)
        return found

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - apsw's name
        """Open a file."""
        if error := self.error(Sort.OPEN):
            self.failed(error)
        file = File(self, name, flags)
        self._files.add(file)
        if file.path is not None:
            self._paths.add(file.path)
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: ARG002, N802 - apsw's name
        """Delete a file."""
        error = self.error(Sort.DELETE)
        if error is None or self.part() is Part.ALL:
            super().xDelete(filename, False)  # noqa: FBT003 - it takes no keywords
        if error is not None:
            self.failed(error)

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: N802 - apsw's name
        """Tell whether a file is there."""
        if error := self.error(Sort.ACCESS):
            self.failed(error)
        return super().xAccess(pathname, flags)


class File(apsw.VFSFile):
    """An open file, whose operations may fail."""

    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        given = name.filename() if isinstance(name, apsw.URIFilename) else name
        self.path = given
        """The file's path; `None` for a temporary one."""
        self.is_open = True
        super().__init__("unix", name, flags)

    def content(self) -> bytes:
        """Read the whole file."""
        size = super().xFileSize()
        return super().xRead(size, 0) if size else b""

    def xClose(self) -> None:  # noqa: N802 - apsw's name
        """Close."""
        self.is_open = False
        super().xClose()

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - apsw's name
        """Write all, or a part and then an error."""
        error = self._disk.error(Sort.WRITE)
        through = len(data) if error is None else int(len(data) * self._disk.part().value)
        if error is None and self.path is not None:
            through = max(0, self._disk.grown(self.path, offset + len(data)) - offset)
            if through < len(data):
                error = apsw.exception_for(apsw.SQLITE_FULL)
        if through:
            super().xWrite(data[:through], offset)
        if error is not None:
            self._disk.failed(error)

    def xSync(self, flags: int) -> None:  # noqa: ARG002, N802 - apsw's name
        """Count a sync, and leave the hardware alone."""
        if error := self._disk.error(Sort.SYNC):
            self._disk.failed(error)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - apsw's name
        """Truncate."""
        error = self._disk.error(Sort.TRUNCATE)
        if error is None or self._disk.part() is Part.ALL:
            super().xTruncate(newsize)
        if error is not None:
            self._disk.failed(error)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - apsw's name
        """Read."""
        if error := self._disk.error(Sort.READ):
            self._disk.failed(error)
        return super().xRead(amount, offset)

    def xFileSize(self) -> int:  # noqa: N802 - apsw's name
        """Tell the size."""
        if error := self._disk.error(Sort.SIZE):
            self._disk.failed(error)
        return super().xFileSize()

    def xLock(self, level: int) -> None:  # noqa: N802 - apsw's name
        """Lock."""
        if error := self._disk.error(Sort.LOCK):
            self._disk.failed(error)
        super().xLock(level)


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - text, as SQLite gives it
    except OSError:
        return 0


def _content(path: str) -> bytes:
    """Read a file that no connection of this process has open."""
    with open(path, "rb") as file:  # noqa: PTH123 - text, as SQLite gives it
        return file.read()
