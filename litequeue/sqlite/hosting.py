"""The application's own connection and database, as the queue is a guest there.

Owns: what a connection and its file must be like, the making and the checking of the queue's tables in it, and the
answer to "may it still be used?". Invariants: nothing of the connection or of the file is set, and nothing but the
queue's tables is made; what is refused is left as it was. Leaves out: transactions (`joining`) and verbs (`attached`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from litequeue.clock import Clock
from litequeue.errors import CannotOpen, QueueClosed, StorageLost, UsageError
from litequeue.sqlite import forks, functions, intruders, opening, schema
from litequeue.sqlite.connection import bare_cursor, check_encoding, pragma
from litequeue.sqlite.failures import meaning
from litequeue.sqlite.place import Place
from litequeue.sqlite.tripwire import ALL_FILES, Identity, Tripwire

_OTHER_LOCKS = frozenset({"unix-dotfile", "unix-excl", "unix-flock", "unix-namedsem", "unix-none", "win32-none"})
"""SQLite's own VFSes whose locks `litequeue.open` would not see. Source: sqlite.org, "The SQLite OS Interface"."""


class Host:
    """One connection of the application; for whichever thread uses it just now."""

    def __init__(self, connection: apsw.Connection, place: Place) -> None:
        self.connection = connection
        self.place = place
        self._pid = os.getpid()
        self._is_left = False
        self._lost: str | None = None
        self._tripwire = Tripwire(place.path)
        self._checked: tuple[object, object] | None = None
        """The versions of the schemas in which the queue's tables have been found to be right."""
        intruders.refuse_visited(place.path)
        intruders.keep_out(self)
        forks.register(self)

    def __del__(self) -> None:
        self._tripwire.disarm()

    @property
    def is_open(self) -> bool:
        """Whether the application has the connection open."""
        try:
            return bool(self.connection.open_flags)
        except apsw.ConnectionClosedError:
            return False

    def is_on(self, file: Identity) -> bool:
        """Whether a verb here would use this very file."""
        return not self._is_left and self._pid == os.getpid() and self._tripwire.file == file and self.is_open

    def leave(self) -> None:
        """Watch over the file no longer."""
        self._is_left = True
        self._tripwire.disarm()

    def enter(self, clock: Clock) -> None:
        """Look at the connection and its file, and make the queue's tables where there are none.

        Raises:
            UsageError, CannotOpen, NotAQueue, SchemaMismatch: see `litequeue.attach`.
        """
        cursor = self.cursor()
        self._check_connection(cursor)
        check_encoding(cursor, self.place.path)
        mode = pragma(cursor, "main.journal_mode")
        if mode != "wal":
            reason = f"its journal mode is {mode}; say PRAGMA journal_mode = WAL once, which the file remembers"
            raise CannotOpen(self.place.path, reason)
        if not schema.is_there(cursor):
            self._make_tables(cursor, clock)
        with self.snapshot(cursor) as is_own:  # only then all files are there
            self.check_tables(cursor, remember=is_own)
            self._tripwire.arm()

    @contextmanager
    def snapshot(self, cursor: apsw.Cursor) -> Iterator[bool]:
        """Read one state of the file in a `with` block; tell whether it is one of its own, not the application's."""
        is_own = not self.connection.in_transaction
        try:
            if is_own:
                cursor.execute("SAVEPOINT litequeue_look")
            yield is_own
        finally:
            if is_own and self.connection.in_transaction:
                bare_cursor(self.connection).execute("RELEASE litequeue_look")

    def cursor(self) -> apsw.Cursor:
        """Return a fresh cursor for one verb, in which nothing of the application's has a say.

        Raises:
            QueueClosed: the application has closed the connection.
            UsageError: this is another process than the one that opened it.
        """
        path = self.place.path
        if self._pid != os.getpid() or forks.is_spoiled(path):
            raise UsageError(
                f"this process has inherited a connection to {path} through a fork, and can use neither that nor the "
                "file: start the child by spawn, or close the connection before the fork, and open and attach one here"
            )
        if not self.is_open:
            raise QueueClosed(f"the application has closed its connection to {path}")
        return bare_cursor(self.connection)

    def check_tables(self, cursor: apsw.Cursor, *, remember: bool) -> None:
        """Make sure that the queue's tables are still right, and are those that its statements find by their names.

        Looked at in full only when a schema has changed; `remember` not what an open transaction may take back.

        Raises:
            SchemaMismatch: they are not.
            UsageError: they are gone.
        """
        path = self.place.path
        has_temp = _has_temp(cursor)
        found = (pragma(cursor, "main.schema_version"), pragma(cursor, "temp.schema_version") if has_temp else None)
        if found == self._checked:
            return
        if not schema.is_there(cursor):
            raise UsageError(
                f"the queue's tables in {path} are gone: the transaction in which they were made was rolled back, or "
                "they were dropped; attach the connection anew"
            )
        schema.check(cursor, path)
        if has_temp:
            schema.check_not_shadowed(cursor, path)
        if remember:
            self._checked = found

    def forget_checks(self) -> None:
        """Hear that a transaction, or a part of it, was rolled back: a version of a schema may come again."""
        self._checked = None

    def check_file(self) -> None:
        """Make sure that what is committed here goes where the others look for it.

        Raises:
            StorageLost: the file, or what lies beside it, is another one, or gone.
        """
        if self._lost is None and self._tripwire.is_tripped(ALL_FILES):
            self._lost = f"{self.place.path} was replaced or removed underneath: commit nothing more to it"
        if self._lost is not None:
            raise StorageLost(self._lost)

    def meaning(self, exc: BaseException) -> BaseException:
        """Return what an exception out of the queue's statements means on a connection that is not its own."""
        path = self.place.path
        match exc:
            case apsw.ConnectionClosedError() | apsw.CursorClosedError():
                return QueueClosed(f"the application has closed its connection to {path}")
            case apsw.ThreadingViolationError():
                return UsageError(f"another thread uses this connection to {path} just now")
            case apsw.AuthError():
                return UsageError(f"the connection's authorizer does not allow the queue's statements ({exc})")
            case apsw.ReadOnlyError():
                return UsageError("the connection only reads (PRAGMA query_only)")
            case apsw.BusyError() if "statements in progress" in str(exc):
                return UsageError("a statement of yours that writes has not been read to its end: fetch its rows first")
            case _:
                return meaning(exc, path)

    # --- forks

    def before_fork(self) -> None:
        """Nothing to do: the connection is the application's to close."""

    def after_fork_in_parent(self) -> None:
        """Nothing to do in the parent."""

    def after_fork_in_child(self) -> None:
        """Know that SQLite in this process believes in locks that it does not hold, unless there are none."""
        if self._tripwire.file is not None and self.is_open:
            forks.spoil(self.place.path)

    # --- inside

    def _check_connection(self, cursor: apsw.Cursor) -> None:
        """Refuse what can never work.

        Raises:
            UsageError: the connection only reads, keeps everybody else out, or calls functions of the application's.
        """
        if self.connection.readonly("main") or pragma(cursor, "query_only"):
            raise UsageError.of(
                "connection", self.connection, "one that may write (it is read-only, or query_only is set)"
            )
        if pragma(cursor, "main.locking_mode") != "normal":
            bounds = "one that lets others in (its locking_mode is exclusive, so no worker could open the file)"
            raise UsageError.of("connection", self.connection, bounds)
        vfs = (self.connection.vfsname("main") or "").split("/")[-1]  # beneath those that inherit from it
        if vfs in _OTHER_LOCKS:
            bounds = f"one whose locks others see (its vfs is {vfs}, so it and a worker would write at once)"
            raise UsageError.of("connection", self.connection, bounds)
        functions.check(self.connection, cursor.execute(functions.OWN).fetchall())

    def _make_tables(self, cursor: apsw.Cursor, clock: Clock) -> None:
        """Make the tables in one transaction, or as a part of the application's.

        Raises:
            UsageError: the application's transaction has not got the write lock, or its hook has refused the commit.
            SchemaMismatch: something else has names of the queue's.
            QueueBusy: the write lock was not had, for as long as the connection waits for it.
        """
        is_own = not self.connection.in_transaction
        if not is_own and self.connection.txn_state("main") != apsw.SQLITE_TXN_WRITE:
            raise UsageError("the tables are to be made: attach outside of a transaction, or after BEGIN IMMEDIATE")
        begin, end, back = _OWN if is_own else _PART
        has_begun = False
        last_rowid = self.connection.last_insert_rowid()
        try:
            cursor.execute(begin)
            has_begun = True
            schema.check_free(cursor, self.place.path)
            if _has_temp(cursor):
                schema.check_not_shadowed(cursor, self.place.path)
            if not schema.is_there(cursor):  # another process may have made them meanwhile
                schema.fill(cursor, clock)
            self.check_tables(cursor, remember=False)
            cursor.execute(end)
        except BaseException as exc:
            if self.connection.in_transaction and (is_own or has_begun):
                undoing = bare_cursor(self.connection)
                for statement in back:
                    undoing.execute(statement)
            if isinstance(exc, apsw.ConstraintError):
                raise UsageError(f"the queue's tables were not made, a hook has refused the commit ({exc})") from exc
            raise
        finally:
            self.connection.set_last_insert_rowid(last_rowid)


