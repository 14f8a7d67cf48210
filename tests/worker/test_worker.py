"""A worker runs handlers on jobs and tells the queue what came of them, in threads and on an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from typing import TYPE_CHECKING

import pytest
from meeting import until

import litequeue
from litequeue import (
    ANY,
    SYSTEM,
    Discard,
    Handler,
    JobState,
    Lease,
    NewJob,
    Retry,
    Snooze,
    UsageError,
    Worker,
    WorkerEvent,
)
from litequeue.worker.dispatcher import Dispatcher
from litequeue.worker.events import Events
from litequeue.worker.handlers import Handlers
from litequeue.worker.run import Plan, Run
from litequeue.worker.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from litequeue import Job, Queue
    from litequeue.aio import AsyncLease
    from litequeue.worker.handlers import Handling
    from litequeue.worker.worker import Mode
    from tests.worker.conftest import Work

Ended = "Callable[[UUID], Job]"


def test_what_a_handler_returns_is_the_result(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], mode: Mode
) -> None:
    """V6: a plain and an asynchronous handler, in each mode; kinds by prefix and exact, the exact one first."""

    def double(lease: Lease) -> object:
        return 2 * int(str(lease.payload))

    async def triple(lease: AsyncLease) -> object:
        await asyncio.sleep(0)
        return 3 * int(str(lease.payload))

    work({"calc:": double, "calc:triple": triple}, mode=mode)
    doubled = queue.enqueue("calc:double", 7).job_id
    tripled = queue.enqueue("calc:triple", 7).job_id
    assert ended(doubled).result == 14
    assert ended(tripled).result == 21
    assert ended(doubled).attempts == 1


def test_a_worker_of_all_scopes_serves_them_in_turn(queue: Queue, work: Work, mode: Mode) -> None:
    """V12: by weight, in the order of their names, in each mode; another scope's job is its own job's peer."""
    order: deque[object] = deque()
    queue.set_weight("b", 2)
    queue.enqueue_many(NewJob("work", n, scope=scope) for n in range(3) for scope in ("a", "b", SYSTEM))

    async def handle(lease: AsyncLease) -> None:
        await asyncio.sleep(0)
        order.append(lease.scope)

    worker = work({"work": handle}, mode=mode, scope=ANY, concurrency=1, until_empty=True)
    assert worker.join().completed == 9
    assert list(order) == [SYSTEM, "a", "b", "b", SYSTEM, "a", "b", SYSTEM, "a"]


def test_only_kinds_with_a_handler_are_leased(queue: Queue, work: Work, ended: Callable[[UUID], Job]) -> None:
    """A job that this worker cannot run stays for one that can."""
    other = queue.enqueue("other").job_id
    mine = queue.enqueue("mine").job_id
    worker = work({"mine": lambda _: None})
    assert ended(mine).state is JobState.COMPLETED
    assert worker.drained().completed == 1
    assert queue.get(other).attempts == 0


def test_an_exception_fails_the_attempt_until_the_job_is_dead(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], mode: Mode
) -> None:
    """G6, V7: type and message in the event log, the traceback's tail in `last_error`, dead after `max_attempts`."""
    queue.set("backoff_base", 0)

    def bad(_: Lease) -> None:
        raise ValueError("no such page")

    work({"bad": bad}, mode=mode)
    job = ended(queue.enqueue("bad", max_attempts=3).job_id)
    assert job.state is JobState.DEAD
    assert job.attempts == 3
    failures = [event.detail for event in job.events if event.transition is litequeue.Transition.FAILED]
    assert len(failures) == 3
    assert all(detail.startswith("ValueError: no such page") for detail in failures)
    assert job.last_error is not None
    assert "in bad" in job.last_error


