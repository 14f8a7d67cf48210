"""What a file tells of itself (issue 8, metrics): right, by reads alone (V13), in steps of bounded cost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import apsw
import pytest

from litequeue import ANY, SYSTEM, JobState, Maintenance, NewJob, StorageCorrupt
from litequeue.sqlite import surveying
from litequeue.sqlite.surveying import Counted, Done

if TYPE_CHECKING:
    from litequeue import Queue
    from litequeue.sqlite.walks import Walk
    from litequeue.testing import FakeClock
    from tests.conftest import JobIn, MakeQueue
    from tests.metrics.conftest import VmSteps

T = TypeVar("T")
STEPS = (1, 2, 3, 10_000)


def all_of(walk: Walk[T]) -> tuple[T, int]:
    """Go a walk to its end; return what it came to, and how many steps it took."""
    steps = 0
    while True:
        try:
            next(walk)
        except StopIteration as end:
            found: T = end.value
            return found, steps
        steps += 1


def counted(queue: Queue) -> Counted:
    """Count the jobs of a file."""
    return all_of(queue.surveyor().jobs())[0]


def oldest(queue: Queue) -> dict[str, int]:
    """Return since when the head of a line has been ready, by kind."""
    return all_of(queue.surveyor().oldest())[0]


def done(queue: Queue, within_s: int = 300) -> list[Done]:
    """Return the sample of completed jobs."""
    return all_of(queue.surveyor().done(within_s * 1_000_000))[0]


@pytest.mark.parametrize("step", STEPS)
def test_every_job_is_counted_once_by_kind_and_state(
    queue: Queue, job_in: JobIn, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """As `stats` counts them, wherever the steps end: in a group, at its end, in another scope (V13)."""
    monkeypatch.setattr(surveying, "STEP", step)
    for state in JobState:
        for kind in ("a", "b:c"):
            if state is not JobState.PENDING:
                job_in(state, kind=kind)
    queue.enqueue_many(NewJob(kind, scope=scope) for kind in ("a", "x") for scope in ("default", "other", SYSTEM))
    queue.enqueue("a", priority=0)
    found = counted(queue)
    by_kind = queue.stats(ANY).by_kind
    assert found.jobs == {(kind, state): n for kind, counts in by_kind.items() for state, n in counts.items()}
    assert found.scopes == len({job.scope for job in queue.list(scope=ANY, limit=1_000)}) > 2


def test_an_empty_file_has_nothing_to_count(queue: Queue) -> None:
    """No kinds, no scopes, no ready job, no sample."""
    assert counted(queue) == Counted({}, {}, {})
    assert oldest(queue) == {}
    assert done(queue) == []


def test_reaps_are_counted_by_kind(queue: Queue, clock: FakeClock) -> None:
    """Each lease that lapsed and was taken back, for as long as its job is in the file (metrics: reaped)."""
    queue.enqueue("shaky")
    queue.enqueue("sound")
    for _ in range(2):
        assert queue.lease_next(["shaky"], ttl=1) is not None
        clock.advance(2)
        assert queue.reap_expired() == 1
        clock.advance(100)
        queue.promote_due()
    assert counted(queue).reaps == {"shaky": 2, "sound": 0}


def test_no_survey_takes_the_write_lock_or_waits_for_it(make_queue: MakeQueue) -> None:
    """While another process writes, it reads what is committed (V13); and nothing is written by it."""
    writer, reader = make_queue(), make_queue(busy_timeout=0.05)
    writer.enqueue("work")
    lease = writer.lease_next()
    assert lease is not None
    lease.complete()
    writer.enqueue("work")
    connection = apsw.Connection(writer.path)
    version = connection.pragma("data_version")
    with writer.transaction() as tx:
        tx.enqueue("work")
        assert sum(counted(reader).jobs.values()) == 2
        assert len(oldest(reader)) == len(done(reader)) == 1
        assert reader.surveyor().state().file_bytes > 0
    writer.cancel(writer.enqueue("more").job_id)
    before = connection.pragma("data_version")
    assert before != version
    counted(reader), oldest(reader), done(reader), reader.surveyor().state()
    assert connection.pragma("data_version") == before
    connection.close()


def test_between_two_steps_nothing_is_held(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write-ahead log can be copied back whole, and others read and write on the very handle (DESIGN §3)."""
    monkeypatch.setattr(surveying, "STEP", 10)
    queue.enqueue_many(NewJob("work", n) for n in range(35))
    walk = queue.surveyor().jobs()
    next(walk)
    queue.enqueue("late", priority=0)  # before the place that the walk has come to
    assert queue.checkpoint_wal() == 0
    found, steps = all_of(walk)
    assert (found.jobs, steps) == ({("work", JobState.PENDING): 35}, 3)


