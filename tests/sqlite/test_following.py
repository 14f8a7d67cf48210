"""What happens, as it happens: each event once, found without a walk over jobs, heard by the bells (issue 8)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import litequeue
from litequeue import ANY, SYSTEM, NewJob, QueueClosed, StorageCorrupt
from litequeue.sqlite import following
from litequeue.sqlite.ends import BEFORE_ALL
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.statements import SQL
from litequeue.sqlite.watching import Listener
from tests.sqlite.test_flat_cost import Steps

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from apsw import SQLiteValue

    from litequeue import Queue
    from litequeue.sqlite.following import Follower, Happened
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue
    from tests.sqlite.conftest import Asleep


@pytest.fixture
def queue(make_queue: MakeQueue) -> Queue:
    """Give the handle of those who work."""
    return make_queue()


@pytest.fixture
def follower(make_queue: MakeQueue, queue: Queue) -> Follower:
    """Give one who follows all scopes of an empty queue from now on, by a handle of its own."""
    queue.stats()
    following_all = make_queue().follower(scope=ANY)
    assert following_all.latest(10) == []
    return following_all


def told(found: list[Happened]) -> list[tuple[UUID, str]]:
    """Return whose events they are, and which."""
    return [(one.job_id, str(one.event.transition)) for one in found]


def names(found: list[Happened]) -> list[str]:
    """Return which events they are."""
    return [name for _, name in told(found)]


def test_the_whole_life_of_a_job_is_told_step_by_step(queue: Queue, follower: Follower, clock: FakeClock) -> None:
    """Each event with its job, scope, kind and detail, in order and once; nothing twice (issue 8)."""
    job_id = queue.enqueue("mail:send", scope=SYSTEM, delay=5).job_id
    (first,) = follower.news()
    assert (first.job_id, first.scope, first.kind) == (job_id, SYSTEM, "mail:send")
    assert first.event == queue.get(job_id).events[0]
    clock.advance(5)
    (lease,) = queue.lease_many(1, scope=SYSTEM)
    assert names(follower.news()) == ["promoted", "leased"]
    lease.note("half")
    assert [(one.event.transition, one.event.detail) for one in follower.news()] == [("note", "half")]
    lease.fail("boom")
    assert names(follower.news()) == ["failed"]
    clock.advance(10)
    (lease,) = queue.lease_many(1, scope=SYSTEM)
    lease.fail("boom", retryable=False)
    assert names(follower.news()) == ["promoted", "leased", "failed", "dead"]
    queue.retry(job_id)
    assert names(follower.news()) == ["retried"]
    queue.cancel(job_id)
    assert names(follower.news()) == ["cancelled"]
    assert follower.news() == []


def test_what_starts_and_ends_between_two_looks_is_told(queue: Queue, follower: Follower, clock: FakeClock) -> None:
    """From the head of a long line, never seen at work: where jobs arrive that have ended (issue 8)."""
    queue.enqueue_many(NewJob("work", n) for n in range(300))
    follower.news()
    for _ in range(3):
        clock.advance(1)
        leases = queue.lease_many(50)
        queue.complete_many(leases[:48])
        queue.fail_many(leases[48:49], "boom", retryable=False)
        queue.cancel(leases[49].job_id)
        found = told(follower.news())
        assert {job_id for job_id, _ in found} == {lease.job_id for lease in leases}
        assert sorted(name for _, name in found) == sorted(
            ["leased"] * 50 + ["completed"] * 48 + ["failed", "dead", "cancelled"]
        )


def test_a_job_that_others_overtake_is_told_of_when_it_ends(queue: Queue, follower: Follower, clock: FakeClock) -> None:
    """It was seen at work, or waiting for its next try, and is looked up by its id from then on (issue 8)."""
    queue.enqueue_many(NewJob("work", n) for n in range(10))
    slow, failing, *others = queue.lease_many(10)
    failing.fail("boom", delay=60)
    follower.news()
    queue.complete_many(others)
    assert {job_id for job_id, _ in told(follower.news())} == {lease.job_id for lease in others}
    slow.complete()
    assert told(follower.news()) == [(slow.job_id, "completed")]
    clock.advance(60)
    (again,) = queue.lease_many(1)
    again.complete()
    assert told(follower.news()) == [(failing.job_id, name) for name in ("promoted", "leased", "completed")]


def test_a_commit_that_comes_late_is_told_all_the_same(queue: Queue, follower: Follower, clock: FakeClock) -> None:
    """Its time is that of its beginning, before a look that could not see it (G8)."""
    with queue.transaction() as tx:
        late = tx.enqueue("work").job_id
        clock.advance(0.5)
        assert follower.news() == []
    assert told(follower.news()) == [(late, "enqueued")]


def test_the_past_is_told_by_the_first_look_only(make_queue: MakeQueue, queue: Queue, clock: FakeClock) -> None:
    """As many events as are asked for, the last ones; what was there before is no news, whatever moves it (issue 8)."""
    queue.enqueue_many(NewJob("work", n) for n in range(5))
    clock.advance(3600)
    done, running = queue.lease_many(2)
    clock.advance(1)
    done.complete()
    clock.advance(3600)
    follower = make_queue().follower()
    assert told(follower.latest(2)) == [(running.job_id, "leased"), (done.job_id, "completed")]
    assert follower.news() == []
    running.complete()
    (last,) = queue.lease_many(1, worker_id="w")
    assert sorted(told(follower.news())) == sorted([(running.job_id, "completed"), (last.job_id, "leased")])
    assert make_queue().follower().latest(0) == []
    assert len(make_queue().follower().latest(100)) == 5 + 3 + 2


def test_only_what_was_asked_for_is_told(make_queue: MakeQueue, queue: Queue) -> None:
    """A kind or a prefix, a scope or all (issue 8)."""
    mail, here, everywhere = (
        make_queue().follower("mail:"),
        make_queue().follower(),
        make_queue().follower("other", scope=ANY),
    )
    for follower in (mail, here, everywhere):
        follower.latest(0)
    one, two = queue.enqueue("mail:send").job_id, queue.enqueue("other").job_id
    queue.enqueue("mail:send", scope="acme")
    three = queue.enqueue("other", scope="acme").job_id
    (lease,) = queue.lease_many(1, scope="acme", kinds=["other"])
    assert told(mail.news()) == [(one, "enqueued")]
    assert sorted(told(here.news())) == sorted([(one, "enqueued"), (two, "enqueued")])
    found = everywhere.news()
    assert sorted(told(found)) == sorted([(two, "enqueued"), (three, "enqueued"), (three, "leased")])
    lease.complete()
    assert told(everywhere.news()) == [(three, "completed")]


def test_more_than_a_look_takes_is_told_by_the_next_ones(
    queue: Queue, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A burst is gone through in pages, without waiting for another commit (issue 8)."""
    monkeypatch.setattr(following, "_PAGE", 10)
    monkeypatch.setattr(following, "_LEAST_REST_S", 0.0)
    made = [one.job_id for one in queue.enqueue_many(NewJob("work", n) for n in range(35))]
    found: list[UUID] = []
    while follower.wait(0):
        page = follower.news()
        assert len(page) <= 10
        found += [one.job_id for one in page]
    assert found == made


