"""Where the ends of runs lead, through the exchange that a worker hands them in by (issue 5, V6 to V8).

Owns the proof that what `outcomes` makes of a run is what the queue takes. Leaves out the worker around it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litequeue import Discard, Handler, JobState, PayloadError, Retry, Snooze, Transition
from litequeue.worker.outcomes import settlement_of, settlement_of_error, unstorable

if TYPE_CHECKING:
    from litequeue import Exchange, Job, Lease, Queue
    from litequeue.settlement import Settlement


def work(lease: Lease) -> str:
    """Handle a job."""
    return lease.kind


HANDLER = Handler(work, short_retry=5, permanent=LookupError)


def ended(lease: Lease, end: object) -> Settlement:
    """Return what a run comes to that returns this, or raises it."""
    if isinstance(end, BaseException):
        return settlement_of_error(lease, HANDLER, end)
    return settlement_of(lease, HANDLER, end)


def leased(queue: Queue) -> Lease:
    """Make a job and lease it."""
    queue.enqueue("a")
    (lease,) = queue.lease_many(1)
    return lease


def exchanged(queue: Queue, end: object) -> tuple[Exchange, Job]:
    """Hand in the end of a run of a new job."""
    lease = leased(queue)
    done = queue.exchange([ended(lease, end)])
    return done, queue.get(lease.job_id)


OBJECT = "a value of type object at '$'; storable: None, bool, int, float, str, bytes, aware datetimes, lists and dicts"


@pytest.mark.parametrize(
    ("end", "state", "attempts", "error", "pause_s"),
    [
        ("done", JobState.COMPLETED, 1, None, None),
        (None, JobState.COMPLETED, 1, None, None),
        (object(), JobState.DEAD, 1, f"PayloadError: result cannot be stored: {OBJECT}", None),
        (ValueError("boom"), JobState.RETRYABLE, 1, "ValueError: boom", 10),
        (KeyError("gone"), JobState.DEAD, 1, "KeyError: 'gone'", None),
        (Retry(), JobState.RETRYABLE, 1, "Retry", 10),
        (Retry(60, "later"), JobState.RETRYABLE, 1, "later", 60),
        (Discard("no such user"), JobState.DEAD, 1, "no such user", None),
        (Snooze(60), JobState.SCHEDULED, 0, None, 60),
    ],
)
def test_an_end_leads_where_it_says(  # noqa: PLR0917 - what is expected of the job
    queue: Queue, end: object, state: JobState, attempts: int, error: str | None, pause_s: int | None
) -> None:
    """Values complete, exceptions fail, declared ones and `Discard` bury, `Snooze` costs no attempt (issue 5)."""
    done, job = exchanged(queue, end)
    assert (done.refused, done.retaken) == ([], [])
    assert (job.state, job.attempts) == (state, attempts)
    assert (None if job.last_error is None else job.last_error.splitlines()[0]) == error
    gate = None if pause_s is None else job.events[-1].at + pause_s * 1_000_000
    assert job.not_before == gate
    assert [event.detail for event in job.events if event.transition is Transition.FAILED] == ([error] if error else [])


@pytest.mark.parametrize("end", [Retry(5), Retry(0)])
def test_a_short_pause_is_waited_out_in_the_worker(queue: Queue, end: Retry) -> None:
    """The job is failed and leased again in one commit (issue 5, two-level retries)."""
    done, job = exchanged(queue, end)
    ((lease, pause_s),) = done.retaken
    assert (pause_s, lease.attempts, job.state) == (end.delay, 2, JobState.LEASED)


def test_a_snooze_is_never_waited_out_in_the_worker(queue: Queue) -> None:
    """Its job goes back to the queue, however short it is: another may take it."""
    done, job = exchanged(queue, Snooze(1))
    assert (done.retaken, job.state) == ([], JobState.SCHEDULED)


def test_a_result_that_is_too_large_buries_its_job_at_the_second_try(queue: Queue) -> None:
    """The first settlement is refused and touches nothing; what is made of that is taken (§6)."""
    queue.set("max_payload", 1024)
    lease = leased(queue)
    done = queue.exchange([settlement_of(lease, HANDLER, "x" * 2000)])
    ((_, refusal),) = done.refused
    assert isinstance(refusal, PayloadError)
    assert queue.get(lease.job_id).state is JobState.LEASED
    assert queue.exchange([unstorable(lease, refusal)]).refused == []
    job = queue.get(lease.job_id)
    assert (job.state, job.last_error) == (JobState.DEAD, f"PayloadError: {refusal}")
