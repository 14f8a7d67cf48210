"""The verbs as coroutines: on a queue and a transaction, and what a holder says of its lease.

Owns: which verbs there are, each derived from the plain one, and an open transaction's shell. Leaves out: the queue's
own shell (`queue`), and what a verb does, which the plain one says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

from litequeue.aio import turns as lanes
from litequeue.aio.errand import Errand
from litequeue.aio.session import Session
from litequeue.aio.shell import Shell, Shelled, Way, verb, verb_in_shell, verb_of_lease, verb_of_leases
from litequeue.errors import UsageError
from litequeue.lease import Fence, Lease
from litequeue.model import Scope
from litequeue.queue import Queue
from litequeue.settlement import Exchange
from litequeue.sqlite.transaction import Transaction
from litequeue.sqlite.verbs import Verbs

GIVEN_BACK = "what it had leased is given back"
T = TypeVar("T")
V_co = TypeVar("V_co", bound=Verbs, covariant=True)


class AsyncLease(Shell[Lease], Shelled):
    """A lease whose verbs are coroutines; see `Lease`, whose attributes it shows.

    Made by the verbs of `AsyncQueue` that lease, or around a plain lease of a plain queue, in whatever loop.
    """

    __slots__ = ("_lease", "_queue")

    def __init__(self, lease: Lease) -> None:
        given: object = lease
        holder = given.holder if isinstance(given, Lease) else None
        if not isinstance(holder, Queue):
            raise UsageError.of("lease", lease, "a Lease that a queue has given")
        self._lease = lease
        self._queue = holder

    def __repr__(self) -> str:
        return f"<Async{repr(self._lease)[1:]}"

    @property
    def lease(self) -> Lease:
        """The plain lease."""
        return self._lease

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        return self._lease.job_id

    @property
    def raw_job_id(self) -> bytes:
        """The job's id, as it is stored."""
        return self._lease.raw_job_id

    @property
    def kind(self) -> str:
        """What to run."""
        return self._lease.kind

    @property
    def payload(self) -> object:
        """The payload, decoded anew at each call.

        Raises:
            RecordError: the stored bytes cannot be decoded; `fail(..., retryable=False)` is the usual answer.
        """
        return self._lease.payload

    @property
    def scope(self) -> Scope:
        """The job's scope."""
        return self._lease.scope

    @property
    def priority(self) -> int:
        """The job's priority."""
        return self._lease.priority

    @property
    def created_at(self) -> int:
        """When the job was enqueued, µs since the epoch."""
        return self._lease.created_at

    @property
    def attempts(self) -> int:
        """Leases of this job so far, this one included."""
        return self._lease.attempts

    @property
    def worker_id(self) -> str:
        """Who holds the lease."""
        return self._lease.worker_id

    @property
    def lease_generation(self) -> int:
        """The fencing token: larger at every lease of the job."""
        return self._lease.lease_generation

    @property
    def fence(self) -> Fence:
        """The full key, the worker and the generation: what every statement on the job must match."""
        return self._lease.fence

    @property
    def idempotency_key(self) -> str | None:
        """The job's key."""
        return self._lease.idempotency_key

    @property
    def boundary(self) -> datetime | None:
        """The boundary of the schedule that made the job, in UTC; `None` for every other job."""
        return self._lease.boundary

    @property
    def ttl_us(self) -> int:
        """The lease's own time, by which `extend` prolongs it, in µs."""
        return self._lease.ttl_us

    @property
    def deadline_us(self) -> int:
        """When it lapses, by the lease clock, as far as this object has heard."""
        return self._lease.deadline_us

    @property
    def continuation(self) -> bytes | None:
        """The bytes of this lease's last checkpoint, empty when none has brought any; `None` before the first."""
        return self._lease.continuation

    @property
    def is_void(self) -> bool:
        """True when the transaction that took the lease did not commit."""
        return self._lease.is_void

    @property
    def lost(self) -> bool:
        """True as soon as this process has found that the job is no longer this lease's; see `Lease`."""
        return self._lease.lost

    @property
    def settled(self) -> bool:
        """True once a commit of this process has ended it."""
        return self._lease.settled

    @property
    def cancelled(self) -> bool:
        """True when whoever works on it should stop, as soon as that is convenient; see `Lease`."""
        return self._lease.cancelled

    extend = verb(Lease.extend)
    checkpoint = verb(Lease.checkpoint)
    note = verb(Lease.note)
    complete = verb(Lease.complete)
    fail = verb(Lease.fail)
    release = verb(Lease.release)

    def transaction(self) -> AbstractAsyncContextManager[AsyncTransaction]:
        """Open a transaction that checks this lease first and completes the job at its end (V14).

        See `Lease.transaction`, and `AsyncQueue.transaction` for what a cancellation does.

        Raises:
            LeaseConflict: the job is no longer this lease's.
        """
        return AsyncTransaction(self._queue, self._lease.transaction)

    async def _do(self, name: str, call: Callable[[Lease], T], way: Way) -> T:
        turns = lanes.of(self._queue)
        turns.refuse_inside()
        errand = Errand(name, lambda: call(self._lease), done=f"{name} was done")
        return await turns.lane(way).outcome(errand, self._queue.busy_timeout)


