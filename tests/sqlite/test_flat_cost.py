"""Flat cost: 20,000 rows of any other sort do not change what a verb costs (G9).

What is compared is SQLite's own count of virtual-machine steps, so no clock, disk or neighbour has a say. Each sort of
rows is made once; the tests take turns on its file and leave nothing in their line.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Self

import apsw
import pytest

import litequeue
from litequeue import NewJob
from litequeue.sqlite.leasing import Rhythm
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from uuid import UUID

    from litequeue import Lease, Queue

pytestmark = pytest.mark.slow

ROWS = 20_000
RUNS = 5_000
"""Of one key: each has to be done before the next one."""
TOLERANCE = 0.05
YEAR_S = 31_536_000
BATCH = 10
AHEAD = 50
"""The priority of the jobs that a test works with: only those of other kinds are before them."""


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
    for _ in range(RUNS // 100):
        with queue.transaction() as tx:
            for _ in range(100):
                tx.enqueue("work", idempotency_key="again and again")
                lease = tx.lease_next()
                assert lease is not None
                tx.complete(lease)
    queue.unset("idempotency_window")


def _analysed(fill: Callable[[Queue], object], *, is_stale: bool) -> Callable[[Queue], object]:
    """Let an application run ANALYZE on its file: before it was filled, so that it knows of one row, or after."""

    def make(queue: Queue) -> None:
        if not is_stale:
            fill(queue)
        queue.enqueue("work", delay=YEAR_S)
        application = apsw.Connection(queue.path)
        application.execute("ANALYZE")
        application.close()
        if is_stale:
            fill(queue)

    return make


def _jobs(kind: str = "work", **fields: object) -> Callable[[Queue], object]:
    """Enqueue so many jobs; `{n}` in a text becomes the number of each."""

    def make(queue: Queue) -> None:
        queue.enqueue_many(
            NewJob(kind.format(n=n), n, **{name: _numbered(value, n) for name, value in fields.items()})  # type: ignore[arg-type] # fields by name
            for n in range(ROWS)
        )

    return make


def _numbered(value: object, n: int) -> object:
    return value.format(n=n) if isinstance(value, str) else value


def _complete(queue: Queue) -> None:
    queue.complete_many(_leased(queue))


def _cancelled(queue: Queue) -> None:
    queue.cancel_many([made.job_id for made in queue.enqueue_many(NewJob("work", n) for n in range(ROWS))])


def _waiting(queue: Queue) -> None:
    """Let so many jobs wait for one that does not end; where there are chains verbs ask, and cost a little more."""
    parent = queue.enqueue("parent", delay=2 * YEAR_S).job_id
    queue.enqueue_many(NewJob("work", n, after=[parent]) for n in range(ROWS))


def _dependencies(queue: Queue) -> None:
    """Let one job wait for so many that do not end."""
    queue.batch((NewJob("parent", n, delay=2 * YEAR_S) for n in range(ROWS)), NewJob("last"))


def _chained(queue: Queue) -> None:
    """Let one job have waited, so that verbs ask."""
    parent = queue.enqueue("parent", delay=2 * YEAR_S).job_id
    queue.enqueue("work", after=[parent])


CHAINED = ("waiting", "dependencies")
"""These are compared with a file that has a chain, too."""

SORTS: dict[str, Callable[[Queue], object]] = {
    "completed": _complete,
    "dead": lambda queue: queue.fail_many(_leased(queue), "boom", retryable=False),
    "cancelled": _cancelled,
    "retryable": _retryable,
    "scheduled": _jobs(delay=YEAR_S),
    "leased": _keep_leased,
    "expiring": _jobs("other", expires=YEAR_S),
    "active keys": _jobs("other", idempotency_key="key {n}"),
    "active keys of its kind": _jobs(idempotency_key="key {n}", delay=YEAR_S),
    "expired keys": _expired_keys,
    "runs of one key": _runs_of_one_key,
    "waiting": _waiting,
    "dependencies": _dependencies,
    "own backlog": _jobs(),
    "own backlog of one kind": _jobs("area:one"),
    "other kind": _jobs("other", priority=AHEAD - 1),
    "many kinds": _jobs("other{n}:detail", priority=AHEAD - 1),
    "other scope": _jobs(scope="elsewhere"),
    "many scopes": _jobs(scope="scope {n}"),
    "many kinds elsewhere": _jobs("area:{n}", scope="elsewhere"),
    "completed, then ANALYZE": _analysed(_complete, is_stale=False),
    "ANALYZE, then a backlog": _analysed(_jobs(), is_stale=True),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Queue]]:
    """Give the handle on the file that holds 20,000 rows of a sort, or none."""
    open_files: dict[str, Queue] = {}

    def build(sort: str) -> Queue:
        if sort not in open_files:
            path: Path = tmp_path_factory.mktemp("rows") / "app.queue"
            if sort != "nothing":
                with litequeue.open(path, durability="normal", clock=FakeClock()) as queue:
                    (_chained if sort == "a chain" else SORTS[sort])(queue)
            open_files[sort] = keeper = litequeue.open(path, durability="normal", clock=_later(2))
            # One row in each index of every file: what is compared is not whether there is any.
            keeper.enqueue("kept")
            assert keeper.lease_next(["kept"], ttl=YEAR_S) is not None
            keeper.enqueue("kept", delay=YEAR_S, expires=2 * YEAR_S)
        return open_files[sort]

    yield build
    for queue in open_files.values():
        queue.close()


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


class Scene:
    """A handle, and the jobs that a test makes at the head of the line."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._made: list[UUID] = []

    def make(self, number: int = 1, kind: str = "work") -> list[UUID]:
        """Enqueue jobs that come before all others of their kind."""
        made = self.queue.enqueue_many(NewJob(kind, n, priority=AHEAD) for n in range(number))
        self._made += [job.job_id for job in made]
        return [job.job_id for job in made]

    def leases(self, number: int = 1) -> list[Lease]:
        """Make jobs and lease them."""
        made = self.make(number)
        leases = self.queue.lease_many(number, ["work"])
        assert [lease.job_id for lease in leases] == made
        return leases

    def end(self) -> None:
        """Leave nothing at the head of the line."""
        self.queue.cancel_many(self._made)


