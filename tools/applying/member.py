"""A process of a run with applications: one that places orders, or one that does what is to be done about them.

Owns: the ways (`Till`) of those that have the queue open by litequeue, and the workers. Invariant: whoever handles an
order looks, in the transaction that says so, whether its row is there, and writes down what it has seen.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import apsw

import litequeue
from applying.orders import ApplicationOrders
from applying.placing import TABLES, Clerk, Order, Till
from killing.strikes import Striker
from killing.worker import BUSY_S, LEASE_S, OPEN_STATES, WAIT_S, Orders, reported
from litequeue import ANY, Lease, Message, NewJob, Outbox, Queue, QueueBusy, Transaction, Worker

OUTBOX = "mail"
RECEIPT = "receipt"
LEASE_ALONE = "lease-alone"
TOLD_LATE = "told-late"
CONTROLS = {
    LEASE_ALONE: "a step is leased in a transaction of its own, before that of its work (lease-in-transaction only)",
    TOLD_LATE: "a message is taken for delivered when it was handed in, and sent with the next one (outbox only)",
}
STRANGER = Path(__file__).with_name("stranger.py")
_RECEIVED = "INSERT INTO receipts (order_id, steps) SELECT ?1, count(*) FROM handled WHERE order_id = ?1"
_SENT = "INSERT INTO handled (order_id, job_id, rows) SELECT ?1, ?2, count(*) FROM orders WHERE id = ?1"


def prepare(orders: Orders) -> None:
    """Make the queue and the application's tables; nothing is ever dead, and back-off takes next to no time."""
    with litequeue.open(orders.queue, durability=orders.durability) as queue, queue.transaction() as tx:
        for table in TABLES:
            tx.execute(table)
        settings = {"lease_ttl": LEASE_S, "backoff_base": 0.02, "backoff_cap": 0.1, "max_attempts": 1000}
        for name, value in settings.items():
            tx.set(name, value)
        tx.set("completed_retention", None)


def main(orders: Orders) -> int:
    """Be one of them; return the exit status."""
    if not isinstance(orders, ApplicationOrders):
        raise TypeError(orders)
    if orders.is_application and orders.way == "dbapi":
        _become_a_stranger(orders)
    if orders.appointment is not None:
        Striker(orders.appointment, orders.said("died")).install()
    return reported(orders, _Member(orders).run)


def _become_a_stranger(orders: ApplicationOrders) -> None:
    """Be another program, under the same process id: this one has apsw in it."""
    appointment = orders.appointment
    point, times = ("", 0) if appointment is None else (appointment.point, appointment.times)
    told = (orders.queue, orders.name, orders.seed, orders.said("ledger"), orders.durability, orders.control or "")
    words = [sys.executable, str(STRANGER), *map(str, (*told, point, times))]
    paths = [str(STRANGER.parent.parent), str(Path(litequeue.__file__).parent.parent)]
    os.execve(sys.executable, words, os.environ | {"PYTHONPATH": os.pathsep.join(paths)})  # noqa: S606 - ourselves


class _QueueTill:
    """Commits rows and jobs in transactions of the queue's."""

    busy = (QueueBusy,)

    def __init__(self, queue: Queue, *, is_outbox: bool) -> None:
        self._queue = queue
        self._outbox = Outbox(queue, OUTBOX) if is_outbox else None
        self._tx: Transaction | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write."""
        with self._queue.transaction() as self._tx:
            yield

    def execute(self, sql: str, parameters: Sequence[str | int] = ()) -> Sequence[tuple[object, ...]]:
        """Run the application's SQL."""
        assert self._tx is not None  # noqa: S101 - only in a transaction
        return self._tx.execute(sql, parameters)

    def promise(self, order: Order) -> None:
        """Put a message about an order, or enqueue a job."""
        assert self._tx is not None  # noqa: S101 - only in a transaction
        if self._outbox is None:
            self._tx.enqueue("order", order.order_id)
        else:
            self._outbox.put(self._tx, order.order_id, key=order.key)


class _AttachedTill:
    """Enqueues in the transactions of the application's own apsw connection."""

    busy = (apsw.BusyError, QueueBusy)

    def __init__(self, path: Path, durability: str) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.set_busy_timeout(round(BUSY_S * 1000))
        self._connection.execute(f"PRAGMA synchronous = {'NORMAL' if durability == 'normal' else 'FULL'}").fetchall()
        self._queue = litequeue.attach(self._connection)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def execute(self, sql: str, parameters: Sequence[str | int] = ()) -> Sequence[tuple[object, ...]]:
        """Run the application's SQL."""
        return self._connection.execute(sql, tuple(parameters)).fetchall()

    def promise(self, order: Order) -> None:
        """Enqueue a job about an order."""
        self._queue.enqueue("order", order.order_id)


