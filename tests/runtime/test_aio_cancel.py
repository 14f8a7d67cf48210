"""A cancelled verb: not done if it had not begun, else done and told; no lock and no lease is left (issue 5, 8).

Each verb is cancelled at each point where its task may be (`stops`); all are forced, none is hit by luck.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import ANY, Job, JobState, Lease, NewJob, Queue, aio
from litequeue.aio import turns
from litequeue.settlement import Completed, Failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from litequeue.aio import AsyncLease, AsyncQueue
    from litequeue.aio.shell import Way
    from litequeue.testing import FakeClock
    from tests.runtime.stops import Cancelling


pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Case:
    """One verb: how it is called, which plain method does it, and what it waits for."""

    call: Callable[[AsyncQueue, AsyncLease, Path], Awaitable[object]]
    owner: type = Queue
    way: Way = "write"
    leases: bool = False
    """Whether all that it does is to lease, so that nothing is left of it."""


VERBS = {
    "enqueue": Case(lambda q, _, __: q.enqueue("made", 1)),
    "enqueue_many": Case(lambda q, _, __: q.enqueue_many([NewJob("made", 1), NewJob("made", 2)])),
    "batch": Case(lambda q, _, __: q.batch([NewJob("made", 1)], NewJob("made", 2))),
    "lease_next": Case(lambda q, _, __: q.lease_next(), leases=True),
    "lease_many": Case(lambda q, _, __: q.lease_many(9), leases=True),
    "exchange": Case(lambda q, lease, _: q.exchange([Completed(lease.lease, "done")], 9)),
    "extend": Case(lambda q, lease, _: q.extend(lease, 1000)),
    "extend_many": Case(lambda q, lease, _: q.extend_many([lease], 1000)),
    "checkpoint": Case(lambda q, lease, _: q.checkpoint(lease, b"half", 0.5)),
    "note": Case(lambda q, lease, _: q.note(lease, "half")),
    "complete": Case(lambda q, lease, _: q.complete(lease, "done")),
    "complete_many": Case(lambda q, lease, _: q.complete_many([lease], ["done"])),
    "fail": Case(lambda q, lease, _: q.fail(lease, "boom")),
    "fail_many": Case(lambda q, lease, _: q.fail_many([lease], "boom")),
    "release": Case(lambda q, lease, _: q.release(lease)),
    "release_many": Case(lambda q, lease, _: q.release_many([lease])),
    "cancel": Case(lambda q, lease, _: q.cancel(lease.job_id)),
    "cancel_many": Case(lambda q, lease, _: q.cancel_many([lease.job_id])),
    "remove": Case(lambda q, _, __: q.remove(ID_OF_DEAD)),
    "remove_many": Case(lambda q, _, __: q.remove_many([ID_OF_DEAD])),
    "edit": Case(lambda q, _, __: q.edit(ID_OF_MESSAGE, priority=1)),
    "edit_many": Case(lambda q, _, __: q.edit_many([ID_OF_MESSAGE], priority=1)),
    "retry": Case(lambda q, _, __: q.retry(ID_OF_DEAD)),
    "retry_many": Case(lambda q, _, __: q.retry_many([ID_OF_DEAD])),
    "set": Case(lambda q, _, __: q.set("lease_ttl", 77)),
    "unset": Case(lambda q, _, __: q.unset("max_attempts")),
    "reap_expired": Case(lambda q, _, __: q.reap_expired(), way="upkeep"),
    "reap_dead": Case(lambda q, _, __: q.reap_dead(), way="upkeep"),
    "promote_due": Case(lambda q, _, __: q.promote_due(), way="upkeep"),
    "expire_overdue": Case(lambda q, _, __: q.expire_overdue(), way="upkeep"),
    "prune": Case(lambda q, _, __: q.prune(), way="upkeep"),
    "tell_waiting": Case(lambda q, _, __: q.tell_waiting(), way="upkeep"),
    "pull_in": Case(lambda q, _, __: q.pull_in(), way="upkeep"),
    "vacuum": Case(lambda q, _, __: q.vacuum(), way="upkeep"),
    "checkpoint_wal": Case(lambda q, _, __: q.checkpoint_wal(), way="upkeep"),
    "backup": Case(lambda q, _, path: q.backup(path.with_suffix(".copy")), way="upkeep"),
    "sibling": Case(lambda q, _, __: q.sibling(), way="upkeep"),
    "pause": Case(lambda q, _, __: q.pause("made")),
    "resume": Case(lambda q, _, __: q.resume("held back")),
    "pauses": Case(lambda q, _, __: q.pauses(), way="read"),
    "set_weight": Case(lambda q, _, __: q.set_weight("default", 2)),
    "weights": Case(lambda q, _, __: q.weights(), way="read"),
    "scope_settings": Case(lambda q, _, __: q.scope_settings(), way="read"),
    "schedule": Case(lambda q, _, __: q.schedule("tick", "@every 5m", "made")),
    "unschedule": Case(lambda q, _, __: q.unschedule("tock")),
    "schedules": Case(lambda q, _, __: q.schedules(), way="read"),
    "pause_schedule": Case(lambda q, _, __: q.pause_schedule("tock")),
    "resume_schedule": Case(lambda q, _, __: q.resume_schedule("tock")),
    "run_now": Case(lambda q, _, __: q.run_now("tock")),
    "fire_schedules": Case(lambda q, _, __: q.fire_schedules(), way="upkeep"),
    "until_boundary": Case(lambda q, _, __: q.until_boundary(), way="read"),
    "put_message": Case(lambda q, _, __: q.put_message("mail", 2, key="one")),
    "discard_message": Case(lambda q, _, __: q.discard_message("mail", ID_OF_MESSAGE)),
    "waiting_messages": Case(lambda q, _, __: q.waiting_messages("mail"), way="read"),
    "get": Case(lambda q, lease, _: q.get(lease.job_id), way="read"),
    "find": Case(lambda q, lease, _: q.find(str(lease.job_id)), way="read"),
    "list": Case(lambda q, _, __: q.list(), way="read"),
    "dependencies": Case(lambda q, lease, _: q.dependencies(lease.job_id), way="read"),
    "until_work": Case(lambda q, _, __: q.until_work(), way="read"),
    "scopes": Case(lambda q, _, __: q.scopes(), way="read"),
    "held_back": Case(lambda q, lease, _: q.held_back(lease.job_id), way="read"),
    "stats": Case(lambda q, _, __: q.stats(), way="read"),
    "settings": Case(lambda q, _, __: q.settings(), way="read"),
    "kind_settings": Case(lambda q, _, __: q.kind_settings(), way="read"),
    "has_dead": Case(lambda q, _, __: q.has_dead(), way="read"),
    "register": Case(lambda q, _, __: q.register()),
    "workers": Case(lambda q, _, __: q.workers(), way="read"),
    "lost": Case(lambda q, lease, _: q.lost([lease]), way="read"),
    "reaper_interval": Case(lambda q, _, __: q.reaper_interval(), way="read"),
    "lease.extend": Case(lambda _, lease, __: lease.extend(1000), Lease),
    "lease.checkpoint": Case(lambda _, lease, __: lease.checkpoint(b"half", 0.5), Lease),
    "lease.note": Case(lambda _, lease, __: lease.note("half"), Lease),
    "lease.complete": Case(lambda _, lease, __: lease.complete("done"), Lease),
    "lease.fail": Case(lambda _, lease, __: lease.fail("boom"), Lease),
    "lease.release": Case(lambda _, lease, __: lease.release(), Lease),
}
ELSEWHERE = {
    *("close", "wait", "waiter", "wait_for"),
    *("transaction", "lease_transaction", "lease_in_transaction", "lease.transaction"),
}
"""Cancelled in tests of their own."""
ID_OF_DEAD = "01900000-0000-7000-8000-000000000001"
ID_OF_MESSAGE = "01900000-0000-7000-8000-000000000002"


def test_every_verb_is_cancelled_somewhere() -> None:
    """A new coroutine cannot be forgotten here (issue 5, 8)."""
    of_queue = {name for name in dir(aio.AsyncQueue) if callable(getattr(aio.AsyncQueue, name))}
    of_lease = {f"lease.{name}" for name in dir(aio.AsyncLease) if callable(getattr(aio.AsyncLease, name))}
    public = {name for name in of_queue | of_lease if not name.rpartition(".")[2].startswith("_")}
    assert public == VERBS.keys() | (ELSEWHERE & public)


def prepare(queue: Queue) -> Lease:
    """Fill a queue with a job in each state that a verb may want; return the lease that it is to be about."""
    queue.set("max_attempts", 9)
    queue.enqueue("held", "held")
    (lease,) = queue.lease_many(1)
    queue.enqueue("dead", "dead", job_id=ID_OF_DEAD)
    (dead,) = queue.lease_many(1)
    dead.fail("boom", retryable=False)
    for n in range(3):
        queue.enqueue("ready", n)
        queue.enqueue("later", n, delay=60)
    queue.pause("held back")
    queue.schedule("tock", "@every 5m", "made")
    queue.put_message("mail", 1, key="one", message_id=ID_OF_MESSAGE)
    return lease


def seen(queue: Queue) -> list[object]:
    """Return all that a verb may change and another process may see."""

    def shown(job: Job) -> list[object]:
        return [job.kind, job.payload, job.state, job.attempts, job.continuation, job.lease_deadline, job.last_error]

    jobs = [job for job in queue.list(scope=ANY, limit=1000) if job.kind != "of another process"]
    notes = [event.detail for job in jobs for event in job.events if event.transition is litequeue.Transition.NOTE]
    agreed = [queue.settings(), queue.pauses(), queue.weights(), queue.schedules(), queue.waiting_messages("mail")]
    return [sorted(map(shown, jobs), key=str), notes, agreed]


@pytest.mark.parametrize("name", VERBS)
def test_a_cancelled_verb_is_done_or_not_and_leaves_nothing_behind(
    queue: Queue, assert_free: Callable[[Path], None], cancelling: Callable[[str], Cancelling], name: str
) -> None:
    """No lock and no lease; what had begun is done as ever, what had not is not (issue 5, 8; G1, G5, G11)."""
    case = VERBS[name]
    clock = queue._store.clock
    path = Path(queue.path)
    twin = path.with_name("twin.queue")
    method = name.rpartition(".")[2]

    async def uncancelled() -> list[object]:
        async with aio.open(twin, clock=clock, durability="normal") as q:
            lease = aio.AsyncLease(prepare(q.queue))
            before = seen(q.queue)
            done = await case.call(q, lease, twin)
            if isinstance(done, litequeue.Exchange):
                q.queue.release_many(done.leases)
            if isinstance(done, aio.AsyncQueue):
                await done.close()
            return before if case.leases else seen(q.queue)

    async def main() -> None:
        wanted = await uncancelled()
        async with aio.open(path, clock=clock, durability="normal") as q:
            lease = aio.AsyncLease(prepare(q.queue))
            before = seen(queue)
            cancel = cancelling(method)

            async def work() -> None:
                await case.call(q, lease, path)

            with cancel.armed(case.owner, method):
                notes = await cancel.notes(work, turns.of(q.queue).lane(case.way))
            assert_free(path)
            assert seen(queue) == (before if not cancel.has_begun else wanted)
            assert len(notes) == (cancel.has_begun and case.way != "read")
            assert all(note.startswith(f"litequeue: {method} was done when this came") for note in notes)
            await q.enqueue("goes on")
            assert await q.lease_next(["goes on"]) is not None

    asyncio.run(main())


@pytest.mark.parametrize("cancelling", ["begun"], indirect=True)
def test_a_cancelled_wait_for_the_lock_of_another_process_ends_when_the_wait_does(
    queue: Queue, cancelling: Callable[[str], Cancelling]
) -> None:
    """A thread that waits for SQLite's lock cannot be called back, only what waits in line can (§6 `QueueBusy`)."""

    async def main() -> None:
        async with aio.open(queue.path, clock=queue._store.clock, durability="normal", busy_timeout=0.1) as q:
            cancel = cancelling("enqueue")

            async def work() -> None:
                await q.enqueue("made")

            with queue.transaction(), cancel.armed(Queue, "enqueue"):  # another handle, as another process is
                (note,) = await cancel.notes(work)
            assert note.startswith("litequeue: enqueue raised QueueBusy: ")
            assert (await q.stats()).total == 0
            await q.enqueue("goes on")

    asyncio.run(main())


