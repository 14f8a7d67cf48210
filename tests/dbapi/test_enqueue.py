"""`litequeue.dbapi.enqueue` does what `Queue.enqueue` does, in the caller's transaction (V1, V2, G4, G11)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

import litequeue
from litequeue import DuplicateJob, Enqueued, NewJob, PayloadError, QueueFull, UsageError, dbapi
from litequeue.sqlite import filesystem

if TYPE_CHECKING:
    from pathlib import Path

    from litequeue.testing import FakeClock
    from tests.dbapi.conftest import Connect

pytestmark = pytest.mark.filterwarnings("ignore:this process writes")

Put = Callable[[str, dict[str, object]], Enqueued]
"""Enqueues a job of a kind, in one way or the other."""


def job_id(number: int) -> UUID:
    """Return an id that is the same in two files."""
    return UUID(int=(7 << 76) | (2 << 62) | number)


NEW: list[dict[str, object]] = [
    {"job_id": job_id(1)},
    {"job_id": job_id(2), "payload": {"a": [1, b"2", None, 0.5, datetime(2026, 1, 1, tzinfo=UTC)]}},
    {"job_id": job_id(3), "priority": 0, "scope": "tenant"},
    {"job_id": job_id(4), "scope": litequeue.SYSTEM, "max_attempts": 2},
    {"job_id": job_id(5), "delay": 60, "expires": 90.5},
    {"job_id": job_id(6), "run_at": datetime(2031, 1, 1, tzinfo=UTC)},
    {"job_id": job_id(7), "run_at": datetime(2001, 1, 1, tzinfo=UTC)},
    {"job_id": job_id(8), "idempotency_key": "once"},
    {"job_id": job_id(9), "after": [job_id(1), job_id(2)], "delay": 5},
    {"job_id": job_id(10), "after": [job_id(9)], "on_parent_failure": "run"},
]
"""A job of each sort."""

AGAIN: list[dict[str, object]] = [
    {"job_id": job_id(1), "payload": "again"},
    {"job_id": job_id(40), "after": [job_id(200), job_id(101)]},
    {"job_id": job_id(41), "after": [job_id(40), job_id(102)]},
    {"job_id": job_id(42), "after": [job_id(41)], "on_parent_failure": "run"},
    {"job_id": job_id(102), "after": [job_id(42)]},
    {"job_id": job_id(8), "idempotency_key": "once", "on_conflict": "reset", "payload": "again", "priority": 7},
    *(
        {"job_id": job_id(20 + number), "idempotency_key": key, "on_conflict": how, "payload": how, "delay": 5}
        for number, (key, how) in enumerate(
            (key, how)
            for key in ("pending", "scheduled", "leased", "completed", "dead", "cancelled", "retryable")
            for how in ("return", "reset")
        )
    ),
]
"""Repeats: of an id, and of the keys of jobs in every state."""


def prepare(path: Path, clock: FakeClock) -> None:
    """Make a file with a job in every state, each with a key by its name."""
    states = ("leased", "completed", "dead", "retryable")
    with litequeue.open(path, clock=clock) as queue:
        for number, name in enumerate(states):
            queue.enqueue("work", idempotency_key=name, job_id=job_id(100 + number))
        leases = {lease.job_id.int: lease for lease in queue.lease_many(4, worker_id="one", ttl=10**6)}
        _, completed, dead, retryable = [leases[job_id(100 + number).int] for number in range(4)]
        completed.complete("done")
        dead.fail("boom", retryable=False)
        retryable.fail("boom", delay=60)
        for number, name in enumerate(("pending", "scheduled", "cancelled")):
            delay = 60 if name == "scheduled" else None
            queue.enqueue("work", idempotency_key=name, job_id=job_id(200 + number), delay=delay)
        queue.cancel(job_id(202))
        queue._store.holdings.start_afresh(is_open=False)  # the lease is not given back when this closes


def dump(path: Path) -> list[tuple[object, ...]]:
    """Return every row that an enqueue may write."""
    names = ("job", "body", "rerun", "outcome", "meta", "gate", "dependency", "notice")
    with closing(sqlite3.connect(path)) as connection:
        rows = [row for name in names for row in connection.execute(f"SELECT * FROM litequeue_{name} ORDER BY 1, 2")]
    return [tuple(row) for row in rows]


def through_queue(path: Path, clock: FakeClock, calls: list[dict[str, object]]) -> list[Enqueued]:
    """Enqueue through a handle, each in a transaction of its own."""
    with litequeue.open(path, clock=clock) as queue:
        return [queue.enqueue("work", **call) for call in calls]  # type: ignore[arg-type]


def through_sqlite3(path: Path, clock: FakeClock, calls: list[dict[str, object]]) -> list[Enqueued]:
    """Enqueue on a connection of the application's, each in a transaction of its own."""
    results = []
    with closing(sqlite3.connect(path)) as connection:
        for call in calls:
            results.append(dbapi.enqueue(connection, "work", **call, clock=clock))  # type: ignore[arg-type]
            connection.commit()
    return results


