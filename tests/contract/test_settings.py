"""Settings: kept in the file, so every process agrees; their defaults, bounds and filters (§5)."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from litequeue import JobState, LeaseConflict, UsageError

if TYPE_CHECKING:
    from litequeue import Queue
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue

DAY = 86_400
DEFAULTS: dict[str, object] = {
    "lease_ttl": 300,
    "max_attempts": 5,
    "backoff_base": 10,
    "backoff_factor": 4,
    "backoff_cap": 3600,
    "backoff_jitter": "none",
    "completed_retention": DAY,
    "cancelled_retention": DAY,
    "dead_retention": None,
    "concurrency": None,
    "rate": None,
    "reaper_interval": 30,
    "idempotency_window": DAY,
    "max_payload": 1_048_576,
    "max_bytes": None,
    "refuse_lapsed": False,
}
FILE_WIDE = ("reaper_interval", "idempotency_window", "max_payload", "max_bytes", "refuse_lapsed")
PER_KIND = tuple(name for name in DEFAULTS if name not in FILE_WIDE)
OTHERS: dict[str, object] = {
    "lease_ttl": 7.5,
    "max_attempts": 1,
    "backoff_base": 0,
    "backoff_factor": 1,
    "backoff_cap": 0,
    "backoff_jitter": "full",
    "completed_retention": None,
    "cancelled_retention": 0,
    "dead_retention": 30 * DAY,
    "concurrency": 3,
    "rate": "3/60s",
    "reaper_interval": 0.5,
    "idempotency_window": 0,
    "max_payload": 10,
    "max_bytes": 10_000_000,
    "refuse_lapsed": True,
}


def test_a_new_file_has_the_defaults(queue: Queue) -> None:
    """Name by name, as the contract lists them (§5)."""
    assert {name: queue.settings()[name] for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_setting_is_what_it_was_set_to(make_queue: MakeQueue, name: str) -> None:
    """At once, for another handle that had read it before, and after reopening; the others stay (§5)."""
    queue, other = make_queue(), make_queue()
    assert other.settings()[name] == DEFAULTS[name]
    queue.set(name, OTHERS[name])
    expected = {**DEFAULTS, name: OTHERS[name]}
    for handle in (queue, other, make_queue()):
        assert {known: handle.settings()[known] for known in DEFAULTS} == expected


@pytest.mark.parametrize("name", PER_KIND)
def test_a_kind_may_have_its_own(queue: Queue, name: str) -> None:
    """For the kinds that the filter matches, and no others (§5)."""
    queue.set(name, OTHERS[name], kind="mail:")
    assert queue.settings(kind="mail:send")[name] == OTHERS[name]
    assert queue.settings(kind="mailer:send")[name] == DEFAULTS[name]
    assert queue.settings()[name] == DEFAULTS[name]


@pytest.mark.parametrize("name", FILE_WIDE)
def test_a_file_wide_setting_is_no_kinds_own(queue: Queue, name: str) -> None:
    """Refused with a kind, and nothing is stored (§5)."""
    with pytest.raises(UsageError, match=name):
        queue.set(name, OTHERS[name], kind="mail:")
    assert queue.settings()[name] == DEFAULTS[name]


def test_the_longest_matching_filter_wins(queue: Queue) -> None:
    """Over shorter ones and over the file's, whatever the order in which they were set (§5)."""
    queue.set("max_attempts", 4, kind="a:b:c")
    queue.set("max_attempts", 2, kind="a:")
    queue.set("max_attempts", 3, kind="a:b:")
    queue.set("max_attempts", 9)
    kinds = ("a:b:c", "a:b:d", "a:c", "a:b:c:d", "a", "b")
    assert [queue.settings(kind=kind)["max_attempts"] for kind in kinds] == [4, 3, 2, 3, 9, 9]


def test_each_setting_is_looked_up_by_itself(queue: Queue) -> None:
    """A longer filter that says nothing of a setting leaves it to the shorter one (§5)."""
    queue.set("lease_ttl", 7, kind="a:")
    queue.set("max_attempts", 2, kind="a:b")
    settings = queue.settings(kind="a:b")
    assert (settings["lease_ttl"], settings["max_attempts"]) == (7, 2)


def test_unset_goes_back(queue: Queue) -> None:
    """To the file's value, and to the default (§5)."""
    queue.set("max_attempts", 9)
    queue.set("max_attempts", 2, kind="a:")
    queue.unset("max_attempts", kind="a:")
    assert queue.settings(kind="a:b")["max_attempts"] == 9
    queue.unset("max_attempts")
    assert queue.settings(kind="a:b")["max_attempts"] == 5


def test_a_duration_may_be_a_timedelta(queue: Queue) -> None:
    """It is kept in seconds (§5, §8)."""
    queue.set("lease_ttl", timedelta(minutes=2))
    assert queue.settings()["lease_ttl"] == 120


