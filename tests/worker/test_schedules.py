"""A worker fires schedules, since it maintains the file, and its handlers are told the boundary (issue 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meeting import until

import litequeue
from litequeue import Lease
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from litequeue.worker.worker import Mode
    from tests.worker.conftest import Work


def test_a_worker_fires_and_hands_the_boundary_to_the_handler(path: Path, work: Work, mode: Mode) -> None:
    """At each boundary, without anything else running; a job that is tried again has the same one."""
    clock = FakeClock()
    told: list[tuple[datetime | None, int]] = []

    def tick(lease: Lease) -> None:
        told.append((lease.boundary, lease.attempts))
        if lease.attempts == 1:
            raise litequeue.Retry(delay=0)

    async def tock(lease: litequeue.aio.AsyncLease) -> None:
        tick(lease.lease)

    with litequeue.open(path, durability="normal", clock=clock) as queue:
        first = queue.schedule("tick", "@every 1h", "tick").boundary
        work({"tick": tock if mode == "asyncio" else tick}, queue=queue, mode=mode, maintenance=True)
        for hour in (1, 2):
            clock.advance(3600)
            until(lambda hour=hour: len(told) == 2 * hour, "two runs a boundary")  # type: ignore[misc]
        second = queue.schedules()[0].last_boundary
        assert told == [(first, 1), (first, 2), (second, 1), (second, 2)]