class _Member:
    def __init__(self, orders: ApplicationOrders) -> None:
        self._orders = orders
        self._random = Random(f"{orders.seed} {orders.name}")
        self._parent = os.getppid()
        self._is_stopping = False
        self._at_work: Worker | None = None
        self._unsent: list[Message] = []

    def run(self, _: Orders) -> None:
        """Do what it is there for, until it is told to stop, or until nothing is left."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        orders = self._orders
        if orders.is_application:
            with self._till() as till:
                ledger = orders.said("ledger")
                Clerk(till, orders.name, self._random, ledger, orders.control).work(self._is_over)
        elif orders.is_last:
            self._open(self._finish)
        elif orders.way == "lease-in-transaction" and orders.number % 4 == 1:
            self._open(self._step)
        else:
            self._open(self._serve)

    def _stop(self, *_: object) -> None:
        self._is_stopping = True
        if self._at_work is not None:
            self._at_work.stop()

    def _is_over(self) -> bool:
        return self._is_stopping or os.getppid() != self._parent

    def _open(self, work: Callable[[Queue], object]) -> None:
        """Open the queue for some work; a file that somebody else is busy with for long is tried again."""
        while not self._is_over():
            with suppress(QueueBusy):
                path, durability = self._orders.queue, self._orders.durability
                with litequeue.open(path, durability=durability, busy_timeout=BUSY_S, create=False) as queue:
                    work(queue)
                    return

    @contextmanager
    def _till(self) -> Iterator[Till]:
        orders = self._orders
        if orders.way == "attach":
            while True:
                try:
                    till = _AttachedTill(orders.queue, orders.durability)
                except (apsw.BusyError, QueueBusy):
                    continue
                yield till
                return
        while True:
            try:
                queue = litequeue.open(orders.queue, durability=orders.durability, busy_timeout=BUSY_S, create=False)
            except QueueBusy:
                continue
            with queue:
                yield _QueueTill(queue, is_outbox=orders.way == "outbox")
            return

    # --- doing what is to be done

    def _serve(self, queue: Queue, *, until_empty: bool = False) -> None:
        """Let a worker do what there is."""
        self._at_work = self._worker(queue, until_empty=until_empty)
        if self._is_over():
            self._at_work.stop()
        self._at_work.run()

    def _worker(self, queue: Queue, *, until_empty: bool) -> Worker:
        match self._orders.way:
            case "outbox":
                send = self._send_late if self._orders.control == TOLD_LATE else self._send
                outbox = Outbox(queue, OUTBOX)
                return outbox.deliver(lambda message: send(queue, message), concurrency=3, until_empty=until_empty)
            case "lease-in-transaction":
                return Worker(queue, {RECEIPT: self._receive}, concurrency=2, until_empty=until_empty)
            case _:
                return Worker(queue, {"order": self._handle}, concurrency=3, until_empty=until_empty)

    def _handle(self, lease: Lease) -> None:
        """Write down, in the commit that completes the job, whether the row is there."""
        self._hesitate()
        with lease.transaction() as tx:
            tx.execute(_SENT, (str(lease.payload), str(lease.job_id)))

    def _receive(self, lease: Lease) -> None:
        """Write down whether the step that this follows on is there."""
        self._hesitate()
        with lease.transaction() as tx:
            tx.execute(_RECEIVED, (str(lease.payload),))

    def _send(self, queue: Queue, message: Message) -> None:
        """Write down what the world hears, which is not in the commit that takes the message for delivered."""
        self._hesitate()
        with queue.transaction() as tx:
            tx.execute(_SENT, (str(message.body), str(message.id)))
        self._hesitate()

    def _send_late(self, queue: Queue, message: Message) -> None:
        late, self._unsent = self._unsent, [message]
        for one in late:
            self._send(queue, one)

    def _step(self, queue: Queue) -> None:
        """Do steps, each in the transaction that leases it."""
        while not self._is_over():
            with suppress(ArithmeticError, QueueBusy):
                if not self._has_stepped(queue):
                    queue.wait(5 * WAIT_S, ["order"])

    def _has_stepped(self, queue: Queue) -> bool:
        if self._orders.control == LEASE_ALONE:
            lease = queue.lease_next(["order"])
            if lease is not None:
                self._hesitate()
                with lease.transaction() as tx:
                    self._do_step(tx, lease)
            return lease is not None
        with queue.lease_in_transaction(["order"]) as (tx, job):
            if job is not None:
                self._do_step(tx, job)
        return job is not None

    def _do_step(self, tx: Transaction, lease: Lease) -> None:
        tx.execute(_SENT, (str(lease.payload), str(lease.job_id)))
        tx.enqueue_many([NewJob(RECEIPT, lease.payload)])
        self._hesitate()

    def _hesitate(self) -> None:
        """Take some time, or fail."""
        time.sleep(self._random.choice((0, 0, 0.001, 0.01)))
        if self._random.random() < 0.05:  # noqa: PLR2004 - now and then
            raise ArithmeticError

    def _finish(self, queue: Queue) -> None:
        """Do all that is left, what others hold included, once that is free."""
        while not self._is_over():
            with suppress(ArithmeticError, QueueBusy):
                while self._orders.way == "lease-in-transaction" and self._has_stepped(queue):
                    pass
                self._serve(queue, until_empty=True)
                counts = queue.stats(ANY).counts
                if not any(counts[state] for state in OPEN_STATES):
                    return
            time.sleep(WAIT_S)
