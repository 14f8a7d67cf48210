"""Chains and batches whose workers are killed: each job ends as its parents have it (issue 7, item 4; G2, G5, G7).

What is to become of each job is told by a model of a few lines: it knows which jobs fail, and follows the chain. The
seeds are drawn anew each time and printed.
"""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

import litequeue
from litequeue import ANY, Discard, JobState, Lease, Maintenance, NewJob, Queue, Worker
from litequeue.sqlite import ofd
from litequeue.sqlite.examining import problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from litequeue.model import OnParentFailure
    from tests.faults.children import Child, Children, Parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ofd.HAS_LOCKS, reason="this platform does not tell who has died"),
]

LINKS = 1_000
MEMBERS = 10_000
CHILDREN = 350
"""More than one transaction tells, several times over."""
KILLS = 10
PATIENCE_S = 300.0
"""After which nothing goes on: far above what a loaded machine takes."""


@pytest.fixture
def draw() -> random.Random:
    """Give a source of chance, and say where it began."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    return random.Random(seed)


def prepare(queue: Queue) -> None:
    """Make the table of runs; only what fails for good is ever dead, and back-off takes no time."""
    with queue.transaction() as tx:
        tx.execute("CREATE TABLE runs (at INTEGER PRIMARY KEY, job TEXT NOT NULL, said TEXT NOT NULL)")
        tx.set("backoff_base", 0)
        tx.set("max_attempts", 100_000)


def runs(queue: Queue) -> list[tuple[str, str]]:
    """Return what the runs that were committed have written, in their order."""
    with queue.transaction() as tx:
        return [(str(job), str(said)) for job, said in tx.execute("SELECT job, said FROM runs ORDER BY at")]


def states(queue: Queue) -> dict[UUID, JobState]:
    """Return the state of every job."""
    found: dict[UUID, JobState] = {}
    last = None
    while page := queue.list(scope=ANY, limit=10_000, after=last):
        found |= {job.job_id: job.state for job in page}
        last = page[-1]
    return found


# --- a chain


def link(lease: Lease) -> None:
    """Do one link of the chain: see that its parents have ended, and write that it ran, in the commit of its end."""
    payload = lease.payload
    assert isinstance(payload, dict)
    with lease.transaction() as tx:
        ended = all(tx.get(parent).state.is_terminal for parent in payload["parents"])
        tx.execute("INSERT INTO runs (job, said) VALUES (?, ?)", (str(lease.job_id), str(ended)))
        if payload["fails"]:
            tx.fail(lease, "it was to be", retryable=False)


def plain(lease: Lease) -> None:
    """Do one link of the chain as most handlers do, so that the worker ends it."""
    payload = lease.payload
    assert isinstance(payload, dict)
    if payload["fails"]:
        raise Discard("it was to be")


def _work(_parent: Parent, path: str) -> None:
    with litequeue.open(path, durability="normal") as queue:
        Worker(queue, {"link": link, "plain": plain}, concurrency=4).run()


class Link:
    """One job of the chain, as the model has it."""

    def __init__(self, draw: random.Random, earlier: list[UUID]) -> None:
        self.job_id = UUID(int=draw.getrandbits(128))
        self.parents = earlier[-1:]
        if earlier and draw.random() < 0.2:
            self.parents = sorted({earlier[-1], draw.choice(earlier)})
        self.policy: OnParentFailure = "run" if draw.random() < 0.6 else "cancel"
        self.fails = draw.random() < 0.1
        self.kind = draw.choice(("link", "plain"))

    @property
    def job(self) -> NewJob:
        """What is enqueued."""
        payload = {"fails": self.fails, "parents": [str(parent) for parent in self.parents]}
        return NewJob(
            self.kind, payload, job_id=self.job_id, after=self.parents, on_parent_failure=self.policy, priority=100
        )

    def end(self, ends: Mapping[UUID, JobState]) -> JobState:
        """Return how it ends, when its parents end so."""
        if self.policy == "cancel" and any(ends[parent] is not JobState.COMPLETED for parent in self.parents):
            return JobState.CANCELLED
        return JobState.DEAD if self.fails else JobState.COMPLETED


def test_a_chain_of_a_thousand_jobs_ends_as_its_model_says(path: str, processes: Children, draw: random.Random) -> None:
    """Whatever fails and is cancelled, and whichever worker is killed when: each link ran when it was due, and once."""
    chain: list[Link] = []
    for _ in range(LINKS):
        chain.append(Link(draw, [link.job_id for link in chain]))
    with litequeue.open(path, durability="normal") as queue:
        prepare(queue)
        queue.enqueue_many(link.job for link in chain)
        workers = [processes.start(_work, path) for _ in range(3)]
        stopped: set[UUID] = set()
        for at in _milestones(LINKS):
            _until(lambda at=at: _ended(queue) >= at)  # type: ignore[misc] # the value of now
            workers = _killed(draw, workers, lambda: processes.start(_work, path))
            ahead = draw.choice(chain[min(at + 20, LINKS - 1) :])
            if not queue.cancel_many([ahead.job_id]):
                stopped.add(ahead.job_id)
        _until(lambda: _ended(queue) == LINKS)
        for worker in workers:
            worker.kill()
        expected: dict[UUID, JobState] = {}
        for link in chain:
            expected[link.job_id] = JobState.CANCELLED if link.job_id in stopped else link.end(expected)
        found = states(queue)
        assert [str(found[link.job_id]) for link in chain] == [str(expected[link.job_id]) for link in chain]
        written = runs(queue)
        assert {said for _, said in written} <= {"True"}, "one ran before its parents had ended"
        ran = [link.job_id for link in chain if link.kind == "link" and found[link.job_id] is not JobState.CANCELLED]
        assert sorted(job for job, _ in written) == sorted(map(str, ran)), "each once"
        order = {job: at for at, (job, _) in enumerate(written)}
        for link in chain:
            mine = order.get(str(link.job_id), LINKS)
            assert all(order.get(str(parent), -1) < mine for parent in link.parents)
    assert problems(path) == []


# --- a batch


def _do_members(_parent: Parent, path: str, seed: int) -> None:
    """Do members in batches of any size, and the jobs behind them in transactions of their own, for ever."""
    draw = random.Random(seed)
    with litequeue.open(path, durability="normal") as queue:
        while True:
            leases = queue.lease_many(draw.randint(1, 100), ["member"])
            queue.fail_many([lease for lease in leases if lease.payload], "it was to be", retryable=False)
            queue.complete_many([lease for lease in leases if not lease.payload])
            lease = queue.lease_next(["last", "after"])
            if lease is not None:
                with lease.transaction() as tx:
                    group = tx.dependencies(lease.job_id)
                    said = f"{group.completed} {group.dead} {group.cancelled} {group.missing}"
                    tx.execute("INSERT INTO runs (job, said) VALUES (?, ?)", (lease.kind, said))
            elif not leases:
                queue.wait(0.1, ["member", "last", "after"])


def test_a_batch_of_ten_thousand_jobs_ends_as_its_model_says(
    path: str, processes: Children, draw: random.Random
) -> None:
    """Whatever fails and is cancelled, and whoever is killed when: the last job runs once, at the end, and knows."""
    with litequeue.open(path, durability="normal") as queue:
        prepare(queue)
        fails = [draw.random() < 0.05 for _ in range(MEMBERS)]
        batch = queue.batch([NewJob("member", is_bad) for is_bad in fails], NewJob("last"))
        queue.enqueue("after", after=[batch.then.job_id])
        workers = [processes.start(_do_members, path, draw.randrange(2**32)) for _ in range(3)]
        stopped: set[int] = set()
        for at in _milestones(MEMBERS):
            _until(lambda at=at: _ended(queue) >= at, queue)  # type: ignore[misc] # the value of now
            workers = _killed(draw, workers, lambda: processes.start(_do_members, path, draw.randrange(2**32)))
            victim = draw.randrange(at, MEMBERS)
            if not queue.cancel_many([batch.jobs[victim].job_id]):
                stopped.add(victim)
        _until(lambda: _ended(queue) == MEMBERS + 2, queue)
        for worker in workers:
            worker.kill()
        dead = sum(is_bad for number, is_bad in enumerate(fails) if number not in stopped)
        counts = f"{MEMBERS - dead - len(stopped)} {dead} {len(stopped)} 0"
        assert runs(queue) == [("last", counts), ("after", "1 0 0 0")]
        found = states(queue)
        for number, (result, is_bad) in enumerate(zip(batch.jobs, fails, strict=True)):
            expected = JobState.DEAD if is_bad else JobState.COMPLETED
            assert found[result.job_id] is (JobState.CANCELLED if number in stopped else expected)
    assert problems(path) == []


# --- one death at a time


def _end_a_parent(parent: Parent, path: str, when: str) -> None:
    queue = litequeue.open(path, durability="normal")
    lease = queue.lease_next(["parent"])
    assert lease is not None
    if when == "after the commit":
        lease.complete()
        parent.say("done")
    else:
        with queue.transaction() as tx:
            tx.complete(lease)
            parent.say("done")
            os.kill(os.getpid(), signal.SIGKILL)
    parent.hear()


def _lease_another_kind(_parent: Parent, path: str) -> None:
    with litequeue.open(path, durability="normal") as queue:
        assert queue.lease_next(["none"]) is None


def _maintain(_parent: Parent, path: str) -> None:
    with litequeue.open(path, durability="normal") as queue:
        assert Maintenance(queue).run_once().told == CHILDREN - 100


def _wait_for_a_child(parent: Parent, path: str) -> None:
    with litequeue.open(path, durability="normal") as queue:
        parent.say("waits")
        while (lease := queue.lease_next(["last child"])) is None:
            queue.wait(60, ["last child"])
        lease.complete()


RESCUERS: dict[str, Callable[[Parent, str], None]] = {
    "a lease call of another kind": _lease_another_kind,
    "a pass of maintenance": _maintain,
    "a worker that waits for the last child": _wait_for_a_child,
}


@pytest.fixture
def family(path: str) -> Iterator[tuple[Queue, list[UUID]]]:
    """Give a parent with many children, the last one of a kind of its own."""
    with litequeue.open(path, durability="normal") as queue:
        parent = queue.enqueue("parent").job_id
        kinds = [*["child"] * (CHILDREN - 1), "last child"]
        yield queue, [made.job_id for made in queue.enqueue_many(NewJob(kind, after=[parent]) for kind in kinds)]


@pytest.mark.parametrize("rescuer", RESCUERS)
def test_children_of_a_job_whose_worker_dies_after_the_commit_are_told_by_anybody(
    path: str, processes: Children, family: tuple[Queue, list[UUID]], rescuer: str
) -> None:
    """A hundred were told in its commit; the rest stands in the file, and whoever comes next does it (G5)."""
    queue, children = family
    waiter = processes.start(RESCUERS[rescuer], path) if rescuer.startswith("a worker") else None
    if waiter is not None:
        assert waiter.hear() == "waits"
    victim = processes.start(_end_a_parent, path, "after the commit")
    assert victim.hear() == "done"
    victim.kill()
    if waiter is not None:
        waiter.result()
    else:
        assert queue.stats().counts[JobState.WAITING] == CHILDREN - 100
        processes.run(RESCUERS[rescuer], path)
    found = states(queue)
    assert {found[child] for child in children[:-1]} == {JobState.PENDING}
    assert problems(path) == []


def test_a_worker_that_dies_before_the_commit_has_told_nobody(
    path: str, processes: Children, family: tuple[Queue, list[UUID]]
) -> None:
    """The end and what it leads to are one transaction (G7)."""
    queue, children = family
    victim = processes.start(_end_a_parent, path, "before the commit")
    assert victim.hear() == "done"
    assert victim.status() == -signal.SIGKILL
    found = states(queue)
    assert {found[child] for child in children} == {JobState.WAITING}
    assert queue.reap_dead() == 1
    assert problems(path) == []


# --- inside


def _milestones(total: int) -> list[int]:
    """Return how many jobs are to have ended at each kill."""
    return [total * number // (KILLS + 1) for number in range(1, KILLS + 1)]


def _ended(queue: Queue) -> int:
    return sum(count for state, count in queue.stats().counts.items() if state.is_terminal)


def _killed(draw: random.Random, workers: list[Child], start: Callable[[], Child]) -> list[Child]:
    """Kill one of the workers, and start another."""
    victim = draw.choice(workers)
    victim.kill()
    return [*(worker for worker in workers if worker is not victim), start()]


def _until(condition: Callable[[], bool], maintained: Queue | None = None) -> None:
    """Look again and again; maintain meanwhile where the workers do not."""
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        if maintained is not None:
            maintained.reap_dead()
        assert time.monotonic() < give_up, "nothing goes on"
        time.sleep(0.02)
