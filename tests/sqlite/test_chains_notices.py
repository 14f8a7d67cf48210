"""What stands in the file of ends that are yet to be told: who is rung for it, and what an operator may mend of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import JobState, NewJob
from litequeue.sqlite.bell import Bell
from litequeue.sqlite.examining import problems

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litequeue import Queue

MANY = 350


@pytest.fixture
def queue(path: Path) -> Iterator[Queue]:
    """Give a handle on a fresh queue."""
    with litequeue.open(path, durability="normal") as opened:
        yield opened


@pytest.fixture
def rings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the ends of the names of the bells that were rung so far."""
    heard: list[str] = []
    monkeypatch.setattr(Bell, "ring", lambda this: heard.append(this._path.rpartition("-")[2]))
    return heard


def plant(path: Path, *statements: str) -> None:
    """Write what no verb writes."""
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


@pytest.mark.parametrize("count", [1, MANY])
def test_children_that_become_ready_ring_whatever_their_kind(queue: Queue, rings: list[str], count: int) -> None:
    """A worker that waits for the kind of the child wakes, though it does not wait for that of the parent."""
    parent = queue.enqueue("parent").job_id
    queue.enqueue_many(NewJob("child", after=[parent]) for _ in range(count))
    lease = queue.lease_next()
    assert lease is not None
    rings.clear()
    lease.complete()
    assert "bell" in rings


@pytest.mark.parametrize(("count", "bells"), [(MANY, ["bell", "done"]), (50, ["done"])])
def test_what_is_left_to_tell_rings_though_nobody_is_ready(
    queue: Queue, rings: list[str], count: int, bells: list[str]
) -> None:
    """Cancelled children are no work; that others are still to be cancelled is some (G5)."""
    parent = queue.enqueue("parent").job_id
    queue.enqueue_many(NewJob("child", after=[parent]) for _ in range(count))
    rings.clear()
    queue.cancel(parent)
    assert sorted(rings) == bells


def test_a_job_that_begins_to_wait_rings_nobody(queue: Queue, rings: list[str]) -> None:
    """There is nothing to lease."""
    parent = queue.enqueue("parent").job_id
    rings.clear()
    child = queue.enqueue("child", after=[parent], idempotency_key="key", delay=5).job_id
    queue.enqueue("child", idempotency_key="key", on_conflict="reset")
    assert rings == []
    queue.cancel(child)
    rings.clear()
    queue.enqueue("child", job_id=child, after=[parent])
    assert rings == []


def test_an_operator_mends_what_nobody_would_tell(path: Path, queue: Queue) -> None:
    """A notice that is lost strands its children: they are told how their parent has ended (G5)."""
    ended = {}
    for kind in ("completed", "dead"):
        parent = queue.enqueue(kind).job_id
        ended[kind] = [made.job_id for made in queue.enqueue_many(NewJob("child", after=[parent]) for _ in range(MANY))]
        lease = queue.lease_next([kind])
        assert lease is not None
        if kind == "dead":
            lease.fail("boom", retryable=False)
        else:
            lease.complete()
    queue.close()
    plant(path, "DELETE FROM litequeue_notice")
    diagnosis = litequeue.doctor(path)
    assert {finding.code for finding in diagnosis.problems} == {"dependency.untold"}
    mended = litequeue.doctor(path, fix=True)
    assert not mended.problems
    with litequeue.open(path) as again:
        assert {again.get(child).state for child in ended["completed"]} == {JobState.PENDING}
        assert {again.get(child).state for child in ended["dead"]} == {JobState.CANCELLED}


def test_an_operator_mends_a_count_that_would_let_a_job_go_too_early(path: Path, queue: Queue) -> None:
    """What a gate misses is told by its rows; what nobody misses is removed (G5)."""
    parents = [queue.enqueue("parent").job_id for _ in range(3)]
    child = queue.enqueue("child", after=parents).job_id
    queue.close()
    plant(
        path,
        "UPDATE litequeue_gate SET missing = 1",
        "INSERT INTO litequeue_dependency SELECT job_id, 99 FROM litequeue_job WHERE state = 0",
    )
    planted = {line.partition(":")[0] for line in problems(str(path))}
    assert planted == {"gate.count", "gate.sum", "dependency.orphan"}
    assert not litequeue.doctor(path, fix=True).problems
    with litequeue.open(path) as again:
        for parent in parents:
            assert again.get(child).state is JobState.WAITING
            lease = again.lease_next()
            assert lease is not None
            assert lease.job_id == parent
            lease.complete()
        assert again.get(child).state is JobState.PENDING


def test_a_waiting_job_whose_gate_is_lost_is_left_to_the_operator(path: Path, queue: Queue) -> None:
    """It might run too early; `retry` and `cancel` still work."""
    parent = queue.enqueue("parent").job_id
    children = [queue.enqueue("child", after=[parent]).job_id for _ in range(2)]
    queue.close()
    plant(path, "DELETE FROM litequeue_gate")
    found = litequeue.doctor(path, fix=True)
    assert "gate.missing" in {finding.code for finding in found.problems}
    with litequeue.open(path) as again:
        again.retry(children[0])
        again.cancel(children[1])
        assert [again.get(child).state for child in children] == [JobState.PENDING, JobState.CANCELLED]
        again.cancel(parent)
