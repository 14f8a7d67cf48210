"""When a commit is synced to the disk, read back from the live connection (§7)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal

import apsw
import pytest

import litequeue
from litequeue import Completed, Failed, NewJob
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litequeue import Lease, Queue

    Durability = Literal["full", "enqueue", "normal"]

FULL, NORMAL = 2, 1


class Verbs:
    """Each kind of verb, ready to be called once on a fresh queue."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        queue.enqueue_many(NewJob("work", number) for number in range(8))
        taken = queue.lease_many(7)
        self.leases = iter(taken)
        self.dead = taken[-1].job_id
        taken[-1].fail("boom", retryable=False)
        self.waiting = queue.list()[0].job_id
        queue.schedule("tick", "@every 5m", "work")
        self.message = queue.put_message("mail", 0, key="one").job_id

    def fire(self) -> None:
        """Fire a schedule that is due."""
        clock = FakeClock(self.queue._store.clock.wall_us() + 300_000_000)
        self.queue._store.clock = clock
        assert self.queue.fire_schedules().jobs == 1

    def transact(self) -> None:
        """Commit the caller's own SQL."""
        with self.queue.transaction() as tx:
            tx.execute("CREATE TABLE mine (a)")

    def transact_by_lease(self) -> None:
        """Commit the caller's own SQL with a completion."""
        with next(self.leases).transaction() as tx:
            tx.execute("CREATE TABLE mine (a)")


VERBS: dict[str, tuple[Callable[[Verbs], object], bool]] = {
    # name: (the call, whether the mode `enqueue` syncs it)
    "enqueue": (lambda v: v.queue.enqueue("new"), True),
    "enqueue_many": (lambda v: v.queue.enqueue_many([NewJob("new"), NewJob("new")]), True),
    "retry": (lambda v: v.queue.retry(v.dead), True),
    "cancel": (lambda v: v.queue.cancel(v.waiting), True),
    "set": (lambda v: v.queue.set("lease_ttl", 7), True),
    "unset": (lambda v: v.queue.unset("lease_ttl"), True),
    "transaction": (lambda v: v.transact(), True),
    "lease.transaction": (lambda v: v.transact_by_lease(), True),
    "complete with then": (lambda v: next(v.leases).complete(then=[NewJob("next")]), True),
    "schedule": (lambda v: v.queue.schedule("tock", "@every 5m", "work"), True),
    "unschedule": (lambda v: v.queue.unschedule("tick"), True),
    "pause_schedule": (lambda v: v.queue.pause_schedule("tick"), True),
    "resume_schedule": (lambda v: v.queue.resume_schedule("tick"), True),
    "put_message": (lambda v: v.queue.put_message("mail", 1, key="one"), True),
    "discard_message": (lambda v: v.queue.discard_message("mail", v.message), True),
    "run_now": (lambda v: v.queue.run_now("tick"), True),
    "fire_schedules": (lambda v: v.fire(), True),
    "lease_next": (lambda v: v.queue.lease_next(), False),
    "complete": (lambda v: next(v.leases).complete(), False),
    "complete_many": (lambda v: v.queue.complete_many([next(v.leases), next(v.leases)]), False),
    "fail": (lambda v: next(v.leases).fail("boom"), False),
    "extend": (lambda v: next(v.leases).extend(), False),
    "checkpoint": (lambda v: next(v.leases).checkpoint(b"half"), False),
    "note": (lambda v: next(v.leases).note("half"), False),
    "exchange": (lambda v: v.queue.exchange([Completed(next(v.leases)), Failed(next(v.leases), "oh")], 1), False),
    "exchange with a retake": (lambda v: v.queue.exchange([Failed(next(v.leases), "oh", retake_within=60)]), False),
    "exchange with then": (lambda v: v.queue.exchange([Completed(next(v.leases), then=[NewJob("next")])], 1), True),
    "release": (lambda v: next(v.leases).release(), False),
}


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_that_writes_begins_with_the_write_lock(path: Path, verb: str) -> None:
    """Under `BEGIN IMMEDIATE`: a deferred transaction that writes later cannot wait for the lock (G7, DESIGN §3)."""
    call, _ = VERBS[verb]
    began: list[str] = []

    def trace(event: dict[str, str]) -> None:
        if event["sql"].startswith("BEGIN"):
            began.append(event["sql"])

    with litequeue.open(path, durability="normal") as queue:
        verbs = Verbs(queue)
        connection = queue._store._writer.connection
        assert connection is not None
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, trace)
        call(verbs)
        connection.trace_v2(0, None)
    assert began == ["BEGIN IMMEDIATE"]


def _sync_mode_of(queue: Queue, work: Callable[[], object]) -> list[object]:
    """Return `PRAGMA synchronous` as it stands at each COMMIT of a call."""
    connection = queue._store._writer.connection
    assert connection is not None
    modes: list[object] = []

    def trace(event: dict[str, str]) -> None:
        if event["sql"] == "COMMIT":
            modes.append(connection.pragma("synchronous"))

    connection.trace_v2(apsw.SQLITE_TRACE_STMT, trace)
    try:
        work()
    finally:
        connection.trace_v2(0, None)
    return modes


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("durability", ["full", "enqueue", "normal"])
def test_each_verb_is_synced_as_its_mode_says(path: Path, durability: Durability, verb: str) -> None:
    """`full`: every commit; `enqueue`: what enqueues, retries, cancels, sets, and transactions; `normal`: none (§7)."""
    call, is_durable = VERBS[verb]
    with litequeue.open(path, durability=durability) as queue:
        verbs = Verbs(queue)
        modes = _sync_mode_of(queue, lambda: call(verbs))
    expected = FULL if durability == "full" or (durability == "enqueue" and is_durable) else NORMAL
    assert modes == [expected]


