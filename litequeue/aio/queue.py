"""The queue for coroutines: `open()` and `AsyncQueue`.

Owns: how a handle is opened and closed by a task, and the shell around it. Invariants: no verb blocks a loop; any
number of tasks and loops may share one, as its lanes belong to none. Leaves out: the verbs (`verbs`).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

from litequeue import arguments
from litequeue import queue as plain
from litequeue.aio import turns as lanes
from litequeue.aio.errand import Errand
from litequeue.aio.shell import Shelled, Way, verb, verb_in_shell, verb_of_leases
from litequeue.aio.turns import aside
from litequeue.aio.verbs import GIVEN_BACK, AsyncLease, AsyncTransaction, AsyncVerbs, give_back, taken
from litequeue.aio.waiting import AsyncWaiter
from litequeue.clock import Clock
from litequeue.errors import UsageError
from litequeue.lease import Duration, Lease
from litequeue.model import Job, Scope
from litequeue.queue import Queue
from litequeue.sqlite.store import Durability
from litequeue.sqlite.transaction import Transaction
from litequeue.sqlite.verbs import ManyScopes

T = TypeVar("T")


class AsyncQueue(AsyncVerbs[Queue]):
    """A queue whose verbs are coroutines; made by `litequeue.aio.open`, or around a plain queue.

    Each verb does what the plain one does, in a thread. When its task is cancelled, a verb that has not begun is not
    done; one that has begun runs to its end, and then `CancelledError` is raised, with a note that says how it ended;
    what it had leased is given back. A verb that writes, called inside the same task's own `transaction()`, is a
    `UsageError`; in another task it waits for the transaction's end, at most for `busy_timeout` (`QueueBusy`), and so
    does one that the transaction itself waits for. Verbs that are called at once are done in no certain order.
    """

    def __init__(self, queue: Queue) -> None:
        if not isinstance(queue, Queue):
            raise UsageError.of("queue", queue, "a Queue")
        self._queue = queue
        self._turns = lanes.of(queue)

    def __repr__(self) -> str:
        return f"<Async{repr(self._queue)[1:]}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close. An error that ends the block is taken for a crash: what is held lapses, so that poison is counted."""
        closing = self._closing(lambda: self._queue.__exit__(kind, error, trace))
        if isinstance(error, GeneratorExit):  # the task has gone: nobody can wait
            self._turns.writing.enter(closing)
        else:
            await self._turns.writing.outcome(closing, self.busy_timeout)

    @property
    def queue(self) -> Queue:
        """The plain queue, for code that is not in a loop."""
        return self._queue

    @property
    def scope(self) -> Scope:
        """The scope that a verb means when it is given none."""
        return self._queue.scope

    @property
    def path(self) -> str:
        """The file's real path."""
        return self._queue.path

    @property
    def mode(self) -> int:
        """The permissions of files that are made beside it."""
        return self._queue.mode

    @property
    def busy_timeout(self) -> float:
        """How long a verb waits for the locks, in seconds."""
        return self._queue.busy_timeout

    @property
    def worker_id(self) -> str:
        """The worker that a lease names when it is given none."""
        return self._queue.worker_id

    @property
    def wal_bytes(self) -> int:
        """The size of the write-ahead log's file."""
        return self._queue.wal_bytes

    @property
    def wal_held_s(self) -> int:
        """For how many seconds one reader has kept the log from being copied back, by what this handle has seen."""
        return self._queue.wal_held_s

    async def close(self) -> None:
        """Release what this handle still holds, attempts given back, and close it; idempotent.

        It waits for the verbs that have been called before and for an open transaction. A cancellation does not keep it
        from being done.

        Raises:
            QueueBusy: another task's transaction did not end within `busy_timeout`.
            UsageError: this task has a transaction open on it.
        """
        self._turns.refuse_inside()
        await self._turns.writing.outcome(self._closing(self._queue.close), self.busy_timeout)

    async def wait(
        self, timeout: Duration | None = None, kinds: Iterable[str] | None = None, *, scope: ManyScopes = None
    ) -> bool:
        """Wait until `lease_next` with these kinds and this scope may find a job; `False` when the time is over first.

        See `Queue.wait`. Each task that waits has a thread that does; a cancellation ends it at once.

        Raises:
            UsageError: an argument out of its bounds, or this task has a transaction open.
            QueueClosed: the queue was closed, also while this waits.
        """
        return await self.waiter(kinds, scope=scope).wait(timeout)

    async def wait_for(self, job_id: UUID | str, timeout: Duration | None = None) -> Job:
        """Wait until a job has ended, in whatever process that is; return it when it is completed or cancelled.

        See `Queue.wait_for`. Each task that waits has a thread that does; a cancellation ends it at once.

        Raises:
            JobFailed: it is dead; its last error is told.
            WaitTimeout: the time is over first; the job goes on.
            JobNotFound: there is no such job, or there is none any more.
            UsageError: an argument out of its bounds, or this task has a transaction open.
            QueueClosed: the queue was closed, also while this waits.
        """
        self._turns.refuse_inside()
        waiter = self._queue.job_waiter(job_id)
        errand = Errand("wait_for", partial(waiter.wait, timeout), stop=waiter.interrupt)
        aside(errand)
        return await errand.outcome()

    def waiter(self, kinds: Iterable[str] | None = None, *, scope: ManyScopes = None) -> AsyncWaiter:
        """Return what waits as `wait` does, again and again, and can be interrupted; for those who write workers.

        Raises:
            UsageError: an argument out of its bounds.
        """
        return AsyncWaiter(self._turns, partial(self._queue.waiter, arguments.kind_filters(kinds), scope=scope))

    def transaction(self) -> AbstractAsyncContextManager[AsyncTransaction]:
        """Open a write transaction: your SQL and any verbs, committed together at the end of the block (V14).

        See `Queue.transaction`. It is done on one thread. An exception in the block, a cancellation too, rolls
        everything back. A cancellation that comes when the commit has begun is raised after it, with a note that says
        whether it has happened.

        Raises:
            QueueBusy: the lock was not had within `busy_timeout`.
        """
        return AsyncTransaction(self._queue, self._queue.transaction)

    def lease_transaction(self, lease: Lease | Shelled) -> AbstractAsyncContextManager[AsyncTransaction]:
        """Open a transaction that checks a lease first and completes its job at the end; see `AsyncLease.transaction`.

        Raises:
            LeaseConflict: the job is no longer this lease's.
        """
        held = lease.lease if isinstance(lease, Shelled) else lease
        return AsyncTransaction(self._queue, partial(self._queue.lease_transaction, held))

    @asynccontextmanager
    async def lease_in_transaction(
        self, kinds: Iterable[str] | None = None, *, scope: ManyScopes = None, worker_id: str | None = None
    ) -> AsyncIterator[tuple[AsyncTransaction, AsyncLease | None]]:
        """Lease the next ready job, do its work and complete it in one transaction (V14).

        Gives the open transaction and the lease, or `None` in its place when nothing is ready. See
        `Queue.lease_in_transaction`, and `transaction` for what a cancellation does.

        Raises:
            UsageError: an argument out of its bounds.
            QueueBusy: the lock was not had within `busy_timeout`.
        """
        leased: list[Lease | None] = []

        @contextmanager
        def begin() -> Iterator[Transaction]:
            with self._queue.lease_in_transaction(kinds, scope=scope, worker_id=worker_id) as (tx, lease):
                leased.append(lease)
                yield tx

        async with AsyncTransaction(self._queue, begin) as tx:
            (lease,) = leased
            yield tx, None if lease is None else AsyncLease(lease)

    sibling = verb_in_shell(Queue.sibling, lambda queue: AsyncQueue(queue), "upkeep")  # noqa: PLW0108 - is not made yet

    exchange = verb(Queue.exchange)
    lost = verb_of_leases(Queue.lost, "read")

    reap_dead = verb(Queue.reap_dead, "upkeep")
    has_dead = verb(Queue.has_dead, "read")
    register = verb(Queue.register)
    workers = verb(Queue.workers, "read")
    fire_schedules = verb(Queue.fire_schedules, "upkeep")
    until_boundary = verb(Queue.until_boundary, "read")
    until_work = verb(Queue.until_work, "read")
    pull_in = verb(Queue.pull_in, "upkeep")
    vacuum = verb(Queue.vacuum, "upkeep")
    backup = verb(Queue.backup, "upkeep")
    checkpoint_wal = verb(Queue.checkpoint_wal, "upkeep")
    reaper_interval = verb(Queue.reaper_interval, "read")

    async def _do(self, name: str, call: Callable[[Queue], T], way: Way) -> T:
        if way != "read":
            self._turns.refuse_inside()
        done = None if way == "read" else f"{name} was done"
        errand = Errand(name, lambda: call(self._queue), done=done, undo=self._undo, undone=GIVEN_BACK)
        return await self._turns.lane(way).outcome(errand, self.busy_timeout)

    def _undo(self, result: object) -> Errand[None] | None:
        """Give back what a verb has leased for nobody, and close what it has opened."""
        if isinstance(result, Queue):
            return _close(result)
        leases = taken(result)
        if not leases:
            return None
        errand = Errand("release", lambda: give_back(self._queue, leases), is_kept=True)
        self._turns.writing.enter(errand)
        return errand

    def _closing(self, close: Callable[[], None]) -> Errand[None]:
        return Errand("close", close, done="the queue was closed", is_alone=True, is_kept=True)


