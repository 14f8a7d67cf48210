"""Applications that enqueue on their own connection, killed before, inside and after their COMMIT, beside real workers.

The row and its job are there both or neither, whenever the kill came, and no worker ever has a job whose row is not
there (V14, G2, G3, G5).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import JobState, Lease, Maintenance, Queue
from litequeue.sqlite import arrivals, ofd
from litequeue.sqlite.examining import problems
from litequeue.sqlite.watching import Listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Attached
    from tests.faults.children import Children, Parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ofd.HAS_LOCKS, reason="this platform does not tell who has died"),
]

ORDERS = 300
"""That are to be there, at the least, before the applications are told to stop."""
KILLS = 12
FAR_S = 3600.0


def connect(path: str) -> apsw.Connection:
    """Open the application's database as an application does."""
    connection = apsw.Connection(path)
    connection.set_busy_timeout(30_000)
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, done INTEGER NOT NULL DEFAULT 0) STRICT"
    )
    return connection


def place(connection: apsw.Connection, q: Attached) -> int:
    """Write an order, and the job for it."""
    connection.execute("INSERT INTO orders DEFAULT VALUES")
    order = connection.last_insert_rowid()
    q.enqueue("order", order)
    assert connection.last_insert_rowid() == order
    return order


def count(connection: apsw.Connection, condition: str) -> int:
    """Count the orders of a condition."""
    ((found,),) = connection.execute(f"SELECT count(*) FROM orders WHERE {condition}").fetchall()
    assert isinstance(found, int)
    return found


# --- one kill, at one point


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _commit_and_die(parent: Parent, path: str, point: str) -> None:
    """Place an order and die at one point; SQLite's own callbacks lead there."""
    connection = connect(path)
    if point == "after the commit, before the ring":  # of the traces, the application's is the first one here
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, lambda event: _die() if str(event["sql"]) == "COMMIT" else None)
    q = litequeue.attach(connection)
    connection.execute("BEGIN IMMEDIATE")
    place(connection, q)
    parent.say("inside")
    if point == "in the transaction":
        _die()
    if point == "in the commit, before anything is written":
        connection.set_commit_hook(lambda: bool(_die()))  # type: ignore[func-returns-value] # it does not return
    if point == "in the commit, once it is in the log":
        connection.set_wal_hook(lambda *_: int(bool(_die())))  # type: ignore[func-returns-value] # the same
    connection.execute("COMMIT")
    _die()


POINTS = {
    "in the transaction": 0,
    "in the commit, before anything is written": 0,
    "after the commit, before the ring": 1,
    "in the commit, once it is in the log": 1,
    "after all": 1,
}


def _work_once(parent: Parent, path: str) -> object:
    """Wait for a job, as a worker does; return its payload."""
    with litequeue.open(path) as queue:
        parent.say("waits")
        while True:
            lease = queue.lease_next(["order"])
            if lease is not None:
                lease.complete()
                return lease.payload
            queue.wait(30)


@pytest.mark.parametrize(("point", "expected"), POINTS.items(), ids=list(POINTS))
def test_a_kill_at_any_point_leaves_both_or_neither(path: str, processes: Children, point: str, expected: int) -> None:
    """And a worker that waits has what was committed, also when nobody lived to ring for it (V14, G5)."""
    connection = connect(path)
    q = litequeue.attach(connection)
    worker = processes.start(_work_once, path)
    assert worker.hear() == "waits"
    child = processes.start(_commit_and_die, path, point)
    assert child.hear() == "inside"
    assert child.status() == -signal.SIGKILL
    assert count(connection, "1") == expected
    if not expected:
        assert q.stats().total == 0
        with connection:
            assert place(connection, q) == 1
    assert worker.result() == 1
    assert q.stats().counts[JobState.COMPLETED] == q.stats().total == 1
    connection.close()
    assert problems(path) == []


# --- many kills, whenever they come


