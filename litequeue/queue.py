"""The queue: `open()` and `Queue`, the verbs as callers use them.

Owns: a handle's defaults (scope, worker id), the transactions around its verbs, and its end. Invariant: each verb that
writes is one transaction; lease and upkeep verbs are several bounded ones, so that none holds the write lock for long.
"""

from __future__ import annotations

import logging
import math
import os
import platform
import secrets
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from litequeue import arguments
from litequeue.clock import Clock, SystemClock
from litequeue.errors import LiteQueueError, UsageError
from litequeue.lease import Duration, Lease
from litequeue.model import ANY, Copied, Scope, storable_scope
from litequeue.sqlite import arrivals, backing_up, leasing, opening, reading, upkeep
from litequeue.sqlite.channel import TRIES
from litequeue.sqlite.context import Context
from litequeue.sqlite.copying import Progress
from litequeue.sqlite.leasing import Rhythm, Wish
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.store import Durability, Store
from litequeue.sqlite.transaction import Transaction
from litequeue.sqlite.verbs import ManyScopes, Verbs

T = TypeVar("T")

WAL_TRUNCATE_BYTES = 64 * 2**20
"""Maintenance cuts a write-ahead log that has grown beyond this."""

_EXIT_TIMEOUT_S = 1.0
_DURABILITIES = ("full", "enqueue", "normal")
_log = logging.getLogger("litequeue")


def open(
    path: str | os.PathLike[str],
    *,
    scope: Scope = "default",
    durability: Durability = "full",
    busy_timeout: float = 10.0,
    create: bool = True,
    mode: int = 0o600,
    clock: Clock | None = None,
    allow_network: bool = False,
) -> Queue:
    """Open a queue file, creating it if it is absent (unless `create` is false).

    `scope` is what verbs mean that are given none. `durability` is `full` (every commit synced), `enqueue` (commits
    that enqueue, retry, cancel or change settings, and every `transaction()`) or `normal` (synced at checkpoints); see
    the contract, §7. `busy_timeout` is how long a verb waits for the locks, in seconds. `mode` is the permissions of
    files that are created. `clock` replaces the system's, for tests. `allow_network` opens a file on a file system
    whose locks are known to fail.

    Raises:
        UsageError: an argument out of its bounds.
        CannotOpen: no such folder, no permission, a folder in its place, absent with `create=False`, or a network file
            system.
        NotAQueue: the file is something else; it was not touched.
        SchemaMismatch: another version of the queue's tables, or changed ones; the file was not touched.
        StorageCorrupt: SQLite found the file damaged.
        StorageLost: the log of this file was taken away while this process had it open; only another process can go on.
    """
    storable_scope(scope)
    if durability not in _DURABILITIES:
        raise UsageError.of("durability", durability, f"one of {', '.join(_DURABILITIES)}")
    timeout_s = arguments.duration_us("busy_timeout", busy_timeout) / 1_000_000
    arguments.whole("mode", mode, 0o400, 0o777)
    given: object = path
    text = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(text, str) or text in ("", ":memory:"):
        raise UsageError.of("path", path, "the path of a file (a queue cannot live in memory)")
    place = opening.resolve(text, create=create, mode=mode, allow_network=allow_network)
    return Queue(Store(place, durability, timeout_s, clock or SystemClock()), scope)


