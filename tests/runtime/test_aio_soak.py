"""Tasks that are cancelled wherever they happen to be, again and again, beside a thread: each job is done once (G1)."""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import JobState, LeaseConflict, NewJob, aio

if TYPE_CHECKING:
    from pathlib import Path

    from litequeue.aio import AsyncLease, AsyncQueue

JOBS = 1500
TASKS = 12


async def work(q: AsyncQueue, draw: random.Random) -> None:
    """Work on jobs until this is cancelled; then give back what is held, as a program in order does."""
    lease: AsyncLease | None = None
    try:
        while True:
            lease = None
            lease = await q.lease_next()
            if lease is None:
                await q.wait(1.0)
                continue
            if draw.random() < 0.3:
                await lease.checkpoint(b"half")
            if draw.random() < 0.6:
                async with lease.transaction() as tx:
                    await tx.execute("INSERT INTO done VALUES (?)", [str(lease.job_id)])
                    await tx.complete(lease, "in a transaction")
            else:
                await lease.complete("by itself")
    except asyncio.CancelledError:
        if lease is not None:
            with suppress(LeaseConflict):
                await lease.release()
        raise


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_cancelled_every_job_is_done_once_and_nothing_is_left(path: Path, seed: int) -> None:
    """No lease is stranded, no attempt is lost, and each row of the caller's is there once (G1, G2, G3, G5)."""
    draw = random.Random(seed)
    is_over = threading.Event()

    def beside() -> None:
        with litequeue.open(path, durability="normal") as queue:
            while not is_over.is_set():
                lease = queue.lease_next()
                if lease is None:
                    is_over.wait(0.01)
                else:
                    lease.complete("by a thread")
                    is_over.wait(0.002)  # it is there to be in the way, not to do all

    async def main() -> None:
        async with aio.open(path, durability="normal") as q:
            async with q.transaction() as tx:
                await tx.execute("CREATE TABLE done (job TEXT PRIMARY KEY)")
            await q.enqueue_many(NewJob("work", n) for n in range(JOBS))
            thread = threading.Thread(target=beside)
            thread.start()
            tasks = {asyncio.create_task(work(q, draw)) for _ in range(TASKS)}
            cancelled = 0
            async with asyncio.timeout(60):
                while (await q.stats()).counts[JobState.COMPLETED] < JOBS:
                    for _ in range(draw.randrange(20)):
                        await asyncio.sleep(0)
                    task = draw.choice(list(tasks))
                    task.cancel()
                    cancelled += 1
                    tasks.add(asyncio.create_task(work(q, draw)))
                    tasks.discard(task)
                    with suppress(asyncio.CancelledError):
                        await task
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended
            is_over.set()
            await asyncio.to_thread(thread.join)
            assert cancelled > 30
            jobs = await q.list(limit=JOBS + 1)
            assert {(job.state, job.attempts) for job in jobs} == {(JobState.COMPLETED, 1)}
            assert len(jobs) == JOBS
            async with q.transaction() as tx:
                rows = {row for (row,) in await tx.execute("SELECT job FROM done")}
            assert rows == {str(job.job_id) for job in jobs if job.result == "in a transaction"}

    asyncio.run(main())