@pytest.mark.parametrize("calls", [NEW, AGAIN, NEW + AGAIN], ids=["new", "again", "both"])
def test_the_rows_are_those_that_a_queue_writes(
    tmp_path: Path, clock: FakeClock, calls: list[dict[str, object]]
) -> None:
    """To the last column and event, with the same answers: new jobs, repeated ids and keys (V1, V2, G4)."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for file in (ours, theirs):
        prepare(file, clock)
    clock.step_wall(-3600)  # created_at goes on from the last one (G4)
    assert through_queue(ours, clock, calls) == through_sqlite3(theirs, clock, calls)
    assert dump(ours) == dump(theirs)


def test_enqueue_many_answers_in_order(path: str, connection: sqlite3.Connection, clock: FakeClock) -> None:
    """Also for a key that stands twice in it; a scope that a job does not name is the call's (V1)."""
    jobs = [NewJob("a", 1), NewJob("b", 2, idempotency_key="k"), NewJob("b", 3, idempotency_key="k", scope="mine")]
    results = dbapi.enqueue_many(connection, [*jobs, jobs[1]], scope="mine", clock=clock)
    assert dbapi.enqueue_many(connection, iter(())) == []
    connection.commit()
    connection.close()
    assert [result.created for result in results] == [True, True, False, False]
    assert results[1].job_id == results[2].job_id == results[3].job_id
    with litequeue.open(path, clock=clock, scope="mine") as queue:
        assert [(job.job_id, job.payload) for job in queue.list()] == [(results[0].job_id, 1), (results[1].job_id, 2)]


def test_jobs_are_in_the_order_of_the_commits(path: str, connect: Connect, clock: FakeClock) -> None:
    """First in, first out with those of a handle, though the clock steps back (G4)."""
    with litequeue.open(path, clock=clock) as queue:
        queue.enqueue("first")
    connection = connect()
    clock.step_wall(-100)
    for kind in ("second", "third"):
        dbapi.enqueue(connection, kind, clock=clock)
    connection.commit()
    connection.close()
    with litequeue.open(path, clock=clock) as queue:
        queue.enqueue("fourth")
        assert [lease.kind for lease in queue.lease_many(4)] == ["first", "second", "third", "fourth"]


def test_the_settings_of_the_file_hold(path: str, connect: Connect) -> None:
    """As they are at each call (§5)."""
    with litequeue.open(path) as queue:
        queue.set("max_payload", 50)
    connection = connect()
    with pytest.raises(PayloadError, match="max_payload allows 50"):
        dbapi.enqueue(connection, "work", b"x" * 100)
    with connection:
        connection.execute("UPDATE litequeue_setting SET value = 500 WHERE name = 'max_payload'")
    assert dbapi.enqueue(connection, "work", b"x" * 100).created


