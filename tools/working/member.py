"""A process with a real worker in it, which may be killed, stopped or asked to end at any moment.

Owns: the worker, and beside it a maker of jobs, from the first line to the last. Invariant: once `Worker.run` has
returned this process gives nothing back by itself: what is left leased then is seen. Leaves out: what handlers do
(`doing`), and when the process is killed (`crew`).
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from random import Random
from uuid import UUID

import litequeue
from killing import tasks, worker
from killing.operating import SCOPES, Operator
from killing.worker import BUSY_S, OPEN_STATES, reported
from litequeue import (
    ANY,
    InvalidTransition,
    JobState,
    NewJob,
    Queue,
    QueueBusy,
    QueueFull,
    Worker,
    WorkerEvent,
)
from litequeue.model import Scope, SpecialScope
from working import telling
from working.doing import MOST_PAYLOAD_BYTES
from working.handlers import handlers, set_up
from working.orders import WorkerOrders
from working.sabotage import UNSTOPPED

LEASE_S = 1.0
_CONCURRENCY = {"threads": 3, "asyncio": 3, "processes": 2}
_FIRST = ("sleepy", "overtime", "slow", tasks.POISON, "overtime", "sleepy", "slow", tasks.POISON, "deaf", "overtime")
_SORTS = {
    "threads": tasks.HANDLED,
    "asyncio": tasks.HANDLED,
    "processes": {**tasks.HANDLED, "overtime": 4},  # where a process is killed for it
    UNSTOPPED: {"overtime": 3, "plain": 1},
}
_POISONED = 0.003
_BACKLOG = 30
"""As many jobs may be ready when more are made."""
_LOOK_S = 0.05
_DOOM_S = 1.0
_ZOMBIE_S = 0.4
"""How long a process stays when its worker has ended, so that handlers which do not listen say their last words."""


def prepare(orders: WorkerOrders) -> None:
    """Make the queue, with its first jobs."""
    # Where nobody stops a process, it hears of its loss with its next beat: a longer lease lets it do harm until then.
    lease_s = 4 * LEASE_S if orders.control == UNSTOPPED else LEASE_S
    worker.make(orders, _FIRST, lease_s, max_payload=MOST_PAYLOAD_BYTES)


def main(orders: WorkerOrders) -> int:
    """Be a worker; return the exit status."""
    mine = replace(orders, pid=os.getpid())
    descriptor = os.open(mine.said("stderr"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 2)  # dead jobs and lost leases are what this is about; the crew looks for what should not be
    set_up(mine)
    return reported(mine, lambda _: _Member(mine).run())


class _Member:
    def __init__(self, orders: WorkerOrders) -> None:
        self._orders = orders
        self._random = Random(f"{orders.seed} {orders.name}")
        self._log = _Trouble(orders)
        logging.getLogger("litequeue.worker").addHandler(self._log)
        self._queue = self._open()
        self._worker = Worker(
            self._queue,
            handlers(orders),
            concurrency=_CONCURRENCY[orders.mode],
            mode=orders.mode,
            drain_timeout=orders.drain_timeout_s,
            scope=self._scope(),
            on_event=self._announce,
        )
        self._operator = Operator(self._random, is_last=orders.is_last) if orders.is_restricted else None
        self._is_over = threading.Event()
        self._made = 0
        self._doomed: list[tuple[float, UUID]] = []
        """Jobs to cancel, and when."""

    def run(self) -> None:
        """Work until told to stop, or until nothing is left."""
        signal.signal(signal.SIGTERM, lambda *_: self._worker.stop())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        threading.Thread(target=self._look_after, daemon=True).start()
        ending = self._worker.run()
        telling.worked(self._session, time.time_ns() // 1000)
        self._is_over.set()
        if not ending.is_clean and self._orders.mode != "processes":
            time.sleep(_ZOMBIE_S)
        if tasks.happens(self._random, 0.5):
            self._queue.close()

    def _scope(self) -> Scope | SpecialScope | None:
        """Draw which scopes to work for; where there are several, now and then one, but for the last ones."""
        if not self._orders.is_restricted:
            return None
        one = self._random.choice(SCOPES)
        return one if tasks.happens(self._random, 0.15) and not self._orders.is_last else ANY

    @property
    def _session(self) -> int:
        queue = self._queue
        assert isinstance(queue, telling.ToldQueue)  # noqa: S101 - what `set_up` is for
        return queue.session

    def _open(self) -> Queue:
        """Open the queue; a file that somebody else is busy with for long is tried again."""
        while True:
            with suppress(QueueBusy):
                orders = self._orders
                return litequeue.open(orders.queue, durability=orders.durability, busy_timeout=BUSY_S, create=False)

    def _announce(self, event: WorkerEvent) -> None:
        telling.announce(self._session, event.name, event.job_id, event.generation)

    # --- beside the worker

    def _look_after(self) -> None:
        """Make jobs while there are few, or look whether there are any left; end with whoever started this process."""
        parent = os.getppid()
        with self._open() as queue:
            while not self._is_over.wait(_LOOK_S) and os.getppid() == parent:
                with suppress(QueueBusy, QueueFull):
                    if self._operator is not None:
                        self._operator.act(queue)
                    counts = queue.stats(ANY).counts
                    if self._orders.is_last:
                        if not any(counts[state] for state in OPEN_STATES):
                            self._worker.stop()
                    elif counts[JobState.PENDING] < _BACKLOG and (
                        self._operator is None or self._operator.may_make(queue)
                    ):
                        self._make(queue)
                    self._cancel(queue)
        if os.getppid() != parent:
            self._worker.stop()

    def _make(self, queue: Queue) -> None:
        """Make some jobs."""
        count = self._random.randrange(1, _BACKLOG // 2)
        jobs = [self._draw() if self._operator is None else self._operator.placed(self._draw) for _ in range(count)]
        for job, made in zip(jobs, queue.enqueue_many(jobs), strict=True):
            if job.kind == tasks.kind(tasks.DOOMED):
                self._doomed.append((time.monotonic() + self._random.uniform(0, _DOOM_S), made.job_id))

    def _draw(self) -> NewJob:
        self._made += 1
        orders = self._orders
        sorts = _SORTS.get(orders.control or "", _SORTS[orders.mode])
        return tasks.draw(self._random, orders.name, self._made, sorts, _POISONED)

    def _cancel(self, queue: Queue) -> None:
        """Cancel what is doomed, which is done by then, or in somebody's hands, or waits."""
        now = time.monotonic()
        for due in [due for due in self._doomed if due[0] <= now]:
            with suppress(InvalidTransition):
                queue.cancel(due[1])
            self._doomed.remove(due)


class _Trouble(logging.Handler):
    """Writes down what a worker says of processes that have ended by a fault of their own."""

    def __init__(self, orders: WorkerOrders) -> None:
        super().__init__(logging.WARNING)
        self._orders = orders

    def emit(self, record: logging.LogRecord) -> None:
        """Look whether it is about that: Python ends so after an exception that nobody caught."""
        said = record.getMessage()
        if re.search(r"ended with status 1\b", said):
            with self._orders.said("trouble").open("a", encoding="utf-8") as file:
                file.write(f"{said}\n")
