"""Reading: one moment of the file, on a connection that waits for no writer and keeps none waiting.

Invariant: a snapshot ends with its `with` block, whatever ends that; one that stayed open would keep the write-ahead
log from being copied back (DESIGN §3).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from litequeue.clock import Clock
from litequeue.sqlite.channel import TRIES, Channel
from litequeue.sqlite.failures import meaning
from litequeue.sqlite.handle import Handle
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.tripwire import AFTER_COMMIT


@contextmanager
def opened(handle: Handle, clock: Clock) -> Iterator[Reader]:
    """Open a snapshot.

    Raises:
        QueueBusy: another thread reads for longer than `busy_timeout`.
        QueueClosed, StorageLost: the handle is of no more use.
    """
    deadline = handle.deadline()
    channel = handle.reader
    try:
        channel.take(deadline)
        connection = handle.ready(channel, deadline)
        channel.patience.deadline = deadline
        cursor = channel.cursor(connection)
        cursor.execute("BEGIN")
        yield channel.agreement.reader(connection, cursor, clock)
        cursor.execute("COMMIT")
        handle.verify(channel, AFTER_COMMIT)
    except Exception as exc:
        known = meaning(exc, handle.place.path)
        if known is not exc:
            raise known from exc
        raise
    finally:
        cut_off: BaseException | None = None
        for _ in TRIES:
            try:
                _end(channel)
                break
            except BaseException as again:  # noqa: BLE001 - raised below, once the turn is another's
                cut_off = again
        if cut_off is not None:
            raise cut_off


def _end(channel: Channel) -> None:
    if channel.is_mine():
        connection = channel.connection
        if connection is not None and connection.in_transaction:
            channel.drop_cursor()
            connection.execute("ROLLBACK")
        channel.give()
