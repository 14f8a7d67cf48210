"""Which commits ring which bell: `-bell` those that make work ready, or bring the next due time nearer (DESIGN §4).

And `-done` those that end a job, where somebody waits for that.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from litequeue import Completed, DuplicateJob, JobState, Lease, NewJob, Queue
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
    """Give the list of the rings for work so far; they are rung all the same."""
    return _listen(monkeypatch, "-bell")


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the list of the rings for ended jobs so far; they are rung all the same."""
    return _listen(monkeypatch, "-done")


def _listen(monkeypatch: pytest.MonkeyPatch, suffix: str) -> list[str]:
    heard: list[str] = []
    ring = Bell.ring

    def listen(this: Bell) -> None:
        if this._path.endswith(suffix):
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


def _edit(delay: float | None, priority: int | None = None) -> Callable[[Scene], object]:
    def edit(scene: Scene) -> None:
        (later,) = scene.queue.list(JobState.SCHEDULED)
        scene.queue.edit(later.job_id, delay=delay, priority=priority)

    return edit


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
    "edit to now": _edit(0),
    "edit to earlier": _edit(DUE_S - 1, priority=7),
    "promote": _later(DUE_S, lambda s: s.queue.promote_due()),
    "reap what is due before all others": _then(_reset(DUE_S * 1000), _later(1000, lambda s: s.queue.reap_expired())),
    "a transaction that enqueues twice": _transaction,
    "close a handle that holds a lease": lambda s: s.queue.close(),
    "limit": lambda s: s.queue.set("concurrency", 2),
    "limit within a scope": lambda s: s.queue.set("concurrency", 2, scope="other"),
    "set a rate": lambda s: s.queue.set("rate", "1/s"),
    "resume": _then(lambda s: s.queue.pause("held"), lambda s: s.queue.resume("held")),
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
    "edit to later": _edit(DUE_S + 1),
    "edit the priority of what waits for its time": _edit(None, priority=7),
    "remove": lambda s: s.queue.remove(STOPPED),
    "lease nothing": lambda s: s.queue.lease_next(),
    "set": lambda s: s.queue.set("max_attempts", 7),
    "pause": lambda s: s.queue.pause("held"),
    "resume what is not paused": lambda s: s.queue.resume("held"),
    "reap nothing": lambda s: s.queue.reap_expired(),
    "promote nothing": lambda s: s.queue.promote_due(),
    "expire": _then(_reset(DUE_S + 1), _later(1, lambda s: s.queue.expire_overdue())),
    "prune": _later(100_000, lambda s: s.queue.prune()),
    "a transaction that fails": _transaction_that_fails,
    "a transaction in which the enqueue fails": _transaction_with_an_enqueue_undone,
    "get, list, stats": lambda s: (s.queue.get(STOPPED), s.queue.list(), s.queue.stats()),
    "checkpoint the log": lambda s: s.queue.checkpoint_wal(),
}


ENDING: dict[str, Callable[[Scene], object]] = {
    **{name: RING[name] for name in ("complete and enqueue", "complete with a kept trigger")},
    **{name: SILENT[name] for name in ("complete", "fail for good", "cancel", "cancel with a kept trigger")},
    "complete in a transaction of one's own": _then(_transaction, lambda s: s.queue.complete_many([s.lease])),
    "complete by the lease's transaction": lambda s: _lease_transaction(s.lease),
    "complete in an exchange": lambda s: s.queue.exchange([Completed(s.lease)], 1),
    "complete what is not kept": _then(
        lambda s: s.queue.set("completed_retention", 0), lambda s: s.lease.complete("gone at once")
    ),
    "fail for the last time": _then(lambda s: s.queue.set("max_attempts", 1), lambda s: s.lease.fail("boom")),
    "reap for the last time": _then(
        lambda s: s.queue.set("max_attempts", 1), _later(1000, lambda s: s.queue.reap_expired())
    ),
    "expire": _then(lambda s: s.queue.enqueue("late", expires=1), _later(2, lambda s: s.queue.expire_overdue())),
    "expire by a lease call": _then(
        lambda s: s.queue.enqueue("late", expires=1), _later(2, lambda s: s.queue.lease_next())
    ),
    "cancel what waits": lambda s: s.queue.cancel(s.queue.enqueue("a", delay=DUE_S).job_id),
    "lease what cannot be read": _then(
        lambda s: s.queue.enqueue("a"),
        _then(lambda s: _damage_payloads(s.queue), lambda s: s.queue.lease_next()),
    ),
}
"""What ends a job, once."""


def _lease_transaction(lease: Lease) -> None:
    with lease.transaction():
        pass


def _damage_payloads(queue: Queue) -> None:
    queue._store.write(lambda context: context.write("UPDATE litequeue_body SET payload = x'ff'", ()), durable=False)


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


@pytest.mark.parametrize("name", ENDING)
def test_a_commit_that_ends_a_job_rings_for_those_who_wait_for_that(scene: Scene, ends: list[str], name: str) -> None:
    """Once a transaction, whatever ended it and how (DESIGN §4)."""
    ENDING[name](scene)
    assert ends == ["ring"]


