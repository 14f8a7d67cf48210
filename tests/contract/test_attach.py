"""`litequeue.attach`: jobs commit with the application's rows, on its own connection (issue 7, G7, G11)."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import ANY, DuplicateJob, JobState, LeaseConflict, NewJob, Outbox, PayloadError, QueueFull, UsageError
from litequeue.sqlite.bell import Bell
from litequeue.sqlite.joining import Following

if TYPE_CHECKING:
    import apsw

    from litequeue import Attached, Lease, Queue
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue


@pytest.fixture
def worker(attached: Attached, make_queue: MakeQueue) -> Queue:
    """Give the handle of a worker on the same file, in this process."""
    assert attached.path
    return make_queue()


@pytest.fixture
def rings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the ends of the names of the bells that were rung so far."""
    heard: list[str] = []
    monkeypatch.setattr(Bell, "ring", lambda this: heard.append(this._path.rpartition("-")[2]))
    return heard


def orders(connection: apsw.Connection) -> int:
    """Count the application's rows."""
    ((count,),) = connection.execute("SELECT count(*) FROM orders").fetchall()
    assert isinstance(count, int)
    return count


def leased(worker: Queue, app: apsw.Connection, attached: Attached) -> Lease:
    """Make a job, and lease it by the worker's handle."""
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        attached.enqueue("mail")
    lease = worker.lease_next(["mail"])
    assert lease is not None
    return lease


# --- one commit


def test_a_job_is_committed_with_the_applications_row(app: apsw.Connection, attached: Attached, worker: Queue) -> None:
    """Nobody sees either before the application's COMMIT, and everybody sees both after it (V14, G7)."""
    app.execute("BEGIN IMMEDIATE")
    app.execute("INSERT INTO orders DEFAULT VALUES")
    made = attached.enqueue("mail", {"order": 1}, priority=3)
    assert made.created
    assert worker.stats(ANY).total == 0
    assert worker.list() == []
    app.execute("COMMIT")
    lease = worker.lease_next(["mail"])
    assert lease is not None
    assert (lease.job_id, lease.payload, lease.priority) == (made.job_id, {"order": 1}, 3)
    lease.complete()


def test_a_rollback_leaves_neither(app: apsw.Connection, attached: Attached, worker: Queue) -> None:
    """Of the row and of the job (V14)."""
    app.execute("BEGIN IMMEDIATE")
    app.execute("INSERT INTO orders DEFAULT VALUES")
    job_id = attached.enqueue("mail").job_id
    assert attached.get(job_id).state is JobState.PENDING
    app.execute("ROLLBACK")
    assert (orders(app), worker.stats(ANY).total, worker.lease_next()) == (0, 0, None)


def test_every_way_to_begin_and_to_end_a_transaction_will_do(
    app: apsw.Connection, attached: Attached, worker: Queue
) -> None:
    """A savepoint outside of all, `with connection`, a deferred transaction that has written (V14)."""
    app.execute("SAVEPOINT outermost")
    app.execute("INSERT INTO orders DEFAULT VALUES")
    attached.enqueue("savepoint")
    app.execute("RELEASE outermost")
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        attached.enqueue("block")
    with suppress(ZeroDivisionError), app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        attached.enqueue("never")
        _ = 1 / 0
    app.execute("BEGIN")
    app.execute("INSERT INTO orders DEFAULT VALUES")
    attached.enqueue("deferred")
    app.execute("END")
    assert [job.kind for job in worker.list()] == ["savepoint", "block", "deferred"]
    assert orders(app) == 3


def test_a_verb_that_fails_leaves_the_transaction_as_it_was(
    app: apsw.Connection, attached: Attached, worker: Queue
) -> None:
    """The application's rows and the verbs before it stay, of the verb itself nothing does (G11)."""
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        attached.enqueue("first", idempotency_key="a")
        with pytest.raises(DuplicateJob):
            attached.enqueue_many([NewJob("x"), NewJob("first", idempotency_key="a", on_conflict="raise")])
        with pytest.raises(PayloadError):
            attached.enqueue("large", b"x" * 2_000_000)
        attached.enqueue("last")
    assert [job.kind for job in worker.list()] == ["first", "last"]
    assert orders(app) == 1