def test_a_log_that_was_shortened_is_told_from_where_it_was(queue: Queue, follower: Follower, clock: FakeClock) -> None:
    """The oldest events go, those that were told among them (§2)."""
    queue.enqueue("work")
    (lease,) = queue.lease_many(1)
    heard = [one.event.detail for one in follower.news() if one.event.transition == "note"]
    for n in range(60):
        clock.advance(1)
        lease.note(f"{n} {'x' * 200}")
        if n % 7 == 0 or n == 59:
            heard += [one.event.detail for one in follower.news() if one.event.transition == "note"]
    assert [detail.split()[0] for detail in heard] == [str(n) for n in range(60)]


def test_a_job_that_is_removed_is_forgotten(queue: Queue, follower: Follower) -> None:
    """What it did last went with it; the others are told as ever (issue 8)."""
    queue.set("completed_retention", 0)
    queue.enqueue_many([NewJob("work"), NewJob("work")])
    lease, other = queue.lease_many(2)
    follower.news()
    lease.complete()
    queue.prune()
    other.note("still here")
    assert names(follower.news()) == ["note"]
    assert len(follower._active) == 1


def test_what_is_remembered_is_bounded(
    queue: Queue, follower: Follower, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended jobs for a minute, others up to a number; what is forgotten is not told again (issue 8)."""
    monkeypatch.setattr(following, "_MOST_REMEMBERED", 5)
    queue.enqueue_many(NewJob("work", n) for n in range(20))
    assert len(follower.news()) == 20
    assert len(follower._active) == 5
    queue.complete_many(queue.lease_many(3))
    follower.news()
    assert len(follower._ended) == 3
    clock.advance(61)
    queue.enqueue("work")
    assert names(follower.news()) == ["enqueued"]
    assert len(follower._ended) == 0
    assert follower.news() == []


def test_the_cost_does_not_grow_with_the_jobs_that_are_there(queue: Queue, clock: FakeClock) -> None:
    """The same steps of SQLite's for the same news, beside ten times as many jobs in each state (G9)."""
    counts = []
    for rows in (150, 1500):
        queue.enqueue_many(NewJob("work", n) for n in range(2 * rows))
        queue.enqueue_many(NewJob("work", n, delay=60) for n in range(rows))
        queue.complete_many(queue.lease_many(rows))
        clock.advance(1)
        follower = queue.follower()
        follower.latest(0)
        queue.enqueue("work")
        with Steps(queue) as steps:
            assert names(follower.news()) == ["enqueued"]
        counts.append(steps.count)
    assert counts[0] == pytest.approx(counts[1], rel=0.05)


def test_an_unreadable_log_is_passed_over(queue: Queue, follower: Follower) -> None:
    """Its job is told of no more; `jobs show` says why (§6)."""
    bad, good = queue.enqueue("work").job_id, queue.enqueue("work").job_id
    queue.cancel(good)
    queue._store.write(
        lambda context: context.write("UPDATE litequeue_job SET events = x'00' WHERE job_id = ?", (bad.bytes,)),
        durable=False,
    )
    assert told(follower.news()) == [(good, "enqueued"), (good, "cancelled")]


def test_rows_out_of_order_are_damage_and_no_endless_news(
    queue: Queue, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged tree that gives the same rows again and again, as one that goes round does (§6)."""
    queue.enqueue_many(NewJob("work", n) for n in range(3))
    follower.news()
    look = Reader.all

    def go_round(reader: Reader, statement: str, *values: SQLiteValue) -> list[tuple[Any, ...]]:
        if statement == SQL.group_since:
            values = (*values[:3], *BEFORE_ALL, *values[5:])
        return look(reader, statement, *values)

    monkeypatch.setattr(Reader, "all", go_round)
    with pytest.raises(StorageCorrupt, match="out of order"):
        follower.news()


@pytest.mark.parametrize("back_s", [0.5, 30, 3600])
def test_the_clock_is_set_back_and_nothing_is_missed(
    queue: Queue, follower: Follower, clock: FakeClock, back_s: float
) -> None:
    """What arrives then lies before what was there; each event once, also when the clock has caught up (G8)."""
    queue.enqueue_many(NewJob("old", scope=f"s{n % 2}") for n in range(20))
    queue.enqueue("slow")
    queue.complete_many([*queue.lease_many(10, scope="s0"), *queue.lease_many(5, scope="s1")])
    clock.advance(10)
    follower.news()
    (slow,) = queue.lease_many(1, ttl=80_000)
    clock.step_wall(-back_s)
    expected = [(slow.job_id, "leased")]
    for _ in range(20):
        job_id = queue.enqueue("new", scope="s0").job_id
        for lease in queue.lease_many(1, scope="s0"):
            lease.complete()
        expected += [(job_id, name) for name in ("enqueued", "leased", "completed")]
        assert sorted(told(follower.news())) == sorted(expected)
        expected = []
        clock.advance(back_s / 10)
    slow.complete()
    assert told(follower.news()) == [(slow.job_id, "completed")]
    assert follower.news() == []


def test_one_who_begins_while_the_clock_is_behind_misses_nothing(
    make_queue: MakeQueue, queue: Queue, clock: FakeClock
) -> None:
    """The past stays the past, and what comes before it in its group is news (G8)."""
    queue.enqueue_many(NewJob("old") for _ in range(20))
    queue.complete_many(queue.lease_many(20))
    clock.advance(10)
    clock.step_wall(-3600)
    follower = make_queue().follower()
    follower.latest(0)
    job_id = queue.enqueue("new").job_id
    (lease,) = queue.lease_many(1)
    lease.complete()
    assert told(follower.news()) == [(job_id, name) for name in ("enqueued", "leased", "completed")]


def test_what_lies_ahead_of_the_clock_is_known_up_to_a_number(
    queue: Queue, follower: Follower, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look stays bounded, and is at the last ones of a group (issue 8)."""
    monkeypatch.setattr(following, "_PAGE", 10)
    queue.enqueue_many(NewJob("old", n) for n in range(30))
    clock.advance(10)
    while follower.news():
        pass
    clock.step_wall(-3600)
    for n in range(30):
        job_id = queue.enqueue("new", n).job_id
        assert told(follower.news()) == [(job_id, "enqueued")]
    assert max(len(end.ahead) for end in follower._group_ends._ends.values()) == 10


@pytest.mark.parametrize("how", ["step_wall", "suspend"])
def test_the_clock_goes_forth_and_nothing_is_missed(
    queue: Queue, follower: Follower, clock: FakeClock, how: str
) -> None:
    """What was committed since the last look is two minutes old at once; the order is that of the moments (G8)."""
    clock.advance(5)
    first = queue.enqueue("work").job_id
    (lease,) = queue.lease_many(1)
    lease.complete()
    getattr(clock, how)(120)
    second = queue.enqueue("work").job_id
    expected = [(first, "enqueued"), (first, "leased"), (first, "completed"), (second, "enqueued")]
    assert told(follower.news()) == expected
    clock.step_wall(-120)
    third = queue.enqueue("work", priority=1).job_id
    assert told(follower.news()) == [(third, "enqueued")]


def test_a_step_ends_the_wait(follower: Follower, clock: FakeClock) -> None:
    """Though nothing was committed: the sooner it is known, the less is uncertain (G8)."""
    clock.step_wall(-60)
    assert follower.wait(5)
    assert follower.news() == []
    assert not follower.wait(0)


def test_a_job_that_is_brought_back_is_told_of(queue: Queue, follower: Follower, clock: FakeClock) -> None:
    """It keeps its place, behind the end of its group: it is among the first of those that wait (V16, issue 8)."""
    clock.advance(1)
    dead, cancelled, completed = (queue.enqueue(kind).job_id for kind in ("dead", "cancelled", "completed"))
    queue.lease_many(1)[0].fail("boom", retryable=False)
    queue.cancel(cancelled)
    queue.lease_many(1)[0].complete()
    clock.advance(1)
    queue.enqueue_many(NewJob("work", n) for n in range(10))
    queue.complete_many(queue.lease_many(3))
    clock.advance(1)
    follower.news()
    clock.advance(3600)
    for job_id in (dead, cancelled, completed):
        queue.retry(job_id)
    assert sorted(told(follower.news())) == sorted((job_id, "retried") for job_id in (dead, cancelled, completed))
    queue.complete_many(queue.lease_many(3))
    found = told(follower.news())
    assert sorted(found) == sorted(
        (job_id, name) for job_id in (dead, cancelled, completed) for name in ("leased", "completed")
    )
    assert follower.news() == []


# --- waiting


def test_a_wait_ends_with_a_commit_of_anybody_and_at_its_time(queue: Queue, follower: Follower) -> None:
    """Also of one that rings no bell; nothing is held open meanwhile (issue 8)."""
    assert not follower.wait(0)
    queue.enqueue("work")
    assert follower.wait(0)
    assert follower.wait(0), "until somebody has looked"
    follower.news()
    assert not follower.wait(0)
    (lease,) = queue.lease_many(1)
    assert follower.wait(0)
    follower.news()
    lease.note("half")
    assert follower.wait(5)
    connection = follower._store._reader.connection
    assert connection is not None
    assert not connection.in_transaction


def test_who_waits_hears_of_work_and_of_ends(tmp_path: Path, asleep: Asleep, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the bells, long before the next look that nobody rings for (DESIGN §4)."""
    monkeypatch.setattr("litequeue.sqlite.arrivals._NET_S", 60.0)
    monkeypatch.setattr("litequeue.sqlite.results._ALL_KNOW_S", 0.0)
    monkeypatch.setattr("litequeue.sqlite.bell._LOOK_AGAIN_S", 0.0)
    with litequeue.open(tmp_path / "a.queue") as queue, queue.sibling() as other:
        follower = other.follower()
        follower.latest(0)
        heard: list[list[str]] = []

        def follow() -> None:
            while follower.wait(60) and len(heard) < 2:
                heard.append(names(follower.news()))

        thread = threading.Thread(target=follow)
        thread.start()
        assert asleep.wait() > 50
        queue.enqueue("work")
        assert asleep.wait() > 50
        with queue.transaction() as tx:
            lease = tx.lease_next()
            assert lease is not None
            tx.complete(lease)
        asleep.wait()
        follower.interrupt()
        thread.join(20)
        assert not thread.is_alive()
        assert heard == [["enqueued"], ["leased", "completed"]]
        assert not follower._ends


def test_a_busy_queue_is_not_looked_at_without_a_rest(
    queue: Queue, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that found something is followed by a rest, the longer the more it cost; an interrupt ends it."""
    rests: list[float] = []
    monkeypatch.setattr(Listener, "rest", lambda _, seconds: rests.append(seconds))
    queue.enqueue("work")
    assert follower.wait(0)
    assert not rests
    follower.news()
    queue.enqueue("work")
    assert follower.wait(0)
    assert len(rests) == 1
    assert rests[0] >= following._LEAST_REST_S
    follower.news()
    follower.interrupt()
    assert not follower.wait()
    assert len(rests) == 1


def test_a_handle_that_is_closed_ends_it(make_queue: MakeQueue) -> None:
    """As every other verb (§9)."""
    queue = make_queue()
    follower = queue.follower()
    follower.latest(0)
    queue.close()
    with pytest.raises(QueueClosed):
        follower.wait()
    with pytest.raises(QueueClosed):
        follower.news()


def test_arguments_out_of_their_bounds_are_refused(queue: Queue) -> None:
    """With their names and bounds (§6)."""
    with pytest.raises(litequeue.UsageError, match="limit"):
        queue.follower().latest(-1)
    with pytest.raises(litequeue.UsageError, match="kind"):
        queue.follower("")
