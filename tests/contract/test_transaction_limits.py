"""The limits of `transaction()`: what the caller's SQL may not do, and whose transaction it is (V14, G11, §4)."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from litequeue import JobState, LeaseConflict, NewJob, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Queue, Transaction
    from tests.conftest import JobIn, MakeQueue


class Undo(Exception):
    """What a test raises to leave a transaction."""


@pytest.fixture
def queue(make_queue: MakeQueue) -> Queue:
    """Give a fresh queue, with a table of the caller's own beside it."""
    handle = make_queue()
    with handle.transaction() as tx:
        tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, mailed INTEGER NOT NULL DEFAULT 0)")
    return handle


def orders(queue: Queue) -> list[tuple[object, ...]]:
    """Return the rows of the caller's table."""
    with queue.transaction() as tx:
        return list(tx.execute("SELECT id, mailed FROM orders ORDER BY id"))


@pytest.mark.parametrize(
    "statement",
    [
        "COMMIT",
        "  commit ;",
        "END TRANSACTION",
        "ROLLBACK",
        "BEGIN",
        "BEGIN IMMEDIATE",
        "SAVEPOINT mine",
        "RELEASE litequeue_verb",
        "ROLLBACK TO litequeue_verb",
        "/* innocent */ COMMIT -- or not",
        "SELECT 1; COMMIT",
        "INSERT INTO orders (id) VALUES (99); COMMIT; BEGIN",
        "ATTACH DATABASE ':memory:' AS elsewhere",
        "DETACH DATABASE main",
        "PRAGMA synchronous = OFF",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA writable_schema = ON",
        "PRAGMA user_version = 7",
    ],
)
def test_transaction_control_inside_is_refused(queue: Queue, statement: str) -> None:
    """A `UsageError`; the transaction is as it was before, and commits in order (V14; issue 2)."""
    with queue.transaction() as tx:
        tx.execute("INSERT INTO orders (id) VALUES (1)")
        with pytest.raises(UsageError):
            tx.execute(statement)
        tx.enqueue("mail")
    assert orders(queue) == [(1, 0)]
    with suppress(Undo), queue.transaction() as tx:
        tx.execute("INSERT INTO orders (id) VALUES (2)")
        with suppress(UsageError):
            tx.execute(statement)
        raise Undo
    assert orders(queue) == [(1, 0)]
    assert queue.stats().total == 1


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OR ROLLBACK INTO orders (id) VALUES (1)",
        "INSERT INTO orders (id) VALUES (2); INSERT OR ROLLBACK INTO orders (id) VALUES (1)",
        "UPDATE OR ROLLBACK orders SET id = 1 WHERE id = 3",
    ],
)
def test_a_transaction_that_the_database_gave_up_is_over_for_every_verb(queue: Queue, statement: str) -> None:
    """Nothing of it is kept, nothing runs outside of it, and whoever goes on all the same is told so (G11)."""
    with queue.transaction() as tx:
        tx.execute("INSERT INTO orders (id) VALUES (1), (3)")
    job_id = queue.enqueue("work").job_id

    def go_on_all_the_same() -> None:
        with queue.transaction() as tx:
            tx.enqueue("lost")
            lease = tx.lease_next()
            assert lease is not None
            with pytest.raises(Exception, match="UNIQUE"):
                tx.execute(statement)
            for verb in (lambda: tx.enqueue("stray"), lambda: tx.execute("DELETE FROM orders"), lambda: tx.get(job_id)):
                with pytest.raises(UsageError):
                    verb()
            leases.append(lease)

    leases: list[object] = []
    with pytest.raises(UsageError, match="rolled"):
        go_on_all_the_same()
    assert orders(queue) == [(1, 0), (3, 0)]
    assert [job.kind for job in queue.list()] == ["work"]
    assert queue.get(job_id).state is JobState.PENDING
    with pytest.raises(LeaseConflict):
        queue.complete(leases[0])  # type: ignore[arg-type]
    queue.enqueue("and on")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM litequeue_job",
        "UPDATE litequeue_job SET state = 2",
        "INSERT INTO litequeue_setting VALUES ('max_attempts', 9)",
        "DROP TABLE litequeue_body",
        "ALTER TABLE litequeue_job ADD COLUMN extra",
        "CREATE INDEX mine ON litequeue_job (kind)",
        "CREATE TRIGGER mine AFTER UPDATE ON litequeue_job BEGIN SELECT 1; END",
        "CREATE TEMP TRIGGER mine AFTER UPDATE ON litequeue_job BEGIN SELECT 1; END",
        "CREATE TABLE litequeue_mine (id INTEGER)",
        "CREATE VIEW LiteQueue_mine AS SELECT 1",
        "ALTER TABLE orders RENAME TO litequeue_orders",
        "REPLACE INTO litequeue_meta VALUES (1, 99, 99)",
    ],
)
def test_a_write_to_the_queues_own_tables_is_refused(
    make_queue: MakeQueue, queue: Queue, job_in: JobIn, statement: str
) -> None:
    """Only the verbs change jobs: a `UsageError`, nothing changes, and the queue opens as before (V14, G1, §6)."""
    job_in(JobState.LEASED)
    before = queue.list()
    with queue.transaction() as tx, pytest.raises(UsageError):
        tx.execute(statement)
    assert queue.list() == before
    assert make_queue().list() == before


