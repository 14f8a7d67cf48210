"""Death at a named point: a process that has an appointment kills itself there, as `kill -9` does.

Owns: the points, and how a process notices that it has come to one, without a change to the package: SQLite's trace
events tell of the statements, a VFS over the ordinary one tells of opens, writes, syncs and closes. Invariants: the
process dies inside SQLite's own call, so nothing of the package runs after it; it first writes its last word, where it
died, to a file of its own.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

import apsw

STATEMENTS = ("before BEGIN", "after BEGIN", "after a statement", "before COMMIT", "after COMMIT")
"""After COMMIT is before it returns to the package: the commit is in the log and nobody knows."""
LOG = ("within COMMIT, a page in the log", "within COMMIT, before the sync")
CHECKPOINT = ("in a checkpoint, before a page", "in a checkpoint, after a page")
OPENING = ("opening the file", "opening the log", "opening, after a statement")
CLOSING = ("closing the file", "closing, after the file")
POINTS = (*STATEMENTS, *LOG, *CHECKPOINT, *OPENING, *CLOSING)

_END_S = 5.0
"""Far longer than the end of a process takes."""
_WRITES = ("INSERT", "UPDATE", "DELETE")


class Appointment(NamedTuple):
    """Where to die: the so-and-so-many-th time that the process comes to a point."""

    point: str
    times: int


class Striker:
    """Watches every connection and file of this process from now on, and keeps the appointment."""

    def __init__(self, appointment: Appointment, last_word: Path) -> None:
        self._point = appointment.point
        self._left = appointment.times
        self._last_word = last_word
        self._disk: Disk | None = None

    def install(self) -> None:
        """Begin to watch."""
        self._disk = Disk(self)
        apsw.connection_hooks.append(self._watch)

    def come_to(self, point: str) -> None:
        """Die, if this is the time and the place."""
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                die(self._last_word, point)

    def _watch(self, connection: apsw.Connection) -> None:
        watch = _Watch(self)
        connection.trace_v2(apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_PROFILE, watch.hear)


def die(last_word: Path, where: str) -> None:
    """End this process by SIGKILL, and say where."""
    _say(last_word, where)
    os.kill(os.getpid(), signal.SIGKILL)


def leave(last_word: Path, where: str, status: int) -> None:
    """End this process by `os._exit`, and say where."""
    _say(last_word, where)
    os._exit(status)


def _say(last_word: Path, where: str) -> None:
    """Say where; another thread of this process that has come to its end as well waits for that one's."""
    try:
        descriptor = os.open(last_word, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        time.sleep(_END_S)
    else:
        os.write(descriptor, where.encode())


class _Watch:
    """What one connection is doing."""

    def __init__(self, striker: Striker) -> None:
        self._striker = striker
        self._is_writing = False
        self._has_begun = False

    def hear(self, event: dict[str, object]) -> None:
        """Hear of a statement that begins or has ended."""
        sql = str(event["sql"]).lstrip()
        has_ended = event["code"] == apsw.SQLITE_TRACE_PROFILE
        if sql.startswith("BEGIN IMMEDIATE"):
            self._is_writing = self._has_begun = True
            self._striker.come_to("after BEGIN" if has_ended else "before BEGIN")
        elif not self._has_begun:
            if has_ended:
                self._striker.come_to("opening, after a statement")
        elif self._is_writing and sql == "COMMIT":
            self._is_writing = not has_ended
            self._striker.come_to("after COMMIT" if has_ended else "before COMMIT")
        elif self._is_writing and has_ended and sql.startswith(_WRITES):
            self._striker.come_to("after a statement")


class Disk(apsw.VFS):
    """The ordinary file system, with an eye on the striker."""

    def __init__(self, striker: Striker) -> None:
        self.striker = striker
        super().__init__("deadly", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - apsw's name
        """Open a file."""
        is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        self.striker.come_to("opening the log" if is_log else "opening the file")
        return File(self.striker, name, flags, is_log=is_log)


class File(apsw.VFSFile):
    """The database or its log."""

    def __init__(
        self, striker: Striker, name: str | apsw.URIFilename | None, flags: list[int], *, is_log: bool
    ) -> None:
        self._striker = striker
        self._is_log = is_log
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - apsw's name
        """Write: a frame's head or page in the log, or a page that goes back into the database."""
        if not self._is_log:
            self._striker.come_to("in a checkpoint, before a page")
        super().xWrite(data, offset)
        self._striker.come_to("within COMMIT, a page in the log" if self._is_log else "in a checkpoint, after a page")

    def xSync(self, flags: int) -> None:  # noqa: N802 - apsw's name
        """Sync."""
        if self._is_log:
            self._striker.come_to("within COMMIT, before the sync")
        super().xSync(flags)

    def xClose(self) -> None:  # noqa: N802 - apsw's name
        """Close."""
        if not self._is_log:
            self._striker.come_to("closing the file")
        super().xClose()
        if not self._is_log:
            self._striker.come_to("closing, after the file")
