"""The queue: `open()` and `Queue`, the verbs as callers use them.

Owns: a handle's defaults (scope, worker id), the transactions around its verbs, and its end. Invariant: each verb that
writes is one transaction; lease verbs are several bounded ones, so that none holds the write lock for long. Leaves out:
the verbs that keep the file in order (`upkeep`), the firing of its schedules (`firing`), and the transactions that
callers hold open (`transacting`).
"""

from __future__ import annotations

import logging
import os
import platform
import secrets
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

from litequeue import arguments
from litequeue import clock as clocks
from litequeue.clock import Clock
from litequeue.errors import LiteQueueError, UsageError
from litequeue.lease import Duration, Lease
from litequeue.model import Job, JobState, Scope, storable_scope
from litequeue.settlement import Exchange, Settlement
from litequeue.sqlite import attending, exchanging, leasing, opening, reading, settling
from litequeue.sqlite.arrivals import Waiter
from litequeue.sqlite.attending import WorkerInfo
from litequeue.sqlite.context import Context
from litequeue.sqlite.exporting import Exporter
from litequeue.sqlite.following import Follower
from litequeue.sqlite.leasing import Wish
from litequeue.sqlite.place import Place
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.results import JobWaiter
from litequeue.sqlite.store import Durability, Store
from litequeue.sqlite.surveying import Surveyor
from litequeue.sqlite.verbs import ManyScopes, job_state
from litequeue.transacting import Transacting

T = TypeVar("T")

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

    A file of an earlier version of litequeue is moved forward to this one, in place and in one transaction: for good,
    as earlier programs refuse it from then on.

    `scope` is what verbs mean that are given none. `durability` is `full` (every commit synced), `enqueue` (commits
    that enqueue, retry, cancel or change settings, and every `transaction()`) or `normal` (synced at checkpoints); see
    the contract, §7. `busy_timeout` is how long a verb waits for the locks, in seconds. `mode` is the permissions of a
    file that is created; what is made beside a file has the permissions of that file. `clock` replaces the system's,
    for tests. `allow_network` opens a file on a file system whose locks are known to fail.

    Raises:
        UsageError: an argument out of its bounds.
        CannotOpen: no such folder, no permission, a folder in its place, absent with `create=False`, or a network file
            system.
        NotAQueue: the file is something else; it was not touched.
        SchemaMismatch: a newer version of the queue's tables, or changed ones; the file was not touched.
        QueueBusy: a lock was not had, or the file is of an earlier version and another program has it open.
        QueueFull: there is no room to move a file of an earlier version forward.
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
    the_clock = clocks.tried(clock)
    place = opening.resolve(text, create=create, mode=mode, allow_network=allow_network)
    return Queue(Store(place, durability, timeout_s, the_clock), scope)


@dataclass(frozen=True, slots=True)
class Options:
    """How a handle was opened; it can be sent to another process, and opens a handle like that one there."""

    place: Place
    durability: Durability
    busy_timeout_s: float
    clock: Clock
    scope: Scope

    def opened(self) -> Queue:
        """Open the file once more; it is never made anew.

        Raises: as `litequeue.open`.
        """
        return Queue(Store(opening.again(self.place), self.durability, self.busy_timeout_s, self.clock), self.scope)


