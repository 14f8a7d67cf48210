"""The verbs of outboxes, each written once; see `verbs`.

Invariant: all that can be checked or encoded without the write lock is, before it is taken. Leaves out: delivery, which
is a worker's (`outbox`).
"""

from __future__ import annotations

from uuid import UUID

from litequeue import arguments, codec
from litequeue.arguments import OwnScope
from litequeue.model import Enqueued
from litequeue.sqlite import outboxing, relaying
from litequeue.sqlite.doing import Doing
from litequeue.sqlite.outboxing import EncodedMessage


class OutboxVerbs(Doing):
    """What is said of outboxes, by their names; `Outbox` has what delivers."""

    def put_message(
        self, outbox: str, message: object, *, key: str | None, message_id: UUID | str | None = None
    ) -> Enqueued:
        """Put a message into an outbox; return its id and whether it is new.

        `message` is any msgpack value. Messages of one `key` are delivered one after the other, in the order in which
        they were committed; one with the key `None` in no order at all. A `message_id` that the outbox has already, or
        whose job is still there (`completed_retention`, `cancelled_retention`), is the same message: nothing is put.

        Raises:
            UsageError: an argument out of its bounds.
            PayloadError: the message cannot be stored, or is larger than `max_payload`.
            DuplicateJob: the `message_id` belongs to a job, or to a message of another outbox.
            QueueFull: `max_bytes`, or the room left on the disk, forbids it.
        """
        encoded = EncodedMessage(
            scope_of(outbox),
            None if key is None else arguments.text("key", key),
            None if message_id is None else arguments.job_id("message_id", message_id),
            codec.encode({"key": key, "message": message}),
        )
        return self._do(lambda context: outboxing.put(context, encoded), durable=True)

    def discard_message(self, outbox: str, message_id: UUID | str) -> None:
        """Take a message away that is not delivered, dead or not; the next one of its key has its turn.

        Raises:
            UsageError: an argument out of its bounds.
            JobNotFound: the outbox has no such message.
            InvalidTransition: it is delivered, or was discarded.
        """
        scope = scope_of(outbox)
        given = arguments.job_id("message_id", message_id)
        self._do(lambda context: outboxing.discard(context, scope, given), durable=True)

    def waiting_messages(self, outbox: str) -> int:
        """Count the messages of an outbox that wait behind another one of their key; reads each of them once.

        Raises:
            UsageError: a bad name.
        """
        scope = scope_of(outbox)
        return self._look(lambda reader: outboxing.waiting(reader, scope))


def scope_of(outbox: str) -> OwnScope:
    """Return the scope of an outbox.

    Raises:
        UsageError: a bad name.
    """
    return OwnScope(relaying.SCOPE_PREFIX + arguments.outbox_name(outbox))
