"""A worker whose file is locked, full or gone: it goes on as long as there is hope, and says when there is none."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import handled
import pytest
from meeting import PATIENCE_S, until

import litequeue
from litequeue import JobState, Lease, QueueBusy, QueueFull, StorageLost, Worker
from litequeue.worker.dispatcher import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from uuid import UUID

    from litequeue import Job, Queue
    from litequeue.worker.run import Run
    from litequeue.worker.worker import Mode
    from tests.faults.children import Children, Parent
    from tests.worker.conftest import Work


def _hold_the_lock(parent: Parent, path: str) -> None:
    with litequeue.open(path) as queue, queue.transaction():
        parent.say("locked")
        parent.hear()


@pytest.mark.slow
def test_a_locked_file_ends_no_worker_and_loses_no_lease(
    path: Path, processes: Children, work: Work, log: pytest.LogCaptureFixture, mode: Mode
) -> None:
    """Longer than `busy_timeout`: the outcome is kept, the lease extended as soon as it can be, and work goes on."""
    with litequeue.open(path, durability="normal", busy_timeout=0.2) as queue:
        begun = threading.Event()
        go_on = threading.Event()

        def slow(_: Lease) -> str:
            begun.set()
            assert go_on.wait(PATIENCE_S)
            return "done"

        def said(what: str) -> int:
            return sum(what in record.getMessage() for record in log.records)

        first, second, third = (queue.enqueue(kind).job_id for kind in ("quick", "slow", "quick"))
        handlers = {"slow": slow, "quick": lambda _: None}
        worker = work(handlers, queue=queue, concurrency=1, lease_ttl=6, mode=mode, maintenance=True)
        assert begun.wait(PATIENCE_S)
        child = processes.start(_hold_the_lock, str(path))
        assert child.hear() == "locked"
        until(lambda: said("leases") == 1, "a heartbeat that failed")
        go_on.set()
        until(lambda: said("cannot be worked with") == 1, "an outcome that could not be handed in")
        child.say("unlock")
        child.status()
        until(lambda: queue.get(third).state is JobState.COMPLETED, "the work goes on")
        ending = worker.drained()
        assert (ending.completed, ending.lost) == (3, 0)
        assert [(queue.get(job_id).attempts, queue.get(job_id).reaps) for job_id in (first, second)] == [(1, 0)] * 2


def test_an_outcome_is_kept_until_the_queue_takes_it(
    queue: Queue,
    work: Work,
    ended: Callable[[UUID], Job],
    monkeypatch: pytest.MonkeyPatch,
    log: pytest.LogCaptureFixture,
) -> None:
    """Busy and full are tried again, at growing intervals, and said once in a row."""
    errors = iter([QueueBusy("busy"), QueueFull("full"), QueueBusy("busy")])
    exchange = queue.exchange
    tries: list[int] = []

    def sometimes(settlements: object, *rest: object, **named: object) -> object:
        if settlements:
            tries.append(1)
            error = next(errors, None)
            if error is not None:
                raise error
        return exchange(settlements, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(queue, "exchange", sometimes)
    worker = work({"job": lambda _: "done"})
    assert ended(queue.enqueue("job").job_id).result == "done"
    assert len(tries) == 4
    assert worker.drained().completed == 1
    assert sum("tried again" in record.getMessage() for record in log.records) == 1


def test_a_file_that_is_gone_ends_the_worker_with_an_error(
    path: Path, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never dies silently: after a while of trying, `run` raises what it met; the handlers have been told."""
    monkeypatch.setattr("litequeue.worker.dispatcher.GRAVE_S", 0.3)
    begun = threading.Event()
    leases: list[Lease] = []

    def slow(lease: Lease) -> None:
        leases.append(lease)
        begun.set()
        until(lambda: lease.cancelled, "told")

    with litequeue.open(path, durability="normal") as queue:
        queue.enqueue("job")
        worker = work({"job": slow}, queue=queue, concurrency=2)
        assert begun.wait(PATIENCE_S)
        path.rename(path.with_name("moved"))
        with pytest.raises(StorageLost):
            worker.join()
        assert leases[0].cancelled


