"""Processes killed in `lease_in_transaction`: the rows and the completion, or no trace of the lease (G1, G3, V14)."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import JobState, Lease, NewJob, Queue
from litequeue.sqlite.examining import problems

if TYPE_CHECKING:
    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow

JOBS = 600
PROCESSES = 3
KILLS = 15


def prepare(queue: Queue, jobs: int) -> None:
    """Make the table that the work writes to, and the jobs."""
    with queue.transaction() as tx:
        tx.execute("CREATE TABLE done (n INTEGER NOT NULL)")
        tx.enqueue_many(NewJob("step", n) for n in range(jobs))


def payload_of(job: Lease) -> int:
    """Return the number that is the job's payload."""
    assert isinstance(job.payload, int)
    return job.payload


def rows(queue: Queue) -> list[object]:
    """Return what the work has written."""
    with queue.transaction() as tx:
        return [n for (n,) in tx.execute("SELECT n FROM done ORDER BY n")]


def _die_inside(parent: Parent, path: str, has_completed: bool) -> None:
    with litequeue.open(path) as queue, queue.lease_in_transaction() as (tx, job):
        assert job is not None
        tx.execute("INSERT INTO done VALUES (?)", (payload_of(job),))
        if has_completed:
            tx.complete(job, "done")
        parent.say("inside")
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("has_completed", [False, True])
def test_a_process_that_dies_in_the_block_leaves_no_trace(
    path: str, processes: Children, *, has_completed: bool
) -> None:
    """The job is as it was, and ready at once: nothing has to be reaped (V14, G5)."""
    with litequeue.open(path) as queue:
        prepare(queue, 1)
        (before,) = queue.list()
        child = processes.start(_die_inside, path, has_completed)
        assert child.hear() == "inside"
        assert child.status() == -signal.SIGKILL
        assert queue.list() == [before]
        with queue.lease_in_transaction() as (tx, job):
            assert job is not None
            assert (job.attempts, job.lease_generation) == (1, 1)
            tx.execute("INSERT INTO done VALUES (?)", (payload_of(job),))
        assert queue.get(job.job_id).state is JobState.COMPLETED
        assert rows(queue) == [0]


def _work(parent: Parent, path: str, seed: int) -> None:
    """Do steps until none is left; some raise, some write much, so that a kill may come anywhere."""
    draw = random.Random(seed)
    with litequeue.open(path, durability="normal") as queue:
        while True:
            try:
                with queue.lease_in_transaction() as (tx, job):
                    if job is None:
                        break
                    tx.execute("INSERT INTO done VALUES (?)", (payload_of(job),))
                    if draw.random() < 0.2:
                        raise ArithmeticError
                    for _ in range(draw.randint(0, 20)):
                        tx.execute("UPDATE done SET n = n WHERE n = ?", (payload_of(job),))
            except ArithmeticError:
                pass
        parent.say("nothing is left")


def test_each_step_is_done_once_by_one_attempt_whoever_is_killed_when(path: str, processes: Children) -> None:
    """One row for each job, one attempt, one generation, one lease in its log: the killed left nothing (G3, V14)."""
    with litequeue.open(path, durability="normal") as queue:
        prepare(queue, JOBS)
        seeds = itertools.count(random.randrange(2**32))
        crew = [processes.start(_work, path, next(seeds)) for _ in range(PROCESSES)]
        for kill in range(KILLS):
            give_up = time.monotonic() + 60
            while queue.stats().counts[JobState.COMPLETED] < (kill + 1) * JOBS // (2 * KILLS):
                assert time.monotonic() < give_up, "nothing goes on"
            crew.pop(0).kill()
            crew.append(processes.start(_work, path, next(seeds)))
        assert [child.hear() for child in crew] == ["nothing is left"] * PROCESSES
        assert rows(queue) == list(range(JOBS))
        for job in queue.list(limit=JOBS):
            assert (job.state, job.attempts, job.lease_generation) == (JobState.COMPLETED, 1, 1)
            assert [event.transition.value for event in job.events] == ["enqueued", "leased", "completed"]
        assert problems(path) == []
