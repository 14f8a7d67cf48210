"""How many times SQLite syncs a file, by a file system that counts and passes on.

Call it before the first connection of the process is opened. Every call of the file goes through Python then, so
nothing is timed in a process that counts.
"""

from __future__ import annotations

from collections.abc import Callable

import apsw

_ORDINARY = "unix"


class _CountingFile(apsw.VFSFile):
    def __init__(self, count: list[int], name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._count = count
        super().__init__(_ORDINARY, name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802 - apsw's name
        """Count it."""
        self._count[0] += 1
        super().xSync(flags)


class _CountingVFS(apsw.VFS):
    def __init__(self) -> None:
        self.count = [0]
        super().__init__("counting", _ORDINARY, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - apsw's name
        """Open a file that is counted."""
        return _CountingFile(self.count, name, flags)


def count_syncs() -> Callable[[], int]:
    """Begin to count; return what tells of it."""
    vfs = _CountingVFS()
    return lambda: vfs.count[0]
