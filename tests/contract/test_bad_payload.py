"""Payloads that cannot be stored, queues that are full or busy: nothing stored, nothing lost (§6)."""

from __future__ import annotations

import threading
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from litequeue import JobState, Lease, NewJob, PayloadError, QueueBusy, QueueFull

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Queue
    from tests.conftest import MakeQueue


def nested(depth: int) -> list[object]:
    """Return so many lists, one in the other."""
    value: list[object] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def depth_of(value: object) -> int:
    """Count the lists that stand one in the other."""
    depth = 0
    while isinstance(value, list):
        depth, value = depth + 1, (value[0] if value else None)
    return depth


def endless() -> list[object]:
    """Return a list that holds itself."""
    value: list[object] = []
    value.append(value)
    return value


UNPACKABLE: list[tuple[object, str]] = [
    (object(), "object"),
    ({1, 2}, "set"),
    (1j, "complex"),
    (Decimal("1.5"), "Decimal"),
    (uuid4(), "UUID"),
    (date(2025, 6, 15), "date"),
    (timedelta(1), "timedelta"),
    (len, "builtin"),
    (datetime(2025, 6, 15), "naive datetime"),  # noqa: DTZ001 - naive is bad
    ({"at": [1, datetime(2025, 6, 15)]}, "naive datetime"),  # noqa: DTZ001 - naive is bad
    (2**64, "64 bits"),
    (-(2**63) - 1, "64 bits"),
    ("\ud800", "UTF-8"),
    ({"a\udfff": 1}, "UTF-8"),
    ({"a": [0, {"b": "x\ud800"}]}, "UTF-8"),
    ({"a": {"b": [1, {2}]}}, "set"),
]


@pytest.fixture
def lease(queue: Queue) -> Lease:
    """Give a lease of the only job."""
    queue.enqueue("held")
    (taken,) = queue.lease_many(1)
    return taken


@pytest.mark.parametrize(("payload", "named"), UNPACKABLE, ids=[str(n) for n in range(len(UNPACKABLE))])
def test_what_cannot_be_packed_is_a_payload_error_that_names_the_type(
    queue: Queue, lease: Lease, payload: object, named: str
) -> None:
    """As a payload, in a batch, as a result and as a follower's payload; nothing stored, the lease still held (§6)."""
    before = queue.list()
    for verb in (
        lambda: queue.enqueue("work", payload),
        lambda: queue.enqueue_many([NewJob("work"), NewJob("work", payload)]),
        lambda: queue.enqueue("work", payload, idempotency_key="k", on_conflict="reset"),
        lambda: lease.complete(payload),
        lambda: lease.complete(then=[NewJob("work", payload)]),
        lambda: queue.complete_many([lease], [payload]),
    ):
        with pytest.raises(PayloadError, match=named):
            verb()
        assert queue.list() == before
    with queue.transaction() as tx:
        with pytest.raises(PayloadError, match=named):
            tx.enqueue("work", payload)
        with pytest.raises(PayloadError, match=named):
            tx.complete(lease, payload)
    assert queue.list() == before
    lease.complete()


def test_an_error_says_where_in_the_payload_it_is(queue: Queue) -> None:
    """In a large payload, the place is what one needs to know (§6)."""
    with pytest.raises(PayloadError, match=r"rows.*1.*name"):
        queue.enqueue("work", {"rows": [{"name": "good"}, {"name": "bad\ud800"}]})


@pytest.mark.parametrize("payload", [nested(2000), endless(), {"a": nested(100_000)}], ids=["deep", "endless", "abyss"])
def test_what_is_nested_too_deep_is_a_payload_error(queue: Queue, lease: Lease, payload: object) -> None:
    """Also a value that holds itself: nothing stored, the lease still held (§6)."""
    before = queue.list()
    with pytest.raises(PayloadError, match="nested"):
        lease.complete(payload)
    assert queue.list() == before
    lease.complete()


@pytest.mark.parametrize("depth", [10, 100, 400, 510, 511, 512, 513, 1000, 1023, 1024, 1025, 1026])
def test_what_is_not_too_deep_to_store_is_not_too_deep_to_read(queue: Queue, depth: int) -> None:
    """Every payload that was taken can be leased and read (§6, G2)."""
    try:
        job_id = queue.enqueue("work", nested(depth)).job_id
    except PayloadError:
        assert depth > 100
        assert queue.stats().total == 0
    else:
        (lease,) = queue.lease_many(1)
        assert depth_of(lease.payload) == depth_of(queue.get(job_id).payload) == depth


@pytest.mark.parametrize("limit", [100, 1_048_576])
def test_a_payload_beyond_max_payload_is_a_payload_error_that_names_the_size(queue: Queue, limit: int) -> None:
    """By the encoded size, against the setting in force; one that just fits is taken (§6, §5)."""
    queue.set("max_payload", limit)
    fits = b"x" * (limit - 10)
    assert queue.enqueue("work", fits).created
    for size in (limit, limit * 2):
        with pytest.raises(PayloadError, match=f"{limit:,}"):
            queue.enqueue("work", b"x" * size)
    assert queue.stats().total == 1
    (lease,) = queue.lease_many(1)
    with pytest.raises(PayloadError, match=f"{limit:,}"):
        lease.complete(b"x" * limit)
    assert queue.get(lease.job_id).state is JobState.LEASED
    lease.complete(fits)
    assert queue.get(lease.job_id).result == fits


