"""What a lease from all scopes costs: beside 20,000 rows of another sort, and with 10,000 active scopes (G9, V12).

As in `test_flat_cost`, SQLite's own count of virtual-machine steps is compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import ANY, NewJob
from litequeue.sqlite.leasing import Rhythm
from litequeue.testing import FakeClock
from tests.sqlite.test_flat_cost import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from litequeue import Queue

pytestmark = pytest.mark.slow

ROWS = 20_000
SCOPES = 10_000
YEAR_S = 31_536_000
BATCH = 10
ACTIVE = ("m 1", "m 2", "m 3")
"""The scopes that a test works with, in the midst of the others by name."""


def _spread(**fields: object) -> Callable[[Queue], object]:
    """Enqueue two jobs in each of so many scopes."""

    def make(queue: Queue) -> None:
        queue.enqueue_many(
            NewJob("work", n, scope=f"{'az'[n % 2]} {n % SCOPES:05}", **fields)  # type: ignore[arg-type] # fields by name
            for n in range(ROWS)
        )

    return make


def _completed(queue: Queue) -> None:
    _spread()(queue)
    for _ in range(4):
        queue.complete_many(queue.lease_many(ROWS // 4, scope=ANY))


def _leased(queue: Queue) -> None:
    _spread()(queue)
    for _ in range(4):
        queue.lease_many(ROWS // 4, scope=ANY, ttl=YEAR_S)
    queue._store.holdings.leases.clear()  # as if the process were still alive: the close gives nothing back


def _backlog(queue: Queue) -> None:
    queue.enqueue_many(NewJob("work", n, scope=scope, priority=200) for n in range(ROWS // 3) for scope in ACTIVE)


def _other_kinds(queue: Queue) -> None:
    queue.enqueue_many(NewJob(f"other {n}", n, scope=scope) for n in range(ROWS // 3) for scope in ACTIVE)


FLAT: dict[str, Callable[[Queue], object]] = {
    "completed": _completed,
    "leased": _leased,
    "delayed": _spread(delay=YEAR_S),
    "delayed and expiring": _spread(delay=YEAR_S, expires=2 * YEAR_S),
    "own backlog": _backlog,
    "other kinds of its scopes": _other_kinds,
}
"""Rows that are not to be felt."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, Callable[[Queue], object]], Queue]]:
    """Give the handle on the file that holds rows of a sort."""
    open_files: dict[str, Queue] = {}

    def build(sort: str, fill: Callable[[Queue], object]) -> Queue:
        if sort not in open_files:
            path: Path = tmp_path_factory.mktemp("rows") / "app.queue"
            with litequeue.open(path, durability="normal", clock=FakeClock()) as queue:
                fill(queue)
            queue = open_files[sort] = litequeue.open(path, durability="normal", clock=FakeClock())
            for scope in ACTIVE:  # a row in each index of every file
                queue.enqueue("kept", scope=scope)
                assert queue.lease_next(["kept"], scope=scope, ttl=YEAR_S) is not None
                queue.enqueue("kept", scope=scope, delay=YEAR_S, expires=2 * YEAR_S)
        return open_files[sort]

    yield build
    for queue in open_files.values():
        queue.close()


def _lease(queue: Queue, kinds: list[str] | None, limit: int) -> None:
    assert len(queue.lease_many(limit, kinds, scope=ANY)) == limit


def _wait(queue: Queue, kinds: list[str] | None, _: int) -> None:
    assert queue.wait(0, kinds, scope=ANY)


VERBS: dict[str, tuple[Callable[[Queue, list[str] | None, int], None], list[str] | None, int]] = {
    "lease": (_lease, None, 1),
    "lease of a kind": (_lease, ["work"], 1),
    "lease of a prefix and a kind": (_lease, ["no:", "work"], 1),
    "lease many": (_lease, None, BATCH),
    "lease many of a kind": (_lease, ["work"], BATCH),
    "wait": (_wait, None, 1),
    "wait for a kind": (_wait, ["work"], 1),
}


def _count(queue: Queue, verb: str, *, with_upkeep: bool = False) -> int:
    """Count the steps of a verb at its second time, with jobs at the head of three scopes."""
    call, kinds, limit = VERBS[verb]
    made = queue.enqueue_many(NewJob("work", n, scope=scope, priority=7) for n in range(12) for scope in ACTIVE)
    turn = ("m 1", 1)
    try:
        call(queue, kinds, limit)
        with queue.transaction() as tx:
            tx._context.write("UPDATE litequeue_turn SET scope = ?, served = ?", turn)
        if with_upkeep:
            queue._rhythm = Rhythm()
        with Steps(queue) as steps:
            call(queue, kinds, limit)
    finally:
        queue.cancel_many([job.job_id for job in made])
    return steps.count


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("sort", FLAT)
def test_a_lease_from_all_scopes_takes_the_same_steps_beside_rows_of_another_sort(
    files: Callable[[str, Callable[[Queue], object]], Queue], sort: str, verb: str
) -> None:
    """Within 5%, also with the upkeep that comes once a second (G9, V12)."""
    alone, beside = files("nothing", lambda _: None), files(sort, FLAT[sort])
    for with_upkeep in (False, True):
        expected = _count(alone, verb, with_upkeep=with_upkeep)
        assert expected > 20, "steps were counted"
        assert _count(beside, verb, with_upkeep=with_upkeep) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("verb", VERBS)
def test_a_lease_from_10000_active_scopes_takes_at_most_twice_the_steps_of_one_from_a_single_scope(
    files: Callable[[str, Callable[[Queue], object]], Queue], verb: str
) -> None:
    """The next scope is one seek away, however many there are (V12; issue 6)."""
    one = files("one scope", lambda queue: queue.enqueue_many(NewJob("work", n, scope="m 2") for n in range(ROWS)))
    many = files("10,000 scopes", _spread())
    assert _count_active(many, verb) <= 2 * _count_active(one, verb)


def _count_active(queue: Queue, verb: str) -> int:
    """Count the steps of a verb with what is in the file."""
    call, kinds, limit = VERBS[verb]
    call(queue, kinds, limit)
    with Steps(queue) as steps:
        call(queue, kinds, limit)
    return steps.count


def test_a_scope_of_other_kinds_costs_a_bounded_number_of_steps(
    files: Callable[[str, Callable[[Queue], object]], Queue],
) -> None:
    """So much for each that stands before the next with a job of the kinds that are asked for (V12; issue 6)."""
    queue = files("10,000 scopes", _spread())
    with Steps(queue) as steps:
        assert queue.lease_next(["none"], scope=ANY) is None
    assert steps.count <= 70 * SCOPES
    with Steps(queue) as steps:
        assert queue.lease_next(["none", "no:"], scope=ANY) is None
    assert steps.count <= 100 * SCOPES
