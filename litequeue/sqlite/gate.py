"""The write gate: a fair turn for every process that writes, checkpoints, opens or closes the file.

SQLite's own waiting starves some waiters for seconds; an advisory lock on a sidecar file, tried again and again, does
not (DESIGN §3). It also stands in for SQLite's locks where something in the process that has them has dropped them
unseen. Invariant: as long as SQLite's locks hold, correctness does not rest on the gate: after a second of waiting, or
where there is no `flock`, the caller goes on without it; who wants to write should first ask whether whoever has the
turn is at work. Owns the sidecar's descriptor; a forked child drops it and opens its own.

Of all who wait, only the first in line tries often; being first is a lock of its own. Whoever has come back again and
again for some milliseconds lets the first in line go ahead. Nothing but the pace depends on the line.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import stat
import time

from litequeue.facilities import PROC
from litequeue.histogram import QUICK_S, Histogram
from litequeue.sqlite import flock, forks, ofd

_LONGEST_WAIT_S = 1.0
_FIRST_RETRY_S = 0.0003
"""Between two tries of the first in line, in the mean."""
_RETRY_S = 0.003
"""Between those of the others: ten times fewer, as every try takes time from the two or three who could work."""
_STINT_S = 0.003
"""For how long a handle may come back at once, while others wait: each change costs up to a try of the first one."""
_STEP_BACK_S = 0.0006
"""The first pause of those who are not first in line: enough for the first one's try, if it is awake to have one."""
_REMEMBERED_S = 1.0
"""For how long after a wait a handle reckons with others; one that is alone has nothing to ask of the line."""
_FIRST_IN_LINE = 2**63 - 1
"""The byte of the sidecar that the first in line locks; holders' ids are smaller (`presence`)."""
_LOCKS = f"{PROC}/locks"
_NOT_AT_WORK = frozenset("TtZXx")
"""States of a process in `/proc/PID/stat`: stopped, traced, dead."""
_waits: dict[str, Histogram] = {}
"""By the path of the sidecar."""


class Gate:
    """The lock on `<file>-lock`. Not for use by two threads at once: the handle's thread lock comes first."""

    def __init__(self, path: str, mode: int) -> None:
        self._path = path
        self._mode = mode
        self._descriptor: int | None = None
        self._stint_ends_at = 0.0
        self._crowded_until = 0.0
        forks.know(self)

    def __del__(self) -> None:
        self.close()  # an interrupted opening must not leave the others waiting

    def enter(self, deadline: float) -> bool:
        """Wait for a turn until `deadline` (`time.monotonic`), at most a second; tell whether it was had.

        Raises:
            OSError: the sidecar cannot be opened or created.
        """
        descriptor = self._sidecar()
        if not flock.HAS_LOCKS:
            return False
        if (self._crowded_until == 0.0 or not self._is_to_step_back()) and flock.lock(descriptor):
            return True
        now = time.monotonic()
        has_turn = self._wait(descriptor, now, min(deadline, now + _LONGEST_WAIT_S))
        waits(self._path).observe(time.monotonic() - now)
        return has_turn

    def _is_to_step_back(self) -> bool:
        """Tell whether it is the others' turn; who has been alone for a while need not ask again."""
        now = time.monotonic()
        if now >= self._crowded_until:
            self._crowded_until = 0.0
        return self._stint_ends_at <= now < self._crowded_until

    def _wait(self, descriptor: int, now: float, give_up: float) -> bool:
        """Try for a turn until `give_up`; at once only when nobody else is in line.

        A stopped process may be the first in line, so the others try the gate too, only less often.
        """
        has_waited = is_first = False
        try:
            while True:
                is_first = is_first or _is_first_in_line(descriptor)
                if (is_first or has_waited or now >= give_up) and flock.lock(descriptor):
                    self._stint_ends_at = now + _STINT_S
                    if has_waited:
                        self._crowded_until = now + _REMEMBERED_S
                    return True
                if now >= give_up:
                    return False
                pause = _FIRST_RETRY_S if is_first else _RETRY_S if has_waited else _STEP_BACK_S
                time.sleep(min(pause * random.uniform(0.5, 1.5), give_up - now))  # so that no two stay in step
                now, has_waited = time.monotonic(), True
        finally:
            _leave_line(descriptor)

    def share(self) -> None:
        """Keep the turn for what is no transaction: a writer that has waited for long may go on beside it."""
        if self._descriptor is not None and flock.HAS_LOCKS:
            flock.share(self._descriptor)  # the kernel may let another one in between; no harm

    def is_had_by_one_at_work(self) -> bool:
        """Tell whether a running process has the turn, to write, and will end it by itself; after a wait in vain.

        A stopped one may keep it for ever. Where the platform does not tell, nobody is known to be at work.
        """
        if self._descriptor is None or not flock.HAS_LOCKS:
            return False
        inode = os.fstat(self._descriptor).st_ino
        return any(_is_at_work(pid) for pid in lockers(inode, "FLOCK", "WRITE"))

    def leave(self) -> None:
        """End the turn; without one this does nothing."""
        if self._descriptor is not None and flock.HAS_LOCKS:
            flock.unlock(self._descriptor)

    def close(self) -> None:
        """Close the sidecar; this ends the turn as well, unless the descriptor was inherited.

        In a forked child this is right, and `leave` never is: the lock belongs to the description that the child shares
        with its parent, and only an explicit unlock, or the last close, ends it.
        """
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def remove(self) -> None:
        """Close the sidecar, and remove it, unless somebody else has it open and the platform keeps it then."""
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def before_fork(self) -> None:
        """Nothing to do: who has the turn keeps it."""

    def after_fork_in_parent(self) -> None:
        """Nothing to do in the parent."""

    def after_fork_in_child(self) -> None:
        """Close what was inherited, or the parent's turn would not end before this process does."""
        self.close()

    def _sidecar(self) -> int:
        """Open the sidecar unless it is open; a database that is created takes over its permissions."""
        if self._descriptor is None:
            self._descriptor = open_sidecar(self._path, self._mode)
        return self._descriptor


