"""What each verb costs: pages written, syncs, statements run, and what is asked of the system (DESIGN §2, §5, §7).

The file is so small that each of its trees is one page, so the pages of a commit are the trees that it changes, and no
split comes in the way. Everything is counted, nothing timed; a number that changes is to be changed here by hand.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import apsw
import pytest

import litequeue
from harness.failing import Disk, Sort
from litequeue import ANY, Completed, Failed, NewJob, Released
from litequeue.sqlite import bell, tripwire
from litequeue.testing import FakeClock
from tests.collecting import uncollected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType
    from uuid import UUID

    from litequeue import Lease, Queue, Settlement
    from litequeue.sqlite.store import Durability
    from litequeue.sqlite.tripwire import Tripwire

T = TypeVar("T")
R = TypeVar("R")

BATCH = 100
_NOT_COUNTED = frozenset({"fspath", "getpid", "statvfs"})
"""The first asks nobody, the second next to nothing; the free space is asked for at most ten times a second."""


class Cost(NamedTuple):
    """What a verb costs once everything is warm."""

    pages: int
    """Frames in the write-ahead log: the trees that it changes, in a file where each is one page."""
    statements: int
    """Run, BEGIN and COMMIT among them."""
    is_durable: bool = False
    """Whether the mode `enqueue` syncs it."""
    draws: int = 0
    """Requests for random bytes: the ids of new jobs."""
    rings: bool = False
    """Whether it makes a job ready, and so rings for those who wait: one read of one byte."""
    ends: bool = False
    """Whether it ends a job, and so rings for those who wait for that: the same, where anybody ever has."""


class Found(NamedTuple):
    """What was counted."""

    pages: int
    statements: list[str]
    syncs: int
    prepared: int
    """Statements that apsw's cache did not have."""
    is_compiling: bool
    """Whether SQLite compiled anything: one of those, or one that it compiles again for other bindings."""
    asked: dict[str, int]


def _call(verb: Callable[[Queue], object]) -> Callable[[Queue], Callable[[], object]]:
    return lambda queue: lambda: verb(queue)


def _lease(queue: Queue) -> Lease:
    lease = queue.lease_next()
    assert lease is not None
    return lease


def _held(verb: Callable[[Lease], object]) -> Callable[[Queue], Callable[[], object]]:
    def prepare(queue: Queue) -> Callable[[], object]:
        lease = _lease(queue)
        return lambda: verb(lease)

    return prepare


def _said(settle: Callable[[Lease], Settlement], limit: int = 0) -> Callable[[Queue], Callable[[], object]]:
    def prepare(queue: Queue) -> Callable[[], object]:
        settlement = settle(_lease(queue))
        return lambda: queue.exchange([settlement], limit)

    return prepare


def _checkpointed(queue: Queue) -> Callable[[], object]:
    lease = _lease(queue)
    lease.checkpoint(b"half")
    return lease.complete


def _waiting(queue: Queue) -> UUID:
    return queue.enqueue("work").job_id


def _dead(queue: Queue) -> UUID:
    lease = _lease(queue)
    lease.fail("boom", retryable=False)
    return lease.job_id


def _named(
    make: Callable[[Queue], UUID], verb: Callable[[Queue, UUID], object]
) -> Callable[[Queue], Callable[[], object]]:
    def prepare(queue: Queue) -> Callable[[], object]:
        job_id = make(queue)
        return lambda: verb(queue, job_id)

    return prepare


def _turned(queue: Queue, kinds: list[str] | None = None) -> Callable[[], object]:
    """Lease from all scopes when the first of two has had its turn."""
    queue.enqueue("work", scope="other")
    while True:
        lease = queue.lease_next(kinds, scope=ANY)
        assert lease is not None
        if lease.scope == "default":
            return lambda: queue.lease_next(kinds, scope=ANY)
        lease.release()


_keys = iter(range(1_000_000))

