"""Which commits ring the bell: those that make work ready, or bring the next due time nearer (DESIGN §4)."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from litequeue import DuplicateJob, Lease, NewJob, Queue
from litequeue.sqlite import bell
from litequeue.sqlite.bell import Bell
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeQueue

STOPPED = "00000000-0000-4000-8000-000000000001"
DUE_S = 100
"""When the scene's gated job is due."""


class Scene(NamedTuple):
    """A queue with one leased job (key `held`), one gated (key `later`), one cancelled, and nothing ready."""

    queue: Queue
    lease: Lease
    clock: FakeClock


@pytest.fixture
def scene(queue: Queue, clock: FakeClock) -> Scene:
    """Set the scene."""
    queue.enqueue("held", idempotency_key="held")
    queue.enqueue("later", delay=DUE_S, idempotency_key="later")
    queue.enqueue("stopped", job_id=STOPPED)
    queue.cancel(STOPPED)
    (lease,) = queue.lease_many(1, ttl=1000)
    return Scene(queue, lease, clock)


@pytest.fixture
def rings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the list of the rings so far; they are rung all the same."""
    heard: list[str] = []
    ring = Bell.ring

    def listen(this: Bell) -> None:
        heard.append("ring")
        ring(this)

    monkeypatch.setattr(Bell, "ring", listen)
    return heard


def _keep_a_trigger(scene: Scene) -> None:
    scene.queue.enqueue("held", idempotency_key="held", on_conflict="reset")


def _then(first: Callable[[Scene], object], then: Callable[[Scene], object]) -> Callable[[Scene], object]:
    return lambda scene: (first(scene), then(scene))


def _later(seconds: float, verb: Callable[[Scene], object]) -> Callable[[Scene], object]:
    return _then(lambda scene: scene.clock.advance(seconds), verb)


def _reset(delay: float | None) -> Callable[[Scene], object]:
    return lambda scene: scene.queue.enqueue("later", delay=delay, idempotency_key="later", on_conflict="reset")


def _transaction(scene: Scene) -> None:
    with scene.queue.transaction() as tx:
        tx.enqueue("a")
        tx.enqueue("b")


def _transaction_that_fails(scene: Scene) -> None:
    with contextlib.suppress(KeyError), scene.queue.transaction() as tx:
        tx.enqueue("a")
        raise KeyError


def _transaction_with_an_enqueue_undone(scene: Scene) -> None:
    taken = [NewJob("a"), NewJob("later", idempotency_key="later", on_conflict="raise")]
    with scene.queue.transaction() as tx:
        with contextlib.suppress(DuplicateJob):
            tx.enqueue_many(taken)
        tx.note(scene.lease, "one was there")


RING: dict[str, Callable[[Scene], object]] = {
    "enqueue": lambda s: s.queue.enqueue("a"),
    "enqueue in another scope": lambda s: s.queue.enqueue("a", scope="other"),
    "enqueue many": lambda s: s.queue.enqueue_many([NewJob("a"), NewJob("b")]),
    "enqueue a cancelled job anew": lambda s: s.queue.enqueue("stopped", job_id=STOPPED),
    "enqueue what is due earlier": lambda s: s.queue.enqueue("a", delay=DUE_S - 1),
    "enqueue what is due later, with one that is due earlier": lambda s: s.queue.enqueue_many(
        [NewJob("a", delay=DUE_S + 1), NewJob("b", delay=DUE_S - 1), NewJob("c", delay=DUE_S + 2)]
    ),
    "enqueue what is due later, but the first in its scope": lambda s: s.queue.enqueue(
        "a", delay=DUE_S + 1, scope="other"
    ),
    "reset to now": _reset(None),
    "reset to earlier": _reset(DUE_S - 1),
    "complete and enqueue": lambda s: s.lease.complete(then=[NewJob("next")]),
    "complete with a kept trigger": _then(_keep_a_trigger, lambda s: s.lease.complete()),
    "fail, due before all others": lambda s: s.lease.fail("boom", delay=DUE_S - 1),
    "fail, ready at once": lambda s: s.lease.fail("boom", delay=0),
    "release": lambda s: s.lease.release(),
    "retry what was cancelled": lambda s: s.queue.retry(STOPPED),
    "promote": _later(DUE_S, lambda s: s.queue.promote_due()),
    "reap what is due before all others": _then(_reset(DUE_S * 1000), _later(1000, lambda s: s.queue.reap_expired())),
    "a transaction that enqueues twice": _transaction,
    "close a handle that holds a lease": lambda s: s.queue.close(),
}
SILENT: dict[str, Callable[[Scene], object]] = {
    "enqueue what is there": lambda s: s.queue.enqueue("held", idempotency_key="held"),
    "keep a trigger": _keep_a_trigger,
    "enqueue what is due later": lambda s: s.queue.enqueue("a", delay=DUE_S + 1),
    "enqueue many that are due later": lambda s: s.queue.enqueue_many(
        [NewJob("a", delay=DUE_S + 1), NewJob("b", delay=DUE_S + 2)]
    ),
    "reset to later": _reset(DUE_S + 1),
    "extend": lambda s: s.lease.extend(),
    "checkpoint": lambda s: s.lease.checkpoint(b"half"),
    "note": lambda s: s.lease.note("half"),
    "complete": lambda s: s.lease.complete(),
    "fail, due after another": lambda s: s.lease.fail("boom", delay=DUE_S + 1),
    "fail for good": lambda s: s.lease.fail("boom", retryable=False),
    "release until later": lambda s: s.lease.release(delay=DUE_S + 1),
    "cancel": lambda s: s.queue.cancel(s.lease.job_id),
    "cancel with a kept trigger": _then(_keep_a_trigger, lambda s: s.queue.cancel(s.lease.job_id)),
    "lease nothing": lambda s: s.queue.lease_next(),
    "set": lambda s: s.queue.set("max_attempts", 7),
    "reap nothing": lambda s: s.queue.reap_expired(),
    "promote nothing": lambda s: s.queue.promote_due(),
    "expire": _then(_reset(DUE_S + 1), _later(1, lambda s: s.queue.expire_overdue())),
    "prune": _later(100_000, lambda s: s.queue.prune()),
    "a transaction that fails": _transaction_that_fails,
    "a transaction in which the enqueue fails": _transaction_with_an_enqueue_undone,
    "get, list, stats": lambda s: (s.queue.get(STOPPED), s.queue.list(), s.queue.stats()),
    "checkpoint the log": lambda s: s.queue.checkpoint_wal(),
}


@pytest.mark.parametrize("name", RING)
def test_a_commit_that_gives_a_waiter_something_to_do_rings_once(scene: Scene, rings: list[str], name: str) -> None:
    """Once a transaction, whatever it holds (DESIGN §4)."""
    RING[name](scene)
    assert rings == ["ring"]


@pytest.mark.parametrize("name", SILENT)
def test_a_commit_that_gives_a_waiter_nothing_to_do_is_silent(scene: Scene, rings: list[str], name: str) -> None:
    """A process that waits is not woken for it (DESIGN §4)."""
    SILENT[name](scene)
    assert rings == []


def test_a_lease_is_silent(scene: Scene, rings: list[str]) -> None:
    """Somebody takes a job: that is no work for the others (DESIGN §4)."""
    scene.queue.enqueue_many([NewJob("a"), NewJob("b")])
    rings.clear()
    assert scene.queue.lease_next() is not None
    assert rings == []


def test_a_back_off_that_is_pulled_in_rings(scene: Scene, rings: list[str]) -> None:
    """After a backward step of the wall clock it is due earlier than anyone who waits knows (contract §5)."""
    scene.lease.fail("boom")
    scene.clock.step_wall(-10_000)
    rings.clear()
    assert scene.queue.pull_in() == 1
    assert rings == ["ring"]


def test_the_ring_comes_after_the_commit(make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks when it rings finds the job (DESIGN §4)."""
    enqueuer, other = make_queue(), make_queue()
    seen: list[int] = []
    monkeypatch.setattr(Bell, "ring", lambda _: seen.append(other.stats().total))
    enqueuer.enqueue("a")
    assert seen == [1]