def test_max_bytes_counts_the_applications_tables_and_leaves_its_transaction_alone(
    app: apsw.Connection, attached: Attached, worker: Queue
) -> None:
    """`QueueFull` of a verb is not the end of the transaction (§6)."""
    worker.set("max_bytes", 4096 * 40)
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        with pytest.raises(QueueFull):
            attached.enqueue_many(NewJob("mail", b"x" * 4000) for _ in range(40))
    assert (orders(app), worker.stats(ANY).total) == (1, 0)


def test_the_clock_is_read_once_a_transaction_and_order_is_commit_order(
    app: apsw.Connection, attached: Attached, worker: Queue, clock: FakeClock
) -> None:
    """Between what others commit, and when the wall clock steps back (G4, G8)."""
    ids = [worker.enqueue("n").job_id]
    clock.step_wall(-100)
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        ids += [attached.enqueue("n").job_id]
        clock.advance(5)
        ids += [made.job_id for made in attached.enqueue_many([NewJob("n"), NewJob("n")])]
    ids += [worker.enqueue("n").job_id]
    assert [lease.job_id for lease in worker.lease_many(9)] == ids
    enqueued = [attached.get(job_id).events[0].at for job_id in ids[1:4]]
    assert len(set(enqueued)) == 1
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        later = attached.enqueue("n").job_id
    assert attached.get(later).events[0].at == enqueued[0] + 5_000_000


def test_reads_see_what_the_connection_sees_and_open_nothing(app: apsw.Connection, attached: Attached) -> None:
    """Within a transaction and without one (V13)."""
    assert attached.stats().total == 0
    assert not app.in_transaction
    app.execute("BEGIN IMMEDIATE")
    job_id = attached.enqueue("mail").job_id
    assert attached.stats().total == 1
    assert [job.job_id for job in attached.list()] == [job_id]
    app.execute("ROLLBACK")
    with pytest.raises(litequeue.JobNotFound):
        attached.get(job_id)
    assert not app.in_transaction


def test_operators_verbs_settings_schedules_and_outboxes_are_there_too(
    app: apsw.Connection, attached: Attached, worker: Queue, clock: FakeClock
) -> None:
    """All that a `Transaction` has, but leasing (V14)."""
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        stopped = attached.enqueue("mail").job_id
        attached.cancel(stopped)
        attached.set("max_attempts", 2, "mail")
        attached.pause("slow")
        attached.schedule("daily", "@every 60s", "tick")
        Outbox(worker, "post").put(attached, "hello", key="a")
        attached.enqueue("late", delay=1)
        clock.advance(2)
    assert worker.get(stopped).state is JobState.CANCELLED
    assert (worker.settings("mail")["max_attempts"], len(worker.pauses()), len(worker.schedules())) == (2, 1, 1)
    assert Outbox(worker, "post").stats().total == 1
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        attached.retry(stopped)
        assert attached.promote_due() == 1
    assert worker.get(stopped).state is JobState.PENDING


# --- what a holder says


def test_a_lease_is_completed_with_the_applications_row(
    app: apsw.Connection, attached: Attached, worker: Queue
) -> None:
    """The lease hears of it after the commit, so that its worker does not end the job once more (G1, G3)."""
    lease = leased(worker, app, attached)
    app.execute("BEGIN IMMEDIATE")
    app.execute("UPDATE orders SET mailed = 1")
    attached.check(lease)
    attached.complete(lease, "sent", then=[NewJob("next")])
    assert not lease.settled
    assert worker.get(lease.job_id).state is JobState.LEASED
    app.execute("COMMIT")
    assert (lease.settled, lease.lost) == (True, False)
    assert worker.get(lease.job_id).result == "sent"
    assert worker.lost([lease]) == []
    with pytest.raises(LeaseConflict):
        lease.extend()
    assert [job.kind for job in worker.list()] == ["next", "mail"]


def test_a_lease_outlives_a_rollback_of_its_completion(app: apsw.Connection, attached: Attached, worker: Queue) -> None:
    """It is held as before, and its holder may go on (G1, G11)."""
    lease = leased(worker, app, attached)
    app.execute("BEGIN IMMEDIATE")
    attached.checkpoint(lease, b"half")
    attached.complete(lease)
    with pytest.raises(LeaseConflict):
        attached.complete(lease)
    app.execute("ROLLBACK")
    assert (lease.settled, lease.lost, lease.continuation) == (False, False, None)
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        attached.checkpoint(lease, b"half")
        attached.note(lease, "half")
        attached.extend(lease)
    assert lease.continuation == b"half"
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        attached.fail(lease, "boom", delay=60)
    assert (lease.settled, worker.get(lease.job_id).state) == (True, JobState.RETRYABLE)


