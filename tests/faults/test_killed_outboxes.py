"""Outboxes whose writers and deliverers are killed: rows and messages, both or neither, in order (V14, G2, G4, G5)."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import Maintenance, Message, Outbox, Queue
from litequeue.sqlite import ofd
from litequeue.sqlite.examining import problems

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.children import Children, Parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ofd.HAS_LOCKS, reason="this platform does not tell who has died"),
]

KEYS = ("a", "b", "c")
ROWS = 400
"""That are to be there, at the least, before the writers are told to stop."""
KILLS = 12


def prepare(queue: Queue) -> None:
    """Make the table that messages tell of; nothing is ever dead, and back-off takes no time."""
    with queue.transaction() as tx:
        tx.execute("CREATE TABLE orders (key TEXT NOT NULL, n INTEGER NOT NULL)")
        tx.set("backoff_base", 0, "outbox:mail")
        tx.set("max_attempts", 1000, "outbox:mail")


def orders(queue: Queue) -> list[tuple[object, object]]:
    """Return the rows, in the order of their commits within each key."""
    with queue.transaction() as tx:
        return [(key, n) for key, n in tx.execute("SELECT key, n FROM orders ORDER BY key, n")]


def place(tx: litequeue.Transaction, outbox: Outbox, key: str) -> None:
    """Write the next order of a key, and the message that tells of it."""
    ((n,),) = tx.execute("SELECT count(*) FROM orders WHERE key = ?", (key,))
    tx.execute("INSERT INTO orders VALUES (?, ?)", (key, n))
    outbox.put(tx, [key, n], key=key)


def _die_inside(parent: Parent, path: str) -> None:
    with litequeue.open(path) as queue, queue.transaction() as tx:
        place(tx, Outbox(queue, "mail"), "a")
        parent.say("inside")
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_writer_that_dies_before_the_commit_leaves_neither(path: str, processes: Children) -> None:
    """Nor was the message ever to be had (V14)."""
    with litequeue.open(path) as queue:
        prepare(queue)
        child = processes.start(_die_inside, path)
        assert child.hear() == "inside"
        assert child.status() == -signal.SIGKILL
        outbox = Outbox(queue, "mail")
        assert (orders(queue), outbox.stats().total, outbox.waiting()) == ([], 0, 0)


def _write(parent: Parent, path: str, seed: int) -> None:
    """Place orders, some in one transaction, until there are enough of them."""
    draw = random.Random(seed)
    with litequeue.open(path, durability="normal") as queue:
        outbox = Outbox(queue, "mail")
        is_enough = False
        while not is_enough:
            with queue.transaction() as tx:
                for _ in range(draw.randint(1, 3)):
                    place(tx, outbox, draw.choice(KEYS))
                is_enough = tx.execute("SELECT count(*) FROM orders")[0][0] >= ROWS  # type: ignore[operator] # a count
    parent.say("enough")


def _deliver(parent: Parent, path: str, told: str, seed: int) -> None:
    """Deliver what there is, now and then in vain, until the test says that it is over; tell of each in one write."""
    draw = random.Random(seed)
    file = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def send(message: Message) -> None:
        os.write(file, f"{message.id} {message.key} {message.body}\n".encode())
        if draw.random() < 0.1:
            raise OSError("the line is down")

    with litequeue.open(path, durability="normal") as queue:
        Outbox(queue, "mail").deliver(send, concurrency=3, maintenance=False).run()
    parent.say("drained")


def test_each_order_is_told_of_in_its_order_whoever_is_killed_when(
    path: str, processes: Children, tmp_path: Path
) -> None:
    """What was committed is delivered, nothing else is, and the first deliveries of a key keep its order (G2, G4)."""
    told = str(tmp_path / "told")
    Path(told).touch()
    with litequeue.open(path, durability="normal") as queue:
        prepare(queue)
        outbox = Outbox(queue, "mail")
        seeds = itertools.count(random.randrange(2**32))
        writers = [processes.start(_write, path, next(seeds)) for _ in range(2)]
        senders = [processes.start(_deliver, path, told, next(seeds)) for _ in range(2)]
        maintenance = Maintenance(queue)
        for kill in range(KILLS):
            _until(partial(_has, queue, (kill + 1) * ROWS // (2 * KILLS)), maintenance)
            if kill % 2:
                writers.pop(0).kill()
                writers.append(processes.start(_write, path, next(seeds)))
            else:
                senders.pop(0).kill()
                senders.append(processes.start(_deliver, path, told, next(seeds)))
        assert [child.hear() for child in writers] == ["enough"] * 2
        _until(lambda: _undelivered(outbox) == 0, maintenance)
        for child in senders:
            child.signal(signal.SIGTERM)
        assert [child.hear() for child in senders] == ["drained"] * 2
        lines = [line.split(maxsplit=2) for line in Path(told).read_text(encoding="utf-8").splitlines()]
        expected = orders(queue)
        assert len(expected) >= ROWS
        firsts = dict.fromkeys((message_id, key, body) for message_id, key, body in lines)
        for key in KEYS:
            wanted = [f"['{key}', {n}]" for of_key, n in expected if of_key == key]
            assert [body for _, of_key, body in firsts if of_key == key] == wanted
        assert problems(path) == []


def _undelivered(outbox: Outbox) -> int:
    counts = outbox.stats().counts
    return outbox.waiting() + sum(count for state, count in counts.items() if not state.is_terminal)


def _has(queue: Queue, rows: int) -> bool:
    return len(orders(queue)) >= rows


def _until(condition: Callable[[], bool], maintenance: Maintenance) -> None:
    give_up = time.monotonic() + 90
    while not condition():
        maintenance.run_once()
        assert time.monotonic() < give_up, "nothing goes on"
