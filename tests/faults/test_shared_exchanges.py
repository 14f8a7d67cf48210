"""Exchanges, and what leases hear of their end, where threads share a transaction or a commit goes wrong (G1, G11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import Completed, Exchange, Failed, JobState, LeaseConflict, NewJob, OutcomeUnknown, Released
from litequeue.sqlite import sharing, tail
from tests.faults.in_line import PATIENCE_S, Commits, InLine, raised, refuse_second_commit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litequeue import Lease, Queue, Settlement


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    """Give the number of commits from here on."""
    return Commits(monkeypatch)


@pytest.fixture
def queue(tmp_path: Path, commits: Commits, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    """Give a handle that syncs each commit, and whose commits are counted, however slow the machine is just now."""
    monkeypatch.setattr(sharing, "_LONGEST_S", PATIENCE_S)
    with litequeue.open(tmp_path / "app.queue", busy_timeout=PATIENCE_S) as opened:
        commits.count = 0
        yield opened


def leased(queue: Queue, number: int) -> list[Lease]:
    """Enqueue so many jobs, and some more, and lease them."""
    queue.enqueue_many(NewJob("work", n) for n in range(number + 3))
    return queue.lease_many(number)


def test_exchanges_of_several_threads_share_one_commit(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, commits: Commits
) -> None:
    """Each has its own answer; what one has refused touches nobody else (G11)."""
    first, second, bad, short = leased(queue, 4)
    before = commits.count
    with InLine(queue, monkeypatch) as line:
        futures = [
            line.let_stand(lambda: queue.exchange([Completed(first, 1)], 1)),
            line.let_stand(lambda: queue.exchange([Completed(bad, object()), Completed(second, 2)], 1)),
            line.let_stand(lambda: queue.exchange([Failed(short, "oh", delay=0, retake_within=1)])),
        ]
        other = line.let_stand(lambda: queue.enqueue("other"))
    one, two, three = (future.result(PATIENCE_S) for future in futures)
    assert raised(other) is None
    assert commits.count - before == 1
    assert isinstance(one, Exchange)
    assert isinstance(two, Exchange)
    assert isinstance(three, Exchange)
    assert [len(exchange.leases) for exchange in (one, two, three)] == [1, 1, 0]
    assert one.leases[0].job_id != two.leases[0].job_id
    assert ([len(exchange.refused) for exchange in (one, two, three)], len(three.retaken)) == ([0, 1, 0], 1)
    assert (first.settled, second.settled, bad.settled, short.settled) == (True, True, False, True)
    held = {one.leases[0].raw_job_id, two.leases[0].raw_job_id, bad.raw_job_id, short.raw_job_id}
    assert queue._store.holdings.leases.keys() == held


def test_where_the_commit_fails_an_exchange_is_done_again_alone(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leases of the first time are void, and those that it hands out are good (G1, G11)."""
    done, short = leased(queue, 2)
    with InLine(queue, monkeypatch) as line:
        other = line.let_stand(lambda: queue.enqueue("other"))
        future = line.let_stand(
            lambda: queue.exchange([Completed(done), Failed(short, "oh", delay=0, retake_within=1)], 3)
        )
        answers = refuse_second_commit(queue)
    exchange = future.result(PATIENCE_S)
    assert raised(other) is None
    assert answers[:2] == [False, True]
    assert isinstance(exchange, Exchange)
    assert exchange.refused == []
    rest = [*exchange.leases, *(lease for lease, _ in exchange.retaken)]
    assert len(rest) == 3
    assert queue.exchange([Completed(lease) for lease in rest]).refused == []
    assert (done.settled, done.lost, short.settled, short.lost) == (True, False, True, False)


def test_what_rests_on_anothers_verb_is_not_told_before_the_commit(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread cancels, another completes in the same transaction, and its commit may come back or not (G11).

    The lease may still be held: it must be neither lost nor settled for those who look at it.
    """
    (lease,) = leased(queue, 1)
    monkeypatch.setattr(tail, "is_dead", lambda *_: False)
    with InLine(queue, monkeypatch) as line:
        cancel = line.let_stand(lambda: queue.cancel(lease.job_id))
        complete = line.let_stand(lambda: queue.exchange([Completed(lease)]))
        answers = refuse_second_commit(queue)
    assert [type(raised(future)) for future in (cancel, complete)] == [OutcomeUnknown] * 2
    assert answers == [False, True]
    assert (lease.lost, lease.settled) == (False, False)
    assert queue.get(lease.job_id).state is JobState.LEASED
    assert lease.raw_job_id in queue._store.holdings.leases
    lease.complete()
    assert lease.settled


def test_what_rests_on_anothers_verb_is_told_with_the_commit(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is so, and the handle holds the lease no more (G1)."""
    (lease,) = leased(queue, 1)
    with InLine(queue, monkeypatch) as line:
        cancel = line.let_stand(lambda: queue.cancel(lease.job_id))
        complete = line.let_stand(lease.complete)
    assert raised(cancel) is None
    assert isinstance(raised(complete), LeaseConflict)
    assert (lease.lost, lease.settled) == (True, False)
    assert queue._store.holdings.leases == {}


def test_two_threads_that_end_one_lease_settle_it_once(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is a conflict, and the lease is settled, not lost, whichever came first (G1)."""
    (lease,) = leased(queue, 1)
    with InLine(queue, monkeypatch) as line:
        futures = [line.let_stand(lambda: queue.complete_many([lease])) for _ in range(2)]
    answers = [future.result(PATIENCE_S) for future in futures]
    assert [isinstance(answer, list) and len(answer) for answer in answers] == [0, 1]
    assert (lease.lost, lease.settled) == (False, True)


def test_an_outcome_that_is_unknown_settles_nothing(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit may come back: whoever hands the settlements in again is told what became of them (G11)."""
    done, short = leased(queue, 2)
    monkeypatch.setattr(tail, "is_dead", lambda *_: False)
    connection = queue._store._writer.connection
    assert connection is not None
    connection.set_commit_hook(lambda: True)
    settlements: list[Settlement] = [Completed(done), Failed(short, "oh", delay=0, retake_within=1)]
    with pytest.raises(OutcomeUnknown):
        queue.exchange(settlements, 2)
    connection.set_commit_hook(None)
    assert (done.settled, done.lost, short.settled, short.lost) == (False,) * 4
    again = queue.exchange(settlements, 3)
    assert (again.refused, len(again.retaken), len(again.leases)) == ([], 1, 2)


def test_a_lease_that_was_lost_before_is_found_in_any_company(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among the verbs of others as well; those are done (G1)."""
    (lease,) = leased(queue, 1)
    queue.cancel(lease.job_id)
    with InLine(queue, monkeypatch) as line:
        good = line.let_stand(lambda: queue.enqueue("other"))
        late = line.let_stand(lambda: queue.exchange([Released(lease)]))
    assert raised(good) is None
    answer = late.result(PATIENCE_S)
    assert isinstance(answer, Exchange)
    assert len(answer.refused) == 1
    assert lease.lost