@pytest.mark.parametrize("is_raised", [True, False])
def test_a_handler_says_what_is_to_become_of_its_job(
    queue: Queue, work: Work, in_state: Callable[[UUID, JobState], Job], mode: Mode, *, is_raised: bool
) -> None:
    """`Retry`, `Discard` and `Snooze` may be raised or returned."""

    def say(lease: Lease) -> object:
        word = {"retry": Retry(3600, "later"), "discard": Discard("never"), "snooze": Snooze(3600)}[lease.kind]
        if is_raised:
            raise word
        return word

    work(dict.fromkeys(("retry", "discard", "snooze"), say), mode=mode)
    retried = in_state(queue.enqueue("retry").job_id, JobState.RETRYABLE)
    assert retried.attempts == 1
    assert retried.not_before is not None
    assert retried.not_before > retried.created_at + 3_000_000_000
    assert in_state(queue.enqueue("discard").job_id, JobState.DEAD).last_error == "never"
    snoozed = in_state(queue.enqueue("snooze").job_id, JobState.SCHEDULED)
    assert snoozed.attempts == 0


def test_permanent_exceptions_kill_the_job_at_once(queue: Queue, work: Work, ended: Callable[[UUID], Job]) -> None:
    """By type for the worker, by a predicate for one handler."""

    def bad(lease: Lease) -> None:
        raise {"key": KeyError, "value": ValueError}[lease.kind]("gone")

    handlers: dict[str, Handling] = {"key": bad, "value": Handler(bad, permanent=lambda exc: "gone" in str(exc))}
    work(handlers, permanent=KeyError)
    for kind in handlers:
        job = ended(queue.enqueue(kind).job_id)
        assert job.state is JobState.DEAD
        assert job.attempts == 1


def test_a_handler_may_end_its_lease_itself(queue: Queue, work: Work, ended: Callable[[UUID], Job]) -> None:
    """G1: what it said stands, and nothing is said a second time."""
    events: list[WorkerEvent] = []

    def own(lease: Lease) -> object:
        lease.complete("by myself")
        return "by the worker"

    worker = work({"own": own}, on_event=events.append)
    assert ended(queue.enqueue("own").job_id).result == "by myself"
    ending = worker.drained()
    assert (ending.completed, ending.lost) == (1, 0)
    assert [event.name for event in events] == ["started", "settled"]


def test_a_result_that_cannot_be_stored_is_an_error_of_its_job_alone(
    queue: Queue, work: Work, ended: Callable[[UUID], Job]
) -> None:
    """§6: too large or unpackable; the neighbours are completed."""
    queue.set("max_payload", 1000)
    results = {"large": b"x" * 2000, "odd": object(), "good": 1}
    jobs = {kind: queue.enqueue(kind).job_id for kind in results}
    work(dict.fromkeys(results, lambda lease: results[lease.kind]), concurrency=3)
    assert ended(jobs["good"]).result == 1
    for kind in ("large", "odd"):
        job = ended(jobs[kind])
        assert job.state is JobState.DEAD
        assert "PayloadError" in str(job.last_error)


def test_a_result_that_cannot_be_stored_is_settled_before_the_next_job_begins(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], mode: Mode
) -> None:
    """§6: the queue refuses it when the next job is leased already; a worker holds no more than it works on."""
    queue.set("max_payload", 1000)
    large, following = queue.enqueue("large").job_id, queue.enqueue("following").job_id
    seen: list[JobState] = []
    handlers = {"large": lambda _: b"x" * 2000, "following": lambda _: seen.append(queue.get(large).state)}
    worker = work(handlers, mode=mode, concurrency=1)
    assert ended(following).state is JobState.COMPLETED
    assert seen == [JobState.DEAD]
    assert (worker.drained().dead, queue.get(large).attempts) == (1, 1)


def test_no_more_jobs_are_held_than_handlers_run(queue: Queue, work: Work, mode: Mode) -> None:
    """No job waits in a buffer while another worker is idle."""
    queue.enqueue_many(litequeue.NewJob("job", number) for number in range(10))
    begun = threading.Barrier(4)
    go_on = threading.Event()

    def hold(_: Lease) -> None:
        if not go_on.is_set():
            begun.wait(60)
            go_on.wait(60)

    worker = work({"job": hold}, concurrency=3, mode=mode)
    begun.wait(60)
    assert queue.stats().counts[JobState.LEASED] == 3
    assert worker.worker.running == 3
    go_on.set()
    assert worker.drained().total >= 3


