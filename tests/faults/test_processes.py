"""Processes and threads around one handle: pools, daemons, spawned programs, and a close beside everything.

What `test_fork` and `test_fork_transactions` show of bare forks is not repeated here. Nothing is lost, and nothing is
shared by accident: a child is another worker, and what its parent holds is not its own.
"""

from __future__ import annotations

import collections
import json
import os
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import ANY, JobState, LeaseConflict, Maintenance, NewJob, QueueClosed

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from litequeue import Queue
    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow

THREADS = 16
PATIENCE_S = 60.0


def _assert_sound(queue: Queue) -> None:
    with queue.transaction() as tx:
        assert tx.execute("PRAGMA integrity_check") == [("ok",)]


# --- pools


@pytest.mark.parametrize("pool", ["pool", "pool that renews its processes", "executor"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_pool_of_processes_uses_the_handle_in_a_global(path: str, method: str, pool: str) -> None:
    """`multiprocessing` and `concurrent.futures`, by every start method: each process is a worker of its own (§6)."""
    program = Path(__file__).with_name("pool_program.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run(
        [sys.executable, str(program), path, method, pool],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[list[object]] = json.loads(done.stdout)
    workers = {(pid, worker) for pid, worker, _, _ in answers}
    assert len(workers) == len({pid for pid, _ in workers}) == len({worker for _, worker in workers}) > 1
    assert len({enqueued for _, _, enqueued, _ in answers}) == len(answers)
    assert len({completed for _, _, _, completed in answers}) == len(answers)
    with litequeue.open(path, create=False) as queue:
        jobs = {str(job.job_id): job for job in queue.list(limit=1000)}
        assert len(jobs) == len(answers) + 1
        assert {job.state for job in jobs.values()} == {JobState.COMPLETED}
        assert {job.attempts for job in jobs.values()} == {1}
        _assert_sound(queue)


# --- programs that are started


def _look_at_descriptors(parent: Parent, path: str, how: str) -> list[str]:
    """Start another program from a process with an open handle; return the queue's files that it has inherited."""
    queue = litequeue.open(path)
    queue.enqueue("work")
    assert queue.lease_next() is not None  # presence has its lock too
    look = (
        "import os, sys\n"
        "def target(name):\n"
        "    try: return os.readlink('/proc/self/fd/' + name)\n"
        "    except OSError: return ''\n"
        "print(*[one for one in map(target, os.listdir('/proc/self/fd')) if one.startswith(sys.argv[1])], sep='\\n')\n"
    )
    command = [sys.executable, "-c", look, path]
    with queue.transaction() as tx:  # at the worst moment
        tx.enqueue("work")
        if how == "posix_spawn":
            told, tell = os.pipe()
            pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, tell, 1)])
            os.close(tell)
            with os.fdopen(told) as heard:
                said = heard.read()
            parent.join(pid)
        else:
            said = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, close_fds=how == "subprocess", check=True
            ).stdout
    assert queue.stats().total == 2
    return said.split()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc")
@pytest.mark.parametrize("how", ["subprocess", "subprocess with close_fds=False", "posix_spawn"])
def test_a_started_program_inherits_no_descriptor_of_the_queue(path: str, processes: Children, how: str) -> None:
    """Neither the file nor what lies beside it, also from the middle of a transaction (§6; DESIGN §3, "fork")."""
    assert processes.run(_look_at_descriptors, path, how) == []


# --- daemons


def _daemonise_with_a_lease(_parent: Parent, path: str) -> None:
    """Open, lease, then fork twice and exit, as daemons do; the daemon goes on by the handle of its grandparent."""
    queue = litequeue.open(path)
    lease = queue.lease_next()
    assert lease is not None
    alive, daemon_end = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        lease.complete("the daemon's")
        own = queue.lease_next()
        assert own is not None
        own.complete(queue.worker_id != lease.worker_id)
        queue.close()
        os._exit(0)
    os.close(daemon_end)
    os.read(alive, 1)  # until the daemon has ended, and nobody can write to the pipe
    with pytest.raises(LeaseConflict):
        lease.complete("too late")
    queue.close()


def test_a_daemon_works_on_by_the_handle_of_the_process_that_started_it(path: str, processes: Children) -> None:
    """It is another worker; a lease that was taken before the fork is obeyed once, in either process (G1, §6)."""
    with litequeue.open(path) as queue:
        jobs = [made.job_id for made in queue.enqueue_many([NewJob("work")] * 2)]
    processes.run(_daemonise_with_a_lease, path)
    with litequeue.open(path) as queue:
        assert [queue.get(job_id).result for job_id in jobs] == ["the daemon's", True]


