"""What a user of the package might write: every part of its public face, strictly typed, and run as it stands."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import apsw

import litequeue
import litequeue.aio
from litequeue import ANY, SYSTEM, Job, JobState, Lease, Message, NewJob, Outbox, Queue, Transaction
from litequeue.aio import AsyncLease, AsyncQueue
from litequeue.metrics import Collector

tasks = litequeue.Tasks()
told: list[object] = []


@dataclass(frozen=True)
class Order:
    """One order."""

    number: int
    total: float


@tasks.task("order:bill", max_attempts=3, timeout=5.0)
def bill(number: int, *, total: float = 0.0) -> str:
    """Bill an order, and say how far that is."""
    lease = litequeue.current_lease()
    lease.checkpoint(b"half", progress=0.5, note="half of it")
    lease.note("billed")
    return f"{number}: {total:.2f}"


@tasks.task("order:ship")
async def ship(number: int, to: str | None = None) -> list[str]:
    """Ship an order."""
    lease = litequeue.current_async_lease()
    await lease.extend()
    return [str(number), to or "nobody"]


def pack(lease: Lease) -> int:
    """Pack what the payload names; a handler without a task."""
    payload = lease.payload
    if not isinstance(payload, int):
        raise litequeue.Discard("there is nothing to pack")
    with lease.transaction() as tx:
        tx.execute("INSERT INTO packed VALUES (?)", (payload,))
    return payload


async def label(lease: AsyncLease) -> str:
    """Write a label; an asynchronous handler without a task."""
    async with lease.transaction() as tx:
        await tx.execute("INSERT INTO packed VALUES (?)", [0])
    return lease.kind


def place(q: Queue, orders: Iterable[Order]) -> list[UUID]:
    """Enqueue in every way there is."""
    ids: list[UUID] = []
    with q.transaction() as tx:
        tx.execute("CREATE TABLE IF NOT EXISTS packed (n INTEGER NOT NULL)")
        for order in orders:
            enqueued = bill.enqueue(tx, order.number, total=order.total)
            ids.append(enqueued.job_id)
            assert enqueued.created
    later = ship.options(delay=dt.timedelta(hours=1), priority=10).enqueue(q, 7, to="a@example.org")
    with_parents = q.enqueue("pack", 2, after=ids, on_parent_failure="run")
    many = q.enqueue_many(NewJob("label", n, idempotency_key=f"label {n}") for n in range(2))
    chained = q.enqueue_many([ship.new_job(8), NewJob("pack", [], expires=60.0)])
    return [*ids, later.job_id, with_parents.job_id, *(one.job_id for one in (*many, *chained))]


def look(q: Queue, job_id: UUID) -> str:
    """Read a job."""
    try:
        job: Job = q.get(job_id)
    except litequeue.JobNotFound:
        return "gone"
    events = [event.transition for event in job.events]
    return f"{job.kind} {job.state.name} {job.attempts} {len(events)} {job.last_error or job.result}"


def on_event(event: litequeue.WorkerEvent) -> None:
    """Hear what a worker tells."""
    told.append((event.name, event.kind, event.duration_s))


def work(q: Queue) -> litequeue.Ending:
    """Run what is ready: tasks and handlers, plain and asynchronous."""
    q.retry(q.list(state=JobState.SCHEDULED, kind="order:", limit=1)[0].job_id)
    with Collector(q) as collector:
        worker = litequeue.Worker(
            q,
            {**tasks, "pack": litequeue.Handler(pack, permanent=[ValueError]), "label": label},
            concurrency=2,
            mode="threads",
            drain_timeout=5.0,
            on_event=on_event,
            until_empty=True,
        )
        ending = worker.run()
        assert "litequeue_up" in collector.text()
    return ending


def by_hand(q: Queue) -> None:
    """Lease, settle and hand on."""
    q.enqueue("hand", {"a": (1, dt.datetime.now(dt.UTC))})
    lease = q.lease_next(["hand"], ttl=30)
    assert lease is not None
    lease.complete({"ok": True}, then=[NewJob("hand")])
    for one in q.lease_many(10, kinds=["hand"], scope=ANY):
        one.release(delay=0.0)
    with q.lease_in_transaction(["hand"]) as (tx, job):
        if job is not None:
            tx.fail(job, "not today", retryable=False)
    conflicts: list[litequeue.LeaseConflict] = q.complete_many([lease])
    assert [type(conflict) for conflict in conflicts] == [litequeue.LeaseConflict]
    q.enqueue("upkeep", scope=SYSTEM)
    assert q.wait(0.0, scope=SYSTEM)
    q.set("lease_ttl", 60, "hand")
    report: litequeue.MaintenanceReport = litequeue.Maintenance(q).run_once()
    counts: dict[str, object] = dict(report.as_dict())
    assert counts


def put(outbox: Outbox, tx: Transaction) -> UUID:
    """Tell somebody outside."""
    return outbox.put(tx, {"order": 1}, key="order 1")


def deliver(message: Message) -> None:
    """Be the one who is told."""
    told.append((message.id, message.body))


async def asynchronously(path: Path) -> str:
    """Do it in an event loop."""
    async with litequeue.aio.open(path, scope="async") as q:
        await ship.enqueue(q, 9)
        await bill.options(priority=1).enqueue(q, 9, total=1.0)
        async with q.transaction() as tx:
            await tx.enqueue("pack", [])
        lease = await q.lease_next(["order:bill"])
        assert lease is not None
        await lease.complete("by hand")
        return (await told_of(q, lease.job_id)).name


async def told_of(q: AsyncQueue, job_id: UUID) -> JobState:
    """Wait for a job."""
    job = await q.wait_for(job_id, timeout=5.0)
    return job.state


def attached(path: Path) -> int:
    """Be a guest in an application's own connection."""
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")  # pyright: ignore[reportUnknownMemberType] # apsw's
    with litequeue.attach(connection, scope="shop") as q:
        with connection:
            connection.execute("CREATE TABLE orders (id INTEGER)")  # pyright: ignore[reportUnknownMemberType] # apsw's
            q.enqueue("order:placed", 1)
            bill.enqueue(q, 1)
        return sum(q.stats().counts.values())


def main(folder: Path) -> None:
    """Do it all."""
    with litequeue.open(folder / "shop.queue", durability="normal", busy_timeout=2.0) as q:
        ids = place(q, [Order(1, 9.5), Order(2, 1)])
        ending = work(q)
        assert ending.completed >= len(ids) - 1, ending
        assert look(q, ids[0]) == "order:bill COMPLETED 1 5 1: 9.50", look(q, ids[0])
        by_hand(q)
        outbox = Outbox(q, "orders")
        with q.transaction() as tx:
            put(outbox, tx)
        outbox.deliver(deliver, until_empty=True).run()
        assert outbox.waiting() == 0
        assert told[-1] == (told[-1][0], {"order": 1}) if isinstance(told[-1], tuple) else False
    assert asyncio.run(asynchronously(folder / "shop.queue")) == "COMPLETED"
    assert attached(folder / "orders.db") == 2
    found: litequeue.Diagnosis = litequeue.doctor(folder / "shop.queue")
    assert found.is_healthy, found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
