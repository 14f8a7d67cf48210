"""`drain`: jobs run in the test's own thread, with the ends that a worker would give them (issue 8, item 4)."""

from __future__ import annotations

import asyncio
import threading
import traceback
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

import pytest
import tasked

import litequeue
from litequeue import ANY, Discard, Handler, JobState, Lease, PayloadError, Retry, Snooze, Tasks, UsageError, Worker
from litequeue.testing import FakeClock, drain, drain_async, temporary_queue

if TYPE_CHECKING:
    from pathlib import Path

    from litequeue import Job, Queue
    from litequeue.aio import AsyncLease
    from litequeue.testing import Drain
    from litequeue.worker.handlers import Handling

ENDS = ("plain", "awaited", "in_transaction", "third", "discarded", "snoozed", "group", "unstorable")


def nothing(_: Lease) -> None:
    """Succeed."""


def flaky(lease: Lease) -> str:
    """Fail at the first two tries."""
    if lease.attempts < 3:
        raise OSError(f"no answer to attempt {lease.attempts}")
    return "answered"


def states(jobs: list[Job]) -> list[JobState]:
    """Return the state of each."""
    return [job.state for job in jobs]


def filled(queue: Queue) -> Queue:
    """Enqueue a job for each way in which a run can end."""
    for name in ENDS:
        args = ["a"] if name in {"plain", "awaited", "in_transaction"} else []
        queue.enqueue(f"run:{name.replace('_', '-')}", [args, {}])
    queue.enqueue("run:permanent", [[], {"is_by_predicate": True}])
    queue.enqueue("run:plain", [[], {"from": "e"}])
    return queue


def ending(job: Job) -> tuple[object, ...]:
    """Return what a run came to, without what differs from run to run."""
    error = (job.last_error or "").partition("\n")[0]
    result = job.result[:2] if isinstance(job.result, list) else job.result
    return job.kind, job.state, job.attempts, error, result, [event.transition for event in job.events]


def test_a_drained_job_ends_as_a_worker_ends_it(clock: FakeClock) -> None:
    """Results, verdicts, groups, permanent errors, misfits: state, attempts, error, result and log are the same."""
    with temporary_queue(clock=clock) as drained, temporary_queue(clock=clock) as worked:
        jobs = drain(filled(drained), tasked.tasks, raise_errors=False)
        Worker(filled(worked), {**tasked.tasks, "run:third": Handler(tasked.third.handler.function)}, concurrency=1,
               maintenance=False, until_empty=True).run()  # fmt: skip
        assert len(jobs) == len(ENDS) + 2
        assert list(map(ending, drained.list())) == list(map(ending, worked.list()))


def test_what_runs_is_returned_in_order_as_it_stood_after_each_run(
    litequeue_db: Queue, litequeue_drain: Drain, litequeue_clock: FakeClock
) -> None:
    """By priority, then first in first out; a retry is a run, and the clock stands still without `advance`."""
    began_at = litequeue_clock.wall_us()
    ids = [litequeue_db.enqueue("a", n, priority=100 - n).job_id for n in range(2)]
    jobs = litequeue_drain({"a": lambda lease: Retry(60) if lease.payload else "done"})
    assert [job.job_id for job in jobs] == ids[::-1]
    assert states(jobs) == [JobState.RETRYABLE, JobState.COMPLETED]
    assert jobs[1].result == "done"
    assert litequeue_clock.wall_us() == began_at


def test_handlers_run_in_the_thread_of_the_test_and_enqueue_what_is_run_next(
    litequeue_db: Queue, litequeue_drain: Drain
) -> None:
    """A chain is drained to its end, on the system's clock too, and other kinds are left alone."""
    threads = []

    def link(lease: Lease) -> None:
        threads.append(threading.current_thread())
        left = lease.payload
        assert isinstance(left, int)
        if left:
            litequeue_db.enqueue("link", left - 1)

    litequeue_db.enqueue("link", 3)
    other = litequeue_db.enqueue("other").job_id
    assert states(litequeue_drain({"link": link})) == [JobState.COMPLETED] * 4
    assert threads == [threading.current_thread()] * 4
    assert litequeue_db.get(other).state is JobState.PENDING