def _apply(parent: Parent, path: str, seed: int) -> None:
    """Place orders, some in one transaction, some of them taken back, until there are enough."""
    draw = random.Random(seed)
    connection = connect(path)
    q = litequeue.attach(connection)
    while count(connection, "1") < ORDERS:
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(draw.randint(1, 3)):
            place(connection, q)
        if draw.random() < 0.2:
            connection.execute("SAVEPOINT second_thoughts")
            place(connection, q)
            connection.execute("ROLLBACK TO second_thoughts")
        connection.execute("ROLLBACK" if draw.random() < 0.2 else "COMMIT")
    parent.say("enough")


def _work(parent: Parent, path: str, seed: int) -> None:
    """Do orders by two connections of one process: the worker's handle leases, the application's own completes."""
    draw = random.Random(seed)
    connection = connect(path)
    q = litequeue.attach(connection)

    def handle(lease: Lease) -> None:
        """Note that it was done, and complete, in one commit of the application's; take that back now and then."""
        for end in ("ROLLBACK", "COMMIT") if draw.random() < 0.2 else ("COMMIT",):
            connection.execute("BEGIN IMMEDIATE")
            try:
                q.complete(lease)
                connection.execute("UPDATE orders SET done = done + 1 WHERE id = ?", (lease.payload,))
                if connection.changes() != 1:
                    parent.say(f"no order {lease.payload}")
            except litequeue.LeaseConflict:  # reaped: another one does it
                connection.execute("ROLLBACK")
                return
            connection.execute(end)

    is_over = False

    def stop(*_: object) -> None:
        nonlocal is_over
        is_over = True

    signal.signal(signal.SIGTERM, stop)
    parent.say("ready")
    with litequeue.open(path, durability="normal", busy_timeout=60) as queue:
        while not is_over:
            lease = queue.lease_next(["order"])
            if lease is None:
                queue.wait(0.5, ["order"])
            else:
                handle(lease)
    parent.say("drained")


