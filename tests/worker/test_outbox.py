"""Delivery of an outbox by workers, in each mode: each message is told of in the order of its key (V14, G3, G4)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import outbox_parts
import pytest
from meeting import Running, lines, until

from litequeue import JobState, Message, Outbox, UsageError, current_async_lease, current_lease

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litequeue import Queue
    from litequeue.worker.worker import Mode

KEYS = ("a", "b", "c")
EACH = 20


@pytest.fixture
def outbox(queue: Queue) -> Outbox:
    """Give an outbox whose messages are tried again at once, with some in it."""
    queue.set("backoff_base", 0, "outbox:mail")
    outbox = Outbox(queue, "mail")
    with queue.transaction() as tx:
        for n in range(EACH):
            for key in KEYS:
                outbox.put(tx, n, key=key)
    return outbox


def test_each_message_is_delivered_in_the_order_of_its_key(outbox: Outbox, mode: Mode) -> None:
    """Keys go side by side, and one that failed is tried again before those behind it (G4)."""
    told: list[tuple[str | None, object]] = []
    busy: set[str | None] = set()
    lock = threading.Lock()

    def send(message: Message) -> str:
        with lock:
            assert message.key not in busy
            busy.add(message.key)
        try:
            if message.attempts == 1 and message.body in {3, 7}:
                raise OSError("the line is down")
            told.append((message.key, message.body))
            lease = current_async_lease() if mode == "asyncio" else current_lease()
            assert lease.job_id == message.id
            return "told"
        finally:
            with lock:
                busy.remove(message.key)

    async def send_async(message: Message) -> str:
        return send(message)

    handler = send_async if mode == "asyncio" else send
    ending = outbox.deliver(handler, mode=mode, concurrency=4, until_empty=True, maintenance=False).run()
    assert (ending.completed, ending.failed) == (len(KEYS) * EACH, len(KEYS) * 2)
    for key in KEYS:
        assert [body for of_key, body in told if of_key == key] == list(range(EACH))
    assert (outbox.waiting(), outbox.stats().counts[JobState.COMPLETED]) == (0, len(KEYS) * EACH)


def test_processes_deliver_too(outbox: Outbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler is found there by its name (G4)."""
    monkeypatch.setenv(outbox_parts.FOLDER, str(tmp_path))
    worker = outbox.deliver(
        outbox_parts.send, mode="processes", concurrency=2, timeout=60, until_empty=True, maintenance=False
    )
    assert worker.run().completed == len(KEYS) * EACH
    told = lines(tmp_path, "told")
    for key in KEYS:
        assert [int(n) for of_key, n in told if of_key == key] == list(range(EACH))


def test_a_message_that_dies_blocks_its_key_and_no_other(queue: Queue, outbox: Outbox) -> None:
    """Until an operator says what is to become of it; a worker that waits hears of that (G6, V7)."""
    queue.set("max_attempts", 2, "outbox:mail")
    told: list[tuple[str | None, object]] = []

    def send(message: Message) -> None:
        if (message.key, message.body) == ("a", 5):
            raise ValueError("no such address")
        told.append((message.key, message.body))

    running = Running(outbox.deliver(send, maintenance=False))
    try:
        until(lambda: len(outbox.dead()) == 1 and len(told) == 2 * EACH + 5, "all but those behind the dead one")
        (dead,) = outbox.dead()
        assert (dead.attempts, dead.payload) == (2, {"key": "a", "message": 5})
        outbox.discard(dead.job_id)
        until(lambda: len(told) == len(KEYS) * EACH - 1, "the rest")
    finally:
        running.worker.stop()
        running.join()
    assert [body for key, body in told if key == "a"] == [n for n in range(EACH) if n != 5]


@pytest.mark.parametrize("handler", [None, "send", lambda: None, outbox_parts.NotAFunction])
def test_a_handler_that_cannot_work_is_refused(outbox: Outbox, handler: Callable[[Message], object]) -> None:
    """At once, not at the first message (§6)."""
    with pytest.raises(UsageError, match="handler"):
        outbox.deliver(handler)
