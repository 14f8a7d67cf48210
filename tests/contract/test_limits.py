"""Limits: how many jobs are leased at a time, and how often; exact, and nobody else's burden (§5)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from litequeue import ANY, SYSTEM, Failed, JobState, Maintenance, NewJob, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Lease, Queue
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue


def _kinds(leases: list[Lease]) -> list[str]:
    return [lease.kind for lease in leases]


def _enqueue(queue: Queue, *kinds: str, scope: str = "default") -> None:
    queue.enqueue_many(NewJob(kind, number, scope=scope) for number, kind in enumerate(kinds))


# --- how many at a time


def test_no_more_jobs_are_leased_at_a_time_than_the_limit(queue: Queue) -> None:
    """By one call or many; the others behind them are found, in order (§5, V3)."""
    queue.set("concurrency", 2, "mail:")
    _enqueue(queue, "mail:a", "mail:b", "mail:a", "other", "mail:a", "other")
    assert _kinds(queue.lease_many(10)) == ["mail:a", "mail:b", "other", "other"]
    assert queue.lease_next(["mail:"]) is None
    assert queue.lease_next(["mail:a", "mail:b"]) is None


def test_a_batch_takes_the_oldest_and_stops_a_kind_at_its_limit(queue: Queue) -> None:
    """Order holds among those that may be leased, by priority and age (G4)."""
    queue.set("concurrency", 1, "slow")
    queue.enqueue_many(NewJob("slow", n, priority=200 - n) for n in range(3))
    queue.enqueue_many(NewJob("fast", n, priority=199) for n in range(2))
    leases = queue.lease_many(3, ["fast", "slow"])
    assert [(lease.kind, lease.payload) for lease in leases] == [("slow", 2), ("fast", 0), ("fast", 1)]


ENDINGS: dict[str, Callable[[Queue, Lease, FakeClock], object]] = {
    "completed": lambda _queue, lease, _clock: lease.complete(),
    "failed": lambda _queue, lease, _clock: lease.fail("boom", delay=60),
    "dead": lambda _queue, lease, _clock: lease.fail("boom", retryable=False),
    "released": lambda _queue, lease, _clock: lease.release(delay=60),
    "cancelled": lambda queue, lease, _clock: queue.cancel(lease.job_id),
    "reaped": lambda queue, _lease, clock: _let_lapse(queue, clock),
    "completed in its transaction": lambda _queue, lease, _clock: _complete_in_transaction(lease),
}


def _let_lapse(queue: Queue, clock: FakeClock) -> None:
    clock.advance(301)
    queue.reap_expired()


def _complete_in_transaction(lease: Lease) -> None:
    with lease.transaction():
        pass


@pytest.mark.parametrize("scope", [None, ANY, "default"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_place_is_free_when_its_lease_is_over(queue: Queue, clock: FakeClock, ending: str, scope: object) -> None:
    """However it ends; whoever waits hears of it (§5, V6 to V11)."""
    queue.set("concurrency", 1, "work", scope=scope)  # type: ignore[arg-type]
    _enqueue(queue, "work", "work")
    lease = queue.lease_next()
    assert lease is not None
    assert queue.lease_next() is None
    assert not queue.wait(0)
    ENDINGS[ending](queue, lease, clock)
    assert queue.wait(0)
    again = queue.lease_next()
    assert again is not None
    assert again.job_id != lease.job_id


def test_a_retention_of_nothing_frees_the_place_as_well(queue: Queue) -> None:
    """The job goes with its lease (§5)."""
    queue.set("concurrency", 1)
    queue.set("completed_retention", 0)
    _enqueue(queue, "work", "work")
    for _ in range(2):
        lease = queue.lease_next()
        assert lease is not None
        lease.complete()


def test_a_closed_handle_frees_its_places(queue: Queue, make_queue: MakeQueue) -> None:
    """What it gives back counts no longer (V8)."""
    queue.set("concurrency", 1)
    _enqueue(queue, "work")
    other = make_queue()
    assert other.lease_next() is not None
    assert queue.lease_next() is None
    other.close()
    assert queue.lease_next() is not None


def test_a_lease_that_was_rolled_back_took_no_place(queue: Queue) -> None:
    """The count is part of the transaction (G1, G7)."""
    queue.set("concurrency", 1)
    _enqueue(queue, "work")
    with suppress(ZeroDivisionError), queue.transaction() as tx:
        assert tx.lease_next() is not None
        raise ZeroDivisionError
    assert queue.lease_next() is not None


def test_a_kind_counts_for_the_longest_filter_and_for_no_other(queue: Queue) -> None:
    """One rule for every setting; `None` frees what it governs (§5)."""
    queue.set("concurrency", 1)
    queue.set("concurrency", 2, "mail:")
    queue.set("concurrency", None, "mail:urgent")
    _enqueue(queue, *["mail:a", "mail:b", "mail:urgent", "other", "another"] * 3)
    assert _kinds(queue.lease_many(100)) == ["mail:a", "mail:b", "mail:urgent", "other", "mail:urgent", "mail:urgent"]


def test_a_limit_within_each_scope_by_itself(queue: Queue) -> None:
    """And one scope may have its own; both sorts hold together (§5)."""
    queue.set("concurrency", 4, "work")
    queue.set("concurrency", 1, "work", scope=ANY)
    queue.set("concurrency", 3, "work", scope="large")
    for scope in ("large", "a", "b", "c"):
        _enqueue(queue, *["work"] * 5, scope=scope)
    taken = {scope: len(queue.lease_many(10, scope=scope)) for scope in ("a", "large", "b", "c")}
    assert taken == {"a": 1, "large": 3, "b": 0, "c": 0}


def test_what_a_scope_has_for_one_kind_leaves_its_other_kinds_to_what_each_has(queue: Queue) -> None:
    """And its own value governs the kinds that it matches, also where each has a longer filter (§5)."""
    queue.set("concurrency", 2, "import", scope=ANY)
    queue.set("concurrency", 1, "mail:bulk", scope=ANY)
    queue.set("concurrency", 3, "mail:", scope="large")
    _enqueue(queue, *["import"] * 5, *["mail:bulk"] * 5, scope="large")
    kinds = [lease.kind for lease in queue.lease_many(20, scope="large")]
    assert kinds == ["import"] * 2 + ["mail:bulk"] * 3
    queue.set("concurrency", None, "import", scope="large")
    assert len(queue.lease_many(20, scope="large")) == 3


def test_a_limit_in_the_system_scope(queue: Queue) -> None:
    """The empty scope is one like the others (§2)."""
    queue.set("concurrency", 1, scope=SYSTEM)
    queue.enqueue_many(NewJob("work", n, scope=SYSTEM) for n in range(2))
    _enqueue(queue, "work", "work")
    assert len(queue.lease_many(9, scope=SYSTEM)) == 1
    assert len(queue.lease_many(9)) == 2
    assert queue.scope_settings() == {SYSTEM: {None: {"concurrency": 1}}}


def test_leases_that_were_there_before_the_limit_count(queue: Queue, make_queue: MakeQueue) -> None:
    """They go on, and none is added; for every handle at once (§5)."""
    other = make_queue()
    _enqueue(queue, *["work"] * 6)
    held = other.lease_many(3)
    queue.set("concurrency", 2, "work")
    assert other.lease_next() is None
    held[0].complete()
    assert other.lease_next() is None
    held[1].complete()
    assert len(other.lease_many(10)) == 1
    queue.set("concurrency", 3, "work")
    assert len(other.lease_many(10)) == 1
    queue.unset("concurrency", "work")
    assert len(other.lease_many(10)) == 1


def test_a_change_of_filters_moves_what_they_count(queue: Queue) -> None:
    """A kind that gets a filter of its own leaves the other's count (§5)."""
    queue.set("concurrency", 2, "mail:")
    _enqueue(queue, "mail:a", "mail:b", "mail:a", "mail:b")
    assert len(queue.lease_many(10)) == 2
    queue.set("concurrency", 1, "mail:a")
    assert _kinds(queue.lease_many(10)) == ["mail:b"]
    queue.unset("concurrency", "mail:a")
    assert queue.lease_many(10) == []


