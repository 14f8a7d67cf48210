"""A worker that is killed while it waits a short pause out: the job is somebody else's at once (G5, G6; issue 5)."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import Failed, JobState, Maintenance, Transition

if TYPE_CHECKING:
    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow


def _fail_and_wait(parent: Parent, path: str) -> None:
    """Fail a run whose pause is waited out here, say so, and wait until the test lets go."""
    queue = litequeue.open(path)
    lease = queue.lease_next(ttl=600)
    assert lease is not None
    ((again, pause_s),) = queue.exchange([Failed(lease, "boom", delay=30, retake_within=60)]).retaken
    parent.say(f"{again.lease_generation} {pause_s}")
    parent.hear()
    again.complete("after all")


def test_a_worker_that_is_killed_while_it_waits_is_found_at_once(path: str, processes: Children) -> None:
    """Not at the deadline, minutes away: its process is dead, and the attempt counts (G5, G6)."""
    with litequeue.open(path) as queue:
        job_id = queue.enqueue("work", max_attempts=3).job_id
        child = processes.start(_fail_and_wait, path)
        assert child.hear() == "2 30.0"
        assert Maintenance(queue).run_once().reaped == 0
        child.kill()
        assert Maintenance(queue).run_once().reaped == 1
        job = queue.get(job_id)
        assert (job.state, job.attempts, job.reaps, job.last_error) == (JobState.RETRYABLE, 2, 1, "worker died")
        queue.retry(job_id)
        lease = queue.lease_next()
        assert lease is not None
        assert (lease.attempts, lease.lease_generation) == (3, 3)
        lease.fail("boom")
        job = queue.get(job_id)
        assert (job.state, job.attempts) == (JobState.DEAD, 3)
        assert [event.transition for event in job.events].count(Transition.LEASED) == 3


def test_a_worker_that_is_stopped_while_it_waits_keeps_its_job(path: str, processes: Children) -> None:
    """A stopped process is alive: until the deadline the job is its own, and its word counts (G1, §4)."""
    with litequeue.open(path) as queue:
        job_id = queue.enqueue("work").job_id
        child = processes.start(_fail_and_wait, path)
        child.hear()
        child.signal(signal.SIGSTOP)
        assert Maintenance(queue).run_once().reaped == 0
        child.signal(signal.SIGCONT)
        child.say("go on")
        child.result()
        assert queue.get(job_id).result == "after all"
