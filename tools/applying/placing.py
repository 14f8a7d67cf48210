"""What an application does, whichever way its jobs commit with its rows: it places orders until it is told to stop.

Owns the placing of one order, and the ledger: which orders were acknowledged, and which were given up. Invariant: it
imports nothing that loads apsw, as it is also run by processes that have another SQLite. Its negative controls are how
an application may well be written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

KEYS = ("a", "b", "c")
TABLES = (
    "CREATE TABLE orders (id TEXT PRIMARY KEY, key TEXT NOT NULL, n INTEGER NOT NULL)",
    "CREATE TABLE handled (at INTEGER PRIMARY KEY, order_id TEXT NOT NULL, job_id TEXT NOT NULL, rows INTEGER)",
    "CREATE TABLE receipts (order_id TEXT NOT NULL, steps INTEGER NOT NULL)",
)
POINTS = ("before BEGIN", "after BEGIN", "after a statement", "before COMMIT", "after COMMIT")
"""Where a clerk that has an appointment may die."""
ROW_ALONE = "row-alone"
JOB_FIRST = "job-first"
KEYLESS = "keyless"
CONTROLS = {
    ROW_ALONE: "an application commits its row, and then what is to be done about it",
    JOB_FIRST: "an application commits what is to be done, and then the row that it is about",
    KEYLESS: "an application puts its messages without a key (outbox only)",
}
_MOST_OPEN = 150
"""When so many orders are not handled, no more are placed, so that the end is not far."""
_LOOK_EVERY = 8
_PAUSE_S = 0.01


class Order(NamedTuple):
    """A row of an application."""

    order_id: str
    key: str | None
    n: int


class Till(Protocol):
    """One way to commit rows and jobs together."""

    @property
    def busy(self) -> tuple[type[Exception], ...]:
        """What it raises when it has waited for the lock in vain, and done nothing."""
        ...

    def transaction(self) -> AbstractContextManager[object]:
        """Write for the length of a block; what ends it rolls it back."""
        ...

    def execute(self, sql: str, parameters: Sequence[str | int] = ()) -> Sequence[tuple[object, ...]]:
        """Run SQL of the application's own, in a transaction."""
        ...

    def promise(self, order: Order) -> None:
        """Say what is to be done about an order, in a transaction."""
        ...


class _GivenUpError(Exception):
    """Raised in a transaction to roll it back."""


@dataclass(slots=True)
class Clerk:
    """Places orders at a till."""

    till: Till
    name: str
    draw: Random
    ledger: Path
    """Where it writes `+` before each order that was acknowledged, `-` before each that was given up."""
    control: str | None = None
    come_to: Callable[[str], None] = lambda _: None
    """Called at each of `POINTS`."""

    def work(self, is_over: Callable[[], bool]) -> None:
        """Place orders until it is over."""
        descriptor = os.open(self.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        number = 0
        while not is_over():
            if number % _LOOK_EVERY == 0 and self._are_many_open():
                time.sleep(_PAUSE_S)
                continue
            names = [f"{self.name} {number + more}" for more in range(self.draw.choice((1, 1, 2)))]
            number += len(names)
            mark = "+" if self._is_placed(names) else "-"
            os.write(descriptor, "".join(f"{mark}{name}\n" for name in names).encode())

    def _is_placed(self, names: list[str]) -> bool:
        """Place some orders in one commit; tell whether they are, or were given up."""
        try:
            if self.control == ROW_ALONE:
                self._in_one(self._rows, names)
                time.sleep(_PAUSE_S)
                self._in_one(self._jobs, names)
            elif self.control == JOB_FIRST:
                self._in_one(self._jobs, names)
                time.sleep(_PAUSE_S)
                self._in_one(self._rows, names)
            else:
                self._in_one(self._both, names)
        except _GivenUpError:
            return False
        except self.till.busy:
            return False
        return True

    def _in_one(self, write: Callable[[list[str]], None], names: list[str]) -> None:
        self.come_to("before BEGIN")
        with self.till.transaction():
            self.come_to("after BEGIN")
            write(names)
            self.come_to("before COMMIT")
        self.come_to("after COMMIT")

    def _both(self, names: list[str]) -> None:
        for name in names:
            order = self._order(name)
            writes = [self._row, self._job]
            for write in self.draw.sample(writes, 2):
                write(order)
                self.come_to("after a statement")
        if self.draw.random() < 0.1:  # noqa: PLR2004 - now and then
            raise _GivenUpError

    def _rows(self, names: list[str]) -> None:
        for name in names:
            self._row(self._order(name))

    def _jobs(self, names: list[str]) -> None:
        for name in names:
            self._job(self._order(name))

    def _order(self, name: str) -> Order:
        """Return the next order of a key, which is told by its name, so that a second look finds the same."""
        key = KEYS[sum(name.encode()) % len(KEYS)]
        known = self.till.execute("SELECT n FROM orders WHERE id = ?", (name,))
        ((n,),) = known or self.till.execute("SELECT count(*) FROM orders WHERE key = ?", (key,))
        return Order(name, key, int(str(n)))

    def _row(self, order: Order) -> None:
        self.till.execute("INSERT INTO orders VALUES (?, ?, ?)", (order.order_id, str(order.key), order.n))

    def _job(self, order: Order) -> None:
        self.till.promise(order._replace(key=None) if self.control == KEYLESS else order)

    def _are_many_open(self) -> bool:
        try:
            with self.till.transaction():
                ((placed,),) = self.till.execute("SELECT count(*) FROM orders")
                ((handled,),) = self.till.execute("SELECT count(DISTINCT order_id) FROM handled")
                return int(str(placed)) - int(str(handled)) >= _MOST_OPEN
        except self.till.busy:
            return True
