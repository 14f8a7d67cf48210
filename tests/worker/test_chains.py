"""Chains in workers: tasks with options, and a worker that runs until nothing is ready (issue 7, item 4)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import litequeue
from litequeue import JobState, Lease, NewJob, Tasks, Worker
from litequeue import aio as litequeue_aio

if TYPE_CHECKING:
    from pathlib import Path

CHILDREN = 250
"""More than the commit of their parent tells."""


def test_tasks_wait_for_others(tmp_path: Path) -> None:
    """`options(after=…)`, and `new_job` in a batch; a worker runs them to the end."""
    ran: list[str] = []
    tasks = Tasks()

    @tasks.task("step")
    def step(name: str) -> None:
        ran.append(name)
        if name == "bad":
            raise litequeue.Discard("it was to be")

    with litequeue.open(tmp_path / "app.queue", durability="normal") as q:
        first = step.enqueue(q, "first")
        step.options(after=[first.job_id], priority=1).enqueue(q, "second")
        bad = step.enqueue(q, "bad").job_id
        never = step.options(after=[bad]).enqueue(q, "never").job_id
        step.options(after=[bad, first.job_id], on_parent_failure="run").enqueue(q, "all the same")
        batch = q.batch([step.new_job("member")], step.new_job("last"))
        Worker(q, tasks, concurrency=1, until_empty=True).run()
        assert sorted(ran) == sorted(["first", "second", "bad", "all the same", "member", "last"])
        assert ran.index("second") == ran.index("first") + 1
        assert ran.index("last") > ran.index("member")
        assert q.get(never).state is JobState.CANCELLED
        assert q.get(batch.then.job_id).state is JobState.COMPLETED


def test_a_worker_that_runs_until_nothing_is_ready_does_all_children(tmp_path: Path) -> None:
    """Also those that the commit of their parent did not tell."""

    def work(lease: Lease) -> None:
        assert lease.kind in {"parent", "child"}

    with litequeue.open(tmp_path / "app.queue", durability="normal") as q:
        parent = q.enqueue("parent").job_id
        q.enqueue_many(NewJob("child", after=[parent]) for _ in range(CHILDREN))
        Worker(q, {"parent": work, "child": work}, until_empty=True, maintenance=False).run()
        assert q.stats().counts[JobState.COMPLETED] == CHILDREN + 1


def test_chains_in_asyncio(tmp_path: Path) -> None:
    """The same verbs, as coroutines."""

    async def main() -> None:
        async with litequeue_aio.open(tmp_path / "app.queue", durability="normal") as q:
            parent = (await q.enqueue("parent")).job_id
            child = (await q.enqueue("child", after=[parent])).job_id
            batch = await q.batch([NewJob("member")], NewJob("last"))
            assert (await q.dependencies(child)).waits_for == (parent,)
            for lease in await q.lease_many(10):
                await lease.complete()
            assert await q.tell_waiting() == 0
            assert (await q.get(child)).state is JobState.PENDING
            async with q.transaction() as tx:
                assert (await tx.dependencies(batch.then.job_id)).completed == 1

    asyncio.run(main())
