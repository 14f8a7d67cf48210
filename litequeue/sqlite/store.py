"""The beginning and the end of every transaction on a queue file.

Invariants (DESIGN §3): every write is `BEGIN IMMEDIATE`; one deadline covers the thread lock, the gate and SQLite's
lock; an exception out of COMMIT tells the truth (contract G11). Leaves out: the life of the connections (`handle`), the
write-ahead log (`log`), what the handle holds (`holdings`), and what is done inside a transaction.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar, cast

import apsw

from litequeue.clock import Clock
from litequeue.errors import LiteQueueError, OutcomeUnknown, QueueBusy, UsageError
from litequeue.sqlite import authority, schema, tail
from litequeue.sqlite.bell import Bell
from litequeue.sqlite.connection import pragma
from litequeue.sqlite.context import Context, Stage, SyncNeeded
from litequeue.sqlite.failures import meaning, translate
from litequeue.sqlite.filesystem import Room
from litequeue.sqlite.handle import Handle
from litequeue.sqlite.holdings import Holdings
from litequeue.sqlite.log import Log
from litequeue.sqlite.place import Place
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.rows import Values
from litequeue.sqlite.statements import SQL
from litequeue.sqlite.tripwire import AFTER_COMMIT, ALL_FILES
from litequeue.sqlite.watching import WATCHER

T = TypeVar("T")
SQLValue = None | int | float | str | bytes
Parameters = Sequence[SQLValue] | Mapping[str, SQLValue]
Durability = Literal["full", "enqueue", "normal"]

_FULL, _NORMAL = "FULL", "NORMAL"
_log = logging.getLogger("litequeue")


class Store:
    """One handle on one file; serves many threads, whose transactions it lets in one by one."""

    def __init__(self, place: Place, durability: Durability, busy_timeout: float, clock: Clock) -> None:
        self.place = place
        self.clock = clock
        self.holdings = Holdings(place)
        self._log = Log(place.path, clock)
        self._bell = Bell(place)
        self._durability = durability
        self._room = Room(place.folder)
        self._epoch = 0
        self._context: Context | None = None
        self._synchronous = ""
        self._may_come_back = False
        self._is_guarding = False
        self._has_altered = False
        self._handle = Handle(place, clock, busy_timeout, equip=self._equip, start_afresh=self._start_afresh)
        self._writer = self._handle.writer
        self._reader = self._handle.reader
        self._gate = self._handle.gate
        self.holdings.presence.attend()

    # --- writing

    def write(self, work: Callable[[Context], T], *, durable: bool) -> T:
        """Do one piece of work in a transaction of its own; what raises has been rolled back.

        Work that turns out to need a sync, which can only be chosen before BEGIN, is done again with one.

        Raises:
            LiteQueueError: see `begin` and `commit`, and whatever the work raises.
        """
        self.refuse_inside()
        try:
            return self._write_once(work, durable=durable)
        except SyncNeeded:
            return self._write_once(work, durable=True)

    def _write_once(self, work: Callable[[Context], T], *, durable: bool) -> T:
        context = None
        try:
            context = self.begin(durable=durable)
            result = work(context)
            self.commit(context)
        except BaseException as exc:
            known = self.meaning(self.undo(context, exc))
            if context is not None:
                self.holdings.forget(context.dropped)
            if known is not exc:
                raise known from exc
            raise
        return result

    def begin(self, *, durable: bool) -> Context:
        """Begin a write transaction; `durable` verbs are synced in the mode `enqueue` too.

        Call `refuse_inside` before, and let whatever this raises go to `undo`, which ends what was begun: an interrupt
        may come at any point of it.

        Raises:
            QueueBusy: a lock was not had within `busy_timeout`.
            QueueClosed, StorageLost: the handle is of no more use.
        """
        deadline = self._handle.deadline()
        self._writer.take(deadline)
        connection = self._handle.ready(self._writer, deadline)
        self._handle.enter_gate_to_write(deadline)
        keeps_jobs = durable or self._durability != "enqueue"
        wanted = _FULL if self._durability == "full" or (durable and self._durability == "enqueue") else _NORMAL
        self._writer.patience.deadline = deadline
        if self._synchronous != wanted:
            pragma(connection, f"synchronous = {wanted}")
            self._synchronous = wanted
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as exc:
            waited = f"{self._handle.timeout_s:g} s"
            raise QueueBusy(f"the write lock of {self.place.path} was not had within {waited}") from exc
        self._handle.verify(self._writer, ALL_FILES)
        try:
            reader = self._writer.agreement.writer(connection, self.clock)
        except Exception as exc:
            known = self.meaning(exc)
            if known is not exc:
                raise known from exc
            raise
        self._context = Context(
            reader,
            self._epoch,
            self.holdings.holder_id,
            self.holdings.new_holder,
            self._room,
            keeps_jobs=keeps_jobs,
            is_synced=wanted == _FULL,
        )
        return self._context

    def commit(self, context: Context) -> None:
        """Commit, let the objects in memory know, and let the next one in. What raises goes to `undo`.

        Raises:
            StorageLost: the file is no longer at its path; what was committed is in a file that is gone.
            UsageError: this process was forked inside the transaction.
        """
        self._refuse_inherited(context)
        self._log.expect_commit()  # first: an interrupt in it must not find the commit of before
        context.stage = Stage.COMMITTING
        context.connection.execute("COMMIT")
        context.stage = Stage.COMMITTED
        self._may_come_back = False
        self._handle.verify(self._writer, AFTER_COMMIT, committed=True)
        self._writer.agreement.committed(context.connection, context.settings)
        self._remember(context)
        self._log.copy_back_if_due(context.connection, self._writer.patience, self._gate)
        self._end()
        for letter in context.dead_letters:
            _log.warning(
                "job %s (%s) is dead: %s",
                letter.job_id,
                letter.kind,
                letter.reason,
                extra={"job_id": str(letter.job_id), "kind": letter.kind},
            )

    def undo(self, context: Context | None, exc: BaseException) -> BaseException:
        """Find out what an exception out of a transaction means, at whatever point it came (contract G11).

        Rolls back what was not committed, so that its leases are void, and lets the next one in. An interrupt after the
        commit gets a note that says so. `context` is `None` when `begin` has not returned one. Returns what is to be
        raised: `OutcomeUnknown` when the commit itself failed and may still come back (`tail`), the error of this
        package that says the same, or `exc`.
        """
        try:
            is_mine = self._writer.is_mine()
            context = self._context if context is None and is_mine else context
            if context is not None and context.epoch != self._epoch:
                return exc  # the fork's parent has the transaction, the locks and the connection
            if context is not None and self._has_committed(context, exc):
                self._remember(context)
                if not isinstance(exc, LiteQueueError):
                    exc.add_note("litequeue: the transaction had been committed when this came")
                return exc
            if context is not None:
                context.void_leases()
            was_open = is_mine and self._roll_back()
            is_committing = context is not None and context.stage is Stage.COMMITTING and not was_open
            if context is not None and is_committing and isinstance(exc, apsw.Error):
                self._synchronous = ""
                self._may_come_back = not tail.is_dead(context.connection, self.place.path)
                if self._may_come_back:
                    return OutcomeUnknown(f"the commit to {self.place.path} failed ({exc}): it may or may not survive")
            return self.translated(exc)
        finally:
            try:
                self._end()
            except BaseException:  # an interrupt at its very door
                self._end()
                raise

    def run_guarded(self, context: Context, sql: str, parameters: Parameters) -> list[Values]:
        """Run the caller's own statements: no transaction control, no ATTACH, nothing on the queue's tables."""
        self._is_guarding = True
        self._has_altered = False
        try:
            rows = context.connection.execute(sql, parameters, can_cache=False).fetchall()
        finally:
            self._is_guarding = False
        if self._has_altered:  # SQLite does not say beforehand what a table is renamed to
            schema.check(context.connection, self.place.path)
            schema.check_not_shadowed(context.connection, self.place.path)
        return cast("list[Values]", rows)

    # --- reading

    @contextmanager
    def read(self) -> Iterator[Reader]:
        """Open a snapshot on the connection that reads; it waits for no writer.

        Raises:
            QueueBusy: another thread reads for longer than `busy_timeout`.
            QueueClosed, StorageLost: the handle is of no more use.
        """
        deadline = self._handle.deadline()
        self._reader.refuse_inside()
        self._decide()
        try:
            self._reader.take(deadline)
            connection = self._handle.ready(self._reader, deadline)
            self._reader.patience.deadline = deadline
            connection.execute("BEGIN")
            yield self._reader.agreement.reader(connection, self.clock)
            connection.execute("COMMIT")
            self._handle.verify(self._reader, AFTER_COMMIT)
        except Exception as exc:
            known = self.meaning(exc)
            if known is not exc:
                raise known from exc
            raise
        finally:
            try:
                self._end_read()
            except BaseException:  # an interrupt at its very door
                self._end_read()
                raise

    def is_mine(self) -> bool:
        """Whether this thread has the write transaction open just now."""
        return self._writer.is_mine()

    def refuse_inside(self) -> None:
        """Refuse a verb of the queue inside this thread's own transaction, also when it would find nothing to do.

        Raises:
            UsageError: this thread has a transaction open on this handle.
        """
        self._writer.refuse_inside()

    # --- upkeep of the file

    def is_short_of_room(self) -> bool:
        """Whether the disk has so little room that what the file does not need should go back to it."""
        return self._room.is_short()

    def checkpoint(self, truncate_bytes: int) -> int:
        """Copy the write-ahead log back, and cut it when it is larger than this; return the pages it still has.

        Raises:
            QueueBusy: the locks were not had in time.
        """
        deadline = self._handle.deadline()
        self._writer.take(deadline)
        try:
            connection = self._handle.ready(self._writer, deadline)
            self._handle.enter_gate(deadline)
            try:
                self._handle.verify(self._writer, ALL_FILES)
                return self._log.copy_back(connection, self._writer.patience, self._gate, truncate_bytes)
            except apsw.Error as exc:
                raise self.meaning(exc) from exc
            finally:
                self._gate.leave()
        finally:
            self._end()

    @property
    def log(self) -> Log:
        """The write-ahead log, as far as this handle knows it."""
        return self._log

    # --- the end

    def hurry(self, timeout_s: float) -> None:
        """Wait no longer than this for any lock from here on: the process is about to end."""
        self._handle.timeout_s = min(self._handle.timeout_s, timeout_s)

    def close(self, *, release: bool) -> None:
        """Release what is still held, if asked to, and close both connections; idempotent.

        No verb comes between the two. What is not released lapses, as after a crash.

        Raises:
            QueueBusy: another thread is in a transaction for longer than `busy_timeout`.
            UsageError: this thread has a transaction open.
        """
        self.refuse_inside()
        if self._handle.is_closing_here():  # a signal handler inside this thread's own close
            return
        with self._handle.closing():
            if release and self._handle.is_usable and self.holdings:
                try:
                    self.write(self.holdings.give_back, durable=False)
                    self.holdings.gave_back()
                except LiteQueueError as exc:
                    _log.warning("leases of %s were not released at its close and will lapse: %s", self.place.path, exc)
            self._handle.close()
            self._bell.close()
            self.holdings.presence.close()
            WATCHER.wake(self.place.bell_path)

    # --- inside

    def _has_committed(self, context: Context, exc: BaseException) -> bool:
        """Tell whether the commit has happened: the hook has seen it, or COMMIT ended without an error of its own."""
        if context.stage is Stage.COMMITTING:
            return self._log.has_commit or not (isinstance(exc, apsw.Error) or context.connection.in_transaction)
        return context.stage is Stage.COMMITTED

    def _decide(self) -> None:
        """Before a look-up, end what an unknown outcome left open, so that what is told now stays true.

        While the disk still fails, or another thread writes, what is told is what everyone sees at present.
        """
        if self._may_come_back and not self.is_mine():
            with contextlib.suppress(LiteQueueError):
                self.write(lambda context: context.write(SQL.settings_changed, ()), durable=True)

    def _refuse_inherited(self, context: Context) -> None:
        if context.epoch != self._epoch:
            raise UsageError("this process was forked inside this transaction: only its parent can end it")

    def _remember(self, context: Context) -> None:
        self.holdings.committed(context)
        for tell in context.after_commit:
            tell()
        if context.rings:
            self._bell.ring()

    def _roll_back(self) -> bool:
        """Undo what is open on the connection that writes; tell whether anything was."""
        connection = self._writer.connection
        if connection is None or not connection.in_transaction:
            return False
        connection.execute("ROLLBACK")
        return True

    def _end(self) -> None:
        """Let the next one in, whatever happened; an interrupted end is simply ended again."""
        if self._writer.is_mine():
            self._context = None
            self.holdings.ended()
            self._gate.leave()
            self._writer.give()

    def _end_read(self) -> None:
        if self._reader.is_mine():
            connection = self._reader.connection
            if connection is not None and connection.in_transaction:
                connection.execute("ROLLBACK")
            self._reader.give()

    def _equip(self, connection: apsw.Connection) -> None:
        connection.set_authorizer(self._authorize)
        self._log.watch(connection)
        self._synchronous = _FULL

    def _start_afresh(self, is_open: bool) -> None:
        self._epoch += 1
        self._may_come_back = False
        self._context = None
        self._is_guarding = False
        self._bell.close()
        self.holdings.start_afresh(is_open=is_open)

    def translated(self, exc: BaseException) -> BaseException:
        """Return the error of this package that says the same, or the error itself when it is the caller's own."""
        return (translate(exc, self.place.path) if isinstance(exc, apsw.Error) else None) or exc

    def meaning(self, exc: BaseException) -> BaseException:
        """Return what an exception out of our own statements and records means; see `failures.meaning`."""
        return meaning(exc, self.place.path)

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """Say whether a statement may be prepared; only the caller's own are asked about."""
        if self._is_guarding:
            self._has_altered |= action == apsw.SQLITE_ALTER_TABLE
            if authority.is_refused(action, first, second):
                return apsw.SQLITE_DENY
        return apsw.SQLITE_OK