# --- forks beside threads


def _fork_from_threads(parent: Parent, path: str, rounds: int) -> list[int]:
    """Fork from several threads at once, while others lease and complete and a maintainer does its passes."""
    queue = litequeue.open(path, durability="normal", busy_timeout=PATIENCE_S)
    is_over = threading.Event()
    maintenance = Maintenance(queue)
    completed = 0

    def work() -> int:
        done = 0
        while not is_over.is_set():
            queue.enqueue("of the parent")
            lease = queue.lease_next(kinds=["of the parent"])
            if lease is not None:
                lease.complete()
                done += 1
        return done

    def child() -> None:
        queue.enqueue("of a child")
        lease = queue.lease_next(kinds=["of a child"])
        assert lease is not None
        lease.complete()

    def fork() -> int:
        for _ in range(rounds):
            parent.join(parent.fork(child))
        return rounds

    with ThreadPoolExecutor(8) as threads:
        maintaining = threads.submit(maintenance.run, 0.001)
        working = [threads.submit(work) for _ in range(3)]
        forking = [threads.submit(fork) for _ in range(3)]
        forked = sum(future.result() for future in forking)
        is_over.set()
        completed = sum(future.result() for future in working)
        maintenance.stop()
        maintaining.result()
    by_kind = queue.stats().by_kind
    assert forked == sum(by_kind["of a child"].values())
    _assert_sound(queue)
    queue.close()
    return [
        by_kind["of a child"][JobState.COMPLETED] - forked,
        sum(by_kind["of the parent"].values()) - completed - by_kind["of the parent"].get(JobState.PENDING, 0),
        by_kind["of the parent"].get(JobState.LEASED, 0),
    ]


def test_forks_from_threads_beside_workers_and_maintenance_lose_nothing(path: str, processes: Children) -> None:
    """Each child does its work by the same handle, and the parent's threads go on with theirs (G1, G2, §6)."""
    assert processes.run(_fork_from_threads, path, 12) == [0, 0, 0]


def _lead_and_fork(parent: Parent, path: str) -> None:
    """Maintain in a thread, fork a child that outlives this process, and be killed."""
    queue = litequeue.open(path)
    threading.Thread(target=Maintenance(queue).run, args=(0.01,), daemon=True).start()
    job_id = queue.enqueue("work", delay=0.001).job_id
    deadline = time.monotonic() + PATIENCE_S
    while queue.get(job_id).state is JobState.SCHEDULED:  # until the maintainer leads
        assert time.monotonic() < deadline
        time.sleep(0.001)
    pid = os.fork()
    if pid == 0:
        parent.hear()  # until the test ends, long after the parent
        os._exit(0)
    parent.say("maintaining")
    parent.hear()


def test_a_child_that_outlives_a_maintainer_does_not_keep_its_lead(path: str, processes: Children) -> None:
    """Fork while maintenance runs in a thread: when its process dies another one takes over at once (G5, §6)."""
    leader = processes.start(_lead_and_fork, path)
    assert leader.hear() == "maintaining"
    leader.kill()
    with litequeue.open(path) as queue:
        maintenance = Maintenance(queue)
        job_id = queue.enqueue("work", delay=0.001).job_id
        thread = threading.Thread(target=maintenance.run, args=(0.01,))
        thread.start()
        deadline = time.monotonic() + PATIENCE_S
        while queue.get(job_id).state is JobState.SCHEDULED and time.monotonic() < deadline:
            time.sleep(0.001)
        maintenance.stop()
        thread.join()
        assert queue.get(job_id).state is JobState.PENDING


# --- threads


class _Tally:
    """What the threads were told, to hold the file against."""

    def __init__(self) -> None:
        self.enqueued: list[UUID] = []
        self.ended: collections.Counter[str] = collections.Counter()
        self.settled: dict[UUID, JobState] = {}

    def settle(self, job_id: UUID, state: JobState) -> None:
        """Note how a job ended; once, or the same lease was obeyed twice."""
        assert job_id not in self.settled
        self.settled[job_id] = state


def _enqueue(queue: Queue, tally: _Tally) -> None:
    tally.enqueued.append(queue.enqueue("work").job_id)
    tally.enqueued += [made.job_id for made in queue.enqueue_many([NewJob("work")] * 2)]


def _transact(queue: Queue, tally: _Tally) -> None:
    with queue.transaction() as tx:
        made = tx.enqueue("work").job_id
    tally.enqueued.append(made)


