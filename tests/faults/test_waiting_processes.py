"""Processes that wait for each other's work: across forks, kills and many waiters (DESIGN §4)."""

from __future__ import annotations

import os
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import JobFailed, JobState, NewJob
from litequeue.sqlite import arrivals, bell, results
from litequeue.sqlite.bell import Bell
from litequeue.sqlite.watching import Listener

if TYPE_CHECKING:
    from litequeue import Queue
    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow

FAR_S = 3600.0
KINDS = [f"kind:{number}" for number in range(4)]


def _tell_sleeps(parent: Parent) -> None:
    """Say each time that this process goes to sleep, and let only rings wake it."""
    arrivals._NET_S = FAR_S
    sleep = Listener.sleep

    def tell(listener: Listener, seconds: float) -> bool:
        parent.say("asleep")
        return sleep(listener, seconds)

    pytest.MonkeyPatch().setattr(Listener, "sleep", tell)


def _take(queue: Queue, kind: str) -> str:
    """Wait for one job and complete it."""
    while True:
        lease = queue.lease_next([kind])
        if lease is not None:
            lease.complete()
            return lease.kind
        assert queue.wait(FAR_S, [kind])


def _wait_and_take(parent: Parent, path: str, kind: str) -> str:
    _tell_sleeps(parent)
    with litequeue.open(path) as queue:
        return _take(queue, kind)


def test_four_processes_wait_for_four_kinds(processes: Children, path: str) -> None:
    """A ring is for everybody: none takes another's, whichever comes first (DESIGN §4)."""
    with litequeue.open(path) as queue:
        waiting = {kind: processes.start(_wait_and_take, path, kind) for kind in KINDS}
        for child in waiting.values():
            assert child.hear() == "asleep"
        for kind in (KINDS[2], KINDS[0], KINDS[3], KINDS[1]):
            queue.enqueue(kind)
            assert waiting.pop(kind).result() == kind
            for other in waiting.values():
                assert other.hear() == "asleep", "it looked, and waits on"


def _work_off(parent: Parent, path: str, kind: str, count: int) -> int:
    """Take so many jobs of a kind; return how often there was none."""
    arrivals._NET_S = FAR_S
    waits = 0
    with litequeue.open(path, durability="normal") as queue:
        parent.say("open")
        for _ in range(count):
            while (lease := queue.lease_next([kind])) is None:
                waits += 1
                assert queue.wait(FAR_S, [kind])
            lease.complete()
    return waits


def _enqueue_at_random(_: Parent, path: str, rounds: int) -> None:
    with litequeue.open(path, durability="normal") as queue:
        for _round in range(rounds):
            for kind in random.sample(KINDS, len(KINDS)):
                queue.enqueue(kind)


def test_no_ring_is_missed_by_four_processes_while_two_enqueue(processes: Children, path: str) -> None:
    """With nothing else to wake them, all jobs are worked off (DESIGN §4)."""
    litequeue.open(path).close()
    rounds = 150
    workers = [processes.start(_work_off, path, kind, 2 * rounds) for kind in KINDS]
    for worker in workers:
        assert worker.hear() == "open"
    for enqueuer in [processes.start(_enqueue_at_random, path, rounds) for _ in range(2)]:
        enqueuer.result()
    for worker in workers:
        assert worker.result() is not None
    with litequeue.open(path) as queue:
        assert queue.stats().counts[JobState.COMPLETED] == 2 * rounds * len(KINDS)


def _wait_on_both_sides(parent: Parent, path: str, rounds: int) -> None:
    _tell_sleeps(parent)
    queue = litequeue.open(path)
    assert not queue.wait(0)  # this process has its thread and its watch
    child = parent.fork(lambda: [_take(queue, "child's") for _ in range(rounds)])
    for _ in range(rounds):
        _take(queue, "parent's")
    parent.join(child)


def test_both_sides_of_a_fork_wait_for_themselves(processes: Children, path: str) -> None:
    """The child has no thread of its parent's, and takes no ring from it: it begins anew (DESIGN §3, §4)."""
    rounds = 10
    with litequeue.open(path) as queue:
        child = processes.start(_wait_on_both_sides, path, rounds)
        for _ in range(rounds):
            assert [child.hear(), child.hear()] == ["asleep", "asleep"]
            queue.enqueue_many([NewJob("child's"), NewJob("parent's")])
        assert child.result() is None
        assert {job.state for job in queue.list()} == {JobState.COMPLETED}


def _wait_beside_a_fork(parent: Parent, path: str) -> str:
    _tell_sleeps(parent)
    with litequeue.open(path) as queue:
        children = []

        def fork(*_: object) -> None:
            children.append(parent.fork(lambda: None))
            parent.join(*children)
            parent.say("forked")

        signal.signal(signal.SIGUSR1, fork)
        return _take(queue, "work")


