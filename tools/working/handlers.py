"""The handlers of a harness's workers, as they go to another process: there they set up the journal first.

Invariant: whatever process unpickles a handler has its journal, its sabotage and its appointment before it opens the
queue, since that is what it does next. Leaves out: what a handler does (`doing`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random

from harness.journal import SUFFIX, Journal
from killing import operating, strikes, tasks
from killing.strikes import Appointment, Striker
from litequeue import Handler, Lease
from litequeue.aio import AsyncLease
from working import sabotage, telling
from working.doing import TIMEOUTS_S, Awaiting, Hopeless, Plain, at_once, handle
from working.orders import WorkerOrders

_SHORT_RETRY_S = 0.1
_APPOINTED = 0.2
"""The share of a worker's processes that die at a named point."""
_AWAITED = {
    "threads": {"steps", "slow"},
    "processes": {"steps", "slow"},
    "asyncio": {*tasks.HANDLED} - {"stubborn", "deaf", "side and no result", "failed"},
}
"""The sorts that asynchronous handlers work on, by the mode of the worker."""
_here: list[int] = []
"""The process that has been set up."""


class Work:
    """A plain handler."""

    def __init__(self, orders: WorkerOrders) -> None:
        self._orders = orders

    def __call__(self, lease: Lease) -> object:
        """Work on a job."""
        return at_once(handle(Plain(lease), self._orders, self._die))

    def __reduce__(self) -> tuple[Callable[..., Work], tuple[type[Work], WorkerOrders]]:
        """Travel by the orders."""
        return _arrived, (type(self), self._orders)

    def _die(self, random: Random) -> None:
        """End this process, by a signal or by itself."""
        die = random.choice((strikes.die, partial(strikes.leave, status=9)))
        die(self._orders.said("died"), tasks.POISON)


class AsyncWork(Work):
    """An asynchronous handler."""

    async def __call__(self, lease: AsyncLease) -> object:  # type: ignore[override] # as a worker calls it
        """Work on a job."""
        return await handle(Awaiting(lease), self._orders, self._die)


def handlers(orders: WorkerOrders) -> Mapping[str, Handler]:
    """Return what a worker is given."""

    def work(how: str) -> Work:
        return (AsyncWork if how in _AWAITED[orders.mode] else Work)(orders)

    made = {
        tasks.kind(how): Handler(
            work(how),
            timeout=TIMEOUTS_S.get(how),
            permanent=Hopeless,
            short_retry=_SHORT_RETRY_S if how == "retried" else None,
        )
        for how in tasks.HANDLED
    }
    if orders.is_restricted:
        made[operating.TICKS] = Handler(work("plain"))
    return {**made, tasks.POISON: Handler(Work(orders))}


def set_up(orders: WorkerOrders) -> None:
    """Make this process tell its journal, spoil it if it is to be spoiled, and let it keep its appointment."""
    if _here == [os.getpid()]:
        return
    _here[:] = [os.getpid()]
    if orders.appointment is not None:
        Striker(orders.appointment, orders.said("died")).install()
    telling.install(Journal(orders.folder / f"{orders.name}{SUFFIX}"))
    sabotage.apply(orders.control)


def _arrived(made: type[Work], orders: WorkerOrders) -> Work:
    """Be unpickled: in this process, to see whether that works, or in another, to be worked with."""
    if _here != [os.getpid()] and orders.pid != os.getpid():
        name = f"{orders.name}.{os.getpid()}"
        random = Random(f"{orders.seed} {name}")
        appointment = None
        if orders.has_appointments and tasks.happens(random, _APPOINTED):
            points = (*strikes.STATEMENTS, *strikes.LOG, *strikes.CLOSING)
            appointment = Appointment(random.choice(points), 1 + int(random.expovariate(0.05)))
        orders = replace(orders, name=name, appointment=appointment)
        set_up(orders)
        _travelled[:] = [orders]
    return made(_travelled[0] if _travelled else orders)


_travelled: list[WorkerOrders] = []
"""The orders of this process, when it is one of a worker's."""