def _read(queue: Queue, _: _Tally) -> None:
    assert queue.stats().total >= 0
    for job in queue.list(limit=3):
        assert queue.get(job.job_id).job_id == job.job_id


def _maintain(queue: Queue, _: _Tally) -> None:
    Maintenance(queue).run_once()


def _cancel(queue: Queue, tally: _Tally) -> None:
    for job in queue.list(state=JobState.PENDING, limit=1):
        queue.cancel(job.job_id)
        tally.settle(job.job_id, JobState.CANCELLED)


def _complete_many(queue: Queue, tally: _Tally) -> None:
    leases = queue.lease_many(3)
    lost = {conflict.job_id for conflict in queue.complete_many(leases)}
    for lease in leases:
        if lease.job_id not in lost:
            tally.settle(lease.job_id, JobState.COMPLETED)


def _give_back(queue: Queue, _: _Tally) -> None:
    leases = queue.lease_many(2)
    queue.extend_many(leases)
    queue.release_many(leases)


def _work(queue: Queue, tally: _Tally) -> None:
    lease = queue.lease_next()
    if lease is not None:
        lease.note("mine")
        lease.checkpoint(b"half", progress=0.5)
        lease.complete("done")
        tally.settle(lease.job_id, JobState.COMPLETED)


def _work_in_a_transaction(queue: Queue, tally: _Tally) -> None:
    lease = queue.lease_next()
    if lease is not None:
        with lease.transaction():
            pass
        tally.settle(lease.job_id, JobState.COMPLETED)


def _fail(queue: Queue, tally: _Tally) -> None:
    for is_final in (False, True):
        lease = queue.lease_next()
        if lease is not None:
            lease.fail("boom", retryable=not is_final, delay=0)
            if is_final:
                tally.settle(lease.job_id, JobState.DEAD)


EVERYTHING = (
    _enqueue,
    _transact,
    _read,
    _maintain,
    _cancel,
    _complete_many,
    _give_back,
    _work,
    _work_in_a_transaction,
    _fail,
)


def _in_threads(work: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        for future in [pool.submit(work, number) for number in range(THREADS)]:
            future.result(PATIENCE_S)


def _compare(queue: Queue, tally: _Tally) -> None:
    jobs = {job.job_id: job for job in queue.list(scope=ANY, limit=10_000)}
    assert set(tally.enqueued) == set(jobs)
    assert len(tally.enqueued) == len(jobs)
    assert {job_id: jobs[job_id].state for job_id in tally.settled} == tally.settled
    _assert_sound(queue)


def test_sixteen_threads_do_everything_by_one_handle(path: str) -> None:
    """Every verb in every thread, all at once: each answer is true, and nothing stays leased (G1, G2, §9)."""
    tally = _Tally()
    with litequeue.open(path, durability="normal", busy_timeout=PATIENCE_S) as queue:
        queue.set("max_attempts", 1000)

        def work(number: int) -> None:
            dice = random.Random(number)
            for _ in range(40):
                try:
                    dice.choice(EVERYTHING)(queue, tally)
                except (LeaseConflict, litequeue.InvalidTransition):
                    tally.ended["conflict"] += 1

        _in_threads(work)
        _compare(queue, tally)
        assert not queue.list(state=JobState.LEASED), "every lease was given back or ended"


def test_a_close_beside_sixteen_threads_answers_each_of_them(path: str) -> None:
    """Each verb is answered or is `QueueClosed`, what was answered holds, and nothing stays leased (G2, G11, §9)."""
    tally = _Tally()
    for turn in range(5):
        queue = litequeue.open(path, durability="normal", busy_timeout=PATIENCE_S)
        queue.set("max_attempts", 1000)
        begun = threading.Barrier(THREADS)

        def work(
            number: int, queue: Queue = queue, begun: threading.Barrier = begun, dice_of: int = 1000 * turn
        ) -> None:
            dice = random.Random(dice_of + number)
            begun.wait(PATIENCE_S)
            for _ in range(5 if number == 0 else 10_000):
                try:
                    dice.choice(EVERYTHING)(queue, tally)
                except (LeaseConflict, litequeue.InvalidTransition):
                    tally.ended["conflict"] += 1
                except QueueClosed:
                    tally.ended["closed"] += 1
                    return
            queue.close()

        _in_threads(work)
        assert tally.ended["closed"] == (turn + 1) * (THREADS - 1)
    with litequeue.open(path) as after:
        _compare(after, tally)
        assert not after.list(state=JobState.LEASED), "the close has released what was held"