_OWN = ("BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",))
_PART = (
    "SAVEPOINT litequeue_attach",
    "RELEASE litequeue_attach",
    ("ROLLBACK TO litequeue_attach", "RELEASE litequeue_attach"),
)


def _has_temp(cursor: apsw.Cursor) -> bool:
    """Tell whether the connection has a temporary database; to look into it would make it."""
    return any(name == "temp" for _, name, _ in cursor.execute("PRAGMA database_list").fetchall())


def host_of(connection: object, *, allow_network: bool) -> Host:
    """Find out which file a connection of the application is on.

    Raises:
        UsageError: it is no open connection, or its database is in memory.
        CannotOpen: as `litequeue.open`.
    """
    bounds = "an open apsw.Connection"
    if not isinstance(connection, apsw.Connection):
        hint = "for sqlite3, SQLAlchemy and Django there is litequeue.dbapi"
        raise UsageError.of("connection", connection, bounds, hint)
    try:
        path = None if connection.is_async else connection.db_filename("main")
    except apsw.ConnectionClosedError as exc:
        raise UsageError.of("connection", connection, bounds) from exc
    if path is None:
        raise UsageError.of("connection", connection, f"{bounds} that is not asynchronous")
    if not os.path.exists(path):
        raise UsageError.of("connection", connection, "one to a file (a queue cannot live in memory)")
    return Host(connection, opening.resolve(path, create=False, allow_network=allow_network))