def test_a_limit_that_is_raised_or_taken_back_wakes(queue: Queue) -> None:
    """Whoever waits has something to do now (§5)."""
    queue.set("concurrency", 1)
    _enqueue(queue, "work", "work")
    assert queue.lease_next() is not None
    assert not queue.wait(0)
    queue.set("concurrency", 2)
    assert queue.wait(0)


def test_a_job_that_dies_instead_of_being_leased_takes_no_place(queue: Queue, clock: FakeClock) -> None:
    """Too late to start: the next one has it (V3, V11)."""
    queue.set("concurrency", 1)
    queue.enqueue("work", "late", expires=5)
    _enqueue(queue, "work")
    clock.advance(6)
    lease = queue.lease_next()
    assert lease is not None
    assert lease.payload == 0


def test_a_job_that_was_reaped_is_leased_alone_within_a_limit_too(queue: Queue, clock: FakeClock) -> None:
    """A limit does not lead others into its batch (V3)."""
    queue.set("concurrency", 5)
    queue.set("backoff_base", 0)
    _enqueue(queue, "work")
    assert queue.lease_next() is not None
    clock.advance(301)
    _enqueue(queue, "work", "work")
    assert [len(queue.lease_many(10)) for _ in range(2)] == [1, 2]


def test_a_retake_keeps_its_place(queue: Queue) -> None:
    """It never leaves the worker's hands, so the limit is not asked (§3)."""
    queue.set("concurrency", 1)
    queue.set("backoff_base", 1)
    _enqueue(queue, "work", "work")
    lease = queue.lease_next()
    assert lease is not None
    done = queue.exchange([Failed(lease, "boom", retake_within=60)], 5)
    assert [again.job_id for again, _ in done.retaken] == [lease.job_id]
    assert done.leases == []
    done.retaken[0][0].complete()
    assert queue.lease_next() is not None


