"""`Queue.exchange`: settlements in, leases out, one commit (V3, V6 to V8; G1, G11)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from litequeue import (
    Completed,
    DuplicateJob,
    Failed,
    JobState,
    LeaseConflict,
    NewJob,
    PayloadError,
    QueueBusy,
    QueueFull,
    Released,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Lease, Queue, Settlement
    from litequeue.model import Scope
    from litequeue.sqlite.context import Context
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue

SECOND = 1_000_000

SETTLE: dict[str, Callable[[Lease], Settlement]] = {
    "completed": lambda lease: Completed(lease, "late"),
    "completed with followers": lambda lease: Completed(lease, "late", [NewJob("follower")]),
    "failed": lambda lease: Failed(lease, "late"),
    "failed for good": lambda lease: Failed(lease, "late", retryable=False),
    "failed and retaken": lambda lease: Failed(lease, "late", retake_within=60),
    "released": Released,
    "released with a delay": lambda lease: Released(lease, 60),
}
each_sort = pytest.mark.parametrize("sort", SETTLE)


def leased(queue: Queue, number: int) -> list[Lease]:
    """Enqueue so many jobs, and lease them."""
    queue.enqueue_many(NewJob("work", n) for n in range(number))
    leases = queue.lease_many(number)
    assert len(leases) == number
    return leases


def rolled_back_lease(queue: Queue) -> Lease:
    """Return a lease that a transaction took which was rolled back."""
    leases: list[Lease] = []
    with suppress(ZeroDivisionError), queue.transaction() as tx:
        leases += tx.lease_many(1)
        raise ZeroDivisionError
    return leases[0]


def nested(levels: int) -> object:
    """Return a list in a list in a list."""
    value: object = None
    for _ in range(levels):
        value = [value]
    return value


# --- what it settles and leases


def test_settlements_of_all_sorts_and_new_leases_are_one_exchange(queue: Queue, clock: FakeClock) -> None:
    """Each ends as the verb of its own name would end it, and the next jobs are leased in order (V3, V6, V7, V8)."""
    done, failed, dead, released, snoozed = leased(queue, 5)
    queue.enqueue_many(NewJob("more", n) for n in range(3))
    exchange = queue.exchange(
        [
            Completed(done, {"pages": 3}, [NewJob("follower", "f")]),
            Failed(failed, "no route"),
            Failed(dead, "no such file", retryable=False),
            Released(released),
            Released(snoozed, delay=60),
        ],
        2,
        ["more"],
        worker_id="ann",
        ttl=7,
    )
    assert (exchange.retaken, exchange.refused) == ([], [])
    assert [(lease.payload, lease.worker_id, lease.attempts) for lease in exchange.leases] == [
        (0, "ann", 1),
        (1, "ann", 1),
    ]
    assert queue.get(exchange.leases[0].job_id).lease_deadline == clock.wall_us() + 7 * SECOND
    states = [queue.get(lease.job_id).state for lease in (done, failed, dead, released, snoozed)]
    assert states == [
        JobState.COMPLETED,
        JobState.RETRYABLE,
        JobState.DEAD,
        JobState.PENDING,
        JobState.SCHEDULED,
    ]
    assert queue.get(done.job_id).result == {"pages": 3}
    assert [job.payload for job in queue.list(kind="follower")] == ["f"]
    assert (queue.get(failed.job_id).last_error, queue.get(failed.job_id).attempts) == ("no route", 1)
    assert queue.get(failed.job_id).not_before == clock.wall_us() + 10 * SECOND
    assert queue.get(released.job_id).attempts == 0
    assert queue.get(snoozed.job_id).not_before == clock.wall_us() + 60 * SECOND


def test_an_exchange_without_a_limit_leases_nothing(queue: Queue) -> None:
    """A worker that drains hands in what it has, and takes no more (V3)."""
    (lease,) = leased(queue, 1)
    queue.enqueue("work")
    assert queue.exchange([Completed(lease)]).leases == []
    assert queue.stats().counts[JobState.PENDING] == 1


def test_an_exchange_without_settlements_leases_as_lease_many_does(queue: Queue) -> None:
    """And with neither it does nothing at all (V3)."""
    queue.enqueue_many(NewJob("work", n) for n in range(3))
    assert queue.exchange([]).leases == []
    assert [lease.payload for lease in queue.exchange((), 2).leases] == [0, 1]
    assert [lease.payload for lease in queue.exchange(iter(()), 2, scope="default").leases] == [2]
    assert queue.exchange([], 2).leases == []


@pytest.mark.parametrize("scope", [None, "other"])
def test_leases_come_from_the_scope_and_the_settlements_may_be_of_any(queue: Queue, scope: Scope | None) -> None:
    """The filter is for what is leased; a lease says itself which job it is of (V3)."""
    (lease,) = leased(queue, 1)
    queue.enqueue("work", "here")
    queue.enqueue("work", "there", scope="other")
    exchange = queue.exchange([Completed(lease)], 10, scope=scope)
    assert [lease.payload for lease in exchange.leases] == ["there" if scope else "here"]
    assert queue.get(lease.job_id).state is JobState.COMPLETED


def test_a_job_that_comes_back_at_once_may_be_leased_in_the_same_exchange(queue: Queue, clock: FakeClock) -> None:
    """What is released is ready, and what failed with no pause is due: both go ahead of younger ones (G4, V7, V8)."""
    released, failed = leased(queue, 2)
    clock.advance(1)
    queue.enqueue("work", "younger")
    exchange = queue.exchange([Released(released), Failed(failed, "again", delay=0)], 5)
    assert [lease.payload for lease in exchange.leases] == [0, 1, "younger"]


def test_an_exchange_goes_on_while_upkeep_finds_work(queue: Queue, clock: FakeClock) -> None:
    """Due work is leased by the exchange that finds nothing ready, as `lease_many` does it (§3)."""
    lease = due_after_upkeep(queue, clock)
    exchange = queue.exchange([Completed(lease)], 2)
    assert [lease.payload for lease in exchange.leases] == [0, 1]


def test_a_completed_key_and_a_kept_trigger_are_as_with_complete(queue: Queue) -> None:
    """The trigger that came during the run becomes a new job, in the same commit (V2)."""
    queue.enqueue("work", 1, idempotency_key="k")
    (lease,) = queue.lease_many(1)
    queue.enqueue("work", 2, idempotency_key="k", on_conflict="reset")
    exchange = queue.exchange([Completed(lease)], 1)
    assert [lease.payload for lease in exchange.leases] == [2]


def test_an_exchange_tells_which_jobs_are_dead_by_it(queue: Queue, clock: FakeClock) -> None:
    """Not retryable, out of attempts, or too late to start again; not those that come again (V7, V8)."""
    queue.enqueue_many([NewJob("work"), NewJob("work"), NewJob("work", max_attempts=1), NewJob("work", expires=5)])
    queue.enqueue_many([NewJob("work"), NewJob("work")])
    again, for_good, spent, late, short, done = queue.lease_many(6)
    clock.advance(6)
    settlements: list[Settlement] = [
        Failed(again, "boom"),
        Failed(for_good, "boom", retryable=False),
        Failed(spent, "boom", retake_within=60),
        Released(late),
        Failed(short, "boom", retake_within=60),
        Completed(done),
    ]
    exchange = queue.exchange(settlements)
    assert exchange.dead == settlements[1:4]
    assert [queue.get(lease.job_id).state for lease in (for_good, spent, late)] == [JobState.DEAD] * 3


# --- each by itself


@each_sort
@pytest.mark.parametrize("how", ["reaped", "cancelled", "leased anew", "completed", "void"])
def test_a_settlement_of_a_lost_lease_is_refused_and_changes_nothing(
    make_queue: MakeQueue, clock: FakeClock, sort: str, how: str
) -> None:
    """Whatever it says and however the lease was lost: a conflict, and the job is as it was (G1)."""
    queue, other = make_queue(), make_queue()
    queue.enqueue("work", 1)
    if how == "void":
        lease = rolled_back_lease(queue)
    else:
        (lease,) = queue.lease_many(1, worker_id="ann", ttl=5)
    match how:
        case "reaped":
            clock.advance(6)
            assert other.reap_expired() == 1
        case "cancelled":
            other.cancel(lease.job_id)
        case "leased anew":
            clock.advance(6)
            other.reap_expired()
            clock.advance(10)
            assert other.lease_next(worker_id="ann") is not None
        case "completed":
            lease.complete("first")
        case _:
            pass
    before, counts = queue.get(lease.job_id), queue.stats().counts
    settlement = SETTLE[sort](lease)
    exchange = queue.exchange([settlement])
    ((refused, conflict),) = exchange.refused
    assert refused is settlement
    assert isinstance(conflict, LeaseConflict)
    assert (conflict.job_id, conflict.lease_generation) == (lease.job_id, lease.lease_generation)
    assert (exchange.leases, exchange.retaken) == ([], [])
    assert queue.get(lease.job_id) == before
    assert queue.stats().counts == counts


@each_sort
def test_one_conflict_among_many_touches_no_other(queue: Queue, sort: str) -> None:
    """The good ones are done, wherever the stale one stands (G1, V6)."""
    first, stale, last = leased(queue, 3)
    queue.cancel(stale.job_id)
    exchange = queue.exchange([Completed(first, 1), SETTLE[sort](stale), Completed(last, 3)])
    assert [(refused.lease, type(error)) for refused, error in exchange.refused] == [(stale, LeaseConflict)]
    assert [queue.get(lease.job_id).result for lease in (first, last)] == [1, 3]
    assert queue.get(stale.job_id).state is JobState.CANCELLED


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (lambda lease: Completed(lease, object()), PayloadError),
        (lambda lease: Completed(lease, b"x" * 2_000_000), PayloadError),
        (lambda lease: Completed(lease, nested(3000)), PayloadError),
        (lambda lease: Completed(lease, "\ud800"), PayloadError),
        (lambda lease: Completed(lease, then=[NewJob("good"), NewJob("bad", object())]), PayloadError),
        (lambda lease: Completed(lease, then=[NewJob("good"), NewJob("bad", b"x" * 2_000_000)]), PayloadError),
        (
            lambda lease: Completed(
                lease, then=[NewJob("good"), NewJob("next", idempotency_key="taken", on_conflict="raise")]
            ),
            DuplicateJob,
        ),
    ],
    ids=["unpackable", "too large", "too deep", "surrogate", "follower", "large follower", "key of a follower"],
)
def test_one_bad_result_or_follower_among_many_touches_no_other(
    queue: Queue, bad: Callable[[Lease], Settlement], error: type[Exception]
) -> None:
    """It is refused with the reason, its lease is still held, and none of its followers is there (V6, §6, G11)."""
    queue.enqueue("next", idempotency_key="taken", delay=600)
    first, spoilt, last = leased(queue, 3)
    before = queue.get(spoilt.job_id)
    exchange = queue.exchange([Completed(first, 1), bad(spoilt), Completed(last, 3, [NewJob("follower")])])
    assert [(refused.lease, type(reason)) for refused, reason in exchange.refused] == [(spoilt, error)]
    assert [queue.get(lease.job_id).result for lease in (first, last)] == [1, 3]
    assert queue.get(spoilt.job_id) == before
    assert [len(queue.list(kind=kind)) for kind in ("good", "bad", "follower")] == [0, 0, 1]
    assert (spoilt.lost, spoilt.settled) == (False, False)
    spoilt.complete("after all")


def test_a_follower_that_no_room_is_for_touches_no_other(queue: Queue) -> None:
    """`QueueFull` is that settlement's alone: acknowledgements still work (§6)."""
    first, spoilt = leased(queue, 2)
    queue.set("max_bytes", 200_000)
    then = [NewJob("big", b"x" * 100_000) for _ in range(4)]
    exchange = queue.exchange([Completed(spoilt, then=then), Completed(first, 1)])
    assert [(refused.lease, type(reason)) for refused, reason in exchange.refused] == [(spoilt, QueueFull)]
    assert queue.get(first.job_id).state is JobState.COMPLETED
    assert queue.list(kind="big") == []
    spoilt.complete()