@pytest.mark.parametrize("cancelling", ["begun", "heard"], indirect=True)
def test_what_a_cancelled_exchange_has_taken_again_is_given_back_for_its_pause(
    queue: Queue, clock: FakeClock, cancelling: Callable[[str], Cancelling]
) -> None:
    """What it settled stays so; nobody else has the job before the pause is over, and then somebody has (V8, G5)."""

    async def main() -> None:
        async with aio.open(queue.path, clock=clock, durability="normal") as q:
            await q.enqueue("failing")
            lease = await q.lease_next()
            assert lease is not None
            await q.enqueue("ready")
            cancel = cancelling("exchange")

            async def work() -> None:
                await q.exchange([Failed(lease.lease, "boom", delay=5, retake_within=60)], 1)

            with cancel.armed(Queue, "exchange"):
                await cancel.notes(work)
            assert lease.settled
            states = {job.kind: job.state for job in queue.list()}
            assert states == {"failing": JobState.SCHEDULED, "ready": JobState.PENDING}
            clock.advance(5)
            assert {lease.kind for lease in queue.lease_many(2)} == {"failing", "ready"}

    asyncio.run(main())


@pytest.mark.parametrize("cancelling", ["begun", "heard"], indirect=True)
def test_a_cancelled_sibling_is_closed(
    queue: Queue, cancelling: Callable[[str], Cancelling], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else could (issue 5, 8)."""
    siblings: list[Queue] = []
    plain = Queue.sibling

    def known(handle: Queue) -> Queue:
        siblings.append(plain(handle))
        return siblings[-1]

    monkeypatch.setattr(Queue, "sibling", known)

    async def main() -> None:
        async with aio.open(queue.path, clock=queue._store.clock, durability="normal") as q:
            cancel = cancelling("sibling")

            async def work() -> None:
                await q.sibling()

            with cancel.armed(Queue, "sibling"):
                await cancel.notes(work)
            with pytest.raises(litequeue.QueueClosed):
                siblings[0].stats()

    asyncio.run(main())


def test_a_cancelled_close_closes(queue: Queue, cancelling: Callable[[str], Cancelling]) -> None:
    """At whatever point; what was held is given back (§4)."""

    async def main() -> None:
        q = await aio.open(queue.path, clock=queue._store.clock, durability="normal")
        await q.enqueue("held")
        await q.lease_next()
        cancel = cancelling("close")

        async def work() -> None:
            if not cancel.has_begun:
                turns.of(q.queue).writing.enter(cancel.another())
            await q.close()

        with cancel.armed(Queue, "close"):
            assert await cancel.notes(work, is_kept=True, goes_at_once=False) == [
                "litequeue: the queue was closed when this came"
            ]
        with pytest.raises(litequeue.QueueClosed):
            await q.enqueue("late")

    asyncio.run(main())
    assert queue.stats().counts[JobState.PENDING] == 1