def test_an_exchange_leases_into_the_place_that_it_frees(queue: Queue) -> None:
    """Both are one transaction (§3, V6)."""
    queue.set("concurrency", 1)
    _enqueue(queue, "work", "work")
    lease = queue.lease_next()
    assert lease is not None
    done = queue.exchange([Failed(lease, "boom", retryable=False)], 5)
    assert [again.payload for again in done.leases] == [1]


# --- how often


def test_no_more_leases_than_the_rate(queue: Queue, clock: FakeClock) -> None:
    """A bucket that begins full, and fills evenly by the lease clock (§5, §8)."""
    queue.set("rate", "2/10s", "mail:")
    _enqueue(queue, *["mail:a"] * 9, "other")
    assert _kinds(queue.lease_many(9)) == ["mail:a", "mail:a", "other"]
    clock.step_wall(3600)
    assert queue.lease_many(9) == []
    clock.advance(4.999_999)
    assert queue.lease_many(9) == []
    clock.advance(0.000_001)
    assert len(queue.lease_many(9)) == 1
    clock.advance(3600)
    assert len(queue.lease_many(9)) == 2


def test_every_lease_counts_and_none_is_given_back(queue: Queue) -> None:
    """What is limited is how often work begins: retries and retakes count, and a release gives nothing back (§5)."""
    queue.set("rate", "3/1h")
    queue.set("backoff_base", 0)
    _enqueue(queue, "work")
    for is_released in (True, False):
        lease = queue.lease_next()
        assert lease is not None
        if is_released:
            lease.release()
        else:
            lease.fail("boom")
    lease = queue.lease_next()
    assert lease is not None
    done = queue.exchange([Failed(lease, "boom", retake_within=60)])
    assert done.retaken == []
    assert queue.get(lease.job_id).state is JobState.RETRYABLE
    assert queue.lease_next() is None


def test_a_retake_takes_a_token(queue: Queue) -> None:
    """As every other lease does (§5)."""
    queue.set("rate", "2/1h")
    queue.set("backoff_base", 1)
    _enqueue(queue, "work", "work")
    lease = queue.lease_next()
    assert lease is not None
    assert len(queue.exchange([Failed(lease, "boom", retake_within=60)]).retaken) == 1
    assert queue.lease_next() is None


def test_a_rate_holds_over_handles_scopes_and_a_reboot(queue: Queue, make_queue: MakeQueue, clock: FakeClock) -> None:
    """The bucket is in the file; a boot leaves it as it was, and it fills from then on (§8)."""
    queue.set("rate", "3/1h")
    _enqueue(queue, "work", "work", "work")
    _enqueue(queue, "work", "work", scope="other")
    clock.advance(100_000)
    assert queue.lease_next() is not None
    other = make_queue(scope="other")
    assert len(other.lease_many(9)) == 2
    other.close()
    queue.close()
    clock.reboot()
    again = make_queue()
    assert again.lease_many(9) == []
    clock.advance(1199)
    assert again.lease_many(9) == []
    clock.advance(1)
    assert len(again.lease_many(9)) == 1


