"""Maintenance: one bounded pass over a file, the loop around it, and what it says (V11, issue "Maintenance")."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import ANY, JobState, Maintenance, MaintenanceReport, NewJob, QueueBusy, QueueClosed, UsageError
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from litequeue import Queue


def test_a_pass_does_all_that_is_due_in_every_scope_and_reports_it(queue: Queue, clock: FakeClock) -> None:
    """Reaped, promoted, expired and pruned are counted, and the write-ahead log is copied back (V11)."""
    for scope in ("one", "two"):
        queue.enqueue_many(NewJob("lapses", scope=scope) for _ in range(3))
        queue.lease_many(3, scope=scope, ttl=5)
        queue.enqueue_many(NewJob("done", scope=scope) for _ in range(4))
        queue.complete_many(queue.lease_many(4, scope=scope))
        queue.enqueue("delayed", scope=scope, delay=60)
        queue.enqueue("late", scope=scope, expires=60)
    clock.advance(86_401)
    report = Maintenance(queue).run_once()
    done = {"reaped": 6, "promoted": 2, "expired": 2, "told": 0, "pruned": 8, "pulled_in": 0, "fired": 0}
    done["freed_bytes"] = 0
    assert report == MaintenanceReport(**done, wal_pages=0, wal_bytes=report.wal_bytes, wal_held_s=0)
    assert report
    assert report.as_dict() == done | {"wal_pages": 0, "wal_bytes": report.wal_bytes, "wal_held_s": 0}
    counts = queue.stats(ANY).counts
    assert (counts[JobState.RETRYABLE], counts[JobState.PENDING], counts[JobState.DEAD]) == (6, 2, 2)
    again = Maintenance(queue).run_once()
    assert not again
    clock.advance(10)
    assert Maintenance(queue).run_once().promoted == 6


def test_a_pass_finishes_what_takes_many_steps(queue: Queue, clock: FakeClock) -> None:
    """More than one step's worth of each sort is done in one pass (V11 "until done")."""
    queue.enqueue_many(NewJob("lapses") for _ in range(1050))
    queue.lease_many(1050, ttl=5)
    queue.enqueue_many(NewJob("delayed", delay=60) for _ in range(1050))
    queue.enqueue_many(NewJob("late", expires=60) for _ in range(350))
    clock.advance(100)
    report = Maintenance(queue).run_once()
    assert (report.reaped, report.promoted, report.expired) == (1050, 1050, 350)
    queue.complete_many(queue.lease_many(1050))
    clock.advance(86_500)
    report = Maintenance(queue).run_once()
    assert (report.promoted, report.pruned) == (1050, 1050)


def test_an_idle_pass_writes_nothing_and_waits_for_nobody(path: Path, queue: Queue) -> None:
    """When there is nothing to do, no transaction is begun (V11, DESIGN §3)."""
    queue.enqueue("work")
    with litequeue.open(path, busy_timeout=0.2) as other:
        Maintenance(other).run_once()
        watcher = apsw.Connection(str(path))
        version = watcher.pragma("data_version")
        Maintenance(other).run_once()
        assert watcher.pragma("data_version") == version
        watcher.close()


def test_a_pass_beside_a_long_transaction_is_busy_and_the_next_one_is_not(
    path: Path, queue: Queue, clock: FakeClock
) -> None:
    """`QueueBusy` undoes nothing of what was done before (§6, V11)."""
    queue.enqueue("work", delay=5)
    clock.advance(10)
    with litequeue.open(path, busy_timeout=0.1, clock=clock) as other:
        with queue.transaction(), pytest.raises(QueueBusy):
            Maintenance(other).run_once()
        assert Maintenance(other).run_once().promoted == 1


def test_back_offs_are_pulled_in_after_the_wall_clock_stepped_back(queue: Queue, clock: FakeClock) -> None:
    """No back-off waits longer than its cap from now (§5)."""
    queue.enqueue("work")
    lease = queue.lease_next()
    assert lease is not None
    lease.fail("boom")
    clock.step_wall(-30 * 86_400)
    assert Maintenance(queue).run_once().pulled_in == 1
    assert (queue.get(lease.job_id).not_before or 0) <= clock.wall_us() + 3_600_000_000
    clock.advance(3600)
    assert Maintenance(queue).run_once().promoted == 1