def test_a_lease_that_is_lost_hears_of_it_with_the_commit(
    app: apsw.Connection, attached: Attached, worker: Queue
) -> None:
    """What it was lost by may be taken back with the transaction (G1)."""
    lease = leased(worker, app, attached)
    for end in ("ROLLBACK", "COMMIT"):
        app.execute("BEGIN IMMEDIATE")
        attached.cancel(lease.job_id)
        with pytest.raises(LeaseConflict):
            attached.complete(lease)
        assert not lease.lost
        app.execute(end)
        assert lease.lost == (end == "COMMIT")


def test_going_back_to_a_savepoint_promises_nothing_to_a_lease(
    app: apsw.Connection, attached: Attached, worker: Queue
) -> None:
    """What it undid is not believed; what it left is found in the file, though the lease has not heard of it (G1)."""
    lease, other = leased(worker, app, attached), leased(worker, app, attached)
    app.execute("BEGIN IMMEDIATE")
    attached.complete(other)
    app.execute("SAVEPOINT mine")
    attached.complete(lease)
    app.execute(" -- as one may write it\n; /* ROLLBACK; */ rollback to mine")
    app.execute("COMMIT")
    assert (lease.settled, lease.lost, other.settled) == (False, False, False)
    lease.complete("later")
    assert worker.get(lease.job_id).result == "later"
    with pytest.raises(LeaseConflict, match="completed"):
        other.complete()


def test_it_leases_nothing_and_says_why(app: apsw.Connection, attached: Attached, worker: Queue) -> None:
    """A lease that a ROLLBACK TO of the application had undone would look like one that holds (G1)."""
    worker.enqueue("work")
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        for lease in (attached.lease_next, lambda: attached.lease_many(1)):
            with pytest.raises(UsageError, match=r"litequeue\.open"):
                lease()
    assert worker.lease_next() is not None


