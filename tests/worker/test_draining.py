"""A worker that is told to stop finishes what runs, gives back what does not end, and leaves nothing leased."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest
from meeting import PATIENCE_S, until

import litequeue
from litequeue import JobState, Lease, Worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from uuid import UUID

    from litequeue import Job, Queue
    from litequeue.aio import AsyncLease
    from litequeue.worker.worker import Mode
    from tests.faults.children import Children, Parent
    from tests.worker.conftest import Work


class Held:
    """A handler that runs until the test lets it go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.leases: list[Lease] = []

    def __call__(self, lease: Lease) -> str:
        """Run."""
        self.leases.append(lease)
        self.begun.set()
        assert self.go_on.wait(PATIENCE_S)
        return "done"


def test_what_runs_is_finished_and_nothing_new_is_leased(queue: Queue, work: Work, mode: Mode) -> None:
    """Finished work is always acknowledged; what waits is left to others."""
    held = Held()
    first, second = (queue.enqueue("job").job_id for _ in range(2))
    worker = work({"job": held}, concurrency=1, mode=mode)
    assert held.begun.wait(PATIENCE_S)
    worker.worker.stop()
    held.go_on.set()
    ending = worker.join()
    assert (ending.completed, ending.is_clean) == (1, True)
    assert queue.get(first).state is JobState.COMPLETED
    assert queue.get(second).state is JobState.PENDING
    assert queue.get(second).attempts == 0


def test_past_the_drain_the_rest_is_given_back(queue: Queue, work: Work, mode: Mode) -> None:
    """V8: pending again with its attempts unchanged, leased by another worker at once; the handler is told."""
    held = Held()
    job_id = queue.enqueue("job").job_id
    worker = work({"job": held}, drain_timeout=0.05, mode=mode)
    assert held.begun.wait(PATIENCE_S)
    ending = worker.drained()
    assert (ending.interrupted, ending.is_clean) == (1, False)
    job = queue.get(job_id)
    assert (job.state, job.attempts) == (JobState.PENDING, 0)
    assert held.leases[0].cancelled
    again = queue.lease_next()
    assert again is not None
    assert again.lease_generation == 2
    held.go_on.set()  # its outcome goes nowhere
    again.complete("the new holder's")
    assert queue.get(job_id).result == "the new holder's"


def test_a_second_stop_gives_back_at_once(queue: Queue, work: Work, mode: Mode) -> None:
    """However long the drain may last."""
    held = Held()
    job_id = queue.enqueue("job").job_id
    worker = work({"job": held}, drain_timeout=3600, mode=mode)
    assert held.begun.wait(PATIENCE_S)
    worker.worker.stop()
    worker.worker.stop()
    assert worker.join().interrupted == 1
    assert queue.get(job_id).state is JobState.PENDING
    held.go_on.set()


def test_handlers_that_listen_end_before_they_are_given_back(queue: Queue, work: Work, mode: Mode) -> None:
    """Cancelled at the end of the drain, they clean up; the attempt does not count, unless they finish after all."""
    begun = threading.Barrier(3)

    async def cleans_up(_: AsyncLease) -> None:
        await asyncio.to_thread(begun.wait, 60)
        await asyncio.Event().wait()

    def finishes(lease: Lease) -> str:
        begun.wait(60)
        until(lambda: lease.cancelled, "told")
        return "finished"

    cleaned, finished = (queue.enqueue(kind).job_id for kind in ("cleans", "finishes"))
    worker = work({"cleans": cleans_up, "finishes": finishes}, drain_timeout=0.01, mode=mode)
    begun.wait(60)
    ending = worker.drained()
    assert (ending.completed, ending.interrupted) == (1, 1)
    assert (queue.get(cleaned).state, queue.get(cleaned).attempts) == (JobState.PENDING, 0)
    assert queue.get(finished).result == "finished"


def test_a_job_that_waits_for_its_next_try_is_given_back(
    queue: Queue, work: Work, in_state: Callable[[UUID, JobState], Job]
) -> None:
    """Its pause is kept, its attempt is not."""
    queue.set("backoff_base", 30)
    failed = threading.Event()

    def bad(_: Lease) -> None:
        failed.set()
        raise ConnectionError

    job_id = queue.enqueue("job").job_id
    worker = work({"job": bad}, short_retry=60)
    assert failed.wait(PATIENCE_S)
    until(lambda: queue.get(job_id).attempts == 2, "leased again at once")
    ending = worker.drained()
    assert (ending.failed, ending.released, ending.is_clean) == (1, 1, True)
    job = in_state(job_id, JobState.SCHEDULED)
    assert job.attempts == 1
    assert job.not_before is not None