_numbers = itertools.count()


def _plain(work: Callable[[Queue], object], *kinds: str) -> Callable[[Scene], Callable[[], object]]:
    """Measure a verb the second time: the first one reads the settings and does the upkeep of the second."""

    def prepare(scene: Scene) -> Callable[[], object]:
        for kind in kinds or ("work",):
            scene.make(2 * BATCH, kind)
        work(scene.queue)
        return lambda: work(scene.queue)

    return prepare


def _on_lease(work: Callable[[Lease], object]) -> Callable[[Scene], Callable[[], object]]:
    """Measure a verb of a holder, after another one has done the same."""

    def prepare(scene: Scene) -> Callable[[], object]:
        first, second = scene.leases(2)
        work(first)
        return lambda: work(second)

    return prepare


def _on_leases(work: Callable[[Queue, list[Lease]], object]) -> Callable[[Scene], Callable[[], object]]:
    """Measure a verb on a batch of leases, after another batch."""

    def prepare(scene: Scene) -> Callable[[], object]:
        leases = scene.leases(2 * BATCH)
        work(scene.queue, leases[:BATCH])
        return lambda: work(scene.queue, leases[BATCH:])

    return prepare


def _on_job(
    bring: Callable[[Scene], list[UUID]], work: Callable[[Queue, UUID], object]
) -> Callable[[Scene], Callable[[], object]]:
    """Measure a verb on one of two jobs, after it was done on the other."""

    def prepare(scene: Scene) -> Callable[[], object]:
        first, second = bring(scene)
        work(scene.queue, first)
        return lambda: work(scene.queue, second)

    return prepare


def _dead(scene: Scene) -> list[UUID]:
    leases = scene.leases(2)
    scene.queue.fail_many(leases, "boom", retryable=False)
    return [lease.job_id for lease in leases]


def _lease_with_upkeep(scene: Scene) -> Callable[[], object]:
    """Measure the lease that does the upkeep which comes once a second."""
    scene.leases()
    scene.make()
    scene.queue._rhythm = Rhythm()
    return lambda: scene.queue.lease_next(["work"])


def _ask_idle(scene: Scene) -> Callable[[], object]:
    for _ in range(2):
        assert scene.queue.lease_next(["none", "no:"]) is None
    return lambda: scene.queue.lease_next(["none", "no:"])


def _transact(lease: Lease) -> None:
    with lease.transaction():
        pass


