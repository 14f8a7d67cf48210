"""Tasks that the processes of a worker import; each shows one way in which a run can end."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import NoReturn

from litequeue import Discard, Retry, Snooze, Tasks, current_async_lease, current_lease

tasks = Tasks()


@tasks.task("run:plain", max_attempts=3)
def plain(to: str, *, subject: str = "") -> list[object]:
    """Say what was given, which job it was, and which process did it."""
    lease = current_lease()
    lease.note(f"to {to}")
    return [to, subject, str(lease.job_id), os.getpid()]


@tasks.task("run:awaited")
async def awaited(to: str) -> list[object]:
    """Do the same with awaits."""
    lease = current_async_lease()
    await lease.note(f"to {to}")
    await asyncio.sleep(0)
    return [to, "", str(lease.job_id), os.getpid()]


@tasks.task("run:in-transaction")
def in_transaction(to: str) -> None:
    """Complete the job together with a write of one's own."""
    with current_lease().transaction() as tx:
        tx.execute("CREATE TABLE IF NOT EXISTS sent (mail)")
        tx.execute("INSERT INTO sent VALUES (?)", (to,))


@tasks.task("run:third", short_retry=5)
def third() -> int:
    """Succeed at the third try."""
    attempts = current_lease().attempts
    if attempts < 3:
        raise Retry(0.01, f"attempt {attempts}")
    return attempts


@tasks.task("run:discarded")
def discarded() -> Discard:
    """Give the job up."""
    return Discard("no such user")


@tasks.task("run:snoozed")
async def snoozed() -> NoReturn:
    """Put the job off."""
    raise Snooze(1000)


@tasks.task("run:permanent", permanent=[LookupError, lambda exc: "never" in str(exc)])
def permanent(*, is_by_predicate: bool) -> NoReturn:
    """Fail for good."""
    raise ValueError("this will never do") if is_by_predicate else KeyError("x")


@tasks.task("run:exit")
def leaving() -> NoReturn:
    """Fail as a program does that has had enough."""
    sys.exit(3)


@tasks.task("run:exit-awaited")
async def leaving_awaited() -> NoReturn:
    """Fail in a way that ends an event loop."""
    raise SystemExit(4)


@tasks.task("run:cancelled")
async def cancelled() -> NoReturn:
    """Fail by a cancellation that nobody asked for."""
    raise asyncio.CancelledError


@tasks.task("run:group")
async def in_group() -> None:
    """Discard the job from a task beneath."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_discarding())


async def _discarding() -> NoReturn:
    raise Discard("found beneath")


@tasks.task("run:unstorable")
def unstorable() -> object:
    """Return what no queue can store."""
    return object()


@tasks.task("run:slow", timeout=0.2)
async def slow() -> None:
    """Take longer than is allowed."""
    await asyncio.sleep(60)