def test_a_failure_while_draining_goes_back_to_the_queue(queue: Queue, work: Work) -> None:
    """A short pause is not waited out any more: the next try is another worker's."""
    begun = threading.Event()
    go_on = threading.Event()

    def bad(_: Lease) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        raise ConnectionError

    job_id = queue.enqueue("job").job_id
    worker = work({"job": bad}, short_retry=60)
    assert begun.wait(PATIENCE_S)
    worker.worker.stop()
    go_on.set()
    assert worker.join().failed == 1
    assert (queue.get(job_id).state, queue.get(job_id).attempts) == (JobState.RETRYABLE, 1)


def _work_until_signalled(parent: Parent, path: str, drain_s: float) -> dict[str, int]:
    """Work on one kind until a signal; say when a handler begins, and after its side effect."""

    def handler(_: Lease) -> str:
        parent.say("begun")
        parent.hear()
        parent.say("done")
        return "done"

    with litequeue.open(path) as queue:
        ending = Worker(queue, {"job": handler}, drain_timeout=drain_s, concurrency=1).run()
        return {"completed": ending.completed, "interrupted": ending.interrupted}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_right_after_the_side_effect_loses_no_acknowledgement(
    queue: Queue, path: Path, processes: Children, number: int
) -> None:
    """G3: the job is not run again."""
    job_id = queue.enqueue("job").job_id
    child = processes.start(_work_until_signalled, str(path), 30.0)
    assert child.hear() == "begun"
    child.say("go on")
    assert child.hear() == "done"
    child.signal(number)
    assert child.result() == {"completed": 1, "interrupted": 0}
    assert (queue.get(job_id).state, queue.get(job_id).attempts) == (JobState.COMPLETED, 1)


@pytest.mark.slow
def test_a_deploy_in_the_midst_of_a_long_job_gives_it_to_the_next_worker(
    queue: Queue, path: Path, processes: Children
) -> None:
    """SIGTERM during a job longer than the drain: pending, attempts unchanged, leased at once by another."""
    job_id = queue.enqueue("job").job_id
    child = processes.start(_work_until_signalled, str(path), 0.05)
    assert child.hear() == "begun"
    child.signal(signal.SIGTERM)
    until(lambda: queue.get(job_id).state is JobState.PENDING, "given back")
    assert queue.get(job_id).attempts == 0
    lease = queue.lease_next()
    assert lease is not None
    lease.complete()


@pytest.mark.slow
def test_two_signals_end_the_worker_at_once(queue: Queue, path: Path, processes: Children) -> None:
    """The second one does not wait for the drain."""
    job_id = queue.enqueue("job").job_id
    child = processes.start(_work_until_signalled, str(path), 3600.0)
    assert child.hear() == "begun"
    child.signal(signal.SIGTERM)
    until(lambda: _sends_again(child, queue, job_id), "given back")
    assert queue.get(job_id).attempts == 0


def _sends_again(child: object, queue: Queue, job_id: UUID) -> bool:
    """Signal once more, as a person does who sees nothing happen: two that come at once may be one."""
    child.signal(signal.SIGTERM)  # type: ignore[attr-defined]
    return queue.get(job_id).state is JobState.PENDING


def test_the_handlers_of_before_are_back_after_the_run(queue: Queue) -> None:
    """A worker in the main thread lends itself the signals only while it runs."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    during: list[object] = []

    def look(_: Lease) -> None:
        during.extend(signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM))
        os.kill(os.getpid(), signal.SIGTERM)

    queue.enqueue("job")
    ending = Worker(queue, {"job": look}, maintenance=False).run()
    assert ending.completed == 1
    assert all(handler not in before for handler in during)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_what_was_leased_while_the_word_to_stop_came_is_given_back(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    """It does not begin, and its attempt does not count."""
    job_id = queue.enqueue("job").job_id
    runs: list[Lease] = []
    worker = Worker(queue, {"job": runs.append}, mode=mode, maintenance=False)
    exchange = queue.exchange

    def stopped_meanwhile(*given: object, **named: object) -> object:
        done = exchange(*given, **named)  # type: ignore[arg-type]
        if done.leases:
            worker.stop()
        return done

    monkeypatch.setattr(queue, "exchange", stopped_meanwhile)
    ending = worker.run()
    assert (ending.released, ending.total, ending.is_clean) == (1, 1, True)
    assert runs == []
    assert (queue.get(job_id).state, queue.get(job_id).attempts) == (JobState.PENDING, 0)
