"""Leases that go round the scopes: whose jobs come next, in what order, and what upkeep does on the way (V12, G10)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from litequeue import ANY, SYSTEM, Completed, Failed, JobState, NewJob

if TYPE_CHECKING:
    from litequeue import Lease, Queue
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue


def fill(queue: Queue, **jobs: int) -> None:
    """Enqueue so many jobs in each scope; the payload of each is its number in its scope."""
    queue.enqueue_many(NewJob("work", n, scope=scope) for scope, number in jobs.items() for n in range(number))


def served(leases: list[Lease]) -> str:
    """Return the scopes of leases, in order."""
    return " ".join(lease.scope if isinstance(lease.scope, str) else "-" for lease in leases)


def one_by_one(queue: Queue, number: int, kinds: list[str] | None = None) -> list[Lease]:
    """Lease so many jobs, each by a call of its own; fewer when there are no more."""
    found = (queue.lease_next(kinds, scope=ANY) for _ in range(number))
    return [lease for lease in found if lease is not None]


def test_scopes_are_served_in_turn_by_name(queue: Queue) -> None:
    """One job of each, then again, until each is empty; within a scope the order is the usual one (V12, G4)."""
    fill(queue, b=3, a=2, c=1)
    queue.enqueue("work", scope=SYSTEM)
    leases = one_by_one(queue, 9)
    assert served(leases) == "- a b c a b b"
    assert [lease.payload for lease in leases] == [None, 0, 0, 0, 1, 1, 2]
    assert queue.lease_next(scope=ANY) is None


def test_a_batch_is_what_single_leases_would_be(queue: Queue) -> None:
    """Also over the end of a round, and where the batch before it has ended in the midst of a turn (V3, V12)."""
    fill(queue, a=9, b=2, c=9)
    queue.set_weight("c", 3)
    batches = [served(queue.lease_many(limit, scope=ANY)) for limit in (1, 2, 3, 4, 100)]
    assert batches == ["a", "b c", "c c a", "b c c c", "a c c c a a a a a a"]


def test_a_scope_is_served_as_often_as_its_weight_says(queue: Queue) -> None:
    """`set_weight` counts at once, for every handle, and `None` or 1 takes it back (V12)."""
    fill(queue, a=20, b=20)
    queue.set_weight("a", 3)
    assert queue.weights() == {"a": 3}
    assert served(one_by_one(queue, 8)) == "a a a b a a a b"
    queue.set_weight("a", None)
    queue.set_weight("b", 2)
    assert queue.weights() == {"b": 2}
    assert served(one_by_one(queue, 6)) == "b a b b a b"
    queue.set_weight("b", 1)
    assert queue.weights() == {}


def test_the_weight_of_the_system_is_one_of_them(queue: Queue) -> None:
    """`SYSTEM` is a scope as all others are (§2, V12)."""
    queue.set_weight(SYSTEM, 2)
    queue.set_weight("a", 1000)
    assert queue.weights() == {SYSTEM: 2, "a": 1000}


def test_weights_and_turns_are_those_of_the_file(make_queue: MakeQueue) -> None:
    """Two processes share one turn and one set of weights, from the next lease on (V12, §5)."""
    first, second = make_queue(), make_queue(scope="b")
    fill(first, a=20, b=20, c=20)
    assert served(one_by_one(first, 1) + one_by_one(second, 1) + one_by_one(first, 2)) == "a b c a"
    second.set_weight("b", 2)
    assert served(one_by_one(first, 2) + one_by_one(second, 2)) == "b b c a"


def test_a_weight_set_in_a_transaction_counts_there_and_is_rolled_back_with_it(queue: Queue) -> None:
    """The verbs are those of a transaction too (V14)."""
    fill(queue, a=9, b=9)
    with suppress(RuntimeError), queue.transaction() as tx:
        tx.set_weight("a", 2)
        assert served(tx.lease_many(4, scope=ANY)) == "a a b a"
        raise RuntimeError
    assert queue.weights() == {}
    assert served(queue.lease_many(4, scope=ANY)) == "a b a b"


def test_a_scope_that_ran_dry_loses_the_rest_of_its_turn(queue: Queue) -> None:
    """And a job that comes before anybody else was served is still within it (V12)."""
    fill(queue, a=1, b=9)
    queue.set_weight("a", 3)
    assert served(one_by_one(queue, 1)) == "a"
    fill(queue, a=1)
    assert served(one_by_one(queue, 2)) == "a b"
    fill(queue, a=4)
    assert served(one_by_one(queue, 5)) == "a a a b a"


def test_who_asks_for_other_kinds_has_a_turn_of_its_own(queue: Queue) -> None:
    """Else a kind that one scope has would begin the round of all others anew (V12)."""
    fill(queue, a=9, b=9, c=9)
    queue.enqueue_many(NewJob("rare", scope="a") for _ in range(9))
    seen = []
    for _ in range(4):
        seen += one_by_one(queue, 1, ["work"])
        seen += one_by_one(queue, 1, ["rare", "none:"])
    assert served(seen) == "a a b a c a a a"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["work", "mail:"], ["mail:", "work", "work"]),
        (["mail:", "mail:x", "work"], ["work", "mail:"]),
        ([f"kind {n}" for n in range(99)] + ["work"], ["work"] + [f"kind {n}" for n in reversed(range(99))]),
    ],
    ids=["order", "contained", "long"],
)
def test_filters_that_take_the_same_kinds_share_a_turn(queue: Queue, first: list[str], second: list[str]) -> None:
    """However they are written (V12)."""
    fill(queue, a=9, b=9)
    assert served(one_by_one(queue, 1, first) + one_by_one(queue, 1, second) + one_by_one(queue, 1, first)) == "a b a"


def test_a_filter_passes_over_scopes_of_other_kinds(queue: Queue) -> None:
    """By exact kinds and by prefixes; the order within a scope is that of all its kinds (V12, G4)."""
    queue.enqueue_many(NewJob("other", scope=f"s{n:04}") for n in range(50))
    queue.enqueue_many([NewJob("mail:x", 1, scope="s0007"), NewJob("mail", 2, scope="s0007"), NewJob("mail:", 3)])
    queue.enqueue_many([NewJob("mail;", scope="a"), NewJob("mailing", scope="b"), NewJob("mail:y", 4, scope="s0049")])
    assert [lease.payload for lease in queue.lease_many(9, ["mail:", "mail"], scope=ANY)] == [3, 1, 4, 2]


def test_work_is_found_behind_however_many_scopes_of_other_kinds(queue: Queue) -> None:
    """Several transactions look for it, each at a bounded number of scopes; and for nothing they find nothing (V12)."""
    queue.enqueue_many(NewJob("other", scope=f"s{n:05}") for n in range(5000))
    for scope in ("s02222", "s04999", "t"):
        queue.enqueue_many(NewJob("mine", n, scope=scope) for n in range(2))
    filters = ["mine", *(f"none{n}:" for n in range(4))]
    leases = one_by_one(queue, 9, filters)
    assert served(leases) == "s02222 s04999 t s02222 s04999 t"
    assert queue.lease_next(filters, scope=ANY) is None
    with queue.transaction() as tx:
        assert tx.lease_next(filters, scope=ANY) is None
        tx.enqueue("mine", scope="s04000")
        assert served(tx.lease_many(3, filters, scope=ANY)) == "s04000"


def test_a_job_that_was_reaped_ends_a_batch_of_many_scopes(queue: Queue, clock: FakeClock) -> None:
    """It is leased alone, when its scope has its turn (V3, V12)."""
    queue.set("backoff_base", 0)
    fill(queue, a=2, b=1, c=2)
    (killer,) = queue.lease_many(1, scope="b")
    clock.advance(301)
    assert queue.reap_expired() == 1
    queue.promote_due()
    batches = [queue.lease_many(9, scope=ANY) for _ in range(3)]
    assert [served(batch) for batch in batches] == ["a", "b", "c a c"]
    assert batches[1][0].job_id == killer.job_id


def test_heads_that_die_cost_their_scope_no_turn(queue: Queue, clock: FakeClock) -> None:
    """Those that are too late to start die where they stand, and the next of the scope is leased (V3, V12)."""
    queue.lease_next(scope=ANY)  # the upkeep of this second is done
    queue.enqueue_many(NewJob("work", n, scope="b", expires=0.5) for n in range(250))
    fill(queue, a=2, b=2, c=2)
    clock.advance(0.6)
    assert served(one_by_one(queue, 6)) == "a b c a b c"
    assert queue.lease_next(scope=ANY) is None
    assert queue.stats(ANY).counts[JobState.DEAD] == 250


def test_an_exchange_leases_from_every_scope(queue: Queue) -> None:
    """Settled and leased in one commit (V12; `Queue.exchange`)."""
    fill(queue, a=2, b=2)
    first = queue.exchange([], 3, scope=ANY).leases
    assert served(first) == "a b a"
    second = queue.exchange([Completed(first[0]), Failed(first[1], "boom")], 2, scope=ANY)
    assert served(second.leases) == "b"
    assert [queue.get(lease.job_id).state for lease in first] == [
        JobState.COMPLETED,
        JobState.RETRYABLE,
        JobState.LEASED,
    ]


@pytest.mark.parametrize("kinds", [None, ["work"]])
def test_what_is_due_in_any_scope_is_promoted_before_none(
    queue: Queue, clock: FakeClock, kinds: list[str] | None
) -> None:
    """Due, overdue and lapsed jobs of every scope, in bounded steps (§3, V12)."""
    queue.set("backoff_base", 0)
    queue.enqueue_many(NewJob("work", scope=f"s{n % 40}", delay=1) for n in range(250))
    queue.enqueue_many(NewJob("work", scope="late", delay=1, expires=0.5) for _ in range(150))
    queue.enqueue("work", scope="held")
    assert queue.lease_next(scope="held", ttl=1) is not None
    assert queue.lease_next(kinds, scope=ANY) is None
    clock.advance(1)
    leased = 0
    while leases := queue.lease_many(1000, kinds, scope=ANY):
        leased += len(leases)
    assert leased == 251
    assert queue.stats(ANY).counts[JobState.DEAD] == 150


def test_a_flood_of_due_jobs_in_one_scope_hides_no_other(queue: Queue, clock: FakeClock) -> None:
    """Each step of upkeep promotes a few of each scope, wherever the last one ended (§3, V12)."""
    queue.enqueue_many(NewJob("work", scope="flood", delay=1) for _ in range(3000))
    queue.enqueue_many(NewJob("work", scope=f"s{n:03}", delay=2) for n in range(300))
    queue.enqueue_many(NewJob("work", scope=f"u{n:03}", delay=3600) for n in range(3000))
    clock.advance(3)
    seen = [lease.scope for lease in one_by_one(queue, 350)]
    assert {f"s{n:03}" for n in range(300)} < set(seen)


def test_due_work_of_any_scope_is_not_hidden_behind_queues_that_are_never_empty(queue: Queue, clock: FakeClock) -> None:
    """Upkeep comes once a second although something is ready (§3)."""
    fill(queue, a=200, b=200)
    queue.enqueue("urgent", scope="c", delay=1)
    for tick in range(40):
        (lease,) = queue.lease_many(1, scope=ANY)
        if lease.kind == "urgent":
            assert 1 <= tick * 0.05 <= 2.2
            return
        clock.advance(0.05)
    pytest.fail("the urgent job never came")


def test_waiting_for_any_scope(queue: Queue, clock: FakeClock) -> None:
    """`wait` says what a lease call would find: ready and due work of every scope, of the kinds that are asked for."""
    queue.enqueue("other", scope="a")
    assert queue.wait(0, scope=ANY)
    assert not queue.wait(0, ["work"], scope=ANY)
    queue.enqueue("work", scope="z", delay=5)
    assert not queue.wait(0, ["work"], scope=ANY)
    clock.advance(5)
    assert queue.wait(0, ["work"], scope=ANY)
    (lease,) = queue.lease_many(1, ["work"], scope=ANY)
    assert lease.scope == "z"


def test_a_scope_whose_jobs_are_all_held_back_counts_as_having_none(queue: Queue) -> None:
    """By a pause or by a limit; the others share the turns, and it joins them when it is let go (V12, V15)."""
    fill(queue, a=9, b=9, c=9)
    queue.pause(scope="a")
    queue.set("concurrency", 1, scope="b")
    assert served(queue.lease_many(5, scope=ANY)) == "b c c c c"
    assert queue.wait(0, scope=ANY)
    queue.resume(scope="a")
    assert served(one_by_one(queue, 3)) == "a c a"
    queue.unset("concurrency", scope="b")
    assert served(queue.lease_many(4, scope=ANY)) == "b c a b"


def test_where_all_is_held_back_there_is_nothing_to_lease_or_to_wait_for(queue: Queue) -> None:
    """However many scopes have ready jobs (V12, V15)."""
    fill(queue, **{f"s{n}": 1 for n in range(300)})
    queue.pause("work")
    assert queue.lease_next(scope=ANY) is None
    assert not queue.wait(0, scope=ANY)
    queue.enqueue("other", scope="z")
    assert queue.wait(0, scope=ANY)
    assert served(queue.lease_many(9, scope=ANY)) == "z"


def test_a_rate_counts_over_a_batch_of_many_scopes(queue: Queue, clock: FakeClock) -> None:
    """As it does over as many single leases (V12; issue 6)."""
    queue.set("rate", "3/60s")
    fill(queue, a=9, b=9)
    assert served(queue.lease_many(9, scope=ANY)) == "a b a"
    assert queue.lease_next(scope=ANY) is None
    clock.advance(60)
    assert served(one_by_one(queue, 9)) == "b a b"


def test_a_killer_that_a_limit_holds_back_ends_no_batch(queue: Queue, clock: FakeClock) -> None:
    """It is passed over as any other job is (V3, V12)."""
    queue.set("backoff_base", 0)
    queue.enqueue("killer", scope="b")
    assert queue.lease_next(scope="b") is not None
    clock.advance(301)
    assert queue.reap_expired() == 1
    queue.promote_due()
    fill(queue, a=2, b=1, c=1)
    queue.pause("killer")
    assert served(queue.lease_many(9, scope=ANY)) == "a b c a"


def test_only_the_latest_filters_have_a_turn(queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers who make up filters do not fill the file (V12)."""
    from litequeue.sqlite import turns  # noqa: PLC0415 - the engine's own bound

    monkeypatch.setattr(turns, "_MOST_TURNS", 3)
    fill(queue, a=20, b=20)
    for number in range(6):
        one_by_one(queue, 1, ["work", f"made up {number}"])
        clock.advance(1)
    with queue.transaction() as tx:
        kept = tx.execute("SELECT kinds FROM litequeue_turn ORDER BY moved_at")
    assert kept == [(f'["made up {number}", "work"]',) for number in (3, 4, 5)]