VERBS: dict[str, Callable[[Scene], Callable[[], object]]] = {
    "enqueue": _plain(lambda queue: queue.enqueue("work", "payload")),
    "enqueue with a key": _plain(lambda queue: queue.enqueue("work", idempotency_key=f"new {next(_numbers)}")),
    "enqueue with a used key": _plain(lambda queue: queue.enqueue("work", idempotency_key="again and again")),
    "enqueue that resets": _plain(lambda queue: queue.enqueue("new", idempotency_key="one", on_conflict="reset")),
    "enqueue delayed": _plain(lambda queue: queue.enqueue("work", delay=50)),
    "enqueue that expires": _plain(lambda queue: queue.enqueue("work", expires=50)),
    "enqueue many": _plain(lambda queue: queue.enqueue_many(NewJob("work", n) for n in range(BATCH))),
    "lease with upkeep": _lease_with_upkeep,
    "lease": _plain(lambda queue: queue.lease_next()),
    "lease of a kind": _plain(lambda queue: queue.lease_next(["work"])),
    "lease of a prefix": _plain(lambda queue: queue.lease_next(["area:"]), "area:one"),
    "lease of kinds and prefixes": _plain(
        lambda queue: queue.lease_next(["work", "area:", "none", "no:"]), "work", "area:one"
    ),
    "lease many": _plain(lambda queue: queue.lease_many(BATCH)),
    "lease many of a kind": _plain(lambda queue: queue.lease_many(BATCH, ["work"])),
    "lease many of a prefix": _plain(lambda queue: queue.lease_many(BATCH, ["area:"]), "area:one"),
    "idle lease": _ask_idle,
    "upkeep of all scopes with nothing to do": _plain(lambda queue: (queue.promote_due(), queue.expire_overdue())),
    "complete": _on_lease(lambda lease: lease.complete()),
    "complete with a result": _on_lease(lambda lease: lease.complete("result")),
    "complete and enqueue": _on_lease(lambda lease: lease.complete(then=[NewJob("work")])),
    "complete in a transaction": _on_lease(_transact),
    "complete many": _on_leases(lambda queue, leases: queue.complete_many(leases)),
    "fail": _on_lease(lambda lease: lease.fail("boom")),
    "fail for good": _on_lease(lambda lease: lease.fail("boom", retryable=False)),
    "fail many": _on_leases(lambda queue, leases: queue.fail_many(leases, "boom")),
    "extend": _on_lease(lambda lease: lease.extend()),
    "extend many": _on_leases(lambda queue, leases: queue.extend_many(leases)),
    "checkpoint": _on_lease(lambda lease: lease.checkpoint(b"half")),
    "note": _on_lease(lambda lease: lease.note("half")),
    "release": _on_lease(lambda lease: lease.release()),
    "release many": _on_leases(lambda queue, leases: queue.release_many(leases)),
    "cancel": _on_job(lambda scene: scene.make(2), lambda queue, job_id: queue.cancel(job_id)),
    "cancel a leased job": _on_job(
        lambda scene: [lease.job_id for lease in scene.leases(2)], lambda queue, job_id: queue.cancel(job_id)
    ),
    "retry": _on_job(_dead, lambda queue, job_id: queue.retry(job_id)),
    "get": _on_job(lambda scene: scene.make(2), lambda queue, job_id: queue.get(job_id)),
}


def _count(queue: Queue, verb: str) -> int:
    """Count the steps of a verb on a file."""
    scene = Scene(queue)
    try:
        work = VERBS[verb](scene)
        with Steps(queue) as steps:
            work()
    finally:
        scene.end()
    return steps.count


@pytest.fixture(scope="module")
def alone(files: Callable[[str], Queue]) -> Callable[..., int]:
    """Give the steps of a verb in a file with no other rows, or with one chain."""
    known: dict[tuple[str, str], int] = {}

    def count(verb: str, sort: str = "nothing") -> int:
        if (verb, sort) not in known:
            known[verb, sort] = _count(files(sort), verb)
        return known[verb, sort]

    return count


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("sort", SORTS)
def test_a_verb_takes_the_same_steps_beside_20000_rows_of_another_sort(
    files: Callable[[str], Queue], alone: Callable[..., int], sort: str, verb: str
) -> None:
    """Within 5% of its steps in an empty file (G9)."""
    few = alone(verb, "a chain") if sort in CHAINED else alone(verb)
    assert few > 20, "steps were counted"
    assert _count(files(sort), verb) == pytest.approx(few, rel=TOLERANCE)
