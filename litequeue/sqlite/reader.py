"""Reading: one connection, one moment, the settings that hold at it.

Invariant: every statement is read to its end, so that no half-read cursor pins the write-ahead log (DESIGN §3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from litequeue.errors import StorageCorrupt
from litequeue.sqlite.rows import Values

if TYPE_CHECKING:
    import apsw
    from apsw import SQLiteValue

    from litequeue.settings import Settings


Place = TypeVar(
    "Place",
    str,
    tuple[str, int, int, int, bytes],
    tuple[int, str, int, int, int, bytes],
    tuple[str, int, int],
    tuple[str, str, int],
    tuple[int, bytes],
    bytes,
)


class Reader:
    """What a question needs: a connection in a snapshot, the time and the settings."""

    __slots__ = ("connection", "cursor", "lease_now", "now", "settings")

    def __init__(
        self,
        connection: apsw.Connection,
        now: int,
        lease_now: int,
        settings: Settings,
        cursor: apsw.Cursor | None = None,
    ) -> None:
        self.connection = connection
        self.cursor = connection.cursor() if cursor is None else cursor
        """Runs every statement; making one for each would cost as much as a short statement."""
        self.now = now
        """Wall clock, µs since the epoch."""
        self.lease_now = lease_now
        """Lease clock, µs."""
        self.settings = settings

    def one(self, statement: str, *values: SQLiteValue) -> Values | None:
        """Run a statement that has at most one row, and return that row."""
        rows = self.all(statement, *values)
        return rows[0] if rows else None

    def all(self, statement: str, *values: SQLiteValue) -> list[Values]:
        """Run a statement and return its rows."""
        return cast("list[Values]", self.cursor.execute(statement, values).fetchall())


def onward(place: Place, least: Place) -> Place:
    """Return the place that a step of a walk has come to; by a damaged tree a walk could go round for ever.

    Raises:
        StorageCorrupt: it lies before `least`, the first place that the step may come to.
    """
    if place < least:
        raise StorageCorrupt(f"rows are out of order: {place!r} came after {least!r}")
    return place
