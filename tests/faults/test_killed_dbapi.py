"""Applications that enqueue through `sqlite3`, killed beside real workers: both or neither, nothing early (V14, G2).

What an application does, its children do, which never load apsw; the test and the workers have the file open as a
queue. The names that need apsw are loaded where a process is one of those.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sqlite3
import sys
import threading
import time
import warnings
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import litequeue
import litequeue.dbapi

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Lease, Queue
    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow

FAR_S = 3600.0
ORDERS = 500
"""That are to be there, at the least, before the applications are told to stop."""
KILLS = 12
APPLICATIONS = 3
WORKERS = 2


def prepare(queue: Queue) -> None:
    """Make the application's tables; no job is ever dead, and back-off takes no time."""
    with queue.transaction() as tx:
        tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        tx.execute("CREATE TABLE mailed (id INTEGER PRIMARY KEY, early INTEGER NOT NULL)")
        tx.set("backoff_base", 0)
        tx.set("max_attempts", 1000)


def application(path: str) -> sqlite3.Connection:
    """Open the file as an application does."""
    assert "apsw" not in sys.modules
    warnings.filterwarnings("ignore", "this process writes")
    connection = sqlite3.connect(path, timeout=60, isolation_level="IMMEDIATE")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    return connection


def place(connection: sqlite3.Connection) -> int:
    """Write an order and the job that it means, in one transaction that stays open; return its number."""
    order = connection.execute("INSERT INTO orders DEFAULT VALUES").lastrowid
    assert order is not None
    litequeue.dbapi.enqueue(connection, "mail", order)
    return order


def order_of(lease: Lease) -> int:
    """Return the order that a job is about."""
    assert isinstance(lease.payload, int)
    return lease.payload


def _die(parent: Parent, path: str, when: str) -> None:
    connection = application(path)
    place(connection)
    if when == "after":
        connection.commit()
    parent.say("placed")
    if when == "waits":
        parent.hear()
    os.kill(os.getpid(), signal.SIGKILL)


def _count(queue: Queue) -> tuple[int, int]:
    with queue.transaction() as tx:
        ((orders,),) = tx.execute("SELECT count(*) FROM orders")
    assert isinstance(orders, int)
    return orders, queue.stats().total


@pytest.mark.parametrize(("when", "kept"), [("before", 0), ("after", 1)])
def test_an_application_that_dies_leaves_both_or_neither(path: str, processes: Children, when: str, kept: int) -> None:
    """By whether it had committed; and nobody has to help the next one to write (V14, G2, G5)."""
    with litequeue.open(path) as queue:
        prepare(queue)
        child = processes.start(_die, path, when)
        assert child.hear() == "placed"
        assert child.status() == -signal.SIGKILL
        assert _count(queue) == (kept, kept)
        leases = queue.lease_many(9)
        assert [order_of(lease) for lease in leases] == [1] * kept


def test_nothing_is_leased_before_the_commit(path: str, processes: Children) -> None:
    """However long the application's transaction is open; the handle's own writes wait for it, and go on then."""
    with litequeue.open(path, busy_timeout=0.1) as queue:
        prepare(queue)
        child = processes.start(_die, path, "waits")
        assert child.hear() == "placed"
        assert queue.stats().total == 0
        assert queue.lease_next() is None
        with pytest.raises(litequeue.QueueBusy):
            queue.enqueue("mail", 0)
        child.kill()
        assert _count(queue) == (0, 0)
    with litequeue.open(path) as queue:
        assert queue.enqueue("mail", 0).created


def _work(parent: Parent, path: str) -> None:
    """Mail the orders, until the test says that it is over; note those that are not there."""
    with litequeue.open(path, durability="normal") as queue:
        worker = litequeue.Worker(queue, {"mail": _mail}, concurrency=2)

        def stop() -> None:
            parent.hear()
            worker.stop()

        threading.Thread(target=stop, daemon=True).start()  # by a word, which may come before it hears signals
        worker.run()


def _mail(lease: Lease) -> None:
    with lease.transaction() as tx:
        is_there = bool(tx.execute("SELECT 1 FROM orders WHERE id = ?", (order_of(lease),)))
        tx.execute("INSERT INTO mailed VALUES (?, ?)", (order_of(lease), not is_there))


def test_a_job_of_an_application_that_dies_before_it_rings_is_run(path: str, processes: Children) -> None:
    """A worker that waits looks by itself, so the ring is only for its speed (G5, DESIGN §4)."""
    with litequeue.open(path) as queue:
        prepare(queue)
        worker = processes.start(_work, path)
        child = processes.start(_die, path, "after")
        assert child.status() == -signal.SIGKILL
        _until(lambda: _mailed(queue) == [(1, 0)])
        worker.say("stop")
        worker.result()


