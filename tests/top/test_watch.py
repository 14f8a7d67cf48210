"""Watching files: by reads alone, dear figures kept with their age, and a file that goes away and comes back."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import ANY, JobState, NewJob
from litequeue.metrics import pacing
from litequeue.sqlite import causes, surveying
from litequeue.top import FileFigures, OutOfReach, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litequeue import Queue
    from litequeue.testing import FakeClock
    from tests.conftest import JobIn, MakeQueue

WINDOW_S = 5.0


class Dear:
    """A clock by which each step of a survey takes some hundredths of a second."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Tell the time."""
        self.now += 0.02
        return self.now


@pytest.fixture
def watch(queue: Queue, clock: FakeClock) -> Iterator[Callable[..., Watch]]:
    """Give the maker of watches on the file of `queue`, or on others; all are closed after the test."""
    made: list[Watch] = []

    def make(*paths: str, at: Callable[[], float] | None = None) -> Watch:
        opener = partial(litequeue.open, create=False, clock=clock, busy_timeout=0.05)
        found = Watch(paths or (queue.path,), opener, WINDOW_S, *(() if at is None else (at,)))
        made.append(found)
        return found

    yield make
    for one in made:
        one.close()


def seen(watch: Watch) -> FileFigures:
    """Look at the one file, which can be read."""
    (found,) = watch.look()
    assert isinstance(found, FileFigures), found
    return found


def lost(watch: Watch) -> str:
    """Look at the one file, which cannot be read; return why."""
    (found,) = watch.look()
    assert isinstance(found, OutOfReach), found
    return found.reason


def test_a_look_tells_of_everything_that_is_in_the_file(
    queue: Queue, job_in: JobIn, clock: FakeClock, watch: Callable[..., Watch]
) -> None:
    """Counts by kind and scope, what runs and how far it is, what died of what, how long runs took (issue 8)."""
    for state in reversed(JobState):
        job_in(state, kind="work")
    queue.enqueue("work", scope="other")
    lease = queue.lease_next(["work"], scope="other", worker_id="bench-3")
    assert lease is not None
    lease.checkpoint(progress=0.25, note="a quarter")
    (enqueued,) = queue.get(queue.enqueue("late").job_id).events
    clock.advance(3)
    found = seen(watch())
    stats = queue.stats(ANY)
    assert found.counted is not None
    assert found.counted.found.by_scope["other", JobState.LEASED] == 1
    assert {
        state: sum(count for (_, of_state), count in found.counted.found.jobs.items() if of_state is state)
        for state in JobState
    } == stats.counts
    assert found.running is not None
    (mine,) = [run for run in found.running.found if run.job.scope == "other"]
    job = mine.job
    assert (job.job_id, job.progress, job.note, job.worker_id) == (lease.job_id, 0.25, "a quarter", "bench-3")
    assert (mine.pid, job.lease_deadline) == (os.getpid(), queue.get(lease.job_id).lease_deadline)
    assert found.causes is not None
    assert [(cause.kind, cause.jobs) for cause in found.causes.found] == [("work", 1)]
    assert found.oldest is not None
    assert found.oldest.found["late"] == enqueued.at
    assert found.done is not None
    assert len(found.done.found) == 1
    assert found.flow is not None
    assert found.flow.found.enqueued == pytest.approx(stats.total / WINDOW_S, abs=3 / WINDOW_S)


def test_no_look_waits_for_the_write_lock_or_takes_it(queue: Queue, watch: Callable[..., Watch]) -> None:
    """While a transaction writes, the file is seen as it is committed (V13)."""
    queue.enqueue("work")
    watching = watch()
    watching.reach()
    with queue.transaction() as tx:
        tx.enqueue("work")
        for _ in range(3):
            counted = seen(watching).counted
            assert counted is not None
            assert sum(counted.found.jobs.values()) == 1
    queue.enqueue("work")


def test_a_file_that_is_locked_is_a_line_and_is_seen_when_it_is_free(queue: Queue, watch: Callable[..., Watch]) -> None:
    """A program that wants it for itself keeps readers out; the view goes on, and tries again (§6)."""
    queue.enqueue("work")
    queue.close()
    watching = watch()
    alone = apsw.Connection(queue.path)
    alone.pragma("locking_mode", "EXCLUSIVE")
    alone.execute("BEGIN EXCLUSIVE")
    alone.execute("COMMIT")
    for _ in range(2):
        assert "is busy" in lost(watching)
    alone.close()
    assert seen(watching).path == queue.path


