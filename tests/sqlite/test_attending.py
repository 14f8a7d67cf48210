"""Who works on a file: the handles that lease, alive or dead, with what they run (DESIGN §4, issue 8)."""

from __future__ import annotations

import os
import platform
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from litequeue import SYSTEM, NewJob, UsageError, Worker
from litequeue.sqlite import ofd, presence
from litequeue.sqlite.place import Place
from litequeue.worker.dispatcher import Dispatcher
from tests.sqlite.test_flat_cost import Steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litequeue import Queue
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue

pytestmark = pytest.mark.skipif(not ofd.HAS_LOCKS, reason="this platform does not tell who has died")
SECOND_US = 1_000_000


def die(queue: Queue) -> None:
    """Let go of what tells that a handle lives, as the kernel does at the end of its process."""
    queue._store.holdings.presence.release()


def test_a_worker_is_known_from_its_first_lease_to_its_close(make_queue: MakeQueue, clock: FakeClock) -> None:
    """With its process, since when, and what it runs; whoever only waits is not known (issue 8)."""
    reader, worker = make_queue(), make_queue()
    worker.enqueue("mail:send", scope=SYSTEM)
    worker.enqueue("ingest:pdf")
    assert not worker.wait(0, ["none"])
    assert reader.workers() == []
    clock.advance(5)
    began_at = clock.wall_us()
    (ingest,) = worker.lease_many(1, worker_id="w", ttl=60)
    clock.advance(1)
    (mail,) = worker.lease_many(1, scope=SYSTEM, ttl=30)
    mail.checkpoint(b"", progress=0.5, note="half")
    (found,) = reader.workers()
    assert (found.pid, found.host, found.since) == (os.getpid(), platform.node(), began_at)
    assert (found.is_alive, found.running, found.kinds) == (True, 2, ("ingest:pdf", "mail:send"))
    assert found.holder == reader.get(mail.job_id).holder
    first, second = found.jobs
    assert (first.job_id, first.scope, first.kind, first.worker_id) == (ingest.job_id, "default", "ingest:pdf", "w")
    assert (first.leased_at, first.lease_deadline) == (began_at, began_at + 60 * SECOND_US)
    assert (first.progress, first.note) == (None, None)
    assert (second.job_id, second.scope, second.worker_id) == (mail.job_id, SYSTEM, worker.worker_id)
    assert second.lease_deadline == reader.get(mail.job_id).lease_deadline
    assert (second.progress, second.note) == (0.5, "half")
    ingest.complete()
    mail.complete()
    (idle,) = reader.workers()
    assert (idle.holder, idle.running, idle.jobs, idle.kinds) == (found.holder, 0, (), ())
    worker.close()
    assert reader.workers() == []


def test_a_handle_may_be_known_before_its_first_lease(make_queue: MakeQueue) -> None:
    """Once, whatever it leases later, until it is closed (issue 8)."""
    reader, worker = make_queue(), make_queue()
    worker.register()
    (idle,) = reader.workers()
    assert (idle.pid, idle.is_alive, idle.running) == (os.getpid(), True, 0)
    worker.enqueue("work")
    worker.lease_many(1)
    worker.register()
    (busy,) = reader.workers()
    assert (busy.holder, busy.running) == (idle.holder, 1)
    with worker.transaction(), pytest.raises(UsageError):
        worker.register()
    worker.close()
    assert reader.workers() == []


@pytest.mark.parametrize("is_locked", [False, True])
def test_a_worker_that_finds_nothing_to_do_is_known(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_locked: bool
) -> None:
    """From then on; where the file is locked just then it waits for work all the same, without a word (issue 8)."""
    looks = threading.Event()
    look = Dispatcher._look

    def tell(dispatcher: Dispatcher, seconds: float) -> None:
        looks.set()
        look(dispatcher, seconds)

    monkeypatch.setattr(Dispatcher, "_look", tell)
    reader = make_queue()
    worker = Worker(make_queue(busy_timeout=0.05), {"work": lambda _: None}, maintenance=False)
    with reader.transaction() if is_locked else nullcontext():
        thread = threading.Thread(target=worker.run)
        thread.start()
        assert looks.wait(20)
    found = [(one.is_alive, one.running) for one in reader.workers()]
    worker.stop()
    thread.join(20)
    assert not thread.is_alive()
    assert found == ([] if is_locked else [(True, 0)])
    assert "tried again" not in caplog.text


