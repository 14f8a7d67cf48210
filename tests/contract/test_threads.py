"""Many threads at once: every job leased exactly once, nobody starved, and an end in order (G1, G10, §9)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from litequeue import JobState, Lease, LeaseConflict, Maintenance, NewJob, QueueClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Queue
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue

THREADS = 8
JOBS = 400


def run(count: int, work: Callable[[int], object]) -> list[object]:
    """Run `work` in so many threads that begin together; return what they return, or raise what one raised."""
    start = threading.Barrier(count)

    def begin(number: int) -> object:
        start.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(begin, number) for number in range(count)]]


@pytest.mark.parametrize("limit", [1, 7])
@pytest.mark.parametrize("is_one_handle", [True, False])
def test_every_job_is_leased_exactly_once(make_queue: MakeQueue, limit: int, *, is_one_handle: bool) -> None:
    """Eight threads and 400 jobs, over one handle or one each, singly and in batches (G1, §9; issue 2)."""
    queue = make_queue()
    ids = {result.job_id for result in queue.enqueue_many(NewJob("work", n) for n in range(JOBS))}
    handles = [queue if is_one_handle else make_queue() for _ in range(THREADS)]
    taken: list[Lease] = []

    def work(number: int) -> None:
        while leases := handles[number].lease_many(limit):
            taken.extend(leases)
            assert handles[number].complete_many(leases, [lease.payload for lease in leases]) == []

    run(THREADS, work)
    assert len(taken) == JOBS
    assert {lease.job_id for lease in taken} == ids
    jobs = queue.list(limit=1000)
    assert {(job.state, job.attempts, job.lease_generation) for job in jobs} == {(JobState.COMPLETED, 1, 1)}
    assert sorted(str(job.result) for job in jobs) == sorted(str(n) for n in range(JOBS))


def test_enqueueing_beside_leasing_loses_and_doubles_nothing(make_queue: MakeQueue) -> None:
    """Four threads enqueue, four lease, until all has been done (G1, G2)."""
    done: list[object] = []
    all_done = threading.Event()

    def work(number: int) -> None:
        queue = make_queue()
        if number % 2:
            for n in range(50):
                queue.enqueue("work", [number, n])
            return
        while not all_done.is_set():
            lease = queue.lease_next()
            if lease is not None:
                lease.complete()
                done.append(lease.payload)
                if len(done) >= 200:
                    all_done.set()

    run(THREADS, work)
    assert sorted(map(str, done)) == sorted(str([number, n]) for number in (1, 3, 5, 7) for n in range(50))


def test_one_key_enqueued_by_all_threads_is_one_job(make_queue: MakeQueue) -> None:
    """However many enqueue it at once, one creates it and the others are told which it is (V2)."""
    handles = [make_queue() for _ in range(THREADS)]
    results = run(THREADS, lambda number: [handles[number].enqueue("work", idempotency_key=f"k{n}") for n in range(20)])
    answers = [tuple(answer) for result in results for answer in result]  # type: ignore[attr-defined]
    assert sum(created for _, created in answers) == 20
    assert len({job_id for job_id, _ in answers}) == 20
    assert handles[0].stats().total == 20


def test_of_many_who_settle_one_lease_one_succeeds(queue: Queue) -> None:
    """The same lease in eight threads: one word counts, seven are conflicts (G1)."""
    queue.enqueue_many(NewJob("work") for _ in range(20))
    for lease in queue.lease_many(20):

        def settle(number: int, lease: Lease = lease) -> bool:
            try:
                lease.complete(number) if number % 2 else lease.fail("boom", retryable=False)
            except LeaseConflict:
                return False
            return True

        assert sum(map(bool, run(THREADS, settle))) == 1
        assert len(queue.get(lease.job_id).events) <= 4


def test_a_reaper_beside_heartbeats_takes_only_what_has_lapsed(make_queue: MakeQueue, clock: FakeClock) -> None:
    """Holders that extend in time keep their jobs, whoever reaps beside them (V4, V11, G1)."""
    queue = make_queue()
    queue.enqueue_many(NewJob("work") for _ in range(6))
    alive, dead = queue.lease_many(3), queue.lease_many(3)
    for _ in range(4):
        clock.advance(150)

        def beat_or_reap(number: int) -> object:
            if number == 0:
                return queue.extend_many(alive)
            return 0

        run(2, beat_or_reap)
        run(4, lambda _: queue.reap_expired())
    assert queue.complete_many(alive) == []
    assert len(queue.complete_many(dead)) == 3


def test_maintenance_is_safe_beside_everything_else(make_queue: MakeQueue, clock: FakeClock) -> None:
    """Three maintainers beside five workers that fail, give back, let lapse and complete: every job is done (V11)."""
    watcher = make_queue()
    watcher.set("backoff_base", 0)
    watcher.enqueue_many(NewJob("work", n, max_attempts=1000, delay=n % 3) for n in range(60))

    def is_done() -> bool:
        return watcher.stats().counts[JobState.COMPLETED] == 60

    def work(number: int) -> None:
        queue = make_queue()
        while not is_done():
            if number < 3:
                clock.advance(1)
                Maintenance(queue).run_once()
                continue
            for lease in queue.lease_many(3, ttl=20):
                with suppress(LeaseConflict):
                    match (lease.lease_generation + number) % 4:
                        case 0:
                            lease.fail("boom")
                        case 1:
                            lease.release()
                        case 2:
                            lease.complete()
                        case _:
                            pass  # until it lapses

    run(THREADS, work)
    assert watcher.stats().total == 60


@pytest.mark.slow
def test_no_handle_starves(make_queue: MakeQueue) -> None:
    """Eight handles write as fast as they can; none has done much less than another (G10)."""
    handles = [make_queue() for _ in range(THREADS)]
    counts = [0] * THREADS
    is_over = threading.Event()

    def work(number: int) -> None:
        while not is_over.is_set():
            handles[number].enqueue("work")
            counts[number] += 1
            if counts[number] >= 1500:
                is_over.set()

    run(THREADS, work)
    assert min(counts) >= 0.15 * max(counts), counts


@pytest.mark.parametrize("is_by_transaction", [False, True])
def test_a_handle_may_be_closed_while_others_work(make_queue: MakeQueue, *, is_by_transaction: bool) -> None:
    """They finish what they are in or are told that it is closed; nothing is lost and nothing stays leased (§4, §9)."""
    for _ in range(10):
        queue, watcher = make_queue(), make_queue()
        queue.enqueue_many(NewJob("work") for _ in range(50))
        begun = threading.Barrier(THREADS)

        def work(number: int, queue: Queue = queue, begun: threading.Barrier = begun) -> str:
            begun.wait()
            if number == 0:
                queue.lease_next()
                queue.close()
                return "closed"
            try:
                while True:
                    if is_by_transaction:
                        with queue.transaction() as tx:
                            leases = tx.lease_many(3)
                            tx.release_many(leases[:2])
                    else:
                        queue.release_many(queue.lease_many(3)[:2])
            except QueueClosed:
                return "closed"

        with ThreadPoolExecutor(THREADS) as pool:
            assert list(pool.map(work, range(THREADS))) == ["closed"] * THREADS
        assert watcher.stats().counts[JobState.LEASED] == 0
        assert watcher.complete_many(watcher.lease_many(1000)) == []
        assert watcher.stats().counts[JobState.COMPLETED] == watcher.stats().total