def test_a_lease_that_is_handed_in_twice_counts_once(queue: Queue) -> None:
    """The first word is done, the second is a conflict, and the lease is settled (G1)."""
    (lease,) = leased(queue, 1)
    second = Failed(lease, "boom")
    exchange = queue.exchange([Completed(lease, 1), second])
    assert [refused for refused, _ in exchange.refused] == [second]
    assert queue.get(lease.job_id).result == 1
    assert (lease.settled, lease.lost) == (True, False)


def test_the_refused_come_in_the_order_in_which_they_were_given(queue: Queue) -> None:
    """Conflicts, results and followers alike (V6)."""
    leases = leased(queue, 5)
    queue.cancel_many([leases[0].job_id, leases[3].job_id])
    settlements: list[Settlement] = [
        Completed(leases[0]),
        Completed(leases[1], then=[NewJob("next", b"x" * 2_000_000)]),
        Completed(leases[2], object()),
        Released(leases[3]),
        Completed(leases[4], b"x" * 2_000_000),
    ]
    assert [refused for refused, _ in queue.exchange(settlements).refused] == settlements


# --- one commit


def test_an_exchange_that_cannot_be_committed_has_not_happened(make_queue: MakeQueue) -> None:
    """`QueueBusy`: nothing was settled, nothing leased, and the same settlements can be handed in again (G11)."""
    queue, other = make_queue(busy_timeout=0.05), make_queue()
    lease, short = leased(queue, 2)
    queue.enqueue("work")
    settlements: list[Settlement] = [Completed(lease, 1), Failed(short, "boom", delay=0, retake_within=5)]
    with other.transaction(), pytest.raises(QueueBusy):
        queue.exchange(settlements, 1)
    assert (lease.settled, lease.lost) == (False, False)
    assert queue.stats().counts[JobState.LEASED] == 2
    exchange = queue.exchange(settlements, 2)
    assert (len(exchange.leases), len(exchange.retaken), exchange.refused) == (1, 1, [])