VERBS: dict[str, tuple[Callable[[Queue], Callable[[], object]], Cost]] = {
    "enqueue": (_call(lambda q: q.enqueue("work", "payload")), Cost(3, 5, is_durable=True, draws=1, rings=True)),
    "enqueue with a key": (
        _call(lambda q: q.enqueue("work", idempotency_key=str(next(_keys)))),
        Cost(4, 7, is_durable=True, draws=1, rings=True),
    ),
    "enqueue delayed": (_call(lambda q: q.enqueue("work", delay=50)), Cost(4, 6, is_durable=True, draws=1)),
    "enqueue that expires": (
        _call(lambda q: q.enqueue("work", expires=50)),
        Cost(5, 5, is_durable=True, draws=1, rings=True),
    ),
    "lease": (_call(lambda q: q.lease_next()), Cost(3, 4)),
    "lease of a kind": (_call(lambda q: q.lease_next(["work"])), Cost(3, 5)),
    "lease in turn": (_turned, Cost(4, 7)),
    "lease of a kind in turn": (lambda queue: _turned(queue, ["work"]), Cost(4, 8)),
    "lease in turn of the only scope": (_call(lambda q: q.lease_next(scope=ANY)), Cost(3, 7)),
    "extend": (_held(lambda lease: lease.extend()), Cost(2, 4)),
    "checkpoint": (_held(lambda lease: lease.checkpoint(b"half")), Cost(3, 5)),
    "checkpoint of progress": (_held(lambda lease: lease.checkpoint(progress=0.5)), Cost(3, 5)),
    "note": (_held(lambda lease: lease.note("half")), Cost(1, 4)),
    "complete": (_held(lambda lease: lease.complete()), Cost(2, 4, ends=True)),
    "complete with a result": (_held(lambda lease: lease.complete("result")), Cost(3, 5, ends=True)),
    "complete after a checkpoint": (_checkpointed, Cost(3, 5, ends=True)),
    "fail": (_held(lambda lease: lease.fail("boom")), Cost(5, 6)),
    "fail for good": (_held(lambda lease: lease.fail("boom", retryable=False)), Cost(3, 5, ends=True)),
    "release": (_held(lambda lease: lease.release()), Cost(3, 4, rings=True)),
    "release for later": (_held(lambda lease: lease.release(delay=50)), Cost(4, 5)),
    "exchange: complete": (_said(Completed), Cost(2, 4, ends=True)),
    "exchange: complete with a result": (_said(lambda lease: Completed(lease, "result")), Cost(3, 5, ends=True)),
    "exchange: complete with a follower": (
        _said(lambda lease: Completed(lease, then=[NewJob("next")])),
        Cost(4, 9, is_durable=True, draws=1, rings=True, ends=True),
    ),
    "exchange: fail": (_said(lambda lease: Failed(lease, "boom")), Cost(5, 6)),
    "exchange: fail and retake": (_said(lambda lease: Failed(lease, "boom", retake_within=60)), Cost(3, 5)),
    "exchange: release": (_said(Released), Cost(3, 4, rings=True)),
    "exchange: complete and lease": (_said(Completed, 1), Cost(3, 6, ends=True)),
    "exchange: lease": (_call(lambda q: q.exchange([], 1)), Cost(3, 4)),
    "idle exchange": (_call(lambda q: q.exchange([], 1, ["none"])), Cost(0, 7)),
    "cancel": (_named(_waiting, lambda q, job_id: q.cancel(job_id)), Cost(2, 4, is_durable=True, ends=True)),
    "cancel a leased job": (
        _named(lambda q: _lease(q).job_id, lambda q, job_id: q.cancel(job_id)),
        Cost(2, 4, is_durable=True, ends=True),
    ),
    "retry": (_named(_dead, lambda q, job_id: q.retry(job_id)), Cost(2, 4, is_durable=True, rings=True)),
    "idle lease from all scopes": (_call(lambda q: q.lease_next(["none"], scope=ANY)), Cost(0, 7)),
    "idle lease": (_call(lambda q: q.lease_next(["none"])), Cost(0, 7)),
    "get": (_named(_waiting, lambda q, job_id: q.get(job_id)), Cost(0, 4)),
}
"""Each verb, and what it costs."""
READS = {"idle lease", "idle lease from all scopes", "idle exchange", "get"}


@pytest.fixture
def disk() -> Iterator[Disk]:
    """Give the disk of the test, which counts what SQLite asks of it."""
    counting = Disk()
    yield counting
    counting.unregister()