def test_a_free_place_takes_one_job_and_no_more(queue: Queue, work: Work, mode: Mode) -> None:
    """While others are at work, what is leased is what has room."""
    go_on = threading.Event()
    most: list[int] = []

    def hold(_: Lease) -> None:
        assert go_on.wait(60)

    def look(_: Lease) -> None:
        most.append(queue.stats().counts[JobState.LEASED])

    queue.enqueue_many(litequeue.NewJob("hold", priority=1) for _ in range(2))
    queue.enqueue_many(litequeue.NewJob("look") for _ in range(20))
    worker = work({"hold": hold, "look": look}, concurrency=3, mode=mode)
    until(lambda: len(most) == 20, "all of the others")
    go_on.set()
    assert worker.drained().completed == 22
    assert max(most) == 3


def test_every_job_runs_once_with_many_workers_and_handlers(queue: Queue, work: Work, mode: Mode) -> None:
    """G1, G3: two workers, eight handlers each, a thousand jobs; each is run once, and the events say so."""
    runs: Counter[object] = Counter()
    events: Counter[str] = Counter()

    def count(lease: Lease) -> None:
        runs[lease.payload] += 1

    queue.enqueue_many(litequeue.NewJob("job", number) for number in range(1000))
    other = queue.sibling()
    workers = [
        work(
            {"job": count},
            queue=handle,
            concurrency=8,
            mode=mode,
            until_empty=True,
            on_event=lambda event: events.update([event.name]),
        )
        for handle in (queue, other)
    ]
    endings = [worker.join() for worker in workers]
    other.close()
    assert sum(ending.completed for ending in endings) == 1000
    assert all(ending.is_clean for ending in endings)
    assert set(runs.values()) == {1}
    assert events == {"started": 1000, "completed": 1000}
    assert queue.stats().counts[JobState.COMPLETED] == 1000


def test_until_empty_ends_at_once_when_nothing_is_ready(queue: Queue, work: Work, mode: Mode) -> None:
    """A delayed job is not waited for."""
    queue.enqueue("job", delay=3600)
    assert work({"job": lambda _: None}, until_empty=True, mode=mode).join().total == 0


def test_a_failing_hook_harms_nothing(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], log: pytest.LogCaptureFixture
) -> None:
    """Each sort of failure is logged once."""

    def hook(_: WorkerEvent) -> None:
        raise RuntimeError("metrics are down")

    worker = work({"job": lambda _: None}, on_event=hook)
    for _ in range(3):
        assert ended(queue.enqueue("job").job_id).state is JobState.COMPLETED
    assert worker.drained().completed == 3
    assert sum("on_event" in record.getMessage() for record in log.records) == 1


def test_the_log_has_the_facts_as_extras(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], log: pytest.LogCaptureFixture
) -> None:
    """Job, kind, scope, attempt, generation, worker and duration of each event."""
    worker = work({"job": lambda _: None})
    job = ended(queue.enqueue("job").job_id)
    worker.drained()
    (record,) = [record for record in log.records if vars(record).get("event") == "completed"]
    said = vars(record)
    assert said["job_id"] == str(job.job_id)
    assert (said["kind"], said["scope"], said["attempt"], said["generation"]) == ("job", "default", 1, 1)
    assert said["worker_id"] == queue.worker_id
    assert said["duration_s"] >= 0


def test_a_worker_runs_once(queue: Queue) -> None:
    """A second run would have to guess what the first `stop` meant."""
    worker = Worker(queue, {"job": lambda _: None}, maintenance=False, until_empty=True)
    worker.run()
    with pytest.raises(UsageError, match="runs once"):
        worker.run()