def test_a_worker_maintains_its_file(queue: Queue, work: Work, ended: Callable[[UUID], Job]) -> None:
    """What has expired is buried though nobody asks for its kind."""
    job_id = queue.enqueue("other", expires=0.001).job_id
    queue.set("reaper_interval", 0.05)
    work({"job": lambda _: None}, maintenance=True)
    assert ended(job_id).last_error == "expired"


def test_a_worker_leaves_maintenance_to_others_when_told(queue: Queue) -> None:
    """`maintenance=False`: no such thread runs."""
    names: list[str] = []

    def look(_: Lease) -> None:
        names.extend(thread.name for thread in threading.enumerate())

    queue.enqueue("job")
    Worker(queue, {"job": look}, maintenance=False, until_empty=True).run()
    assert "litequeue-heartbeat" in names
    assert "litequeue-maintenance" not in names


def test_nothing_of_a_worker_is_left_after_its_run(queue: Queue, mode: Mode) -> None:
    """No thread, and no handle besides the caller's own."""
    before = {thread.name for thread in threading.enumerate()}
    queue.enqueue("job")
    Worker(queue, {"job": lambda _: None}, mode=mode, until_empty=True).run()
    left = {thread.name for thread in threading.enumerate()} - before
    assert left <= {"litequeue-bell"}  # one for all that wait in this process, as a daemon


def test_what_ends_together_is_handed_in_together(queue: Queue, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outcomes and the next leases share a commit: no more commits than twice the batches that could be."""
    queue.enqueue_many(litequeue.NewJob("job", number) for number in range(400))
    exchange = queue.exchange
    sizes: list[int] = []

    def counted(settlements: list[object], *rest: object, **named: object) -> object:
        sizes.append(len(settlements))
        return exchange(settlements, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(queue, "exchange", counted)
    assert work({"job": lambda _: None}, concurrency=20, until_empty=True).join().completed == 400
    assert sum(sizes) == 400
    assert len(sizes) <= 2 * (400 / 20) + 4


def test_an_outcome_waits_for_those_that_end_soon_after(
    queue: Queue, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within `hold`, and no longer than a commit takes: two that end one after the other share one."""
    queue.enqueue_many(litequeue.NewJob("job", number) for number in range(2))
    posted = threading.Event()
    post = Dispatcher.post

    def told(dispatcher: Dispatcher, run: Run) -> None:
        dispatcher._exchange_s = 1.0  # as if commits were that slow
        post(dispatcher, run)
        posted.set()

    def second_later(lease: Lease) -> None:
        if lease.payload == 1:
            assert posted.wait(PATIENCE_S)

    monkeypatch.setattr(Dispatcher, "post", told)
    exchange = queue.exchange
    sizes: list[int] = []

    def counted(settlements: list[object], *rest: object, **named: object) -> object:
        sizes.append(len(settlements))
        return exchange(settlements, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(queue, "exchange", counted)
    work({"job": second_later}, concurrency=2, hold=1, until_empty=True).join()
    assert 2 in sizes


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["moved", "replaced", "without its log"])
def test_a_file_that_is_gone_ends_a_worker_of_processes_too(
    path: Path, work: Work, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture, harm: str
) -> None:
    """Its parent looks for itself: processes that begin anew would find another file, or none."""
    monkeypatch.setattr("litequeue.worker.supervisor.GRAVE_S", 2.0)
    with litequeue.open(path, durability="normal") as queue:
        job_id = queue.enqueue("quick", str(path.parent)).job_id
        worker = work({"quick": handled.quick}, queue=queue, mode="processes", concurrency=1)
        until(lambda: queue.get(job_id).state is JobState.COMPLETED, "a process at work")
        if harm == "moved":
            path.rename(path.with_name("moved"))
        elif harm == "replaced":
            with litequeue.open(path.parent / "other.queue") as other:
                other.enqueue("quick", str(path.parent))
            (path.parent / "other.queue").replace(path)
        else:
            path.with_name(path.name + "-wal").unlink()
        with pytest.raises(StorageLost):
            worker.join()
    assert sum("cannot be worked with" in record.getMessage() for record in log.records) < 5