def test_a_dead_letter_is_logged_as_a_warning(queue: Queue, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever buries a job says so on the logger `litequeue`: a failure, a reap, an expiry (issue "Maintenance")."""
    queue.set("max_attempts", 1)
    failed, reaped = (queue.enqueue(kind).job_id for kind in ("fails", "lapses"))
    expired = queue.enqueue("late", expires=5).job_id
    lease = queue.lease_next(["fails"])
    assert lease is not None
    assert queue.lease_next(["lapses"], ttl=5) is not None
    with caplog.at_level(logging.WARNING, logger="litequeue"):
        lease.fail("boom")
        clock.advance(10)
        Maintenance(queue).run_once()
    warnings = [record for record in caplog.records if record.name == "litequeue"]
    assert {record.levelno for record in warnings} == {logging.WARNING}
    texts = [record.getMessage() for record in warnings]
    for job_id, cause in ((failed, "boom"), (reaped, "lease expired"), (expired, "expired")):
        (text,) = (text for text in texts if str(job_id) in text)
        assert cause in text
    assert len(texts) == 3


def test_a_dead_letter_of_a_rolled_back_transaction_is_not_logged(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """What did not happen is not said (G11)."""
    queue.enqueue("work")
    lease = queue.lease_next()
    assert lease is not None

    def bury_and_fail() -> None:
        with queue.transaction() as tx:
            tx.fail(lease, "boom", retryable=False)
            raise LookupError

    with caplog.at_level(logging.WARNING, logger="litequeue"), pytest.raises(LookupError):
        bury_and_fail()
    assert [record for record in caplog.records if "dead" in record.getMessage()] == []


class Passes:
    """Runs maintenance in a thread, and lets the test wait for its passes."""

    def __init__(self, maintenance: Maintenance, monkeypatch: pytest.MonkeyPatch, every: float | None) -> None:
        self.maintenance = maintenance
        self.failure: BaseException | None = None
        self._done = threading.Semaphore(0)
        once = maintenance.run_once

        def counted() -> MaintenanceReport:
            try:
                return once()
            finally:
                self._done.release()

        monkeypatch.setattr(maintenance, "run_once", counted)
        self._thread = threading.Thread(target=self._run, args=(every,))
        self._thread.start()

    def wait(self) -> None:
        """Wait for one more pass."""
        assert self._done.acquire(timeout=10), f"no pass came: {self.failure!r}"

    def forget(self) -> None:
        """Do not take passes for new ones that were done while the test did something else."""
        while self._done.acquire(blocking=False):
            pass

    def stop(self) -> None:
        """Let the loop end, and wait for it."""
        self.maintenance.stop()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self, every: float | None) -> None:
        try:
            self.maintenance.run(every)
        except BaseException as exc:  # noqa: BLE001 - told to the test
            self.failure = exc


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Passes]]:
    """Give what runs maintenance in threads that end with the test."""
    started: list[Passes] = []

    def begin(queue: Queue, every: float | None = None) -> Passes:
        started.append(Passes(Maintenance(queue), monkeypatch, every))
        return started[-1]

    yield begin
    for passes in started:
        passes.stop()


def test_the_loop_works_until_it_is_stopped_from_another_thread(
    queue: Queue, clock: FakeClock, run: Callable[..., Passes]
) -> None:
    """Pass after pass, with a pause in between; `stop()` ends it soon, also in the middle of a long pause (§9)."""
    queue.enqueue("work", delay=5)
    passes = run(queue, 0.01)
    passes.wait()
    clock.advance(10)
    passes.forget()
    passes.wait()
    passes.wait()
    assert queue.stats().counts[JobState.PENDING] == 1
    passes.stop()
    assert passes.failure is None
    long_pause = run(queue, 3600)
    long_pause.wait()
    long_pause.stop()


def test_the_interval_is_a_setting_that_is_read_at_each_pass(queue: Queue, run: Callable[..., Passes]) -> None:
    """`reaper_interval` decides when no pause was given (§5)."""
    queue.set("reaper_interval", 0.01)
    passes = run(queue)
    for _ in range(3):
        passes.wait()
    queue.set("reaper_interval", 3600)
    passes.stop()


@pytest.mark.parametrize("every", [0, -1, float("inf"), "soon"])
def test_a_pause_that_is_none_is_refused(queue: Queue, every: float) -> None:
    """A loop without a pause would be a busy one (§6)."""
    with pytest.raises(UsageError):
        Maintenance(queue).run(every)


def test_one_maintains_and_the_other_stands_by_until_the_first_stops(
    path: Path, queue: Queue, clock: FakeClock, run: Callable[..., Passes], caplog: pytest.LogCaptureFixture
) -> None:
    """One per file is active; whoever stands by takes over at once (issue "Maintenance")."""
    leader = run(queue, 0.01)
    leader.wait()
    standing = threading.Event()
    taken = threading.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            {"stand": standing, "taking": taken}.get(
                next((word for word in ("stand", "taking") if word in record.getMessage()), ""), threading.Event()
            ).set()

    watch = Watch()
    logger = logging.getLogger("litequeue.maintenance")
    logger.addHandler(watch)
    try:
        with caplog.at_level(logging.INFO, logger="litequeue.maintenance"), litequeue.open(path, clock=clock) as other:
            standby = run(other, 0.01)
            assert standing.wait(10)
            leader.wait()
            leader.stop()
            assert taken.wait(10)
            standby.wait()
            standby.stop()
    finally:
        logger.removeHandler(watch)


def test_a_busy_file_does_not_end_the_loop(
    path: Path, queue: Queue, clock: FakeClock, run: Callable[..., Passes]
) -> None:
    """A pass that finds the file busy is tried again (§6 "QueueBusy, the only retryable error")."""
    queue.enqueue("work", delay=5)
    clock.advance(10)
    with litequeue.open(path, busy_timeout=0.05, clock=clock) as other:
        with queue.transaction():
            passes = run(other, 0.01)
            passes.wait()
            passes.wait()
        passes.wait()
        passes.wait()
        passes.stop()
        assert passes.failure is None
    assert queue.stats().counts[JobState.PENDING] == 1


def test_a_closed_handle_ends_the_loop_with_the_reason(path: Path, run: Callable[..., Passes]) -> None:
    """What can never work again is not tried again (§9)."""
    with litequeue.open(path) as queue:
        passes = run(queue, 0.01)
        passes.wait()
    passes.stop()
    assert passes.failure is None or isinstance(passes.failure, QueueClosed)


def test_a_reader_does_not_keep_a_pass_from_ending(path: Path, queue: Queue) -> None:
    """A snapshot held elsewhere only leaves pages in the write-ahead log; they are reported (DESIGN §3)."""
    queue.enqueue("before")
    Maintenance(queue).run_once()
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM litequeue_meta").fetchall()
    queue.enqueue_many(NewJob("after", "x" * 3000) for _ in range(50))
    assert Maintenance(queue).run_once().wal_pages > 0
    reader.execute("COMMIT")
    reader.close()
    assert Maintenance(queue).run_once().wal_pages == 0