def test_an_exchange_that_rolls_back_voids_its_leases(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those leased and those retaken; and nothing that was handed in is settled (G1, G11)."""
    lease, short = leased(queue, 2)
    queue.enqueue("work")
    before = queue.list()
    taken: list[Lease] = []
    commit = queue._store.commit

    def fail(context: Context) -> None:
        taken.extend(context.leases)
        raise ZeroDivisionError

    monkeypatch.setattr(queue._store, "commit", fail)
    with pytest.raises(ZeroDivisionError):
        queue.exchange([Completed(lease, 1), Failed(short, "boom", delay=0, retake_within=5)], 2)
    monkeypatch.setattr(queue._store, "commit", commit)
    assert queue.list() == before
    assert (lease.settled, lease.lost, short.settled, short.lost) == (False,) * 4
    assert [one.is_void for one in taken] == [True, True]
    void = queue.exchange([Completed(one) for one in taken]).refused
    assert [type(reason) for _, reason in void] == [LeaseConflict] * 2
    assert queue.exchange([Completed(lease), Completed(short)]).refused == []


def due_after_upkeep(queue: Queue, clock: FakeClock) -> Lease:
    """Return a lease; the next exchange of its handle finds nothing ready, and promotes two jobs at its end."""
    (lease,) = leased(queue, 1)
    assert queue.lease_next() is None  # the upkeep of this second is done
    queue.enqueue_many(NewJob("due", n, delay=0.2) for n in range(2))
    clock.advance(0.4)
    return lease


def test_an_exchange_whose_second_step_finds_the_file_busy_has_settled_all_the_same(
    queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that raises did nothing, so one that has committed does not raise (G11); the jobs are there to be had."""
    lease = due_after_upkeep(queue, clock)
    write = queue._store.write
    calls: list[object] = []

    def busy_at_the_second(work: Callable[[Context], object], *, durable: bool) -> object:
        calls.append(work)
        if len(calls) > 1:
            raise QueueBusy("as if another process had the lock")
        return write(work, durable=durable)

    monkeypatch.setattr(queue._store, "write", busy_at_the_second)
    exchange = queue.exchange([Completed(lease)], 2)
    monkeypatch.undo()
    assert (len(calls), exchange.leases, exchange.refused) == (2, [], [])
    assert lease.settled
    assert [lease.payload for lease in queue.exchange([], 2).leases] == [0, 1]


def test_an_interrupt_in_the_second_step_says_that_the_settlements_stand(
    queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is raised, with a note (G11)."""
    lease = due_after_upkeep(queue, clock)
    write = queue._store.write

    def interrupted_at_the_second(work: Callable[[Context], object], *, durable: bool) -> object:
        if lease.settled:
            raise KeyboardInterrupt
        return write(work, durable=durable)

    monkeypatch.setattr(queue._store, "write", interrupted_at_the_second)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        queue.exchange([Completed(lease)], 2)
    assert any("had been committed" in note for note in interrupt.value.__notes__)
    assert queue.get(lease.job_id).state is JobState.COMPLETED


@pytest.mark.parametrize(
    ("bad", "argument"),
    [
        (lambda queue, lease: queue.exchange(Completed(lease)), "settlements"),
        (lambda queue, lease: queue.exchange([Completed(lease), lease]), "settlements"),
        (lambda queue, lease: queue.exchange([Completed(lease)], -1), "limit"),
        (lambda queue, lease: queue.exchange([Completed(lease)], 10_001), "limit"),
        (lambda queue, lease: queue.exchange([Completed(lease)], 1, "work"), "kinds"),
        (lambda queue, lease: queue.exchange([Completed(lease)], 1, worker_id=""), "worker_id"),
        (lambda queue, lease: queue.exchange([Completed(lease)], 1, ttl=0), "ttl"),
        (lambda queue, lease: queue.exchange([Completed(lease)], 1, scope="litequeue:x"), "scope"),
    ],
)
def test_a_bad_argument_settles_nothing(queue: Queue, bad: Callable[[Queue, Lease], object], argument: str) -> None:
    """One `UsageError` that names it, before anything is done (§6)."""
    (lease,) = leased(queue, 1)
    with pytest.raises(UsageError) as refusal:
        bad(queue, lease)
    assert refusal.value.argument == argument
    assert queue.get(lease.job_id).state is JobState.LEASED


def test_an_exchange_inside_a_transaction_is_refused(queue: Queue) -> None:
    """As every verb of the queue, also when it has nothing to do (§4)."""
    (lease,) = leased(queue, 1)
    with queue.transaction():
        with pytest.raises(UsageError):
            queue.exchange([Completed(lease)])
        with pytest.raises(UsageError):
            queue.exchange([])


def test_what_an_exchange_leased_is_given_back_at_a_close_and_what_it_settled_is_not(make_queue: MakeQueue) -> None:
    """The handle knows what it holds by its exchanges as well (§4)."""
    queue, other = make_queue(), make_queue()
    done, short = leased(queue, 2)
    next_id = queue.enqueue("work").job_id
    exchange = queue.exchange([Completed(done), Failed(short, "boom", retake_within=60)], 2)
    assert [lease.job_id for lease in exchange.leases] == [next_id]
    queue.close()
    assert other.get(done.job_id).state is JobState.COMPLETED
    assert (other.get(next_id).state, other.get(next_id).attempts) == (JobState.PENDING, 0)
    assert (other.get(short.job_id).state, other.get(short.job_id).attempts) == (JobState.PENDING, 1)


def test_a_retake_counts_within_the_limit(queue: Queue) -> None:
    """It is in the worker's hands like the new leases, and is never left out for them."""
    (short,) = leased(queue, 1)
    queue.enqueue("work")
    exchange = queue.exchange([Failed(short, "boom", retake_within=60)], 1)
    assert (len(exchange.leases), len(exchange.retaken)) == (0, 1)


def test_a_retake_counts_within_the_limit_also_when_the_exchange_goes_on(queue: Queue, clock: FakeClock) -> None:
    """Whichever of its transactions finds the new leases (V3)."""
    short = due_after_upkeep(queue, clock)
    exchange = queue.exchange([Failed(short, "boom", retake_within=60)], 2)
    assert (len(exchange.leases), len(exchange.retaken)) == (1, 1)


def test_lost_knows_void_leases_and_refused_ones(queue: Queue, clock: FakeClock) -> None:
    """What a verb would refuse, it finds: also the void twin of a lease that is held (G1, §4)."""
    queue.enqueue("work")
    void = rolled_back_lease(queue)
    (real,) = queue.lease_many(1, ttl=5)
    assert real.fence == void.fence
    assert queue.lost([void, real]) == [void]
    clock.advance(6)
    assert queue.lost([real]) == []
    queue.set("refuse_lapsed", value=True)
    assert queue.lost([real]) == [real]
    assert (void.lost, real.lost) == (True, True)


def test_lost_tells_which_leases_are_no_longer_held(make_queue: MakeQueue) -> None:
    """G1, V9, V13: a read on any handle; what this process has settled itself is not lost."""
    queue, other = make_queue(), make_queue()
    kept, cancelled, completed, taken = leased(queue, 4)
    other.cancel(cancelled.job_id)
    completed.complete()
    other.cancel(taken.job_id)
    other.retry(taken.job_id)
    assert other.lease_next() is not None
    assert other.lost([kept, cancelled, completed, taken]) == [cancelled, taken]
    assert [lease.lost for lease in (kept, cancelled, completed, taken)] == [False, True, False, True]
    assert queue.lost([]) == []
