"""Upkeep by its verbs and by `Maintenance`: reap, promote, expire (V11); and expiry, wherever it meets a job."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from litequeue import ANY, SYSTEM, JobState, Maintenance, NewJob, Transition

if TYPE_CHECKING:
    from litequeue import Queue
    from litequeue.model import Scope
    from litequeue.testing import FakeClock
    from tests.conftest import JobIn, MakeQueue

SECOND = 1_000_000
MANY = 250  # more than two steps of upkeep
SCOPES: tuple[Scope, ...] = ("default", "elsewhere", SYSTEM)


# --- reap


def test_a_lapsed_job_is_retried_after_its_back_off(queue: Queue, clock: FakeClock, job_in: JobIn) -> None:
    """Leased → retryable with back-off; the attempt and the reap count, and the record says why (V11, §2)."""
    job_id = job_in(JobState.LEASED)
    clock.advance(300)
    assert queue.reap_expired() == 1
    job = queue.get(job_id)
    assert (job.state, job.attempts, job.reaps, job.last_error) == (JobState.RETRYABLE, 1, 1, "lease expired")
    assert (job.not_before, job.lease_generation) == (clock.wall_us() + 10 * SECOND, 1)
    assert (job.worker_id, job.holder, job.lease_deadline) == (None, None, None)
    assert job.events[-1] == (clock.wall_us(), Transition.REAPED, "lease expired")


def test_a_live_lease_is_not_reaped(queue: Queue, clock: FakeClock, job_in: JobIn) -> None:
    """Until its deadline a lease is left alone (V11)."""
    job_id = job_in(JobState.LEASED)
    clock.advance(299.999)
    assert queue.reap_expired() == 0
    assert queue.get(job_id).state is JobState.LEASED


def test_the_last_attempt_that_lapses_is_the_end(queue: Queue, clock: FakeClock) -> None:
    """Dead when attempts ≥ max (V11)."""
    job_id = queue.enqueue("work", max_attempts=1).job_id
    queue.lease_next()
    clock.advance(301)
    assert queue.reap_expired() == 1
    job = queue.get(job_id)
    assert (job.state, job.last_error, job.finished_at) == (JobState.DEAD, "lease expired", clock.wall_us())


def test_every_lapsed_job_of_every_scope_is_reaped(make_queue: MakeQueue, clock: FakeClock) -> None:
    """Bounded steps, repeated until done, wherever the jobs are (V11)."""
    for scope in SCOPES:
        queue = make_queue(scope=scope)
        queue.enqueue_many(NewJob("work") for _ in range(MANY))
        assert len(queue.lease_many(MANY)) == MANY
    clock.advance(301)
    assert make_queue().reap_expired() == len(SCOPES) * MANY
    assert make_queue().stats(ANY).counts[JobState.RETRYABLE] == len(SCOPES) * MANY


# --- promote


@pytest.mark.parametrize("state", [JobState.RETRYABLE, JobState.SCHEDULED])
def test_a_due_job_becomes_ready(queue: Queue, clock: FakeClock, job_in: JobIn, state: JobState) -> None:
    """Retryable and scheduled → pending when due, and not before (V11, §3)."""
    job_id = job_in(state)
    clock.advance(59)
    assert queue.promote_due() == 0
    clock.advance(1)
    assert queue.promote_due() == 1
    job = queue.get(job_id)
    assert (job.state, job.not_before) == (JobState.PENDING, None)
    assert job.events[-1] == (clock.wall_us(), Transition.PROMOTED, "")


@pytest.mark.parametrize(("scope", "promoted"), [(ANY, 3), (None, 1), ("elsewhere", 1), (SYSTEM, 1), ("none", 0)])
def test_due_jobs_are_promoted_in_the_scope_asked_for(
    queue: Queue, clock: FakeClock, scope: str | None, promoted: int
) -> None:
    """Of all scopes, of the handle's, or of a named one (V11)."""
    queue.enqueue_many(NewJob("work", scope=name, delay=1) for name in SCOPES)
    clock.advance(1)
    assert queue.promote_due(scope) == promoted
    assert queue.stats(ANY).counts[JobState.PENDING] == promoted