class Opening:
    """A queue that is being opened: `await` it, or enter it by `async with`, which closes the queue at its end."""

    def __init__(self, call: Callable[[], Queue]) -> None:
        self._call = call
        self._queue: AsyncQueue | None = None

    def __await__(self) -> Generator[object, None, AsyncQueue]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncQueue:
        self._queue = await self._open()
        return await self._queue.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._queue is not None:
            await self._queue.__aexit__(kind, error, trace)

    async def _open(self) -> AsyncQueue:
        errand = Errand("open", self._call, done="the queue was opened", undo=_close, undone="it is closed again")
        aside(errand)
        return AsyncQueue(await errand.outcome())


def _close(queue: Queue) -> Errand[None]:
    errand = Errand("close", queue.close, is_kept=True)
    aside(errand)
    return errand


def open(  # noqa: A001 - the contract's name
    path: str | os.PathLike[str],
    *,
    scope: Scope = "default",
    durability: Durability = "full",
    busy_timeout: float = 10.0,
    create: bool = True,
    mode: int = 0o600,
    clock: Clock | None = None,
    allow_network: bool = False,
) -> Opening:
    """Open a queue file for asyncio, creating it if it is absent (unless `create` is false).

        async with litequeue.aio.open("app.queue") as q:  # closed at the end of the block
            await q.enqueue("mail:send", {"to": "a@b.c"})

        q = await litequeue.aio.open("app.queue")  # and some time `await q.close()`

    Nothing happens before it is entered or awaited. The arguments are those of `litequeue.open`.

    Raises:
        LiteQueueError: what `litequeue.open` raises, when it is entered or awaited.
    """
    return Opening(
        partial(
            plain.open,
            path,
            scope=scope,
            durability=durability,
            busy_timeout=busy_timeout,
            create=create,
            mode=mode,
            clock=clock,
            allow_network=allow_network,
        )
    )
