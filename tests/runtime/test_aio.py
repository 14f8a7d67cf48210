"""The verbs as coroutines: the same verbs, with the same words, and the end of a queue (issue 5, 8; V1 to V15)."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import (
    JobState,
    Lease,
    LeaseConflict,
    NewJob,
    PayloadError,
    Queue,
    QueueClosed,
    Transaction,
    UsageError,
    aio,
)

if TYPE_CHECKING:
    from pathlib import Path

    from litequeue.testing import FakeClock

OWN_OF_PLAIN = {
    Queue: {"between_steps", "options", "job_waiter", "surveyor", "exporter", "follower"},
    Transaction: {"attempt", "finish", "is_over"},
    Lease: {"checkpointed", "holder", "found_lost", "found_settled", "again"},
}
"""What has no coroutine: what a `with` block or the store says to the object, and an attribute that is one here too."""
NO_COROUTINES = {"transaction", "lease_transaction", "lease_in_transaction", "waiter"}
"""What is entered by `async with`, and what waits later."""
SHELLS: list[tuple[type, type]] = [
    (Queue, aio.AsyncQueue),
    (Transaction, aio.AsyncTransaction),
    (Lease, aio.AsyncLease),
]


def public(plain: type) -> list[str]:
    """Return the public names of a plain class."""
    return [name for name in dir(plain) if not name.startswith("_") and name not in OWN_OF_PLAIN[plain]]


MEMBERS = [(plain, shell, name) for plain, shell in SHELLS for name in public(plain)]


@pytest.mark.parametrize(("plain", "shell", "name"), MEMBERS, ids=[f"{p.__name__}.{n}" for p, _, n in MEMBERS])
def test_each_verb_has_its_coroutine_and_each_attribute_is_shown(plain: type, shell: type, name: str) -> None:
    """With the plain one's parameters and words, so that a new verb cannot be forgotten here (issue 5, 8)."""
    theirs, ours = inspect.getattr_static(plain, name), inspect.getattr_static(shell, name)
    if not inspect.isfunction(theirs):
        assert isinstance(ours, property), name
        assert inspect.getdoc(ours)
        return
    assert inspect.iscoroutinefunction(ours) == (name not in NO_COROUTINES)
    if name not in NO_COROUTINES:
        assert inspect.signature(ours).parameters == inspect.signature(getattr(plain, name)).parameters
        assert inspect.getdoc(ours)
        assert ours.__name__ == name


def test_open_takes_what_the_plain_one_takes() -> None:
    """By the same names, with the same defaults (issue 5, 8; §9)."""
    assert inspect.signature(aio.open).parameters == inspect.signature(litequeue.open).parameters


def test_the_plain_package_imports_no_asyncio() -> None:
    """Who has no loop pays for none (issue 5, 8)."""
    program = "import sys, litequeue; print('asyncio' in sys.modules, 'litequeue.aio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == (
        "False False\n"
    )


def test_a_job_is_worked_from_enqueue_to_complete(path: Path, clock: FakeClock) -> None:
    """The main cycle, and what a lease shows of itself (V1, V3, V4, V5, V6)."""

    async def main() -> None:
        async with aio.open(path, clock=clock) as q:
            made = await q.enqueue("work", {"a": 1})
            assert made.created
            lease = await q.lease_next(["work"], ttl=60)
            assert lease is not None
            assert (lease.job_id, lease.kind, lease.payload) == (made.job_id, "work", {"a": 1})
            assert (lease.attempts, lease.lease_generation, lease.scope) == (1, 1, "default")
            deadline_us = lease.deadline_us
            clock.advance(50)
            await lease.checkpoint(b"half", progress=0.5, note="half")
            assert lease.continuation == b"half"
            await lease.checkpoint(progress=0.6)
            assert lease.continuation == b"half"
            clock.advance(5)
            await lease.extend()
            assert lease.deadline_us == deadline_us + 55_000_000
            await lease.note("more")
            await lease.complete("done", then=[NewJob("next")])
            job = await q.get(made.job_id)
            assert (job.state, job.result) == (JobState.COMPLETED, "done")
            assert [job.kind for job in await q.list(JobState.PENDING)] == ["next"]
            assert await q.lease_next(["work"]) is None

    asyncio.run(main())


