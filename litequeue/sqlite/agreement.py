"""What a connection knows of the things that all processes agree on: the settings and the lease clock's offset.

Invariant: looked up inside each transaction, by a number: nothing is read when no commit came between, one small row
when one did, and the settings only when they changed (DESIGN §3).
"""

from __future__ import annotations

import apsw

from litequeue import clock as clocks
from litequeue.clock import Clock
from litequeue.settings import Settings
from litequeue.sqlite import settings_table
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.statements import SQL


class Agreement:
    """The settings and the offset as of this connection's present transaction."""

    __slots__ = ("_data_version", "_settings_version", "lease_offset", "settings")

    def __init__(self) -> None:
        self.settings = Settings()
        self.lease_offset = 0
        self._settings_version = -1
        self._data_version = -1

    def reader(self, connection: apsw.Connection, cursor: apsw.Cursor, clock: Clock) -> Reader:
        """Begin a snapshot, in an open deferred transaction, and read the clock.

        Until its first statement such a transaction has no snapshot, and SQLite's data version says nothing.
        """
        self.look_up(connection, cursor)
        wall_us, monotonic_us = clocks.now(clock)
        return Reader(connection, wall_us, monotonic_us + self.lease_offset, self.settings, cursor)

    def refresh(self, connection: apsw.Connection, cursor: apsw.Cursor) -> None:
        """Read what others have changed, in a transaction that holds the write lock."""
        data_version = connection.data_version()
        if data_version != self._data_version:
            self.look_up(connection, cursor)
            self._data_version = data_version

    def committed(self, connection: apsw.Connection, settings: Settings) -> None:
        """Note that this connection committed by itself: only settings that it changed are to be read anew."""
        if settings is self.settings:
            self._data_version = connection.data_version()
        else:
            self.forget()

    def forget(self) -> None:
        """Read everything again at the next transaction."""
        self._data_version = self._settings_version = -1

    def look_up(self, connection: apsw.Connection, cursor: apsw.Cursor) -> None:
        """Read what has changed, in an open transaction or snapshot, whoever has changed it."""
        reader = Reader(connection, 0, 0, self.settings, cursor)
        version: int = reader.all(SQL.settings_version)[0][0]
        if version != self._settings_version:
            self.settings = settings_table.read(reader)
            self.lease_offset = reader.all(SQL.host)[0][1]
            self._settings_version = version