def test_a_stop_before_the_run_ends_it_at_once(queue: Queue) -> None:
    """No call to stop is lost."""
    queue.enqueue("job")
    worker = Worker(queue, {"job": lambda _: None}, maintenance=False)
    worker.stop()
    assert worker.run().total == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 1001}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"mode": "fibers"}, "mode"),
        ({"lease_ttl": 0}, "lease_ttl"),
        ({"lease_ttl": float("nan")}, "lease_ttl"),
        ({"drain_timeout": -1}, "drain_timeout"),
        ({"hold": 2}, "hold"),
        ({"short_retry": 61}, "short_retry"),
        ({"timeout": 0}, "timeout"),
        ({"scope": ""}, "scope"),
        ({"on_event": 1}, "on_event"),
    ],
)
def test_a_bad_argument_is_refused_at_once(queue: Queue, options: dict[str, object], named: str) -> None:
    """§6: one error that names the argument."""
    with pytest.raises(UsageError, match=named):
        Worker(queue, {"job": lambda _: None}, **options)  # type: ignore[arg-type]


def test_a_worker_wants_a_queue(path: object) -> None:
    """A path is not opened on the quiet."""
    with pytest.raises(UsageError, match="queue"):
        Worker(str(path), {"job": lambda _: None})  # type: ignore[arg-type]


def test_a_handler_that_stops_the_event_loop_harms_nobody(
    queue: Queue, work: Work, ended: Callable[[UUID], Job]
) -> None:
    """The loop goes on: its own job ends, and so do those after it."""

    async def stop(_: AsyncLease) -> None:
        asyncio.get_running_loop().stop()

    worker = work({"job": stop}, mode="asyncio", concurrency=1)
    for _ in range(3):
        assert ended(queue.enqueue("job").job_id).state is JobState.COMPLETED
    assert worker.drained().completed == 3


def test_a_hook_that_interrupts_is_a_hook_that_fails(queue: Queue, work: Work, ended: Callable[[UUID], Job]) -> None:
    """`KeyboardInterrupt` out of `on_event` ends no worker either."""

    def hook(_: WorkerEvent) -> None:
        raise KeyboardInterrupt

    worker = work({"job": lambda _: None}, on_event=hook)
    assert ended(queue.enqueue("job").job_id).state is JobState.COMPLETED
    assert worker.drained().completed == 1


def test_an_event_tells_a_dead_job_from_one_that_comes_again(
    queue: Queue, work: Work, ended: Callable[[UUID], Job]
) -> None:
    """G6: out of attempts, or permanent; `Ending` counts them apart."""
    queue.set("backoff_base", 0)
    events: list[WorkerEvent] = []

    def bad(lease: Lease) -> None:
        raise KeyError if lease.kind == "permanent" else ValueError

    worker = work({"again": bad, "permanent": bad}, permanent=KeyError, on_event=events.append)
    for kind in ("again", "permanent"):
        ended(queue.enqueue(kind, max_attempts=2).job_id)
    ending = worker.drained()
    assert [event.name for event in events if event.kind == "again"] == ["started", "failed", "started", "dead"]
    assert [event.name for event in events if event.kind == "permanent"] == ["started", "dead"]
    assert (ending.failed, ending.dead, ending.total) == (1, 2, 3)


def test_posts_at_the_same_moment_wake_the_worker(queue: Queue) -> None:
    """Two handlers end at once, and neither finds itself alone in the inbox: the loop hears of them all the same."""
    wakes: list[int] = []
    plan = Plan(
        Handlers({"job": lambda _: None}),
        concurrency=3,
        scope="default",
        lease_ttl_s=None,
        drain_timeout_s=1.0,
        hold_s=0.0,
        until_empty=False,
    )
    dispatcher = Dispatcher(queue, plan, Events(), Threads)
    dispatcher._outstanding = 3

    class Both(deque[Run]):
        """The second one comes before the first has asked."""

        def append(self, run: Run) -> None:
            super().append(run)
            super().append(run)

    dispatcher._inbox = Both()
    dispatcher._wake = lambda: wakes.append(1)  # type: ignore[method-assign]
    dispatcher.post(Run.__new__(Run))
    assert wakes
