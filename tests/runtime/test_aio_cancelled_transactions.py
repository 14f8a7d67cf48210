"""A transaction whose task is cancelled: rolled back, or committed and told; no lock and no lease is left (issue 5, 8).

At each step (its beginning, each verb and each foreign wait inside, its commit, its roll-back) and at each point of the
step (`stops`), of a queue's transaction and of a lease's.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import JobState, Queue, Transaction, aio
from litequeue.aio import turns
from litequeue.aio.session import Session
from litequeue.sqlite.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue.aio import AsyncQueue
    from tests.runtime.stops import Cancelling

pytestmark = pytest.mark.slow

STEPS: dict[str, tuple[type, str]] = {
    "transaction": (Session, "_enter"),
    "execute": (Transaction, "execute"),
    "enqueue": (Transaction, "enqueue"),
    "lease_next": (Transaction, "lease_next"),
    "get": (Transaction, "get"),
    "complete": (Transaction, "complete"),
    "commit": (Store, "commit"),
    "rollback": (Store, "undo"),
}
COMMITTED = "litequeue: the transaction had been committed when this came"


def session_of(transaction: object) -> Session:
    """Return the thread of a transaction that has begun."""
    assert isinstance(transaction, aio.AsyncTransaction)
    assert transaction._session is not None
    return transaction._session


@pytest.mark.parametrize("kind", ["queue", "lease"])
@pytest.mark.parametrize("step", STEPS)
def test_a_cancelled_transaction_leaves_all_or_nothing(
    queue: Queue, assert_free: Callable[[Path], None], cancelling: Callable[[str], Cancelling], step: str, kind: str
) -> None:
    """All only if its commit had begun, and then the error says so; and other processes go on (V14, G3, G5, G11)."""
    path = Path(queue.path)

    async def main() -> None:
        async with aio.open(path, clock=queue._store.clock, durability="normal") as q:
            await q.enqueue("held")
            lease = await q.lease_next()
            assert lease is not None
            await q.enqueue("ready")
            transaction = lease.transaction() if kind == "lease" else q.transaction()
            cancel = cancelling(step)

            def about_to(name: str) -> None:
                if name == step and not cancel.has_begun:
                    session_of(transaction).tell(cancel.another())

            async def work() -> None:
                async with transaction as tx:
                    about_to("execute")
                    await tx.execute("CREATE TABLE mine (id INTEGER)")
                    about_to("enqueue")
                    made = await tx.enqueue("inside")
                    about_to("lease_next")
                    taken = await tx.lease_next(["ready"])
                    assert taken is not None
                    about_to("get")
                    await tx.get(made.job_id)
                    about_to("complete")
                    await tx.complete(taken, "done")
                    about_to("rollback")
                    if step == "rollback":
                        raise RuntimeError("mine")
                    about_to("commit")

            with cancel.armed(*STEPS[step]):
                lane = turns.of(q.queue).writing if step == "transaction" else None
                notes = await cancel.notes(work, lane, is_kept=step == "rollback", goes_at_once=lane is not None)
            assert_free(path)
            states = {job.kind: job.state for job in queue.list() if job.kind != "of another process"}
            if step == "commit" and cancel.has_begun:
                ended = JobState.COMPLETED if kind == "lease" else JobState.LEASED
                assert states == {"held": ended, "ready": JobState.COMPLETED, "inside": JobState.PENDING}
                assert notes == [COMMITTED]
            else:
                assert states == {"held": JobState.LEASED, "ready": JobState.PENDING}
                assert COMMITTED not in notes
                await lease.complete()
            async with q.transaction() as tx:
                await tx.execute("CREATE TABLE IF NOT EXISTS mine (id INTEGER)")
            await q.enqueue("goes on")

    asyncio.run(main())


@pytest.mark.parametrize("is_leases", [False, True])
def test_a_foreign_wait_in_the_block_is_cancelled_at_once(
    queue: Queue, assert_free: Callable[[Path], None], *, is_leases: bool
) -> None:
    """Rolled back before the error goes on; the lease is still held (V14, G11)."""
    path = Path(queue.path)

    async def main() -> None:
        async with aio.open(path, clock=queue._store.clock, durability="normal") as q:
            await q.enqueue("held")
            lease = await q.lease_next()
            assert lease is not None
            is_inside = asyncio.Event()

            async def work() -> None:
                async with lease.transaction() if is_leases else q.transaction() as tx:
                    await tx.enqueue("inside")
                    is_inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await is_inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert_free(path)
            assert [job.kind for job in queue.list() if job.kind != "of another process"] == ["held"]
            await lease.complete()

    asyncio.run(main())


def test_a_lease_of_a_cancelled_verb_is_given_back_in_a_transaction_that_goes_on(
    queue: Queue, cancelling: Callable[[str], Cancelling]
) -> None:
    """Also where the block survives the cancellation of one of its verbs and commits (V3, G5)."""

    async def main() -> None:
        async with aio.open(queue.path, clock=queue._store.clock, durability="normal") as q:
            await q.enqueue("ready")
            cancel = cancelling("lease_next")
            transaction = q.transaction()
            async with transaction as tx:

                async def work() -> None:
                    if not cancel.has_begun:
                        session_of(transaction).tell(cancel.another())
                    await tx.lease_next()

                with cancel.armed(Transaction, "lease_next"):
                    notes = await cancel.notes(work)
                await tx.enqueue("inside")
            if cancel.has_begun:
                assert notes == ["litequeue: lease_next was done when this came; what it had leased is given back"]
            assert {(job.kind, job.state, job.attempts) for job in queue.list()} == {
                ("ready", JobState.PENDING, 0),
                ("inside", JobState.PENDING, 0),
            }

    asyncio.run(main())


def test_a_cancelled_commit_that_fails_says_so(queue: Queue, cancelling: Callable[[str], Cancelling]) -> None:
    """Whoever has cancelled it is told the truth, here that nothing is in the file (G11)."""

    async def main() -> None:
        async with aio.open(queue.path, clock=queue._store.clock, durability="normal") as q:
            transaction = q.transaction()
            cancel = cancelling("commit")

            async def work() -> None:
                async with transaction as tx:
                    await tx.execute("CREATE TABLE mine (id INTEGER PRIMARY KEY)")
                    await tx.execute("INSERT INTO mine VALUES (1)")
                    with pytest.raises(Exception, match="UNIQUE"):
                        await tx.execute("INSERT OR ROLLBACK INTO mine VALUES (1)")
                    if not cancel.has_begun:
                        session_of(transaction).tell(cancel.another())

            with cancel.armed(Transaction, "finish"):
                notes = await cancel.notes(work, goes_at_once=False)
            assert len(notes) == cancel.has_begun
            assert all(note.startswith("litequeue: commit raised UsageError: SQLite has rolled") for note in notes)
            async with q.transaction() as tx:
                await tx.execute("CREATE TABLE mine (id INTEGER PRIMARY KEY)")

    asyncio.run(main())


def test_a_cancelled_beginning_that_fails_says_so(queue: Queue, cancelling: Callable[[str], Cancelling]) -> None:
    """A lease's transaction whose lease is gone; nothing was begun (G1, G11)."""

    async def main() -> None:
        async with aio.open(queue.path, clock=queue._store.clock, durability="normal") as q:
            await q.enqueue("held")
            lease = await q.lease_next()
            assert lease is not None
            await q.cancel(lease.job_id)
            cancel = cancelling("transaction")

            async def work() -> None:
                async with lease.transaction():
                    raise AssertionError

            with cancel.armed(Session, "_enter"):
                notes = await cancel.notes(work, turns.of(q.queue).writing)
            assert len(notes) == cancel.has_begun
            assert all(note.startswith("litequeue: transaction raised LeaseConflict: ") for note in notes)
            await q.enqueue("goes on")

    asyncio.run(main())