def test_every_due_job_is_promoted(queue: Queue, clock: FakeClock) -> None:
    """Bounded steps, repeated until done (V11)."""
    queue.enqueue_many(NewJob("work", n, delay=1) for n in range(MANY))
    clock.advance(1)
    assert queue.promote_due() == MANY
    assert [lease.payload for lease in queue.lease_many(1000)] == list(range(MANY))


# --- expire


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.SCHEDULED, JobState.RETRYABLE])
def test_a_waiting_job_that_is_too_late_is_dead(queue: Queue, clock: FakeClock, state: JobState) -> None:
    """Past `expires_at` and not running: dead, `last_error = "expired"` (V11)."""
    job_id = queue.enqueue("work", expires=30, delay=60 if state is JobState.SCHEDULED else None).job_id
    if state is JobState.RETRYABLE:
        queue.lease_many(1)[0].fail("boom", delay=60)
    clock.advance(29)
    assert queue.expire_overdue() == 0
    assert queue.get(job_id).state is state
    clock.advance(2)
    assert queue.expire_overdue() == 1
    job = queue.get(job_id)
    assert (job.state, job.last_error, job.finished_at) == (JobState.DEAD, "expired", clock.wall_us())
    assert job.events[-1].transition is Transition.EXPIRED


def test_a_live_lease_may_finish_past_its_expiry(queue: Queue, clock: FakeClock) -> None:
    """It started in time, so it is not cut off (V11, §10)."""
    job_id = queue.enqueue("work", expires=30).job_id
    (lease,) = queue.lease_many(1)
    clock.advance(31)
    assert queue.expire_overdue() == 0
    lease.extend()
    lease.complete()
    assert queue.get(job_id).state is JobState.COMPLETED


@pytest.mark.parametrize("is_lapse", [False, True])
def test_a_run_that_ends_badly_past_its_expiry_is_dead(queue: Queue, clock: FakeClock, *, is_lapse: bool) -> None:
    """When it lapses or fails: dead, although attempts are left, and its error is kept (V11)."""
    job_id = queue.enqueue("work", expires=30).job_id
    (lease,) = queue.lease_many(1)
    clock.advance(301)
    if is_lapse:
        queue.reap_expired()
    else:
        lease.fail("boom")
    job = queue.get(job_id)
    assert (job.state, job.attempts) == (JobState.DEAD, 1)
    assert job.last_error == ("lease expired" if is_lapse else "boom")
    assert job.events[-1].transition is Transition.EXPIRED


def test_a_run_that_fails_before_its_expiry_may_still_expire_while_it_waits(queue: Queue, clock: FakeClock) -> None:
    """A back-off does not stop the clock (V11)."""
    job_id = queue.enqueue("work", expires=5).job_id
    queue.lease_many(1)[0].fail("boom")
    clock.advance(11)
    assert queue.lease_next() is None
    assert (queue.get(job_id).state, queue.get(job_id).last_error) == (JobState.DEAD, "expired")


def test_a_job_that_is_too_late_is_never_handed_out(queue: Queue, clock: FakeClock) -> None:
    """A lease passes over it, buries it, and takes the next one (V11, V3)."""
    queue.enqueue_many([NewJob("late", expires=30), NewJob("good"), NewJob("late", expires=30, priority=0)])
    clock.advance(31)
    assert [lease.kind for lease in queue.lease_many(10)] == ["good"]
    assert queue.stats().counts[JobState.DEAD] == 2


@pytest.mark.parametrize("kinds", [None, ["late", "good"]])
def test_a_job_that_has_just_become_too_late_is_not_handed_out_either(
    queue: Queue, clock: FakeClock, kinds: list[str] | None
) -> None:
    """Also between two looks at what is overdue (V11, V3)."""
    queue.enqueue("good")
    assert queue.lease_next(kinds) is not None
    queue.enqueue_many([NewJob("late", expires=0.5), NewJob("good")])
    clock.advance(0.6)
    assert [lease.kind for lease in queue.lease_many(10, kinds)] == ["good"]
    assert queue.list(kind="late")[0].last_error == "expired"