def test_a_payload_that_was_stored_before_the_limit_shrank_is_still_good(queue: Queue) -> None:
    """The limit is for what comes in (§5, G2)."""
    queue.enqueue("work", b"x" * 1000)
    queue.set("max_payload", 10)
    (lease,) = queue.lease_many(1)
    assert lease.payload == b"x" * 1000
    lease.complete()


# --- full


def fill(queue: Queue) -> int:
    """Enqueue until the queue is full; return how many jobs it took."""
    for taken in range(1000):
        try:
            queue.enqueue("work", b"x" * 2000)
        except QueueFull:
            return taken
    pytest.fail("it never got full")


def test_a_full_queue_takes_no_more_jobs_and_all_acknowledgements(queue: Queue) -> None:
    """`max_bytes` reached: `QueueFull` from enqueue; leases, results and failures still work (§6)."""
    queue.enqueue_many(NewJob("held") for _ in range(6))
    leases = queue.lease_many(6)
    queue.set("max_bytes", queue.stats().file_bytes + 100_000)
    taken = fill(queue)
    assert taken > 10
    before = queue.stats().total
    with pytest.raises(QueueFull):
        queue.enqueue_many(NewJob("work", b"x" * 20_000) for _ in range(3))
    with pytest.raises(QueueFull):
        leases[0].complete(then=[NewJob("work", b"x" * 20_000)])
    assert queue.stats().total == before
    leases[0].complete("done")
    leases[1].fail("boom")
    leases[2].release()
    leases[3].extend()
    leases[3].checkpoint(b"half")
    leases[3].note("half")
    queue.cancel(leases[4].job_id)
    queue.retry(leases[4].job_id)
    assert queue.complete_many(leases[5:]) == []
    assert len(queue.lease_many(1000)) == taken + 2


def test_a_queue_that_has_room_again_takes_jobs_again(queue: Queue) -> None:
    """By a higher limit, or by jobs that have gone (§6, §5)."""
    queue.set("completed_retention", 0)
    queue.set("max_bytes", queue.stats().file_bytes + 100_000)
    fill(queue)
    assert queue.complete_many(queue.lease_many(1000)) == []
    assert fill(queue) > 10
    queue.set("max_bytes", None)
    queue.enqueue_many(NewJob("work", b"x" * 2000) for _ in range(100))


# --- busy

WRITES: dict[str, Callable[[Queue, Lease], object]] = {
    "enqueue": lambda queue, _: queue.enqueue("late"),
    "lease_next": lambda queue, _: queue.lease_next(),
    "complete": lambda _, lease: lease.complete(),
    "extend": lambda _, lease: lease.extend(),
    "fail": lambda _, lease: lease.fail("late"),
    "cancel": lambda queue, lease: queue.cancel(lease.job_id),
    "set": lambda queue, _: queue.set("lease_ttl", 9),
    "transaction": lambda queue, _: queue.transaction().__enter__(),
}


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("timeout", [0, 0.02])
def test_the_lock_not_had_in_time_is_queue_busy_and_nothing_was_done(
    make_queue: MakeQueue, verb: str, timeout: float
) -> None:
    """The only retryable error: the same call works once the other writer is done (§6)."""
    owner, waiter = make_queue(), make_queue(busy_timeout=timeout)
    owner.enqueue_many(NewJob("work") for _ in range(2))
    (lease,) = waiter.lease_many(1)
    before = owner.list()
    with owner.transaction(), pytest.raises(QueueBusy):
        WRITES[verb](waiter, lease)
    assert owner.list() == before
    if verb == "transaction":
        with waiter.transaction() as tx:
            tx.complete(lease)
    else:
        WRITES[verb](waiter, lease)


def test_another_thread_of_the_same_handle_waits_only_as_long(make_queue: MakeQueue) -> None:
    """`busy_timeout` is one deadline over the handle's own lock too (§6)."""
    queue = make_queue(busy_timeout=0.02)
    busy = threading.Event()

    def enqueue() -> None:
        with pytest.raises(QueueBusy):
            queue.enqueue("late")
        busy.set()

    with queue.transaction():
        thread = threading.Thread(target=enqueue)
        thread.start()
        thread.join()
    assert busy.is_set()
    assert queue.stats().total == 0


def test_bytes_that_do_not_lie_together_are_a_payload_error(queue: Queue) -> None:
    """A view with gaps cannot be stored as it is: named, and nothing stored (§6)."""
    with pytest.raises(PayloadError, match="memoryview"):
        queue.enqueue("work", {"a": memoryview(b"abcd")[::2]})
    assert queue.stats().total == 0
