"""The beginning and the end of every transaction on a queue file.

Invariants (DESIGN §3): every write is `BEGIN IMMEDIATE`; one deadline covers the thread lock, the gate and SQLite's
lock; an exception out of COMMIT tells the truth, also to the threads whose verbs were done in it (contract G11). Leaves
out: the life of the connections (`handle`), the line of the threads (`line`), the write-ahead log (`log`), what the
handle holds (`holdings`), the caller's own SQL (`guard`), reads (`snapshot`), and what is done inside a transaction.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Literal, TypeVar, cast

import apsw

from litequeue import clock as clocks
from litequeue.clock import Clock
from litequeue.errors import LiteQueueError, OutcomeUnknown, QueueBusy, StorageLost, UsageError
from litequeue.sqlite import sharing, snapshot, tail
from litequeue.sqlite.bell import Bell
from litequeue.sqlite.channel import TRIES
from litequeue.sqlite.connection import pragma
from litequeue.sqlite.context import Context, Stage, SyncNeeded
from litequeue.sqlite.failures import meaning, translate
from litequeue.sqlite.filesystem import Room
from litequeue.sqlite.guard import Guard
from litequeue.sqlite.handle import Handle
from litequeue.sqlite.holdings import Holdings
from litequeue.sqlite.line import NotDone, Request
from litequeue.sqlite.log import Log
from litequeue.sqlite.place import Place
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.statements import SQL
from litequeue.sqlite.tripwire import AFTER_COMMIT, ALL_FILES
from litequeue.sqlite.watching import WATCHER

T = TypeVar("T")
Durability = Literal["full", "enqueue", "normal"]
"""When commits are synced to disk: see `litequeue.open`."""

_FULL, _NORMAL = "FULL", "NORMAL"
_HAD_COMMITTED = "litequeue: the transaction had been committed when this came"
_log = logging.getLogger("litequeue")


class Store:
    """One handle on one file; serves many threads, whose transactions it lets in one by one."""

    def __init__(self, place: Place, durability: Durability, busy_timeout: float, clock: Clock) -> None:
        self.place = place
        self.clock = clock
        self.holdings = Holdings(place)
        self.log = Log(place.path, clock)
        self._bell = Bell(place, place.bell_path, makes=True)
        self._done_bell = Bell(place, place.done_path, makes=False)
        self.durability = durability
        self._room = Room(place.folder, self._owed_bytes)
        self._epoch = 0
        self._context: Context | None = None
        self._synchronous = ""
        self._may_come_back = False
        self.guard = Guard()
        self._handle = Handle(place, clock, busy_timeout, equip=self._equip, start_afresh=self._start_afresh)
        self._writer = self._handle.writer
        self._reader = self._handle.reader
        self._gate = self._handle.gate
        self.holdings.presence.attend()

    # --- writing

    def write(self, work: Callable[[Context], T], *, durable: bool, is_alone: bool = False) -> T:
        """Do one piece of work in a transaction, which it may share unless `is_alone`; what raises is rolled back.

        Work that turns out to need a sync, which can only be chosen before BEGIN, is done again with one; work that
        was given up because of what it shared the transaction with is done again alone.

        Raises:
            LiteQueueError: see `begin` and `commit`, and whatever the work raises.
        """
        self._writer.refuse_inside()
        while True:
            try:
                return self._write_once(work, durable=durable, is_alone=is_alone)
            except SyncNeeded:
                durable = is_alone = True
            except NotDone:
                is_alone = True

    def _write_once(self, work: Callable[[Context], T], *, durable: bool, is_alone: bool) -> T:
        context = request = None
        try:
            deadline = self._handle.deadline()
            if is_alone:
                self._writer.take(deadline)
            elif not self._writer.take_at_once():
                request = Request(work, durable=durable)
                if not self._writer.take_or_share(request, deadline):
                    return cast("T", request.outcome())
            context = self._begin(deadline, durable=durable)
            result = work(context)
            if self._writer.line.waiting and not is_alone:
                sharing.do_others(context, self._writer.line, self.meaning)
            self.commit(context)
        except BaseException as exc:
            known, cut_off = exc, None
            for _ in TRIES:  # an interrupt may come in here as well, at the entry of any function
                try:
                    known = self._withdrawn(context, request, exc)
                    break
                except BaseException as again:  # noqa: BLE001 - raised below, once the turn is another's
                    cut_off = again
            known = self.told(known, cut_off, context)
            if known is not exc:
                raise known from exc
            raise
        return result

    def _withdrawn(self, context: Context | None, request: Request | None, exc: BaseException) -> BaseException:
        """End a verb that has raised, wherever it is done; return what is to be raised."""
        if request is not None and context is None and self._writer.withdraw(request):
            exc.add_note(_HAD_COMMITTED)
        known = self.meaning(self.undo(context, exc))
        if context is not None:
            self.holdings.forget([lease for lease in context.dropped if lease.lost])
        return known

    def told(self, known: BaseException, cut_off: BaseException | None, context: Context | None) -> BaseException:
        """Return what is to be raised when `undo` was cut off and done again; it says what became of the verb."""
        if cut_off is None:
            return known
        if context is not None and context.stage is Stage.COMMITTED:
            cut_off.add_note(_HAD_COMMITTED)
        elif isinstance(known, OutcomeUnknown):
            cut_off.add_note(str(known))
        return cut_off

    def begin(self, *, durable: bool) -> Context:
        """Begin a write transaction that is not shared; `durable` ones are synced in the mode `enqueue` too.

        Call `refuse_inside` before, and let whatever this raises go to `undo`, which ends what was begun: an interrupt
        may come at any point of it.

        Raises:
            QueueBusy: a lock was not had within `busy_timeout`.
            QueueClosed, StorageLost: the handle is of no more use.
        """
        deadline = self._handle.deadline()
        self._writer.take(deadline)
        return self._begin(deadline, durable=durable)

    def _begin(self, deadline: float, *, durable: bool) -> Context:
        """Begin a transaction, with the turn of this thread."""
        writer = self._writer
        connection = self._handle.ready(writer, deadline)
        cursor = writer.cursor(connection)
        self._handle.enter_gate_to_write(deadline)
        is_kept = self.durability == "enqueue"
        wanted = _FULL if self.durability == "full" or (durable and is_kept) else _NORMAL
        writer.patience.deadline = deadline
        if self._synchronous != wanted:
            pragma(connection, f"synchronous = {wanted}")
            self._synchronous = wanted
        try:
            cursor.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as exc:
            waited = f"{self._handle.timeout_s:g} s"
            raise QueueBusy(f"the write lock of {self.place.path} was not had within {waited}") from exc
        self._handle.verify(writer, ALL_FILES)
        agreement = writer.agreement
        try:
            agreement.refresh(connection, cursor)
        except Exception as exc:
            known = self.meaning(exc)
            if known is not exc:
                raise known from exc
            raise
        self._room.begin()
        wall_us, monotonic_us = clocks.now(self.clock)
        context = self._context = Context(
            connection,
            cursor,
            wall_us,
            monotonic_us + agreement.lease_offset,
            agreement.settings,
            self._epoch,
            self.holdings.holder_id,
            self.holdings.new_holder,
            self._room,
            keeps_jobs=durable or not is_kept,
            is_synced=wanted == _FULL,
        )
        return context

    def commit(self, context: Context) -> None:
        """Commit, let the objects in memory know, and let the next one in. What raises goes to `undo`.

        Raises:
            StorageLost: the file is no longer at its path; what was committed is in a file that is gone.
            UsageError: this process was forked inside the transaction.
        """
        if context.epoch != self._epoch:
            raise UsageError("this process was forked inside this transaction: only its parent can end it")
        self.log.expect_commit()  # first: an interrupt in it must not find the commit of before
        context.stage = Stage.COMMITTING
        context.cursor.execute("COMMIT")
        context.stage = Stage.COMMITTED
        self._may_come_back = False
        self._verify_committed(context)
        self._writer.agreement.committed(context.connection, context.settings)
        self._remember(context)
        self.log.copy_back_if_due(context.connection, self._writer.patience, self._gate)
        self._end()
        context.log_deaths()

    def undo(self, context: Context | None, exc: BaseException) -> BaseException:
        """Find out what an exception out of a transaction means, at whatever point it came (contract G11).

        Rolls back what was not committed, so that its leases are void, and lets the next one in. An interrupt after the
        commit gets a note that says so. `context` is `None` when `begin` has not returned one. Returns what is to be
        raised: `OutcomeUnknown` when the commit itself failed and may still come back (`tail`), `NotDone` when it is
        clear that it did not and the transaction was shared, the error of this package that says the same, or `exc`.

        Where an interrupt cuts it off, call it again, up to `TRIES` times and in the very frame that has caught `exc`:
        each time it goes on where it was, and `told` says what is to be raised then.
        """
        try:
            known = self._fate(context, exc)
        except BaseException:
            if not self._is_open():  # else the turn is kept until what is open has been rolled back
                self._end()
            raise
        self._end()
        return known

    def _fate(self, context: Context | None, exc: BaseException) -> BaseException:
        """Roll back what was not committed, and tell what `exc` means."""
        is_mine = self._writer.is_mine()
        context = self._context if context is None and is_mine else context
        if context is not None and context.epoch != self._epoch:
            return exc  # the fork's parent has the transaction, the locks and the connection
        if context is not None and self._has_committed(context, exc):
            if context.fate is NotDone:  # an interrupt before the files were looked at
                with contextlib.suppress(StorageLost):
                    self._verify_committed(context)
            self._remember(context)
            if not isinstance(exc, LiteQueueError):
                exc.add_note(_HAD_COMMITTED)
            return exc
        if context is not None:
            context.void_leases()
        was_open = is_mine and self._roll_back()
        is_committing = context is not None and context.stage is Stage.COMMITTING and is_mine and not was_open
        if context is not None and is_committing and isinstance(exc, apsw.Error):
            self._synchronous = ""
            self._may_come_back = not tail.is_dead(context.connection, self.place.path)
            if self._may_come_back:
                unknown = f"the commit to {self.place.path} failed ({exc}): it may or may not survive"
                context.fate = partial(OutcomeUnknown, unknown)
                return OutcomeUnknown(unknown)
        if context is not None and context.shared and isinstance(exc, Exception):
            return NotDone()
        return self.translated(exc)

    # --- reading

    def read(self) -> AbstractContextManager[Reader]:
        """Open a snapshot on the connection that reads; see `snapshot.opened`."""
        self._reader.refuse_inside()
        self._decide()
        return snapshot.opened(self._handle, self.clock)

    def is_mine(self) -> bool:
        """Whether this thread has the write transaction open just now."""
        return self._writer.is_mine()

    @property
    def is_usable(self) -> bool:
        """Whether another verb can still work on this handle: it is neither closed nor lost."""
        return self._handle.is_usable

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
                self._room.ask_again()
                return self.log.copy_back(connection, self._writer.patience, self._gate, truncate_bytes)
            except apsw.Error as exc:
                raise self.meaning(exc) from exc
            finally:
                self._gate.leave()
        finally:
            self._end()

    # --- the end

    @property
    def timeout_s(self) -> float:
        """How long a verb waits for the locks."""
        return self._handle.timeout_s

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
            self._handle.await_turns()  # what a verb that is at work now leases is held then
            if release and self._handle.is_usable and self.holdings:
                try:
                    # Alone: what another thread leases in this transaction, after this, would stay leased.
                    self.write(self.holdings.give_back, durable=False, is_alone=True)
                    self.holdings.gave_back()
                except LiteQueueError as exc:
                    if self.holdings.leases:
                        path = self.place.path
                        _log.warning("leases of %s were not released at its close and will lapse: %s", path, exc)
            self._handle.close()
            self._close_bells()
            self.holdings.presence.close()
            for path in (self.place.bell_path, self.place.done_path):
                WATCHER.wake(path)

    # --- inside

    def _has_committed(self, context: Context, exc: BaseException) -> bool:
        """Tell whether the commit has happened: the hook has seen it, or COMMIT ended without an error of its own."""
        if context.stage is Stage.COMMITTING:
            return self.log.has_commit or not (isinstance(exc, apsw.Error) or context.connection.in_transaction)
        return context.stage is Stage.COMMITTED

    def _decide(self) -> None:
        """Before a look-up, end what an unknown outcome left open, so that what is told now stays true.

        While the disk still fails, or another thread writes, what is told is what everyone sees at present.
        """
        if self._may_come_back and not self.is_mine():
            with contextlib.suppress(LiteQueueError):
                self.write(lambda context: context.write(SQL.settings_changed, ()), durable=True)

    def _verify_committed(self, context: Context) -> None:
        """Make sure that what was committed is where the others will look for it.

        Raises:
            StorageLost: it is not; nobody whose verb is in it may be told that it is done.
        """
        try:
            self._handle.verify(self._writer, AFTER_COMMIT, committed=True)
        except StorageLost as exc:
            context.fate = partial(StorageLost, str(exc), committed=True)
            raise
        context.fate = None

    def _remember(self, context: Context) -> None:
        self.holdings.committed(context)
        for tell in context.after_commit:
            tell()
        if context.rings:
            self._bell.ring()
        if context.has_ended:
            self._done_bell.ring()

    def _roll_back(self) -> bool:
        """Undo what is open on the connection that writes; tell whether anything was."""
        self._writer.drop_cursor()
        connection = self._writer.connection
        if connection is None or not self._is_open():
            return False
        connection.execute("ROLLBACK")
        return True

    def _is_open(self) -> bool:
        """Whether this thread has begun a transaction that has not ended."""
        connection = self._writer.connection
        return self._writer.is_mine() and connection is not None and connection.in_transaction

    def _end(self) -> None:
        """Let the next one in, whatever happened; an interrupted end is simply ended again."""
        if self._writer.is_mine():
            context = self._context
            if context is not None and context.shared:
                sharing.tell_others(context)
            self._context = None
            self.holdings.ended()
            self._gate.leave()
            self._writer.give()

    def _owed_bytes(self) -> int:
        """By how much the file is to grow when the log is copied back."""
        connection = self._writer.connection
        return 0 if connection is None else self.log.owed_bytes(connection)

    def _equip(self, connection: apsw.Connection) -> None:
        connection.set_authorizer(self.guard.authorize)
        self.log.watch(connection)
        self._synchronous = _FULL

    def _start_afresh(self, is_open: bool) -> None:
        self._epoch += 1
        self._may_come_back = False
        self._context = None
        self.guard = Guard()
        self._close_bells()
        self.holdings.start_afresh(is_open=is_open)

    def _close_bells(self) -> None:
        self._bell.close()
        self._done_bell.close()

    def translated(self, exc: BaseException) -> BaseException:
        """Return the error of this package that says the same, or the error itself when it is the caller's own."""
        return (translate(exc, self.place.path) if isinstance(exc, apsw.Error) else None) or exc

    def meaning(self, exc: BaseException) -> BaseException:
        """Return what an exception out of our own statements and records means; see `failures.meaning`."""
        return meaning(exc, self.place.path)
