"""A worker keeps its leases while handlers run, and tells them when they are lost or their time is over."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from meeting import PATIENCE_S, until

from litequeue import Handler, JobState, Lease, NewJob, WorkerEvent
from litequeue.worker.heartbeat import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from litequeue import Job, Queue
    from litequeue.aio import AsyncLease
    from litequeue.sqlite.context import Context
    from litequeue.worker.worker import Mode
    from tests.worker.conftest import Work

TTL_S = 0.6


def test_a_job_longer_than_its_lease_runs_once(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], mode: Mode
) -> None:
    """G1: the lease is extended as often as it takes, while another worker waits for the job."""
    runs: list[int] = []
    go_on = threading.Event()

    def long(lease: Lease) -> None:
        runs.append(lease.attempts)
        assert go_on.wait(PATIENCE_S)

    job_id = queue.enqueue("long").job_id
    for handle in (queue, queue.sibling()):
        work({"long": long}, queue=handle, lease_ttl=TTL_S, mode=mode, maintenance=True)
    until(lambda: (queue.get(job_id).beats or 0) >= 5, "five heartbeats")
    assert queue.get(job_id).state is JobState.LEASED
    go_on.set()
    job = ended(job_id)
    assert (job.state, job.attempts, job.reaps, runs) == (JobState.COMPLETED, 1, 0, [1])


def test_a_handler_that_starves_the_loop_keeps_its_lease(
    queue: Queue, work: Work, ended: Callable[[UUID], Job]
) -> None:
    """Heartbeats have a thread and a connection of their own."""
    go_on = threading.Event()

    async def starve(_: AsyncLease) -> None:
        assert go_on.wait(PATIENCE_S)

    job_id = queue.enqueue("starve").job_id
    work({"starve": starve}, lease_ttl=TTL_S, mode="asyncio", maintenance=True)
    until(lambda: (queue.get(job_id).beats or 0) >= 5, "five heartbeats")
    go_on.set()
    job = ended(job_id)
    assert (job.state, job.attempts) == (JobState.COMPLETED, 1)


def test_a_cancelled_job_is_told_to_its_handler(
    queue: Queue, work: Work, log: pytest.LogCaptureFixture, mode: Mode
) -> None:
    """V9: within about a second, long before a heartbeat is due; what it comes to is discarded, and logged once."""
    begun = threading.Event()
    events: list[WorkerEvent] = []

    def plain(lease: Lease) -> str:
        begun.set()
        until(lambda: lease.cancelled, "told")
        assert lease.lost
        return "too late"

    worker = work({"job": plain}, mode=mode, on_event=events.append)
    job_id = queue.enqueue("job").job_id
    assert begun.wait(PATIENCE_S)
    queue.cancel(job_id)
    until(lambda: worker.worker.running == 0, "the handler's end")
    ending = worker.drained()
    assert (ending.lost, ending.completed) == (1, 0)
    assert [event.name for event in events] == ["started", "lost"]
    assert queue.get(job_id).state is JobState.CANCELLED
    assert sum(vars(record).get("event") == "lost" for record in log.records) == 1


def test_a_lost_lease_cancels_an_asynchronous_handler(queue: Queue, work: Work, mode: Mode) -> None:
    """It is cancelled at its next await, with an event loop of its own thread as with a shared one."""
    begun = threading.Event()
    cancelled = threading.Event()

    async def forever(_: AsyncLease) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    worker = work({"job": forever}, mode=mode)
    job_id = queue.enqueue("job").job_id
    assert begun.wait(PATIENCE_S)
    queue.cancel(job_id)
    assert cancelled.wait(PATIENCE_S)
    assert worker.drained().lost == 1


def test_the_outcome_of_an_old_holder_is_refused(
    queue: Queue, work: Work, in_state: Callable[[UUID, JobState], Job]
) -> None:
    """G1: by the fence, and the new holder's stands, though the old one knows of nothing before it is done."""
    begun = threading.Event()
    go_on = threading.Event()

    def slow(lease: Lease) -> str:
        if lease.lease_generation == 1:
            begun.set()
            assert go_on.wait(PATIENCE_S)
            return "old"
        return "new"

    worker = work({"job": slow})
    job_id = queue.enqueue("job").job_id
    assert begun.wait(PATIENCE_S)
    queue.cancel(job_id)
    queue.retry(job_id)
    assert in_state(job_id, JobState.COMPLETED).result == "new"
    go_on.set()
    until(lambda: worker.worker.running == 0, "both ended")
    ending = worker.drained()
    assert (ending.lost, ending.completed) == (1, 1)
    assert queue.get(job_id).result == "new"


