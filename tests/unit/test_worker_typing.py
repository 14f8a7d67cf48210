"""What a type checker knows of tasks and handlers; mypy checks this file with the others (issue 5, `ParamSpec`).

Owns the proof that a task keeps its function's signature: each wrong call carries the complaint that it must bring, and
an ignore that nobody needs is an error. That the calls are wrong at run time as well is tried where that is true.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, assert_type

import pytest

from litequeue import Enqueued, Handler, Lease, NewJob, Task, Tasks, UsageError, aio
from litequeue.worker.handlers import Handlers
from litequeue.worker.tasks import TaskOptions

if TYPE_CHECKING:
    from pathlib import Path

    from litequeue import Queue
    from litequeue.aio import AsyncLease

tasks = Tasks()


@tasks.task("mail:send", max_attempts=3, short_retry=5, permanent=(ValueError, lambda exc: exc.args == ()))
def send(to: str, *, subject: str = "") -> int:
    """Send a mail."""
    return len(to + subject)


@tasks.task("mail:fetch")
async def fetch(box: str) -> list[str]:
    """Fetch mails."""
    return [box]


def test_a_task_keeps_its_functions_signature(queue: Queue) -> None:
    """Called, enqueued, with options and as a new job."""
    assert_type(send("x", subject="y"), int)
    assert_type(send.enqueue(queue, "x", subject="y"), Enqueued)
    assert_type(send.new_job("x"), NewJob)
    assert_type(send.options(delay=5).new_job(to="x"), NewJob)
    with queue.transaction() as tx:
        assert_type(send.options(delay=5).enqueue(tx, "x"), Enqueued)
        assert_type(send.enqueue(tx, "x"), Enqueued)
    coroutine = assert_type(fetch("x"), Coroutine[Any, Any, list[str]])
    coroutine.close()
    assert_type(fetch.enqueue(queue, "x"), Enqueued)


def test_an_asynchronous_queue_is_a_target_that_is_awaited(tmp_path: Path) -> None:
    """And so is its transaction; with options too."""

    async def run() -> None:
        async with aio.open(tmp_path / "queue.db") as q:
            first = await send.enqueue(q, "x", subject="y")
            assert_type(first, Enqueued)
            async with q.transaction() as tx:
                second = assert_type(await send.options(delay=5).enqueue(tx, "x"), Enqueued)
            assert (await q.get(first.job_id)).payload == [["x"], {"subject": "y"}]
            assert (await q.get(second.job_id)).payload == [["x"], {}]
            with pytest.raises(UsageError):
                await send.enqueue(q)  # type: ignore[call-arg]

    asyncio.run(run())


def test_a_wrong_call_is_a_wrong_type(queue: Queue) -> None:
    """And mostly a `UsageError`."""
    with pytest.raises(UsageError):
        send.enqueue(queue)  # type: ignore[call-arg]
    with pytest.raises(UsageError):
        send.enqueue(queue, "x", "y")  # type: ignore[call-arg]
    with pytest.raises(UsageError):
        send.enqueue(queue, "x", object="y")  # type: ignore[call-arg]
    with pytest.raises(UsageError):
        send.options(delay=5).enqueue(queue)  # type: ignore[call-arg]
    with pytest.raises(UsageError):
        send.options(delay=5).new_job()  # type: ignore[call-arg]
    with pytest.raises(UsageError):
        send.new_job("x", too=5)  # type: ignore[call-arg]
    with pytest.raises(UsageError):
        send.enqueue("x")  # type: ignore[arg-type, call-arg]
    with pytest.raises(UsageError):
        send.options(priority="5")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        send.options(prio=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        send()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        send(5)  # type: ignore[arg-type]
    send.enqueue(queue, 5)  # type: ignore[arg-type]
    fetch.enqueue(queue, box=b"x")  # type: ignore[arg-type]
    fetch.options(delay=5).enqueue(queue, box=b"x")  # type: ignore[arg-type]


def test_tasks_and_options_can_be_named_in_annotations(queue: Queue) -> None:
    """A task stands for what it takes and returns; what it returns may be seen as something wider."""
    named: Task[[str], object] = Tasks().task("a")(len)
    wider: Task[[str], Awaitable[list[str]]] = Tasks().task("a")(fetch.function)
    later: TaskOptions[[str]] = wider.options(delay=5)
    assert later.enqueue(queue, "x").created
    assert named("x") == 1
    other: Task[[int], object] = wider  # type: ignore[assignment]
    assert other is wider  # type: ignore[comparison-overlap]


def handle(lease: Lease) -> str:
    """Handle a job."""
    return lease.kind


async def handle_later(lease: AsyncLease) -> str:
    """Handle a job."""
    return lease.kind


def handle_more(lease: Lease, more: str) -> str:
    """Take too much."""
    return lease.kind + more


def is_bad(exc: Exception) -> bool:
    """Tell."""
    return exc.args == ()


def test_whatever_may_handle_a_job_may_be_given() -> None:
    """In one mapping: functions, lambdas, handlers, tasks; and `Tasks` itself."""
    Handlers(
        {"a": handle, "b": handle_later, "c": lambda lease: lease.kind, "d": Handler(handle), "e": send, "f": fetch}
    )
    Handlers(tasks)
    Handlers({**tasks, "a": handle})
    Handler(handle, permanent=[ValueError, is_bad])
    Handler(handle, permanent=is_bad)
    function: Callable[[Lease], object] = handle
    by_kind = {"a": function}
    Handlers(by_kind)
    with pytest.raises(UsageError):
        Handlers({"a": handle_more})  # type: ignore[dict-item]
    with pytest.raises(UsageError):
        Handler(handle_more)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        Handler(handle, permanent=int)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        Handler(handle, timeout="5")  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        Handlers([handle])  # type: ignore[arg-type]
