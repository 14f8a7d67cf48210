"""Verbs of several threads share one transaction, one commit and one wait for the disk (G11; issue 4).

A thread holds the write transaction until all the others stand in line, so that what is shared does not hang on luck.
What goes wrong for one of them, or for the transaction, must reach each of them truthfully.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import (
    DuplicateJob,
    JobNotFound,
    JobState,
    LeaseConflict,
    LiteQueueError,
    OutcomeUnknown,
    PayloadError,
    QueueBusy,
    QueueClosed,
    QueueFull,
    StorageLost,
)
from litequeue.sqlite import sharing, tail
from litequeue.sqlite.line import Request
from tests.faults.in_line import PATIENCE_S, THREADS, Commits, InLine, raised, refuse_second_commit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from litequeue import Queue
    from litequeue.sqlite.context import Context
    from litequeue.sqlite.store import Durability


class Interrupt(BaseException):
    """What a signal handler raises."""


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    """Give the number of commits from here on."""
    return Commits(monkeypatch)


@pytest.fixture
def queue(tmp_path: Path, commits: Commits, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    """Give a handle that syncs each commit, and whose commits are counted, however slow the machine is just now."""
    monkeypatch.setattr(sharing, "_LONGEST_S", PATIENCE_S)
    with litequeue.open(tmp_path / "app.queue", busy_timeout=PATIENCE_S) as opened:
        commits.count = 0
        yield opened


def _payloads(queue: Queue) -> list[object]:
    return [job.payload for job in queue.list(limit=1000)]


# --- what is shared


def test_those_in_line_share_one_commit(queue: Queue, monkeypatch: pytest.MonkeyPatch, commits: Commits) -> None:
    """Eight enqueues of eight threads are in one commit, and in the order in which they stood (G4, G7)."""
    with InLine(queue, monkeypatch) as line:
        futures = [line.let_stand(lambda n=n: queue.enqueue("work", n)) for n in range(THREADS)]  # type: ignore[misc]
    results = [future.result(PATIENCE_S) for future in futures]
    assert commits.count == 1, "one for all of them: who held the turn has written nothing"
    assert sorted(map(repr, _payloads(queue))) == [str(n) for n in range(THREADS)]
    assert len({repr(result) for result in results}) == THREADS


@pytest.mark.parametrize("durability", ["full", "enqueue"])
def test_threads_that_enqueue_cause_at_most_one_commit_for_three_verbs(
    tmp_path: Path, commits: Commits, durability: Durability
) -> None:
    """Eight threads, fifty jobs each, on one handle: each commit is one fsync (issue 4)."""
    with litequeue.open(tmp_path / "app.queue", durability=durability) as queue:
        queue.enqueue("warm")
        commits.count = 0
        begun = threading.Barrier(THREADS)

        def work(_: int) -> None:
            begun.wait()
            for number in range(50):
                queue.enqueue("work", number)

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(THREADS)))
        assert queue.stats().total == 1 + THREADS * 50
        assert commits.count <= THREADS * 50 / 3


def test_a_lone_caller_shares_nothing_and_pays_nothing(queue: Queue) -> None:
    """No savepoint, no line, one statement of each sort (issue 4)."""
    queue.enqueue("warm")
    statements: list[str] = []
    connection = queue._store._writer.connection
    assert connection is not None
    connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: statements.append(event["sql"].split()[0]))
    queue.enqueue("work")
    connection.trace_v2(0, None)
    assert statements.count("BEGIN") == statements.count("COMMIT") == 1
    assert "SAVEPOINT" not in statements


def test_leases_of_one_commit_are_of_different_jobs(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, commits: Commits
) -> None:
    """Two holders that lease in one transaction never hold one job (G1), and the handle holds both to its end."""
    for number in range(3):
        queue.enqueue("work", number)
    queue.lease_next()
    before = commits.count
    with InLine(queue, monkeypatch) as line:
        futures = [line.let_stand(queue.lease_next) for _ in range(2)]
    leases = [future.result(PATIENCE_S) for future in futures]
    assert commits.count - before == 1
    assert sorted(str(lease.payload) for lease in leases if isinstance(lease, litequeue.Lease)) == ["1", "2"]
    assert len(queue._store.holdings.leases) == 3


@pytest.mark.parametrize("bound", ["how many", "how long"])
def test_one_transaction_does_not_take_all_that_come(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, commits: Commits, bound: str
) -> None:
    """Its own thread waits for them: it takes so many, and none after so long (G10)."""
    if bound == "how many":
        monkeypatch.setattr(sharing, "_MOST", 1)
    else:
        monkeypatch.setattr(sharing, "_LONGEST_S", 0.0)
    with InLine(queue, monkeypatch) as line:
        futures = [line.let_stand(lambda: queue.enqueue("work")) for _ in range(6)]
    assert [raised(future) for future in futures] == [None] * 6
    assert commits.count == 3, "two in each"


# --- one's trouble is nobody else's


def test_an_error_of_one_touches_no_other(queue: Queue, monkeypatch: pytest.MonkeyPatch, commits: Commits) -> None:
    """Each gets its own answer or its own error, and what failed has left nothing (G11)."""
    queue.enqueue("work", "held", idempotency_key="taken")
    lease = queue.lease_next()
    assert lease is not None
    lease.complete()
    queue.set("max_payload", 1000)
    before = commits.count
    with InLine(queue, monkeypatch) as line:
        good = [line.let_stand(lambda: queue.enqueue("work", "good"))]
        too_large = line.let_stand(lambda: queue.enqueue("work", b"x" * 2000))
        stale = line.let_stand(lease.complete)
        duplicate = line.let_stand(lambda: queue.enqueue("work", "again", idempotency_key="taken", on_conflict="raise"))
        missing = line.let_stand(lambda: queue.cancel("00000000-0000-7000-8000-000000000000"))
        then = line.let_stand(lambda: queue.retry(lease.job_id))
        good += [line.let_stand(lambda: queue.enqueue("work", "good"))]
    assert isinstance(raised(too_large), PayloadError)
    assert isinstance(raised(stale), LeaseConflict)
    assert isinstance(raised(duplicate), DuplicateJob)
    assert isinstance(raised(missing), JobNotFound)
    assert raised(then) is None
    assert [raised(future) for future in good] == [None, None]
    assert commits.count - before == 1
    assert sorted(map(str, _payloads(queue))) == ["good", "good", "held"]
    assert queue.get(lease.job_id).state is JobState.PENDING


def test_where_sqlite_gives_the_transaction_up_each_is_done_alone(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One's statement rolls all back, as a full disk does; the others are done, each by itself, and it fails (G11)."""

    def give_up(context: Context) -> None:
        context.connection.execute("ROLLBACK")
        raise apsw.FullError("as if the disk were full")

    with InLine(queue, monkeypatch) as line:
        good = [line.let_stand(lambda: queue.enqueue("work", "good"))]
        bad = line.let_stand(lambda: queue._store.write(give_up, durable=True))
        good += [line.let_stand(lambda n=n: queue.enqueue("work", n)) for n in range(3)]  # type: ignore[misc]
    assert [raised(future) for future in good] == [None] * 4
    assert isinstance(raised(bad), QueueFull)
    assert sorted(map(str, _payloads(queue))) == ["0", "1", "2", "good"]


