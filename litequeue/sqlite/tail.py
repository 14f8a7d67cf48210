"""Whether a commit that failed may still come back, from the tail that it left in the write-ahead log.

A commit that fails late, at its last write or its sync, can leave all of its frames in the log. SQLite rolls it back in
memory, and no process sees it; but when every process is killed before the next write, whoever opens the file then
recovers the log from its bytes, and takes those frames for a commit:

    A: COMMIT writes its frames; the sync fails; A tells its caller that nothing was done
    A: is killed
    B: opens the file, reads the log, finds whole frames with good checksums: the commit is there

So what a failed commit left has to be dead before anyone may say that it did nothing (contract G11). Invariant: an
answer of `True` holds through a kill at any later moment. Leaves out: what the caller is told (`store`).
"""

from __future__ import annotations

from typing import cast

import apsw

from litequeue.sqlite import opening
from litequeue.sqlite.connection import immediate, pragma
from litequeue.sqlite.statements import SQL

_LOG_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24


def is_dead(connection: apsw.Connection, path: str) -> bool:
    """Make sure that the failed commit cannot come back; tell whether that is sure now.

    It is when the log ends before the first whole frame that it could have left. Otherwise its first frame is written
    over by a commit of one page; the checksums of a log go on from frame to frame, so that the later ones are worthless
    as well. That commit has to change a byte, or SQLite would write nothing: it lets every handle read the settings
    anew. Leaves `synchronous` at FULL. Call it when SQLite has rolled back.
    """
    try:
        if _has_no_frame(connection, path):
            return True
        pragma(connection, "synchronous = FULL")
        with immediate(connection):
            connection.execute(SQL.settings_changed)
    except apsw.Error:
        return False
    return True


def _has_no_frame(connection: apsw.Connection, path: str) -> bool:
    """Tell whether the log holds not even one whole frame beyond its last commit. Needs no room, and writes nothing."""
    frames, _ = connection.wal_checkpoint(None, apsw.SQLITE_CHECKPOINT_NOOP)
    frame_bytes = _FRAME_HEADER_BYTES + cast("int", pragma(connection, "page_size"))
    return opening.size_of(f"{path}-wal") < _LOG_HEADER_BYTES + (max(0, frames) + 1) * frame_bytes