def test_an_error_of_the_block_is_seen_beside_the_cancellation_of_its_roll_back(
    queue: Queue, cancelling: Callable[[str], Cancelling]
) -> None:
    """As its context, as Python has it (G11)."""

    async def main() -> None:
        async with aio.open(queue.path, clock=queue._store.clock, durability="normal") as q:
            cancel = cancelling("rollback")
            transaction = q.transaction()
            seen: list[BaseException | None] = []

            async def work() -> None:
                try:
                    async with transaction:
                        if not cancel.has_begun:
                            session_of(transaction).tell(cancel.another())
                        raise RuntimeError("mine")
                except asyncio.CancelledError as exc:
                    seen.append(exc.__context__)
                    raise

            with cancel.armed(Store, "undo"):
                await cancel.notes(work, is_kept=True, goes_at_once=False)
            assert [str(error) for error in seen] == ["mine"]

    asyncio.run(main())


def test_cancelled_tasks_in_a_task_group_leave_the_others_work(queue: Queue) -> None:
    """Of twenty tasks one fails and the rest are cancelled wherever they are: each job is there wholly or not (G11)."""

    async def work(q: AsyncQueue, n: int) -> None:
        async with q.transaction() as tx:
            await tx.enqueue("one", n)
            if n == 7:
                raise RuntimeError("mine")
            await tx.enqueue("two", n)

    async def in_a_group(q: AsyncQueue) -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(20):
                group.create_task(work(q, n))

    async def main() -> None:
        async with aio.open(queue.path, clock=queue._store.clock, durability="normal") as q:
            with pytest.raises(ExceptionGroup):
                await in_a_group(q)
            jobs = await q.list()
            assert sorted(str(job.payload) for job in jobs if job.kind == "one") == sorted(
                str(job.payload) for job in jobs if job.kind == "two"
            )
            await q.enqueue("goes on")

    asyncio.run(main())


