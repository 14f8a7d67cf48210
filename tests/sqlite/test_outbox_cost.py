"""What a key with 100,000 messages costs: nobody anything, not even the key itself (G9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import apsw
import pytest

import litequeue
from litequeue import Outbox
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litequeue import Lease, Queue

pytestmark = pytest.mark.slow

MESSAGES = 100_000
TOLERANCE = 0.05


class Steps:
    """Counts the steps of SQLite's virtual machine on the connection that writes."""

    def __init__(self, queue: Queue) -> None:
        self.count = 0
        connection = queue._store._writer.connection
        assert connection is not None
        self._connection = connection

    def __enter__(self) -> Self:
        self._connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._add)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.trace_v2(0, None)

    def _add(self, event: dict[str, dict[str, int]]) -> None:
        self.count += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


def _put(queue: Queue, key: str | None) -> None:
    with queue.transaction() as tx:
        Outbox(queue, "mail").put(tx, "message", key=key)


def _lease(queue: Queue) -> Lease:
    outbox = Outbox(queue, "mail")
    (lease,) = queue.lease_many(1, [outbox.kind], scope=outbox._scope)
    return lease


def _deliver(queue: Queue) -> None:
    _lease(queue).complete()


VERBS: dict[str, Callable[[Queue], object]] = {
    "put behind it": lambda queue: _put(queue, "long"),
    "put of another key": lambda queue: _put(queue, "short"),
    "put without a key": lambda queue: _put(queue, None),
    "deliver": _deliver,
    "enqueue": lambda queue: queue.enqueue("work"),
}


def test_a_long_key_costs_as_much_as_a_short_one(tmp_path: Path) -> None:
    """To put behind it, to deliver of it or of another one, and for any other job (G9)."""
    costs = []
    for number in (10, MESSAGES):
        path = tmp_path / f"{number}.queue"
        with litequeue.open(path, durability="normal", clock=FakeClock()) as queue:
            with queue.transaction() as tx:
                for _ in range(number):
                    tx.put_message("mail", "message", key="long")
            for verb in VERBS.values():  # the first time reads the settings, and does the upkeep of the second
                verb(queue)
            costs.append({name: _count(queue, verb) for name, verb in VERBS.items()})
    few, many = costs
    for name, steps in many.items():
        assert abs(steps - few[name]) <= TOLERANCE * few[name], (name, few[name], steps)


def _count(queue: Queue, verb: Callable[[Queue], object]) -> int:
    with Steps(queue) as steps:
        verb(queue)
    assert steps.count
    return steps.count
