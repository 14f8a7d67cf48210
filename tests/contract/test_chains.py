"""Chains: jobs that wait until others have ended (issue 7, item 4; §3, V1, V2, V9, V10, V11, V13, G4, G5, G7)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from litequeue import (
    ANY,
    Completed,
    DuplicateJob,
    Failed,
    InvalidTransition,
    JobNotFound,
    JobState,
    Lease,
    LeaseConflict,
    NewJob,
    Outbox,
    UsageError,
    WaitTimeout,
)
from litequeue.sqlite.examining import problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import apsw

    from litequeue import Attached, Queue
    from litequeue.model import OnConflict, OnParentFailure
    from litequeue.testing import FakeClock
    from tests.conftest import JobIn, MakeQueue

UNKNOWN = UUID("01900000-0000-7000-8000-000000000001")
MANY = 350
"""More than one transaction tells, several times over."""


class Undo(Exception):
    """What a test raises to leave a transaction."""


@pytest.fixture(autouse=True)
def _sound(queue: Queue) -> Iterator[None]:
    """Whatever a test does, the examination finds nothing wrong with it."""
    yield
    assert problems(queue.path) == []


def made(queue: Queue, kind: str = "work", *after: UUID, policy: OnParentFailure = "cancel") -> UUID:
    """Make a job that waits for these."""
    return queue.enqueue(kind, after=after, on_parent_failure=policy).job_id


def leased(queue: Queue, kind: str) -> Lease:
    """Lease the one job of a kind."""
    lease = queue.lease_next([kind])
    assert lease is not None
    return lease


def states(queue: Queue, *job_ids: UUID) -> list[str]:
    """Return the states of jobs, by their names."""
    return [str(queue.get(job_id).state) for job_id in job_ids]


def last_event(queue: Queue, job_id: UUID) -> tuple[str, str]:
    """Return what happened to a job last."""
    event = queue.get(job_id).events[-1]
    return event.transition.value, event.detail


def complete(queue: Queue, job_id: UUID) -> None:
    """Lease and complete a job; nothing else of its kind is ready."""
    lease = leased(queue, queue.get(job_id).kind)
    assert lease.job_id == job_id
    lease.complete()


def kill(queue: Queue, job_id: UUID) -> None:
    """Lease a job and fail it for good."""
    lease = leased(queue, queue.get(job_id).kind)
    assert lease.job_id == job_id
    lease.fail("boom", retryable=False)


ENDS: dict[str, Callable[[Queue, UUID], None]] = {
    "dead": kill,
    "cancelled": lambda queue, job_id: queue.cancel(job_id),
}


def test_a_job_waits_until_all_its_parents_have_completed(queue: Queue) -> None:
    """It is in a state of its own, is not leased, and is ready in the commit of the last one (§3, V1)."""
    first, second = made(queue, "first"), made(queue, "second")
    child = made(queue, "child", first, second)
    assert states(queue, child) == ["waiting"]
    assert queue.lease_next(["child"]) is None
    assert set(queue.dependencies(child).waits_for) == {first, second}
    complete(queue, first)
    assert states(queue, child) == ["waiting"]
    complete(queue, second)
    assert states(queue, child) == ["pending"]
    assert last_event(queue, child) == ("promoted", "all that it waited for has ended")
    complete(queue, child)


def test_a_parent_that_fails_and_will_run_again_has_not_ended(queue: Queue, clock: FakeClock) -> None:
    """A child waits through back-offs, releases and lapses (V7, V8, V11)."""
    parent = made(queue, "parent")
    child = made(queue, "child", parent)
    leased(queue, "parent").fail("boom", delay=10)
    assert states(queue, parent, child) == ["retryable", "waiting"]
    clock.advance(10)
    leased(queue, "parent").release()
    leased(queue, "parent")
    clock.advance(301)
    assert queue.reap_expired() == 1
    assert states(queue, parent, child) == ["retryable", "waiting"]
    clock.advance(10_000)
    complete(queue, parent)
    assert states(queue, child) == ["pending"]


def _lapse(queue: Queue, _: UUID, clock: FakeClock) -> None:
    queue.set("max_attempts", 1)
    leased(queue, "parent")
    clock.advance(301)
    assert queue.reap_expired() == 1


def _expire(queue: Queue, _: UUID, clock: FakeClock) -> None:
    clock.advance(100_000)
    assert queue.expire_overdue() == 1


def _exchange(queue: Queue, _: UUID, __: FakeClock) -> None:
    queue.exchange([Failed(leased(queue, "parent"), "boom", retryable=False)])


def _misread(queue: Queue, parent: UUID, _: FakeClock) -> None:
    with queue.transaction() as tx:
        tx._context.write("UPDATE litequeue_body SET payload = x'00' WHERE job_id = ?", (parent.bytes,))
    assert queue.lease_next(["parent"]) is None


def _spend(queue: Queue, _: UUID, clock: FakeClock) -> None:
    for _attempt in range(5):
        leased(queue, "parent").fail("boom", delay=0)
        clock.advance(1)
        queue.promote_due()


@pytest.mark.parametrize("end", [_lapse, _expire, _exchange, _misread, _spend], ids=lambda end: end.__name__[1:])
def test_every_way_to_die_decides_the_children(
    queue: Queue, clock: FakeClock, end: Callable[[Queue, UUID, FakeClock], None]
) -> None:
    """Out of attempts, lapsed, too late, not retryable, unreadable: all ends go through one place (G5, G6, V11)."""
    parent = queue.enqueue("parent", expires=90_000).job_id
    cancelled, runs = made(queue, "cancelled", parent), made(queue, "runs", parent, policy="run")
    end(queue, parent, clock)
    assert states(queue, parent, cancelled, runs) == ["dead", "cancelled", "pending"]
    if end is _misread:
        with queue.transaction() as tx:
            tx._context.write("UPDATE litequeue_body SET payload = x'01c0' WHERE job_id = ?", (parent.bytes,))


@pytest.mark.parametrize("state", ENDS)
def test_a_parent_that_does_not_complete_cancels_its_children_and_theirs(queue: Queue, state: str) -> None:
    """`cancel` is the default; the log of each says which job it was (V9)."""
    parent, other = made(queue, "parent"), made(queue, "other")
    child = made(queue, "child", parent, other)
    grandchild = made(queue, "grandchild", child)
    ENDS[state](queue, parent)
    assert states(queue, parent, other, child, grandchild) == [state, "pending", "cancelled", "cancelled"]
    assert last_event(queue, child) == ("cancelled", f"job {parent}, for which it waited, is {state}")
    assert last_event(queue, grandchild) == ("cancelled", f"job {child}, for which it waited, is cancelled")
    complete(queue, other)
    assert states(queue, child) == ["cancelled"]


@pytest.mark.parametrize("state", ENDS)
def test_with_run_a_parent_has_ended_however_it_did(queue: Queue, state: str) -> None:
    """The child runs once all have ended, and is told how."""
    parent, other = made(queue, "parent"), made(queue, "other")
    child = made(queue, "child", parent, other, policy="run")
    ENDS[state](queue, parent)
    assert states(queue, child) == ["waiting"]
    complete(queue, other)
    assert states(queue, child) == ["pending"]
    found = queue.dependencies(child)
    assert (found.parents, found.completed, found.missing) == (2, 1, 0)
    assert getattr(found, state) == 1


def test_parents_that_have_ended_already_decide_at_once(queue: Queue, job_in: JobIn) -> None:
    """A completed one counts as done; one that is dead or cancelled cancels, unless it may `run` (V1)."""
    done, dead, cancelled = (job_in(state) for state in (JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED))
    assert states(queue, made(queue, "a", done)) == ["pending"]
    for parent, state in ((dead, "dead"), (cancelled, "cancelled")):
        enqueued = queue.enqueue("b", after=[done, parent])
        assert enqueued.created
        assert last_event(queue, enqueued.job_id) == ("cancelled", f"job {parent}, for which it waited, is {state}")
    runs = made(queue, "c", done, dead, cancelled, policy="run")
    assert states(queue, runs) == ["pending"]
    found = queue.dependencies(runs)
    assert (found.parents, found.completed, found.dead, found.cancelled, found.missing) == (3, 1, 1, 1, 0)


def test_jobs_of_one_call_may_wait_for_earlier_ones_of_it(queue: Queue) -> None:
    """By the ids that they are given; a later one is not there yet, so no circle can be made (V1)."""
    ids = [UUID(int=UNKNOWN.int + n) for n in range(3)]
    queue.enqueue_many(NewJob(f"k{n}", job_id=job_id, after=ids[:n]) for n, job_id in enumerate(ids))
    assert states(queue, *ids) == ["pending", "waiting", "waiting"]
    for job_id in ids:
        complete(queue, job_id)
    one, other = UUID(int=99), UUID(int=98)
    with pytest.raises(JobNotFound, match=str(other)):
        queue.enqueue_many([NewJob("a", job_id=one, after=[other]), NewJob("b", job_id=other, after=[one])])
    with pytest.raises(JobNotFound):
        queue.get(one)


def test_a_doomed_job_cancels_those_of_its_call_that_wait_for_it(queue: Queue, job_in: JobIn) -> None:
    """Also where cancelled jobs go at once (`cancelled_retention` 0)."""
    dead = job_in(JobState.DEAD)
    for retention in (3600, 0):
        queue.set("cancelled_retention", retention)
        one = UUID(int=UNKNOWN.int + retention)
        results = queue.enqueue_many([NewJob("a", job_id=one, after=[dead]), NewJob("b", after=[one])])
        assert all(result.created for result in results)
        if retention:
            assert states(queue, *(result.job_id for result in results)) == ["cancelled", "cancelled"]
    assert queue.stats().counts[JobState.WAITING] == 0


def test_an_unknown_parent_is_named_and_nothing_is_stored(queue: Queue, clock: FakeClock) -> None:
    """One that never was, or whose retention is over; a repeated key or id is answered without it (V1, V2)."""
    with pytest.raises(JobNotFound, match=f"no job {UNKNOWN} to wait for"):
        queue.enqueue_many([NewJob("a"), NewJob("b", after=[UNKNOWN])])
    assert queue.stats().total == 0
    parent = made(queue, "parent")
    child = queue.enqueue("child", after=[parent], idempotency_key="key")
    complete(queue, parent)
    clock.advance(86_401)
    assert queue.prune() == 1
    with pytest.raises(JobNotFound, match=str(parent)):
        made(queue, "other", parent)
    assert queue.enqueue("child", after=[parent], idempotency_key="key") == (child.job_id, False)
    assert queue.enqueue("child", after=[parent], job_id=child.job_id) == (child.job_id, False)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"after": str(UNKNOWN)}, "after must be a list of job ids"),
        ({"after": UNKNOWN}, "after must be a list of job ids"),
        ({"after": 7}, "after must be a list of job ids"),
        ({"after": ["seven"]}, "after must be a UUID or the text of one, not 'seven'"),
        ({"after": [UUID(int=n) for n in range(1001)]}, "after must be at most 1,000 job ids, not 1001"),
        ({"after": [UNKNOWN], "job_id": UNKNOWN}, "none can wait for itself"),
        ({"after": [UNKNOWN], "idempotency_key": "k", "on_conflict": "reset"}, "on_conflict must be return or raise"),
        ({"on_parent_failure": "ignore"}, "on_parent_failure must be cancel or run, not 'ignore'"),
    ],
)
def test_bad_arguments_are_named_with_their_bounds(queue: Queue, fields: dict[str, object], said: str) -> None:
    """§6: the argument, its value, the bounds."""
    with pytest.raises(UsageError, match=said):
        queue.enqueue("work", **fields)  # type: ignore[arg-type] # that is what is tested
    with pytest.raises(UsageError, match=said):
        NewJob("work", **fields)  # type: ignore[arg-type] # the same


def test_a_thousand_parents_are_taken_each_once(queue: Queue) -> None:
    """The bound itself; an id that is given twice counts once."""
    parents = [made.job_id for made in queue.enqueue_many(NewJob("parent") for _ in range(1000))]
    child = queue.enqueue("child", after=[*parents, *parents]).job_id
    again = queue.enqueue("child", after=[parents[0], str(parents[0])]).job_id
    assert queue.dependencies(child).missing == 1000
    assert queue.dependencies(again).missing == 1
    while leases := queue.lease_many(1000, ["parent"]):
        queue.complete_many(leases)
    assert queue.tell_waiting() >= 0
    assert states(queue, child, again) == ["pending", "pending"]


def test_a_delay_goes_on_while_a_job_waits(queue: Queue, clock: FakeClock) -> None:
    """`delay` counts from the enqueue: what is left of it is waited out once the parents have ended (V1)."""
    parent = made(queue, "parent")
    late = queue.enqueue("late", after=[parent], delay=100).job_id
    soon = queue.enqueue("soon", after=[parent], delay=10).job_id
    clock.advance(50)
    assert queue.promote_due() == 0, "they wait for something else"
    complete(queue, parent)
    assert states(queue, late, soon) == ["scheduled", "pending"]
    assert queue.get(late).not_before == queue.get(late).events[0].at + 100_000_000
    clock.advance(50)
    assert leased(queue, "late").job_id == late


def test_a_job_that_waits_past_its_time_is_dead(queue: Queue, clock: FakeClock) -> None:
    """`expires` goes on while it waits, and its own children hear of it (V11)."""
    parent = made(queue, "parent")
    child = queue.enqueue("child", after=[parent], expires=60).job_id
    grandchild = made(queue, "grandchild", child)
    sooner = queue.enqueue("sooner", after=[parent], expires=120).job_id
    clock.advance(60)
    assert queue.expire_overdue() == 1
    assert states(queue, parent, child, grandchild) == ["pending", "dead", "cancelled"]
    assert queue.get(child).last_error == "expired"
    lease = leased(queue, "parent")
    clock.advance(60)
    lease.complete()
    assert states(queue, sooner) == ["dead"], "nobody had buried it by then"


def test_released_jobs_go_in_the_order_in_which_they_were_enqueued(queue: Queue, clock: FakeClock) -> None:
    """They keep their `created_at`, and so go ahead of younger ones of their priority (G4)."""
    parent = made(queue, "parent")
    children = [made(queue, "work", parent) for _ in range(5)]
    urgent = queue.enqueue("work", after=[parent], priority=1).job_id
    clock.advance(1)
    younger = made(queue, "work")
    clock.advance(1)
    with queue.transaction() as tx:
        children += [tx.enqueue("later", after=[parent], job_id=UUID(int=9 - n)).job_id for n in range(3)]
    complete(queue, parent)
    order = [lease.job_id for lease in queue.lease_many(20)]
    assert order == [urgent, *children[:5], younger, *children[5:]]


def test_a_key_is_held_while_its_job_waits(queue: Queue) -> None:
    """V2: return, raise; reset changes the payload, priority and times, and goes on waiting."""
    parent = made(queue, "parent")
    child = queue.enqueue("child", "old", after=[parent], idempotency_key="key", delay=5).job_id
    assert queue.enqueue("child", "new", idempotency_key="key") == (child, False)
    with pytest.raises(DuplicateJob):
        queue.enqueue("child", idempotency_key="key", on_conflict="raise")
    assert queue.enqueue("child", "newest", idempotency_key="key", on_conflict="reset", priority=7) == (child, False)
    job = queue.get(child)
    assert (job.state, job.payload, job.priority) == (JobState.WAITING, "newest", 7)
    complete(queue, parent)
    assert states(queue, child) == ["pending"], "the new trigger has no delay"
    other = queue.enqueue("child", after=[made(queue, "parent")], idempotency_key="other").job_id
    queue.cancel(other)
    assert queue.enqueue("child", idempotency_key="other").created, "a cancelled job frees its key"


def test_an_operator_cancels_and_retries_waiting_jobs(queue: Queue) -> None:
    """Cancelled like every waiting job; retried it goes now, whatever it waits for (V9, V10)."""
    parent = made(queue, "parent")
    stopped, hurried = made(queue, "stopped", parent), made(queue, "hurried", parent)
    heir = made(queue, "heir", stopped)
    queue.cancel(stopped)
    queue.retry(hurried)
    assert states(queue, stopped, heir, hurried) == ["cancelled", "cancelled", "pending"]
    assert last_event(queue, hurried) == ("retried", "was waiting")
    with pytest.raises(InvalidTransition):
        queue.cancel(stopped)
    assert queue.dependencies(parent).children == 0
    assert queue.dependencies(hurried).missing == 0
    complete(queue, hurried)
    complete(queue, parent)
    assert states(queue, stopped, hurried) == ["cancelled", "completed"], "told of nothing any more"


def test_a_retried_parent_revives_nobody_and_a_retried_child_runs(queue: Queue) -> None:
    """What was decided stays so; a child that is retried does not wait a second time (V10)."""
    parent = made(queue, "parent")
    child, runs = made(queue, "child", parent), made(queue, "runs", parent, policy="run")
    kill(queue, parent)
    queue.retry(parent)
    assert states(queue, parent, child, runs) == ["pending", "cancelled", "pending"]
    queue.retry(child)
    assert states(queue, child) == ["pending"]
    complete(queue, child)
    complete(queue, runs)
    complete(queue, parent)
    assert states(queue, parent, child, runs) == ["completed"] * 3


def test_the_same_id_is_queued_anew_with_other_parents(queue: Queue) -> None:
    """A cancelled job of an id that is enqueued again waits for what the new call says (V1)."""
    first, second = made(queue, "first"), made(queue, "second")
    child = queue.enqueue("child", after=[first]).job_id
    queue.cancel(child)
    assert queue.enqueue("child", after=[second], job_id=child).created
    assert queue.dependencies(child).waits_for == (second,)
    complete(queue, first)
    assert states(queue, child) == ["waiting"]
    queue.cancel(child)
    assert queue.enqueue("child", job_id=child).created
    assert states(queue, child) == ["pending"]
    assert queue.dependencies(child).parents == 0
    kill(queue, child)
    heir = made(queue, "heir", child, policy="run")
    assert queue.enqueue("child", job_id=child, after=[heir]).created, "it is dead, so nothing waits for it"
    complete(queue, heir)
    assert states(queue, child) == ["pending"]


def test_a_parent_that_comes_back_tells_each_child_of_the_end_that_it_waited_for(queue: Queue) -> None:
    """Children of a first end that is still being told, and those of a second one, are not mixed up (G5)."""
    parent = made(queue, "parent")
    old = [made.job_id for made in queue.enqueue_many(NewJob("old", after=[parent]) for _ in range(MANY))]
    kill(queue, parent)
    assert states(queue, old[-1]) == ["waiting"], "one transaction tells a hundred"
    queue.retry(parent)
    new = made(queue, "new", parent)
    complete(queue, parent)
    assert queue.lease_next(["none"]) is None
    assert set(states(queue, *old)) == {"cancelled"}
    assert states(queue, new) == ["pending"]


def test_a_transaction_that_ends_a_parent_tells_a_hundred_and_lease_calls_the_rest(
    queue: Queue, make_queue: MakeQueue
) -> None:
    """Bounded work for each completion; nobody else is needed for the rest, whoever dies (G5, G9)."""
    parent = made(queue, "parent")
    children = [made.job_id for made in queue.enqueue_many(NewJob("child", after=[parent]) for _ in range(MANY))]
    lease = leased(queue, "parent")
    lease.complete()
    counts = queue.stats().counts
    assert (counts[JobState.PENDING], counts[JobState.WAITING]) == (100, MANY - 100)
    assert queue.dependencies(parent).children == MANY - 100
    other = make_queue(scope="elsewhere")
    assert other.wait(0, ["none"]), "there is something for a lease call to do"
    assert other.lease_next(["none"]) is None
    assert queue.stats().counts[JobState.PENDING] == MANY
    assert not other.wait(0, ["none"])
    assert [lease.job_id for lease in queue.lease_many(MANY, ["child"])] == children


def test_a_busy_queue_tells_them_too(queue: Queue, clock: FakeClock) -> None:
    """Where a lease call always finds something, it does its share once a second, until all is told (§3)."""
    parent = made(queue, "parent")
    queue.enqueue_many(NewJob("child", after=[parent], priority=1) for _ in range(MANY))
    queue.enqueue_many(NewJob("busy") for _ in range(20))
    complete(queue, parent)
    clock.advance(2)
    for _ in range(5):
        assert queue.lease_next(["busy"]) is not None
    assert queue.stats().counts[JobState.WAITING] == 0


def test_upkeep_tells_them_in_steps(queue: Queue) -> None:
    """`tell_waiting`, also within a transaction (V11)."""
    for tell in (queue.tell_waiting, None):
        parent = made(queue, "parent")
        children = [made.job_id for made in queue.enqueue_many(NewJob("child", after=[parent]) for _ in range(MANY))]
        complete(queue, parent)
        if tell is not None:
            assert tell() == MANY - 100
        else:
            with queue.transaction() as tx:
                assert tx.tell_waiting() == MANY - 100
        assert set(states(queue, *children)) == {"pending"}
        queue.cancel_many(children)
    assert queue.tell_waiting() == 0


def test_a_long_chain_is_cancelled_in_bounded_steps(queue: Queue) -> None:
    """Each link by the one before it, a hundred in the commit of the cancel (V9)."""
    chain = [made(queue, "link")]
    for _ in range(MANY):
        chain.append(made(queue, "link", chain[-1]))
    queue.cancel(chain[0])
    assert states(queue, chain[100], chain[101]) == ["cancelled", "waiting"]
    assert queue.lease_next() is None
    assert set(states(queue, *chain)) == {"cancelled"}
    assert last_event(queue, chain[-1]) == ("cancelled", f"job {chain[-2]}, for which it waited, is cancelled")


def test_a_chain_is_cancelled_whole_in_one_call(queue: Queue) -> None:
    """What the cancel of the first has cancelled is done as asked; what was cancelled before is refused (V9)."""
    first = made(queue, "link")
    second = made(queue, "link", first)
    third = made(queue, "link", second)
    (refusal,) = queue.cancel_many([first, UUID(int=7), second, third])
    assert isinstance(refusal, JobNotFound)
    assert states(queue, first, second, third) == ["cancelled"] * 3
    assert [late.job_id for late in queue.cancel_many([second, third])] == [second, third]
    fourth = made(queue)
    assert [twice.job_id for twice in queue.cancel_many([fourth, fourth])] == [fourth], "where there are chains, too"


def test_what_a_cancelled_job_missed_is_forgotten_in_steps(queue: Queue) -> None:
    """A job with many parents is stopped at once, and they end without a word to it."""
    parents = [made.job_id for made in queue.enqueue_many(NewJob("parent") for _ in range(MANY))]
    child = queue.enqueue("child", after=parents).job_id
    queue.cancel(child)
    assert queue.dependencies(child).missing == 0
    assert queue.dependencies(parents[0]).children == 0
    assert queue.dependencies(parents[-1]).children == 1, "not forgotten yet"
    assert queue.enqueue("child", job_id=child, after=parents[-1:]).created
    queue.complete_many(queue.lease_many(MANY, ["parent"]))
    queue.tell_waiting()
    assert states(queue, child) == ["pending"]


def test_a_pruned_parent_leaves_its_children_unharmed(queue: Queue, clock: FakeClock) -> None:
    """Those that were told, and those that are yet to be told of its end (V11)."""
    parent = made(queue, "parent")
    children = [made.job_id for made in queue.enqueue_many(NewJob("child", after=[parent]) for _ in range(MANY))]
    complete(queue, parent)
    clock.advance(86_401)
    assert queue.prune() == 1
    assert queue.tell_waiting() == MANY - 100
    assert set(states(queue, *children)) == {"pending"}


@pytest.mark.parametrize("setting", ["completed_retention", "cancelled_retention", "dead_retention"])
def test_children_hear_of_parents_that_go_at_once(queue: Queue, setting: str) -> None:
    """A retention of 0 removes a job in the commit of its end (§5)."""
    queue.set(setting, 0)
    parent = made(queue, "parent")
    child, runs = made(queue, "child", parent), made(queue, "runs", parent, policy="run")
    {"completed_retention": complete, "cancelled_retention": ENDS["cancelled"], "dead_retention": kill}[setting](
        queue, parent
    )
    with pytest.raises(JobNotFound):
        queue.get(parent)
    if setting == "cancelled_retention":
        with pytest.raises(JobNotFound):
            queue.get(child)
        assert states(queue, runs) == ["pending"]
    else:
        expected = "pending" if setting == "completed_retention" else "cancelled"
        assert states(queue, child, runs) == [expected, "pending"]


def test_a_waiting_job_that_goes_at_once_leaves_nothing(queue: Queue) -> None:
    """Cancelled with a retention of 0: what it missed is forgotten, though its gate has gone with it."""
    queue.set("cancelled_retention", 0)
    parents = [made.job_id for made in queue.enqueue_many(NewJob("parent") for _ in range(MANY))]
    child = queue.enqueue("child", after=parents).job_id
    queue.cancel(child)
    assert problems(queue.path) == []
    queue.tell_waiting()
    assert queue.dependencies(parents[-1]).children == 0


def test_ends_and_children_are_one_commit(queue: Queue) -> None:
    """A rollback leaves both as they were; inside, the transaction sees them (G7, V14)."""
    parent = made(queue, "parent")
    child = made(queue, "child", parent)
    with suppress(Undo), queue.transaction() as tx:
        lease = tx.lease_next(["parent"])
        assert lease is not None
        tx.complete(lease)
        assert tx.get(child).state is JobState.PENDING
        assert tx.dependencies(child).completed == 1
        raise Undo
    assert states(queue, parent, child) == ["pending", "waiting"]
    with suppress(Undo), queue.transaction() as tx:
        tx.enqueue("child", after=[parent])
        raise Undo
    assert queue.dependencies(parent).children == 1
    with queue.transaction() as tx:
        with pytest.raises(JobNotFound):
            tx.enqueue("child", after=[UNKNOWN])
        tx.enqueue("fine")
    complete(queue, parent)
    assert states(queue, child) == ["pending"]


def test_the_first_chain_of_a_file_may_be_rolled_back(make_queue: MakeQueue) -> None:
    """That the file has chains is known to all, and only once it is so (§5)."""
    queue, other = make_queue(), make_queue()
    with suppress(Undo), queue.transaction() as tx:
        tx.enqueue("child", after=[tx.enqueue("parent").job_id])
        raise Undo
    for number in range(2):
        parent = made(queue, f"parent {number}")
        child = made(other, f"child {number}", parent)
        complete(queue, parent)
        assert states(other, child) == ["pending"]


def test_followers_may_wait_for_others(queue: Queue) -> None:
    """`then` takes `after`; a parent that is not there refuses the completion alone (V6)."""
    slow = made(queue, "slow")
    made(queue, "work")
    leased(queue, "work").complete(then=[NewJob("follower", after=[slow], job_id=UNKNOWN)])
    assert states(queue, UNKNOWN) == ["waiting"]
    made(queue, "work")
    made(queue, "other")
    lease, other = leased(queue, "work"), leased(queue, "other")
    nobody = UUID(int=5)
    done = queue.exchange([Completed(lease, then=[NewJob("follower", after=[nobody])]), Completed(other)])
    ((refused, reason),) = done.refused
    assert isinstance(reason, JobNotFound)
    assert refused.lease is lease
    with pytest.raises(JobNotFound):
        lease.complete(then=[NewJob("follower", after=[nobody])])
    lease.complete()
    assert states(queue, other.job_id) == ["completed"]


def test_a_message_of_an_outbox_may_be_waited_for(queue: Queue) -> None:
    """It is delivered, and its child has its turn; one that stands behind others is no job yet."""
    outbox = Outbox(queue, "mail")
    with queue.transaction() as tx:
        first, second = (outbox.put(tx, number, key="key") for number in range(2))
    child = made(queue, "child", first)
    with pytest.raises(JobNotFound):
        made(queue, "child", second)
    (lease,) = queue.lease_many(1, [outbox.kind], scope=outbox._scope)
    lease.complete()
    assert states(queue, child) == ["pending"]


def test_parents_and_children_may_be_of_different_scopes(queue: Queue) -> None:
    """An id names a job wherever it is; `list` and `stats` show what waits (V13)."""
    parent = queue.enqueue("parent", scope="one").job_id
    child = queue.enqueue("child", scope="two", after=[parent]).job_id
    assert [job.job_id for job in queue.list(JobState.WAITING, scope=ANY)] == [child]
    assert queue.stats(ANY).counts[JobState.WAITING] == 1
    assert queue.stats(ANY).by_kind["child"] == {JobState.WAITING: 1}
    queue.cancel(parent)
    assert states(queue, child) == ["cancelled"]


def test_a_wait_for_a_waiting_job_goes_on_until_its_end(queue: Queue) -> None:
    """As for every other one; cancelled by its parent it is returned like every cancelled job."""
    parent = made(queue, "parent")
    child = made(queue, "child", parent)
    with pytest.raises(WaitTimeout) as caught:
        queue.wait_for(child, 0)
    assert caught.value.state == "waiting"
    kill(queue, parent)
    assert queue.wait_for(child, 0).state is JobState.CANCELLED


def test_a_stale_holder_of_a_parent_tells_nobody(queue: Queue, clock: FakeClock) -> None:
    """Its late word is refused, and the children go by what stands (G1)."""
    parent = made(queue, "parent")
    child = made(queue, "child", parent)
    stale = leased(queue, "parent")
    clock.advance(301)
    queue.reap_expired()
    with pytest.raises(LeaseConflict):
        stale.complete()
    assert states(queue, child) == ["waiting"]
    clock.advance(1_000)
    kill(queue, parent)
    assert states(queue, child) == ["cancelled"]


def test_dependencies_of_a_job_outside_of_chains_are_none(queue: Queue) -> None:
    """And of none it is an error (V13)."""
    found = queue.dependencies(made(queue))
    assert (found.parents, found.missing, found.waits_for, found.children) == (0, 0, (), 0)
    with pytest.raises(JobNotFound):
        queue.dependencies(UNKNOWN)


def test_a_chain_is_made_on_the_applications_own_connection(
    app: apsw.Connection, attached: Attached, make_queue: MakeQueue
) -> None:
    """In its transaction, with its rows; its own last row id stays what it was (V14)."""
    with app:
        app.execute("INSERT INTO orders DEFAULT VALUES")
        order = app.last_insert_rowid()
        parent = attached.enqueue("parent").job_id
        batch = attached.batch([NewJob("member", after=[parent])], NewJob("last"))
        assert app.last_insert_rowid() == order
    with suppress(Undo), app:
        app.execute("DELETE FROM orders")
        attached.cancel(parent)
        raise Undo
    worker = make_queue()
    assert states(worker, parent, batch.jobs[0].job_id, batch.then.job_id) == ["pending", "waiting", "waiting"]
    with app:
        app.execute("UPDATE orders SET mailed = 1")
        attached.cancel(parent)
        assert app.last_insert_rowid() == order
    assert states(worker, parent, batch.jobs[0].job_id, batch.then.job_id) == ["cancelled", "cancelled", "pending"]


def test_who_opened_the_file_between_two_chains_tells_those_that_wait(
    queue: Queue, make_queue: MakeQueue, clock: FakeClock
) -> None:
    """The first chain is over, and pruned; a worker that starts then hears of the next one (G5)."""
    parent = made(queue, "parent")
    child = made(queue, "child", parent)
    complete(queue, parent)
    complete(queue, child)
    clock.advance(86_401)
    assert queue.prune() == 2
    worker = make_queue()
    made(worker, "other")
    for end in (complete, *ENDS.values()):
        parent = made(queue, "parent")
        child = made(queue, "child", parent, policy="run")
        end(worker, parent)
        assert states(queue, child) == ["pending"]
        complete(worker, child)


@pytest.mark.parametrize("on_conflict", ["return", "raise", "reset"])
def test_no_job_folds_into_one_that_waits_in_vain(queue: Queue, on_conflict: OnConflict) -> None:
    """It has been cancelled by then, as if each had a call of its own, and has freed its key (V2)."""
    parent = made(queue, "parent")
    kill(queue, parent)
    doomed, heir, fine = queue.enqueue_many(
        [
            NewJob("child", "doomed", after=[parent], idempotency_key="k"),
            NewJob("child", "too", after=[parent], idempotency_key="k"),
            NewJob("child", "fine", idempotency_key="k", on_conflict=on_conflict),
        ]
    )
    assert [doomed.created, heir.created, fine.created] == [True] * 3
    assert states(queue, doomed.job_id, heir.job_id, fine.job_id) == ["cancelled", "cancelled", "pending"]
    assert queue.get(fine.job_id).payload == "fine"


def test_an_id_that_waits_in_vain_is_queued_anew_by_a_later_job_of_the_call(queue: Queue) -> None:
    """And who waits for it in the call waits for what it is by then (V1)."""
    parent = made(queue, "parent")
    kill(queue, parent)
    first, second, third, _ = queue.enqueue_many(
        [
            NewJob("child", "doomed", after=[parent], job_id=UNKNOWN),
            NewJob("early", after=[UNKNOWN]),
            NewJob("child", "fine", job_id=UNKNOWN),
            NewJob("late", after=[UNKNOWN]),
        ]
    )
    assert (first.created, third.created) == (True, True)
    assert states(queue, second.job_id, UNKNOWN) == ["cancelled", "pending"]
    complete(queue, UNKNOWN)
    assert leased(queue, "late").payload is None


def test_who_waits_for_a_job_that_has_gone_in_the_same_call_is_cancelled(queue: Queue) -> None:
    """With a retention of 0 nothing is left of the first, and the second hears of it all the same (§5)."""
    parent = made(queue, "parent")
    kill(queue, parent)
    queue.set("cancelled_retention", 0)
    results = queue.enqueue_many(
        [
            NewJob("child", after=[parent], job_id=UNKNOWN),
            NewJob("grandchild", after=[UNKNOWN]),
            NewJob("runs", after=[UNKNOWN], on_parent_failure="run"),
        ]
    )
    assert [result.created for result in results] == [True] * 3
    assert {job.kind for job in queue.list()} == {"parent", "runs"}
    assert states(queue, results[2].job_id) == ["pending"]
