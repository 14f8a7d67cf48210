"""The two connections of a handle, and their life: opened, lost, forked, closed.

Owns: one connection that writes and one that reads, the gate, and the answer to "is this still the file that was
opened?". Invariants (DESIGN §3): every open and close goes through the gate; both connections are let go of before a
fork and opened anew after it, and one that was inherited all the same is never used; once the file is lost, none is
ever closed. Leaves out: transactions (`store`).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

from litequeue.clock import Clock
from litequeue.errors import CannotOpen, LiteQueueError, NotAQueue, QueueBusy, QueueClosed, StorageLost, UsageError
from litequeue.sqlite import anchor, filesystem, forks, intruders, opening
from litequeue.sqlite.channel import Channel
from litequeue.sqlite.connection import close_last
from litequeue.sqlite.gate import Gate, follow_mode
from litequeue.sqlite.place import MARKERS, Place
from litequeue.sqlite.tripwire import ALL_FILES, FILE, Identity, present

_log = logging.getLogger("litequeue")
_forsaken: set[Identity | None] = set()
"""Files whose log or shared memory went away beneath this process: SQLite here would go on with the old ones."""
_handles: forks.Weakly[Handle] = forks.Weakly()


class Handle:
    """The connections of one queue handle.

    `equip` is called with each new connection that writes; `start_afresh` in a forked child, where nothing that the
    parent held is this process's, with whether the handle is open.
    """

    def __init__(
        self,
        place: Place,
        clock: Clock,
        timeout_s: float,
        *,
        equip: Callable[[apsw.Connection], None],
        start_afresh: Callable[[bool], None],
    ) -> None:
        self.place = place
        self.timeout_s = timeout_s
        self.writer = Channel(place.path)
        self.reader = Channel(place.path)
        self.gate = Gate(place.lock_path, place.mode)
        self._clock = clock
        self._equip = equip
        self._start_afresh = start_afresh
        self._opening = threading.Lock()
        self._pid = os.getpid()
        self._is_closed = False
        self._closing = threading.Lock()
        self._closer: int | None = None
        self._lost_reason: str | None = None
        self._identity: Identity | None = None
        self._is_forking_safely = False
        self._turns_before_fork: tuple[bool, bool] | None = None
        """What the forking thread had of the two channels before the fork took them."""
        intruders.refuse_visited(place.path)
        forks.register(self)
        intruders.keep_out(self)
        _handles.add(self)
        deadline = self.deadline()
        self.writer.take(deadline)  # a fork waits for the opening, as it waits for every verb
        self.reader.take(deadline)
        try:
            self._open(create=place.create, deadline=deadline)
        finally:
            self.reader.give()
            self.writer.give()

    def is_inherited(self, path: str) -> bool:
        """Whether this is a handle on that path of the process that this one was forked from, still as it was."""
        return self.place.path == path and self._pid != os.getpid()

    def is_on(self, file: Identity) -> bool:
        """Whether another verb on this handle would use this very file."""
        return self.is_usable and self._identity == file

    @property
    def is_usable(self) -> bool:
        """Whether another verb can still work on this handle."""
        return not self._is_closed and self._lost_reason is None

    @property
    def is_open(self) -> bool:
        """Whether this handle has a connection just now."""
        return self.writer.connection is not None or self.reader.connection is not None

    def deadline(self) -> float:
        """Return until when a verb that begins now may wait, by `time.monotonic`."""
        return time.monotonic() + self.timeout_s

    def ready(self, channel: Channel, deadline: float) -> apsw.Connection:
        """Return the connection of a channel that this thread has taken; open anew after a fork.

        Raises:
            QueueClosed, StorageLost: the handle is of no more use.
            UsageError: this process was forked inside a transaction.
        """
        if self._is_closed or self._closer not in (None, threading.get_ident()):
            raise QueueClosed(f"this handle on {self.place.path} is closed")
        if self._lost_reason is not None:
            raise StorageLost(self._lost_reason)
        if self._pid != os.getpid():  # a fork that ran no hooks: SQLite here has inherited the parent's connections
            forks.spoil(self.place.path)
            self._disown()
            channel.take(deadline)
        if channel.connection is None:
            self._open(create=False, deadline=deadline)
        if channel.connection is None:
            raise QueueBusy(f"{self.place.path} could not be opened again")
        return channel.connection

    def enter_gate(self, deadline: float) -> None:
        """Wait for this handle's turn at the gate; see `Gate.enter`.

        Raises:
            CannotOpen, StorageLost: the sidecar cannot be opened.
        """
        self._enter(self.gate, deadline)

    def enter_gate_to_write(self, deadline: float) -> None:
        """Wait for this handle's turn, and go on without it only when nobody is known to be at work.

        SQLite's own lock is not enough here. A: begins a transaction, and does not end it within a second. Something in
        A opens and closes the file, which drops A's locks. B: waits a second for the gate, begins, and commits. A:
        commits over what B was told is stored.

        Raises:
            QueueBusy: another process was at work until the deadline.
            CannotOpen, StorageLost: the sidecar cannot be opened.
        """
        while not self._enter(self.gate, deadline) and self.gate.is_had_by_one_at_work():
            if time.monotonic() >= deadline:
                raise QueueBusy(f"the write lock of {self.place.path} was not had within {self.timeout_s:g} s")

    def verify(self, channel: Channel, parts: tuple[int, ...], *, committed: bool = False) -> None:
        """Make sure that the file and those beside it are still the ones that were opened.

        Raises:
            StorageLost: they are not; the handle is of no more use.
        """
        if channel.tripwire.is_tripped(parts):
            raise self._lost("was replaced or removed underneath", committed=committed)

    def is_closing_here(self) -> bool:
        """Whether this very thread is closing the handle just now."""
        return self._closer == threading.get_ident()

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Let in no verb but this thread's last ones, until the handle is closed or its closing has failed."""
        with self._closing:
            self._closer = threading.get_ident()
            try:
                yield
            finally:
                self._closer = None

    def await_turns(self) -> None:
        """Wait for the verb that writes just now; while `closing`, none follows it.

        Raises:
            QueueBusy: it takes longer than the time-out.
        """
        if self._is_closed or self._lost_reason is not None:
            return
        try:
            self.writer.take(self.deadline())
        finally:
            self.writer.give()

    def close(self) -> None:
        """Close both connections; idempotent.

        Raises:
            QueueBusy: another thread is in a transaction for longer than the time-out.
            UsageError: this thread has a transaction open.
        """
        if self._is_closed:
            return
        deadline = self.deadline()
        self.writer.take(deadline)
        try:
            self.reader.take(deadline)
            try:
                self._is_closed = True
                self._let_go(close_last, deadline)
            finally:
                self.reader.give()
        finally:
            self.writer.give()

    # --- forks

    def before_fork(self) -> None:
        """Close the connections under both locks, so that no child inherits one."""
        if self._turns_before_fork is None:
            self._turns_before_fork = (self.writer.is_mine(), self.reader.is_mine())
        self._is_forking_safely = False
        if any(self._turns_before_fork):  # a fork inside this thread's own transaction
            return
        deadline = self.deadline()
        channels = (self.writer, self.reader)
        self._is_forking_safely = all(channel.is_mine() or channel.take_if_free(deadline) for channel in channels)
        if self._is_forking_safely and self.is_usable:
            self._let_go(lambda connection: connection.close(), deadline)

    def after_fork_in_parent(self) -> None:
        """Let the verbs in again; the next one opens anew."""
        if self._turns_before_fork is not None:
            for channel, had_turn in zip((self.writer, self.reader), self._turns_before_fork, strict=True):
                if not had_turn:
                    channel.give()
            self._turns_before_fork = None

    def after_fork_in_child(self) -> None:
        """Begin afresh; a child that inherited an open transaction cannot use the file at all."""
        if not self._is_forking_safely and self.writer.connection is not None:
            forks.spoil(self.place.path)
        self._disown()

    def _disown(self) -> None:
        self._pid = os.getpid()
        self._turns_before_fork = None
        for channel in (self.writer, self.reader):
            channel.start_afresh()
        self._opening = threading.Lock()
        self._closing = threading.Lock()
        self._closer = None
        self.gate.close()
        self._start_afresh(self.is_usable)

    # --- opening and letting go

    def _open(self, *, create: bool, deadline: float) -> None:
        """Open what is not open, under a gate of this opening's own: another thread may hold the handle's."""
        path = self.place.path
        if forks.is_spoiled(path) or any(other.is_inherited(path) for other in _handles):
            raise UsageError(
                f"this process was forked inside a transaction on {path}, beside an open connection that is attached, "
                "or by a program that does not tell Python, so it cannot use the file; start the child by spawn, or "
                "fork outside of transactions"
            )
        gate = Gate(self.place.lock_path, self.place.mode)
        has_sidecar = os.path.exists(self.place.lock_path)
        with self._opening:
            try:
                self._enter(gate, deadline)
                gate.share()
                self._open_channels(create=create, deadline=deadline)
                for suffix in MARKERS:
                    follow_mode(self.place.path + suffix, self.place.mode)
            except NotAQueue:
                if not has_sidecar:
                    gate.remove()
                raise
            finally:
                gate.close()

    def _open_channels(self, *, create: bool, deadline: float) -> None:
        self._refuse_forsaken()
        try:
            for channel in (self.writer, self.reader):
                if channel.connection is None:
                    opening.open_channel(channel, self.place, self._clock, create=create, deadline=deadline)
                    self._recognise(channel)
                    if channel is self.writer and channel.connection is not None:
                        self._equip(channel.connection)
            anchor.hold(self.place.path)
        except CannotOpen as exc:
            if self._identity is not None and not os.path.exists(self.place.path):
                raise self._lost(f"cannot be opened again ({exc.reason})") from exc
            raise
        except BaseException:
            if self._identity is None:  # the very first opening: nothing may stay open of it
                for channel in (self.reader, self.writer):
                    channel.close(lambda connection: connection.close())
            raise

    def _refuse_forsaken(self) -> None:
        """Refuse a file of which SQLite has another log or shared memory open in this process than lies beside it.

        It shares them among all connections to a file, so a new one would write where nobody else looks. Handles that
        have them open may not have noticed yet.

        Raises:
            StorageLost: it is so.
        """
        now = present(self.place.path)
        armed = [channel.tripwire.armed for other in _handles for channel in (other.writer, other.reader)]
        if any(then is not None and then[FILE] == now[FILE] and then != now for then in armed):
            _forsaken.add(now[FILE])
        if now[FILE] in _forsaken:
            raise self._lost("lost its log or its shared memory beneath this process: only a new process can go on")

    def _recognise(self, channel: Channel) -> None:
        """Make sure that a file that is opened again is the one of before."""
        if self._identity is None:
            self._identity = channel.tripwire.file
        elif channel.tripwire.file != self._identity:
            raise self._lost("was replaced while no connection was open")

    def _lost(self, how: str, *, committed: bool = False) -> StorageLost:
        """Give the handle up: closing a connection now could checkpoint into a file that is not ours."""
        self._lost_reason = f"{self.place.path} {how}"
        now = present(self.place.path)
        for channel in (self.writer, self.reader):
            if channel.connection is not None and channel.connection.in_transaction and channel.is_mine():
                channel.connection.execute("ROLLBACK")  # writes nothing, and lets go of SQLite's lock
            armed = channel.tripwire.armed
            if channel.connection is not None and armed is not None and armed != now:
                _forsaken.add(armed[FILE])
            channel.abandon()
        return StorageLost(self._lost_reason, committed=committed)

    def _enter(self, gate: Gate, deadline: float) -> bool:
        try:
            return gate.enter(deadline)
        except OSError as exc:
            if self._identity is not None and not os.path.exists(self.place.path):
                raise self._lost("was removed underneath") from exc
            lock = self.place.lock_path
            reason = f"its lock file {lock} cannot be opened: {exc.strerror}{filesystem.owner_of(lock)}"
            raise CannotOpen(self.place.path, reason) from exc

    def _let_go(self, close: Callable[[apsw.Connection], None], deadline: float) -> None:
        """Close both connections under the gate; what cannot be closed is abandoned."""
        try:
            if self._pid == os.getpid() and self._lost_reason is None:
                self._enter(self.gate, deadline)
                self.gate.share()
                self.verify(self.writer, ALL_FILES)
                anchor.let_go(self.place.path)
                for channel in (self.reader, self.writer):
                    channel.close(close)
                if any(other.is_open for other in _handles if other.place.path == self.place.path):
                    anchor.hold(self.place.path)
        except (apsw.Error, LiteQueueError) as exc:
            _log.warning("closing %s: %s", self.place.path, exc)
        finally:
            self.gate.close()