def test_a_timeout_around_a_transaction_rolls_it_back(queue: Queue) -> None:
    """`asyncio.timeout` cancels and raises `TimeoutError`, and the lock is free (G11)."""

    async def too_long(q: AsyncQueue) -> None:
        async with asyncio.timeout(0.02), q.transaction() as tx:
            await tx.enqueue("inside")
            await asyncio.Event().wait()

    async def main() -> None:
        async with aio.open(queue.path, clock=queue._store.clock, durability="normal") as q:
            with pytest.raises(TimeoutError):
                await too_long(q)
            await q.enqueue("goes on")
            assert (await q.stats()).total == 1

    asyncio.run(main())


@pytest.mark.parametrize("cancelling", ["done"], indirect=True)
def test_a_verb_that_comes_while_the_commit_is_done_is_too_late(
    queue: Queue, cancelling: Callable[[str], Cancelling]
) -> None:
    """Another task's, which is told so, as is one that comes later (V14)."""

    async def main() -> None:
        async with aio.open(queue.path, clock=queue._store.clock, durability="normal") as q:
            transaction = q.transaction()
            assert isinstance(transaction, aio.AsyncTransaction)
            stops = cancelling("none")

            async def work() -> None:
                async with transaction:
                    pass

            with stops.armed(Store, "commit"):
                task = asyncio.create_task(work())
                await stops.before.reached()
                late = asyncio.create_task(transaction.enqueue("late"))
                await asyncio.sleep(0)
                for stop in (stops.before, stops.after):
                    stop.go()
                await task
            with pytest.raises(litequeue.UsageError, match="over"):
                await late
            session_of(transaction).await_end(30)
            with pytest.raises(litequeue.UsageError, match="over"):
                await transaction.enqueue("later")
            assert (await q.stats()).total == 0

    asyncio.run(main())