def test_of_many_jobs_the_first_hundred_are_named(make_queue: MakeQueue, clock: FakeClock) -> None:
    """Of each worker those that lapse first; all are counted (issue 8)."""
    workers = [make_queue(), make_queue()]
    workers[0].enqueue_many(NewJob("work", n) for n in range(250))
    late = workers[0].lease_many(20, ttl=500)
    clock.advance(1)
    soon = workers[0].lease_many(100, ttl=50)
    other = workers[1].lease_many(130, ttl=900)
    assert len(other) == 130
    first, second = make_queue().workers()
    assert {job.job_id for job in first.jobs} == {lease.job_id for lease in soon}
    assert not {lease.job_id for lease in late} & {job.job_id for job in first.jobs}
    assert (first.running, second.running, len(second.jobs)) == (120, 130, 100)


def test_the_dead_are_there_until_they_are_reaped(make_queue: MakeQueue) -> None:
    """Dead as soon as the kernel says so, with what they held (V11, DESIGN §4)."""
    reader, worker, other = make_queue(), make_queue(), make_queue()
    worker.enqueue_many([NewJob("work"), NewJob("work")])
    worker.lease_many(1)
    other.lease_many(1)
    die(worker)
    assert [(found.is_alive, found.running) for found in reader.workers()] == [(False, 1), (True, 1)]
    assert reader.reap_dead() == 1
    assert [found.is_alive for found in reader.workers()] == [True]


@pytest.mark.parametrize("sidecar", [None, "0:0"])
def test_where_presence_says_nothing_nobody_is_dead_or_alive(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch, sidecar: str | None
) -> None:
    """No such locks here, or another lock file than the worker's (DESIGN §4)."""
    worker = make_queue()
    worker.enqueue("work")
    monkeypatch.setattr(worker._store.holdings.presence, "sidecar", lambda: sidecar)
    worker.lease_many(1)
    assert [found.is_alive for found in make_queue().workers()] == [None]


def test_who_closes_while_it_is_looked_for_is_not_called_dead(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row was seen, then the handle closed, then the byte was found free: it has ended in order (DESIGN §4)."""
    reader, worker, killed = make_queue(), make_queue(), make_queue()
    worker.enqueue_many([NewJob("work"), NewJob("work")])
    worker.lease_many(1)
    killed.lease_many(1)
    die(killed)
    probe = presence.probe

    def close_first(place: Place, holders: presence.Known) -> Iterator[tuple[int, bool]]:
        worker.close()
        return probe(place, holders)

    monkeypatch.setattr(presence, "probe", close_first)
    assert [(found.is_alive, found.running) for found in reader.workers()] == [(False, 1)]


def test_the_cost_does_not_grow_with_jobs_that_do_not_run(make_queue: MakeQueue) -> None:
    """The same steps in an empty file and beside jobs that are ready, delayed and done (G9)."""
    queue = make_queue()
    found = []
    for rows in (2, 1000):
        queue.enqueue_many(NewJob("work", n, delay=n % 2) for n in range(2 * rows))
        queue.complete_many(queue.lease_many(rows - 1))
        (lease,) = queue.lease_many(1)
        queue.workers()
        with Steps(queue) as steps:
            (worker,) = queue.workers()
        assert worker.running == 1
        found.append(steps.count)
        lease.complete()
        queue.enqueue_many(NewJob("work", n) for n in range(rows))
    assert found[0] == found[1] > 20
