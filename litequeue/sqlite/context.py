"""The state of one open transaction.

Owns: what is fixed when a transaction begins (its time, its settings) and what must happen to objects in memory when it
ends. Invariant: the clock is read once, after the write lock is held (contract G8). Leaves out: beginning and
ending it (`store`), and every verb.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, cast
from uuid import UUID

from litequeue.errors import StorageCorrupt, first_line
from litequeue.sqlite.filesystem import Room
from litequeue.sqlite.line import NotDone, Request
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.rows import Row, Values

if TYPE_CHECKING:
    import apsw

    from litequeue.lease import Lease
    from litequeue.settings import Settings

_log = logging.getLogger("litequeue")


TELLS = 100
"""Waiting jobs told of the end of others in a transaction that ends them."""


class Stage(Enum):
    """How far a transaction has come: what an exception means depends on it."""

    OPEN = auto()
    COMMITTING = auto()
    COMMITTED = auto()


class SyncNeeded(Exception):
    """The transaction has to be done again, synced: it is about to make a job, and the mode promises to keep jobs."""


class DeadLetter(NamedTuple):
    """A job that died in this transaction, for the log."""

    job_id: UUID
    kind: str
    reason: str


class Marks(NamedTuple):
    """How far the lists of a context had grown at a savepoint."""

    leases: int
    settled: int
    after_commit: int
    dead_letters: int
    holder_id: int | None
    settings: Settings
    rings: bool
    has_ended: bool
    taken_bytes: int


class Context(Reader):
    """One open write transaction."""

    __slots__ = (
        "_changes",
        "_holder_id",
        "_new_holder",
        "after_commit",
        "dead_letters",
        "dropped",
        "epoch",
        "fate",
        "has_ended",
        "is_synced",
        "is_telling",
        "keeps_jobs",
        "leases",
        "rings",
        "room",
        "settled",
        "shared",
        "stage",
        "tells_left",
    )

    def __init__(  # noqa: PLR0917 - only the store makes one, in this order
        self,
        connection: apsw.Connection,
        cursor: apsw.Cursor,
        now: int,
        lease_now: int,
        settings: Settings,
        epoch: int,
        holder_id: int | None,
        new_holder: Callable[[Context], int],
        room: Room,
        *,
        keeps_jobs: bool,
        is_synced: bool,
    ) -> None:
        self.connection = connection
        self.cursor = cursor
        self.now = now
        self.lease_now = lease_now
        self.settings = settings
        self.keeps_jobs = keeps_jobs
        """Whether a job that is made here is as safe as the mode says (contract §7)."""
        self.is_synced = is_synced
        """Whether the commit waits for the disk."""
        self._changes = connection.total_changes()
        self.epoch = epoch
        """Of the handle; a forked child's is another one."""
        self.stage = Stage.OPEN
        self.room = room
        self._holder_id = holder_id
        self._new_holder = new_holder
        self.leases: list[Lease] = []
        """Taken here: the handle holds them once this has committed."""
        self.settled: list[Lease] = []
        """Ended here: the handle forgets them once this has committed."""
        self.after_commit: list[Callable[[], None]] = []
        """What objects in memory are to hear once this has committed."""
        self.dropped: list[Lease] = []
        """Found to be held no longer: forgotten once this has committed; those that are `lost` by then, at once."""
        self.dead_letters: list[DeadLetter] = []
        self.rings = False
        """Whether this made work ready, so that waiting processes are to hear of it once this has committed."""
        self.has_ended = False
        """Whether this ended a job, so that those who wait for that are to hear of it."""
        self.is_telling = False
        """Whether jobs are just being told of the ends of those that they wait for."""
        self.tells_left = TELLS
        """How many may be told by those who end jobs here; upkeep does the rest."""
        self.shared: list[Request] = []
        """Verbs of other threads that are done here too."""
        self.fate: Callable[[], Exception] | None = NotDone
        """What these are to be told, unless it is `None`: then each has come to its own end."""

    @property
    def holder_id(self) -> int:
        """Which queue handle leases; its row is written at the handle's first lease."""
        if self._holder_id is None:
            self._holder_id = self._new_holder(self)
        return self._holder_id

    @property
    def known_holder_id(self) -> int | None:
        """The handle's id if it has one by now."""
        return self._holder_id

    def write(self, statement: str, values: Values) -> int:
        """Run a write; return the number of rows it changed."""
        self.cursor.execute(statement, values)
        return self.connection.changes()

    def write_exactly(self, statement: str, many: list[Values]) -> None:
        """Run a write for each binding; every one must change exactly one row.

        Raises:
            StorageCorrupt: a row that was just read under the same lock is not there; the caller rolls back.
        """
        before = self.connection.total_changes()
        self.cursor.executemany(statement, many)
        changed = self.connection.total_changes() - before
        if changed != len(many):
            raise StorageCorrupt(f"{len(many)} rows were to change and {changed} did: an index and its table differ")

    def each(self, statement: str, many: list[Values]) -> list[Row]:
        """Run a statement that selects a job's row for each binding; return the rows that there are."""
        return [Row(*cast("Values", found)) for found in self.cursor.executemany(statement, many)]

    def marks(self) -> Marks:
        """Remember how far this transaction has come, for a savepoint."""
        return Marks(
            len(self.leases),
            len(self.settled),
            len(self.after_commit),
            len(self.dead_letters),
            self._holder_id,
            self.settings,
            self.rings,
            self.has_ended,
            self.room.taken_bytes,
        )

    def back_to(self, marks: Marks) -> None:
        """Forget what came after a savepoint that was rolled back; leases taken since are void."""
        _void(self.leases[marks.leases :])
        del self.leases[marks.leases :]
        del self.settled[marks.settled :]
        del self.after_commit[marks.after_commit :]
        del self.dead_letters[marks.dead_letters :]
        self._holder_id = marks.holder_id
        self.settings = marks.settings
        self.rings = marks.rings
        self.has_ended = marks.has_ended
        self.room.back_to(marks.taken_bytes)

    @property
    def is_unchanged(self) -> bool:
        """Whether nothing has been written here so far: then what is found is so, whatever becomes of this."""
        return self.connection.total_changes() == self._changes

    def drop(self, lease: Lease) -> None:
        """Hear that a lease is found to hold its job no longer.

        It is lost at once, for good, when that rests on what others have committed; but when it may rest on what was
        written here (`tx.cancel`, then `tx.complete`), only once this has committed.
        """
        self.dropped.append(lease)
        if self.is_unchanged:
            lease.found_lost()

    def log_deaths(self) -> None:
        """Log the jobs that have died in this transaction, which has committed."""
        for letter in self.dead_letters:
            _log.warning(
                "job %s (%s) is dead: %s",
                letter.job_id,
                letter.kind,
                first_line(letter.reason),  # the traceback below it is in `last_error`
                extra={"job_id": str(letter.job_id), "kind": letter.kind},
            )

    def void_leases(self) -> None:
        """Mark the leases taken here as never taken: the transaction did not commit."""
        _void(self.leases)


def _void(leases: Iterable[Lease]) -> None:
    for lease in leases:
        lease.is_void = True
