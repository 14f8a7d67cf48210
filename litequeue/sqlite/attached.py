"""A queue in the application's own database, on the application's own connection: its verbs join its transactions.

Owns: `attach`, and what of a verb is other than on a `Queue`. Invariants: a verb runs only in a write transaction that
the application has begun, each in a savepoint of its own, so one that fails leaves that transaction as it was (contract
G11); the clock is read once a transaction (G8); what was read in a part that is rolled back is not believed any more;
the bell rings after the application's commit. Leaves out: the connection (`hosting`), and its commits (`joining`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import apsw

from litequeue import clock as clocks
from litequeue.clock import Clock
from litequeue.errors import QueueClosed, UsageError
from litequeue.lease import Lease
from litequeue.model import Scope, storable_scope
from litequeue.sqlite.agreement import Agreement
from litequeue.sqlite.bell import Bell
from litequeue.sqlite.connection import bare_cursor
from litequeue.sqlite.context import Context
from litequeue.sqlite.filesystem import Room
from litequeue.sqlite.hosting import Host, host_of
from litequeue.sqlite.joining import Following, Joined
from litequeue.sqlite.leasing import Wish
from litequeue.sqlite.log import Log
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.savepoint import in_savepoint
from litequeue.sqlite.within import Within

T = TypeVar("T")

_NO_TRANSACTION = (
    "no transaction is open on this connection: say BEGIN IMMEDIATE first, so that this is committed with your rows"
)
_NO_LOCK = (
    "the transaction that is open on this connection has only read so far, and may not get the write lock any more: "
    "begin it with BEGIN IMMEDIATE, or write before"
)
_NO_LEASES = (
    "an attached connection leases nothing: a lease that your ROLLBACK TO had undone would look like one that holds; "
    "lease by litequeue.open on the same file, in this process or another"
)


def attach(
    connection: apsw.Connection, *, scope: Scope = "default", clock: Clock | None = None, allow_network: bool = False
) -> Attached:
    """Put a queue into the application's database, beside its tables; return the verbs for its open transactions.

    `connection` is the application's own, open on a file in WAL mode. The queue's tables, all named `litequeue_…`, are
    made in its main database where they are not there: in a transaction of their own, or in the one that is open, which
    has to hold the write lock then. Nothing else of the database or of the connection is changed. `scope` is what verbs
    mean that are given none. `clock` and `allow_network` are as in `litequeue.open`, by which workers open the file, in
    this process or in others.

    Raises:
        UsageError: an argument out of its bounds; a connection that is closed, inherited through a fork, read-only,
            exclusive, or on a database in memory; or the tables are to be made in a transaction that only reads.
        CannotOpen: the database is not in WAL mode; and as `litequeue.open`.
        NotAQueue: its text encoding is not UTF-8.
        SchemaMismatch: another version of the queue's tables, changed ones, or other things by their names.
        QueueBusy: the tables are to be made, and the write lock was not had, for as long as the connection waits.
    """
    storable_scope(scope)
    the_clock = clocks.tried(clock)
    host = host_of(connection, allow_network=allow_network)
    try:
        host.enter(the_clock)
    except Exception as exc:
        known = host.meaning(exc)
        if known is not exc:
            raise known from exc
        raise
    return Attached(host, scope, the_clock)


class Attached(Within):
    """The verbs of a queue in the application's own transactions; made by `litequeue.attach`.

    Verbs that write want an open write transaction on the connection (`BEGIN IMMEDIATE`), and are committed or rolled
    back with it, as durably as the application commits. Those that read see what the connection sees. It leases
    nothing; what a holder says of its lease (`complete`, `fail`, `checkpoint` …) may be said here. Every verb may also
    raise `UsageError` (no write transaction is open), `QueueClosed` (this, or the connection, is closed) and
    `StorageLost` (the file was replaced or removed).
    """

    worker_id = "attached"
    """Names no lease: an attached connection takes none."""

    def __init__(self, host: Host, scope: Scope, clock: Clock) -> None:
        self.scope = scope
        self._host = host
        self._clock = clock
        self._agreement = Agreement()
        self._room = Room(host.place.folder, partial(_owed_bytes, host, clock))
        self._bell = Bell(host.place, host.place.bell_path, makes=True)
        self._done_bell = Bell(host.place, host.place.done_path, makes=False)
        self._joined: Joined | None = None
        self._following: Following | None = None
        self._is_busy = False
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Attached {self.path} scope={self.scope!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    @property
    def path(self) -> str:
        """The file's real path: what a worker gives to `litequeue.open`."""
        return self._host.place.path

    def close(self) -> None:
        """Let go of the connection, which stays open, and whose transaction goes on; idempotent.

        What an open transaction has done of the queue's is committed or rolled back with it, and rings, all the same.
        """
        self._is_closed = True
        if self._following is None:
            self._let_go()

    # --- verbs

    def _do(self, work: Callable[[Context], T], *, durable: bool) -> T:  # noqa: ARG002 - the application's to choose
        with self._turn() as cursor:
            connection = self._host.connection
            if not connection.in_transaction:
                raise UsageError(_NO_TRANSACTION)
            if connection.txn_state("main") != apsw.SQLITE_TXN_WRITE:
                raise UsageError(_NO_LOCK)
            self._host.check_file()
            try:
                self._follow()
                return in_savepoint(self._joined_by(cursor), work)
            except BaseException as exc:
                if not connection.in_transaction:
                    exc.add_note("litequeue: SQLite has rolled the whole of your transaction back")
                raise
            finally:
                if self._following is not None:
                    self._following.listen()

    def _look(self, work: Callable[[Reader], T]) -> T:
        with self._turn() as cursor, self._host.snapshot(cursor):
            self._host.check_tables(cursor, remember=False)
            return work(Agreement().reader(self._host.connection, cursor, self._clock))

    def _lease(self, wish: Wish) -> list[Lease]:  # noqa: ARG002 - whatever it is
        raise UsageError(_NO_LEASES)

    # --- inside

    @contextmanager
    def _turn(self) -> Iterator[apsw.Cursor]:
        """Let one verb in, and tell what it raises in the words of this package."""
        if self._is_closed:
            raise QueueClosed(f"this handle on {self.path} is closed")
        if self._is_busy:
            raise UsageError(f"a verb is at work on {self.path} already, in another thread or around this one")
        try:
            self._is_busy = True
            yield self._host.cursor()
        except Exception as exc:
            known = self._host.meaning(exc)
            if known is not exc:
                for note in getattr(exc, "__notes__", ()):
                    known.add_note(note)
                raise known from exc
            raise
        finally:
            self._is_busy = False

    def _follow(self) -> None:
        """Follow the transaction that is open, without hearing of the queue's own statements for now."""
        following = self._following
        if following is not None and following.is_over:
            following.finish()
            following = None
        if following is None:
            following = self._following = Following(self._host.connection, self._doubt, self._end)
        following.pause()

    def _joined_by(self, cursor: apsw.Cursor) -> Joined:
        """Return what is known of the transaction that is open, with what it says of the queue's tables now."""
        connection = self._host.connection
        self._host.check_tables(cursor, remember=True)
        self._agreement.look_up(connection, cursor)
        joined = self._joined
        if joined is None:
            self._room.begin()
            wall_us, monotonic_us = clocks.now(self._clock)
            joined = self._joined = Joined(
                connection,
                cursor,
                wall_us,
                monotonic_us + self._agreement.lease_offset,
                self._agreement.settings,
                0,
                None,
                _no_holder,
                self._room,
                keeps_jobs=True,
                is_synced=True,
            )
        joined.cursor = cursor
        joined.settings = self._agreement.settings
        return joined

    def _doubt(self) -> None:
        """Hear that the application went back to a savepoint."""
        self._forget()
        if self._joined is not None:
            self._joined.doubt()

    def _end(self, is_committed: bool) -> None:
        """Hear that the application's transaction has ended."""
        joined, self._joined, self._following = self._joined, None, None
        if not is_committed:
            self._forget()
        if joined is not None and is_committed:
            for lease in joined.settled:
                lease.found_settled()
            for lease in joined.dropped:
                lease.found_lost()
            for tell in joined.after_commit:
                tell()
            if joined.rings:
                self._bell.ring()
            if joined.has_ended:
                self._done_bell.ring()
            joined.log_deaths()
        if self._is_closed:
            self._let_go()

    def _forget(self) -> None:
        """Believe nothing that was read in what has been rolled back: version numbers may come again."""
        self._agreement.forget()
        self._host.forget_checks()

    def _let_go(self) -> None:
        self._host.leave()
        self._bell.close()
        self._done_bell.close()


def _owed_bytes(host: Host, clock: Clock) -> int:
    """By how much the file is to grow when the log is copied back."""
    return Log(host.place.path, clock).owed_bytes(bare_cursor(host.connection))


def _no_holder(_: Context) -> int:
    raise UsageError(_NO_LEASES)