def test_a_step_of_a_count_costs_the_same_in_every_file(
    queue: Queue, vm_steps: VmSteps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a scrape takes at once does not grow with the file (issue 8: bounded at a million jobs)."""
    monkeypatch.setattr(surveying, "STEP", 100)
    costs = []
    for _ in range(2):
        queue.enqueue_many(NewJob("work", n) for n in range(3_000))
        costs.append(vm_steps(queue, lambda: next(queue.surveyor().jobs())))
    assert costs[1] <= 1.05 * costs[0]


def test_ages_and_samples_cost_the_same_however_many_jobs_there_are(queue: Queue, vm_steps: VmSteps) -> None:
    """The heads of lines are found by index, and so are the youngest jobs: no line is walked through (G9)."""
    ready, finished = [], []
    for _ in range(2):
        queue.enqueue_many(NewJob(f"kind:{n % 5}", n) for n in range(4_000))
        leases = queue.lease_many(2_000)
        queue.complete_many(leases)
        queue.surveyor().state()
        ready.append(vm_steps(queue, lambda: all_of(queue.surveyor().oldest())))
        finished.append(vm_steps(queue, lambda: all_of(queue.surveyor().done(10**12))))
    assert ready[1] <= 1.05 * ready[0]
    assert finished[1] <= 1.05 * finished[0]
    assert ready[0] < 1_000, "a few seeks, one for each kind"


def test_maintenance_walks_from_group_to_group_without_going_through_them(queue: Queue, vm_steps: VmSteps) -> None:
    """A seek leads beyond a group, however many jobs are in it (DESIGN §2: skip-scan)."""
    costs = []
    for _ in range(2):
        queue.enqueue_many(NewJob("work", n) for n in range(4_000))
        queue.prune()
        costs.append(vm_steps(queue, queue.prune))
    assert costs[1] <= 1.05 * costs[0] < 1_000


@pytest.mark.parametrize("lines", [1, 2, 500])
def test_the_oldest_ready_job_is_found_in_every_line(
    queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    """Whatever its scope and priority: a line that starves behind others is just what one wants to know of."""
    monkeypatch.setattr(surveying, "LINES", lines)
    began_at = clock.wall_us()
    queue.enqueue("starving", priority=200, scope="z")
    clock.advance(100)
    queue.enqueue("starving", priority=1, scope="a")
    queue.enqueue("starving", priority=1, scope=SYSTEM)
    queue.enqueue("fresh", scope="z")
    found = oldest(queue)
    assert (found["starving"] - began_at) / 1e6 == pytest.approx(0, abs=1)
    assert (found["fresh"] - began_at) / 1e6 == pytest.approx(100, abs=1)


def test_a_delay_and_a_back_off_are_no_waiting(queue: Queue, clock: FakeClock) -> None:
    """A job that is due after an hour has been ready since then, though it keeps its `created_at` (G4)."""
    queue.enqueue("delayed", delay=3_600)
    queue.enqueue("failing")
    lease = queue.lease_next(["failing"])
    assert lease is not None
    lease.fail("no", delay=3_600)
    clock.advance(3_601)
    queue.promote_due()
    clock.advance(5)
    ages = {kind: round((clock.wall_us() - at) / 1e6) for kind, at in oldest(queue).items()}
    assert ages == {"delayed": 5, "failing": 5}


def test_the_sample_tells_how_long_jobs_waited_ran_and_took_in_all(queue: Queue, clock: FakeClock) -> None:
    """Wait is from ready to leased, run from leased to completed, latency all of it, retries included (metrics)."""
    queue.enqueue("work", delay=1_000)
    clock.advance(1_000)
    queue.promote_due()
    clock.advance(5)
    lease = queue.lease_next()
    assert lease is not None
    clock.advance(2)
    lease.fail("once", delay=10)
    clock.advance(10)
    queue.promote_due()
    clock.advance(3)
    lease = queue.lease_next()
    assert lease is not None
    clock.advance(7)
    lease.complete()
    (one,) = done(queue)
    assert one.kind == "work"
    assert one.run_s == pytest.approx(7, abs=0.01)
    assert one.wait_s == pytest.approx(3, abs=0.01)
    assert one.latency_s == pytest.approx(5 + 2 + 10 + 3 + 7, abs=0.01)


def test_only_what_was_completed_lately_is_in_the_sample(queue: Queue, clock: FakeClock) -> None:
    """Yesterday's runs say nothing of today; dead and cancelled jobs have no run to tell of."""
    for _ in range(3):
        queue.enqueue("work")
    queue.complete_many(queue.lease_many(1))
    clock.advance(301)
    queue.complete_many(queue.lease_many(1))
    queue.fail_many(queue.lease_many(1), "no", retryable=False)
    assert len(done(queue)) == 1
    assert len(done(queue, within_s=1_000)) == 2


def test_the_sample_is_bounded_and_has_some_of_every_line(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many jobs and lines there are; of each the youngest."""
    monkeypatch.setattr(surveying, "SAMPLE", 6)
    for scope, priority in (("a", 1), ("a", 2), ("b", 1)):
        queue.enqueue_many(NewJob(f"{scope}{priority}", scope=scope, priority=priority) for _ in range(10))
    for scope in ("a", "b"):
        queue.complete_many(queue.lease_many(30, scope=scope))
    queue.enqueue("pending", scope="b", priority=1)
    assert sorted(one.kind for one in done(queue)) == ["a1", "a1", "a2", "a2", "b1", "b1"]
    monkeypatch.setattr(surveying, "MOST_LINES", 2)
    assert {one.kind for one in done(queue)} == {"a1", "a2"}


def test_a_log_that_cannot_be_read_hides_no_other_job(queue: Queue, clock: FakeClock) -> None:
    """Its job is as old as its key says, and every other one is told of as ever (§6)."""
    began_at = clock.wall_us()
    queue.enqueue("bad")
    clock.advance(10)
    queue.enqueue("good")
    with queue._store.read():
        pass
    connection = apsw.Connection(queue.path)
    connection.execute("UPDATE litequeue_job SET events = x'c1' WHERE kind = 'bad'")
    connection.close()
    found = oldest(queue)
    assert round((found["bad"] - began_at) / 1e6) == 0
    assert round((found["good"] - began_at) / 1e6) == 10


def test_lapsed_leases_are_counted_up_to_a_bound(
    queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that nobody has taken back yet."""
    queue.enqueue_many(NewJob("work", n) for n in range(5))
    queue.lease_many(4, ttl=10)
    assert queue.surveyor().state().lapsed == 0
    clock.advance(11)
    assert queue.surveyor().state().lapsed == 4
    monkeypatch.setattr(surveying, "MOST_LAPSED", 3)
    assert queue.surveyor().state().lapsed == 3


def test_the_age_of_maintenance_is_that_of_its_last_pass(queue: Queue, clock: FakeClock) -> None:
    """Whoever did it, as a process, a thread or once; without a write into the queue (metrics)."""
    assert queue.surveyor().state().maintenance_age_s is None
    Maintenance(queue).run_once()
    assert queue.surveyor().state().maintenance_age_s == pytest.approx(0, abs=0.01)
    clock.advance(100)
    assert queue.surveyor().state().maintenance_age_s == pytest.approx(100, abs=0.01)
    connection = apsw.Connection(queue.path)
    version = connection.pragma("data_version")
    Maintenance(queue).run_once()
    assert queue.surveyor().state().maintenance_age_s == pytest.approx(0, abs=0.01)
    assert connection.pragma("data_version") == version, "an idle pass writes nothing"
    connection.close()


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="there are no links here")
def test_a_stranger_in_the_place_of_the_sidecar_is_not_touched(queue: Queue, tmp_path: Path) -> None:
    """A link to another file gets no time of ours; a pass goes on without saying when it was."""
    other = tmp_path / "other"
    other.write_text("mine", encoding="utf-8")
    os.utime(other, (1, 1))
    Path(f"{queue.path}-maintenance").symlink_to(other)
    Maintenance(queue).run_once()
    assert other.stat().st_mtime == 1


def test_rows_out_of_order_end_a_walk(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged tree could lead it round for ever; it is said to be damaged (§6)."""
    monkeypatch.setattr(surveying, "STEP", 1)
    queue.enqueue_many(NewJob("work", n) for n in range(3))
    query = "SELECT scope, state, priority, created_at, job_id FROM litequeue_job LIMIT 1"
    wrong = f"SELECT * FROM ({query}) WHERE ? + ? + ? + ? + ? + ? IS NOT NULL"
    monkeypatch.setattr(surveying, "SQL", _Wrong(wrong))
    with pytest.raises(StorageCorrupt, match="out of order"):
        all_of(queue.surveyor().jobs())


class _Wrong:
    """The statements, with one that always finds the first row."""

    def __init__(self, survey_end: str) -> None:
        self.survey_end = survey_end.replace("? + ? + ? + ? + ? + ?", "coalesce(?, ?, ?, ?, ?, ?)")
        self.survey_jobs = "SELECT '', 0, '', 0, 0 WHERE coalesce(?, ?, ?, ?, ?, ?) IS NULL"