class _Counter:
    """Counts what a handle does."""

    def __init__(self, queue: Queue, disk: Disk) -> None:
        self._log = queue._store.log
        self._disk = disk
        self._channels = (queue._store._writer, queue._store._reader)
        self._connections: list[apsw.Connection] = []
        self._statements: list[str] = []
        self._is_compiling = False
        self._asked: Counter[str] = Counter()
        for channel in self._channels:
            assert channel.connection is not None
            self._connections.append(channel.connection)
            self._watch_compiler(channel.connection)
            self._watch_looks(channel.tripwire)

    def count(self, call: Callable[[], object]) -> Found:
        """Count what one call does."""
        self._statements.clear()
        self._is_compiling = False
        self._asked.clear()
        before = self._log._pages, self._misses()
        self._disk.arm(None)
        with uncollected(), self._traced():
            call()
        return Found(
            self._log._pages - before[0],
            list(self._statements),
            self._disk.done[Sort.SYNC],
            self._misses() - before[1],
            self._is_compiling,
            dict(self._asked),
        )

    @contextmanager
    def _traced(self) -> Iterator[None]:
        for connection in self._connections:
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._ran)
        before = sys.getprofile()
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(before)
            for connection in self._connections:
                connection.trace_v2(0, None)

    def _misses(self) -> int:
        return sum(connection.cache_stats()["misses"] for connection in self._connections)

    def _ran(self, event: dict[str, object]) -> None:
        self._statements.append(str(event["sql"]).split("\n", 1)[0])

    def _called(self, _frame: FrameType, event: str, function: object) -> None:
        """Hear of each call of a built-in function; those of these modules are calls of the system."""
        if event == "c_call" and getattr(function, "__module__", None) in ("posix", "fcntl"):
            name = str(getattr(function, "__name__", ""))
            if name not in _NOT_COUNTED:
                self._asked[name] += 1

    def _watch_compiler(self, connection: apsw.Connection) -> None:
        """Hear of whatever SQLite compiles; its own count of that is cleared before a statement begins."""
        authorize = connection.authorizer

        def hear(action: int, first: str | None, second: str | None, third: str | None, fourth: str | None) -> int:
            self._is_compiling = True
            return apsw.SQLITE_OK if authorize is None else authorize(action, first, second, third, fourth)

        connection.authorizer = hear

    def _watch_looks(self, wire: Tripwire) -> None:
        """Count the looks at the three files, which are foreign calls, and at the news of their folder."""
        wire._way = self._counted(wire._way, "statx")
        wire._has_news = self._counted(wire._has_news, "poll")

    def _counted(self, ask: Callable[[T], R], name: str) -> Callable[[T], R]:
        def counted(what: T) -> R:
            self._asked[name] += 1
            return ask(what)

        return counted


def _found(path: Path, disk: Disk, durability: Durability, verb: str) -> Found:
    """Count a verb at its third time."""
    prepare, _ = VERBS[verb]
    with litequeue.open(path, durability=durability, clock=FakeClock()) as queue:
        queue.enqueue_many(NewJob("work", number) for number in range(8))
        _lease(queue)  # the handle has its id and has done the upkeep of this second
        counter = _Counter(queue, disk)
        for _ in range(2):
            prepare(queue)()
        return counter.count(prepare(queue))


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_writes_so_many_pages_and_runs_so_many_statements(path: Path, disk: Disk, verb: str) -> None:
    """A page more is 6 µs more (DESIGN §2 "Dirty pages are the price of a single verb").

    Once it is warm nothing is prepared, neither what the cache has lost nor what SQLite compiles again for a binding.
    """
    _, cost = VERBS[verb]
    found = _found(path, disk, "normal", verb)
    assert (found.pages, len(found.statements)) == (cost.pages, cost.statements), found.statements
    assert (found.prepared, found.is_compiling) == (0, False)