class Queue(Verbs):
    """A handle on a queue file; serves many threads. Make one with `litequeue.open`.

    Every verb may also raise `QueueBusy` (the locks were not had within `busy_timeout`; nothing was done),
    `QueueClosed`, `StorageLost` (the file was replaced or removed), `StorageCorrupt`, and, when a commit itself failed,
    `OutcomeUnknown`. A verb that writes, called inside this thread's own `transaction()`, is a `UsageError`.
    """

    def __init__(self, store: Store, scope: Scope) -> None:
        self.scope = scope
        self._store = store
        self._rhythm = Rhythm()
        self._was_idle = True
        self.between_steps: Callable[[], None] | None = None
        """Called after each step of upkeep: maintenance does there what cannot wait for the end of a long pass."""
        self._worker = f"{platform.node() or 'host'}"[:200], secrets.token_hex(4)
        self._finalizer = weakref.finalize(self, _close_at_exit, store)

    def __repr__(self) -> str:
        return f"<Queue {self.path} scope={self.scope!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close. An error that ends the block is taken for a crash: what is held lapses, so that poison is counted."""
        self._close(release=not isinstance(error, Exception))

    @property
    def path(self) -> str:
        """The file's real path."""
        return self._store.place.path

    @property
    def mode(self) -> int:
        """The permissions of files that are made beside it."""
        return self._store.place.mode

    @property
    def worker_id(self) -> str:  # type: ignore[override] # a property, since a forked child is another worker
        """The worker that a lease names when it is given none: host, process and handle."""
        host, token = self._worker
        return f"{host}:{os.getpid()}:{token}"

    def close(self) -> None:
        """Release what this handle still holds, attempts given back, and close it; idempotent.

        A handle that nobody closes, at its collection or at the end of the process, releases nothing: what it held
        lapses and counts as an attempt, or a job that always ends its worker would never die (contract G6).

        Raises:
            UsageError: this thread has a transaction open on it.
        """
        self._close(release=True)

    def _close(self, *, release: bool) -> None:
        self._store.close(release=release)
        self._finalizer.detach()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a write transaction: your SQL and any verbs, committed together at the end of the `with` block (V14).

        An exception in the block rolls everything back and leaves no trace. The block holds the write lock, so keep it
        short and call nothing outside of it. It is synced in the modes `full` and `enqueue`.

        Raises:
            QueueBusy: the lock was not had within `busy_timeout`.
        """
        self._store.refuse_inside()
        context = None
        tx = None
        try:
            context = self._store.begin(durable=True)
            tx = Transaction(self._store, context, self, self._rhythm, self.scope, self.worker_id)
            yield tx
            tx.finish()
            self._store.commit(context)
        except BaseException as exc:
            if tx is not None:
                tx.is_over = True
            known, cut_off = exc, None
            for _ in TRIES:  # an interrupt may come in here as well, at the entry of any function
                try:
                    known = self._store.undo(context, exc)
                    break
                except BaseException as again:  # noqa: BLE001 - raised below, once the turn is another's
                    cut_off = again
            known = self._store.told(known, cut_off, context)
            if known is not exc:
                raise known from exc
            raise

    @contextmanager
    def lease_transaction(self, lease: Lease) -> Iterator[Transaction]:
        """Open a transaction that checks a lease first and completes its job at the end; see `Lease.transaction`.

        Raises:
            LeaseConflict: the job is no longer this lease's.
        """
        with self.transaction() as tx:
            tx.check(lease)
            yield tx
            if not tx.has_settled(lease):
                tx.complete(lease)

    def wait(
        self, timeout: Duration | None = None, kinds: Iterable[str] | None = None, *, scope: Scope | None = None
    ) -> bool:
        """Wait until `lease_next` with these kinds and this scope may find a job; `False` when the time is over first.

        `timeout` is seconds or a timedelta of real time; `None` waits for ever, 0 only looks; a signal handler that
        returns does not end it. An idle wait costs next to nothing, and writes nothing; where many jobs come that it
        does not wait for, it looks about sixty times a second. It is ended by a commit that makes work ready, in
        whatever process, and by the time of the next due job or lapsing lease, as the handle's clock tells it; a clock
        that a test moves is asked again about once a second, and at the next commit that makes work ready. `True`
        reserves nothing: another worker may be faster. Many threads may wait on one handle.

        Raises:
            UsageError: an argument out of its bounds, or this thread has a transaction open.
            QueueClosed: the handle was closed, also while this waits.
        """
        self._store.refuse_inside()
        timeout_s = math.inf if timeout is None else arguments.timeout_s("timeout", timeout)
        wanted = storable_scope(self.scope if scope is None else scope)
        return arrivals.wait(self._store, wanted, arguments.kind_filters(kinds), timeout_s)

    def reap_expired(self) -> int:
        """Take back every job whose lease has lapsed, in any scope; return how many (V11)."""
        self._store.refuse_inside()
        return self._in_steps(upkeep.has_lapsed, partial(upkeep.reap, limit=upkeep.STEP))

    def reap_dead(self) -> int:
        """Take back every job of a holder whose process has died, whatever its deadline; return how many (V11).

        A stopped or slow process is alive. Where the platform or the file system does not tell, nobody is dead.
        """
        self._store.refuse_inside()
        reaped = 0
        for holder_id in self._dead_holders():
            found = self._look(partial(upkeep.held_by, holder_id=holder_id))
            for start in range(0, len(found), upkeep.STEP):
                step = partial(upkeep.reap_found, found=found[start : start + upkeep.STEP])
                reaped += self._do(step, durable=False)
            self._do(partial(upkeep.forget_holder, holder_id=holder_id), durable=False)
        return reaped

    def has_dead(self) -> bool:
        """Tell whether `reap_dead` would find a holder: a read, and a question to the kernel for each holder."""
        return bool(self._dead_holders())

    def promote_due(self, scope: ManyScopes = ANY) -> int:
        """Make every due job ready; return how many were moved (V11)."""
        self._store.refuse_inside()
        return sum(
            self._in_steps(partial(upkeep.has_due, scope=name), partial(upkeep.promote, scope=name, limit=upkeep.STEP))
            for name in self._scopes(scope)
        )

    def expire_overdue(self, scope: ManyScopes = ANY) -> int:
        """Bury every waiting job that can no longer start in time; return how many (V11)."""
        self._store.refuse_inside()
        return sum(
            self._in_steps(
                partial(upkeep.has_overdue, scope=name), partial(upkeep.expire, scope=name, limit=upkeep.STEP)
            )
            for name in self._scopes(scope)
        )

    def prune(self) -> int:
        """Remove every finished job whose retention is over; return how many (V11).

        The room that they leave in the file is used again; `vacuum` gives some of it back to the disk.
        """
        self._store.refuse_inside()
        removed = 0
        after = None
        while True:
            found = self._look(partial(upkeep.prunable, after=after))
            for start in range(0, len(found.rows), upkeep.STEP):
                removed += self._step(partial(upkeep.prune, found=found.rows[start : start + upkeep.STEP]))
            after = found.after
            if after is None:
                break
        return removed

    def vacuum(self) -> int:
        """Give room that deleted jobs have left in the file back to the disk; return how many bytes.

        Nothing is done up to 16 MiB or a quarter of the file, and 8 MiB, or an eighth of what is in use, are left for
        reuse; but all of it goes when the disk has little more room than is kept free for acknowledgements (32 MiB), so
        that jobs are taken again. The file is cut when `checkpoint_wal` has copied the log back.
        """
        self._store.refuse_inside()
        left, page_bytes = self._look(partial(upkeep.surplus, is_short_of_room=self._store.is_short_of_room()))
        freed_bytes = 0
        while left > 0:
            shrunk = self._step(partial(upkeep.shrink, most=left))
            left -= shrunk.unused
            freed_bytes += shrunk.pages * page_bytes
            if shrunk.unused == 0:  # somebody uses them again
                break
        return freed_bytes

    def pull_in(self) -> int:
        """Shorten back-offs that a backward step of the wall clock made longer; return how many (contract §5)."""
        self._store.refuse_inside()
        pulled = 0
        for name in self._scopes(ANY):
            found = self._look(partial(upkeep.distant, scope=name))
            for start in range(0, len(found), upkeep.STEP):
                pulled += self._step(partial(upkeep.pull_in, found=found[start : start + upkeep.STEP]))
        return pulled

    def backup(
        self, target: str | os.PathLike[str], *, overwrite: bool = False, progress: Progress | None = None
    ) -> Copied:
        """Copy the whole file, your own tables included, as it is at one moment, while it is in use.

        At `target` stands the whole copy, checked and synced, or what stood there before. Leases in the copy belong to
        nobody: they have lapsed when it is opened. `progress` is called with how many pages of how many are copied. As
        long as they are, the write-ahead log is not copied back; do not fork meanwhile.

        Raises:
            CannotOpen: the target exists (unless `overwrite`), is the queue itself or another one in use, or cannot be
                written.
            QueueFull: the disk is full.
            StorageCorrupt: the queue is damaged, and so would the copy be.
        """
        self._store.refuse_inside()
        self._look(lambda _: None)  # the file at the path is still the one of this handle
        return backing_up.back_up(self._store.place, self._store.clock, target, overwrite=overwrite, progress=progress)

    def checkpoint_wal(self) -> int:
        """Copy the write-ahead log back into the file; cut it beyond 64 MiB, or when the disk is short of room.

        Returns the pages that are left in it, because a reader still needs them or has kept it from being cut.
        """
        self._store.refuse_inside()
        return self._store.checkpoint(0 if self._store.is_short_of_room() else WAL_TRUNCATE_BYTES)

    @property
    def wal_bytes(self) -> int:
        """The size of the write-ahead log's file."""
        return self._store.log.size_bytes

    @property
    def wal_held_s(self) -> int:
        """For how many seconds one reader has kept the log from being copied back, by what this handle has seen."""
        return self._store.log.held_us // 1_000_000

    def reaper_interval(self) -> float:
        """Return the setting of that name: the pause between two passes of maintenance, in seconds."""
        return self._look(lambda reader: reader.settings.reaper_interval_us) / 1_000_000

    def _do(self, work: Callable[[Context], T], *, durable: bool) -> T:
        return self._store.write(work, durable=durable)

    def _step(self, work: Callable[[Context], T]) -> T:
        """Do one step of upkeep, a transaction of its own."""
        done = self._do(work, durable=False)
        if self.between_steps is not None:
            self.between_steps()
        return done

    def _look(self, work: Callable[[Reader], T]) -> T:
        with self._store.read() as reader:
            return work(reader)

    def _lease(self, wish: Wish) -> list[Lease]:
        self._store.refuse_inside()
        if self._was_idle and not self._look(lambda reader: reading.may_lease(reader, wish.scope, wish.kinds)):
            return []
        while True:
            attempt = self._do(lambda context: leasing.attempt(context, wish, self, self._rhythm), durable=False)
            if attempt.leases or not attempt.moved:
                self._was_idle = not attempt.leases
                return attempt.leases

    def _dead_holders(self) -> list[int]:
        return self._look(partial(upkeep.dead_holders, place=self._store.place))

    def _scopes(self, scope: ManyScopes) -> list[str]:
        wanted = self._stored_scopes(scope)
        return self._look(lambda reader: list(upkeep.scopes(reader))) if wanted is None else [wanted]

    def _in_steps(self, has_more: Callable[[Reader], bool], step: Callable[[Context], int]) -> int:
        """Repeat a bounded step, each a transaction, while a look without the lock finds more to do."""
        moved = 0
        while self._look(has_more):
            in_step = self._step(step)
            moved += in_step
            if in_step == 0:  # another process was faster
                break
        return moved


def _close_at_exit(store: Store) -> None:
    """Close a handle that nobody has closed: at its garbage collection, or at the end of the process."""
    store.hurry(_EXIT_TIMEOUT_S)
    try:
        store.close(release=False)
    except LiteQueueError as exc:
        _log.warning("%s was not closed: %s", store.place.path, exc)