@pytest.mark.parametrize("name", sorted({*RING, *SILENT} - {*ENDING}))
def test_a_commit_that_ends_no_job_is_silent_for_those_who_wait_for_that(
    scene: Scene, ends: list[str], name: str
) -> None:
    """Nobody is woken for it, and no bell is looked for (DESIGN §4)."""
    {**RING, **SILENT}[name](scene)
    assert ends == []


def test_an_end_that_is_undone_is_silent(scene: Scene, ends: list[str]) -> None:
    """By a savepoint, or with the whole transaction (G11, DESIGN §4)."""
    with scene.queue.transaction() as tx, contextlib.suppress(DuplicateJob):
        tx.complete(scene.lease, then=[NewJob("later", idempotency_key="later", on_conflict="raise")])
    with contextlib.suppress(KeyError), scene.queue.transaction() as tx:
        tx.complete(scene.lease)
        raise KeyError
    assert ends == []
    scene.lease.complete()
    assert ends == ["ring"]


def test_a_lease_is_silent(scene: Scene, rings: list[str]) -> None:
    """Somebody takes a job: that is no work for the others (DESIGN §4)."""
    scene.queue.enqueue_many([NewJob("a"), NewJob("b")])
    rings.clear()
    assert scene.queue.lease_next() is not None
    assert rings == []


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
def test_the_end_of_a_lease_rings_where_a_limit_held_others_back(
    scene: Scene, rings: list[str], end: str, most: int
) -> None:
    """A place is free that was not; where there was one all along, nobody has waited for it (DESIGN §4, §5)."""
    scene.queue.set("concurrency", most, "held")
    rings.clear()
    match end:
        case "complete":
            scene.lease.complete()
        case "fail":
            scene.lease.fail("boom", retryable=False)
        case _:
            scene.queue.cancel(scene.lease.job_id)
    assert rings == (["ring"] if most == 1 else [])


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


# --- the bell of those who wait for the end of a job


@pytest.fixture
def done(queue: Queue) -> Path:
    """Give the path of that bell; it is not there yet."""
    return Path(f"{queue.path}-done")


class _Watch:
    """The time, as ringers see it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(bell, "time", self)

    def monotonic(self) -> float:
        return self.now


def _end_a_job(queue: Queue) -> None:
    queue.cancel(queue.enqueue("a").job_id)


def test_who_ends_jobs_makes_no_bell_and_looks_for_it_once_a_second(
    queue: Queue, done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits, so nobody pays: not even a look for each commit (DESIGN §4)."""
    looks: list[float] = []
    clock = _Watch(monkeypatch)
    look = Bell._at_its_path

    def counted(this: Bell) -> int | None:
        if this._path == str(done):
            looks.append(clock.now)
        return look(this)

    monkeypatch.setattr(Bell, "_at_its_path", counted)
    for now in (10.0, 10.0, 10.5, 10.999, 11.0, 11.5, 40.0):
        clock.now = now
        _end_a_job(queue)
    assert looks == [10.0, 11.0, 40.0]
    assert not done.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a ring is a write")
def test_a_bell_that_comes_and_goes_is_rung_while_it_is_there(
    queue: Queue, done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is found, and each is let go, within a second (DESIGN §4)."""
    clock = _Watch(monkeypatch)
    reads: list[int] = []
    read = os.pread

    def counted(descriptor: int, count: int, offset: int) -> bytes:
        if os.path.samestat(os.fstat(descriptor), done.stat()):
            reads.append(descriptor)
        return read(descriptor, count, offset)

    def rings_at(now: float) -> int:
        clock.now = now
        reads.clear()
        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", counted)
            _end_a_job(queue)
        return len(reads)

    clock.now = 1.0
    _end_a_job(queue)
    done.touch()
    assert [rings_at(now) for now in (1.9, 2.0, 2.5, 3.5)] == [0, 1, 1, 1]
    bell_of_handle = queue._store._done_bell
    done.unlink()
    clock.now = 3.6
    _end_a_job(queue)
    assert bell_of_handle._descriptor is not None, "it does not look each time"
    clock.now = 4.6
    _end_a_job(queue)
    assert bell_of_handle._descriptor is None
    done.touch()
    assert [rings_at(now) for now in (5.5, 5.7)] == [0, 1]
    queue.close()
    assert bell_of_handle._descriptor is None


@pytest.mark.parametrize("put", ["folder", "link"])
def test_what_stands_in_the_place_of_that_bell_fails_no_verb_and_is_logged_once(
    queue: Queue, done: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, *, put: str
) -> None:
    """It is looked at again within a second, as it would be if it were not there (DESIGN §4, G11)."""
    clock = _Watch(monkeypatch)
    if put == "folder":
        done.mkdir()
    else:
        done.symlink_to("elsewhere")
    for now in (1.0, 1.5, 2.5):
        clock.now = now
        _end_a_job(queue)
    assert queue.stats().counts[JobState.CANCELLED] == 3
    assert len([record for record in caplog.records if "its bell failed" in record.message]) == 1
    if put == "folder":
        done.rmdir()
    else:
        done.unlink()
    done.touch()
    clock.now = 4.0
    _end_a_job(queue)
    assert done.read_bytes() == b"\n", "it was rung: an empty one is given the byte that is read from then on"


# --- the file


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