def test_a_timeout_is_told_to_a_thread(
    queue: Queue, work: Work, in_state: Callable[[UUID, JobState], Job], mode: Mode
) -> None:
    """Cooperative: `lease.cancelled`; an exception then is the timeout's."""
    events: list[WorkerEvent] = []

    def slow(lease: Lease) -> None:
        until(lambda: lease.cancelled, "told")
        assert not lease.lost
        raise InterruptedError("stopped")

    work({"job": Handler(slow, timeout=0.05)}, mode=mode, on_event=events.append)
    job = in_state(queue.enqueue("job").job_id, JobState.RETRYABLE)
    assert str(job.last_error).startswith("timed out after 0.05 s")
    until(lambda: len(events) == 3, "three events")
    assert [event.name for event in events] == ["started", "timed_out", "failed"]


def test_a_thread_that_ends_well_after_its_time_is_done(queue: Queue, work: Work, ended: Callable[[UUID], Job]) -> None:
    """Its work is done, whatever the clock says; to run it again would be worse."""

    def slow(lease: Lease) -> str:
        until(lambda: lease.cancelled, "told")
        return "done all the same"

    work({"job": slow}, timeout=0.05)
    assert ended(queue.enqueue("job").job_id).result == "done all the same"


def test_a_timeout_cancels_an_asynchronous_handler(
    queue: Queue, work: Work, in_state: Callable[[UUID, JobState], Job], mode: Mode
) -> None:
    """At its next await; the run has failed."""

    async def forever(_: AsyncLease) -> None:
        await asyncio.Event().wait()

    work({"job": forever}, timeout=0.05, mode=mode)
    job = in_state(queue.enqueue("job").job_id, JobState.RETRYABLE)
    assert str(job.last_error).startswith("timed out after 0.05 s")
    assert job.attempts == 1


def test_a_short_pause_is_waited_out_with_the_lease_held(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], mode: Mode
) -> None:
    """Two-level retries, G6: every try is a lease and an attempt of its own, and nobody else gets the job."""
    queue.set("backoff_base", 0.05)
    queue.set("backoff_factor", 1)
    events: list[WorkerEvent] = []

    def third_time(lease: Lease) -> int:
        if lease.attempts < 3:
            raise ConnectionError("not yet")
        return lease.attempts

    work({"job": third_time}, short_retry=1, mode=mode, on_event=events.append)
    job = ended(queue.enqueue("job").job_id)
    assert (job.result, job.attempts, job.lease_generation) == (3, 3, 3)
    until(lambda: len(events) == 6, "six events")
    assert [event.name for event in events] == ["started", "retried", "started", "retried", "started", "completed"]


def test_a_longer_pause_goes_back_to_the_queue(
    queue: Queue, work: Work, in_state: Callable[[UUID, JobState], Job]
) -> None:
    """Beyond `short_retry` the job is anybody's when its back-off is over."""

    def bad(_: Lease) -> None:
        raise ConnectionError("not yet")

    work({"job": bad}, short_retry=1)
    assert in_state(queue.enqueue("job").job_id, JobState.RETRYABLE).attempts == 1


def test_a_lease_that_comes_while_the_heartbeat_falls_asleep_is_extended(queue: Queue) -> None:
    """Between its last look around and its sleep: whoever comes then wakes it."""
    queue.enqueue_many([NewJob("long"), NewJob("short")])
    long = queue.lease_next(["long"], ttl=3600)
    short = queue.lease_next(["short"], ttl=TTL_S)
    assert long is not None
    assert short is not None
    late = short

    class Late(dict[Lease, float]):
        """The second lease comes right after the look."""

        def copy(self) -> dict[Lease, float]:
            seen = dict(self)
            if long in self and late not in self:
                heartbeat.watch(late)
            return seen

    heartbeat = Heartbeat(queue, lambda _: None)
    heartbeat._beats_at = Late()
    with heartbeat:
        heartbeat.watch(long)
        until(lambda: (queue.get(short.job_id).beats or 0) >= 2, "two heartbeats")


def test_a_lease_that_a_handler_ends_just_now_is_not_lost(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commit is seen before the handler has heard of it.

    handler: COMMIT             the job is completed for whoever looks
    heartbeat: looks            the lease holds nothing any more
    handler: hears              it has settled it
    """
    queue.enqueue("job")
    lease = queue.lease_next()
    assert lease is not None
    lost: list[Lease] = []
    looked, asked = threading.Event(), threading.Event()
    beside = queue.sibling()
    look, extend, remember = beside.lost, queue.extend_many, queue._store._remember

    def looks(leases: list[Lease]) -> list[Lease]:
        gone = look(leases)
        if gone:
            looked.set()
        return gone

    def asks(leases: list[Lease]) -> object:
        conflicts = extend(leases)
        asked.set()
        return conflicts

    def hears_late(context: Context) -> None:
        assert looked.wait(PATIENCE_S)
        remember(context)

    monkeypatch.setattr(beside, "lost", looks)
    monkeypatch.setattr(queue, "extend_many", asks)
    monkeypatch.setattr(queue, "sibling", lambda: beside)
    monkeypatch.setattr(queue._store, "_remember", hears_late)
    with Heartbeat(queue, lost.append) as heartbeat:
        heartbeat.watch(lease)
        lease.complete()
        assert asked.wait(PATIENCE_S)
    assert lost == []
    assert (lease.settled, lease.lost) == (True, False)