def test_another_handle_works_by_a_changed_setting_at_once(make_queue: MakeQueue, clock: FakeClock) -> None:
    """Settings are read inside the transaction: the next lease, failure and refusal know it (§5)."""
    worker, operator = make_queue(), make_queue()
    job_id = worker.enqueue("work").job_id
    worker.lease_many(1)[0].release()
    operator.set("lease_ttl", 7)
    (lease,) = worker.lease_many(1)
    assert worker.get(job_id).lease_deadline == clock.wall_us() + 7_000_000
    operator.set("backoff_base", 33)
    lease.fail("boom")
    assert worker.get(job_id).not_before == clock.wall_us() + 33_000_000
    clock.advance(33)
    (lease,) = worker.lease_many(1)
    operator.set("refuse_lapsed", value=True)
    clock.advance(8)
    with pytest.raises(LeaseConflict):
        lease.complete()


def test_a_setting_holds_within_its_transaction_and_goes_with_it(queue: Queue, clock: FakeClock) -> None:
    """Later verbs of the transaction know it; a rollback takes it back, also from this handle's memory (§5, V14)."""
    with suppress(RuntimeError), queue.transaction() as tx:
        tx.set("max_attempts", 1)
        tx.set("lease_ttl", 7, kind="work")
        job_id = tx.enqueue("work").job_id
        lease = tx.lease_next()
        assert lease is not None
        assert tx.get(job_id).lease_deadline == clock.wall_us() + 7_000_000
        tx.fail(lease, "boom")
        assert tx.get(job_id).state is JobState.DEAD
        raise RuntimeError
    job_id = queue.enqueue("work").job_id
    queue.lease_many(1)[0].fail("boom")
    assert queue.get(job_id).state is JobState.RETRYABLE
    assert queue.settings(kind="work")["lease_ttl"] == 300


def test_a_refused_setting_inside_a_transaction_leaves_the_earlier_ones(queue: Queue) -> None:
    """A verb that fails is undone alone (§5, G11)."""
    with queue.transaction() as tx:
        tx.set("max_attempts", 3)
        with pytest.raises(UsageError):
            tx.set("max_attempts", 0)
        assert tx.settings()["max_attempts"] == 3
    assert queue.settings()["max_attempts"] == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("lease_ttl", "max_attempts") for value in (0, -1)),
        ("lease_ttl", timedelta(seconds=-1)),
        ("lease_ttl", 1e-9),
        ("max_attempts", 1.5),
        ("max_attempts", 10**9),
        *(("backoff_base", value) for value in (-1, math.nan, math.inf, "10", True)),
        ("backoff_factor", 0.5),
        ("backoff_factor", math.nan),
        ("backoff_factor", math.inf),
        ("backoff_cap", -1),
        *(("backoff_jitter", value) for value in (None, "some", 1, True)),
        *((name, -1) for name in ("completed_retention", "cancelled_retention", "dead_retention")),
        ("dead_retention", math.inf),
        ("reaper_interval", 0),
        ("reaper_interval", -5),
        ("idempotency_window", -1),
        ("idempotency_window", None),
        *(("max_payload", value) for value in (0, -1, None, 1.5, 2**40)),
        *(("max_bytes", value) for value in (0, -1, "1 MB")),
        *(("refuse_lapsed", value) for value in (None, 1, "yes")),
        *((name, ...) for name in DEFAULTS),
    ],
    ids=repr,
)
def test_a_value_out_of_range_is_refused_when_set(queue: Queue, name: str, value: object) -> None:
    """With the name and the bounds; the value in force stays (§5, §6)."""
    with pytest.raises(UsageError, match=name) as refusal:
        queue.set(name, value)
    assert refusal.value.argument == name
    assert refusal.value.value is value or isinstance(value, timedelta)
    assert refusal.value.bounds
    assert refusal.value.bounds in str(refusal.value)
    assert queue.settings()[name] == DEFAULTS[name]
    if name in PER_KIND:
        with pytest.raises(UsageError, match=name):
            queue.set(name, value, kind="mail:")
        assert queue.settings(kind="mail:")[name] == DEFAULTS[name]


@pytest.mark.parametrize("name", ["lease-ttl", "", "LEASE_TTL", "concurency", "\ud800"])
def test_an_unknown_setting_is_refused(queue: Queue, name: str) -> None:
    """It names those that there are (§5, §6)."""
    with pytest.raises(UsageError, match="lease_ttl"):
        queue.set(name, 1)
    with pytest.raises(UsageError):
        queue.unset(name)


@pytest.mark.parametrize("kind", ["", "x" * 256, "a\nb", "\ud800", 7])
def test_a_bad_kind_filter_is_refused(queue: Queue, kind: str) -> None:
    """A filter has the bounds of a kind (§5, §6)."""
    for call in (lambda: queue.set("lease_ttl", 9, kind=kind), lambda: queue.settings(kind=kind)):
        with pytest.raises(UsageError, match="kind"):
            call()
    assert queue.kind_settings() == {}
