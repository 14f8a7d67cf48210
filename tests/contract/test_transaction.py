"""`transaction()`: the caller's own writes and any verbs, committed together or not at all (V14, G3, G11)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from litequeue import DuplicateJob, InvalidTransition, JobNotFound, JobState, NewJob, UsageError

if TYPE_CHECKING:
    from litequeue import Queue, Transaction
    from litequeue.testing import FakeClock
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


# --- together or not at all


def test_own_rows_and_jobs_are_committed_together(queue: Queue) -> None:
    """The caller's table lives in the file, and both are there after the block (V14)."""
    with queue.transaction() as tx:
        tx.execute("INSERT INTO orders (id) VALUES (?)", (7,))
        tx.execute("INSERT INTO orders (id) VALUES (:id)", {"id": 8})
        job_id = tx.enqueue("mail", {"order": 7}).job_id
    assert orders(queue) == [(7, 0), (8, 0)]
    assert queue.get(job_id).payload == {"order": 7}


@pytest.mark.parametrize("error", [Undo, KeyboardInterrupt, GeneratorExit], ids=lambda error: error.__name__)
def test_a_rollback_leaves_no_trace(queue: Queue, clock: FakeClock, job_in: JobIn, error: type[BaseException]) -> None:
    """Whatever the block has done, with whatever exception it ends (V14, G11)."""
    for state in JobState:
        job_in(state, kind=state.name)
    before, settings = queue.list(), queue.settings()
    queue.enqueue("ready")
    (held,) = queue.lease_many(1, ["ready"])
    jobs = {job.kind: job.job_id for job in queue.list()}
    before = queue.list()
    clock.advance(1)

    def spoil(tx: Transaction) -> None:
        tx.execute("INSERT INTO orders (id) VALUES (1)")
        tx.enqueue("new", "x" * 10_000)
        tx.lease_many(10)
        tx.checkpoint(held, b"half")
        tx.complete(held, "done", then=[NewJob("next")])
        tx.cancel(jobs["SCHEDULED"])
        tx.retry(jobs["DEAD"])
        tx.set("max_attempts", 1)
        raise error

    with suppress(error), queue.transaction() as tx:
        spoil(tx)
    assert queue.list() == before
    assert orders(queue) == []
    assert queue.settings() == settings
    assert queue.get(held.job_id).continuation is None
    held.fail("boom")
    assert queue.get(held.job_id).state is JobState.RETRYABLE


def test_every_verb_works_inside(queue: Queue, clock: FakeClock) -> None:
    """Enqueue, lease, the holder's and the operator's verbs, upkeep, reads and settings, in one commit (§4, V14)."""
    with queue.transaction() as tx:
        ids = [result.job_id for result in tx.enqueue_many(NewJob("work", n) for n in range(6))]
        leases = tx.lease_many(5)
        tx.checkpoint(leases[0], b"half", 0.5)
        tx.extend(leases[0], 7)
        tx.note(leases[0], "read")
        tx.complete(leases[1], "done")
        tx.fail(leases[2], "boom")
        tx.release(leases[3])
        tx.cancel(ids[4])
        tx.retry(ids[2])
        tx.set("lease_ttl", 9)
        assert (tx.settings()["lease_ttl"], queue.settings()["lease_ttl"]) == (9, 300)
        assert (tx.reap_expired(), tx.promote_due(), tx.expire_overdue(), tx.prune()) == (0, 0, 0, 0)
        assert tx.stats().total == len(tx.list()) == 6
        lease = tx.lease_next()
    states = [queue.get(job_id).state.name for job_id in ids]
    assert states == ["LEASED", "COMPLETED", "LEASED", "PENDING", "CANCELLED", "PENDING"]
    assert queue.get(ids[0]).lease_deadline == clock.wall_us() + 7_000_000
    assert lease is not None
    assert queue.get(lease.job_id).lease_deadline == clock.wall_us() + 9_000_000
    lease.complete()
    leases[0].complete()