def test_each_order_is_done_once_whoever_is_killed_when(path: str, processes: Children) -> None:
    """As many jobs as rows, each done exactly once, none before its row was there, and the file is sound (V14, G3)."""
    connection = connect(path)
    litequeue.attach(connection).close()
    with litequeue.open(path, durability="normal", busy_timeout=60) as queue:
        queue.set("backoff_base", 0)
        queue.set("max_attempts", 1000)
        seeds = itertools.count(random.randrange(2**32))
        writers = [processes.start(_apply, path, next(seeds)) for _ in range(2)]
        workers = [processes.start(_work, path, next(seeds)) for _ in range(2)]
        maintenance = Maintenance(queue)
        for kill in range(KILLS):
            _until(partial(_has, connection, (kill + 1) * ORDERS // (2 * KILLS)), maintenance)
            crew, run = (writers, _apply) if kill % 2 else (workers, _work)
            crew.pop(0).kill()
            crew.append(processes.start(run, path, next(seeds)))
        assert [child.hear() for child in writers] == ["enough"] * 2
        _until(partial(_is_done, queue), maintenance)
        for child in workers:
            assert child.hear() == "ready"
            child.signal(signal.SIGTERM)
        assert [child.hear() for child in workers] == ["drained"] * 2
        assert count(connection, "1") == queue.stats().counts[JobState.COMPLETED] == queue.stats().total >= ORDERS
        assert count(connection, "done <> 1") == 0
        payloads = sorted(job.payload for job in queue.list(limit=10_000) if isinstance(job.payload, int))
        assert payloads == [row[0] for row in connection.execute("SELECT id FROM orders ORDER BY id").fetchall()]
    connection.close()
    assert problems(path) == []


def _has(connection: apsw.Connection, orders: int) -> bool:
    return count(connection, "1") >= orders


def _is_done(queue: Queue) -> bool:
    return all(state.is_terminal for state, number in queue.stats().counts.items() if number)


def _until(condition: Callable[[], bool], maintenance: Maintenance) -> None:
    give_up = time.monotonic() + 100
    while not condition():
        maintenance.run_once()
        assert time.monotonic() < give_up, "nothing goes on"


# --- waking


def _wait_and_take(parent: Parent, path: str) -> object:
    """Wait for a job, woken by rings alone; say each time that this goes to sleep."""
    arrivals._NET_S = FAR_S
    sleep = Listener.sleep

    def tell(listener: Listener, seconds: float) -> bool:
        parent.say("asleep")
        return sleep(listener, seconds)

    pytest.MonkeyPatch().setattr(Listener, "sleep", tell)
    with litequeue.open(path) as queue:
        while True:
            lease = queue.lease_next(["order"])
            if lease is not None:
                lease.complete()
                return lease.payload
            assert queue.wait(FAR_S, ["order"])


def test_a_waiting_process_is_woken_by_the_commit_and_by_nothing_before(path: str, processes: Children) -> None:
    """It sleeps through a rollback and through the transaction, without a net (DESIGN §4)."""
    connection = connect(path)
    q = litequeue.attach(connection)
    child = processes.start(_wait_and_take, path)
    assert child.hear() == "asleep"
    connection.execute("BEGIN IMMEDIATE")
    place(connection, q)
    connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    order = place(connection, q)
    connection.execute("COMMIT")
    assert child.result() == order  # had it been woken before, it would have said that it sleeps again
    connection.close()


# --- forks


def _fork_beside_an_attached_connection(parent: Parent, path: str) -> None:
    connection = connect(path)
    q = litequeue.attach(connection)
    with litequeue.open(path) as queue, connection:

        def child() -> None:
            fresh = apsw.Connection(path)
            for use in (q.stats, queue.stats, lambda: litequeue.open(path), lambda: litequeue.attach(fresh)):
                with pytest.raises(litequeue.UsageError, match="fork"):
                    use()
            with pytest.raises(litequeue.UsageError, match="fork"):
                q.enqueue("order")
            q.close()

        place(connection, q)
        parent.join(parent.fork(child))
        place(connection, q)
    assert q.stats().total == 2
    connection.close()


def test_a_forked_child_uses_neither_the_connection_nor_the_file(path: str, processes: Children) -> None:
    """SQLite in it believes in locks that it does not hold; the parent goes on (§6 "use after fork", DESIGN §3)."""
    processes.run(_fork_beside_an_attached_connection, path)


def _fork_after_closing(parent: Parent, path: str) -> None:
    connection = connect(path)
    with litequeue.attach(connection) as q, connection:
        place(connection, q)
    connection.close()

    def child() -> None:
        own = connect(path)
        with litequeue.attach(own) as q, own:
            place(own, q)
        with litequeue.open(path) as queue:
            assert queue.stats().total == 2
        own.close()

    parent.join(parent.fork(child))


def test_a_child_opens_and_attaches_by_itself_when_nothing_was_open(path: str, processes: Children) -> None:
    """A connection that was closed before the fork is nobody's trouble (§6 "use after fork")."""
    processes.run(_fork_after_closing, path)


def _be_interrupted(parent: Parent, path: str) -> int:
    """Place orders while a timer interrupts, again and again; return how many the application knows of."""
    connection = connect(path)
    q = litequeue.attach(connection)
    draw = random.Random()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    for _ in range(300):
        with contextlib.suppress(KeyboardInterrupt):
            try:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.00005, 0.002))
                connection.execute("BEGIN IMMEDIATE")
                place(connection, q)
                connection.execute("COMMIT")
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    with connection:
        place(connection, q)
    assert count(connection, "1") == q.stats().total
    parent.say("sound")
    return count(connection, "1")


def _jobs(path: str) -> int:
    with litequeue.open(path) as queue:
        return queue.stats().total


def test_interrupts_leave_no_row_without_its_job(path: str, processes: Children) -> None:
    """A Ctrl-C in the midst of a verb or of a commit, and the handle works on (G11)."""
    child = processes.start(_be_interrupted, path)
    assert child.hear() == "sound"
    assert child.result() == _jobs(path)
    assert problems(path) == []
