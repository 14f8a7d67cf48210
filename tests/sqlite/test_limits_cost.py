"""What limits and pauses cost: nothing to kinds without one, and a bounded count to the others (G9, §5)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import ANY, NewJob
from litequeue.testing import FakeClock
from tests.sqlite.test_flat_cost import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from litequeue import Lease, Queue

ROWS = 20_000
TOLERANCE = 0.05
MOST = 10


def _held_back_by_number(queue: Queue) -> None:
    queue.set("concurrency", 1, "held:")
    assert len(queue.lease_many(9, ["held:"])) == 1


def _held_back_by_rate(queue: Queue) -> None:
    queue.set("rate", "1/30d", "held:")
    assert len(queue.lease_many(9, ["held:"])) == 1


HELD_BACK: dict[str, Callable[[Queue], object]] = {
    "number": _held_back_by_number,
    "rate": _held_back_by_rate,
    "pause": lambda queue: queue.pause("held:"),
}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[int], Queue]]:
    """Open a queue with so many jobs of a kind that is about to be held back, at its head."""
    made: list[Queue] = []

    def build(rows: int) -> Queue:
        queue = litequeue.open(tmp_path / f"{rows}.queue", durability="normal", clock=FakeClock())
        made.append(queue)
        queue.enqueue_many(NewJob("held:one", n, priority=1) for n in range(rows))
        return queue

    yield build
    for queue in made:
        queue.close()


def _steps(queue: Queue, work: Callable[[], object]) -> int:
    work()
    with Steps(queue) as steps:
        work()
    return steps.count


def _lease_and_complete(queue: Queue, kinds: list[str] | None) -> None:
    lease = queue.lease_next(kinds)
    assert lease is not None
    assert lease.kind == "free"
    lease.complete()


def _complete_one(leases: list[Lease]) -> None:
    leases.pop().complete()


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [None, ["free"], ["free", "held:"]], ids=str)
@pytest.mark.parametrize("by", HELD_BACK)
def test_jobs_that_are_held_back_do_not_slow_the_lease_of_others(
    make: Callable[[int], Queue], by: str, kinds: list[str] | None
) -> None:
    """20,000 at the head of the line cost what two do (§5, G9)."""
    found = []
    for rows in (2, ROWS):
        queue = make(rows)
        HELD_BACK[by](queue)
        queue.enqueue_many(NewJob("free", n) for n in range(5))
        found.append(_steps(queue, partial(_lease_and_complete, queue, kinds)))
    assert found[1] == pytest.approx(found[0], rel=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("by", HELD_BACK)
def test_a_wait_looks_past_what_is_held_back(make: Callable[[int], Queue], by: str) -> None:
    """A worker that has nothing to do does not walk over 20,000 jobs to learn that (§5)."""
    found = []
    for rows in (2, ROWS):
        queue = make(rows)
        HELD_BACK[by](queue)
        found.append(_steps(queue, partial(queue.wait, 0)))
    assert found[1] == pytest.approx(found[0], rel=TOLERANCE)


@pytest.mark.slow
def test_a_count_does_not_grow_with_other_leases(make: Callable[[int], Queue]) -> None:
    """Of other kinds, of other scopes, and of none that a limit counts (§5, G9)."""
    found = []
    for rows in (0, ROWS):
        queue = make(rows)
        queue.set("concurrency", 10_000, "held:")
        queue.set("concurrency", MOST, "work", scope=ANY)
        for _ in range(2 * rows // ROWS):
            assert len(queue.lease_many(5_000, ["held:"])) == 5_000
        queue.enqueue_many(NewJob("work", n) for n in range(5))
        found.append(_steps(queue, partial(queue.lease_next, ["work"])))
    assert found[1] == pytest.approx(found[0], rel=TOLERANCE)


def test_a_count_stops_at_its_limit(make: Callable[[int], Queue]) -> None:
    """A limit that was lowered below what is leased costs no more than itself (§5)."""
    found = []
    for leased in (MOST, 100 * MOST):
        queue = make(leased + 9)
        assert len(queue.lease_many(leased)) == leased
        queue.set("concurrency", MOST, "held:")
        found.append(_steps(queue, queue.lease_next))
    assert found[1] == pytest.approx(found[0], rel=TOLERANCE)


@pytest.mark.parametrize("verb", ["lease", "complete"])
def test_a_kind_without_a_limit_pays_nothing_for_those_of_others(make: Callable[[int], Queue], verb: str) -> None:
    """Not one statement more (§5, DESIGN §5)."""
    found = []
    for is_limited in (False, True):
        queue = make(0 if is_limited else 1)
        queue.enqueue_many(NewJob("free", n, priority=0) for n in range(4))
        if is_limited:
            queue.set("concurrency", 1, "held:", scope=ANY)
            queue.set("rate", "1/1s", "held:")
            queue.pause("held:", scope="other")
        leases = queue.lease_many(2)
        work = queue.lease_next if verb == "lease" else partial(_complete_one, leases)
        found.append(_steps(queue, work))
    assert found[0] == found[1]
