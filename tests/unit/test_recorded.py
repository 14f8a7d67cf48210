"""The journal of a handle that did every verb, and the checker's word on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import litequeue
from harness.checker import Findings, check
from harness.journal import SUFFIX, Journal
from harness.promises import Rule
from harness.recorded import Recorded
from litequeue import Completed, Failed, LeaseConflict, NewJob, PayloadError, Released, UsageError
from litequeue.testing import FakeClock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give the folder of the queue and the journals."""
    return tmp_path


@pytest.fixture
def recorded(folder: Path) -> Iterator[Recorded]:
    """Give a handle that writes a journal."""
    with litequeue.open(folder / "app.queue") as queue:
        queue.set("backoff_base", 0)
        yield Recorded(queue, Journal(folder / f"one{SUFFIX}"))


def _judged(recorded: Recorded, folder: Path, *, is_drained: bool = True, is_fifo: bool = False) -> Findings:
    recorded.close()
    return check(folder.glob(f"*{SUFFIX}"), folder / "app.queue", is_drained=is_drained, is_fifo=is_fifo)


def _give_up(recorded: Recorded) -> None:
    """Enqueue in a transaction that is rolled back."""
    with recorded.transaction() as tx:
        tx.enqueue(NewJob("work", "never"))
        raise ZeroDivisionError


def test_every_verb_is_told_and_nothing_is_amiss(recorded: Recorded, folder: Path) -> None:
    """All verbs, batches and transactions, with a refused word and a rolled-back block: the checker agrees (G1–G11)."""
    recorded.enqueue(NewJob("work", {"n": 1}))
    recorded.enqueue_many(NewJob("work", [n, "x"], idempotency_key=f"key {n}") for n in range(2, 6))
    first = recorded.lease_next(ttl=60)
    assert first is not None
    recorded.extend(first, 90)
    recorded.checkpoint(first, b"half", 0.5)
    recorded.note(first, "here")
    recorded.complete(first, {"sum": 3}, then=[NewJob("work", "then")])
    with pytest.raises(LeaseConflict):
        recorded.complete(first)
    leases = recorded.lease_many(3)
    assert recorded.extend_many(leases) == []
    assert recorded.complete_many([leases[0], first], ["good", "late"])[0].job_id == first.job_id
    recorded.release(leases[1])
    recorded.fail(leases[2], "oh", retryable=False)
    recorded.retry(leases[2].job_id)
    with pytest.raises(ZeroDivisionError):
        _give_up(recorded)
    with recorded.transaction() as tx:
        tx.enqueue(NewJob("work", "in a transaction"))
    stopped = recorded.enqueue(NewJob("work", "to be cancelled"))
    recorded.cancel(stopped.job_id)
    while (lease := recorded.lease_next()) is not None:
        with recorded.lease_transaction(lease) as tx:
            tx.note(lease, "the block completes it")
    recorded.maintain()
    findings = _judged(recorded, folder, is_fifo=True)
    assert findings.breaches == []
    assert findings.jobs == {"completed": 7, "cancelled": 1}
    assert findings.calls["complete refused"] == 1
    assert (findings.calls["transaction raised ZeroDivisionError"], findings.calls["retry done"]) == (1, 1)
    assert findings.repeated_jobs == 2


def test_an_exchange_is_told_part_by_part(recorded: Recorded, folder: Path) -> None:
    """Every sort of settlement, refused ones, a retake and new leases: the checker agrees (G1–G11)."""
    recorded.enqueue_many(NewJob("work", n) for n in range(7))
    leases = recorded.lease_many(6)
    recorded.cancel(leases[5].job_id)
    exchange = recorded.exchange(
        [
            Completed(leases[0], "good", [NewJob("work", "then")]),
            Completed(leases[1], object()),
            Failed(leases[2], "oh", delay=0, retake_within=1),
            Failed(leases[3], "oh", retryable=False),
            Released(leases[4]),
            Completed(leases[5], "late", [NewJob("work", "never")]),
        ],
        4,
    )
    assert [type(reason) for _, reason in exchange.refused] == [PayloadError, LeaseConflict]
    assert (len(exchange.retaken), len(exchange.leases)) == (1, 3)
    rest = [leases[1], *(lease for lease, _ in exchange.retaken), *exchange.leases]
    with pytest.raises(UsageError):
        recorded.exchange([Completed(leases[1])], -1)
    assert recorded.exchange([Completed(lease) for lease in rest]).refused == []
    findings = _judged(recorded, folder)
    assert findings.breaches == []
    assert findings.jobs == {"completed": 6, "dead": 1, "cancelled": 1}
    assert (findings.calls["exchange done"], findings.calls["complete refused"]) == (2, 1)
    assert (findings.calls["complete raised PayloadError"], findings.calls["fail done"]) == (1, 2)


def test_a_retake_that_nobody_asked_for_is_found(recorded: Recorded, folder: Path) -> None:
    """The checker knows a failure and a lease in one: each is somebody's (G11)."""
    recorded.enqueue(NewJob("work"))
    lease = recorded.lease_next()
    assert lease is not None
    (again,) = (again for again, _ in recorded.queue.exchange([Failed(lease, "oh", delay=0, retake_within=1)]).retaken)
    recorded.complete(again)
    findings = _judged(recorded, folder)
    assert {breach.rule for breach in findings.breaches} == {Rule.FROM_NOWHERE, Rule.ONE_COMPLETION, Rule.STALE}


def test_a_handle_that_closes_gives_back_what_it_holds(recorded: Recorded, folder: Path) -> None:
    """The release at a close is nobody's word (§4), and the checker knows it."""
    recorded.enqueue(NewJob("work"))
    recorded.lease_next()
    assert _judged(recorded, folder, is_drained=False).breaches == []


def test_what_is_done_behind_the_journals_back_is_found(recorded: Recorded, folder: Path) -> None:
    """A job, a lease and a completion that no journal tells of (G11)."""
    recorded.queue.enqueue("work")
    lease = recorded.queue.lease_next()
    assert lease is not None
    lease.complete()
    findings = _judged(recorded, folder)
    assert {breach.rule for breach in findings.breaches} == {Rule.FROM_NOWHERE, Rule.ONE_COMPLETION, Rule.RESULT}


def test_a_call_that_is_refused_says_why(recorded: Recorded, folder: Path) -> None:
    """A usage error did nothing, and the journal says so."""
    with recorded.transaction(), pytest.raises(UsageError):
        recorded.enqueue(NewJob("work"))
    findings = _judged(recorded, folder)
    assert findings.breaches == []
    assert findings.calls["enqueue raised UsageError"] == 1


def test_a_log_that_was_cut_is_no_breach(folder: Path) -> None:
    """A job that was reaped and leased until its log was truncated (§2) is still judged, and is in order."""
    clock = FakeClock()
    with litequeue.open(folder / "app.queue", clock=clock) as queue:
        queue.set("max_attempts", 1000)
        queue.set("backoff_base", 0)
        recorded = Recorded(queue, Journal(folder / f"one{SUFFIX}"))
        recorded.enqueue(NewJob("work"))
        for _ in range(100):
            assert recorded.lease_next(ttl=1) is not None
            clock.advance(2)
        lease = recorded.lease_next()
        assert lease is not None
        recorded.complete(lease)
        assert "truncated" in [event.transition for event in queue.get(lease.job_id).events]
        findings = _judged(recorded, folder)
    # A fake clock is not the host's: to the checker every lease was cut short.
    assert {breach.rule for breach in findings.breaches} <= {Rule.EARLY}
    assert findings.leases == 101