def test_an_error_is_raised_as_itself_after_its_job_was_settled(litequeue_db: Queue, litequeue_drain: Drain) -> None:
    """The same object, its traceback from the handler on; the job has failed and what was behind it is still ready."""
    mine = OSError("no answer")

    def failing(_: Lease) -> NoReturn:
        raise mine

    first, second = (litequeue_db.enqueue("work").job_id for _ in range(2))
    with pytest.raises(OSError, match=r"^no answer$") as told:
        litequeue_drain({"work": failing})
    assert told.value is mine
    names = [frame.name for frame in traceback.extract_tb(mine.__traceback__)]
    assert names[-1] == "failing"
    assert not {"do", "call"} & set(names)  # how the worker came to it is nobody's business
    job = litequeue_db.get(first)
    assert (job.state, job.attempts) == (JobState.RETRYABLE, 1)
    assert (job.last_error or "").startswith("OSError: no answer\n")
    assert litequeue_db.get(second).state is JobState.PENDING


@pytest.mark.parametrize("error", [StopIteration("a"), KeyboardInterrupt(), SystemExit(3)])
def test_an_error_that_steers_python_is_raised_as_itself(
    litequeue_db: Queue, litequeue_drain: Drain, error: BaseException
) -> None:
    """Whatever carries it; one that is to end the program is raised even where errors are not."""

    def failing(_: Lease) -> NoReturn:
        raise error

    job_id = litequeue_db.enqueue("work").job_id
    with pytest.raises(type(error)) as told:
        litequeue_drain({"work": failing}, raise_errors=isinstance(error, Exception))
    assert told.value is error
    assert litequeue_db.get(job_id).state is JobState.RETRYABLE


def test_time_passes_from_one_due_job_to_the_next_and_ends_where_it_was_told_to(
    litequeue_db: Queue, litequeue_drain: Drain, litequeue_clock: FakeClock
) -> None:
    """Delays, snoozes and back-offs, each at its own time; what is due a moment later has not run."""
    began = litequeue_clock.now()
    seen: list[tuple[str, float]] = []

    def noted(lease: Lease) -> None:
        seen.append((lease.kind, (litequeue_clock.now() - began).total_seconds()))
        if lease.kind == "snoozing" and len(seen) < 3:
            raise Snooze(20)
        if lease.kind == "failing" and lease.attempts == 1:
            raise Retry

    kinds = ("delayed", "snoozing", "failing", "late")
    for kind, delay in zip(kinds, (30, 5, 0, 100.000001), strict=True):
        litequeue_db.enqueue(kind, delay=delay)
    litequeue_db.enqueue("delayed", run_at=began + timedelta(seconds=100))
    jobs = litequeue_drain(dict.fromkeys(kinds, noted), advance=100)
    assert seen == [
        ("failing", 0),
        ("snoozing", 5),
        ("failing", 10),
        ("snoozing", 25),
        ("delayed", 30),
        ("delayed", 100),
    ]
    assert len(jobs) == len(seen)
    assert litequeue_clock.now() - began == timedelta(seconds=100)
    assert states(litequeue_drain({"late": noted}, advance=timedelta(microseconds=1))) == [JobState.COMPLETED]


def test_errors_that_are_not_raised_are_retried_until_the_job_is_dead(
    litequeue_db: Queue, litequeue_drain: Drain, litequeue_clock: FakeClock
) -> None:
    """With the back-offs of production; the clock ends at the end of the time given (contract §5, G6)."""
    began = litequeue_clock.now()
    litequeue_db.enqueue("flaky")
    litequeue_db.enqueue("flaky", max_attempts=2)
    jobs = litequeue_drain({"flaky": flaky}, advance=3600, raise_errors=False)
    assert sorted(states(jobs)) == [JobState.COMPLETED, *[JobState.RETRYABLE] * 3, JobState.DEAD]
    assert litequeue_clock.now() - began == timedelta(hours=1)


def test_an_error_leaves_the_clock_where_it_came_and_the_rest_goes_on_from_there(
    litequeue_db: Queue, litequeue_drain: Drain, litequeue_clock: FakeClock
) -> None:
    """A flaky job is driven by hand: each failure is seen, then time passes (contract §5)."""
    began = litequeue_clock.now()
    litequeue_db.enqueue("flaky", delay=5)
    for attempt, later_s in ((1, 5), (2, 15)):
        with pytest.raises(OSError, match=f"attempt {attempt}"):
            litequeue_drain({"flaky": flaky}, advance=3600)
        assert litequeue_clock.now() - began == timedelta(seconds=later_s)
    (job,) = litequeue_drain({"flaky": flaky}, advance=3600)
    assert (job.result, job.attempts) == ("answered", 3)


