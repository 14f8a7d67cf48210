"""Waiting in a task: by the bell, beside everything else, and ended at once when it is told to (issue 5, 8 and 9)."""

from __future__ import annotations

import asyncio
import inspect
from queue import SimpleQueue
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from litequeue import JobFailed, JobNotFound, JobState, NewJob, Queue, QueueClosed, UsageError, Waiter, WaitTimeout, aio
from litequeue.sqlite.results import JobWaiter
from litequeue.sqlite.watching import WATCHER, Listener

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litequeue.aio import AsyncQueue
    from tests.runtime.stops import Cancelling

PATIENCE_S = 30.0


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[None]:
    """Give what is put into whenever a thread is about to sleep for a wait."""
    sleeps: SimpleQueue[None] = SimpleQueue()
    plain = Listener.sleep

    def sleep(listener: Listener, seconds: float) -> None:
        sleeps.put(None)
        plain(listener, seconds)

    monkeypatch.setattr(Listener, "sleep", sleep)
    return sleeps


async def until_asleep(asleep: SimpleQueue[None]) -> None:
    """Wait until a thread is about to sleep."""
    await asyncio.to_thread(asleep.get, timeout=PATIENCE_S)


async def ended(task: asyncio.Task[bool]) -> bool:
    """Return what a task comes to, at once."""
    return await asyncio.wait_for(asyncio.shield(task), PATIENCE_S)


@pytest.mark.parametrize("name", [name for name in dir(Waiter) if not name.startswith("_")])
def test_a_waiter_has_what_the_plain_one_has(name: str) -> None:
    """Each that waits as a coroutine (issue 5, 8)."""
    theirs, ours = getattr(Waiter, name), getattr(aio.AsyncWaiter, name)
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert inspect.iscoroutinefunction(ours) == (name != "interrupt")
    assert inspect.getdoc(ours)


def test_the_queues_wait_takes_what_the_plain_one_takes() -> None:
    """By name, with the same defaults (§9)."""
    for name in ("wait", "waiter", "wait_for"):
        theirs, ours = getattr(Queue, name), getattr(aio.AsyncQueue, name)
        assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters


def test_a_wait_ends_when_there_may_be_work_for_it(path: Path, asleep: SimpleQueue[None]) -> None:
    """Its kinds in its scope; a time that is over first is `False` (§9)."""

    async def main() -> None:
        async with aio.open(path) as q:
            assert not await q.wait(0)
            assert not await q.wait(0.01)
            waiting = asyncio.create_task(q.wait(kinds=["a:", "b"], scope="tenant"))
            await until_asleep(asleep)
            await q.enqueue("b")
            await q.enqueue("c", scope="tenant")
            assert not waiting.done()
            await q.enqueue("a:x", scope="tenant")
            assert await ended(waiting)
            assert await q.wait(0)

    asyncio.run(main())


def test_waits_of_many_tasks_hold_nothing_up(path: Path, asleep: SimpleQueue[None]) -> None:
    """Neither verbs, nor transactions, nor each other (V14, issue 5, 8)."""

    async def main() -> None:
        async with aio.open(path) as q:
            waiting = [asyncio.create_task(q.wait(kinds=[f"kind{n}"])) for n in range(30)]
            for _ in waiting:
                await until_asleep(asleep)
            async with q.transaction() as tx:
                await q.stats()
                for n in range(29):
                    await tx.enqueue(f"kind{n}")
            assert await asyncio.gather(*map(ended, waiting[:29])) == [True] * 29
            assert not waiting[29].done()
            waiting[29].cancel()

    asyncio.run(main())


def test_a_cancelled_wait_ends_at_once_and_ends_no_other(
    path: Path, asleep: SimpleQueue[None], assert_free: Callable[[Path], None], queue: Queue
) -> None:
    """Its thread does too, and nobody listens for it any more (issue 5, 8)."""

    async def main() -> None:
        async with aio.open(path, clock=queue._store.clock) as q:
            waiter = q.waiter()
            first = asyncio.create_task(waiter.wait())
            await until_asleep(asleep)
            second = asyncio.create_task(waiter.wait())
            third = asyncio.create_task(q.wait())
            await until_asleep(asleep)
            await until_asleep(asleep)
            assert sum(map(len, WATCHER._listeners.values())) == 3
            first.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await ended(first)
            assert not hasattr(caught.value, "__notes__")
            assert sum(map(len, WATCHER._listeners.values())) == 2
            assert len(waiter._going_on) == 1
            assert_free(path)  # what it enqueues wakes both, and is gone when they look
            await q.enqueue("work")
            assert await ended(second)
            assert await ended(third)

    asyncio.run(main())