@pytest.mark.skipif(sys.platform != "linux", reason="the calls are those of Linux")
@pytest.mark.parametrize("is_awaited", [False, True], ids=["nobody waits for ends", "somebody does"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_asks_the_system_for_nothing_but_its_turn_and_the_inodes(
    path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, verb: str, *, is_awaited: bool
) -> None:
    """In and out of the gate; the news of the folder before it writes and before it answers (DESIGN §3).

    The files themselves are looked at when there is any, and ten times a second, the bells once. Ids cost one draw, and
    a bell one read of a byte; that of ended jobs nothing, unless somebody has waited for one.
    """
    if is_awaited:
        path.with_name(f"{path.name}-done").write_bytes(b"\n")
    monkeypatch.setattr(bell, "_LOOK_AGAIN_S", 1000.0)
    monkeypatch.setattr(tripwire, "_LOOK_AGAIN_S", 1000.0)
    _, cost = VERBS[verb]
    expected = {"poll": 1} if verb in READS else {"flock": 2, "poll": 2}
    if cost.draws:
        expected["urandom"] = cost.draws
    rings = cost.rings + (is_awaited and cost.ends)
    if rings:
        expected["pread"] = rings
    assert _found(path, disk, "normal", verb).asked == expected


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("durability", ["full", "enqueue", "normal"])
def test_a_verb_syncs_once_where_its_mode_says_so_and_never_elsewhere(
    path: Path, disk: Disk, durability: Durability, verb: str
) -> None:
    """`full`: one for each commit; `enqueue`: for those that make or change jobs for good; `normal`: none (§7)."""
    _, cost = VERBS[verb]
    is_synced = verb not in READS and (durability == "full" or (durability == "enqueue" and cost.is_durable))
    assert _found(path, disk, durability, verb).syncs == is_synced


def test_a_checkpoint_syncs_the_log_and_then_the_file(path: Path, disk: Disk) -> None:
    """What `normal` saves at each commit comes here, once for all of them (§7)."""
    with litequeue.open(path, durability="normal") as queue:
        queue.enqueue("work")
        disk.arm(None)
        assert queue.checkpoint_wal() == 0
        assert disk.done[Sort.SYNC] == 2


def _taken(verb: Callable[[Queue, list[Lease]], object]) -> Callable[[Queue], Callable[[], object]]:
    def prepare(queue: Queue) -> Callable[[], object]:
        leases = queue.lease_many(BATCH)
        return lambda: verb(queue, leases)

    return prepare


BATCHES: dict[str, tuple[Callable[[Queue], Callable[[], object]], Cost]] = {
    "enqueue_many": (
        _call(lambda q: q.enqueue_many([NewJob("work") for _ in range(BATCH)])),
        Cost(26, 3 + 2 * BATCH, is_durable=True, draws=1),
    ),
    "lease_many": (_call(lambda q: q.lease_many(BATCH)), Cost(30, 3 + BATCH)),
    "extend_many": (_taken(lambda q, leases: q.extend_many(leases)), Cost(15, 2 + 2 * BATCH)),
    "complete_many": (_taken(lambda q, leases: q.complete_many(leases)), Cost(24, 2 + 2 * BATCH)),
    "fail_many": (_taken(lambda q, leases: q.fail_many(leases, "boom")), Cost(40, 3 + 3 * BATCH)),
    "exchange": (
        _taken(lambda q, leases: q.exchange([Completed(lease, "r") for lease in leases], BATCH // 2)),
        Cost(45, 3 + 3 * BATCH + BATCH // 2),
    ),
    "exchange of retakes": (
        _taken(lambda q, leases: q.exchange([Failed(lease, "boom", retake_within=60) for lease in leases])),
        Cost(30, 2 + 3 * BATCH),
    ),
    "release_many": (_taken(lambda q, leases: q.release_many(leases)), Cost(31, 2 + 2 * BATCH)),
}
"""Batches of a hundred; the pages are an upper bound, because their trees do split."""


@pytest.mark.parametrize("verb", BATCHES)
def test_a_batch_of_a_hundred_costs_one_transaction(path: Path, disk: Disk, verb: str) -> None:
    """One sync, one turn, one draw, less than a page for two jobs, and no statement that could be one for all."""
    prepare, cost = BATCHES[verb]
    with litequeue.open(path, durability="full", clock=FakeClock()) as queue:
        queue.enqueue_many(NewJob("work", number) for number in range(4 * BATCH))
        _lease(queue)
        counter = _Counter(queue, disk)
        prepare(queue)()
        found = counter.count(prepare(queue))
    assert found.pages <= cost.pages
    assert found.prepared == 0
    assert len(found.statements) == cost.statements, Counter(found.statements)
    assert found.syncs == 1
    assert found.asked.get("flock", 2) == 2
    assert found.asked.get("urandom", 0) == cost.draws