def test_a_lease_that_lapses_meanwhile_is_taken_back_and_run_at_its_time(
    litequeue_db: Queue, litequeue_drain: Drain, litequeue_clock: FakeClock
) -> None:
    """After 300 s and a back-off of 10, as a worker beside it would (V11)."""
    began = litequeue_clock.now()
    litequeue_db.enqueue("work")
    assert litequeue_db.lease_next() is not None
    at: list[timedelta] = []
    jobs = litequeue_drain({"work": lambda _: at.append(litequeue_clock.now() - began)}, advance=3600)
    assert at == [timedelta(seconds=310)]
    assert (jobs[0].attempts, jobs[0].reaps) == (2, 1)


def test_time_that_passes_fires_schedules_and_refills_rates(
    litequeue_db: Queue, litequeue_drain: Drain, litequeue_clock: FakeClock
) -> None:
    """Each boundary at its time; a rate lets jobs go as it does in production (issue 6)."""
    began = litequeue_clock.now()
    at: list[tuple[str, float]] = []

    def noted(lease: Lease) -> None:
        at.append((lease.kind, (litequeue_clock.now() - began).total_seconds()))

    litequeue_db.schedule("tick", "@every 60s", "tick")
    jobs = litequeue_drain({"tick": noted}, advance=200)
    assert [second for _, second in at] == [60, 120, 180]
    assert all(job.boundary is not None for job in jobs)
    litequeue_db.unschedule("tick")
    at.clear()
    litequeue_db.set("rate", "1/10s", "api")
    for _ in range(3):
        litequeue_db.enqueue("api")
    assert len(litequeue_drain({"api": noted}, advance=15)) == 2
    assert len(litequeue_drain({"api": noted}, advance=15)) == 1


def test_a_schedule_that_cannot_be_fired_is_an_error() -> None:
    """A worker would warn of it and go on; in a test nobody reads that."""
    with temporary_queue(clock=FakeClock()) as queue:
        queue.schedule("big", "@every 60s", "work", "x" * 4000)
        queue.set("max_payload", 1024)
        with pytest.raises(PayloadError, match="max_payload"):
            drain(queue, {"work": nothing}, advance=60)


def test_a_job_that_enqueues_itself_for_ever_ends_in_a_clear_error(litequeue_db: Queue, litequeue_drain: Drain) -> None:
    """It is not run once more, and the attempt is given back; exactly so many runs are no error."""
    runs: list[object] = []

    def again(lease: Lease) -> None:
        runs.append(lease.payload)
        litequeue_db.enqueue("again")

    litequeue_db.enqueue("again")
    with pytest.raises(AssertionError, match=r"^7 jobs have run, and one more of the kind 'again' is ready: .*limit="):
        litequeue_drain({"again": again}, limit=7)
    assert len(runs) == 7
    (left,) = litequeue_db.list(JobState.PENDING)
    assert left.attempts == 0
    assert len(litequeue_drain({"again": nothing}, limit=1)) == 1


def test_verdicts_are_no_errors_but_what_does_not_fit_its_task_is(litequeue_db: Queue, litequeue_drain: Drain) -> None:
    """`Discard` is the handler's own word; a misfit is a mistake that production would bury (issue 5)."""
    tasks = Tasks()

    @tasks.task("send")
    def send(to: str) -> str:
        if not to:
            raise Discard("nobody")
        return to

    send.enqueue(litequeue_db, "")
    assert states(litequeue_drain(tasks)) == [JobState.DEAD]
    job_id = litequeue_db.enqueue("send", {"from": "a"}).job_id
    with pytest.raises(Discard, match=r"the job's arguments do not fit .*send\(to\)"):
        litequeue_drain(tasks)
    assert litequeue_db.get(job_id).state is JobState.DEAD
    litequeue_db.enqueue("send", 7)
    with pytest.raises(Discard, match="a task's payload is"):
        litequeue_drain(tasks)


