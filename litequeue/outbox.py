"""An outbox: messages that are committed with the caller's rows, and delivered by a worker afterwards.

Owns: what a program holds of an outbox, and what its handler is given. Invariants: messages of one key are delivered
one after the other, in the order of their commits; each at least once, under an id that stays the same. Leaves out: the
order (`sqlite.relaying`), and how a worker runs handlers (`worker`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, Unpack, cast
from uuid import UUID

from litequeue.errors import JobNotFound, RecordError, UsageError
from litequeue.lease import Duration, Lease
from litequeue.model import Job, JobState, Stats
from litequeue.queue import Queue
from litequeue.sqlite.attached import Attached
from litequeue.sqlite.outbox_verbs import scope_of
from litequeue.sqlite.relaying import kind_of
from litequeue.sqlite.transaction import Transaction
from litequeue.worker import Handler, Worker
from litequeue.worker.events import Hook
from litequeue.worker.handlers import Permanent
from litequeue.worker.worker import Mode

if TYPE_CHECKING:
    from litequeue.aio import AsyncLease


@dataclass(frozen=True, slots=True)
class Message:
    """What a handler of an outbox is given."""

    id: UUID
    """The same at every delivery: the receiver tells by it what it has had already."""
    key: str | None
    body: object
    """What was put."""
    attempts: int
    """Deliveries that were begun, this one included."""


OfMessage = Callable[[Message], object]
"""A function that delivers a message; a coroutine function too."""


class WorkerOptions(TypedDict, total=False):
    """The options of a `Worker`, but for those that an outbox gives itself."""

    concurrency: int
    mode: Mode
    lease_ttl: Duration | None
    drain_timeout: Duration
    maintenance: bool
    short_retry: Duration
    timeout: Duration | None
    permanent: Permanent
    hold: Duration
    on_event: Hook | None
    until_empty: bool
    imports: Iterable[str]


class Outbox:
    """Messages to the world outside, put in the transaction of what they tell of.

    A message goes out if that commits, and only then: at least once, in the order of its key. `name` is 1 to 200
    characters. Its messages are jobs of the kind `outbox:NAME`, for which settings, limits and pauses can be given, in
    a scope of their own that no lease reaches.

    Raises:
        UsageError: a bad name, or no `Queue`.
    """

    def __init__(self, queue: Queue, name: str) -> None:
        given: object = queue
        if not isinstance(given, Queue):
            hint = f"say put_message({name!r}, …, key=…) on it instead" if isinstance(given, Attached) else ""
            raise UsageError.of("queue", given, "a Queue, from litequeue.open", hint)
        self._scope = scope_of(name)
        self._queue = queue
        self.name = name

    def __repr__(self) -> str:
        return f"<Outbox {self.name} of {self._queue.path}>"

    @property
    def kind(self) -> str:
        """The kind of its jobs: what `q.set`, `q.pause` and limits go by."""
        return kind_of(self.name)

    def put(
        self, tx: Transaction | Attached, message: object, *, key: str | None, message_id: UUID | str | None = None
    ) -> UUID:
        """Put a message in the caller's open transaction; return its id.

        `tx` is that of `q.transaction()` or `lease.transaction()`, or what `litequeue.attach` has given.
        `message` is any msgpack value. Messages of one `key` (1 to 255 characters) are delivered in the order in which
        they were committed; a `key` of `None` is for one whose order does not matter. A `message_id` that is in the
        outbox, or whose job is still there (`completed_retention`, `cancelled_retention`), is not put again.

        Raises:
            UsageError: an argument out of its bounds, or a transaction of another file.
            PayloadError: the message cannot be stored, or is larger than `max_payload`.
            DuplicateJob: the `message_id` belongs to a job, or to a message of another outbox.
            QueueFull: `max_bytes`, or the room left on the disk, forbids it.
        """
        given: object = tx
        if not isinstance(given, Transaction | Attached) or given.path != self._queue.path:
            raise UsageError.of("tx", given, f"an open transaction of {self._queue.path}")
        return tx.put_message(self.name, message, key=key, message_id=message_id).job_id

    def deliver(self, handler: OfMessage, **options: Unpack[WorkerOptions]) -> Worker:
        """Return a worker whose `run` delivers the messages by this handler, until it is stopped.

        The handler takes a `Message`; it may be a coroutine function (then `mode="asyncio"` is best). When it returns,
        the message is delivered; when it raises, it is tried again after the back-off of its kind, and the later ones
        of its key wait. After `max_attempts` it is dead, and its key stands still until `retry` or `discard`. The
        options are those of `Worker`. Any number of workers, in any processes, may deliver.

        Raises:
            UsageError: an argument out of its bounds, or a handler that cannot work.
        """
        is_async = Handler(cast("Callable[[Lease], object]", handler)).is_async  # refuses what cannot be called so
        delivery = _DeliveryAsync(handler) if is_async else _Delivery(handler)
        return Worker(self._queue, {self.kind: delivery}, scope=self._scope, **options)

    def dead(self, limit: int = 100, after: Job | None = None) -> list[Job]:
        """Return a page of the messages that are dead, and block their keys: their jobs, as `Queue.list` does.

        The payload of such a job has the `key` and the `message`; `last_error` says why it is dead.
        """
        return self._queue.list(JobState.DEAD, scope=self._scope, limit=limit, after=after)

    def retry(self, message_id: UUID | str) -> None:
        """Deliver a dead message once more, with its attempts back at 0, or one that waits out its back-off at once.

        Raises:
            JobNotFound: the outbox has no such message, or it waits behind another one.
            InvalidTransition: it is ready, or is being delivered.
        """
        job = self._queue.get(message_id)
        if job.scope != self._scope:
            raise JobNotFound(job.job_id)
        self._queue.retry(message_id)

    def discard(self, message_id: UUID | str) -> None:
        """Take a message away that is not delivered, dead or not; the next one of its key has its turn.

        Raises:
            JobNotFound: the outbox has no such message.
            InvalidTransition: it is delivered, or was discarded.
        """
        self._queue.discard_message(self.name, message_id)

    def stats(self) -> Stats:
        """Count by state the messages that are at the head of their keys, or have none; see `Queue.stats`."""
        return self._queue.stats(self._scope)

    def waiting(self) -> int:
        """Count the messages that wait behind another one of their key; reads each of them once."""
        return self._queue.waiting_messages(self.name)


@dataclass(frozen=True, slots=True)
class _Delivery:
    """Gives a handler of messages what a worker gives to one of jobs; it travels to a process as its function does."""

    function: OfMessage

    def __call__(self, lease: Lease) -> object:
        """Deliver."""
        return self.function(_message(lease))


@dataclass(frozen=True, slots=True)
class _DeliveryAsync:
    """The same around a coroutine function."""

    function: OfMessage

    async def __call__(self, lease: AsyncLease) -> object:
        """Deliver."""
        return await cast("Awaitable[object]", self.function(_message(lease)))


def _message(lease: Lease | AsyncLease) -> Message:
    payload = lease.payload
    if not isinstance(payload, dict) or payload.keys() != {"key", "message"}:
        raise RecordError(f"job {lease.job_id} is no message of an outbox", job_id=lease.job_id)
    return Message(lease.job_id, payload["key"], payload["message"], lease.attempts)