def test_a_rate_that_is_set_again_or_changed_counts_what_it_has_counted(queue: Queue, clock: FakeClock) -> None:
    """A program that declares its limits at each start does not fill the bucket; one that is new is full (§5)."""
    queue.set("rate", "2/1h", "work")
    _enqueue(queue, *["work"] * 20)
    assert len(queue.lease_many(9)) == 2
    queue.set("rate", "2/1h", "work")
    assert queue.lease_many(9) == []
    queue.set("rate", "5/1h", "work")
    assert len(queue.lease_many(9)) == 3
    queue.set("rate", "2/1h", "work")
    assert queue.lease_many(9) == []
    clock.advance(1800)
    queue.set("rate", "2/1d", "work")
    assert len(queue.lease_many(9)) == 1
    queue.unset("rate", "work")
    assert len(queue.lease_many(4)) == 4
    queue.set("rate", "2/1d", "work")
    assert len(queue.lease_many(9)) == 2


def test_a_change_of_rate_that_is_rolled_back_takes_and_gives_nothing(queue: Queue) -> None:
    """Its bucket is as it was (V14)."""
    queue.set("rate", "2/1h", "work")
    _enqueue(queue, *["work"] * 5)
    assert queue.lease_next() is not None

    def change() -> None:
        with queue.transaction() as tx:
            tx.unset("rate", "work")
            tx.set("rate", "1/1h", "work")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change()
    assert len(queue.lease_many(9)) == 1


def test_a_wait_ends_when_there_is_a_token(queue: Queue, clock: FakeClock) -> None:
    """And not before, though jobs are ready (§5)."""
    queue.set("rate", "1/2s")
    _enqueue(queue, "work", "work")
    assert queue.lease_next() is not None
    assert not queue.wait(0)
    clock.advance(2)
    assert queue.wait(0)


def test_a_rate_and_a_number_hold_together(queue: Queue, clock: FakeClock) -> None:
    """A job takes a token only when it has a place, too (§5)."""
    queue.set("concurrency", 1)
    queue.set("rate", "2/1h")
    _enqueue(queue, *["work"] * 5)
    first = queue.lease_next()
    assert first is not None
    assert queue.lease_many(9) == []
    first.complete()
    assert len(queue.lease_many(9)) == 1
    clock.advance(1)
    assert queue.lease_many(9) == []


# --- bad input, and what is told


@pytest.mark.parametrize(
    ("name", "value", "scope"),
    [
        ("concurrency", 0, None),
        ("concurrency", 10_001, None),
        ("concurrency", "3", None),
        ("rate", 5, None),
        ("rate", "5 per second", None),
        ("rate", "0/1s", None),
        ("rate", "5/40d", None),
        ("rate", "5/1s", "one"),
        ("lease_ttl", 5, ANY),
        ("concurrency", 1, "litequeue:each"),
        ("concurrency", 1, ""),
    ],
)
def test_a_bad_limit_is_refused_with_its_bounds(queue: Queue, name: str, value: object, scope: object) -> None:
    """And nothing is changed (§6)."""
    with pytest.raises(UsageError) as caught:
        queue.set(name, value, scope=scope)  # type: ignore[arg-type]
    assert caught.value.argument in (name, "scope")
    assert caught.value.bounds
    assert queue.settings()[name] == (300 if name == "lease_ttl" else None)
    assert queue.scope_settings() == {}


def test_limits_are_told(queue: Queue) -> None:
    """Those of the file, of kinds and of scopes (§5)."""
    queue.set("concurrency", 9)
    queue.set("rate", "100/5m", "mail:")
    queue.set("concurrency", 2, "mail:", scope=ANY)
    queue.set("concurrency", 3, scope="one")
    assert queue.settings()["concurrency"] == 9
    assert queue.settings("mail:send")["rate"] == "100/300s"
    assert queue.kind_settings() == {"mail:": {"rate": "100/300s"}}
    assert queue.scope_settings() == {ANY: {"mail:": {"concurrency": 2}}, "one": {None: {"concurrency": 3}}}
    queue.unset("concurrency", "mail:", scope=ANY)
    queue.unset("concurrency", scope="one")
    assert queue.scope_settings() == {}


def test_maintenance_frees_the_places_of_lapsed_leases(queue: Queue, clock: FakeClock) -> None:
    """None stays taken longer than its lease says (§3, V11)."""
    queue.set("concurrency", 2)
    _enqueue(queue, *["work"] * 4)
    assert len(queue.lease_many(9)) == 2
    clock.advance(301)
    assert Maintenance(queue).run_once().reaped == 2
    assert len(queue.lease_many(9)) == 2