def test_a_wait_goes_on_after_a_fork_in_the_midst_of_it(processes: Children, path: str) -> None:
    """A signal handler forks while the process waits; the child's end takes nothing from its parent (DESIGN §3)."""
    with litequeue.open(path) as queue:
        child = processes.start(_wait_beside_a_fork, path)
        assert child.hear() == "asleep"
        child.signal(signal.SIGUSR1)
        assert child.hear() == "forked"
        queue.enqueue("work")
        assert child.result() == "work"


def _wait_on_in_a_fork(parent: Parent, path: str) -> None:
    """Wait; a signal handler forks, and the child comes back from it into the parent's wait."""
    arrivals._NET_S = 0.1
    sleep = Listener.sleep
    parents = [os.getpid()]
    forked: list[int] = []

    def fork_once(listener: Listener, seconds: float) -> bool:
        if not forked:
            forked.append(os.fork())
        parent.say("asleep" if os.getpid() in parents else "child asleep")
        return sleep(listener, seconds)

    pytest.MonkeyPatch().setattr(Listener, "sleep", fork_once)
    queue = litequeue.open(path)
    assert queue.wait(FAR_S)
    if os.getpid() not in parents:
        os._exit(0)
    parent.join(forked[0])


def test_a_child_that_comes_back_into_a_wait_goes_on_with_it(processes: Children, path: str) -> None:
    """Its listener was its parent's: it watches for itself at its next look (DESIGN §4)."""
    with litequeue.open(path) as queue:
        child = processes.start(_wait_on_in_a_fork, path)
        heard = {child.hear(), child.hear()}
        while heard != {"asleep", "child asleep"}:
            heard.add(child.hear())
        queue.enqueue("work")
        while (line := child.hear()).endswith("asleep"):
            pass
        assert line == "result null"


def _interrupt_on_both_sides(parent: Parent, path: str) -> list[bool]:
    """Fork while another thread waits; each side interrupts, and waits by, what it has."""
    arrivals._NET_S = FAR_S
    queue = litequeue.open(path)
    waiter = queue.waiter()
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(waiter.wait(FAR_S)))
    waiting.start()
    while not waiter._listeners:
        waiting.join(0.001)

    def be_the_child() -> None:
        waiter.interrupt()
        assert not waiter.wait(FAR_S)
        timer = threading.Timer(0.01, waiter.interrupt)
        timer.start()
        assert not waiter.wait(FAR_S)
        timer.join()

    parent.join(parent.fork(be_the_child))
    assert waiting.is_alive(), "the child's interrupts are its own"
    waiter.interrupt()
    waiting.join()
    return answers


def test_an_interrupt_is_for_one_side_of_a_fork(processes: Children, path: str) -> None:
    """A waiter that is shared by a fork goes on as two, each with its own threads (DESIGN §3, §4)."""
    assert processes.run(_interrupt_on_both_sides, path) == [False]


def _die_between_commit_and_ring(_: Parent, path: str) -> None:
    pytest.MonkeyPatch().setattr(Bell, "ring", lambda _: os.kill(os.getpid(), signal.SIGKILL))
    litequeue.open(path).enqueue("work")


def test_the_job_of_a_ringer_that_was_killed_before_it_rang_is_found(processes: Children, path: str) -> None:
    """By the slow look, at most a second later (DESIGN §4)."""
    with litequeue.open(path) as queue:
        assert not queue.wait(0)
        child = processes.start(_die_between_commit_and_ring, path)
        assert queue.wait(60)
        assert child.status() == -signal.SIGKILL


# --- for the end of a job


def _hurry() -> None:
    """Let bells be looked for and relied on soon, and only them wake this process."""
    arrivals._NET_S = FAR_S
    results._ALL_KNOW_S = 0.1
    bell._LOOK_AGAIN_S = 0.05


def _echo(parent: Parent, path: str) -> None:
    """Work off jobs until one is empty: each has its payload for a result, and an odd number fails for good."""
    _hurry()
    with litequeue.open(path, durability="normal") as queue:
        parent.say("open")
        while True:
            lease = queue.lease_next()
            if lease is None:
                queue.wait(FAR_S)
            elif lease.payload is None:
                lease.complete()
                return
            elif isinstance(lease.payload, int) and lease.payload % 2:
                lease.fail(f"{lease.payload} is odd", retryable=False)
            else:
                lease.complete(lease.payload)


