"""Many processes and threads on one file: each job goes to one of them, in order, and none is ever out of sight."""

from __future__ import annotations

import collections
import itertools
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

import litequeue
from litequeue import ANY, JobNotFound, JobState, NewJob

if TYPE_CHECKING:
    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow

JOBS = 20_000
LOOKS, MOST_LOOKS = 10_000, 200_000


def _work_off(parent: Parent, path: str, log: str, batch: int) -> int:
    """Lease and complete in batches until the queue is empty; write down each lease in a log of one's own."""
    queue = litequeue.open(path, durability="normal", busy_timeout=60)
    parent.say("ready")
    parent.hear()
    taken = 0
    with Path(log).open("w", encoding="ascii") as leased:
        while leases := queue.lease_many(batch):
            leased.writelines(f"{lease.payload}\n" for lease in leases)
            assert queue.complete_many(leases) == []
            taken += len(leases)
    return taken


def test_four_processes_and_20000_jobs_each_leased_exactly_once(path: str, tmp_path: Path, processes: Children) -> None:
    """Every job is leased by one process, once, and each process sees its own in commit order (G1, G4)."""
    with litequeue.open(path, durability="normal") as queue:
        for start in range(0, JOBS, 5000):
            queue.enqueue_many(NewJob("work", start + number) for number in range(5000))
    logs = [tmp_path / f"leased-{number}" for number in range(4)]
    batches = [1, 3, 10, 100]
    workers = [processes.start(_work_off, path, str(log), batch) for log, batch in zip(logs, batches, strict=True)]
    for worker in workers:
        assert worker.hear() == "ready"
    for worker in workers:
        worker.say("go")
    taken = [worker.result(110) for worker in workers]
    leased = [[int(line) for line in log.read_text(encoding="ascii").split()] for log in logs]
    assert [len(one) for one in leased] == taken
    assert sorted(itertools.chain.from_iterable(leased)) == list(range(JOBS))
    for one in leased:
        assert one == sorted(one)
    assert all(leased), "each of the four had a turn"
    with litequeue.open(path) as queue:
        stats = queue.stats()
        assert (stats.total, stats.counts[JobState.COMPLETED]) == (JOBS, JOBS)


def test_eight_threads_of_one_handle_and_400_jobs_each_leased_exactly_once(path: str) -> None:
    """One handle serves many threads; no job is given out twice (G1, §9)."""
    with litequeue.open(path, durability="normal", busy_timeout=60) as queue:
        queue.enqueue_many(NewJob("work", number) for number in range(400))
        leased: list[list[object]] = [[] for _ in range(8)]
        failures: list[BaseException] = []
        together = threading.Barrier(8)

        def work(mine: list[object]) -> None:
            try:
                together.wait()
                while (lease := queue.lease_next()) is not None:
                    mine.append(lease.payload)
                    lease.complete()
            except BaseException as exc:  # noqa: BLE001 - told to the test
                failures.append(exc)

        threads = [threading.Thread(target=work, args=(mine,)) for mine in leased]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures
        assert collections.Counter(itertools.chain.from_iterable(leased)) == dict.fromkeys(range(400), 1)


def _move_for_ever(parent: Parent, path: str, job_id: str) -> None:
    """Move one job through its states, again and again."""
    queue = litequeue.open(path, durability="normal")
    parent.say("moving")
    while True:
        queue.retry(job_id)
        for _ in range(2):
            lease = queue.lease_next()
            assert lease is not None
            lease.release()
        lease = queue.lease_next()
        assert lease is not None
        lease.fail("again", delay=3600)
        queue.retry(job_id)
        lease = queue.lease_next()
        assert lease is not None
        lease.complete()
        queue.retry(job_id)
        queue.cancel(job_id)


def test_a_job_that_moves_is_never_reported_missing(path: str, processes: Children) -> None:
    """`get`, `list` and `stats` beside a process that moves the job see it each time, once (V13)."""
    with litequeue.open(path, durability="normal") as queue:
        job_id = queue.enqueue("work").job_id
        queue.cancel(job_id)
        mover = processes.start(_move_for_ever, path, str(job_id))
        assert mover.hear() == "moving"
        seen: collections.Counter[JobState] = collections.Counter()
        every = {JobState.PENDING, JobState.LEASED, JobState.COMPLETED, JobState.RETRYABLE}
        for number in range(MOST_LOOKS):
            if number >= LOOKS and every <= set(seen):  # some states are short, and are met late where others work, too
                break
            try:
                seen[queue.get(job_id).state] += 1
            except JobNotFound:
                pytest.fail(f"missing at the {number}th look, after {seen}")
            if number % 20 == 0:
                assert [job.job_id for job in queue.list()] == [job_id]
                assert queue.stats().total == 1
        assert mover.is_running()
        assert set(seen) >= every