Refused = Callable[[sqlite3.Connection], object]
REFUSED: list[tuple[type[Exception], Refused]] = [
    (UsageError, lambda c: dbapi.enqueue(c, "")),
    (UsageError, lambda c: dbapi.enqueue(c, "work", priority=256)),
    (UsageError, lambda c: dbapi.enqueue(c, "work", scope="litequeue:mine")),
    (UsageError, lambda c: dbapi.enqueue(c, "work", delay=-1)),
    (UsageError, lambda c: dbapi.enqueue(c, "work", on_conflict="never")),  # type: ignore[arg-type]
    (UsageError, lambda c: dbapi.enqueue_many(c, ["work"])),  # type: ignore[list-item]
    (UsageError, lambda c: dbapi.enqueue_many(c, 7)),  # type: ignore[arg-type]
    (PayloadError, lambda c: dbapi.enqueue(c, "work", object())),
    (PayloadError, lambda c: dbapi.enqueue(c, "work", "\udcff")),
    (PayloadError, lambda c: dbapi.enqueue(c, "work", bytes(2**20))),
    (DuplicateJob, lambda c: dbapi.enqueue(c, "work", idempotency_key="k", on_conflict="raise")),
    (DuplicateJob, lambda c: dbapi.enqueue(c, "other", job_id=job_id(1))),
    (DuplicateJob, lambda c: dbapi.enqueue_many(c, [NewJob("work", 9), NewJob("other", job_id=job_id(1))])),
]


@pytest.mark.parametrize(("error", "call"), REFUSED)
def test_what_is_refused_leaves_the_transaction_as_it_was(
    path: str, connection: sqlite3.Connection, error: type[Exception], call: Refused
) -> None:
    """The rows and jobs before it are committed, and nothing of it is (G11, §6)."""
    connection.execute("INSERT INTO orders VALUES (1)")
    dbapi.enqueue(connection, "work", 1, job_id=job_id(1), idempotency_key="k")
    with pytest.raises(error):
        call(connection)
    connection.execute("INSERT INTO orders VALUES (2)")
    connection.commit()
    connection.close()
    assert [row[5] for row in dump_jobs(path)] == ["work"]
    with closing(sqlite3.connect(path)) as again:
        assert again.execute("SELECT id FROM orders").fetchall() == [(1,), (2,)]


@pytest.mark.parametrize(("error", "call"), [case for case in REFUSED if case[0] is not DuplicateJob])
def test_what_is_refused_begins_no_transaction(
    connection: sqlite3.Connection, error: type[Exception], call: Refused
) -> None:
    """One would hold the write lock until the caller ends what it has not begun (G11)."""
    with pytest.raises(error):
        call(connection)
    assert not connection.in_transaction


def test_max_bytes_is_held(path: str, connect: Connect) -> None:
    """And what had passed it is undone; the caller's row is not (§5, G11)."""
    with litequeue.open(path) as queue:
        queue.set("max_bytes", 400_000)
    connection = connect()
    connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(QueueFull, match="max_bytes allows 400,000"):
        dbapi.enqueue(connection, "work", bytes(500_000))
    dbapi.enqueue(connection, "work", bytes(1000))
    connection.commit()
    connection.close()
    assert len(dump_jobs(path)) == 1


def test_the_reserve_on_the_disk_is_kept(
    path: str, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by every enqueue: acknowledgements are to have room (§6)."""
    monkeypatch.setattr(filesystem, "free_bytes", lambda _: filesystem.FREE_SPACE_RESERVE_BYTES + 10_000)
    with pytest.raises(QueueFull, match="kept free on the disk"):
        dbapi.enqueue(connection, "work", bytes(10_000))
    dbapi.enqueue(connection, "work", bytes(1000))
    connection.commit()
    connection.close()
    assert len(dump_jobs(path)) == 1


def test_a_repeat_is_as_safe_as_its_transaction(connection: sqlite3.Connection) -> None:
    """What is there may not have been synced: a commit that answers with it has to write, where it is synced (§7)."""
    for synchronous, grows in (("FULL", True), ("NORMAL", False)):
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        dbapi.enqueue(connection, "work", job_id=job_id(1))
        connection.commit()
        before = connection.execute("SELECT settings_version FROM litequeue_meta").fetchall()
        assert not dbapi.enqueue(connection, "work", job_id=job_id(1)).created
        connection.commit()
        after = connection.execute("SELECT settings_version FROM litequeue_meta").fetchall()
        assert (after > before) is grows


def dump_jobs(path: str) -> list[tuple[object, ...]]:
    """Return the rows of the jobs that are committed."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.execute("SELECT * FROM litequeue_job ORDER BY created_at"))
