"""Limits under eight processes that are killed at work: never exceeded, and never left taken by the dead (§5, G5)."""

from __future__ import annotations

import itertools
import random
import time
from typing import TYPE_CHECKING, cast

import pytest

import litequeue
from litequeue import ANY, JobState, Maintenance, NewJob, Queue, Transition
from litequeue.sqlite import ofd
from litequeue.sqlite.examining import problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.children import Child, Children, Parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ofd.HAS_LOCKS, reason="this platform does not tell who has died"),
]

YEAR_S = 31_536_000
PROCESSES = 8
KILLS = 24
SCOPES = ("one", "two", "three")
KINDS = ("all:x", "all:y", "each", "often", "free")
OVER_ALL = 3
IN_EACH = 1
IN_LARGE = 2
RATE, PERIOD_S = 40, 1
JOBS = 200
"""Of each kind, in each scope; of the one with a rate a few."""
RATED_JOBS = 40
OPEN = (JobState.PENDING, JobState.LEASED, JobState.RETRYABLE, JobState.SCHEDULED)


@pytest.fixture
def queue(path: str) -> Iterator[Queue]:
    """Give the handle of a process that lives on, on a file with limits of each sort."""
    with litequeue.open(path, durability="normal") as handle:
        handle.set("lease_ttl", YEAR_S)
        handle.set("max_attempts", 1000)
        handle.set("backoff_base", 0)
        handle.set("concurrency", OVER_ALL, "all:")
        handle.set("concurrency", IN_EACH, "each", scope=ANY)
        handle.set("concurrency", IN_LARGE, "each", scope="three")
        handle.set("rate", f"{RATE}/{PERIOD_S}s", "often")
        yield handle


def _work(parent: Parent, path: str, seed: int) -> None:
    """Lease in transactions that count what is leased then, and end each lease in some way, until nothing is left."""
    draw = random.Random(seed)
    with litequeue.open(path, durability="normal") as queue:
        while any(queue.stats(ANY).counts[state] for state in OPEN):
            with queue.transaction() as tx:
                leases = tx.lease_many(draw.randint(1, 4), scope=draw.choice(SCOPES))
                rows = tx.execute(
                    "SELECT kind, scope, count(*) FROM litequeue_job WHERE state = 1 GROUP BY kind, scope"
                )
            counts = {(kind, scope): count for kind, scope, count in cast("list[tuple[str, str, int]]", rows)}
            over_all = sum(count for (kind, _), count in counts.items() if kind.startswith("all:"))
            in_each = [
                count - (IN_LARGE if scope == "three" else IN_EACH)
                for (kind, scope), count in counts.items()
                if kind == "each"
            ]
            if over_all > OVER_ALL or max(in_each, default=0) > 0:
                parent.say(f"broken: {counts}")
                return
            if not leases:
                queue.wait(0.05)
            for lease in leases:
                match draw.randrange(6):
                    case 0:
                        lease.fail("boom")
                    case 1:
                        lease.release()
                    case _:
                        lease.complete()
        parent.say("all is done")


def _hold(parent: Parent, path: str) -> None:
    """Take the one place that there is, and keep it."""
    with litequeue.open(path) as queue:
        assert queue.lease_next() is not None
        parent.say("held")
        parent.hear()


def test_limits_hold_exactly_while_processes_are_killed(queue: Queue, path: str, processes: Children) -> None:
    """Counted in the very transactions that lease, and by the jobs' own logs afterwards (§5, G5, G7)."""
    enqueued = len(queue.enqueue_many(_jobs("often", RATED_JOBS))) + len(queue.enqueue_many(_unrated()))
    seeds = itertools.count(random.randrange(2**32))
    crew: list[Child] = [processes.start(_work, path, next(seeds)) for _ in range(PROCESSES)]
    maintenance = Maintenance(queue)
    killed = 0
    while killed < KILLS:
        done = queue.stats(ANY).counts[JobState.COMPLETED]
        if done > enqueued // 2:  # between two looks of this process much may be done: work for all has to be left
            enqueued += len(queue.enqueue_many(_unrated()))
        give_up = time.monotonic() + 60
        while queue.stats(ANY).counts[JobState.COMPLETED] < done + 5:
            maintenance.run_once()
            assert time.monotonic() < give_up, "nothing goes on: a place is left taken"
        crew.pop(killed % PROCESSES).kill()
        crew.append(processes.start(_work, path, next(seeds)))
        killed += 1
    give_up = time.monotonic() + 120
    while any(queue.stats(ANY).counts[state] for state in OPEN):
        maintenance.run_once()
        assert time.monotonic() < give_up, "nothing goes on: a place is left taken"
    assert [child.hear() for child in crew] == ["all is done"] * PROCESSES
    assert problems(path) == []
    _look_into_the_logs(queue)


def _jobs(kind: str, count: int) -> list[NewJob]:
    """Make jobs of a kind, so many in each scope."""
    return [NewJob(kind, n, scope=scope) for n in range(count) for scope in SCOPES]


def _unrated() -> list[NewJob]:
    """Make jobs of all kinds but the one with a rate, which would last long."""
    return [job for kind in KINDS if kind != "often" for job in _jobs(kind, JOBS)]


def _look_into_the_logs(queue: Queue) -> None:
    """Hold what each job says of its runs against the limits."""
    begun: list[int] = []
    last = None
    while page := queue.list(scope=ANY, limit=1000, after=last):
        last = page[-1]
        for job in page:
            if job.kind == "often":
                begun += [event.at for event in job.events if event.transition is Transition.LEASED]
    begun.sort()
    for first, since in enumerate(begun):
        window_us = PERIOD_S * 1_000_000
        in_window = sum(at < since + window_us for at in begun[first:])
        assert in_window <= 2 * RATE, "a full bucket, and what came in since"


def test_a_place_is_free_within_about_a_second_of_its_holders_death(
    queue: Queue, path: str, processes: Children
) -> None:
    """Its lease would have lasted a year; somebody runs maintenance, and somebody else waits (§5, V11)."""
    queue.set("concurrency", 1)
    queue.enqueue_many([NewJob("work", 1), NewJob("work", 2)])
    holder = processes.start(_hold, path)
    assert holder.hear() == "held"
    maintainer = processes.start(_maintain, path)
    assert maintainer.hear() == "begun"
    assert not queue.wait(0.1)
    holder.kill()
    since = time.monotonic()
    assert queue.wait(30)
    assert queue.lease_next() is not None
    assert time.monotonic() - since < 10, "about a second, and what a loaded machine adds"


def _maintain(parent: Parent, path: str) -> None:
    """Maintain with an hour between two passes, so that a death is what is noticed."""
    with litequeue.open(path) as queue:
        parent.say("begun")
        Maintenance(queue).run(3600)
