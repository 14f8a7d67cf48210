"""The operator's tools beside processes that work: a sound queue has no problem, and nobody sees half a restore."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import NewJob, Severity
from litequeue.sqlite.examining import problems

if TYPE_CHECKING:
    from litequeue import Lease, Queue
    from tests.faults import children

pytestmark = pytest.mark.slow

KINDS = ("mail:send", "mail:fetch", "embed")


def work_until_told(parent: children.Parent, path: str, stop: str, seed: int) -> int:
    """Do whatever a program may do with a queue, until a file called `stop` is there; return how often."""
    chance = random.Random(seed)
    rounds = 0
    with litequeue.open(path, durability="normal") as queue:
        queue.set("backoff_base", 0.01)
        parent.say("working")
        while not Path(stop).exists():
            rounds += 1
            queue.enqueue_many(
                NewJob(
                    chance.choice(KINDS), rounds, priority=chance.choice((50, 100)), delay=chance.choice((None, 0.01))
                )
                for _ in range(5)
            )
            key = f"key {chance.randrange(4)}"
            queue.enqueue("keyed", rounds, idempotency_key=key, on_conflict="reset")
            for lease in queue.lease_many(6):
                settle(queue, lease, chance)
            queue.prune()
    return rounds


def settle(queue: Queue, lease: Lease, chance: random.Random) -> None:
    """End a lease in one of the ways that there are, or let it be."""
    match chance.randrange(7):
        case 0:
            lease.fail("boom", retryable=chance.random() < 0.5)
        case 1:
            lease.release(delay=chance.choice((None, 0.01)))
        case 2:
            lease.checkpoint(b"half", progress=0.5, note="half")
        case 3:
            queue.cancel(lease.job_id)
            with contextlib.suppress(litequeue.DuplicateJob):  # the other one has used the key that the cancel freed
                queue.retry(lease.job_id)
        case 4:
            lease.extend()
            lease.complete("late")
        case _:
            lease.complete({"ok": True})


def test_a_busy_queue_has_no_problem_and_neither_have_its_backups(processes: children.Children, path: str) -> None:
    """Whatever is compared is read in one snapshot, so that nothing that moves seems to be missing (V13, §2)."""
    stop = Path(path).with_name("stop")
    workers = [processes.start(work_until_told, path, str(stop), random.randrange(2**31)) for _ in range(2)]
    for worker in workers:
        assert worker.hear() == "working"
    with litequeue.open(path) as queue:
        for number in range(4):
            diagnosis = litequeue.doctor(path)
            assert all(worker.is_running() for worker in workers)  # else there are leases of dead processes, rightly
            assert [str(finding) for finding in diagnosis.findings if finding.severity is not Severity.FACT] == []
            copied = queue.backup(f"{path}.{number}")
            assert problems(copied.path) == []
    stop.touch()
    assert all(isinstance(rounds := worker.result(), int) and rounds > 3 for worker in workers)
    assert problems(path) == []


def open_until_told(parent: children.Parent, path: str, stop: str) -> list[str]:
    """Open the queue again and again, until a file called `stop` is there; return all that was ever seen in it."""
    seen: set[str] = set()
    parent.say("opening")
    while not Path(stop).exists():
        try:
            with litequeue.open(path, create=False, busy_timeout=20) as queue:
                counts = {kind: sum(by_state.values()) for kind, by_state in queue.stats().by_kind.items()}
                seen.add(str(counts))
        except litequeue.QueueBusy:
            seen.add("busy")
    return sorted(seen)


def test_whoever_opens_beside_a_restore_sees_the_old_or_the_new(processes: children.Children, path: str) -> None:
    """One that waits for the lock goes on with the new content, in the same file; it is never lost to it (G2, §9).

    Timeline: the opener has the file open and waits for SQLite's lock; the restore commits; the opener reads. With a
    rename in the place of a commit it would now read a file that is gone, and write a log for the one that is there.
    """
    names = {"first": 40, "second": 400}
    for name, jobs in names.items():
        with litequeue.open(f"{path}.{name}", durability="normal") as queue:
            queue.enqueue_many(NewJob(name, number) for number in range(jobs))
    litequeue.restore(f"{path}.first", path)
    stop = Path(path).with_name("stop")
    opener = processes.start(open_until_told, path, str(stop))
    assert opener.hear() == "opening"
    restored = refused = 0
    while restored < 12:
        try:
            litequeue.restore(f"{path}.{('second', 'first')[restored % 2]}", path, overwrite=True)
        except litequeue.QueueBusy:
            refused += 1
            assert refused < 5000
        else:
            restored += 1
    stop.touch()
    seen = opener.result()
    assert isinstance(seen, list)
    assert set(seen) - {"busy"} <= {str({name: jobs}) for name, jobs in names.items()}
    assert problems(path) == []
    with litequeue.open(path, create=False) as queue:
        assert queue.stats().total == names["first"]