def _enqueue_in_turn(parent: Parent, path: str) -> None:
    """Enqueue one job whenever the test says so."""
    queue = litequeue.open(path, durability="normal")
    parent.say("ready")
    while True:
        queue.enqueue("work", int(parent.hear()))
        parent.say("done")


def test_jobs_of_several_processes_are_leased_in_commit_order(path: str, processes: Children) -> None:
    """First in, first out across processes, by the order of the commits (G4)."""
    producers = [processes.start(_enqueue_in_turn, path) for _ in range(3)]
    for producer in producers:
        assert producer.hear() == "ready"
    for number in range(90):
        producer = producers[number * 7 % 3]
        producer.say(str(number))
        assert producer.hear() == "done"
    with litequeue.open(path) as queue:
        assert [lease.payload for lease in queue.lease_many(90)] == list(range(90))


def _see_each_commit(parent: Parent, path: str) -> None:
    """Read what the test has just committed, whenever it says so."""
    queue = litequeue.open(path)
    parent.say("ready")
    while True:
        job_id, ttl = parent.hear().split()
        job = queue.get(job_id)
        parent.say(f"{job.state.name} {queue.settings()['lease_ttl']} {ttl}")


def test_what_one_process_has_committed_the_next_read_of_another_one_sees(path: str, processes: Children) -> None:
    """A job and a setting are there for every read that begins after the commit (G2, §5)."""
    with litequeue.open(path) as queue:
        reader = processes.start(_see_each_commit, path)
        assert reader.hear() == "ready"
        for ttl in range(10, 20):
            made = queue.enqueue("work")
            queue.set("lease_ttl", ttl)
            reader.say(f"{made.job_id} {ttl}")
            assert reader.hear() == f"PENDING {ttl} {ttl}"


def _work_round(parent: Parent, path: str, batch: int) -> list[tuple[int, str]]:
    """Lease from every scope in batches until nothing is left; return the scopes, each with a number of its batch."""
    served: list[tuple[int, str]] = []
    with litequeue.open(path, durability="normal", busy_timeout=60) as queue:
        parent.say("ready")
        parent.hear()
        while leases := queue.lease_many(batch, scope=ANY):
            with queue.transaction() as tx:
                ((at,),) = tx.execute("SELECT leased_at FROM litequeue_job WHERE job_id = ?", (leases[0].raw_job_id,))
            served += [(cast("int", at), str(lease.scope)) for lease in leases]
            assert queue.complete_many(leases) == []
    return served


def test_four_processes_go_round_the_scopes_as_one_would(path: str, processes: Children) -> None:
    """Whose turn it is, is exact over processes: in the order of their commits they serve in turn, by weight (V12)."""
    scopes = [f"scope {number:02}" for number in range(20)]
    with litequeue.open(path, durability="normal") as queue:
        queue.set_weight(scopes[3], 3)
        queue.enqueue_many(NewJob("work", n, scope=scope) for n in range(60) for scope in scopes)
    workers = [processes.start(_work_round, path, batch) for batch in (1, 2, 3, 7)]
    for worker in workers:
        assert worker.hear() == "ready"
    for worker in workers:
        worker.say("go")
    taken = [cast("list[list[object]]", worker.result(110)) for worker in workers]
    assert all(taken), "each of the four had a turn"
    in_order = sorted(itertools.chain.from_iterable(taken), key=lambda one: cast("int", one[0]))
    turn = [scope for scope in scopes for _ in range(3 if scope == scopes[3] else 1)]
    rounds = 60 // 3  # until the one of weight 3 is empty
    assert [scope for _, scope in in_order[: rounds * len(turn)]] == turn * rounds
    rest = [scope for scope in scopes if scope != scopes[3]]
    assert [scope for _, scope in in_order[rounds * len(turn) :]] == rest * (60 - rounds)