@pytest.mark.parametrize("is_pause", [False, True])
@pytest.mark.parametrize("cancelling", ["begun", "done", "heard"], indirect=True)
def test_a_wait_is_cancelled_at_every_point(
    path: Path, cancelling: Callable[[str], Cancelling], *, is_pause: bool
) -> None:
    """Before its thread waits, after it has, and when the loop has heard (issue 5, 8)."""
    name = "pause" if is_pause else "wait"
    cancel = cancelling(name)

    async def main() -> None:
        async with aio.open(path) as q:
            waiter = q.waiter()

            async def work() -> None:
                await (waiter.pause(0.01) if is_pause else waiter.wait(0.01))

            with cancel.armed(Waiter, name):
                assert await cancel.notes(work) == []
            await q.enqueue("goes on")
            assert await waiter.wait()

    asyncio.run(main())


def test_an_interrupt_ends_the_waits_that_go_on_or_the_next_one(path: Path, asleep: SimpleQueue[None]) -> None:
    """It is never lost; what began after a wait has ended because of it waits (issue 5, 8)."""

    async def main() -> None:
        async with aio.open(path) as q:
            waiter = q.waiter(["work"])
            waiter.interrupt()
            waiter.interrupt()
            assert not await ended(asyncio.create_task(waiter.wait()))
            both = [asyncio.create_task(waiter.wait()), asyncio.create_task(waiter.wait())]
            await until_asleep(asleep)
            await until_asleep(asleep)
            waiter.interrupt()
            assert await asyncio.gather(*map(ended, both)) == [False, False]
            pausing = asyncio.create_task(waiter.pause())
            await until_asleep(asleep)
            waiter.interrupt()
            await asyncio.wait_for(pausing, PATIENCE_S)
            last = asyncio.create_task(waiter.wait())
            await until_asleep(asleep)
            await q.enqueue("work")
            assert await ended(last)

    asyncio.run(main())


@pytest.mark.parametrize("cancelling", ["done"], indirect=True)
def test_an_interrupt_that_comes_when_work_was_found_ends_the_next_wait(
    path: Path, cancelling: Callable[[str], Cancelling]
) -> None:
    """The task has not heard of either yet, and hears of both, one after the other (issue 5, 8)."""
    cancel = cancelling("none")

    async def main() -> None:
        async with aio.open(path) as q:
            await q.enqueue("work")
            waiter = q.waiter()
            with cancel.armed(Waiter, "wait"):
                waiting = asyncio.create_task(waiter.wait())
                cancel.before.go()
                await cancel.after.reached()
                waiter.interrupt()
                cancel.after.go()
                assert await ended(waiting)
            assert not await ended(asyncio.create_task(waiter.wait()))
            assert await ended(asyncio.create_task(waiter.wait()))

    asyncio.run(main())


def test_closing_ends_the_waits(path: Path, asleep: SimpleQueue[None]) -> None:
    """They say that the queue is closed (§9)."""

    async def main() -> None:
        q = await aio.open(path)
        waiting = [asyncio.create_task(q.wait()), asyncio.create_task(q.waiter().wait())]
        await until_asleep(asleep)
        await until_asleep(asleep)
        await q.close()
        for task in waiting:
            with pytest.raises(QueueClosed):
                await ended(task)

    asyncio.run(main())


def test_a_wait_with_a_bad_argument_or_inside_the_own_transaction_is_a_usage_error(path: Path) -> None:
    """As with the plain one (§4, §6)."""

    async def main() -> None:
        async with aio.open(path) as q:
            with pytest.raises(UsageError, match="timeout"):
                await q.wait(-1)
            with pytest.raises(UsageError, match="kinds"):
                await q.wait(kinds="work")
            with pytest.raises(UsageError, match="scope"):
                q.waiter(scope="")
            async with q.transaction():
                with pytest.raises(UsageError, match="inside it, use the verbs of tx"):
                    await q.wait(0)
                with pytest.raises(UsageError, match="inside it, use the verbs of tx"):
                    await q.waiter().pause(0)

    asyncio.run(main())


