"""No stranded job: a lease call does by itself what is due, before it says that nothing is ready (G5, §3)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from litequeue import ANY, JobState, NewJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Queue
    from litequeue.model import Scope, SpecialScope
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue

MANY = 250  # more than two steps of upkeep
TICK = 0.05


def keep_busy(queue: Queue, clock: FakeClock, seconds: float) -> None:
    """Work for so long, in clock time, on a queue that never runs empty."""
    queue.enqueue_many(NewJob("busy") for _ in range(10))
    for _ in range(round(seconds / TICK)):
        queue.lease_many(1, ["busy"])[0].complete()
        queue.enqueue("busy")
        clock.advance(TICK)


def seconds_until_leased(queue: Queue, clock: FakeClock, kinds: list[str] | None = None) -> float:
    """Work on a queue that never runs empty, without maintenance; return when the urgent job came, in clock time."""
    for tick in range(60):
        queue.enqueue("busy")
        lease = queue.lease_next(kinds)
        assert lease is not None
        if lease.kind == "urgent":
            return tick * TICK
        lease.complete()
        clock.advance(TICK)
    pytest.fail("the urgent job never came")


@pytest.mark.parametrize("kinds", [None, ["busy", "urgent"]])
@pytest.mark.parametrize("crowd", [0, MANY])
def test_a_due_urgent_job_is_not_hidden_behind_a_queue_that_is_never_empty(
    queue: Queue, clock: FakeClock, crowd: int, kinds: list[str] | None
) -> None:
    """It is leased within about a second of being due, without maintenance, also behind many due jobs (§3; issue 2)."""
    queue.enqueue_many(NewJob("crowd", delay=1, priority=200) for _ in range(crowd))
    queue.enqueue("urgent", priority=0, delay=2.1)
    keep_busy(queue, clock, 2.1)
    assert seconds_until_leased(queue, clock, kinds) <= 1.1


def test_a_lapsed_urgent_job_is_not_hidden_behind_a_queue_that_is_never_empty(queue: Queue, clock: FakeClock) -> None:
    """The reaper need not run either (§3, G5)."""
    queue.set("backoff_base", 0)
    queue.enqueue("urgent", priority=0)
    queue.lease_next(ttl=2.1)
    keep_busy(queue, clock, 2.1)
    assert seconds_until_leased(queue, clock) <= 1.1


def test_upkeep_that_was_rolled_back_does_not_count(queue: Queue, clock: FakeClock) -> None:
    """A handle whose transactions lease and roll back hides no due work from its other lease calls (§3, G5, V14)."""
    queue.enqueue("urgent", priority=0, delay=0.5)
    queue.enqueue_many(NewJob("busy") for _ in range(100))
    for _ in range(60):
        clock.advance(TICK)
        with suppress(RuntimeError), queue.transaction() as tx:
            tx.lease_next()
            raise RuntimeError
        (lease,) = queue.lease_many(1)
        if lease.kind == "urgent":
            return
        lease.complete()
    pytest.fail("the urgent job never came, in three seconds")


def test_each_scope_of_a_handle_is_looked_after(queue: Queue, clock: FakeClock) -> None:
    """A handle that works in two scopes by turns hides the due work of neither (§3)."""
    for scope in ("one", "two"):
        queue.enqueue_many(NewJob("busy", scope=scope) for _ in range(100))
        queue.enqueue("urgent", scope=scope, priority=0, delay=1)
    leased: dict[str, float] = {}
    for tick in range(60):
        for scope in ("one", "two"):
            (lease,) = queue.lease_many(1, scope=scope)
            if lease.kind == "urgent":
                leased[scope] = tick * TICK
        clock.advance(TICK)
    assert set(leased) == {"one", "two"}
    assert all(1 <= at <= 2.1 for at in leased.values())


@pytest.mark.parametrize("limit", [1, 1000])
def test_due_jobs_are_promoted_until_something_is_leased(queue: Queue, clock: FakeClock, limit: int) -> None:
    """A queue with nothing but due jobs is worked off by lease calls alone (§3)."""
    queue.enqueue_many(NewJob("work", delay=1) for _ in range(MANY))
    clock.advance(1)
    leased = 0
    while leases := queue.lease_many(limit):
        leased += len(leases)
    assert leased == MANY


def test_lapsed_jobs_are_all_reaped_before_none(queue: Queue, clock: FakeClock) -> None:
    """`None` means that nothing is left to reap (§3)."""
    queue.enqueue_many(NewJob("work") for _ in range(MANY))
    queue.lease_many(MANY)
    clock.advance(301)
    assert queue.lease_next() is None
    assert queue.stats().lapsed == 0
    assert queue.stats().counts[JobState.RETRYABLE] == MANY


def test_lapsed_jobs_without_back_off_are_leased_by_the_same_call(queue: Queue, clock: FakeClock) -> None:
    """What it reaps and is due at once, it hands out (§3, G5)."""
    queue.set("backoff_base", 0)
    queue.enqueue("work")
    queue.lease_next()
    clock.advance(301)
    lease = queue.lease_next()
    assert lease is not None
    assert lease.attempts == 2


def test_overdue_jobs_are_all_buried_before_none(queue: Queue, clock: FakeClock) -> None:
    """`None` means that nothing is left to expire, ready or gated (§3, V11)."""
    queue.enqueue_many(NewJob("ready", expires=30) for _ in range(MANY))
    queue.enqueue_many(NewJob("gated", expires=30, delay=9999) for _ in range(MANY))
    clock.advance(31)
    assert queue.lease_next() is None
    assert queue.stats().counts[JobState.DEAD] == 2 * MANY


def test_due_jobs_behind_overdue_ones_are_found(queue: Queue, clock: FakeClock) -> None:
    """However much has to be cleared away first (§3)."""
    queue.enqueue_many(NewJob("late", delay=1, expires=2) for _ in range(MANY))
    queue.enqueue("good", delay=3)
    clock.advance(4)
    lease = queue.lease_next()
    assert lease is not None
    assert lease.kind == "good"


def test_a_filter_finds_its_due_job_behind_those_of_other_kinds(queue: Queue, clock: FakeClock) -> None:
    """Due jobs of kinds that nobody asked for do not hide one that was asked for (§3, V3)."""
    queue.enqueue_many(NewJob("other", delay=1) for _ in range(MANY))
    queue.enqueue("mine", delay=2)
    clock.advance(2)
    assert queue.lease_next(["mine"]) is not None
    assert queue.lease_next(["mine"]) is None
    assert queue.stats().counts[JobState.PENDING] == MANY


def test_a_lease_call_reaps_anywhere_and_promotes_in_its_own_scope(queue: Queue, clock: FakeClock) -> None:
    """Due jobs elsewhere are left to those who work there (§3)."""
    queue.enqueue("lapsing", scope="elsewhere", max_attempts=1)
    queue.lease_next(scope="elsewhere")
    queue.enqueue("due", scope="elsewhere", delay=1)
    queue.enqueue("overdue", scope="elsewhere", delay=999, expires=1)
    clock.advance(301)
    assert queue.lease_next() is None
    states = {job.kind: job.state for job in queue.list(scope="elsewhere")}
    assert states == {"lapsing": JobState.DEAD, "due": JobState.SCHEDULED, "overdue": JobState.SCHEDULED}


def test_a_lease_never_walks_past_jobs_that_are_not_due(queue: Queue, clock: FakeClock) -> None:
    """They rest outside the line, whatever their priority, and the ready ones come at once (§3)."""
    queue.enqueue_many(NewJob("later", priority=0, delay=60) for _ in range(MANY))
    queue.enqueue("now")
    assert [lease.kind for lease in queue.lease_many(1000)] == ["now"]
    clock.advance(60)
    assert len(queue.lease_many(1000)) >= 1


def becomes_due(queue: Queue, clock: FakeClock) -> None:
    """Let a delayed job become due."""
    queue.enqueue("work", delay=60)
    assert queue.lease_next() is None
    clock.advance(60)


def becomes_lapsed(queue: Queue, clock: FakeClock) -> None:
    """Let a lease lapse and its back-off pass."""
    queue.enqueue("work")
    assert queue.lease_next() is not None
    assert queue.lease_next() is None
    clock.advance(300)
    assert queue.lease_next() is None
    clock.advance(10)


def is_enqueued(queue: Queue, clock: FakeClock) -> None:  # noqa: ARG001 - one way of several
    """Enqueue, after the queue has been found empty."""
    assert queue.lease_next() is None
    queue.enqueue("work")


def is_retried(queue: Queue, clock: FakeClock) -> None:  # noqa: ARG001 - one way of several
    """Bring a dead job back, after the queue has been found empty."""
    job_id = queue.enqueue("work").job_id
    queue.lease_many(1)[0].fail("boom", retryable=False)
    assert queue.lease_next() is None
    queue.retry(job_id)


@pytest.mark.parametrize("kinds", [None, ["work"], ["work", "other:"]])
@pytest.mark.parametrize("happens", [becomes_due, becomes_lapsed, is_enqueued, is_retried])
def test_a_handle_that_found_nothing_finds_what_comes_later(
    make_queue: MakeQueue,
    clock: FakeClock,
    happens: Callable[[Queue, FakeClock], None],
    kinds: list[str] | None,
) -> None:
    """Having been idle changes nothing about what the next call does (G5, §3)."""
    idle = make_queue()
    assert [idle.lease_next(kinds), idle.lease_next(kinds)] == [None, None]
    happens(make_queue(), clock)
    assert idle.lease_next(kinds) is not None


def test_a_prefix_of_an_idle_handle_finds_new_kinds(make_queue: MakeQueue) -> None:
    """The look before the lock knows prefixes too (G5, V3)."""
    idle = make_queue()
    assert [idle.lease_next(["a:"]), idle.lease_next(["a:"])] == [None, None]
    make_queue().enqueue("a:b")
    assert idle.lease_next(["a:"]) is not None


@pytest.mark.parametrize("scope", ["default", ANY])
def test_a_job_that_comes_back_too_late_is_buried_by_the_same_call(
    queue: Queue, clock: FakeClock, scope: Scope | SpecialScope
) -> None:
    """A lapsed run takes on the times of a trigger that was kept meanwhile, and they are over (§3, V2, V11)."""
    job_id = queue.enqueue("work", idempotency_key="key").job_id
    assert queue.lease_next(ttl=5) is not None
    queue.enqueue("work", idempotency_key="key", on_conflict="reset", expires=1)
    clock.advance(6)
    queue.enqueue("other")
    assert queue.lease_next(["other"], scope=scope) is not None
    job = queue.get(job_id)
    assert (job.state, job.last_error, job.reaps) == (JobState.DEAD, "expired", 1)