def test_a_bell_that_cannot_be_rung_fails_no_verb_and_is_logged_once(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """The job is stored, and a stranger in the bell's place is left alone (DESIGN §4, G11)."""
    place = f"{queue.path}-bell"
    Path(place).mkdir()
    queue.enqueue("a")
    queue.enqueue("b")
    assert queue.stats().total == 2
    assert [record.message for record in caplog.records if "bell" in record.message] == [caplog.records[0].message]


def test_a_bell_that_was_removed_is_made_again(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ringer does not go on with a file that nobody can find for longer than it may (DESIGN §4)."""
    place = Path(f"{queue.path}-bell")
    queue.enqueue("a")
    place.unlink()
    queue.enqueue("b")
    monkeypatch.setattr(bell, "_LOOK_AGAIN_S", 0)
    queue._store._bell._look_again_at = 0
    queue.enqueue("c")
    assert place.stat().st_mode & 0o777 == 0o600


def test_a_bell_with_another_name_is_not_written_to(queue: Queue, tmp_path: Path) -> None:
    """An empty file makes no event, and is given a byte; but not one that may be somebody else's (§6)."""
    victim = tmp_path / "victim"
    victim.touch()
    Path(f"{queue.path}-bell").hardlink_to(victim)
    queue.enqueue("a")
    assert victim.read_bytes() == b""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a ring is a write")
def test_a_ring_writes_nothing(queue: Queue) -> None:
    """It is a read of one byte: no inode gets dirty for it, and no sync has more to do (DESIGN §4)."""
    queue.enqueue("a")
    rung = Path(f"{queue.path}-bell")
    before = rung.stat().st_mtime_ns, rung.stat().st_ctime_ns, rung.stat().st_size
    for _ in range(3):
        queue.enqueue("a")
    assert (rung.stat().st_mtime_ns, rung.stat().st_ctime_ns, rung.stat().st_size) == before
