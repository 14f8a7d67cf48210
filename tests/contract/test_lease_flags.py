"""What a lease knows of its own end: `lost`, `settled`, `cancelled` (G1, G11; issue 5)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from litequeue import Completed, Failed, LeaseConflict, QueueBusy, Released

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Lease, Queue
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue

ENDS: dict[str, Callable[[Queue, Lease], object]] = {
    "complete": lambda _, lease: lease.complete(),
    "fail": lambda _, lease: lease.fail("boom"),
    "release": lambda _, lease: lease.release(),
    "complete_many": lambda queue, lease: queue.complete_many([lease]),
    "fail_many": lambda queue, lease: queue.fail_many([lease], "boom"),
    "release_many": lambda queue, lease: queue.release_many([lease]),
    "exchange completed": lambda queue, lease: queue.exchange([Completed(lease)]),
    "exchange failed": lambda queue, lease: queue.exchange([Failed(lease, "boom")]),
    "exchange retaken": lambda queue, lease: queue.exchange([Failed(lease, "boom", retake_within=60)]),
    "exchange released": lambda queue, lease: queue.exchange([Released(lease)]),
}

GOES_ON: dict[str, Callable[[Queue, Lease], object]] = {
    "extend": lambda _, lease: lease.extend(),
    "extend_many": lambda queue, lease: queue.extend_many([lease]),
    "checkpoint": lambda _, lease: lease.checkpoint(b"half"),
    "note": lambda _, lease: lease.note("half"),
}


def flags(lease: Lease) -> tuple[bool, bool, bool]:
    """Return them in the order in which they are told of."""
    return lease.lost, lease.settled, lease.cancelled


@pytest.fixture
def lease(queue: Queue) -> Lease:
    """Give a fresh lease."""
    queue.enqueue("work")
    (taken,) = queue.lease_many(1, ttl=10)
    return taken


def test_a_fresh_lease_has_no_flag_set(lease: Lease) -> None:
    """It is held, it goes on, and nobody wants it to stop."""
    assert flags(lease) == (False, False, False)


@pytest.mark.parametrize("end", ENDS)
def test_whatever_ends_a_lease_settles_it(queue: Queue, lease: Lease, end: str) -> None:
    """Once the commit has come; a second word is a conflict, and the lease is settled all the same (V6 to V8)."""
    ENDS[end](queue, lease)
    assert flags(lease) == (False, True, False)
    with pytest.raises(LeaseConflict):
        lease.extend()
    assert flags(lease) == (False, True, False)


@pytest.mark.parametrize("verb", GOES_ON)
def test_what_goes_on_with_a_lease_sets_nothing(queue: Queue, lease: Lease, verb: str) -> None:
    """Neither a heartbeat nor a checkpoint ends it (V4, V5)."""
    GOES_ON[verb](queue, lease)
    assert flags(lease) == (False, False, False)


def test_a_transaction_of_a_lease_settles_it_at_its_commit_and_not_before(lease: Lease) -> None:
    """Nor when it is rolled back (V14)."""
    with suppress(ZeroDivisionError), lease.transaction() as tx:
        tx.complete(lease)
        assert flags(lease) == (False, False, False)
        raise ZeroDivisionError
    assert flags(lease) == (False, False, False)
    with lease.transaction():
        assert flags(lease) == (False, False, False)
    assert flags(lease) == (False, True, False)


@pytest.mark.parametrize("verb", [*ENDS, *GOES_ON])
@pytest.mark.parametrize("how", ["reaped", "cancelled"])
def test_whoever_finds_that_a_lease_is_lost_says_so(
    queue: Queue, clock: FakeClock, lease: Lease, verb: str, how: str
) -> None:
    """The verb is refused, and every thread that looks at the lease knows from then on (G1, V9)."""
    with queue.sibling() as other:
        if how == "reaped":
            clock.advance(11)
            assert other.reap_expired() == 1
        else:
            other.cancel(lease.job_id)
    assert not lease.lost
    with suppress(LeaseConflict):
        (ENDS | GOES_ON)[verb](queue, lease)
    assert flags(lease) == (True, False, False)


def test_another_handle_may_find_that_a_lease_is_lost(queue: Queue, lease: Lease) -> None:
    """Such as the one that sends the heartbeats (G1)."""
    queue.cancel(lease.job_id)
    with queue.sibling() as heart:
        assert len(heart.extend_many([lease])) == 1
    assert lease.lost


def test_a_lapsed_lease_is_lost_only_where_it_is_refused(queue: Queue, clock: FakeClock, lease: Lease) -> None:
    """Nobody has reaped it: it may go on, unless `refuse_lapsed` says no (§4)."""
    clock.advance(11)
    lease.note("late")
    assert not lease.lost
    queue.set("refuse_lapsed", value=True)
    with pytest.raises(LeaseConflict):
        lease.note("later")
    assert lease.lost


def test_a_lease_of_a_transaction_that_rolled_back_is_lost_when_it_is_used(queue: Queue) -> None:
    """It never held its job (G1)."""
    queue.enqueue("work")
    leases: list[Lease] = []
    with suppress(ZeroDivisionError), queue.transaction() as tx:
        leases += tx.lease_many(1)
        raise ZeroDivisionError
    with pytest.raises(LeaseConflict):
        leases[0].complete()
    assert flags(leases[0]) == (True, False, False)


@pytest.mark.parametrize("commits", [True, False])
def test_what_a_transaction_itself_took_from_a_lease_is_lost_at_its_commit(
    queue: Queue, lease: Lease, *, commits: bool
) -> None:
    """When it is rolled back the lease is held as before, and must not be told that it is lost (G11, V9)."""
    with suppress(ZeroDivisionError), queue.transaction() as tx:
        tx.cancel(lease.job_id)
        with pytest.raises(LeaseConflict):
            tx.complete(lease)
        assert not lease.lost
        if not commits:
            raise ZeroDivisionError
    assert flags(lease) == (commits, False, False)
    assert len(queue.complete_many([lease])) == commits


def test_a_lease_that_is_completed_twice_in_a_transaction_that_rolls_back_is_held(lease: Lease) -> None:
    """The second word was refused because of the first, and neither came to anything (G11)."""
    with suppress(LeaseConflict), lease.transaction() as tx:
        tx.complete(lease)
        tx.complete(lease)
    assert flags(lease) == (False, False, False)
    lease.complete()
    assert flags(lease) == (False, True, False)


def test_what_is_lost_beside_another_verb_of_the_transaction_is_lost_at_once(queue: Queue, lease: Lease) -> None:
    """What others have committed stays so, whatever becomes of the transaction that finds it (G1)."""
    queue.cancel(lease.job_id)
    with suppress(LeaseConflict), queue.transaction() as tx:
        tx.complete(lease)
    assert lease.lost


def test_a_verb_that_could_not_be_done_sets_nothing(make_queue: MakeQueue) -> None:
    """`QueueBusy`: nothing was done, and nothing was found (G11)."""
    queue, other = make_queue(busy_timeout=0.05), make_queue()
    queue.enqueue("work")
    (lease,) = queue.lease_many(1)
    with other.transaction(), pytest.raises(QueueBusy):
        lease.complete()
    assert flags(lease) == (False, False, False)


def test_a_cancelled_lease_may_still_say_everything(lease: Lease) -> None:
    """The flag is a wish to stop; the job is its holder's as before."""
    lease.cancelled = True
    lease.extend()
    lease.complete()
    assert flags(lease) == (False, True, True)


def test_a_lost_lease_that_turns_out_to_be_settled_is_not_lost(lease: Lease) -> None:
    """A heartbeat of another handle may come between the commit and its being told to the lease, in either order."""
    lease.found_lost()
    lease.found_settled()
    assert flags(lease) == (False, True, False)
    lease.found_lost()
    assert flags(lease) == (False, True, False)
