"""A handle on a queue file: its connections, its locks, and the beginning and end of every transaction.

Owns: one connection that writes and one that reads, the thread locks, the gate, the tripwire, and what the handle
holds. Invariants (DESIGN §3): every write is `BEGIN IMMEDIATE`; one deadline covers the thread lock, the gate and
SQLite's lock; every open, checkpoint and close goes through the gate; an inherited connection is never used, and after
`StorageLost` none is ever closed. Leaves out: what is done inside a transaction.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar
from uuid import UUID

import apsw

from litequeue.clock import Clock
from litequeue.errors import (
    CannotOpen,
    LiteQueueError,
    NotAQueue,
    OutcomeUnknown,
    QueueBusy,
    QueueClosed,
    StorageLost,
    UsageError,
)
from litequeue.lease import Lease
from litequeue.sqlite import authority, forks, opening
from litequeue.sqlite.channel import Channel
from litequeue.sqlite.connection import CHECKPOINT_PAGES, abandon, close_last, pragma
from litequeue.sqlite.context import Context
from litequeue.sqlite.failures import translate
from litequeue.sqlite.filesystem import Room
from litequeue.sqlite.gate import Gate
from litequeue.sqlite.opening import Place
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.statements import SQL
from litequeue.sqlite.tripwire import Identity

T = TypeVar("T")
Durability = Literal["full", "enqueue", "normal"]

_FULL, _NORMAL = "FULL", "NORMAL"
_CHECKPOINT_AGAIN_PAGES = 1000
"""A checkpoint that readers held up is tried again after so many more pages."""
_log = logging.getLogger("litequeue")
_spoiled: set[str] = set()
"""Files on which this process inherited an open transaction: SQLite here believes in a lock that nobody holds."""


class Store:
    """One handle on one file; serves many threads, whose transactions it lets in one by one."""

    def __init__(self, place: Place, durability: Durability, busy_timeout: float, clock: Clock) -> None:
        self.place = place
        self.clock = clock
        self.busy_timeout = busy_timeout
        self.held: dict[UUID, Lease] = {}
        """The leases that this handle took and has not ended; closing must not scan all leases."""
        self._durability = durability
        self._writer = Channel(place.path)
        self._reader = Channel(place.path)
        self._gate = Gate(place.lock_path, place.mode)
        self._opening = threading.Lock()
        self._room = Room(place.folder)
        self._pid = os.getpid()
        self._holder_id: int | None = None
        self._synchronous = ""
        self._wal_pages = 0
        self._checkpoint_at = CHECKPOINT_PAGES
        self._is_guarding = False
        self._is_closed = False
        self._lost_reason: str | None = None
        self._identity: Identity | None = None
        self._is_forking_safely = False
        self._open_both(create=place.create, deadline=time.monotonic() + busy_timeout)
        forks.register(self)

    # --- writing

    def write(self, work: Callable[[Context], T], *, durable: bool) -> T:
        """Do one piece of work in a transaction of its own; what raises has been rolled back.

        Raises:
            LiteQueueError: see `begin` and `commit`, and whatever the work raises.
        """
        context = self.begin(durable=durable)
        try:
            result = work(context)
        except BaseException as exc:
            self.rollback(context)
            if isinstance(exc, apsw.Error):
                raise self.translated(exc) from exc
            raise
        self.commit(context)
        return result

    def begin(self, *, durable: bool) -> Context:
        """Begin a write transaction; `durable` verbs are synced in the mode `enqueue` too.

        Raises:
            QueueBusy: a lock was not had within `busy_timeout`.
            UsageError: this thread has a transaction open on this handle.
            QueueClosed, StorageLost: the handle is of no more use.
        """
        deadline = time.monotonic() + self.busy_timeout
        self._writer.take(deadline)
        try:
            connection = self._ready(self._writer, deadline)
            self._enter(self._gate, deadline)
            try:
                return self._begin(connection, deadline, durable=durable)
            except BaseException:
                self._gate.leave()
                raise
        except BaseException:
            self._writer.give()
            raise

    def commit(self, context: Context) -> None:
        """Commit, and let the objects in memory know.

        Raises:
            OutcomeUnknown: the commit failed in a way that leaves open whether it happened.
            StorageLost: the file is no longer at its path; what was committed is in a file that is gone.
            LiteQueueError: another failure; the transaction was rolled back.
        """
        try:
            self._commit(context)
            if self._writer.tripwire.is_tripped():
                raise self._lost("was replaced or removed underneath", committed=True)
            self._writer.agreement.committed(context.connection, context.settings)
            self._remember(context)
            if self._wal_pages >= self._checkpoint_at:
                self._copy_back(context.connection)
        finally:
            self._end()
        for letter in context.dead_letters:
            _log.warning(
                "job %s (%s) is dead: %s",
                letter.job_id,
                letter.kind,
                letter.reason,
                extra={"job_id": str(letter.job_id), "kind": letter.kind},
            )

    def rollback(self, context: Context) -> None:
        """Undo everything; leases taken in it are void."""
        context.void_leases()
        try:
            if context.connection.in_transaction:
                context.connection.execute("ROLLBACK")
        except apsw.Error as exc:
            raise self.translated(exc) from exc
        finally:
            self._forget(context.dropped)
            self._end()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """While this is open, statements that are prepared are the caller's: no transaction control, no ATTACH."""
        self._is_guarding = True
        try:
            yield
        finally:
            self._is_guarding = False

    # --- reading

    @contextmanager
    def read(self) -> Iterator[Reader]:
        """Open a snapshot on the connection that reads; it waits for no writer.

        Raises:
            QueueBusy: another thread reads for longer than `busy_timeout`.
            QueueClosed, StorageLost: the handle is of no more use.
        """
        deadline = time.monotonic() + self.busy_timeout
        self._reader.take(deadline)
        try:
            connection = self._ready(self._reader, deadline)
            self._reader.patience.deadline = deadline
            try:
                connection.execute("BEGIN")
                try:
                    yield self._reader.agreement.reader(connection, self.clock)
                finally:
                    if connection.in_transaction:
                        connection.execute("COMMIT")
            except apsw.Error as exc:
                raise self.translated(exc) from exc
            if self._reader.tripwire.is_tripped():
                raise self._lost("was replaced or removed underneath")
        finally:
            self._reader.give()

    def is_mine(self) -> bool:
        """Whether this thread has the write transaction open just now."""
        return self._writer.is_mine()

    # --- upkeep of the file

    def checkpoint(self, truncate_bytes: int) -> int:
        """Copy the write-ahead log back, and cut it when it is larger than this; return the pages it still has.

        Raises:
            QueueBusy: the locks were not had in time.
        """
        deadline = time.monotonic() + self.busy_timeout
        self._writer.take(deadline)
        try:
            connection = self._ready(self._writer, deadline)
            self._enter(self._gate, deadline)
            try:
                self._writer.patience.deadline = time.monotonic()
                size = opening.size_of(self.place.path + "-wal")
                mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if size > truncate_bytes else apsw.SQLITE_CHECKPOINT_PASSIVE
                with contextlib.suppress(apsw.BusyError):  # a reader holds a snapshot: the next pass goes on
                    pages, copied = connection.wal_checkpoint(None, mode)
                    return max(0, pages - copied)
                return connection.wal_checkpoint(None, apsw.SQLITE_CHECKPOINT_PASSIVE)[0]
            except apsw.Error as exc:
                raise self.translated(exc) from exc
            finally:
                self._gate.leave()
        finally:
            self._writer.give()

    # --- the end

    @property
    def holder_id(self) -> int | None:
        """This handle's number in the file, once it has leased."""
        return self._holder_id

    def close(self) -> None:
        """Close both connections; idempotent. What the handle still holds is the caller's to release first.

        Raises:
            QueueBusy: another thread is in a transaction for longer than `busy_timeout`.
            UsageError: this thread has a transaction open.
        """
        if self._is_closed:
            return
        deadline = time.monotonic() + self.busy_timeout
        self._writer.take(deadline)
        try:
            self._reader.take(deadline)
            try:
                self._is_closed = True
                self._let_go(deadline)
            finally:
                self._reader.give()
        finally:
            self._writer.give()

    @property
    def is_usable(self) -> bool:
        """Whether another verb can still work on this handle."""
        return not self._is_closed and self._lost_reason is None

    # --- forks

    def before_fork(self) -> None:
        """Close the connections under both locks, so that no child inherits one (DESIGN §3)."""
        deadline = time.monotonic() + self.busy_timeout
        self._is_forking_safely = False
        if not self._writer.take_if_free(deadline):
            return
        if not self._reader.take_if_free(deadline):
            self._writer.give()
            return
        self._is_forking_safely = True
        if self.is_usable:
            self._close_for_fork(deadline)

    def after_fork_in_parent(self) -> None:
        """Let the verbs in again; the next one opens anew."""
        if self._is_forking_safely:
            self._reader.give()
            self._writer.give()

    def after_fork_in_child(self) -> None:
        """Begin afresh: nothing that the parent holds is this process's."""
        if not self._is_forking_safely:
            _spoiled.add(self.place.path)
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        for channel in (self._writer, self._reader):
            abandon(channel.connection)
            channel.start_afresh()
        self._opening = threading.Lock()
        self._gate.close()
        self._is_guarding = False
        self._holder_id = None
        self.held = {}

    def _close_for_fork(self, deadline: float) -> None:
        try:
            self._enter(self._gate, deadline)
            try:
                for channel in (self._reader, self._writer):
                    if channel.connection is not None and self._pid == os.getpid():
                        channel.close(lambda connection: connection.close())
            finally:
                self._gate.leave()
        except (apsw.Error, LiteQueueError):
            _log.exception("a connection could not be closed before a fork; the child will not use it")
            self._is_forking_safely = False
            self._reader.give()
            self._writer.give()

    # --- inside

    def _begin(self, connection: apsw.Connection, deadline: float, *, durable: bool) -> Context:
        wanted = _FULL if self._durability == "full" or (durable and self._durability == "enqueue") else _NORMAL
        self._writer.patience.deadline = deadline
        try:
            if self._synchronous != wanted:
                pragma(connection, f"synchronous = {wanted}")
                self._synchronous = wanted
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as exc:
            raise QueueBusy(f"the write lock of {self.place.path} was not had within {self.busy_timeout:g} s") from exc
        except apsw.Error as exc:
            raise self.translated(exc) from exc
        try:
            if self._writer.tripwire.is_tripped():
                raise self._lost("was replaced or removed underneath")
            reader = self._writer.agreement.reader(connection, self.clock)
            return Context(reader, self._holder_id, self._new_holder, self._room)
        except BaseException as exc:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(exc, apsw.Error):
                raise self.translated(exc) from exc
            raise

    def _commit(self, context: Context) -> None:
        """Run COMMIT and find out what an exception out of it means (contract G11)."""
        connection = context.connection
        self._wal_pages = 0
        try:
            connection.execute("COMMIT")
        except BaseException as exc:
            if self._wal_pages:  # the hook has seen the commit in the log: it happened, whatever came after
                self._remember(context)
                if isinstance(exc, apsw.Error):
                    _log.warning("an error after a commit that did happen: %s", exc)
                    return
                exc.add_note("litequeue: the transaction had been committed when this came")
                raise
            context.void_leases()
            was_open = connection.in_transaction
            if was_open:
                connection.execute("ROLLBACK")
            if not isinstance(exc, apsw.Error):
                exc.add_note("litequeue: the transaction was not committed")
                raise
            if isinstance(exc, apsw.IOError) and not was_open:
                reason = f"the commit to {self.place.path} failed ({exc}): it may or may not survive"
                raise OutcomeUnknown(reason) from exc
            raise self.translated(exc) from exc

    def _remember(self, context: Context) -> None:
        for lease in context.leases:
            self.held[lease.job_id] = lease
        self._forget(context.settled)
        self._forget(context.dropped)
        for renewal in context.renewals:
            renewal.lease.deadline_us = renewal.deadline_us
            renewal.lease.continuation = renewal.continuation
        self._holder_id = context.known_holder_id

    def _forget(self, leases: list[Lease]) -> None:
        for lease in leases:
            if self.held.get(lease.job_id) is lease:
                del self.held[lease.job_id]

    def _end(self) -> None:
        """Let the next one in, whatever happened."""
        self._gate.leave()
        self._writer.give()

    def _new_holder(self, context: Context) -> int:
        context.write(SQL.holder_add, (os.getpid(), platform.node(), context.now))
        return context.connection.last_insert_rowid()

    def _copy_back(self, connection: apsw.Connection) -> None:
        """Checkpoint after a commit, outside of it, so that its failure is never mistaken for the commit's."""
        self._writer.patience.deadline = time.monotonic()
        try:
            pages, copied = connection.wal_checkpoint(None, apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as exc:
            _log.warning("a checkpoint of %s failed: %s", self.place.path, exc)
            pages, copied = self._wal_pages, 0
        left = pages - copied
        self._checkpoint_at = CHECKPOINT_PAGES if left <= 0 else pages + _CHECKPOINT_AGAIN_PAGES

    def _ready(self, channel: Channel, deadline: float) -> apsw.Connection:
        """Return the connection of a channel that this thread has taken; open anew after a fork."""
        if self._is_closed:
            raise QueueClosed(f"this handle on {self.place.path} is closed")
        if self._lost_reason is not None:
            raise StorageLost(self._lost_reason)
        if self._pid != os.getpid():  # a fork that ran no hooks: nothing that was inherited is used
            self._start_afresh()
            channel.take(deadline)
        if channel.connection is None:
            self._open_both(create=False, deadline=deadline)
        if channel.connection is None:
            raise QueueBusy(f"{self.place.path} could not be opened again in time")
        return channel.connection

    def _open_both(self, *, create: bool, deadline: float) -> None:
        """Open what is not open, under a gate of this opening's own: another thread may hold the handle's."""
        path = self.place.path
        if path in _spoiled:
            raise UsageError(
                f"this process was forked inside a transaction on {path}, so it cannot use the file; "
                "start the child by spawn, or fork outside of transactions"
            )
        gate = Gate(self.place.lock_path, self.place.mode)
        has_sidecar = os.path.exists(self.place.lock_path)
        with self._opening:
            try:
                self._enter(gate, deadline)
                for channel in (self._writer, self._reader):
                    if channel.connection is None:
                        opening.open_channel(channel, self.place, self.clock, create=create, deadline=deadline)
                        self._recognise(channel)
                if self._writer.connection is not None:
                    self._writer.connection.set_authorizer(self._authorize)
                    self._writer.connection.set_wal_hook(self._on_wal)
                    self._synchronous = _FULL
            except NotAQueue:
                if not has_sidecar:
                    os.unlink(self.place.lock_path)
                raise
            except CannotOpen as exc:
                if self._identity is not None:
                    raise self._lost(f"cannot be opened again ({exc.reason})") from exc
                raise
            finally:
                gate.close()

    def _recognise(self, channel: Channel) -> None:
        """Make sure that a file that is opened again is the one of before."""
        if self._identity is None:
            self._identity = channel.tripwire.file
        elif channel.tripwire.file != self._identity:
            raise self._lost("was replaced while no connection was open")

    def _lost(self, how: str, *, committed: bool = False) -> StorageLost:
        """Give the handle up: closing a connection now could checkpoint into a file that is not ours."""
        self._lost_reason = f"{self.place.path} {how}"
        for channel in (self._writer, self._reader):
            abandon(channel.connection)
            channel.connection = None
        return StorageLost(self._lost_reason, committed=committed)

    def _enter(self, gate: Gate, deadline: float) -> None:
        try:
            gate.enter(deadline)
        except OSError as exc:
            if self._identity is not None:
                raise self._lost(f"has lost its lock file ({exc.strerror})") from exc
            raise CannotOpen(self.place.path, f"no lock file can be made beside it: {exc.strerror}") from exc

    def _let_go(self, deadline: float) -> None:
        """Close for good, under the gate."""
        try:
            if self._pid == os.getpid():
                self._enter(self._gate, deadline)
                for channel in (self._reader, self._writer):
                    channel.close(close_last)
        except apsw.Error as exc:
            _log.warning("closing %s: %s", self.place.path, exc)
        finally:
            self._gate.close()

    def translated(self, exc: apsw.Error) -> Exception:
        """Return the error of this package that says the same, or the error itself when it is the caller's own."""
        return translate(exc, self.place.path) or exc

    def _on_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        """SQLite's hook after a commit has reached the log: the proof that it happened."""
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """Say whether a statement may be prepared; only the caller's own are asked about."""
        if self._is_guarding and authority.is_refused(action, first, second):
            return apsw.SQLITE_DENY
        return apsw.SQLITE_OK