def test_an_exchange_with_followers_knows_beforehand_that_it_has_to_be_synced(path: Path) -> None:
    """It begins once: a transaction that finds out by itself is rolled back and done again (§7)."""
    began: list[str] = []
    with litequeue.open(path, durability="enqueue") as queue:
        lease = next(Verbs(queue).leases)
        connection = queue._store._writer.connection
        assert connection is not None
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: began.append(event["sql"][:5]))
        queue.exchange([Completed(lease, then=[NewJob("next")])])
        connection.trace_v2(0, None)
    assert began.count("BEGIN") == 1


RUN_ENDS: dict[str, Callable[[Queue, Lease], object]] = {
    "complete": lambda _, lease: lease.complete(),
    "exchange": lambda queue, lease: queue.exchange([Completed(lease)]),
    "fail": lambda _, lease: lease.fail("boom", retryable=False),
    "reap_expired": lambda queue, _: queue.reap_expired(),
    "lease_next": lambda queue, _: queue.lease_next(["other"]),
}


@pytest.mark.parametrize("end", RUN_ENDS)
@pytest.mark.parametrize("durability", ["full", "enqueue", "normal"])
def test_the_end_of_a_run_that_turns_a_kept_trigger_into_a_job_is_synced(
    path: Path, durability: Durability, end: str
) -> None:
    """That commit enqueues too: a repeat is answered with the new job, which is in the file from then on (G2, §7)."""
    clock = FakeClock()
    with litequeue.open(path, durability=durability, clock=clock) as queue:
        queue.enqueue("work", idempotency_key="key", max_attempts=1)
        (lease,) = queue.lease_many(1, ["work"])
        queue.enqueue("work", idempotency_key="key", on_conflict="reset")
        clock.advance(1000)
        modes = _sync_mode_of(queue, lambda: RUN_ENDS[end](queue, lease))
        repeat = queue.enqueue("work", idempotency_key="key")
        assert not repeat.created
        assert repeat.job_id != lease.job_id
    assert modes == [NORMAL if durability == "normal" else FULL]


def test_the_mode_of_a_verb_does_not_leak_into_the_next_one(path: Path) -> None:
    """Verbs of both sorts in turns are each synced as they should be (§7)."""
    with litequeue.open(path, durability="enqueue") as queue:
        for _ in range(3):
            assert _sync_mode_of(queue, lambda: queue.enqueue("work")) == [FULL]
            lease = queue.lease_next()
            assert lease is not None
            assert _sync_mode_of(queue, lease.complete) == [NORMAL]


def test_a_verb_that_failed_does_not_change_how_the_next_one_is_synced(path: Path) -> None:
    """A rolled-back transaction leaves the mode to be chosen anew (§7, G11)."""
    with litequeue.open(path, durability="enqueue") as queue:

        def fail() -> None:
            with queue.transaction():
                raise LookupError

        queue.enqueue("work")
        with contextlib.suppress(LookupError):
            fail()
        lease = queue.lease_next()
        assert lease is not None
        assert _sync_mode_of(queue, lease.complete) == [NORMAL]
        assert _sync_mode_of(queue, lambda: queue.enqueue("work")) == [FULL]


@pytest.mark.parametrize("durability", ["full", "enqueue", "normal"])
def test_sqlite_itself_never_checkpoints_inside_a_commit(path: Path, durability: Durability) -> None:
    """Else the checkpoint's error would surface from a COMMIT that has committed, and be taken for its own (G11)."""
    with litequeue.open(path, durability=durability) as queue:
        queue.enqueue("work")
        connection = queue._store._writer.connection
        assert connection is not None
        assert connection.pragma("wal_autocheckpoint") == 0


@pytest.mark.parametrize("durability", ["full", "enqueue", "normal"])
def test_connections_are_hardened(path: Path, durability: Durability) -> None:
    """Defensive, no trusted schema, a stable planner, WAL, whole syncs, on both connections (§7, DESIGN §2 and §3)."""
    with litequeue.open(path, durability=durability) as queue:
        queue.enqueue("work")
        for connection in (queue._store._writer.connection, queue._store._reader.connection):
            assert connection is not None
            assert connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1) == 1
            assert connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, -1) == 0
            assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1
            assert connection.pragma("journal_mode") == "wal"
            assert connection.pragma("fullfsync") == 1


@pytest.mark.parametrize("durability", ["full", "enqueue", "normal"])
@pytest.mark.parametrize("how", ["verb", "transaction"])
def test_an_answer_about_a_job_that_another_handle_has_not_synced_waits_for_the_disk(
    path: Path, durability: Durability, how: str
) -> None:
    """Whoever is told that a key or an id is enqueued already was promised no less than whoever enqueued it (§7, G2).

    A handle in `normal` enqueues; one in `full` is answered with that job, and has nothing of its own to write.
    """
    with litequeue.open(path, durability="normal") as lax, litequeue.open(path, durability=durability) as queue:
        job_id = lax.enqueue("work", idempotency_key="k").job_id
        for named in (NewJob("work", idempotency_key="k"), NewJob("work", job_id=job_id)):
            queue._store.log.expect_commit()
            if how == "verb":
                (answer,) = queue.enqueue_many([named])
            else:
                with queue.transaction() as tx:
                    (answer,) = tx.enqueue_many([named])
            assert (answer.job_id, answer.created) == (job_id, False)
            assert queue._store.log.has_commit == (durability != "normal"), "a commit that SQLite syncs"
