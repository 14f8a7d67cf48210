"""Batches: a group of jobs, and one that is ready when the last has ended (issue 7, item 4; V1, V6, V10, V13)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from litequeue import Batch, DuplicateJob, JobNotFound, JobState, NewJob, PayloadError, UsageError
from litequeue.sqlite.examining import problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litequeue import Queue
    from litequeue.testing import FakeClock

MANY = 350
"""More than one transaction tells, several times over."""


@pytest.fixture(autouse=True)
def _sound(queue: Queue) -> Iterator[None]:
    """Whatever a test does, the examination finds nothing wrong with it."""
    yield
    assert problems(queue.path) == []


def group(queue: Queue, size: int) -> Batch:
    """Enqueue a batch."""
    return queue.batch((NewJob("member", number) for number in range(size)), NewJob("last", "all"))


def state(queue: Queue, batch: Batch) -> str:
    """Return the state of the last job."""
    return str(queue.get(batch.then.job_id).state)


def counts(queue: Queue, batch: Batch) -> tuple[int, int, int, int, int]:
    """Return how the group stands: all, completed, dead, cancelled, missing."""
    found = queue.dependencies(batch.then.job_id)
    return found.parents, found.completed, found.dead, found.cancelled, found.missing


def test_the_last_job_runs_once_when_the_last_of_the_group_has_ended(queue: Queue) -> None:
    """However they have ended; its id tells how (V13)."""
    batch = group(queue, 4)
    assert [result.created for result in (*batch.jobs, batch.then)] == [True] * 5
    assert [queue.get(result.job_id).payload for result in batch.jobs] == [0, 1, 2, 3]
    assert (state(queue, batch), counts(queue, batch)) == ("waiting", (4, 0, 0, 0, 4))
    first, second, third, fourth = queue.lease_many(10)
    first.complete()
    second.fail("boom", retryable=False)
    queue.cancel(third.job_id)
    assert (state(queue, batch), counts(queue, batch)) == ("waiting", (4, 1, 1, 1, 1))
    fourth.fail("boom", delay=0)
    assert state(queue, batch) == "waiting", "it is to run again"
    (fourth,) = queue.lease_many(10)
    fourth.complete()
    assert (state(queue, batch), counts(queue, batch)) == ("pending", (4, 2, 1, 1, 0))
    (last,) = queue.lease_many(10)
    with last.transaction() as tx:
        assert tx.dependencies(last.job_id).dead == 1
    assert queue.lease_next() is None


def test_a_member_that_is_retried_afterwards_runs_the_last_job_no_second_time(queue: Queue) -> None:
    """Its end was counted once (V10)."""
    batch = group(queue, 2)
    first, second = queue.lease_many(2)
    first.fail("boom", retryable=False)
    queue.retry(first.job_id)
    assert counts(queue, batch) == (2, 0, 1, 0, 1), "before the group has ended it is not waited for again either"
    second.complete()
    again, last = queue.lease_many(2)
    assert (again.job_id, last.job_id) == (first.job_id, batch.then.job_id)
    last.complete()
    again.complete()
    assert (state(queue, batch), counts(queue, batch)) == ("completed", (2, 1, 1, 0, 0))


def test_a_group_without_jobs_has_ended(queue: Queue) -> None:
    """The last job is ready at once."""
    batch = queue.batch([], NewJob("last"))
    assert batch.jobs == []
    assert (state(queue, batch), counts(queue, batch)) == ("pending", (0, 0, 0, 0, 0))


def test_a_large_group_is_told_of_in_bounded_steps(queue: Queue) -> None:
    """A hundred for each commit; lease calls do the rest (G5)."""
    batch = group(queue, MANY)
    queue.complete_many(queue.lease_many(MANY))
    assert counts(queue, batch) == (MANY, 100, 0, 0, MANY - 100)
    assert len(queue.dependencies(batch.then.job_id).waits_for) == 100
    lease = queue.lease_next()
    assert lease is not None
    assert lease.job_id == batch.then.job_id
    assert counts(queue, batch) == (MANY, MANY, 0, 0, 0)


def test_jobs_that_were_there_already_belong_to_the_group(queue: Queue) -> None:
    """By their key or id, active or ended; each counts once."""
    known = queue.enqueue("member", idempotency_key="one").job_id
    done = queue.enqueue("done").job_id
    lease = queue.lease_next(["done"])
    assert lease is not None
    lease.complete()
    jobs = [NewJob("member", idempotency_key="one")] * 2 + [NewJob("done", job_id=done)]
    batch = queue.batch(jobs, NewJob("last"))
    assert batch.jobs == [(known, False), (known, False), (done, False)]
    assert counts(queue, batch) == (2, 1, 0, 0, 1)


def test_a_batch_that_is_said_again_is_the_same_one(queue: Queue) -> None:
    """With ids or keys for all: after an `OutcomeUnknown` it may be repeated (V1)."""
    last, member = UUID(int=7), UUID(int=8)
    jobs, then = [NewJob("member", job_id=member)], NewJob("last", job_id=last)
    assert queue.batch(jobs, then) == ([(member, True)], (last, True))
    assert queue.batch(jobs, then) == ([(member, False)], (last, False))
    lease = queue.lease_next()
    assert lease is not None
    lease.complete()
    assert state(queue, Batch([], queue.batch(jobs, then).then)) == "pending"


def test_members_may_wait_for_others_and_for_each_other(queue: Queue) -> None:
    """A chain within a batch; one that is cancelled at once is an end as well."""
    dead = queue.enqueue("dead").job_id
    queue.cancel(dead)
    head = UUID(int=7)
    batch = queue.batch(
        [NewJob("head", job_id=head), NewJob("tail", after=[head]), NewJob("doomed", after=[dead])], NewJob("last")
    )
    assert counts(queue, batch) == (3, 0, 0, 1, 2)
    for _ in range(2):
        lease = queue.lease_next(["head", "tail"])
        assert lease is not None
        lease.complete()
    assert (state(queue, batch), counts(queue, batch)) == ("pending", (3, 2, 0, 1, 0))


def test_the_last_job_may_be_delayed_stopped_and_hurried(queue: Queue, clock: FakeClock) -> None:
    """Like every job that waits (V9, V10)."""
    late = queue.batch([NewJob("member")], NewJob("last", delay=60))
    stopped, hurried = group(queue, MANY), group(queue, 2)
    queue.cancel(stopped.then.job_id)
    queue.retry(hurried.then.job_id)
    assert (state(queue, stopped), state(queue, hurried)) == ("cancelled", "pending")
    queue.complete_many(queue.lease_many(1000, ["member"]))
    assert queue.lease_next(["none"]) is None
    assert state(queue, late) == "scheduled"
    clock.advance(60)
    assert [lease.job_id for lease in queue.lease_many(3, ["last"])] == [late.then.job_id, hurried.then.job_id]


def test_a_batch_is_one_commit(queue: Queue) -> None:
    """What is refused leaves nothing; a rollback neither (G11, V14)."""
    queue.set("max_payload", 1024)
    big = b"x" * 2000
    for jobs, then in (([NewJob("member", big)], NewJob("last")), ([NewJob("member")], NewJob("last", big))):
        with pytest.raises(PayloadError):
            queue.batch(jobs, then)
    with pytest.raises(JobNotFound):
        queue.batch([NewJob("member"), NewJob("member", after=[UUID(int=7)])], NewJob("last"))
    queue.enqueue("last", idempotency_key="taken")
    with pytest.raises(DuplicateJob):
        queue.batch([NewJob("member")], NewJob("last", idempotency_key="taken", on_conflict="raise"))
    with suppress(ZeroDivisionError), queue.transaction() as tx:
        tx.batch([NewJob("member")], NewJob("last"))
        raise ZeroDivisionError
    assert queue.stats().total == 1


def test_bad_arguments_are_named(queue: Queue) -> None:
    """§6."""
    one = queue.enqueue("one").job_id
    with pytest.raises(UsageError, match="then must be a NewJob, not 'last'"):
        queue.batch([NewJob("member")], "last")  # type: ignore[arg-type] # that is what is tested
    with pytest.raises(UsageError, match="then must be a job without `after`"):
        queue.batch([NewJob("member")], NewJob("last", after=[one]))
    with pytest.raises(UsageError, match="on_conflict must be return or raise"):
        queue.batch([], NewJob("last", idempotency_key="k", on_conflict="reset"))
    with pytest.raises(UsageError, match="jobs must be NewJob objects"):
        queue.batch(["member"], NewJob("last"))  # type: ignore[list-item] # the same
    with pytest.raises(UsageError, match=r"then is job [0-9a-f-]{36} of the group itself"):
        queue.batch([NewJob("member", idempotency_key="k")], NewJob("member", idempotency_key="k"))
    assert queue.stats().total == 1, "nothing is half done"


def test_members_that_wait_in_vain_have_ended(queue: Queue) -> None:
    """One whose key a later member has taken, and one that is gone at once, count as cancelled (V2, G5)."""
    parent = queue.enqueue("parent").job_id
    queue.cancel(parent)
    members = [NewJob("member", after=[parent], idempotency_key="k"), NewJob("member", idempotency_key="k")]
    batch = queue.batch(members, NewJob("last"))
    assert (state(queue, batch), counts(queue, batch)) == ("waiting", (2, 0, 0, 1, 1))
    queue.set("cancelled_retention", 0)
    goes = queue.batch([NewJob("member", after=[parent])], NewJob("last"))
    assert (state(queue, goes), counts(queue, goes)) == ("pending", (1, 0, 0, 1, 0))


def test_what_is_known_of_a_group_goes_with_its_last_job(queue: Queue, clock: FakeClock) -> None:
    """As long as that is there, and no longer (V11)."""
    batch = group(queue, 2)
    while leases := queue.lease_many(10):
        queue.complete_many(leases)
    assert queue.stats().counts[JobState.COMPLETED] == 3
    clock.advance(86_401)
    assert queue.prune() == 3
    with pytest.raises(JobNotFound):
        queue.dependencies(batch.then.job_id)
    with queue.transaction() as tx:
        for table in ("gate", "dependency", "notice"):
            assert tx.execute(f"SELECT count(*) FROM litequeue_{table}") == [(0,)]