def test_a_job_that_dies_is_logged_after_the_commit(
    app: apsw.Connection, attached: Attached, worker: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """And not when that is rolled back (docs/guide/maintenance.md)."""
    lease = leased(worker, app, attached)
    with caplog.at_level(logging.WARNING, "litequeue"):
        app.execute("BEGIN IMMEDIATE")
        attached.fail(lease, "boom", retryable=False)
        app.execute("ROLLBACK")
        assert not caplog.records
        app.execute("BEGIN IMMEDIATE")
        attached.fail(lease, "boom", retryable=False)
        assert not caplog.records
        app.execute("COMMIT")
    assert len(caplog.records) == 1


# --- the bell


def test_the_bell_rings_after_the_commit_and_not_before(
    app: apsw.Connection, attached: Attached, worker: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever it wakes finds the job: the ring is after the commit (DESIGN §4)."""
    found: list[int] = []
    monkeypatch.setattr(Bell, "ring", lambda _: found.append(worker.stats().total))
    for end in ("COMMIT", "END", "RELEASE s"):
        app.execute("BEGIN IMMEDIATE" if end != "RELEASE s" else "SAVEPOINT s")
        app.execute("INSERT INTO orders DEFAULT VALUES")
        attached.enqueue("mail")
        app.execute("UPDATE orders SET mailed = 1")
        before = len(found)
        app.execute(end)
        assert len(found) == before + 1
    assert found == [1, 2, 3]


def test_nothing_rings_for_a_rollback_nor_where_no_work_became_ready(
    app: apsw.Connection, attached: Attached, worker: Queue, rings: list[str]
) -> None:
    """By the application, by a hook of its own, by SQLite; and once only for many jobs (DESIGN §4)."""
    lease = leased(worker, app, attached)
    rings.clear()
    app.execute("BEGIN IMMEDIATE")
    attached.enqueue("mail")
    app.execute("ROLLBACK")
    app.set_commit_hook(lambda: True)
    app.execute("BEGIN IMMEDIATE")
    attached.enqueue("mail")
    with suppress(Exception):
        app.execute("COMMIT")
    app.set_commit_hook(None)
    app.execute("BEGIN IMMEDIATE")
    attached.enqueue("mail")
    with suppress(Exception):
        app.execute("INSERT OR ROLLBACK INTO orders (id) SELECT id FROM orders")
    assert not app.in_transaction
    app.execute("BEGIN IMMEDIATE")
    attached.extend(lease)
    app.execute("COMMIT")
    assert rings == []
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        attached.enqueue("mail")
        attached.enqueue("mail")
        attached.complete(lease)
    assert rings == ["bell", "done"]


def test_an_interrupt_at_the_end_of_a_commit_does_not_hide_it(
    app: apsw.Connection, attached: Attached, worker: Queue, rings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may come in the very callback; the next statement tells of the end, also where it begins anew (G11)."""
    ended, hear = 0, Following._statement_ended

    def interrupted(this: Following, event: dict[str, object]) -> None:
        nonlocal ended
        ended += 1
        if ended == 1:
            raise KeyboardInterrupt
        hear(this, event)

    monkeypatch.setattr(Following, "_statement_ended", interrupted)
    for end, expected in (("COMMIT", ["bell"]), ("ROLLBACK", [])):
        rings.clear()
        ended = 0
        app.execute("BEGIN IMMEDIATE")
        attached.enqueue("mail")
        with pytest.raises(KeyboardInterrupt):
            app.execute(end)
        app.execute("BEGIN IMMEDIATE")
        assert rings == expected
        attached.extend_many([])
        app.execute("ROLLBACK")
        assert rings == expected
    assert worker.stats().total == 1


def test_a_handle_that_is_closed_or_forgotten_in_a_transaction_rings_all_the_same(
    app: apsw.Connection, clock: FakeClock, rings: list[str]
) -> None:
    """The jobs are committed, so whoever waits has to hear of them (DESIGN §4)."""
    for _ in range(2):
        app.execute("BEGIN IMMEDIATE")
        q = litequeue.attach(app, clock=clock)
        q.enqueue("mail")
        q.close()
        del q
        app.execute("COMMIT")
        app.execute("BEGIN IMMEDIATE")
        litequeue.attach(app, clock=clock).enqueue("mail")
        app.execute("COMMIT")
    assert rings == ["bell"] * 4


# --- nothing stale


def test_settings_are_those_of_the_present_transaction(app: apsw.Connection, attached: Attached, worker: Queue) -> None:
    """Whoever changed them, and whatever was rolled back: version numbers come again (§5)."""

    def limit() -> object:
        with pytest.raises(PayloadError) as told:
            attached.enqueue("mail", b"x" * 2_000_000)
        return str(told.value).rpartition("allows ")[2]

    app.execute("BEGIN IMMEDIATE")
    assert limit() == "1,048,576"
    attached.set("max_payload", 1000)
    assert limit() == "1,000"
    app.execute("ROLLBACK")
    worker.set("max_payload", 2000)
    app.execute("BEGIN IMMEDIATE")
    assert limit() == "2,000"
    app.execute("SAVEPOINT mine")
    attached.set("max_payload", 3000)
    assert limit() == "3,000"
    app.execute("ROLLBACK TO mine")
    assert limit() == "2,000"
    with litequeue.attach(app) as other:  # it changes them to and fro, beneath what this one has read
        for size in (4000, 4500):
            app.execute("SAVEPOINT mine")
            other.set("max_payload", size)
            assert limit() == f"{size:,}"
            app.execute("ROLLBACK TO mine")
    app.execute("COMMIT")
    worker.set("max_payload", 5000)
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        assert limit() == "5,000"
    assert attached.settings()["max_payload"] == 5000


def test_two_handles_on_one_connection_share_its_transaction(app: apsw.Connection, attached: Attached) -> None:
    """Each rings for what it has done (V14)."""
    with litequeue.attach(app, scope="other") as other, app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        attached.enqueue("mail")
        other.enqueue("mail")
        assert (attached.stats(ANY).total, other.stats().total) == (2, 1)


def test_another_thread_may_have_the_connection_but_no_two_at_once(app: apsw.Connection, attached: Attached) -> None:
    """As apsw allows; two in one transaction would undo each other's verbs (G11)."""
    told: list[str] = []

    def use() -> None:
        try:
            attached.enqueue("mail")
        except UsageError as exc:
            told.append(str(exc))

    def run(*_: object) -> int:
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        return 0

    app.execute("BEGIN IMMEDIATE")
    run()
    assert told == []
    app.set_authorizer(run)  # in the midst of the next verb
    attached.cancel_many([attached.list()[0].job_id])
    app.set_authorizer(None)
    app.execute("COMMIT")
    assert told
    assert all("at work" in message for message in told)
