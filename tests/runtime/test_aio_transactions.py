"""Transactions of tasks: on one thread, one after the other, all or nothing (issue 5, 8; V14)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import (
    JobState,
    NewJob,
    QueueBusy,
    UsageError,
    aio,
)

if TYPE_CHECKING:
    from pathlib import Path

    from litequeue.aio import AsyncQueue


def test_a_transaction_commits_the_verbs_and_the_own_sql_together(path: Path) -> None:
    """All at its end, on one thread, which is not the loop's (V14)."""

    async def main() -> None:
        async with await aio.open(path) as q:
            async with q.transaction() as tx:
                await tx.execute("CREATE TABLE mine (id INTEGER)")
                made = await tx.enqueue("work")
                lease = await tx.lease_next()
                assert lease is not None
                assert not await tx.has_settled(lease)
                await tx.check(lease)
                await tx.complete(lease, "done")
                assert await tx.has_settled(lease)
                assert (await tx.get(made.job_id)).state is JobState.COMPLETED
                assert not tx.is_over
                with pytest.raises(litequeue.JobNotFound):
                    await q.get(made.job_id)
                assert (tx.scope, tx.worker_id) == (q.scope, q.worker_id)
            assert tx.is_over
            assert (await q.get(made.job_id)).result == "done"
            with pytest.raises(UsageError, match="over"):
                await tx.enqueue("work")

    asyncio.run(main())


@pytest.mark.parametrize("error", [RuntimeError, KeyError, asyncio.CancelledError, SystemExit, StopIteration])
def test_an_error_in_the_block_rolls_back_and_is_raised(path: Path, error: type[BaseException]) -> None:
    """The very error, and no trace is left; the queue goes on (V14, G11)."""

    async def main() -> None:
        async with aio.open(path) as q:
            wanted = error("mine")

            async def fail() -> None:
                async with q.transaction() as tx:
                    await tx.enqueue("work")
                    raise wanted

            with pytest.raises((error, RuntimeError)) as caught:
                await fail()
            assert wanted in (caught.value, caught.value.__cause__)
            assert (await q.stats()).total == 0
            await q.enqueue("work")

    asyncio.run(main())


def test_a_leases_transaction_completes_the_job_unless_the_body_has_ended_it(path: Path) -> None:
    """With the caller's writes, or not at all (G3, V14)."""

    async def main() -> None:
        async with aio.open(path) as q:
            await q.enqueue_many(NewJob("work", n) for n in range(3))
            first, second, third = await q.lease_many(3)
            async with first.transaction() as tx:
                await tx.execute("CREATE TABLE mine (id INTEGER)")
            async with q.lease_transaction(second) as tx:
                await tx.fail(second, "boom", retryable=False)
            with pytest.raises(ZeroDivisionError):
                async with third.transaction() as tx:
                    await tx.execute(f"INSERT INTO mine VALUES ({1 / 0})")
            states = [(await q.get(lease.job_id)).state for lease in (first, second, third)]
            assert states == [JobState.COMPLETED, JobState.DEAD, JobState.LEASED]

    asyncio.run(main())


def test_a_lease_in_a_transaction_is_completed_with_the_writes_or_leaves_no_trace(path: Path) -> None:
    """Also when the task is cancelled in the block, or ends the job itself, or nothing is ready (V14, G1, G3)."""

    async def main() -> None:
        async with aio.open(path) as q:
            jobs = [result.job_id for result in await q.enqueue_many(NewJob("work", n) for n in range(2))]
            with pytest.raises(asyncio.CancelledError):
                async with q.lease_in_transaction(["work"]) as (tx, job):
                    raise asyncio.CancelledError
            assert [(await q.get(job_id)).attempts for job_id in jobs] == [0, 0]
            async with q.lease_in_transaction(["work"]) as (tx, job):
                assert job is not None
                assert (job.payload, job.attempts) == (0, 1)
                await tx.execute("CREATE TABLE mine (id INTEGER)")
            async with q.lease_in_transaction() as (tx, job):
                assert job is not None
                await tx.fail(job, "boom", retryable=False)
            async with q.lease_in_transaction() as (tx, job):
                assert job is None
                await tx.enqueue("next")
            states = [(await q.get(job_id)).state for job_id in jobs]
            assert states == [JobState.COMPLETED, JobState.DEAD]
            assert (await q.stats()).counts[JobState.PENDING] == 1

    asyncio.run(main())