def test_where_the_commit_fails_each_is_done_alone(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is certain that nothing came of it, so nobody is told so: each is done again, and once (G11)."""
    with InLine(queue, monkeypatch) as line:
        futures = [line.let_stand(lambda n=n: queue.enqueue("work", n)) for n in range(4)]  # type: ignore[misc]
        answers = refuse_second_commit(queue)
    assert [raised(future) for future in futures] == [None] * 4
    assert answers == [False, True] + [False] * 4
    assert sorted(map(str, _payloads(queue))) == ["0", "1", "2", "3"]


# --- what becomes of the commit reaches all of them


def test_an_unknown_outcome_is_told_to_all(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit failed and may come back: nobody is told that it is done, nor that it is not (G11)."""
    monkeypatch.setattr(tail, "is_dead", lambda *_: False)
    with InLine(queue, monkeypatch) as line:
        futures = [line.let_stand(lambda n=n: queue.enqueue("work", n)) for n in range(4)]  # type: ignore[misc]
        answers = refuse_second_commit(queue)
    errors = [raised(future) for future in futures]
    assert answers == [False, True]
    assert [type(error) for error in errors] == [OutcomeUnknown] * 4
    assert len(set(map(id, errors))) == 4, "each has its own"


def test_a_file_that_went_away_beneath_the_commit_is_told_to_all(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed lies where nobody will look: none of them is acknowledged (§6)."""
    path = queue.path

    def move(_: Context) -> None:
        os.rename(path, f"{path}.moved")  # noqa: PTH104 - a path of text

    with InLine(queue, monkeypatch) as line:
        futures = [line.let_stand(lambda: queue.enqueue("work", "before"))]
        futures += [line.let_stand(lambda: queue._store.write(move, durable=True))]
        futures += [line.let_stand(lambda: queue.enqueue("work", "after"))]
    errors = [raised(future) for future in futures]
    assert [type(error) for error in errors] == [StorageLost] * 3
    assert all(isinstance(error, StorageLost) and error.committed for error in errors)


# --- interrupts


def test_who_is_interrupted_in_line_has_done_nothing(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its verb is taken out of the line; the others go on (G11)."""
    wait = Request.wait

    def interrupted(request: Request, seconds: float) -> None:
        if threading.current_thread().name == "interrupted":
            raise Interrupt
        wait(request, seconds)

    def work() -> None:
        threading.current_thread().name = "interrupted"
        try:
            queue.enqueue("work", "never")
        finally:
            threading.current_thread().name = "free"

    with InLine(queue, monkeypatch) as line:
        monkeypatch.setattr(Request, "wait", interrupted)
        stopped = line.let_stand(work)
        assert isinstance(raised(stopped), Interrupt), "while the turn is still another's"
        good = line.let_stand(lambda: queue.enqueue("work", "good"))
    assert raised(good) is None
    assert _payloads(queue) == ["good"]


def test_who_is_interrupted_while_its_verb_is_done_by_another_is_told_so(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be taken back any more: the exception says that it was committed (G11)."""
    is_taken = threading.Event()
    is_interrupted = threading.Event()
    wait = Request.wait

    def interrupted(request: Request, seconds: float) -> None:
        if request.work is slow and not is_interrupted.is_set():
            assert is_taken.wait(PATIENCE_S)
            is_interrupted.set()
            raise Interrupt
        wait(request, seconds)

    def slow(context: Context) -> None:
        is_taken.set()
        assert is_interrupted.wait(PATIENCE_S)
        context.write("UPDATE litequeue_meta SET settings_version = settings_version + 1", ())

    monkeypatch.setattr(Request, "wait", interrupted)
    with InLine(queue, monkeypatch) as line:
        good = line.let_stand(lambda: queue.enqueue("work", "good"))
        stopped = line.let_stand(lambda: queue._store.write(slow, durable=True))
    error = raised(stopped)
    assert isinstance(error, Interrupt)
    assert any("had been committed" in note for note in error.__notes__)
    assert raised(good) is None


def test_who_is_interrupted_in_anothers_verb_takes_nobody_along(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transaction is undone, with its own verb; the others are done again by themselves (G5, G11)."""
    owners: list[int] = []

    def interrupt_others(_: Context) -> None:
        owners.append(threading.get_ident())
        if len(owners) == 1:
            raise Interrupt

    with InLine(queue, monkeypatch) as line:
        first = line.let_stand(lambda: queue.enqueue("work", "interrupted"))
        second = line.let_stand(lambda: queue._store.write(interrupt_others, durable=True))
        third = line.let_stand(lambda: queue.enqueue("work", "good"))
    assert isinstance(raised(first), Interrupt)
    assert raised(second) is None
    assert raised(third) is None
    assert len(set(owners)) == 2, "by the first, then by its own thread"
    assert _payloads(queue) == ["good"]


# --- whose turn it is


def test_what_must_be_synced_is_not_done_where_nothing_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the mode `enqueue` a completion is not synced, and an enqueue that stands behind it has to be (§7)."""
    synced: dict[str, bool] = {}

    def note(name: str) -> Callable[[Context], None]:
        return lambda context: synced.__setitem__(name, context.is_synced)

    with litequeue.open(tmp_path / "app.queue", durability="enqueue") as queue:
        with InLine(queue, monkeypatch) as line:
            futures = [line.let_stand(lambda: queue._store.write(note("completion"), durable=False))]
            futures += [line.let_stand(lambda: queue._store.write(note("enqueue"), durable=True))]
        assert [raised(future) for future in futures] == [None, None]
    assert synced == {"completion": False, "enqueue": True}


def test_who_waits_in_line_waits_no_longer_than_the_busy_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nothing was done, and nothing will be (§6)."""
    with litequeue.open(tmp_path / "app.queue", busy_timeout=0.05) as queue:
        with InLine(queue, monkeypatch) as line:
            late = line.let_stand(lambda: queue.enqueue("work"))
            assert isinstance(raised(late), QueueBusy)
        assert queue.stats().total == 0


def test_a_transaction_is_not_passed_for_ever_by_single_verbs(queue: Queue) -> None:
    """Threads that never leave the turn free let in who waits for it by itself (G10)."""
    is_over = threading.Event()

    def work(_: int) -> None:
        while not is_over.is_set():
            queue.enqueue("work")

    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(work, number) for number in range(THREADS)]
        try:
            for _ in range(20):
                with queue.transaction() as tx:
                    tx.enqueue("own")
        finally:
            is_over.set()
        for future in futures:
            future.result(PATIENCE_S)
    assert len(queue.list(kind="own", limit=1000)) == 20


def test_an_error_in_line_is_of_the_contracts_tree(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """What SQLite says to a verb that another thread does is translated as anywhere (§6)."""
    with InLine(queue, monkeypatch) as line:
        good = line.let_stand(lambda: queue.enqueue("work"))
        bad = line.let_stand(
            lambda: queue._store.write(lambda c: c.write("INSERT INTO litequeue_job DEFAULT VALUES", ()), durable=True)
        )
    assert raised(good) is None
    error = raised(bad)
    assert isinstance(error, LiteQueueError)
    assert isinstance(error.__cause__, apsw.Error)


def test_what_is_leased_while_the_handle_closes_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that stands in line behind the close does not come into the transaction that gives all back (§4)."""
    has_begun, may_end = threading.Event(), threading.Event()

    def slow(_: Context) -> None:
        has_begun.set()
        assert may_end.wait(PATIENCE_S)

    queue = litequeue.open(tmp_path / "app.queue")
    queue.enqueue("held")
    queue.enqueue("late")
    assert queue.lease_next() is not None
    line = InLine(queue, monkeypatch)
    first = line.start(lambda: queue._store.write(slow, durable=True))
    assert has_begun.wait(PATIENCE_S)
    close = line.let_stand(queue.close)
    late = line.let_stand(queue.lease_next)
    may_end.set()
    assert raised(first) is None
    assert raised(close) is None
    assert isinstance(raised(late), QueueClosed)
    with litequeue.open(tmp_path / "app.queue") as other:
        assert other.stats().counts[JobState.PENDING] == 2


def test_the_first_lease_of_a_handle_that_closes_meanwhile_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close that begins while the handle holds nothing yet waits for the verb that is at work (§4)."""
    has_begun, may_end = threading.Event(), threading.Event()
    queue = litequeue.open(tmp_path / "app.queue")
    queue.enqueue("work")

    def lease() -> None:
        with queue.transaction() as tx:
            tx.lease_next()
            has_begun.set()
            assert may_end.wait(PATIENCE_S)

    line = InLine(queue, monkeypatch)
    first = line.start(lease)
    assert has_begun.wait(PATIENCE_S)
    close = line.let_stand(queue.close)
    may_end.set()
    assert raised(first) is None
    assert raised(close) is None
    with litequeue.open(tmp_path / "app.queue") as other:
        assert other.stats().counts[JobState.PENDING] == 1
