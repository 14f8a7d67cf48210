"""What lies around a queue file, and how the file is built: the part of an examination that is not about its rows.

Owns: which files are its own; the looks at the files beside it, at the file system, at sizes and at the header.
Invariant: nothing is made, locked for longer than a moment, or opened that SQLite locks.
"""

from __future__ import annotations

import os
import stat
import time

import apsw

from litequeue.settings import Settings
from litequeue.sqlite import filesystem, settings_table
from litequeue.sqlite.connection import pragma
from litequeue.sqlite.findings import Tally
from litequeue.sqlite.gate import Gate
from litequeue.sqlite.opening import size_of
from litequeue.sqlite.partial import leftovers
from litequeue.sqlite.place import SIDECARS
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.schema import APPLICATION_ID
from litequeue.sqlite.statements import SQL
from litequeue.sqlite.tables import VERSION
from litequeue.sqlite.visiting import is_plain

_NEARLY = 0.9
_GATE_S = 1.0
_AUTO_VACUUM = {0: "none", 1: "full", 2: "incremental"}
_GIB = 2**30


def is_own(path: str, queue_path: str) -> bool:
    """Tell whether a file is one of the queue's own, by whatever name, or would be one if it were made."""
    real = os.path.realpath(path)
    return any(_is_same(real, queue_path + suffix) for suffix in ("", *SIDECARS))


def _is_same(path: str, other: str) -> bool:
    if os.path.normcase(path) == os.path.normcase(other):
        return True
    try:
        return os.path.samefile(path, other)
    except OSError:  # one of them is not there
        return False


def look_around(path: str, tally: Tally, log_limit_bytes: int) -> None:
    """Look at what lies beside the file and under it; `log_limit_bytes` is what maintenance lets the log grow to."""
    file = os.stat(path)
    for suffix in SIDECARS:
        _sidecar(path + suffix, file, tally)
    for name in leftovers(path):
        tally.add("sidecar.leftover", name)
    if file.st_nlink > 1:
        tally.add("file.links", f"{file.st_nlink} hard links")
    if is_plain(path + "-lock") and os.access(path + "-lock", os.R_OK | os.W_OK):
        gate = Gate(path + "-lock", stat.S_IMODE(file.st_mode))
        if not gate.enter(time.monotonic() + _GATE_S):
            tally.add("sidecar.held")
        gate.close()
    if size_of(path + "-journal"):
        tally.add("log.hot")
    log_bytes = size_of(path + "-wal")
    if log_bytes > log_limit_bytes:
        tally.add("log.large", f"{log_bytes:,} bytes")
    _disk(os.path.dirname(path), tally)


def describe(connection: apsw.Connection, tally: Tally, version: int) -> None:
    """Tell how the file is built and by what it is read; its limit only where the settings are this version's.

    Raises:
        apsw.Error: it cannot be read.
    """
    mode = pragma(connection, "journal_mode")
    if mode != "wal":
        tally.add("file.journal", str(mode))
    vacuum = _AUTO_VACUUM.get(_number(connection, "auto_vacuum"), "unknown")
    if vacuum != "incremental":
        tally.add("file.vacuum", f"auto_vacuum is {vacuum}")
    (others,) = connection.execute(SQL.others).fetchall()[0]
    if others or _number(connection, "application_id") != APPLICATION_ID:
        tally.add("file.application", f"{others} {'table' if others == 1 else 'tables'} of its own")
    tally.add("file.sqlite", f"SQLite {apsw.sqlite_lib_version()}, schema version {version}")
    page_bytes, pages = _number(connection, "page_size"), _number(connection, "page_count")
    free = _number(connection, "freelist_count")
    log_bytes = size_of(connection.filename_wal)
    tally.add(
        "file.size",
        f"{page_bytes * pages:,} bytes in pages of {page_bytes:,}, {page_bytes * free:,} of them free; "
        f"write-ahead log {log_bytes:,} bytes",
    )
    if version != VERSION:
        return
    most = settings_table.read(Reader(connection, 0, 0, Settings())).max_bytes
    used = page_bytes * (pages - free)
    if most is not None and used >= _NEARLY * most:
        tally.add("file.limit", f"{used:,} of {most:,} bytes")


def _sidecar(path: str, file: os.stat_result, tally: Tally) -> None:
    name = os.path.basename(path)
    try:
        found = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISREG(found.st_mode):
        tally.add("sidecar.kind", name)
        return
    if (found.st_uid, found.st_gid) != (file.st_uid, file.st_gid):
        owners = f"{found.st_uid}:{found.st_gid} instead of {file.st_uid}:{file.st_gid}"
        tally.add("sidecar.owner", f"{name} ({owners})")
    if stat.S_IMODE(found.st_mode) != stat.S_IMODE(file.st_mode):
        modes = f"{stat.S_IMODE(found.st_mode):o} instead of {stat.S_IMODE(file.st_mode):o}"
        tally.add("sidecar.mode", f"{name} ({modes})")
    if not os.access(path, os.R_OK | os.W_OK):
        tally.add("sidecar.access", name)


def _disk(folder: str, tally: Tally) -> None:
    kind = filesystem.kind_of(folder)
    match filesystem.judge(kind):
        case "breaks":
            tally.add("disk.breaks", str(kind))
        case "unknown":
            tally.add("disk.unknown", str(kind))
        case "sound":
            pass
    free = filesystem.free_bytes(folder)
    known = "of an unknown kind" if kind is None else kind
    tally.add("disk.kind", known if free is None else f"{known}, {free / _GIB:,.1f} GiB free")
    if free is not None and free <= filesystem.FREE_SPACE_RESERVE_BYTES:
        tally.add("disk.reserve", f"{free:,} bytes free, {filesystem.FREE_SPACE_RESERVE_BYTES:,} are kept")


def _number(connection: apsw.Connection, name: str) -> int:
    found = pragma(connection, name)
    return found if isinstance(found, int) else 0
