"""What every process must agree on: settings and the lease clock, as of each transaction (§5, §8)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import JobState, NewJob, PayloadError
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from litequeue import Queue

    Pair = tuple[Queue, Queue]


@pytest.fixture
def clock() -> FakeClock:
    """Give the clock of both handles."""
    return FakeClock()


@pytest.fixture
def pair(path: Path, clock: FakeClock) -> Iterator[Pair]:
    """Give two handles on one file; both have read and written before."""
    with (
        litequeue.open(path, durability="normal", clock=clock) as one,
        litequeue.open(path, durability="normal", clock=clock) as other,
    ):
        for queue in (one, other):
            queue.enqueue("warm")
            queue.list()
            queue.settings()
        yield one, other


def test_a_changed_setting_is_seen_by_another_handles_next_read(pair: Pair) -> None:
    """Nothing but the read itself comes in between (§5)."""
    one, other = pair
    for ttl in (10, 20, 30):
        one.set("lease_ttl", ttl)
        assert other.settings()["lease_ttl"] == ttl
        one.set("lease_ttl", ttl + 1, kind="mail:")
        assert other.settings("mail:send")["lease_ttl"] == ttl + 1
        assert other.kind_settings() == {"mail:": {"lease_ttl": ttl + 1}}
    one.unset("lease_ttl")
    one.unset("lease_ttl", kind="mail:")
    assert other.settings("mail:send")["lease_ttl"] == 300
    assert other.reaper_interval() == 30


def test_a_changed_setting_is_seen_by_another_handles_next_write(pair: Pair) -> None:
    """A write decides by the settings of its own transaction (§5)."""
    one, other = pair
    for ttl in (10, 20, 30):
        one.set("lease_ttl", ttl)
        lease = other.lease_next()
        assert lease is not None
        assert lease.ttl_us == ttl * 1_000_000
        lease.release()
    one.set("max_payload", 10)
    with pytest.raises(PayloadError):
        other.enqueue("work", "more than ten bytes")
    one.set("max_payload", 100)
    other.enqueue("work", "more than ten bytes")
    one.set("max_attempts", 1)
    lease = other.lease_next()
    assert lease is not None
    lease.fail("boom")
    assert other.get(lease.job_id).state is JobState.DEAD


def test_a_setting_of_a_rolled_back_transaction_never_was(pair: Pair) -> None:
    """Neither the handle that set it nor another one goes by it (§5, V14)."""
    one, other = pair

    def set_and_fail() -> None:
        with one.transaction() as tx:
            tx.set("lease_ttl", 7)
            assert tx.settings()["lease_ttl"] == 7
            raise LookupError

    with pytest.raises(LookupError):
        set_and_fail()
    for queue in (one, other):
        lease = queue.lease_next()
        assert lease is not None
        assert lease.ttl_us == 300_000_000
        assert queue.settings()["lease_ttl"] == 300


def test_a_setting_is_in_force_within_the_transaction_that_sets_it(pair: Pair) -> None:
    """And for everybody once it has committed (§5)."""
    one, other = pair
    with one.transaction() as tx:
        tx.set("lease_ttl", 7)
        lease = tx.lease_next()
        assert lease is not None
        assert lease.ttl_us == 7_000_000
        assert other.settings()["lease_ttl"] == 300
    assert other.settings()["lease_ttl"] == one.settings()["lease_ttl"] == 7


def test_unchanged_settings_are_not_read_again(pair: Pair) -> None:
    """They are cached by a number: a verb whose handle was the last to write reads none of them (DESIGN §3)."""
    one, _ = pair
    one.enqueue("work")
    connection = one._store._writer.connection
    assert connection is not None
    statements: list[str] = []

    def trace(event: dict[str, str]) -> None:
        statements.append(event["sql"])

    connection.trace_v2(apsw.SQLITE_TRACE_STMT, trace)
    one.enqueue("work")
    connection.trace_v2(0, None)
    assert any("INSERT INTO litequeue_job" in sql for sql in statements)
    assert not any("FROM litequeue_setting" in sql or "FROM litequeue_kind_setting" in sql for sql in statements)


def test_a_reboot_noticed_by_one_handle_is_known_to_another(
    path: Path, pair: Pair, clock: FakeClock, crash: Callable[[Queue], None]
) -> None:
    """The lease clock's offset travels as settings do: an old handle counts as the opener after a boot does (§8)."""
    one, other = pair
    killed = litequeue.open(path, clock=clock)
    assert killed.lease_next(ttl=1000) is not None
    crash(killed)
    clock.reboot()
    litequeue.open(path, clock=clock).close()
    assert other.stats().lapsed == 1
    assert other.reap_expired() == 1
    lease = other.lease_next(ttl=50)
    assert lease is not None
    clock.advance(49)
    assert one.reap_expired() == 0
    clock.advance(2)
    assert one.stats().lapsed == 1
    assert one.reap_expired() == 1


def test_threads_of_one_handle_agree_with_another_handle(pair: Pair) -> None:
    """Readers and writers of a handle that many threads use see each change (§5, §9)."""
    one, other = pair
    failures: list[BaseException] = []
    turn = threading.Barrier(4)

    def check(look: Callable[[], object]) -> None:
        try:
            for ttl in range(10, 30):
                turn.wait()
                assert look() == ttl
                turn.wait()
        except BaseException as exc:  # noqa: BLE001 - told to the test
            failures.append(exc)
            turn.abort()

    def lease() -> object:
        taken = other.lease_next()
        assert taken is not None
        taken.release()
        return taken.ttl_us / 1_000_000

    other.enqueue_many(NewJob("work") for _ in range(5))
    looks: list[Callable[[], object]] = [lease, lambda: other.settings()["lease_ttl"], lease]
    threads = [threading.Thread(target=check, args=(look,)) for look in looks]
    for thread in threads:
        thread.start()
    try:
        for ttl in range(10, 30):
            one.set("lease_ttl", ttl)
            turn.wait()
            turn.wait()
    except threading.BrokenBarrierError:
        pass
    for thread in threads:
        thread.join()
    assert not failures, failures