@pytest.mark.parametrize(("scope", "buried"), [(ANY, 3 * MANY), (None, MANY), (SYSTEM, MANY), ("none", 0)])
def test_every_overdue_job_of_the_scope_is_buried(
    queue: Queue, clock: FakeClock, scope: str | None, buried: int
) -> None:
    """Bounded steps, repeated until done, in the scope asked for (V11)."""
    queue.enqueue_many(NewJob("work", scope=name, expires=1) for name in SCOPES for _ in range(MANY))
    clock.advance(2)
    assert queue.expire_overdue(scope) == buried
    assert queue.stats(ANY).counts[JobState.DEAD] == buried


# --- all of it


def test_a_pass_of_maintenance_reports_what_it_did(queue: Queue, clock: FakeClock, job_in: JobIn) -> None:
    """Reaped, promoted, expired, pruned, in one report; the next pass finds nothing (V11, §9)."""
    job_in(JobState.LEASED, kind="a")
    job_in(JobState.CANCELLED, kind="b")
    queue.enqueue("work", delay=60, scope="elsewhere")
    queue.enqueue("work", expires=60, scope=SYSTEM)
    queue.set("cancelled_retention", 60)
    clock.advance(301)
    report = Maintenance(queue).run_once()
    assert (report.reaped, report.promoted, report.expired, report.pruned) == (1, 1, 1, 1)
    assert bool(report)
    again = Maintenance(queue).run_once()
    assert (again.reaped, again.promoted, again.expired, again.pruned, bool(again)) == (0, 0, 0, 0, False)


def test_a_pass_moves_a_job_as_far_as_it_can_go(queue: Queue, clock: FakeClock, job_in: JobIn) -> None:
    """What it reaps and is due at once is ready after the same pass (V11, G5)."""
    queue.set("backoff_base", 0)
    job_id = job_in(JobState.LEASED)
    clock.advance(301)
    Maintenance(queue).run_once()
    assert queue.get(job_id).state is JobState.PENDING


def test_upkeep_is_part_of_a_transaction_too(queue: Queue, clock: FakeClock, job_in: JobIn) -> None:
    """In `tx` it sees and undoes with the rest (V11, V14, §4)."""
    job_in(JobState.LEASED, kind="a")
    job_in(JobState.CANCELLED, kind="b")
    queue.enqueue_many([NewJob("c", delay=60), NewJob("d", expires=60)])
    clock.advance(90_000)
    before = queue.list()
    with suppress(RuntimeError), queue.transaction() as tx:
        assert (tx.reap_expired(), tx.expire_overdue(), tx.promote_due(), tx.prune()) == (1, 1, 1, 1)
        raise RuntimeError
    assert queue.list() == before
    with queue.transaction() as tx:
        assert (tx.reap_expired(), tx.expire_overdue(), tx.promote_due(), tx.prune()) == (1, 1, 1, 1)
    assert queue.stats().total == 3


def test_a_death_is_logged_as_a_warning(
    queue: Queue, clock: FakeClock, job_in: JobIn, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever kills a job says so once it is committed, and not when it is rolled back (issue 2)."""
    caplog.set_level(logging.WARNING, logger="litequeue")
    job_id = queue.enqueue("mail:send", max_attempts=1).job_id
    (lease,) = queue.lease_many(1)
    with suppress(RuntimeError), queue.transaction() as tx:
        tx.fail(lease, "boom")
        raise RuntimeError
    assert caplog.records == []
    clock.advance(301)
    Maintenance(queue).run_once()
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert str(job_id) in line.getMessage()
    assert "mail:send" in line.getMessage()
    job_in(JobState.DEAD)
    assert len(caplog.records) == 2
