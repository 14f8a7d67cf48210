"""Idempotency keys: whose job a key is, in every state, and what `return` and `raise` answer (V2)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from litequeue import SYSTEM, DuplicateJob, Enqueued, JobNotFound, JobState, Maintenance

if TYPE_CHECKING:
    from litequeue import Queue
    from litequeue.model import OnConflict, Scope
    from litequeue.testing import FakeClock
    from tests.conftest import JobIn, MakeQueue

DAY = 86_400
ACTIVE = (JobState.PENDING, JobState.LEASED, JobState.RETRYABLE, JobState.SCHEDULED)
TAKEN = (*ACTIVE, JobState.COMPLETED)
FREE = (JobState.DEAD, JobState.CANCELLED)
POLICIES: tuple[OnConflict, ...] = ("return", "raise", "reset")


@pytest.mark.parametrize("state", TAKEN)
def test_return_answers_with_the_job_that_has_the_key(queue: Queue, job_in: JobIn, state: JobState) -> None:
    """The default: the existing id, `created` false, and the job stays exactly as it is (V2)."""
    job_id = job_in(state, key="k")
    before = queue.get(job_id)
    assert queue.enqueue("work", "second", priority=1, delay=5, idempotency_key="k") == Enqueued(job_id, created=False)
    assert queue.get(job_id) == before
    assert queue.stats().total == 1


@pytest.mark.parametrize("state", TAKEN)
def test_raise_refuses_and_names_the_job_that_has_the_key(queue: Queue, job_in: JobIn, state: JobState) -> None:
    """`on_conflict="raise"` is a `DuplicateJob`, and the job stays exactly as it is (V2)."""
    job_id = job_in(state, key="k")
    before = queue.get(job_id)
    with pytest.raises(DuplicateJob) as refusal:
        queue.enqueue("work", "second", idempotency_key="k", on_conflict="raise")
    assert (refusal.value.job_id, refusal.value.idempotency_key) == (job_id, "k")
    assert queue.get(job_id) == before
    assert queue.stats().total == 1


@pytest.mark.parametrize("state", FREE)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_dead_or_cancelled_job_frees_its_key_at_once(
    queue: Queue, job_in: JobIn, state: JobState, policy: OnConflict
) -> None:
    """Whatever the policy, a new job is made beside it, and the new one has the key now (V2)."""
    old = job_in(state, key="k")
    before = queue.get(old)
    answer = queue.enqueue("work", "second", idempotency_key="k", on_conflict=policy)
    assert answer.created
    assert answer.job_id != old
    assert queue.get(answer.job_id).payload == "second"
    assert queue.get(old) == before
    assert queue.enqueue("work", idempotency_key="k").job_id == answer.job_id


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "target", [("elsewhere", "work", "k"), (SYSTEM, "work", "k"), (None, "other", "k"), (None, "work", "K")]
)
def test_a_key_is_of_its_scope_and_kind(
    queue: Queue, job_in: JobIn, policy: OnConflict, target: tuple[Scope | None, str, str]
) -> None:
    """The same key in another scope, another kind, or written otherwise, is another key (V2)."""
    scope, kind, key = target
    job_in(JobState.PENDING, key="k")
    assert queue.enqueue(kind, scope=scope, idempotency_key=key, on_conflict=policy).created


def test_jobs_without_a_key_never_meet(queue: Queue) -> None:
    """No key is not a key that all share (V2)."""
    assert all(queue.enqueue("work", on_conflict="raise").created for _ in range(3))


@pytest.mark.parametrize("policy", ["return", "raise"])
@pytest.mark.parametrize("retention", [0, 60, DAY, 2 * DAY, None])
def test_a_key_stays_taken_for_its_window_whatever_the_retention(
    queue: Queue, clock: FakeClock, job_in: JobIn, policy: OnConflict, retention: float | None
) -> None:
    """For `idempotency_window` (24 h) after completion the key finds its job, also with a retention of 0 (V2, §5)."""
    queue.set("completed_retention", retention)
    job_id = job_in(JobState.COMPLETED, key="k")
    clock.advance(DAY - 1)
    Maintenance(queue).run_once()
    if policy == "return":
        assert queue.enqueue("work", idempotency_key="k") == Enqueued(job_id, created=False)
    else:
        with pytest.raises(DuplicateJob):
            queue.enqueue("work", idempotency_key="k", on_conflict="raise")
    clock.advance(2)
    Maintenance(queue).run_once()
    assert queue.enqueue("work", idempotency_key="k", on_conflict=policy).created


def test_a_key_is_free_after_its_window_although_its_job_is_still_kept(
    queue: Queue, clock: FakeClock, job_in: JobIn
) -> None:
    """A retention that is longer than the window does not prolong it (V2, §5)."""
    queue.set("idempotency_window", 60)
    old = job_in(JobState.COMPLETED, key="k")
    clock.advance(59)
    assert queue.enqueue("work", idempotency_key="k").job_id == old
    clock.advance(2)
    assert queue.enqueue("work", idempotency_key="k").created
    assert queue.get(old).state is JobState.COMPLETED


def test_a_window_of_zero_ends_with_the_run(queue: Queue, job_in: JobIn) -> None:
    """With no window, the key is free as soon as its job has completed (V2, §5)."""
    queue.set("idempotency_window", 0)
    job_in(JobState.COMPLETED, key="k")
    assert queue.enqueue("work", idempotency_key="k", on_conflict="raise").created


def test_a_job_without_a_key_does_not_outlive_its_retention_for_the_window(
    queue: Queue, clock: FakeClock, job_in: JobIn
) -> None:
    """Only keyed jobs are kept for the window: max(retention, window) (V2, V11)."""
    queue.set("completed_retention", 60)
    keyed = job_in(JobState.COMPLETED, key="k")
    plain = job_in(JobState.COMPLETED)
    clock.advance(61)
    assert queue.prune() == 1
    assert queue.get(keyed).state is JobState.COMPLETED
    with pytest.raises(JobNotFound):
        queue.get(plain)
    clock.advance(DAY)
    assert queue.prune() == 1


def test_the_window_is_that_of_the_latest_run(queue: Queue, clock: FakeClock, job_in: JobIn) -> None:
    """A key that has run before is held by its newest job (V2)."""
    job_in(JobState.COMPLETED, key="k")
    clock.advance(DAY + 1)
    newest = job_in(JobState.COMPLETED, key="k")
    clock.advance(60)
    assert queue.enqueue("work", idempotency_key="k") == Enqueued(newest, created=False)


def test_another_handle_sees_the_key(make_queue: MakeQueue) -> None:
    """The key is held in the file, not in the handle (V2)."""
    first = make_queue().enqueue("work", idempotency_key="k")
    assert make_queue().enqueue("work", idempotency_key="k") == Enqueued(first.job_id, created=False)


def test_a_key_that_was_rolled_back_was_never_taken(queue: Queue) -> None:
    """An enqueue that did not commit holds no key (V2, V14)."""
    with suppress(RuntimeError), queue.transaction() as tx:
        tx.enqueue("work", idempotency_key="k")
        raise RuntimeError
    assert queue.enqueue("work", idempotency_key="k", on_conflict="raise").created


def test_a_job_queued_anew_by_its_id_takes_the_key_that_came_with_it(queue: Queue, job_in: JobIn) -> None:
    """The new key of a dead job's second life finds it; the old one does not (V1, V2)."""
    job_id = job_in(JobState.DEAD, key="old")
    queue.enqueue("work", job_id=job_id, idempotency_key="new")
    assert queue.enqueue("work", idempotency_key="new") == Enqueued(job_id, created=False)
    assert queue.enqueue("work", idempotency_key="old").created


def test_a_new_id_does_not_get_round_a_taken_key(queue: Queue, job_in: JobIn) -> None:
    """The answer names the job that has the key; none with the new id is made (V1, V2)."""
    taken = job_in(JobState.SCHEDULED, key="k")
    new, dead = uuid4(), job_in(JobState.DEAD)
    for job_id in (new, dead):
        assert queue.enqueue("work", job_id=job_id, idempotency_key="k") == Enqueued(taken, created=False)
        with pytest.raises(DuplicateJob):
            queue.enqueue("work", job_id=job_id, idempotency_key="k", on_conflict="raise")
    with pytest.raises(JobNotFound):
        queue.get(new)
    assert queue.get(dead).state is JobState.DEAD
