"""Opening a queue file: where it really is, whether it may be there, what it holds.

Owns: the order in which a file is looked at before it is touched (contract §6), and the first step of every boot: a
lease of an earlier boot lapses at the first opening after it (§8). Invariant: a file that is refused is left as it was.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time
import warnings
from dataclasses import replace
from typing import cast

import apsw

from litequeue.clock import Clock
from litequeue.errors import CannotOpen, NotAQueue, StorageCorrupt, StorageLost
from litequeue.settings import Settings
from litequeue.sqlite import connection as connections
from litequeue.sqlite import filesystem, migrating, presence, schema
from litequeue.sqlite.channel import Channel
from litequeue.sqlite.failures import meaning
from litequeue.sqlite.place import LOGS, Place
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.result_codes import damaged
from litequeue.sqlite.statements import SQL
from litequeue.sqlite.tables import EarlierVersion

_LEAST_BYTES = 512
_log = logging.getLogger("litequeue")


def resolve(path: str | os.PathLike[str], *, create: bool, mode: int = 0o600, allow_network: bool) -> Place:
    """Find the real path and refuse what can never work; `mode` is for a file that is not there yet.

    What is made beside a file that is there takes over its permissions, as SQLite's own files do: whoever may use the
    file may use them.

    Raises:
        CannotOpen: no such folder, a folder in its place, no permission, absent without `create`, an SQLite that is too
            old, or a file system that breaks SQLite.
    """
    real = real_path(path)
    if real.endswith(connections.PARTIAL_SUFFIX):
        raise CannotOpen(real, "it is an unfinished backup or restore")
    kind = filesystem.kind_of(os.path.dirname(real))
    verdict = filesystem.judge(kind)
    place = Place(real, _permissions(real, mode), create, has_presence=verdict == "sound")
    if verdict == "breaks" and not allow_network:
        reason = f"SQLite's locks do not hold on a {kind} file system (allow_network=True opens it all the same)"
        raise CannotOpen(place.path, reason)
    reason_not = connections.why_not(place.path, create=create)
    if reason_not is not None:
        raise CannotOpen(place.path, reason_not)
    if verdict == "unknown":
        warnings.warn(
            f"{place.path} lies on a {kind} file system, which litequeue has not been tested on", stacklevel=3
        )
    return place


def _permissions(path: str, mode: int) -> int:
    try:
        return os.stat(path).st_mode & (stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)
    except OSError:
        return mode


def again(place: Place) -> Place:
    """Return how a file that has been opened is opened once more: it is not made anew, nor is anything beside it.

    Raises:
        CannotOpen: it is gone, or may not be opened any more.
    """
    reason_not = connections.why_not(place.path, create=False)
    if reason_not is not None:
        raise CannotOpen(place.path, reason_not)
    return replace(place, create=False)


def real_path(path: str | os.PathLike[str]) -> str:
    """Find the file that a path means, through links.

    Raises:
        CannotOpen: it is no path, one that SQLite takes for the log of another file and may remove with that, or SQLite
            is too old to open anything.
    """
    given = os.fspath(path)
    connections.check_library(given)
    if "\0" in given or not given:
        raise CannotOpen(repr(given), "it is not a path")
    shown = given.encode("utf-8", "replace").decode()
    try:
        real = os.path.realpath(given)
    except (OSError, UnicodeError) as exc:  # the working directory is gone, or a name that no file can have
        raise CannotOpen(shown, str(exc)) from exc
    if not _is_utf8(real):
        raise CannotOpen(shown, "its name is not valid UTF-8")
    if real.endswith(LOGS):
        raise CannotOpen(real, f"names that end in {', '.join(LOGS)} are those of SQLite's logs of other files")
    return real


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def open_channel(channel: Channel, place: Place, clock: Clock, *, create: bool, deadline: float) -> None:
    """Open one connection, and move the tables of an earlier version forward before; the caller holds the gate.

    Raises:
        CannotOpen, NotAQueue, SchemaMismatch, StorageCorrupt, QueueBusy: see contract §6.
        QueueFull: there is no room to move the tables forward.
    """
    channel.patience.deadline = deadline
    is_refused = False
    while not _is_open(channel, place, clock, create=create):
        if is_refused:  # it was in use, and not by somebody who had just moved it
            raise migrating.in_use(place.path)
        is_refused = presence.is_attended(place) or not _is_moved(place, deadline)


def _is_open(channel: Channel, place: Place, clock: Clock, *, create: bool) -> bool:
    """Open one connection, unless the file is of an earlier version."""
    try:
        _open(channel, place, clock, create=create)
    except EarlierVersion:
        return False
    return True


def _open(channel: Channel, place: Place, clock: Clock, *, create: bool) -> None:
    refuse_cut_off(place.path)
    is_absent = create and not os.path.lexists(place.path)
    if is_absent:
        connections.make_file(place.path, place.mode)
    has_log = os.path.exists(f"{place.path}-wal")
    connection = connections.connect(place.path, channel.patience, create=create)
    if is_absent:  # by name: opening the file here would drop SQLite's locks (DESIGN §3)
        os.chmod(place.path, place.mode)
    try:
        _make_ready(connection, place, clock, create=create, is_whole=not has_log)
        connection.execute("BEGIN")
        connection.execute(SQL.settings_version).fetchall()
        channel.tripwire.arm()
        connection.execute("COMMIT")
    except BaseException as exc:
        with contextlib.suppress(apsw.Error):  # on the same bad disk; what is told is what led here
            if has_log:
                connection.close()
            else:  # the log and the shared memory that reading has made go again
                connections.close_last(connection)
        why = refusal(exc, place.path)
        if why is exc:
            raise
        raise why from exc
    channel.connection = connection


def _is_moved(place: Place, deadline: float) -> bool:
    """Move the tables forward; tell whether that was done, or may be tried again."""
    try:
        return migrating.move_forward(place, deadline) or time.monotonic() < deadline
    except Exception as exc:
        why = refusal(exc, place.path)
        if why is exc:
            raise
        raise why from exc


def refuse_cut_off(path: str) -> None:
    """Refuse what SQLite would take for an empty file, and begin anew.

    Raises:
        StorageCorrupt: the file is empty and its log is not; SQLite would throw the log away, even to read.
        NotAQueue: it is of a few bytes.
    """
    log_bytes = size_of(f"{path}-wal")  # before the file: its creator writes that one first
    file_bytes = size_of(path)
    if file_bytes == 0 < log_bytes and os.path.exists(path):
        raise StorageCorrupt(f"{path} is damaged: it is empty, and its write-ahead log is not")
    if 0 < file_bytes < _LEAST_BYTES:
        raise NotAQueue(path, "it is not an SQLite database")


def _make_ready(connection: apsw.Connection, place: Place, clock: Clock, *, create: bool, is_whole: bool) -> None:
    """Make a new file a queue, or make sure that it is one; only then is anything about it changed.

    `is_whole` tells that no log has a part of it: SQLite itself takes a last page that is cut off for a whole one.
    """
    if schema.is_new(connection, place.path):
        if not create:
            raise NotAQueue(place.path, "it is empty")
        schema.create(connection, place.path, clock)
    schema.check(connection, place.path)
    if is_whole and size_of(place.path) % cast("int", connections.pragma(connection, "page_size")):
        raise StorageCorrupt(f"{place.path} is damaged: it ends in the middle of a page")
    connections.use_wal(connection, place.path)
    connections.pragma(connection, "synchronous = FULL")
    _notice_boot(connection, place, clock)


def refusal(exc: BaseException, path: str) -> BaseException:
    """Return what an error at opening means, or the error itself when it is not about the file.

    Rows that are not there, and values that no queue writes, are damage here as in every verb.
    """
    if isinstance(exc, apsw.NotADBError):
        return NotAQueue(path, "it is not an SQLite database")
    known = meaning(exc, path)
    if not isinstance(exc, apsw.Error):
        return known
    if isinstance(known, StorageLost):
        return CannotOpen(path, "the disk is full" if filesystem.is_full(os.path.dirname(path)) else str(exc))
    return damaged(path, exc) if known is exc else known


def size_of(path: str) -> int:
    """Return a file's size in bytes, 0 when it is not there."""
    with contextlib.suppress(OSError):
        return os.stat(path).st_size
    return 0


def _notice_boot(connection: apsw.Connection, place: Place, clock: Clock) -> None:
    """After a reboot, move the lease clock so that every older deadline lies in the past: one write lapses all (§8).

    A boot ends every process, so while one lives that holds leases here the id is not believed.
    """
    boot_id = clock.boot_id()
    reader = Reader(connection, 0, 0, Settings())
    if reader.all(SQL.host)[0][0] == boot_id:
        return
    with connections.immediate(connection):
        living = presence.living(place, reader.all(SQL.holders))
        if living:
            _log.warning("%s: a new boot id while holders %s live: not believed", place.path, living)
        elif reader.all(SQL.host)[0][0] != boot_id:
            latest: int = reader.all(SQL.latest_deadline)[0][0] or 0
            connection.execute(SQL.host_booted, (boot_id, latest + 1 - clock.monotonic_us()))
            connection.execute(SQL.buckets_booted, (latest + 1,))
            connection.execute(SQL.holders_clear)
            connection.execute(SQL.settings_changed)