def test_a_lease_of_a_committed_transaction_is_held(make_queue: MakeQueue, queue: Queue) -> None:
    """It is as good as any other, and its handle releases it at close (V14, G1)."""
    queue.enqueue("work")
    with queue.transaction() as tx:
        lease = tx.lease_next()
    assert lease is not None
    lease.extend()
    queue.close()
    assert make_queue().get(lease.job_id).state is JobState.PENDING


def test_the_transaction_sees_its_own_writes_and_the_queue_what_is_committed(queue: Queue) -> None:
    """`tx.get` is what the transaction sees, `q.get` what is committed (§4)."""
    job_id = queue.enqueue("work").job_id
    with queue.transaction() as tx:
        tx.cancel(job_id)
        new = tx.enqueue("work").job_id
        assert tx.get(job_id).state is JobState.CANCELLED
        assert queue.get(job_id).state is JobState.PENDING
        assert tx.get(new).state is JobState.PENDING
        with pytest.raises(JobNotFound):
            queue.get(new)
        assert (len(tx.list()), len(queue.list())) == (2, 1)
        assert (tx.stats().total, queue.stats().total) == (2, 1)
    assert queue.get(new).state is JobState.PENDING


def test_another_handle_sees_nothing_until_the_commit(make_queue: MakeQueue, queue: Queue) -> None:
    """The commit shows everything at once (V14, G7)."""
    other = make_queue()
    with queue.transaction() as tx:
        tx.enqueue_many(NewJob("work") for _ in range(3))
        assert other.stats().total == 0
    assert other.stats().total == 3


# --- a verb that fails inside


def test_a_verb_that_fails_inside_leaves_the_transaction_as_it_was_before_it(queue: Queue) -> None:
    """A savepoint a verb: what it had done is undone, what came before stays, what comes after counts (G11)."""
    taken = queue.enqueue("work", idempotency_key="k").job_id
    with queue.transaction() as tx:
        tx.enqueue("before")
        with pytest.raises(DuplicateJob):
            tx.enqueue_many([NewJob("half"), NewJob("work", idempotency_key="k", on_conflict="raise")])
        with pytest.raises(InvalidTransition):
            tx.retry(taken)
        with pytest.raises(JobNotFound):
            tx.get("00000000-0000-0000-0000-000000000000")
        with pytest.raises(UsageError):
            tx.set("max_attempts", 0)
        tx.enqueue("after")
    assert [job.kind for job in queue.list()] == ["work", "before", "after"]


def test_a_wrong_statement_leaves_the_transaction_usable(queue: Queue) -> None:
    """An error of the caller's own SQL is the caller's, and undone by itself (G11, V14)."""
    with queue.transaction() as tx:
        tx.execute("INSERT INTO orders (id) VALUES (1)")
        for wrong in (
            "INSERT INTO orders (id) VALUES (2); INSERT INTO orders (id) VALUES (1)",
            "INSERT INTO nowhere VALUES (1)",
            "SELEKT 1",
        ):
            with pytest.raises(Exception, match=r"UNIQUE|no such table|syntax"):
                tx.execute(wrong)
        job_id = tx.enqueue("mail").job_id
    assert orders(queue) == [(1, 0)]
    assert queue.get(job_id).kind == "mail"


def test_completing_with_a_bad_follower_inside_leaves_the_lease_held(queue: Queue) -> None:
    """The completion is undone with the rest of its verb, and the handle knows it (G11, V6)."""
    queue.enqueue("work")
    (lease,) = queue.lease_many(1)
    with lease.transaction() as tx:
        with pytest.raises(DuplicateJob):
            tx.complete(
                lease,
                "first",
                then=[
                    NewJob("next", idempotency_key="k"),
                    NewJob("next", idempotency_key="k", on_conflict="raise"),
                ],
            )
        assert tx.get(lease.job_id).state is JobState.LEASED
        tx.complete(lease, "second")
    assert queue.get(lease.job_id).result == "second"
    assert queue.list(kind="next") == []
