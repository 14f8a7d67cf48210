"""Flow: how many jobs come and go in a second, by bounded reads of what the file tells (issue 8, `top`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litequeue import ANY, SYSTEM, JobState, NewJob
from litequeue.sqlite import flow as flows
from litequeue.sqlite.walks import whole

if TYPE_CHECKING:
    from litequeue import Queue
    from litequeue.sqlite.flow import Flow
    from litequeue.testing import FakeClock
    from tests.metrics.conftest import VmSteps

WINDOW_S = 10


def flow(queue: Queue) -> Flow:
    """Return the flow of the last ten seconds."""
    return whole(queue.surveyor().flow(WINDOW_S * 1_000_000))


def complete(queue: Queue, count: int, *kinds: str) -> None:
    """Lease so many jobs, of any scope, and complete them."""
    leases = queue.lease_many(count, kinds or None, scope=ANY)
    assert len(leases) == count
    assert queue.complete_many(leases) == []


def test_an_empty_file_has_no_flow(queue: Queue) -> None:
    """Nothing comes, nothing goes."""
    assert flow(queue) == (0, 0, 0, False)


def test_what_came_and_went_lately_is_counted_in_every_scope_and_priority(queue: Queue, clock: FakeClock) -> None:
    """By when it was enqueued and ended; what lies before the window is not counted, whatever its state is now."""
    queue.enqueue_many(NewJob("old", n, scope=scope, priority=n) for n in range(3) for scope in ("default", SYSTEM))
    complete(queue, 2)
    clock.advance(WINDOW_S + 1)
    queue.enqueue_many(NewJob("new", n, priority=200) for n in range(20))
    queue.enqueue("delayed", delay=60)
    queue.enqueue("cancelled")
    complete(queue, 3, "old")
    complete(queue, 12, "new")
    clock.advance(1)
    assert flow(queue) == (2.2, 1.5, 0, False)


def test_runs_that_failed_or_lapsed_have_failed_and_so_have_the_dead(queue: Queue, clock: FakeClock) -> None:
    """As long as they wait out their back-off, and when they died within the window (V7, V11)."""
    queue.enqueue_many(NewJob("work", n) for n in range(10))
    early, *leases = queue.lease_many(8, ttl=60)
    early.fail("too early to be seen")
    clock.advance(WINDOW_S + 1)
    queue.fail_many(leases[:3], "comes again")
    queue.fail_many(leases[3:5], "is dead", retryable=False)
    assert flow(queue).failed == pytest.approx(0.5)
    clock.advance(60)
    assert queue.reap_expired() == 2
    assert flow(queue).failed == pytest.approx(0.2)


def test_a_kind_that_is_far_behind_is_seen_beneath_a_younger_one(
    queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs of a backlog are old when they end: they are found before the next one of their kind (G4)."""
    monkeypatch.setattr(flows, "ROWS", 30)
    queue.enqueue_many(NewJob("behind", n) for n in range(40))
    queue.enqueue_many(NewJob("quick", n) for n in range(40))
    complete(queue, 40, "quick")
    clock.advance(WINDOW_S + 1)
    complete(queue, 5, "behind")
    assert flow(queue).completed == pytest.approx(0.5)


def test_more_than_is_looked_at_is_estimated_and_said(
    queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time that the part took which was looked at: here a hundred jobs a second."""
    monkeypatch.setattr(flows, "ROWS", 40)
    for _ in range(100):
        queue.enqueue("work")
        complete(queue, 1)
        clock.advance(0.01)
    found = flow(queue)
    assert found.is_estimated
    assert found.enqueued == found.completed == pytest.approx(100, rel=0.05)


def test_what_is_later_than_now_is_left_out_and_the_flow_an_estimate(queue: Queue, clock: FakeClock) -> None:
    """The clock was set back: the jobs of before come and go no more, whatever their rows say (issue 8)."""
    queue.enqueue_many(NewJob("work", n) for n in range(10))
    leases = queue.lease_many(6)
    queue.complete_many(leases[:2])
    queue.fail_many(leases[2:4], "is dead", retryable=False)
    queue.fail_many(leases[4:], "comes again", delay=60)
    queue.cancel(queue.list(state=JobState.PENDING)[0].job_id)
    clock.step_wall(-3600)
    assert flow(queue) == (0, 0, 0, True)
    assert whole(queue.surveyor().done(300_000_000)) == []
    queue.enqueue("new", scope="acme")
    (lease,) = queue.lease_many(1, scope="acme")
    lease.complete()
    assert flow(queue) == (0.1, 0.1, 0, True)
    assert [one.kind for one in whole(queue.surveyor().done(300_000_000))] == ["new"]
    clock.advance(2 * 3600)
    assert flow(queue) == (0, 0, 0, False)


def test_flow_costs_the_same_however_many_jobs_there_are(
    queue: Queue, vm_steps: VmSteps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many rows are looked at and no more, in virtual machine steps (issue 8: bounded at a million jobs)."""
    monkeypatch.setattr(flows, "ROWS", 500)
    costs = []
    for _ in range(2):
        queue.enqueue_many(NewJob(f"kind:{n % 3}", n) for n in range(4_000))
        complete(queue, 2_000)
        queue.fail_many(queue.lease_many(500), "dead", retryable=False)
        flow(queue)
        costs.append(vm_steps(queue, lambda: flow(queue)))
    assert costs[1] <= 1.05 * costs[0]