@pytest.mark.parametrize(
    ("result", "match"),
    [
        (object(), "a value of type object"),
        ("x" * 2000, "max_payload allows 1,024"),
    ],
)
def test_a_result_that_production_would_refuse_is_an_error(
    litequeue_db: Queue, litequeue_drain: Drain, result: object, match: str
) -> None:
    """Results are encoded, and held against the settings; the job is dead, as with a worker (contract §6)."""
    litequeue_db.set("max_payload", 1024)
    job_id = litequeue_db.enqueue("work").job_id
    with pytest.raises(PayloadError, match=match):
        litequeue_drain({"work": lambda _: result})
    job = litequeue_db.get(job_id)
    assert job.state is JobState.DEAD
    assert (job.last_error or "").startswith("PayloadError: ")
    assert states(litequeue_drain({"work": nothing})) == []


def test_a_coroutine_that_nobody_would_await_is_an_error(litequeue_db: Queue, litequeue_drain: Drain) -> None:
    """A plain handler that returns one (issue 5)."""

    async def inner() -> None:
        pass

    litequeue_db.enqueue("work")
    with pytest.raises(PayloadError, match="the handler returned a coroutine"):
        litequeue_drain({"work": lambda _: inner()})


def test_payloads_are_really_encoded(litequeue_db: Queue, litequeue_drain: Drain) -> None:
    """What cannot be stored is refused in the test, and tuples arrive as lists (contract §2, §6)."""
    with pytest.raises(PayloadError, match="a value of type object"):
        litequeue_db.enqueue("work", {"it": object()})
    litequeue_db.enqueue("work", {"pair": (1, 2)})
    (job,) = litequeue_drain({"work": lambda lease: lease.payload})
    assert job.result == {"pair": [1, 2]}


def test_what_a_worker_takes_a_draining_takes(litequeue_db: Queue, litequeue_drain: Drain) -> None:
    """Prefixes, the longest first, handlers with permanent errors, asynchronous functions; any scope (V12)."""

    async def awaited(lease: AsyncLease) -> str:
        await lease.note("seen")
        await asyncio.sleep(0)
        return "awaited"

    def refused(_: Lease) -> NoReturn:
        raise LookupError("gone")

    kinds = ("a:b:c", "a:b", "a:x", "other")
    handlers: dict[str, Handling] = {
        "a:b:": nothing,
        "a:": awaited,
        "a:b": Handler(refused, permanent=LookupError),
        "other": refused,
    }
    for kind in kinds:
        litequeue_db.enqueue(kind)
    litequeue_db.enqueue("a:x", scope="tenant")
    jobs = litequeue_drain(handlers, scope=ANY, permanent=LookupError, raise_errors=False)
    ends = {(job.kind, job.scope): (job.state, job.result) for job in jobs}
    assert ends == {
        ("a:b:c", "default"): (JobState.COMPLETED, None),
        ("a:b", "default"): (JobState.DEAD, None),
        ("a:x", "default"): (JobState.COMPLETED, "awaited"),
        ("a:x", "tenant"): (JobState.COMPLETED, "awaited"),
        ("other", "default"): (JobState.DEAD, None),
    }


def test_a_job_that_its_handler_has_ended_or_lost_stands_as_it_is(litequeue_db: Queue, litequeue_drain: Drain) -> None:
    """`lease.complete`, and a cancellation meanwhile: no error, no other word on it; what is pruned is left out."""

    def ended(lease: Lease) -> str:
        lease.complete("mine")
        return "not this"

    ids = [litequeue_db.enqueue(kind).job_id for kind in ("ended", "cancelled")]
    jobs = litequeue_drain({"ended": ended, "cancelled": lambda lease: litequeue_db.cancel(lease.job_id)})
    assert [job.job_id for job in jobs] == ids
    assert states(jobs) == [JobState.COMPLETED, JobState.CANCELLED]
    assert jobs[0].result == "mine"
    litequeue_db.set("completed_retention", 0)
    litequeue_db.enqueue("ended")
    assert litequeue_drain({"ended": ended}) == []


def test_each_run_is_logged_as_a_worker_logs_it(
    litequeue_db: Queue, litequeue_drain: Drain, caplog: pytest.LogCaptureFixture
) -> None:
    """So the report of a failed test tells which job it was (issue 5, item 11)."""
    job_id = litequeue_db.enqueue("flaky", max_attempts=1).job_id
    with caplog.at_level("DEBUG", "litequeue.worker"), pytest.raises(OSError, match="attempt 1"):
        litequeue_drain({"flaky": flaky})
    told = [record.getMessage() for record in caplog.records if record.name == "litequeue.worker"]
    assert [line.split()[0] for line in told] == ["started", "dead"]
    assert str(job_id) in told[1]