def test_between_two_looks_nothing_is_held(
    queue: Queue, watch: Callable[..., Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write-ahead log can be copied back whole, also when a count is only half done (DESIGN §3)."""
    monkeypatch.setattr(surveying, "STEP", 10)
    queue.enqueue_many(NewJob("work", n) for n in range(100))
    watching = watch()
    (found,) = watching.look(0.0)
    assert isinstance(found, FileFigures)
    assert found.counted is None, "it is not done yet"
    queue.enqueue("late")
    assert queue.checkpoint_wal() == 0
    while found.counted is None:
        (found,) = watching.look(0.0)
        assert isinstance(found, FileFigures)
    assert found.counted.found.jobs == {("work", JobState.PENDING): 100, ("late", JobState.PENDING): 1}


def test_what_is_dear_is_kept_and_its_age_is_told(queue: Queue, watch: Callable[..., Watch]) -> None:
    """By a clock by which each survey takes longer than 20 ms; a dear one takes a hundredth of the time (issue 8)."""
    clock = Dear()
    queue.enqueue("work")
    watching = watch(at=clock)
    first = seen(watching).counted
    queue.enqueue("work")
    again = seen(watching).counted
    assert first is not None
    assert again is not None
    assert again.found is first.found, "it is the same count"
    assert again.age_s > first.age_s
    clock.now += pacing.SHARE
    anew = seen(watching).counted
    assert anew is not None
    assert sum(anew.found.jobs.values()) == 2
    assert anew.age_s < 1


def test_what_is_cheap_is_of_the_moment(queue: Queue, watch: Callable[..., Watch]) -> None:
    """A small file is counted anew at each look."""
    stopped = 1000.0
    watching = watch(at=lambda: stopped)
    for number in (1, 2):
        queue.enqueue("work")
        counted = seen(watching).counted
        assert counted is not None
        assert (sum(counted.found.jobs.values()), counted.age_s) == (number, 0)


def test_dead_letters_are_counted_page_by_page_in_every_scope(
    queue: Queue, watch: Callable[..., Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, whether a scope has more than a page of them, or many scopes have none (issue 8)."""
    monkeypatch.setattr(causes, "STEP", 3)
    queue.enqueue_many(NewJob("work", n, scope=f"s{n % 4}") for n in range(20))
    queue.enqueue_many(NewJob("idle", n, scope=f"a{n}") for n in range(10))
    leases = queue.lease_many(20, ["work"], scope=ANY)
    queue.fail_many(leases[:13], "boom\nat line 7", retryable=False)
    queue.fail_many(leases[13:], "bang", retryable=False)
    found = seen(watch()).causes
    assert found is not None
    assert [(cause.error, cause.jobs) for cause in found.found] == [("boom", 13), ("bang", 7)]


def test_a_file_that_is_replaced_is_a_line_until_the_new_one_is_read(
    queue: Queue, make_queue: MakeQueue, tmp_path: Path, watch: Callable[..., Watch]
) -> None:
    """The look after says what happened, and the next one opens what stands there now (§6)."""
    queue.enqueue("old")
    watching = watch()
    assert seen(watching).path == queue.path
    other = make_queue(path=tmp_path / "new.db")
    other.enqueue_many(NewJob("new", n) for n in range(2))
    other.close()
    queue.close()
    for part in ("", "-wal", "-shm"):
        Path(f"{queue.path}{part}").rename(tmp_path / f"away.db{part}")
    assert "removed" in lost(watching)
    assert "no such file" in lost(watching)
    (tmp_path / "new.db").rename(queue.path)
    counted = seen(watching).counted
    assert counted is not None
    assert counted.found.jobs == {("new", JobState.PENDING): 2}


def test_one_file_that_cannot_be_read_hides_no_other(queue: Queue, tmp_path: Path, watch: Callable[..., Watch]) -> None:
    """Each is told of, in the order in which they were named (issue 8: several files at once)."""
    queue.enqueue("work")
    junk = tmp_path / "junk.db"
    junk.write_bytes(b"no database, but long enough to be taken for one" * 100)
    gone, there, refused = watch(str(tmp_path / "gone.db"), queue.path, str(junk)).look()
    assert isinstance(gone, OutOfReach)
    assert isinstance(there, FileFigures)
    assert isinstance(refused, OutOfReach)
    assert not (tmp_path / "gone.db").exists()


def test_a_watch_that_is_closed_holds_no_file(queue: Queue, watch: Callable[..., Watch]) -> None:
    """Nor does it keep a thread."""
    before = threading.active_count()
    watching = watch()
    seen(watching)
    watching.close()
    watching.close()
    assert threading.active_count() == before
    assert queue.checkpoint_wal() == 0
