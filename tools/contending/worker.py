"""A process that works on the queue as fast as it is let.

Owns: what it does between the rendezvous and its end, and the time that each verb took. Invariant: everything goes
through its journal, so a verb's time includes the two lines there; a verb is one transaction, so the verbs of a process
are the turns that it had.
"""

from __future__ import annotations

import sys
import time
import traceback
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Literal, TypeVar

import litequeue
from contending import stock
from harness.journal import SUFFIX, Journal
from harness.recorded import Recorded
from killing import sabotage
from litequeue import LeaseConflict, NewJob, QueueBusy
from working.contender import LONG

T = TypeVar("T")
Durability = Literal["full", "normal"]

BUSY_S = 60.0
"""Far above what anybody waits; whoever does is counted, and tries again."""
MEET_S = 60.0
_FILL_BATCH = 500
_IDLE_S = 0.001


@dataclass(frozen=True, slots=True)
class Orders:
    """What a process is told at its start."""

    folder: Path
    name: str
    durability: Durability
    is_gated: bool
    makes: int
    """Jobs to enqueue one by one; 0: lease and complete instead."""
    most_s: float
    """When to stop at the latest, from the rendezvous on."""
    control: str | None
    longs: int = 0
    """How many of the jobs it fills in are long ones, the last of them."""

    @property
    def queue(self) -> Path:
        """The queue file."""
        return self.folder / "app.queue"

    @property
    def journal(self) -> Path:
        """What it calls and what it gets."""
        return self.folder / f"{self.name}{SUFFIX}"

    def payload_of(self, number: int) -> str:
        """Return how the payload of a job begins that it fills in."""
        return f"{LONG} {self.name}" if number >= self.makes - self.longs else self.name

    @property
    def turns(self) -> Path:
        """When each of its verbs began and how long it took, ns; at the end when that was, and whether it was cut."""
        return self.folder / f"{self.name}.turns"

    @property
    def trouble(self) -> Path:
        """How it ended, when it did not end well."""
        return self.folder / f"{self.name}.trouble"


def fill(orders: Orders) -> None:
    """Enqueue the jobs in batches, before anybody is timed."""
    with litequeue.open(orders.queue, durability="normal", busy_timeout=BUSY_S) as queue:
        recorded = Recorded(queue, Journal(orders.journal))
        for start in range(0, orders.makes, _FILL_BATCH):
            count = min(_FILL_BATCH, orders.makes - start)
            numbers = range(start, start + count)
            recorded.enqueue_many([NewJob("work", f"{orders.payload_of(number)} {number}") for number in numbers])


def work(orders: Orders, meeting: Barrier, making: Synchronized[int]) -> None:
    """Meet the others, then enqueue, or lease and complete, until there is nothing left or the time is over."""
    if orders.is_gated:
        sabotage.apply(orders.control)
    else:
        stock.apply(BUSY_S)
    try:
        worker = _Worker(orders)
        meeting.wait(MEET_S)
        worker.begin()
        if orders.makes:
            worker.enqueue()
            with making.get_lock():
                making.value -= 1
        else:
            worker.drain(making)
        worker.end()
    except BaseException:  # noqa: BLE001 - the report of an end that the contract does not know
        orders.trouble.write_text(traceback.format_exc(), encoding="utf-8")
        meeting.abort()
        sys.exit(1)


class _Worker:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        queue = litequeue.open(orders.queue, durability=orders.durability, busy_timeout=BUSY_S)
        queue.stats()  # both connections are ready
        self._recorded = Recorded(queue, Journal(orders.journal))
        self._turns = array("q")
        self._deadline_s = 0.0

    def begin(self) -> None:
        """Let the time run."""
        self._deadline_s = time.monotonic() + self._orders.most_s

    def enqueue(self) -> None:
        """Enqueue one by one."""
        made = 0
        while made < self._orders.makes and not self._is_over():
            job = NewJob("work", f"{self._orders.name} {made}")
            made += self._turn(lambda job=job: self._recorded.enqueue(job)) is not None  # type: ignore[misc]

    def drain(self, making: Synchronized[int]) -> None:
        """Lease and complete one by one, until nothing is left and nobody makes more."""
        while not self._is_over():
            is_last = making.value == 0
            lease = self._turn(self._recorded.lease_next)
            if lease is None:
                del self._turns[-2:]  # nothing was served
                if is_last:
                    return
                time.sleep(_IDLE_S)
                continue
            while not self._turn(lambda lease=lease: self._complete(lease)):  # type: ignore[misc]
                pass  # the file was busy

    def end(self) -> None:
        """Note when it was, and whether the time was over; tell the turns."""
        self._turns.extend((time.monotonic_ns(), self._is_over()))
        self._recorded.close()
        with self._orders.turns.open("wb") as file:
            self._turns.tofile(file)

    def _complete(self, lease: litequeue.Lease) -> bool:
        with suppress(LeaseConflict):  # the checker's to judge
            self._recorded.complete(lease, lease.lease_generation)
        return True

    def _is_over(self) -> bool:
        return time.monotonic() > self._deadline_s

    def _turn(self, verb: Callable[[], T]) -> T | None:
        """Have a turn, and time it; `None` when it was not had."""
        begun_at = time.monotonic_ns()
        try:
            return verb()
        except QueueBusy:
            return None
        finally:
            self._turns.extend((begun_at, time.monotonic_ns() - begun_at))
