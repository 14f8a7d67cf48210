"""Tasks in a worker, in every mode: each way in which a run can end, from the call that was enqueued to the job."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import tasked

from litequeue import JobState, Worker, WorkerEvent

if TYPE_CHECKING:
    from uuid import UUID

    from litequeue import Queue
    from litequeue.worker.worker import Mode

MODES = ["threads", "asyncio", pytest.param("processes", marks=pytest.mark.slow)]

# What each job comes to: its state, its attempts and the first line of its error.
ENDS: dict[str, tuple[JobState, int, str | None]] = {
    "plain": (JobState.COMPLETED, 1, None),
    "awaited": (JobState.COMPLETED, 1, None),
    "in transaction": (JobState.COMPLETED, 1, None),
    "third": (JobState.COMPLETED, 3, None),
    "discarded": (JobState.DEAD, 1, "no such user"),
    "snoozed": (JobState.SCHEDULED, 0, None),
    "permanent": (JobState.DEAD, 1, "KeyError: 'x'"),
    "predicate": (JobState.DEAD, 1, "ValueError: this will never do"),
    "exit": (JobState.RETRYABLE, 1, "SystemExit: 3"),
    "exit awaited": (JobState.RETRYABLE, 1, "SystemExit: 4"),
    "cancelled": (JobState.RETRYABLE, 1, "CancelledError"),
    "group": (JobState.DEAD, 1, "found beneath"),
    "unstorable": (JobState.DEAD, 1, "PayloadError: result cannot be stored: a value of type object at '$'; storable:"),
    "misfit": (JobState.DEAD, 1, "the job's arguments do not fit plain(to, *, subject=''): "),
    "slow": (JobState.RETRYABLE, 1, "timed out after 0.2 s"),
}
TOLD = {
    "started": 17,
    "completed": 3,
    "settled": 1,
    "failed": 4,
    "dead": 3,
    "retried": 2,
    "discarded": 3,
    "snoozed": 1,
    "timed_out": 1,
}


@pytest.mark.parametrize("mode", MODES)
def test_a_call_that_was_enqueued_comes_to_its_end_in_every_mode(queue: Queue, mode: Mode) -> None:
    """Issue 5: results, verdicts, exceptions, misfits and time limits; and each is told by its event."""
    jobs: dict[str, UUID] = {
        "plain": tasked.plain.enqueue(queue, "a", subject="b").job_id,
        "awaited": tasked.awaited.enqueue(queue, "c").job_id,
        "in transaction": tasked.in_transaction.enqueue(queue, "d").job_id,
        "third": tasked.third.enqueue(queue).job_id,
        "discarded": tasked.discarded.enqueue(queue).job_id,
        "snoozed": tasked.snoozed.enqueue(queue).job_id,
        "permanent": tasked.permanent.enqueue(queue, is_by_predicate=False).job_id,
        "predicate": tasked.permanent.enqueue(queue, is_by_predicate=True).job_id,
        "exit": tasked.leaving.enqueue(queue).job_id,
        "exit awaited": tasked.leaving_awaited.enqueue(queue).job_id,
        "cancelled": tasked.cancelled.enqueue(queue).job_id,
        "group": tasked.in_group.enqueue(queue).job_id,
        "unstorable": tasked.unstorable.enqueue(queue).job_id,
        "misfit": queue.enqueue("run:plain", [[], {"from": "e"}]).job_id,
        "slow": tasked.slow.enqueue(queue).job_id,
    }
    seen: list[WorkerEvent] = []
    worker = Worker(
        queue, tasked.tasks, mode=mode, concurrency=2, maintenance=False, on_event=seen.append, until_empty=True
    )
    worker.run()
    for name, (state, attempts, error) in ENDS.items():
        job = queue.get(jobs[name])
        assert (name, job.state, job.attempts) == (name, state, attempts)
        assert (job.last_error or "").startswith(error or ""), name
        assert (job.last_error is None) == (error is None), name
    for name, expected in (("plain", ["a", "b"]), ("awaited", ["c", ""])):
        job = queue.get(jobs[name])
        result = job.result
        assert isinstance(result, list)
        assert result[:3] == [*expected, str(job.job_id)]
        assert (result[3] == os.getpid()) == (mode != "processes")
        assert f"to {expected[0]}" in [event.detail for event in job.events]
    assert queue.get(jobs["third"]).result == 3
    with queue.transaction() as tx:
        assert tx.execute("SELECT mail FROM sent") == [("d",)]
    assert Counter(event.name for event in seen) == TOLD