def test_verbs_of_other_tasks_wait_for_the_transaction_and_reads_do_not(path: Path) -> None:
    """In the order in which they came, from however many tasks (V14, V13)."""

    async def main() -> None:
        async with aio.open(path) as q:
            ready = await q.enqueue("ready")
            others: list[asyncio.Task[object]] = []
            async with q.transaction() as tx:
                await tx.enqueue("inside")
                others += [asyncio.create_task(q.enqueue("other", n)) for n in range(50)]
                others += [asyncio.create_task(in_a_transaction(q, n)) for n in range(5)]
                assert (await q.get(ready.job_id)).kind == "ready"
                assert (await q.stats()).total == 1
                assert len(await q.list()) == 1
                assert not any(task.done() for task in others)
            await asyncio.gather(*others)
            assert (await q.stats()).total == 2 + 50 + 10

    async def in_a_transaction(q: AsyncQueue, n: int) -> None:
        async with q.transaction() as tx:
            await tx.enqueue("one", n)
            await asyncio.sleep(0)
            await tx.enqueue("two", n)

    asyncio.run(main())


def test_many_tasks_in_one_transaction_are_one_after_the_other(path: Path) -> None:
    """A task that the block starts may use it too (V14)."""

    async def main() -> None:
        async with aio.open(path) as q:
            async with q.transaction() as tx:
                results = await asyncio.gather(*(tx.enqueue("work", n) for n in range(20)))
            assert [job.payload for job in await q.list()] == list(range(20))
            assert all(result.created for result in results)

    asyncio.run(main())


def test_a_verb_of_the_queue_inside_the_own_transaction_is_a_usage_error_at_once(path: Path) -> None:
    """Never a wait for oneself (§4)."""

    async def main() -> None:
        async with aio.open(path) as q:
            await q.enqueue("work")
            lease = await q.lease_next()
            assert lease is not None
            async with q.transaction():
                for call in (q.enqueue("a"), q.prune(), lease.extend(), q.close(), q.lease_next()):
                    with pytest.raises(UsageError, match="inside it, use the verbs of tx"):
                        await call
                with pytest.raises(UsageError, match="inside it, use the verbs of tx"):
                    async with q.transaction():
                        raise AssertionError
            await q.enqueue("a")

    asyncio.run(main())


def test_what_the_transaction_waits_for_itself_ends_after_busy_timeout(path: Path) -> None:
    """A deadlock of the caller's making is `QueueBusy` in bounded time, and the transaction goes on (§6)."""

    async def main() -> None:
        async with aio.open(path, busy_timeout=0.05) as q:
            async with q.transaction() as tx:
                with pytest.raises(QueueBusy, match=r"0\.05 s"):
                    await asyncio.create_task(q.enqueue("a"))
                await tx.enqueue("b")
            assert [job.kind for job in await q.list()] == ["b"]

    asyncio.run(main())


def test_a_transaction_that_is_not_entered_does_nothing(path: Path) -> None:
    """Nor is one entered twice (§6)."""

    async def main() -> None:
        async with aio.open(path) as q:
            unentered = q.transaction()
            assert isinstance(unentered, aio.AsyncTransaction)
            with pytest.raises(UsageError, match="async with"):
                await unentered.enqueue("a")
            async with unentered:
                pass
            with pytest.raises(UsageError, match="once"):
                async with unentered:
                    raise AssertionError

    asyncio.run(main())