def test_workers_of_one_loop_wait_and_lease_side_by_side(path: Path) -> None:
    """Ten tasks that wait, lease and complete: each job is done once, and none is left (G1, G2)."""
    done: list[object] = []

    async def work(q: AsyncQueue) -> None:
        while await q.wait(0.5):
            lease = await q.lease_next()
            if lease is not None:
                done.append(lease.payload)
                await lease.complete()

    async def main() -> None:
        async with aio.open(path, durability="normal") as q:
            workers = [asyncio.create_task(work(q)) for _ in range(10)]
            for n in range(100):
                await q.enqueue("work", n)
            await asyncio.gather(*workers)

    asyncio.run(main())
    assert sorted(map(str, done)) == sorted(map(str, range(100)))


# --- the end of a job


def test_waiting_for_a_job_gives_it_when_it_has_ended(path: Path, asleep: SimpleQueue[None]) -> None:
    """Completed or cancelled it is returned, dead it is an error, and what is not there is said so (issue 5, 9)."""

    async def main() -> None:
        async with aio.open(path) as q:
            ids = [made.job_id for made in await q.enqueue_many(NewJob("work", n) for n in range(3))]
            waiting = [asyncio.create_task(q.wait_for(job_id)) for job_id in ids]
            for _ in waiting:
                await until_asleep(asleep)
            await q.cancel(ids[2])
            completed, dead = await q.lease_many(2)
            await completed.complete("done")
            await dead.fail("boom", retryable=False)
            assert (await asyncio.wait_for(waiting[0], PATIENCE_S)).result == "done"
            with pytest.raises(JobFailed, match="boom"):
                await asyncio.wait_for(waiting[1], PATIENCE_S)
            assert (await asyncio.wait_for(waiting[2], PATIENCE_S)).state is JobState.CANCELLED
            assert (await q.wait_for(str(ids[0]), 0)).result == "done"
            with pytest.raises(JobNotFound):
                await q.wait_for(uuid4())
            with pytest.raises(UsageError, match="job_id"):
                await q.wait_for("job")
            last = await q.enqueue("work")
            with pytest.raises(WaitTimeout):
                await q.wait_for(last.job_id, 0.01)
            async with q.transaction():
                with pytest.raises(UsageError, match="inside it, use the verbs of tx"):
                    await q.wait_for(last.job_id)

    asyncio.run(main())


@pytest.mark.parametrize("cancelling", ["begun", "done", "heard"], indirect=True)
@pytest.mark.parametrize("has_ended", [False, True])
def test_a_wait_for_a_job_is_cancelled_at_every_point(
    path: Path, cancelling: Callable[[str], Cancelling], *, has_ended: bool
) -> None:
    """Before its thread waits, after it has, and when the loop has heard; it leaves nothing to say (issue 5, 9)."""
    cancel = cancelling("wait_for")

    async def main() -> None:
        async with aio.open(path) as q:
            made = await q.enqueue("work")
            if has_ended:
                await q.cancel(made.job_id)

            async def work() -> None:
                await q.wait_for(made.job_id, 0.01)

            with cancel.armed(JobWaiter, "wait"):
                assert await cancel.notes(work) == []
            await q.enqueue("goes on")

    asyncio.run(main())


def test_a_cancelled_wait_for_a_job_ends_at_once(path: Path, asleep: SimpleQueue[None]) -> None:
    """Its thread does too, and nobody listens for it any more (issue 5, 9)."""

    async def main() -> None:
        async with aio.open(path) as q:
            made = await q.enqueue("work")
            waiting = [asyncio.create_task(q.wait_for(made.job_id)) for _ in range(3)]
            for _ in waiting:
                await until_asleep(asleep)
            waiting[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(waiting[0]), PATIENCE_S)
            await q.cancel(made.job_id)
            for task in waiting[1:]:
                assert (await asyncio.wait_for(task, PATIENCE_S)).state is JobState.CANCELLED

    asyncio.run(main())