def _ask(queue: Queue, number: int) -> int:
    """Enqueue a number and wait for what comes of it."""
    job_id = queue.enqueue("echo", number).job_id
    if number % 2:
        with pytest.raises(JobFailed, match=f"is dead: {number} is odd"):
            queue.wait_for(job_id, 60)
        return number
    result = queue.wait_for(job_id, 60).result
    assert isinstance(result, int)
    return result


def test_results_come_back_from_other_processes(processes: Children, path: str) -> None:
    """Four threads each ask a thousand times and wait; two processes answer; no end is missed (DESIGN §4)."""
    rounds = 250
    with litequeue.open(path, durability="normal") as queue, pytest.MonkeyPatch.context() as patch:
        for module, name in ((arrivals, "_NET_S"), (results, "_ALL_KNOW_S"), (bell, "_LOOK_AGAIN_S")):
            patch.setattr(module, name, getattr(module, name))
        _hurry()
        workers = [processes.start(_echo, path) for _ in range(2)]
        for worker in workers:
            assert worker.hear() == "open"

        def ask(first: int) -> list[int]:
            return [_ask(queue, number) for number in range(first, first + rounds)]

        with ThreadPoolExecutor(4) as pool:
            firsts = [1000 * thread for thread in range(4)]
            for first, answers in zip(firsts, pool.map(ask, firsts), strict=True):
                assert answers == list(range(first, first + rounds))
        for _ in workers:
            queue.enqueue("echo", None)
        for worker in workers:
            assert worker.result() is None


def _wait_for_it(parent: Parent, path: str, job_id: str) -> object:
    _tell_sleeps(parent)
    results._ALL_KNOW_S = 0
    with litequeue.open(path) as queue:
        return queue.wait_for(job_id).result


def test_every_process_that_waits_for_a_job_hears_of_its_end(
    processes: Children, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ring is for everybody (DESIGN §4)."""
    monkeypatch.setattr(bell, "_LOOK_AGAIN_S", 0)
    with litequeue.open(path) as queue:
        queue.enqueue("work")
        lease = queue.lease_next()
        assert lease is not None
        waiting = [processes.start(_wait_for_it, path, str(lease.job_id)) for _ in range(3)]
        for child in waiting:
            assert child.hear() == "asleep"
        lease.complete("done")
        assert [child.result() for child in waiting] == ["done"] * 3


def _wait_for_both_on_both_sides(parent: Parent, path: str, first: str, second: str) -> None:
    _tell_sleeps(parent)
    results._ALL_KNOW_S = 0
    queue = litequeue.open(path)
    assert not queue.wait(0)  # this process has its thread
    child = parent.fork(lambda: queue.wait_for(second))
    assert queue.wait_for(first).result == "parent's"
    parent.join(child)


def test_both_sides_of_a_fork_wait_for_a_job_each(
    processes: Children, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child begins anew, with a watch and a thread of its own (DESIGN §3, §4)."""
    monkeypatch.setattr(bell, "_LOOK_AGAIN_S", 0)
    with litequeue.open(path) as queue:
        queue.enqueue_many([NewJob("work"), NewJob("work")])
        leases = queue.lease_many(2)
        child = processes.start(_wait_for_both_on_both_sides, path, *(str(lease.job_id) for lease in leases))
        assert [child.hear(), child.hear()] == ["asleep"] * 2
        leases[1].complete("child's")
        assert child.hear() == "asleep", "the parent looked, and waits on"
        leases[0].complete("parent's")
        assert child.result() is None


def _end_and_die_before_the_ring(_: Parent, path: str, job_id: str) -> None:
    pytest.MonkeyPatch().setattr(Bell, "ring", lambda _: os.kill(os.getpid(), signal.SIGKILL))
    litequeue.open(path).cancel(job_id)


def test_an_end_whose_ringer_was_killed_before_it_rang_is_found(
    processes: Children, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the slow look, at most a second later (DESIGN §4)."""
    monkeypatch.setattr(results, "_ALL_KNOW_S", 0)
    with litequeue.open(path) as queue:
        job_id = queue.enqueue("work").job_id
        child = processes.start(_end_and_die_before_the_ring, path, str(job_id))
        assert queue.wait_for(job_id, 60).state is JobState.CANCELLED
        assert child.status() == -signal.SIGKILL


def _end_beside_a_waiting_thread(_: Parent, path: str) -> None:
    queue = litequeue.open(path)
    assert not queue.wait(0)
    threading.Thread(target=lambda: queue.wait(FAR_S), daemon=True).start()


def test_the_thread_that_hears_keeps_no_process_alive(processes: Children, path: str) -> None:
    """A process ends beside it as it would without (DESIGN §4)."""
    assert processes.run(_end_beside_a_waiting_thread, path) is None