def _place_orders(parent: Parent, path: str, seed: int) -> None:
    """Place orders, some of which are rolled back, until there are enough of them."""
    draw = random.Random(seed)
    with closing(application(path)) as connection:
        while True:
            for _ in range(draw.randint(1, 3)):
                place(connection)
            ((orders,),) = connection.execute("SELECT count(*) FROM orders").fetchall()
            if draw.random() < 0.2:
                connection.rollback()
            else:
                connection.commit()
                litequeue.dbapi.ring(connection)
            if orders >= ORDERS:
                break
    assert "apsw" not in sys.modules
    parent.say("enough")


def test_each_order_has_its_job_and_is_mailed_once_whoever_is_killed_when(path: str, processes: Children) -> None:
    """What was committed is run, once in the file; nothing else is, and nothing before its commit (V14, G2, G3)."""
    from litequeue.sqlite.examining import problems  # noqa: PLC0415 - it brings apsw, and the applications must not

    with litequeue.open(path, durability="normal") as queue:
        prepare(queue)
        seeds = itertools.count(random.randrange(2**32))
        shops = [processes.start(_place_orders, path, next(seeds)) for _ in range(APPLICATIONS)]
        workers = [processes.start(_work, path) for _ in range(WORKERS)]
        for kill in range(KILLS):
            least = (kill + 1) * ORDERS // (2 * KILLS)
            _until(lambda least=least: _count(queue)[0] >= least)  # type: ignore[misc] # mypy infers no default
            if kill % 3:
                shops.pop(0).kill()
                shops.append(processes.start(_place_orders, path, next(seeds)))
            else:
                workers.pop(0).kill()
                workers.append(processes.start(_work, path))
        assert [child.hear() for child in shops] == ["enough"] * APPLICATIONS
        orders, jobs = _count(queue)
        assert orders == jobs >= ORDERS
        _until(lambda: len(_mailed(queue)) >= orders)
        for child in workers:
            child.say("stop")
        for child in workers:
            child.result()
        with queue.transaction() as tx:
            placed = [order for (order,) in tx.execute("SELECT id FROM orders ORDER BY id")]
        assert _mailed(queue) == [(order, 0) for order in placed]
        assert sorted(str(job.payload) for job in queue.list(limit=10_000)) == sorted(map(str, placed))
        assert problems(path) == []


def _wait(parent: Parent, path: str) -> object:
    """Wait for a job with nothing but a ring to end it; return its payload."""
    from litequeue.sqlite import arrivals  # noqa: PLC0415 - it brings apsw, and the applications must not
    from litequeue.sqlite.watching import Listener  # noqa: PLC0415 - the same

    patch = pytest.MonkeyPatch()
    patch.setattr(arrivals, "_NET_S", FAR_S)
    sleep = Listener.sleep

    def tell(listener: Listener, seconds: float) -> bool:
        parent.say("asleep")
        return sleep(listener, seconds)

    patch.setattr(Listener, "sleep", tell)
    with litequeue.open(path) as queue:
        while True:
            lease = queue.lease_next()
            if lease is not None:
                lease.complete()
                return lease.payload
            assert queue.wait(FAR_S)


def _place_and_ring(parent: Parent, path: str, target: str) -> None:
    connection = application(path)
    place(connection)
    parent.say("placed")
    parent.hear()
    connection.commit()
    litequeue.dbapi.ring(path if target == "path" else connection)


@pytest.mark.skipif(sys.platform not in {"linux", "darwin"}, reason="nobody hears bells here")
@pytest.mark.parametrize("target", ["path", "connection"])
def test_the_ring_wakes_who_waits_in_another_process(path: str, processes: Children, target: str) -> None:
    """It comes after the commit, so what it wakes finds the job (DESIGN §4)."""
    with litequeue.open(path) as queue:
        prepare(queue)
    waiter = processes.start(_wait, path)
    assert waiter.hear() == "asleep"
    shop = processes.start(_place_and_ring, path, target)
    assert shop.hear() == "placed"
    shop.say("commit")
    shop.result()
    heard = waiter.hear()
    while heard == "asleep":
        heard = waiter.hear()
    assert heard == "result 1"


def _mailed(queue: Queue) -> list[tuple[object, ...]]:
    with queue.transaction() as tx:
        return tx.execute("SELECT id, early FROM mailed ORDER BY id")  # type: ignore[return-value] # rows of values


def _until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < give_up, "nothing goes on"