class AsyncVerbs(Shell[V_co]):
    """What a queue does, as coroutines; on an `AsyncQueue` each is one transaction, here it is part of one."""

    enqueue = verb(Verbs.enqueue)
    enqueue_many = verb(Verbs.enqueue_many)
    batch = verb(Verbs.batch)

    lease_next = verb_in_shell(Verbs.lease_next, lambda lease: None if lease is None else AsyncLease(lease))
    lease_many = verb_in_shell(Verbs.lease_many, lambda leases: [AsyncLease(lease) for lease in leases])

    extend = verb_of_lease(Verbs.extend)
    extend_many = verb_of_leases(Verbs.extend_many)
    checkpoint = verb_of_lease(Verbs.checkpoint)
    note = verb_of_lease(Verbs.note)
    complete = verb_of_lease(Verbs.complete)
    complete_many = verb_of_leases(Verbs.complete_many)
    fail = verb_of_lease(Verbs.fail)
    fail_many = verb_of_leases(Verbs.fail_many)
    release = verb_of_lease(Verbs.release)
    release_many = verb_of_leases(Verbs.release_many)

    cancel = verb(Verbs.cancel)
    cancel_many = verb(Verbs.cancel_many)
    retry = verb(Verbs.retry)
    retry_many = verb(Verbs.retry_many)
    edit = verb(Verbs.edit)
    edit_many = verb(Verbs.edit_many)
    remove = verb(Verbs.remove)
    remove_many = verb(Verbs.remove_many)

    reap_expired = verb(Verbs.reap_expired, "upkeep")
    promote_due = verb(Verbs.promote_due, "upkeep")
    expire_overdue = verb(Verbs.expire_overdue, "upkeep")
    tell_waiting = verb(Verbs.tell_waiting, "upkeep")
    prune = verb(Verbs.prune, "upkeep")

    schedule = verb(Verbs.schedule)
    unschedule = verb(Verbs.unschedule)
    schedules = verb(Verbs.schedules, "read")
    pause_schedule = verb(Verbs.pause_schedule)
    resume_schedule = verb(Verbs.resume_schedule)
    run_now = verb(Verbs.run_now)

    put_message = verb(Verbs.put_message)
    discard_message = verb(Verbs.discard_message)
    waiting_messages = verb(Verbs.waiting_messages, "read")

    get = verb(Verbs.get, "read")
    find = verb(Verbs.find, "read")
    dependencies = verb(Verbs.dependencies, "read")
    list = verb(Verbs.list, "read")
    scopes = verb(Verbs.scopes, "read")
    held_back = verb(Verbs.held_back, "read")
    stats = verb(Verbs.stats, "read")
    settings = verb(Verbs.settings, "read")
    kind_settings = verb(Verbs.kind_settings, "read")
    scope_settings = verb(Verbs.scope_settings, "read")
    set = verb(Verbs.set)
    unset = verb(Verbs.unset)
    pause = verb(Verbs.pause)
    resume = verb(Verbs.resume)
    pauses = verb(Verbs.pauses, "read")
    set_weight = verb(Verbs.set_weight)
    weights = verb(Verbs.weights, "read")


