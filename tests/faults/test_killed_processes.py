"""`kill -9`, at any moment: what was acknowledged is there, and what the dead held is done by others.

Nothing here waits for a time: the test kills a child right after it has heard so many acknowledgements, at whatever
the child is doing by then.
"""

from __future__ import annotations

import itertools
import random
import time
from typing import TYPE_CHECKING, Literal

import pytest

import litequeue
from litequeue import ANY, JobState, NewJob

if TYPE_CHECKING:
    from tests.faults.children import Child, Children, Parent

    Durability = Literal["full", "enqueue", "normal"]

pytestmark = pytest.mark.slow


def _produce(parent: Parent, path: str, durability: Durability, name: str) -> None:
    """Enqueue for ever, alone, in batches and in transactions; say each job that was acknowledged."""
    queue = litequeue.open(path, durability=durability)
    for number in itertools.count():
        match number % 3:
            case 0:
                made = [queue.enqueue(name, "x" * (number * 37 % 5000))]
            case 1:
                made = queue.enqueue_many(NewJob(name, number) for _ in range(5))
            case _:
                with queue.transaction() as tx:
                    made = [tx.enqueue(name, number), tx.enqueue(name, number, delay=3600)]
        parent.say(" ".join(str(one.job_id) for one in made))


def _consume(parent: Parent, path: str, durability: Durability) -> None:
    """Lease and complete for ever; say each job whose completion was acknowledged."""
    queue = litequeue.open(path, durability=durability)
    while True:
        leases = queue.lease_many(3, ttl=0.2)
        queue.complete_many(leases, [str(lease.job_id) for lease in leases])
        if leases:
            parent.say(" ".join(str(lease.job_id) for lease in leases))


def _hear_until_killed(child: Child, count: int) -> list[str]:
    """Hear so many lines, kill the child, and return all that it had said, the end included."""
    lines = [child.hear() for _ in range(count)]
    child.kill()
    return " ".join([*lines, *child.rest()]).split()


@pytest.mark.parametrize("durability", ["full", "enqueue", "normal"])
def test_every_acknowledged_job_survives_kill_9(path: str, processes: Children, durability: Durability) -> None:
    """Three writers are killed at random moments, again and again (G2, §7).

    Nothing that was acknowledged is missing, no completed job is open again, and the file is sound.
    """
    draw = random.Random(2)
    enqueued: set[str] = set()
    completed: set[str] = set()
    for _ in range(8):
        first = processes.start(_produce, path, durability, "a")
        second = processes.start(_produce, path, durability, "b")
        consumer = processes.start(_consume, path, durability)
        enqueued.update(_hear_until_killed(first, draw.randrange(1, 15)))
        completed.update(_hear_until_killed(consumer, draw.randrange(1, 15)))
        enqueued.update(_hear_until_killed(second, draw.randrange(1, 15)))
    states, check = _look(path)
    assert check == [("ok",)]
    assert enqueued - states.keys() == set()
    assert {job_id for job_id in completed if states.get(job_id) is not JobState.COMPLETED} == set()


def _look(path: str) -> tuple[dict[str, JobState], list[tuple[object, ...]]]:
    """Return the state of every job, and what SQLite says of the file."""
    with litequeue.open(path, create=False) as queue:
        states: dict[str, JobState] = {}
        last = None
        while page := queue.list(scope=ANY, limit=10_000, after=last):
            states.update({str(job.job_id): job.state for job in page})
            last = page[-1]
        with queue.transaction() as tx:
            return states, list(tx.execute("PRAGMA integrity_check"))


def _lease_and_wait(parent: Parent, path: str, count: int, ttl_s: float) -> None:
    queue = litequeue.open(path)
    leases = queue.lease_many(count, ttl=ttl_s)
    parent.say(" ".join(str(lease.job_id) for lease in leases))
    parent.hear()


def _do_everything(_parent: Parent, path: str) -> list[str]:
    """Work until nothing is left that could be leased now or later; return what was done."""
    queue = litequeue.open(path)
    done: list[str] = []
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        lease = queue.lease_next()
        if lease is not None:
            lease.complete()
            done.append(str(lease.job_id))
        elif not any(count for state, count in queue.stats().counts.items() if not state.is_terminal):
            break
    return done


def test_the_jobs_of_a_killed_worker_are_done_by_another(path: str, processes: Children) -> None:
    """A worker that is killed with leases is reaped by the others' lease calls, with no maintenance (G5, §3)."""
    with litequeue.open(path) as queue:
        queue.set("backoff_base", 0)
        expected = {str(made.job_id) for made in queue.enqueue_many(NewJob("work") for _ in range(20))}
    victim = processes.start(_lease_and_wait, path, 10, 0.5)
    held = set(victim.hear().split())
    assert len(held) == 10
    worker = processes.start(_do_everything, path)
    victim.kill()
    done = worker.result()
    assert isinstance(done, list)
    assert sorted(done) == sorted(expected)
    with litequeue.open(path) as queue:
        jobs = {str(job.job_id): job for job in queue.list(limit=100)}
    assert {job_id: (job.attempts, job.reaps) for job_id, job in jobs.items()} == {
        job_id: (2, 1) if job_id in held else (1, 0) for job_id in expected
    }


def _be_killed_by_a_job(parent: Parent, path: str) -> None:
    """Lease in batches; when the killer is among them, wait for the end, else complete and go on."""
    queue = litequeue.open(path)
    while True:
        leases = queue.lease_many(20, ttl=0.2)
        if any(lease.kind == "killer" for lease in leases):
            parent.say("killer")
            parent.hear()
        queue.complete_many(leases)


def test_a_job_that_kills_every_worker_is_dead_after_max_attempts_and_takes_nobody_with_it(
    path: str, processes: Children
) -> None:
    """The killer is leased with 20 others once, then alone; its neighbours are charged at most once (G6, V3)."""
    with litequeue.open(path) as queue:
        queue.set("backoff_base", 0)
        queue.set("max_attempts", 3)
        killer = queue.enqueue("killer").job_id
        queue.enqueue_many(NewJob("neighbour") for _ in range(19))
    for _ in range(3):
        victim = processes.start(_be_killed_by_a_job, path)
        assert victim.hear() == "killer"
        victim.kill()
    processes.run(_do_everything, path)
    with litequeue.open(path) as queue:
        dead = queue.get(killer)
        assert (dead.attempts, dead.reaps, dead.last_error) == (3, 3, "lease expired")
        transitions = [event.transition.value for event in dead.events]
        assert [transitions.count(name) for name in ("leased", "reaped", "dead")] == [3, 3, 1]
        neighbours = queue.list(kind="neighbour", limit=100)
        assert {job.state for job in neighbours} == {JobState.COMPLETED}
        assert max(job.reaps for job in neighbours) <= 1


def _close_and_open(parent: Parent, path: str) -> None:
    """Open, enqueue and close for ever, so that a kill often meets an opening or the last close."""
    while True:
        with litequeue.open(path) as queue:
            made = queue.enqueue("work")
        parent.say(str(made.job_id))


def test_processes_killed_while_they_open_and_close_lose_nothing(path: str, processes: Children) -> None:
    """A kill in the middle of an opening, a checkpoint or the removal of the log is survived (G2, §6)."""
    draw = random.Random(3)
    acknowledged: set[str] = set()
    for _ in range(8):
        children = [processes.start(_close_and_open, path) for _ in range(2)]
        for child in children:
            acknowledged.update(_hear_until_killed(child, draw.randrange(1, 30)))
    states, check = _look(path)
    assert check == [("ok",)]
    assert acknowledged - states.keys() == set()
