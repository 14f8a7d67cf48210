"""Schedules as coroutines (issue 6)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from litequeue import ScheduleNotFound, aio

if TYPE_CHECKING:
    from pathlib import Path

    from litequeue.testing import FakeClock


def test_schedules_are_declared_and_fired_and_tell_their_boundary(path: Path, clock: FakeClock) -> None:
    """Each verb, on a queue and in a transaction; a lease in its shell tells the boundary."""

    async def go() -> None:
        async with aio.open(path, clock=clock) as queue:
            made = await queue.schedule("tick", "@every 60s", "work", [1], priority=5)
            assert await queue.schedules() == [made]
            async with queue.transaction() as tx:
                await tx.schedule("tock", "@every 1h", "work")
                await tx.run_now("tock")
                await tx.unschedule("tock")
            await queue.pause_schedule("tick")
            await queue.resume_schedule("tick")
            clock.advance(60)
            assert (await queue.fire_schedules()).jobs == 1
            first, second = await queue.lease_many(2)
            assert (first.boundary, second.boundary) == (made.boundary, None)
            await queue.unschedule("tick")
            with pytest.raises(ScheduleNotFound):
                await queue.run_now("tick")

    asyncio.run(go())
