"""What no checker may let pass: each line names the complaint that it must bring, of mypy and of pyright.

An ignore that nothing needs is an error for both, so a signature that has become laxer fails the check. Nothing here
is run: that most of it is an error at run time as well is tried in `tests/unit/test_worker_typing.py`.
"""

from __future__ import annotations

import litequeue
import litequeue.dbapi
from litequeue import Lease, Queue, Task, Transaction
from litequeue.aio import AsyncQueue
from litequeue.testing import Drain

tasks = litequeue.Tasks()


@tasks.task("mail:send")
def send(to: str, *, subject: str = "") -> int:
    """Send a mail."""
    return len(to + subject)


@tasks.task("mail:fetch")
async def fetch(box: str) -> list[str]:
    """Fetch mails."""
    return [box]


def wrong_arguments_of_a_task(q: Queue, tx: Transaction) -> None:
    """Call tasks, which keep the signatures of their functions."""
    send.enqueue(q)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    send.enqueue(q, 5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    send.enqueue(tx, "x", "y")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    send.enqueue(q, "x", object="y")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    send.options(delay=5).enqueue(q, b"x")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    send.options(prio=5)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    send.options(priority="5")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    send.new_job("x", too=5)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    other: Task[[int], int] = send  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    other("x")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    mailed: str = send("x")  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    later: Task[[int], int] | str = mailed or other
    assert later


async def forgotten_awaits(q: AsyncQueue) -> tuple[object, ...]:
    """Await not what is asynchronous."""
    enqueued: litequeue.Enqueued = send.enqueue(q, "x")  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    leased: Lease | None = await q.lease_next()  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    mailed: int = await fetch("x")  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    with q.transaction():  # type: ignore[attr-defined] # pyright: ignore[reportGeneralTypeIssues]
        return enqueued, leased, mailed


def wrong_words(q: Queue, lease: Lease) -> None:
    """Say words that are none."""
    q.enqueue("k", on_conflict="ignore")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    q.enqueue("k", None, "tenant")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    litequeue.open("x", durability="safe")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    lease.checkpoint("text")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    lease.fail()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    q.lease_next(ttl="soon")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    q.lease_next().complete()  # type: ignore[union-attr] # pyright: ignore[reportOptionalMemberAccess]


def handle_too_much(lease: Lease, more: str) -> str:
    """Take what no worker gives."""
    return lease.kind + more


def wrong_handlers(q: Queue, drain: Drain) -> None:
    """Give what takes no lease."""
    litequeue.Worker(q, {"a": handle_too_much})  # type: ignore[dict-item] # pyright: ignore[reportArgumentType]
    litequeue.Worker(q, tasks, mode="fibers")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    litequeue.Worker(q, tasks, concurency=4)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    litequeue.Outbox(q, "a").deliver(handle_too_much)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    drain(handle_too_much)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    litequeue.dbapi.enqueue(q)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
