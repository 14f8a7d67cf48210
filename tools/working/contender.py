"""A real worker among many that all want the same file at once.

Owns: what it does between the rendezvous and its end, with handlers that do next to nothing, and a few that last longer
than a lease. Invariant: nobody is killed or stopped here, so each job is leased once, however long it lasts.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.synchronize import Barrier

import litequeue
from killing.worker import reported
from litequeue import Handler, Lease, Worker, WorkerEvent
from litequeue.aio import AsyncLease
from working import telling
from working.handlers import Work, set_up
from working.orders import WorkerOrders
from working.telling import HandlerTelling, ToldQueue

BUSY_S = 60.0
LEASE_S = 3.0
LONG_S = 1.5 * LEASE_S
LONG = "long"
"""How the payload of a job begins that lasts so long."""
CONCURRENCY = {"threads": 4, "asyncio": 4, "processes": 2}
_MEET_S = 60.0


class Quick(Work):
    """A handler that does next to nothing."""

    def __call__(self, lease: Lease) -> object:
        """Leave a side effect, and be done."""
        with HandlerTelling(lease) as told:
            told.effect("quick")
            if _is_long(lease):
                time.sleep(LONG_S)
            told.came_to(["completed"], lease.lease_generation)
        return lease.lease_generation


class AsyncQuick(Work):
    """The same on an event loop."""

    async def __call__(self, lease: AsyncLease) -> object:  # type: ignore[override] # as a worker calls it
        """Leave a side effect, and be done."""
        with HandlerTelling(lease.lease) as told:
            told.effect("quick")
            if _is_long(lease.lease):
                await asyncio.sleep(LONG_S)
            told.came_to(["completed"], lease.lease_generation)
        return lease.lease_generation


def work(orders: WorkerOrders, most_s: float, meeting: Barrier) -> None:
    """Meet the others, then work until nothing is left or the time is over."""
    mine = replace(orders, pid=os.getpid())
    set_up(mine)
    status = reported(mine, lambda _: _run(mine, most_s, meeting))
    if status:
        meeting.abort()
        raise SystemExit(status)


def _run(orders: WorkerOrders, most_s: float, meeting: Barrier) -> None:
    with litequeue.open(orders.queue, durability=orders.durability, busy_timeout=BUSY_S) as queue:
        session = queue.session if isinstance(queue, ToldQueue) else 0

        def announce(event: WorkerEvent) -> None:
            telling.announce(session, event.name, event.job_id, event.generation)

        worker = Worker(
            queue,
            _handlers(orders),
            concurrency=CONCURRENCY[orders.mode],
            mode=orders.mode,
            lease_ttl=LEASE_S,
            on_event=announce,
            until_empty=True,
        )
        meeting.wait(_MEET_S)

        def cut() -> None:
            orders.said("cut").touch()
            worker.stop()

        clock = threading.Timer(most_s, cut)
        clock.daemon = True
        clock.start()
        worker.run()
        clock.cancel()
        telling.worked(session, time.time_ns() // 1000)


def _handlers(orders: WorkerOrders) -> Mapping[str, Handler]:
    return {"work": Handler((AsyncQuick if orders.mode == "asyncio" else Quick)(orders))}


def _is_long(lease: Lease) -> bool:
    return str(lease.payload).startswith(LONG)