def test_leases_are_given_in_their_shells_or_without(path: Path) -> None:
    """To the verbs for many, by place and by name (V4, V6, V8)."""

    async def main() -> None:
        async with aio.open(path) as q:
            await q.enqueue_many(NewJob("work", n) for n in range(6))
            leases = await q.lease_many(6)
            assert await q.extend_many(leases) == []
            assert await q.extend_many([lease.lease for lease in leases]) == []
            assert await q.complete_many(leases[:2], [1, 2]) == []
            await q.complete(leases[2], "by place")
            await q.complete(lease=leases[3], result="by name")  # type: ignore[call-arg] # by name at run time only
            await q.fail(leases[4].lease, "boom", retryable=False)
            assert await q.release_many(leases=leases[5:]) == []  # type: ignore[call-arg]
            counts = (await q.stats()).counts
            assert counts[JobState.COMPLETED] == 4
            assert counts[JobState.DEAD] == counts[JobState.PENDING] == 1

    asyncio.run(main())


def test_errors_are_the_plain_ones(path: Path) -> None:
    """Arguments, conflicts, payloads and a closed handle (§6, G1)."""

    async def main() -> None:
        async with aio.open(path) as q:
            with pytest.raises(UsageError, match="priority"):
                await q.enqueue("work", priority=256)
            await q.enqueue("work")
            lease = await q.lease_next()
            assert lease is not None
            with pytest.raises(PayloadError):
                await lease.complete(object())
            await q.cancel(lease.job_id)
            with pytest.raises(LeaseConflict):
                await lease.complete()
            with pytest.raises(LeaseConflict):
                async with lease.transaction():
                    raise AssertionError
            with pytest.raises(UsageError, match="a Lease"):
                await q.complete("lease")  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="a Lease"):
                await q.complete_many("lease")  # type: ignore[arg-type]
        with pytest.raises(QueueClosed):
            await q.enqueue("work")
        with pytest.raises(QueueClosed):
            await q.get(lease.job_id)
        with pytest.raises(litequeue.CannotOpen):
            await aio.open(path.parent / "none" / "q")

    asyncio.run(main())


@pytest.mark.parametrize("item", [None, "lease", object()])
def test_a_shell_is_made_of_its_plain_thing_only(item: Lease) -> None:
    """Anything else is a usage error (§6)."""
    with pytest.raises(UsageError, match="lease must be"):
        aio.AsyncLease(item)
    with pytest.raises(UsageError, match="queue must be"):
        aio.AsyncQueue(item)  # type: ignore[arg-type]


# --- closing


def test_closing_gives_back_what_is_held_and_is_idempotent(path: Path, queue: Queue, clock: FakeClock) -> None:
    """Also in a transaction of before, and from many tasks (§4)."""

    async def main() -> None:
        q = await aio.open(path, clock=clock)
        await q.enqueue_many(NewJob("work") for _ in range(3))
        await q.lease_many(2)
        async with q.transaction() as tx:
            await tx.lease_next()
        assert queue.stats().counts[JobState.LEASED] == 3
        await asyncio.gather(q.close(), q.close(), q.close())
        await q.close()

    asyncio.run(main())
    assert queue.stats().counts[JobState.PENDING] == 3


@pytest.mark.parametrize(
    ("error", "state"), [(RuntimeError, JobState.LEASED), (asyncio.CancelledError, JobState.PENDING)]
)
def test_a_block_that_an_error_ends_gives_nothing_back(
    path: Path, queue: Queue, clock: FakeClock, error: type[BaseException], state: JobState
) -> None:
    """As with the plain block: an error is a crash, being told to stop is an orderly end (§4, G6)."""

    async def main() -> None:
        async with aio.open(path, clock=clock) as q:
            await q.enqueue("work")
            await q.lease_next()
            raise error

    with pytest.raises(error):
        asyncio.run(main())
    assert queue.stats().counts[state] == 1


def test_closing_waits_for_an_open_transaction(path: Path, queue: Queue, clock: FakeClock) -> None:
    """And nothing of it is lost (G2)."""

    async def main() -> None:
        q = await aio.open(path, clock=clock)
        async with q.transaction() as tx:
            closing = asyncio.create_task(q.close())
            await asyncio.sleep(0)
            await tx.enqueue("work")
            assert not closing.done()
        await closing

    asyncio.run(main())
    assert queue.stats().total == 1


def test_closing_comes_after_all_that_was_called_before(path: Path, queue: Queue, clock: FakeClock) -> None:
    """None of the verbs of other tasks finds the queue closed (§4)."""

    async def main() -> None:
        q = await aio.open(path, clock=clock)
        verbs = [asyncio.create_task(q.enqueue("work", n)) for n in range(200)]
        await asyncio.sleep(0)
        await q.close()
        await asyncio.gather(*verbs)

    asyncio.run(main())
    assert queue.stats().total == 200
