"""The write-ahead log of a connection that writes: when it is copied back, and what it proves.

Invariants (DESIGN §3): a checkpoint comes after a commit, never out of it, so that its failure is never mistaken for
the commit's; SQLite's hook is the proof that a commit has reached the log. Leaves out: what a failed commit has left in
it (`tail`).
"""

from __future__ import annotations

import logging
import time

import apsw

from litequeue.sqlite import opening
from litequeue.sqlite.connection import CHECKPOINT_PAGES, Patience
from litequeue.sqlite.gate import Gate

_AGAIN_PAGES = 1000
"""A checkpoint that readers held up is tried again after so many more pages."""
_log = logging.getLogger("litequeue")


class Log:
    """The log of one file, as the connection that writes sees it; the caller has that one, and the gate."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._pages = 0
        self._copy_back_at = CHECKPOINT_PAGES

    def watch(self, connection: apsw.Connection) -> None:
        """Hear of every commit of a connection."""
        connection.set_wal_hook(self._on_commit)

    def expect_commit(self) -> None:
        """Forget the commits of before: the next one is to be proved."""
        self._pages = 0

    @property
    def has_commit(self) -> bool:
        """Whether a commit has reached the log since it was expected."""
        return self._pages > 0

    def copy_back_if_due(self, connection: apsw.Connection, patience: Patience, gate: Gate) -> None:
        """Checkpoint when the log has grown long, after a commit; a failure is logged and tried again later."""
        if self._pages < self._copy_back_at:
            return
        gate.share()
        patience.deadline = time.monotonic()
        try:
            left = self._checkpoint(connection, apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as exc:
            _log.warning("a checkpoint of %s failed: %s", self._path, exc)
            left = self._pages
        self._copy_back_at = CHECKPOINT_PAGES if left == 0 else self._pages + _AGAIN_PAGES

    def copy_back(self, connection: apsw.Connection, patience: Patience, gate: Gate, truncate_bytes: int) -> int:
        """Checkpoint now, and cut the log when it is larger than this; return the pages that it still has."""
        gate.share()
        patience.deadline = time.monotonic()
        if opening.size_of(self._path + "-wal") > truncate_bytes:
            left = self._checkpoint(connection, apsw.SQLITE_CHECKPOINT_TRUNCATE)
            if left == 0:
                return 0
        return self._checkpoint(connection, apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _checkpoint(self, connection: apsw.Connection, mode: int) -> int:
        """Copy back what can be copied; return the pages left, all of them when somebody else is in the way just now.

        That is a reader with a snapshot, for a mode that waits for readers, or another checkpoint.
        """
        try:
            pages, copied = connection.wal_checkpoint(None, mode)
        except apsw.BusyError:
            return max(1, self._pages)
        return max(0, pages - copied)

    def _on_commit(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        """SQLite's hook after a commit has reached the log."""
        self._pages = pages
        return apsw.SQLITE_OK
