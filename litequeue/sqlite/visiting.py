"""A look at a file that is not opened as a queue: nothing of it is changed, whatever it holds.

Owns: how a file may be opened without a trace. Invariants: nothing is created, migrated, recovered or checkpointed: a
write-ahead log that was there stays as it was, one that reading had to make goes again; the gate is passed where there
is one; a forked child never uses or closes the inherited connection.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import apsw

from litequeue.errors import CannotOpen, QueueBusy
from litequeue.sqlite import forks
from litequeue.sqlite.connection import abandon, close_last, why_not
from litequeue.sqlite.gate import Gate
from litequeue.sqlite.opening import refuse_cut_off
from litequeue.sqlite.place import LOGS

_GATE_S = 1.0
_STEP_S = 0.001
_STEPS = 10_000


class Inherited:
    """Keeps objects of SQLite from ever being used, closed or collected in a forked child."""

    def __init__(self, *objects: apsw.Connection | apsw.Backup) -> None:
        self._objects = list(objects)
        forks.register(self)

    def add(self, item: apsw.Connection | apsw.Backup) -> None:
        """Take care of one more."""
        self._objects.append(item)

    def before_fork(self) -> None:
        """Nothing to do before a fork."""

    def after_fork_in_parent(self) -> None:
        """Nothing to do in the parent."""

    def after_fork_in_child(self) -> None:
        """Abandon what was inherited."""
        for item in self._objects:
            abandon(item)


@contextmanager
def visit(path: str) -> Iterator[apsw.Connection]:
    """Open a file for reading for the length of a `with` block.

    Raises:
        CannotOpen: there is no such file, it is a folder, there is no permission to read it, or something else than a
            file lies beside it.
        NotAQueue, StorageCorrupt: a file that SQLite would take for an empty one.
        QueueBusy: it was opened by somebody else while it was taken for one that does not change.
    """
    refuse_cut_off(path)
    for suffix in LOGS:
        if not is_plain(path + suffix, or_absent=True):
            raise CannotOpen(path, f"the {suffix} beside it is not an ordinary file")
    is_in_use = _has_any(path, "-wal", "-journal")
    is_still = not is_in_use and not _may_write(path)
    with turn(path):
        connection = _connect(path, is_in_use=is_in_use, is_still=is_still)
    inherited = Inherited(connection)
    opener = os.getpid()
    try:
        connection.set_busy_handler(_wait)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        yield connection
        if is_still and _has_any(path, "-wal", "-journal"):
            raise QueueBusy(f"{path} was opened by another program meanwhile: what was read may be of several moments")
    finally:
        if os.getpid() == opener:
            del inherited
            with turn(path):
                if is_in_use:
                    connection.close()
                else:  # the log and the shared memory that reading has made go again
                    close_last(connection)


def _wait(times: int) -> bool:
    """SQLite's busy handler, for one lock: ten seconds by the millisecond."""
    time.sleep(_STEP_S)
    return times < _STEPS


@contextmanager
def turn(path: str) -> Iterator[None]:
    """Pass the gate, which every opening and closing goes through (DESIGN §3), unless no queue has ever had one."""
    gate = Gate(f"{path}-lock", 0o600)
    try:
        if is_plain(f"{path}-lock"):
            with contextlib.suppress(OSError):  # no permission
                gate.enter(time.monotonic() + _GATE_S)
        yield
    finally:
        gate.close()


def is_plain(path: str, *, or_absent: bool = False) -> bool:
    """Tell whether there is an ordinary file, not a link to one, and nothing that waits to be read."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return or_absent


def _connect(path: str, *, is_in_use: bool, is_still: bool) -> apsw.Connection:
    """Open so that nothing changes.

    Beside a log or a journal: read-only, which neither checkpoints nor rolls back. Without one, where reading must make
    a log and so has to remove it again: for writing, which `query_only` then keeps from happening. Where nothing can be
    made: as a file that does not change.
    """
    try:
        if is_in_use:
            return apsw.Connection(path, apsw.SQLITE_OPEN_READONLY)
        if is_still:
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            return apsw.Connection(f"file:{quote(path)}?immutable=1", flags)
        connection = apsw.Connection(path, apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error as exc:
        raise CannotOpen(path, why_not(path, create=False) or str(exc)) from exc
    connection.execute("PRAGMA query_only = 1").fetchall()
    return connection


def _may_write(path: str) -> bool:
    return os.access(path, os.W_OK) and os.access(os.path.dirname(path) or ".", os.W_OK | os.X_OK)


def _has_any(path: str, *suffixes: str) -> bool:
    return any(os.path.exists(path + suffix) for suffix in suffixes)
