"""Flat cost: 20,000 rows of any other sort do not change what a verb costs (G9).

What is compared is SQLite's own count of virtual-machine steps, so no clock, disk or neighbour has a say. Each sort of
rows is built once, and its closed file is copied for each test.
"""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING, Self

import apsw
import pytest

import litequeue
from litequeue import NewJob
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from litequeue import Lease, Queue

pytestmark = pytest.mark.slow

ROWS = 20_000
TOLERANCE = 0.05
YEAR_S = 31_536_000


def _later(days: int) -> FakeClock:
    """Return the clock of a day after the rows were made; every handle on them goes by it."""
    clock = FakeClock()
    clock.advance(86_400 * days)
    return clock


def _leased(queue: Queue) -> list[Lease]:
    queue.enqueue_many(NewJob("work", number) for number in range(ROWS))
    return [lease for _ in range(4) for lease in queue.lease_many(ROWS // 4, ttl=YEAR_S)]


def _keep_leased(queue: Queue) -> None:
    _leased(queue)
    queue._store.holdings.leases.clear()  # as if the process were still alive: the close gives nothing back


def _retryable(queue: Queue) -> None:
    queue.fail_many(_leased(queue), "boom", delay=YEAR_S)


def _expired_keys(queue: Queue) -> None:
    queue.enqueue_many(NewJob("work", number, idempotency_key=f"key {number}") for number in range(ROWS))
    for _ in range(4):
        queue.complete_many(queue.lease_many(ROWS // 4))


def _runs_of_one_key(queue: Queue) -> None:
    queue.set("idempotency_window", 0)
    for _ in range(ROWS // 4):
        with queue.transaction() as tx:
            for _ in range(4):
                tx.enqueue("work", idempotency_key="again and again")
                lease = tx.lease_next()
                assert lease is not None
                tx.complete(lease)
    queue.unset("idempotency_window")


SORTS: dict[str, Callable[[Queue], object]] = {
    "completed": lambda queue: queue.complete_many(_leased(queue)),
    "retryable": _retryable,
    "scheduled": lambda queue: queue.enqueue_many(NewJob("work", n, delay=YEAR_S) for n in range(ROWS)),
    "other kind": lambda queue: queue.enqueue_many(NewJob("other", n) for n in range(ROWS)),
    "other scope": lambda queue: queue.enqueue_many(NewJob("work", n, scope="elsewhere") for n in range(ROWS)),
    "expired keys": _expired_keys,
    "runs of one key": _runs_of_one_key,
    "active keys": lambda queue: queue.enqueue_many(
        NewJob("other", n, idempotency_key=f"key {n}") for n in range(ROWS)
    ),
    "dead": lambda queue: queue.fail_many(_leased(queue), "boom", retryable=False),
    "cancelled": lambda queue: queue.cancel_many(
        [made.job_id for made in queue.enqueue_many(NewJob("work", n) for n in range(ROWS))]
    ),
    "leased": _keep_leased,
    "expiring": lambda queue: queue.enqueue_many(NewJob("other", n, expires=YEAR_S) for n in range(ROWS)),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Give the closed file that holds 20,000 rows of a sort, or none, and after them a few jobs to work with."""
    made: dict[str, Path] = {}

    def build(sort: str) -> Path:
        if sort not in made:
            path = tmp_path_factory.mktemp("template") / "app.queue"
            with litequeue.open(path, durability="normal", clock=FakeClock()) as queue:
                if sort != "nothing":
                    SORTS[sort](queue)
            with litequeue.open(path, durability="normal", clock=_later(2)) as queue:
                # Out of the way of nothing: they come first by priority, whatever else is ready.
                queue.enqueue_many(NewJob("work", number, priority=50) for number in range(5))
                queue.enqueue_many(NewJob("area:one", number, priority=60) for number in range(5))
            made[sort] = path
        return made[sort]

    yield build
    for path in made.values():
        path.unlink()


class Steps:
    """Counts the steps of SQLite's virtual machine on all connections of a handle."""

    def __init__(self, queue: Queue) -> None:
        self.count = 0
        self._connections = [queue._store._writer.connection, queue._store._reader.connection]

    def __enter__(self) -> Self:
        for connection in self._connections:
            assert connection is not None
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._add)
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            assert connection is not None
            connection.trace_v2(0, None)

    def _add(self, event: dict[str, dict[str, int]]) -> None:
        self.count += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


def _prepare_lease(queue: Queue) -> Lease:
    lease = queue.lease_next()
    assert lease is not None
    return lease


def _plain(work: Callable[[Queue], object]) -> Callable[[Queue], Callable[[], object]]:
    """Measure a verb the second time: the first one reads the settings and does the upkeep of the second."""

    def prepare(queue: Queue) -> Callable[[], object]:
        work(queue)
        return lambda: work(queue)

    return prepare


def _on_lease(work: Callable[[Lease], object]) -> Callable[[Queue], Callable[[], object]]:
    """Measure a verb of a holder, after another one has done the same."""

    def prepare(queue: Queue) -> Callable[[], object]:
        work(_prepare_lease(queue))
        lease = _prepare_lease(queue)
        return lambda: work(lease)

    return prepare


_numbers = itertools.count()


def _get(queue: Queue) -> Callable[[], object]:
    job_id = _prepare_lease(queue).job_id
    queue.get(job_id)
    return lambda: queue.get(job_id)


def _cancel(queue: Queue) -> Callable[[], object]:
    first, second = (queue.enqueue("work").job_id for _ in range(2))
    queue.cancel(first)
    return lambda: queue.cancel(second)


def _ask_idle(queue: Queue) -> Callable[[], object]:
    assert queue.lease_next(["none", "no:"]) is None
    assert queue.lease_next(["none", "no:"]) is None
    return lambda: queue.lease_next(["none", "no:"])


VERBS: dict[str, Callable[[Queue], Callable[[], object]]] = {
    "enqueue": _plain(lambda queue: queue.enqueue("work", "payload")),
    "enqueue with a key": _plain(lambda queue: queue.enqueue("work", idempotency_key=f"new {next(_numbers)}")),
    "enqueue with a used key": _plain(lambda queue: queue.enqueue("work", idempotency_key="again and again")),
    "enqueue delayed": _plain(lambda queue: queue.enqueue("work", delay=50)),
    "first lease": lambda queue: queue.lease_next,  # with the upkeep that comes once a second
    "lease": _plain(lambda queue: queue.lease_next()),
    "lease of a kind": _plain(lambda queue: queue.lease_next(["work"])),
    "lease of a prefix": _plain(lambda queue: queue.lease_next(["area:"])),
    "lease of kinds and prefixes": _plain(lambda queue: queue.lease_next(["work", "area:", "none", "no:"])),
    "idle lease": _ask_idle,
    "complete": _on_lease(lambda lease: lease.complete("result")),
    "fail": _on_lease(lambda lease: lease.fail("boom")),
    "extend": _on_lease(lambda lease: lease.extend()),
    "checkpoint": _on_lease(lambda lease: lease.checkpoint(b"half")),
    "release": _on_lease(lambda lease: lease.release()),
    "cancel": _cancel,
    "get": _get,
}


def _steps(file: Path, folder: Path, verb: str) -> int:
    """Count the steps of a verb on a copy of a file."""
    path = folder / f"{file.parent.name}.queue"
    shutil.copyfile(file, path)
    with litequeue.open(path, durability="normal", clock=_later(2)) as queue:
        work = VERBS[verb](queue)
        with Steps(queue) as steps:
            work()
    path.unlink()
    return steps.count


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("sort", SORTS)
def test_a_verb_takes_the_same_steps_beside_20000_rows_of_another_sort(
    tmp_path: Path, template: Callable[[str], Path], sort: str, verb: str
) -> None:
    """Within 5% of its steps in an empty file (G9)."""
    alone = _steps(template("nothing"), tmp_path, verb)
    beside = _steps(template(sort), tmp_path, verb)
    assert alone > 20, "steps were counted"
    assert beside == pytest.approx(alone, rel=TOLERANCE)