def test_a_drain_inside_a_handler_drains(litequeue_db: Queue, litequeue_drain: Drain) -> None:
    """Nothing is shared by two of them; the lease of the outer one is current again afterwards."""

    def outer(lease: Lease) -> None:
        assert len(litequeue_drain({"inner": nothing})) == 1
        assert litequeue.current_lease() is lease

    litequeue_db.enqueue("outer")
    litequeue_db.enqueue("inner")
    assert states(litequeue_drain({"outer": outer})) == [JobState.COMPLETED]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"handlers": {}}, "^handlers must be a mapping of at least one kind"),
        ({"limit": 0}, "^limit must be a whole number from 1 to 1000000, not 0"),
        ({"advance": -1}, "^advance must be seconds"),
        (
            {"advance": 1},
            "^advance must be None, as the clock of this queue is not a FakeClock, not 1; .*litequeue_clock",
        ),
        ({"scope": ""}, "^scope must be"),
        ({"queue": "app.queue"}, "^queue must be a Queue"),
    ],
)
def test_a_bad_argument_is_named(litequeue_db: Queue, options: dict[str, object], match: str) -> None:
    """With its value and the bounds, and nothing is run (contract §6)."""
    job_id = litequeue_db.enqueue("work").job_id
    given: dict[str, object] = {"queue": litequeue_db, "handlers": {"work": nothing}, **options}
    with pytest.raises(UsageError, match=match):
        drain(**given)  # type: ignore[arg-type] # bad ones, on purpose
    assert litequeue_db.get(job_id).attempts == 0


# --- in coroutines


def test_asynchronous_handlers_run_on_the_loop_of_the_test(tmp_path: Path) -> None:
    """Beside plain ones, with the same ends; without any plugin for asyncio (issue 8, item 4)."""
    clock = FakeClock()
    loops: list[object] = []

    async def awaited(lease: AsyncLease) -> int:
        loops.append(asyncio.get_running_loop())
        await lease.note("seen")
        if lease.attempts == 1:
            raise OSError("no answer")
        return lease.attempts

    async def test(queue: Queue) -> list[Job]:
        loops.append(asyncio.get_running_loop())
        queue.enqueue("awaited")
        queue.enqueue("plain", delay=5)
        with pytest.raises(OSError, match="no answer") as told:
            await drain_async(queue, {"awaited": awaited})
        assert [frame.name for frame in traceback.extract_tb(told.value.__traceback__)][-1] == "awaited"
        return await drain_async(queue, {"awaited": awaited, "plain": nothing}, advance=60)

    with temporary_queue(tmp_path / "test.queue", clock=clock) as queue:
        jobs = asyncio.run(test(queue))
    assert [(job.kind, job.state, job.result) for job in jobs] == [
        ("plain", JobState.COMPLETED, None),
        ("awaited", JobState.COMPLETED, 2),
    ]
    assert len(loops) == 3
    assert len(set(loops)) == 1


def test_a_plain_drain_inside_a_loop_says_what_to_await(litequeue_db: Queue) -> None:
    """Before it leases anything; plain handlers are drained there too."""

    async def awaited(_: AsyncLease) -> None:
        pass

    async def test() -> None:
        with pytest.raises(UsageError, match=r"await drain_async\(…\)"):
            drain(litequeue_db, {"work": awaited})
        assert len(drain(litequeue_db, {"work": nothing})) == 1

    job_id = litequeue_db.enqueue("work").job_id
    asyncio.run(test())
    assert litequeue_db.get(job_id).attempts == 1


def test_a_test_that_is_cancelled_in_a_handler_is_cancelled(litequeue_db: Queue) -> None:
    """Also where errors are not raised; the job has failed, and is leased by nobody."""
    begun = asyncio.Event()

    async def waiting(_: AsyncLease) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def test() -> None:
        draining = asyncio.create_task(drain_async(litequeue_db, {"work": waiting}, raise_errors=False))
        await begun.wait()
        draining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await draining

    job_id = litequeue_db.enqueue("work").job_id
    asyncio.run(test())
    assert litequeue_db.get(job_id).state is JobState.RETRYABLE