def taken(result: object) -> list[tuple[Lease, float]]:
    """Return the leases in what a verb returned, each with the seconds that are to pass before its job may be run."""
    if isinstance(result, Exchange):
        return [*taken(result.leases), *result.retaken]
    found = result if isinstance(result, list) else [result]
    return [(lease, 0.0) for lease in found if isinstance(lease, Lease)]


def give_back(verbs: Verbs, leases: list[tuple[Lease, float]]) -> None:
    """Release leases that nobody has."""
    for delay in sorted({delay for _, delay in leases}):
        verbs.release_many([lease for lease, wanted in leases if wanted == delay], delay)


class AsyncTransaction(AsyncVerbs[Transaction]):
    """A write transaction in an `async with` block. Any task may use it until the block ends; all is done in order.

    See `Transaction`. Do not hold it open for what is not on this file: it holds the write lock.
    """

    def __init__(self, queue: Queue, begin: Callable[[], AbstractContextManager[Transaction]]) -> None:
        self._queue = queue
        self._turns = lanes.of(queue)
        self._begin = begin
        self._session: Session | None = None
        self._transaction: Transaction | None = None

    async def __aenter__(self) -> Self:
        if self._session is not None:
            raise UsageError("a transaction is entered once: ask for another one")
        self._turns.refuse_inside()
        session = self._session = Session(self._begin)
        self._transaction = await self._turns.writing.outcome(session.entry, self._queue.busy_timeout, session)
        self._turns.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session = self._opened()
        self._turns.leave()
        if isinstance(error, GeneratorExit):  # the task has gone: nobody can wait
            session.end(error)
            return
        try:
            await session.end(error).outcome()
        except asyncio.CancelledError as exc:
            if session.is_open:  # the commit had not begun
                await session.end(exc).settled()
            raise

    @property
    def scope(self) -> Scope:
        """The scope that a verb means when it is given none."""
        return self._queue.scope

    @property
    def worker_id(self) -> str:
        """The worker that a lease names when it is given none."""
        return self._queue.worker_id

    @property
    def path(self) -> str:
        """The file's real path."""
        return self._queue.path

    @property
    def is_over(self) -> bool:
        """Whether the `async with` block has ended: no verb works from then on."""
        return self._session is not None and not self._session.is_open

    execute = verb(Transaction.execute)
    check = verb_of_lease(Transaction.check)
    has_settled = verb_of_lease(Transaction.has_settled)

    def _opened(self) -> Session:
        if self._session is None:
            raise UsageError("a transaction begins with `async with`")
        return self._session

    def _undo(self, transaction: Transaction, session: Session, result: object) -> Errand[None] | None:
        """Give back what a verb has leased for nobody."""
        leases = taken(result)
        if not leases or not session.is_open:
            return None
        errand = Errand("release", lambda: give_back(transaction, leases))
        session.tell(errand)
        return errand

    async def _do(self, name: str, call: Callable[[Transaction], T], way: Way) -> T:  # noqa: ARG002 - it has one thread
        session, transaction = self._opened(), self._transaction
        if transaction is None:
            raise UsageError("this transaction has not begun")
        undo = partial(self._undo, transaction, session)
        errand: Errand[T] = Errand(
            name, lambda: call(transaction), done=f"{name} was done", undo=undo, undone=GIVEN_BACK
        )
        session.tell(errand)
        return await errand.outcome()