class Queue(Transacting):
    """A handle on a queue file; serves many threads. Make one with `litequeue.open`.

    Every verb may also raise `QueueBusy` (the locks were not had within `busy_timeout`; nothing was done),
    `QueueClosed`, `StorageLost` (the file was replaced or removed), `StorageCorrupt`, and, when a commit itself failed,
    `OutcomeUnknown`. A verb that writes, called inside this thread's own `transaction()`, is a `UsageError`.
    """

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store)
        self.scope = scope
        self._was_idle = True
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
    def busy_timeout(self) -> float:
        """How long a verb waits for the locks, in seconds."""
        return self._store.timeout_s

    @property
    def worker_id(self) -> str:  # type: ignore[override] # a property, since a forked child is another worker
        """The worker that a lease names when it is given none: host, process and handle."""
        host, token = self._worker
        return f"{host}:{os.getpid()}:{token}"

    @property
    def options(self) -> Options:
        """What opens a sibling, here or in another process."""
        store = self._store
        return Options(store.place, store.durability, store.timeout_s, store.clock, self.scope)

    def sibling(self) -> Queue:
        """Open another handle on the same file with the same options; the file is not made anew when it is gone.

        It is a holder and a worker of its own, shares no connection and no lock with this one, and is yours to close.
        A thread that must not wait for the verbs of others, such as one that sends heartbeats, wants its own.

        Raises:
            CannotOpen, NotAQueue, SchemaMismatch, StorageCorrupt, StorageLost, QueueBusy: as `litequeue.open`.
        """
        return self.options.opened()

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

    def exchange(
        self,
        settlements: Iterable[Settlement],
        limit: int = 0,
        kinds: Iterable[str] | None = None,
        *,
        scope: ManyScopes = None,
        worker_id: str | None = None,
        ttl: Duration | None = None,
    ) -> Exchange:
        """Settle any number of leases, then lease up to `limit` (0 to 10,000) jobs, in one commit; for workers.

        Each settlement is `Completed`, `Failed` or `Released`, held against its own lease: one that is refused, because
        the lease is no longer valid or the result cannot be stored, touches no other, and its lease is as it was. The
        other arguments are those of `lease_many`; without settlements it does what that does. A `Failed` whose pause is
        within its `retake_within` comes back as `retaken`: leased to the worker that had it, for the pause and then
        `ttl` (or the lease's own time), under a new generation and as another attempt. It counts within `limit`, but is
        never left out for that. The mode `enqueue` syncs an exchange only where there are followers (`then`).

        Raises:
            UsageError: an argument out of its bounds; nothing was settled.
        """
        self._store.refuse_inside()
        wish = self._wish(limit, kinds, scope, worker_id, ttl, least=0)
        brought = exchanging.bring(settlements, storable_scope(self.scope))
        if not brought:
            return Exchange(self._lease(wish) if wish.limit else [], [], [], [])
        is_durable = any(one.followers for one in brought)
        done = self._do(lambda c: exchanging.exchange(c, brought, wish, self, self._rhythm), durable=is_durable)
        leases = done.leases
        if wish.limit:
            self._was_idle = not leases and not done.goes_on
            if not leases and done.goes_on:
                leases = self._lease_after(wish._replace(limit=wish.limit - len(done.retaken)))
        return Exchange(leases, done.retaken, done.refused, done.dead)

    def lost(self, leases: Iterable[Lease]) -> list[Lease]:
        """Return those leases that no longer hold their jobs, in order; a pure read, for workers.

        What it finds is marked `lost`, unless this process has settled it.
        """
        given = tuple(leases)
        return self._look(lambda reader: settling.lost(reader, given)) if given else []

    def wait(
        self, timeout: Duration | None = None, kinds: Iterable[str] | None = None, *, scope: ManyScopes = None
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
        return self.waiter(kinds, scope=scope).wait(timeout)

    def waiter(self, kinds: Iterable[str] | None = None, *, scope: ManyScopes = None) -> Waiter:
        """Return what waits as `wait` does, again and again, and can be interrupted; for those who write workers.

        Raises:
            UsageError: an argument out of its bounds.
        """
        return Waiter(self._store, self._stored_scopes(scope), arguments.kind_filters(kinds))

    def wait_for(self, job_id: UUID | str, timeout: Duration | None = None) -> Job:
        """Wait until a job has ended, in whatever process that is; return it when it is completed or cancelled.

        `timeout` is seconds or a timedelta of real time; `None` waits for ever, 0 only looks. The first wait for a job
        makes a file beside the queue, a bell that is rung from then on when jobs end; within a second of that all
        processes know of it, and such a wait costs next to nothing while nothing happens. A job that fails and is to
        run again has not ended. One whose retention is 0 goes when it ends, and is then not found.

        Raises:
            JobFailed: it is dead; its last error is told.
            WaitTimeout: the time is over first; the job goes on.
            JobNotFound: there is no such job, or there is none any more.
            UsageError: an argument out of its bounds, or this thread has a transaction open.
            QueueClosed: the handle was closed, also while this waits.
        """
        return self.job_waiter(job_id).wait(timeout)

    def job_waiter(self, job_id: UUID | str) -> JobWaiter:
        """Return what waits as `wait_for` does and can be interrupted.

        Raises:
            UsageError: not a UUID, nor the text of one.
        """
        return JobWaiter(self._store, arguments.job_id("job_id", job_id))

    def register(self) -> None:
        """Let `workers` tell of this handle, although it has leased nothing yet; for those who write workers.

        A handle that has leased is known anyway, and nothing is written.
        """
        self._store.refuse_inside()
        if self._store.holdings.holder_id is None:
            self._do(lambda context: context.holder_id, durable=False)

    def workers(self) -> list[WorkerInfo]:
        """Return who works on the file: each handle that has leased, or registered, in the order of their coming.

        A pure read, and a question to the kernel for each. A handle is there until it is closed; one whose process has
        died, until its leases have been reaped. What holds a lease and is in none of them held it before the machine
        was started anew.
        """
        return attending.workers(self._store)

    def exporter(
        self, states: Iterable[JobState] = JobState, kind: str | None = None, scope: ManyScopes = None
    ) -> Exporter:
        """Return what goes through all jobs of some states, for those who carry them elsewhere. Pure reads.

        `kind` and `scope` are those of `list`.

        Raises:
            UsageError: an argument out of its bounds.
        """
        kind = None if kind is None else arguments.kind(kind)
        wanted = frozenset(job_state(state) for state in states)
        return Exporter(self._store, wanted, kind, self._stored_scopes(scope))

    def follower(self, kind: str | None = None, scope: ManyScopes = None) -> Follower:
        """Return what tells of events as they happen; for those who show them. Pure reads.

        `kind` and `scope` are those of `list`.

        Raises:
            UsageError: an argument out of its bounds.
        """
        kind = None if kind is None else arguments.kind(kind)
        return Follower(self._store, self._stored_scopes(scope), kind)

    def surveyor(self) -> Surveyor:
        """Return what looks at the file as a whole, in steps; for those who write metrics. Pure reads."""
        return Surveyor(self._store)

    def _do(self, work: Callable[[Context], T], *, durable: bool) -> T:
        return self._store.write(work, durable=durable)

    def _look(self, work: Callable[[Reader], T]) -> T:
        with self._store.read() as reader:
            return work(reader)

    def _lease_after(self, wish: Wish) -> list[Lease]:
        """Lease after a commit that stands: what goes wrong here is not to be raised, for it was not in vain (G11)."""
        try:
            return self._lease(wish)
        except LiteQueueError as exc:
            _log.debug("%s: nothing was leased after an exchange: %s", self.path, exc)
            return []
        except BaseException as exc:
            exc.add_note("litequeue: the settlements of this exchange had been committed when this came")
            raise

    def _lease(self, wish: Wish) -> list[Lease]:
        self._store.refuse_inside()
        if self._was_idle and not self._look(lambda reader: reading.may_lease(reader, wish.scope, wish.kinds)):
            return []
        attempt = leasing.Attempt([], goes_on=True)
        while attempt.goes_on:
            work = partial(leasing.attempt, wish=wish, holder=self, rhythm=self._rhythm, begun=attempt.begun)
            attempt = self._do(work, durable=False)
        self._was_idle = not attempt.leases
        return attempt.leases


def _close_at_exit(store: Store) -> None:
    """Close a handle that nobody has closed: at its garbage collection, or at the end of the process."""
    store.hurry(_EXIT_TIMEOUT_S)
    try:
        store.close(release=False)
    except LiteQueueError as exc:
        _log.warning("%s was not closed: %s", store.place.path, exc)