def waits(path: str) -> Histogram:
    """Return how long this process has waited for the gate of a sidecar, in seconds, where it was not free at once."""
    return _waits.setdefault(path, Histogram(QUICK_S))


def _is_first_in_line(descriptor: int) -> bool:
    """Tell whether nobody stands before this one any more; where there are no such locks, nobody ever does."""
    if ofd.HAS_LOCKS:
        try:
            ofd.lock(descriptor, _FIRST_IN_LINE, 1)
        except BlockingIOError:
            return False
        except OSError:  # nor on this file system
            pass
    return True


def _leave_line(descriptor: int) -> None:
    if ofd.HAS_LOCKS:
        with contextlib.suppress(OSError):
            ofd.unlock(descriptor, _FIRST_IN_LINE, 1)


def lockers(inode: int, sort: str, mode: str) -> list[int]:
    """Return who has such a lock on a file: `FLOCK` or `POSIX`, `READ` or `WRITE`; nobody where it is not told.

    Source: proc(5), `/proc/locks`; in a container only its own processes are there.
    """
    try:
        with open(_LOCKS, "rb") as table:  # in bytes: a codec is loaded at its first use, and a fork meanwhile hangs
            rows = [line.decode("ascii").split() for line in table]
    except OSError:
        return []
    own = [row for row in rows if (row[1], row[3]) == (sort, mode)]
    return [int(row[4]) for row in own if row[5].rpartition(":")[2] == str(inode)]


def _is_at_work(pid: int) -> bool:
    try:
        with open(f"{PROC}/{pid}/stat", encoding="utf-8", errors="replace") as told:
            state = told.read().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in _NOT_AT_WORK


def open_sidecar(path: str, mode: int, *, create: bool = True) -> int:
    """Open a lock file beside the queue, creating it with just this mode; children that `exec` do not inherit it.

    Raises:
        OSError: it cannot be opened or made, or something else has been put in its place: a link to another file, a
            pipe, a device. That is neither opened nor locked.
    """
    flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
    if create:
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
            if hasattr(os, "fchmod"):
                os.fchmod(descriptor, mode)  # the umask has no say in what the caller asked for
            return descriptor
    _refuse_stranger(os.lstat(path), path)
    descriptor = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        _refuse_stranger(os.fstat(descriptor), path)  # put there between the two
    except BaseException:  # an interrupt, too
        os.close(descriptor)
        raise
    return descriptor


def follow_mode(path: str, mode: int) -> None:
    """Give a lock file of this user's own just this mode, where it is there and has another one."""
    if not (hasattr(os, "fchmod") and hasattr(os, "geteuid")):
        return
    with contextlib.suppress(OSError):  # it is not there, or not to be opened: who needs it tells
        if stat.S_IMODE(os.lstat(path).st_mode) == mode:
            return
        descriptor = open_sidecar(path, mode, create=False)
        try:
            status = os.fstat(descriptor)
            if status.st_uid == os.geteuid() and status.st_nlink == 1:  # else it may be somebody's file of another name
                os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)


def _refuse_stranger(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not an ordinary file", path)
