"""Loops, threads and tasks: who does a verb, beside what, and in whose name (issue 5, 8)."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import (
    JobState,
    NewJob,
    Queue,
    aio,
)
from litequeue.aio import crew
from litequeue.sqlite.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from litequeue.aio import AsyncLease, AsyncQueue
    from litequeue.sqlite.context import Context
    from litequeue.testing import FakeClock


def test_an_async_lease_works_around_a_lease_of_a_plain_queue(queue: Queue) -> None:
    """In a loop of whoever has the lease; several at once, and each in a transaction (issue 5, 1 and 8)."""
    queue.enqueue_many(NewJob("work", n) for n in range(20))
    leases = queue.lease_many(20)

    async def work(lease: AsyncLease) -> None:
        await lease.checkpoint(b"x")
        if isinstance(lease.payload, int) and lease.payload % 2:
            async with lease.transaction() as tx:
                await tx.enqueue("next", scope="other")
        else:
            await lease.complete()

    async def main() -> None:
        await asyncio.gather(*(work(aio.AsyncLease(lease)) for lease in leases))

    asyncio.run(main())
    assert queue.stats().counts[JobState.COMPLETED] == 20
    assert queue.stats(scope="other").counts[JobState.PENDING] == 10


def test_a_verb_does_not_block_the_loop(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes; it is done in another thread (issue 5, 8)."""
    may_go = threading.Event()
    threads: list[int] = []
    plain = Queue.stats

    def slow(queue: Queue, scope: litequeue.Scope | None = None) -> litequeue.Stats:
        threads.append(threading.get_ident())
        may_go.wait()
        return plain(queue, scope)

    async def main() -> None:
        async with aio.open(path) as q:
            with monkeypatch.context() as patch:
                patch.setattr(Queue, "stats", slow)
                asking = asyncio.create_task(q.stats())
                while not threads:  # noqa: ASYNC110 - what it waits for is in another thread
                    await asyncio.sleep(0)
                may_go.set()
                await asking
            assert threads != [threading.get_ident()]

    asyncio.run(main())


def test_one_queue_serves_several_loops_at_once(path: Path) -> None:
    """Its lanes belong to no loop, so tasks of two loops share it as threads share a plain queue (issue 5, 8)."""
    q = asyncio.run(opened(path))
    both = threading.Barrier(2)

    async def main(name: str) -> None:
        both.wait()
        for n in range(30):
            await q.enqueue(name, n)
            async with q.transaction() as tx:
                await tx.enqueue(name, n)

    threads = [threading.Thread(target=lambda name=name: asyncio.run(main(name))) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asyncio.run(q.stats()).by_kind == {name: {JobState.PENDING: 60} for name in "ab"}
    asyncio.run(q.close())


async def opened(path: Path) -> AsyncQueue:
    """Open a queue and leave it open."""
    return await aio.open(path)


def test_single_verbs_of_many_tasks_share_commits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of many threads do, so a burst waits for the disk seldom (issue 5, 8)."""
    commits: list[None] = []
    plain = Store.commit

    def counted(store: Store, context: Context) -> None:
        commits.append(None)
        plain(store, context)

    monkeypatch.setattr(Store, "commit", counted)

    async def main() -> None:
        async with aio.open(path) as q:
            async with q.transaction():
                made = [asyncio.create_task(q.enqueue("work", n)) for n in range(400)]
                await asyncio.sleep(0)
            await asyncio.gather(*made)
            assert (await q.stats()).total == 400

    asyncio.run(main())
    assert len(commits) < 300


def test_threads_of_the_crew_end_when_there_is_nothing_to_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a rest, each (issue 5, 8)."""
    monkeypatch.setattr(crew, "_REST_S", 0.01)

    async def main() -> None:
        async with aio.open(path) as q:
            await asyncio.gather(*(q.enqueue("work") for _ in range(50)))

    before = set(threading.enumerate())
    asyncio.run(main())
    for thread in set(threading.enumerate()) - before:
        if thread.name == "litequeue-aio":
            thread.join(30)
            assert not thread.is_alive()


def test_what_takes_long_holds_up_neither_verbs_nor_transactions(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upkeep and copies are many transactions, or none (V11)."""
    may_go = threading.Event()
    plain = Queue.prune

    def slow(queue: Queue) -> int:
        may_go.wait()
        return plain(queue)

    monkeypatch.setattr(Queue, "prune", slow)

    async def main() -> None:
        async with aio.open(path, clock=clock) as q:
            pruning = asyncio.create_task(q.prune())
            await asyncio.sleep(0)
            await q.enqueue("work")
            async with q.transaction() as tx:
                await tx.enqueue("work")
            assert not pruning.done()
            may_go.set()
            await pruning

    asyncio.run(main())


def test_a_verb_is_done_in_the_context_of_its_task(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what logs in the thread knows whose request it is about (issue 5, 11)."""
    request: ContextVar[str] = ContextVar("request", default="nobody's")
    seen: list[str] = []
    plain = Store.commit

    def logging(store: Store, context: Context) -> None:
        seen.append(request.get())
        plain(store, context)

    async def work(q: AsyncQueue, name: str) -> None:
        request.set(name)
        await q.enqueue("work")
        async with q.transaction() as tx:
            await tx.enqueue("work")

    async def main() -> None:
        async with aio.open(path) as q:
            with monkeypatch.context() as patch:
                patch.setattr(Store, "commit", logging)
                for name in "ab":
                    await asyncio.create_task(work(q, name))

    asyncio.run(main())
    assert seen == ["a", "a", "b", "b"]