def test_a_trigger_of_the_callers_own_cannot_write_to_the_queue(queue: Queue, job_in: JobIn) -> None:
    """What the caller may not write, its triggers may not either (V14)."""
    job_in(JobState.PENDING)
    with queue.transaction() as tx:
        tx.execute("CREATE TRIGGER sly AFTER INSERT ON orders BEGIN DELETE FROM litequeue_job; END")
        with pytest.raises(UsageError):
            tx.execute("INSERT INTO orders (id) VALUES (1)")
    assert queue.stats().total == 1


# --- whose transaction it is

WRITES: dict[str, Callable[[Queue], object]] = {
    "enqueue": lambda queue: queue.enqueue("work"),
    "enqueue_many": lambda queue: queue.enqueue_many([NewJob("work")]),
    "lease_next": lambda queue: queue.lease_next(),
    "lease_many": lambda queue: queue.lease_many(3),
    "cancel": lambda queue: queue.cancel("00000000-0000-0000-0000-000000000000"),
    "retry": lambda queue: queue.retry("00000000-0000-0000-0000-000000000000"),
    "set": lambda queue: queue.set("lease_ttl", 9),
    "unset": lambda queue: queue.unset("lease_ttl"),
    "reap_expired": lambda queue: queue.reap_expired(),
    "promote_due": lambda queue: queue.promote_due(),
    "expire_overdue": lambda queue: queue.expire_overdue(),
    "prune": lambda queue: queue.prune(),
    "transaction": lambda queue: queue.transaction().__enter__(),
    "close": lambda queue: queue.close(),
}


@pytest.mark.parametrize("is_idle", [False, True])
@pytest.mark.parametrize("verb", WRITES)
def test_a_verb_of_the_queue_inside_ones_own_transaction_is_refused_at_once(
    make_queue: MakeQueue, verb: str, *, is_idle: bool
) -> None:
    """A `UsageError`, never a wait, and whether or not there is anything to do; the transaction goes on (§4)."""
    queue = make_queue(busy_timeout=300)  # a wait would run into the test's own time limit
    if is_idle:
        assert queue.lease_next() is None
    else:
        queue.enqueue("work")
    total = queue.stats().total
    with queue.transaction() as tx:
        with pytest.raises(UsageError):
            WRITES[verb](queue)
        tx.enqueue("mine")
    assert queue.stats().total == total + 1


def test_a_lease_speaks_through_the_transaction_inside_ones_own(queue: Queue) -> None:
    """`lease.complete()` there is a `UsageError` too; `tx.complete(lease)` is meant (§4)."""
    queue.enqueue("work")
    (lease,) = queue.lease_many(1)
    with queue.transaction() as tx:
        for verb in (lease.extend, lease.complete, lease.release, lease.transaction().__enter__):
            with pytest.raises(UsageError):
                verb()
        tx.complete(lease)
    assert queue.get(lease.job_id).state is JobState.COMPLETED


def test_a_transaction_is_over_with_its_block(queue: Queue) -> None:
    """A verb afterwards is a `UsageError`, after a commit and after a rollback (V14)."""
    kept: list[Transaction] = []
    with queue.transaction() as tx:
        kept.append(tx)
    with suppress(Undo), queue.transaction() as tx:
        kept.append(tx)
        raise Undo
    for over in kept:
        with pytest.raises(UsageError):
            over.enqueue("stray")
        with queue.transaction(), pytest.raises(UsageError):  # nor does a later block bring it back
            over.execute("DELETE FROM orders")
    assert queue.stats().total == 0


def test_a_transaction_belongs_to_its_thread(queue: Queue) -> None:
    """Another thread cannot slip a write into it (V14)."""
    refused = threading.Event()

    def slip_in(tx: Transaction) -> None:
        with pytest.raises(UsageError):
            tx.enqueue("stray")
        refused.set()

    with queue.transaction() as tx:
        thread = threading.Thread(target=slip_in, args=(tx,))
        thread.start()
        thread.join()
    assert refused.is_set()
    assert queue.stats().total == 0
