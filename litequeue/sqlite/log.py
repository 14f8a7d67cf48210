"""The write-ahead log of a connection that writes: when it is copied back, and what it proves.

Invariants (DESIGN §3): a checkpoint comes after a commit, never out of it, so that its failure is never mistaken for
the commit's; SQLite's hook is the proof that a commit has reached the log; readers that come and go never let it grow
without end, and one that stays, which nobody can help, is told of. Leaves out: what a failed commit has left in it
(`tail`).
"""

from __future__ import annotations

import logging
import time
from typing import cast

import apsw

from litequeue.clock import Clock
from litequeue.sqlite import opening
from litequeue.sqlite.connection import CHECKPOINT_PAGES, Patience, Runner
from litequeue.sqlite.gate import Gate
from litequeue.sqlite.statements import SQL

_AGAIN_PAGES = 1000
"""A checkpoint that did not make the log begin anew is tried again after so many more pages."""
_READERS_S = 0.1
"""How long a checkpoint waits for readers to end; most of the queue's own are shorter."""
_MOST_READERS_S = 2.0
"""The same for a long log: the more there is in it, the longer it may take, so that it is all the rarer."""
_TOLD_AFTER_US = 10_000_000
"""A reader that has held the log for so long is told of, and again each time that this has doubled."""
_log = logging.getLogger("litequeue")


class Log:
    """The log of one file, as the connection that writes sees it; the caller has that one, and the gate."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._pages = 0
        self._seen_pages: int | None = None
        """How many there were after the last commit of this handle; `None` before the first."""
        self._copy_back_at = CHECKPOINT_PAGES
        self._held_at: int | None = None
        """Up to which page a reader lets the log be copied back; `None` when the whole of it was."""
        self._held_since_us = 0
        self._is_held = False
        self._tell_after_us = _TOLD_AFTER_US

    @property
    def size_bytes(self) -> int:
        """The size of the file, which stays when the log begins anew."""
        return opening.size_of(self._path + "-wal")

    @property
    def held_us(self) -> int:
        """How long one reader, at the least, has kept the log from being copied back, as far as this handle knows."""
        return 0 if self._held_at is None else self._clock.monotonic_us() - self._held_since_us

    def owed_bytes(self, connection: Runner) -> int:
        """Return by how much the file is to grow when the log is copied back, where a reader has let it become long.

        It is 0 for one of an ordinary length, which the reserve on the disk is large enough for.
        """
        if self._seen_pages is not None and self._seen_pages < CHECKPOINT_PAGES + _AGAIN_PAGES:
            return 0
        whole_bytes = cast("int", connection.execute(SQL.file_size).fetchall()[0][0])
        return max(0, whole_bytes - opening.size_of(self._path))

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
        """Checkpoint when the log has grown long, after a commit; a failure is logged and tried again later.

        The log begins anew when the whole of it has been copied and nobody reads in it. Readers that follow each other
        closely never leave such a moment; so a log that has grown further waits for those that read just now, while
        nothing is added to it: whoever begins to read then is in nobody's way. For one that stays it does not wait.
        """
        if self._pages < CHECKPOINT_PAGES:
            self._copy_back_at = CHECKPOINT_PAGES
            return
        if self._pages < self._copy_back_at:
            return
        self._copy_back_at = self._pages + _AGAIN_PAGES
        gate.share()
        patience.deadline = time.monotonic()
        try:
            self._checkpoint(connection, apsw.SQLITE_CHECKPOINT_PASSIVE)
            if self._pages >= CHECKPOINT_PAGES + _AGAIN_PAGES and not self._is_held:
                wait_s = _READERS_S * self._pages / (CHECKPOINT_PAGES + _AGAIN_PAGES)
                patience.deadline = time.monotonic() + min(wait_s, _MOST_READERS_S)
                self._checkpoint(connection, apsw.SQLITE_CHECKPOINT_RESTART)
        except apsw.Error as exc:
            _log.warning("a checkpoint of %s failed: %s", self._path, exc)

    def copy_back(self, connection: apsw.Connection, patience: Patience, gate: Gate, truncate_bytes: int) -> int:
        """Checkpoint now, and cut the log when it is larger than this; return the pages that it still has."""
        gate.share()
        if self.size_bytes > truncate_bytes:
            patience.deadline = time.monotonic() + _READERS_S
            left = self._checkpoint(connection, apsw.SQLITE_CHECKPOINT_TRUNCATE)
            if left == 0:
                return 0
        patience.deadline = time.monotonic()
        return self._checkpoint(connection, apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _checkpoint(self, connection: apsw.Connection, mode: int) -> int:
        """Copy back what can be copied; return the pages left, all of them when somebody else is in the way just now.

        That is a reader with a snapshot, for a mode that waits for readers, or another checkpoint.
        """
        try:
            pages, copied = connection.wal_checkpoint(None, mode)
        except apsw.BusyError:
            return max(1, self._pages)
        self._notice_reader(pages, copied)
        return max(0, pages - copied)

    def _notice_reader(self, pages: int, copied: int) -> None:
        """Tell of a reader that stays: two checkpoints in a row came no further than to the same page."""
        self._is_held = pages > copied == self._held_at
        if copied >= pages:
            self._held_at = None
        elif copied != self._held_at:
            self._held_at = copied
            self._held_since_us = self._clock.monotonic_us()
            self._tell_after_us = _TOLD_AFTER_US
        if self._is_held and self.held_us >= self._tell_after_us:
            self._tell_after_us = 2 * self.held_us
            _log.warning(
                "a reader has kept the write-ahead log of %s from being copied back for %d s (a backup, or a "
                "transaction that some program leaves open): it has %d bytes, and grows until that ends",
                self._path,
                self.held_us // 1_000_000,
                self.size_bytes,
            )

    def _on_commit(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        """SQLite's hook after a commit has reached the log."""
        self._pages = self._seen_pages = pages
        return apsw.SQLITE_OK
