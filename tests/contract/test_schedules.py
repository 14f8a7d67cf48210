"""Schedules: declared, changed, paused, fired, each boundary once (issue 6; G3, V1, V2)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from litequeue import (
    ANY,
    SYSTEM,
    InvalidSpec,
    Job,
    JobState,
    PayloadError,
    Schedule,
    ScheduleNotFound,
    UsageError,
)
from litequeue.boundaries import key

if TYPE_CHECKING:
    from litequeue import Queue
    from litequeue.model import Misfire
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = 3600


def now(clock: FakeClock) -> datetime:
    """Return the clock's time."""
    return EPOCH + timedelta(microseconds=clock.wall_us())


def only(queue: Queue) -> Schedule:
    """Return the one schedule that there is."""
    (found,) = queue.schedules()
    return found


def fire(queue: Queue) -> int:
    """Do one pass, in which nothing is refused."""
    fires = queue.fire_schedules()
    assert fires.refused == {}
    return fires.jobs


def fired(queue: Queue, kind: str | None = None) -> list[datetime | None]:
    """Return the boundaries of all jobs, in the order in which they were enqueued."""
    jobs: list[Job] = sorted(queue.list(kind=kind, scope=ANY, limit=10_000), key=lambda job: job.created_at)
    return [job.boundary for job in jobs]


# --- declaring


def test_a_schedule_tells_all_that_was_declared(queue: Queue, clock: FakeClock) -> None:
    """What was given and what is by default; nothing is enqueued yet."""
    made = queue.schedule(
        "nightly",
        "  30  2 * *   mon-fri ",
        "report:build",
        {"day": datetime(2025, 1, 1, tzinfo=UTC)},
        scope="tenant",
        priority=7,
        max_attempts=3,
        expires=timedelta(hours=1),
        timezone="Europe/Berlin",
        misfire="latest",
    )
    assert made == only(queue)
    assert (made.name, made.spec, made.timezone) == ("nightly", "30 2 * * mon-fri", "Europe/Berlin")
    assert (made.kind, made.scope, made.priority, made.max_attempts) == ("report:build", "tenant", 7, 3)
    assert made.payload == {"day": datetime(2025, 1, 1, tzinfo=UTC)}
    assert (made.expires, made.misfire, made.is_paused) == (3600.0, "latest", False)
    assert made.boundary == datetime(2025, 6, 16, 0, 30, tzinfo=UTC)
    assert (made.created_at, made.last_boundary, made.last_fired_at) == (clock.wall_us(), None, None)
    assert (made.fired, made.skipped) == (0, 0)
    plain = queue.schedule("a plain one", "@every 5m", "work")
    assert queue.schedules() == [plain, made]
    assert (plain.payload, plain.scope, plain.priority, plain.max_attempts) == (None, "default", 100, None)
    assert (plain.timezone, plain.misfire, plain.expires) == ("UTC", "all", None)
    assert plain.boundary == now(clock) + timedelta(minutes=5)
    assert queue.list(scope=ANY) == []


def test_a_program_that_declares_at_each_start_postpones_nothing(queue: Queue, clock: FakeClock) -> None:
    """The same rule keeps its boundary, whatever else is changed; also one that has been missed."""
    first = queue.schedule("tick", "@every 300s", "work")
    clock.advance(200)
    again = queue.schedule("tick", "@every 5m", "other", 5, misfire="skip", priority=3)
    assert again.boundary == first.boundary
    assert again.created_at == first.created_at
    assert (again.kind, again.payload, again.misfire, again.priority) == ("other", 5, "skip", 3)
    clock.advance(200)
    assert queue.schedule("tick", "@every 5m", "other").boundary == first.boundary
    assert fire(queue) == 1
    assert fired(queue, "other") == [first.boundary]


def test_another_rule_begins_from_now(queue: Queue, clock: FakeClock) -> None:
    """Another spec, or another time zone."""
    queue.schedule("tick", "@every 300s", "work")
    clock.advance(200)
    assert queue.schedule("tick", "@every 100s", "work").boundary == now(clock) + timedelta(seconds=100)
    berlin = queue.schedule("tick", "0 12 * * *", "work", timezone="Europe/Berlin").boundary
    utc = queue.schedule("tick", "0 12 * * *", "work").boundary
    assert utc - berlin == timedelta(hours=2)


def test_a_pause_and_the_counts_outlive_a_declaration(queue: Queue, clock: FakeClock) -> None:
    """Who restarts a program does not undo what an operator has said."""
    queue.schedule("tick", "@every 60s", "work")
    clock.advance(60)
    assert fire(queue) == 1
    queue.pause_schedule("tick")
    for spec in ("@every 60s", "@every 30s"):
        again = queue.schedule("tick", spec, "work")
        assert again.is_paused
        assert again.fired == 1
        assert again.last_boundary == now(clock)


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"spec": "61 * * * *"}, InvalidSpec, "spec"),
    ({"spec": "@every 0s"}, InvalidSpec, "spec"),
    ({"timezone": "Mars/Olympus"}, UsageError, "timezone"),
    ({"timezone": None}, UsageError, "timezone"),
    ({"name": ""}, UsageError, "name"),
    ({"name": "x" * 201}, UsageError, "name"),
    ({"name": "a\nb"}, UsageError, "name"),
    ({"name": 5}, UsageError, "name"),
    ({"kind": ""}, UsageError, "kind"),
    ({"scope": ANY}, UsageError, "scope"),
    ({"scope": "litequeue:mine"}, UsageError, "scope"),
    ({"priority": 256}, UsageError, "priority"),
    ({"max_attempts": 0}, UsageError, "max_attempts"),
    ({"expires": -1}, UsageError, "expires"),
    ({"misfire": "never"}, UsageError, "misfire"),
    ({"payload": object()}, PayloadError, "object"),
    ({"payload": "x" * 2_000_000}, PayloadError, "max_payload"),
]


@pytest.mark.parametrize(("wrong", "error", "word"), BAD)
def test_a_bad_argument_is_named_and_nothing_is_declared(
    queue: Queue, wrong: dict[str, Any], error: type[Exception], word: str
) -> None:
    """One clear error (§6)."""
    arguments: dict[str, Any] = {"name": "tick", "spec": "@every 5m", "kind": "work"}
    with pytest.raises(error, match=word):
        queue.schedule(**arguments | wrong)
    assert queue.schedules() == []


def test_the_longest_name_has_room_in_a_key(queue: Queue, clock: FakeClock) -> None:
    """Whatever characters it has."""
    name = "ü:" * 100
    queue.schedule(name, "@every 36500d", "work")
    clock.advance(36_500 * 86_400)
    assert fire(queue) == 1
    assert fired(queue) == [now(clock)]


def test_a_name_that_is_not_there_is_said_so(queue: Queue) -> None:
    """By every verb that takes one."""
    for verb in (queue.unschedule, queue.pause_schedule, queue.resume_schedule, queue.run_now):
        with pytest.raises(ScheduleNotFound) as caught:
            verb("nobody")
        assert caught.value.name == "nobody"
        with pytest.raises(UsageError, match="name"):
            verb("")


def test_schedules_are_declared_with_other_work_or_not_at_all(queue: Queue) -> None:
    """Every verb is in a transaction too; a rollback leaves no trace (V14)."""

    def fail_after_all_verbs() -> None:
        with queue.transaction() as tx:
            tx.schedule("tick", "@every 5m", "work")
            assert [schedule.name for schedule in tx.schedules()] == ["tick"]
            tx.pause_schedule("tick")
            tx.resume_schedule("tick")
            tx.run_now("tick")
            raise LookupError

    with pytest.raises(LookupError):
        fail_after_all_verbs()
    assert queue.schedules() == []
    assert queue.list() == []
    with queue.transaction() as tx:
        tx.schedule("tick", "@every 5m", "work")
        tx.schedule("tock", "@every 5m", "work")
        tx.unschedule("tick")
        with pytest.raises(UsageError, match="inside"):
            queue.fire_schedules()
    assert only(queue).name == "tock"


def test_keys_of_schedules_are_nobody_elses(queue: Queue) -> None:
    """A caller's key cannot take a boundary's place (§6)."""
    for reserved in ("litequeue:", key("tick", 5)):
        with pytest.raises(UsageError, match="idempotency_key must be a key that does not begin with the reserved"):
            queue.enqueue("work", idempotency_key=reserved)
    queue.enqueue("work", idempotency_key="litequeue")


# --- firing


def test_each_boundary_makes_an_ordinary_job_that_carries_it(queue: Queue, clock: FakeClock) -> None:
    """Its fields are those that were declared; the lease tells the boundary too."""
    made = queue.schedule(
        "tick", "@every 60s", "work", [1], scope=SYSTEM, priority=7, max_attempts=2, expires=30, misfire="skip"
    )
    assert fire(queue) == 0
    clock.advance(59.999999)
    assert fire(queue) == 0
    clock.advance(0.000001)
    assert fire(queue) == 1
    (job,) = queue.list(scope=SYSTEM)
    assert (job.kind, job.payload, job.priority, job.max_attempts) == ("work", [1], 7, 2)
    assert job.expires_at == clock.wall_us() + 30_000_000
    assert job.idempotency_key == key("tick", clock.wall_us())
    assert job.boundary == made.boundary == now(clock)
    lease = queue.lease_next(scope=SYSTEM)
    assert lease is not None
    assert (lease.boundary, lease.idempotency_key) == (made.boundary, job.idempotency_key)
    after = only(queue)
    assert (after.boundary, after.last_boundary) == (made.boundary + timedelta(seconds=60), made.boundary)
    assert (after.fired, after.skipped, after.last_fired_at) == (1, 0, clock.wall_us())
    assert fire(queue) == 0


def test_other_jobs_have_no_boundary(queue: Queue) -> None:
    """Nor have their leases, with a key or without."""
    queue.enqueue("work")
    queue.enqueue("work", idempotency_key="mine")
    assert [job.boundary for job in queue.list()] == [None, None]
    assert [lease.boundary for lease in queue.lease_many(2)] == [None, None]


def test_boundaries_come_from_the_schedule_and_never_from_now(queue: Queue, clock: FakeClock) -> None:
    """A ticker that is always late by some seconds makes no drift."""
    start = queue.schedule("tick", "@every 60s", "work").boundary
    for late in (7, 59, 13, 0, 42):
        clock.advance((only(queue).boundary - now(clock)).total_seconds() + late)
        fire(queue)
    expected = [start + timedelta(seconds=60) * step for step in range(5)]
    assert fired(queue) == expected


def test_a_paused_schedule_fires_nothing_and_goes_on_from_its_next_boundary(queue: Queue, clock: FakeClock) -> None:
    """What came meanwhile is not made up for, and what lies ahead stays where it is."""
    start = queue.schedule("tick", "@every 60s", "work").boundary
    queue.pause_schedule("tick")
    queue.pause_schedule("tick")
    assert only(queue).is_paused
    clock.advance(1000)
    assert fire(queue) == 0
    queue.resume_schedule("tick")
    assert only(queue).boundary == start + timedelta(seconds=60) * 16
    clock.advance(20)
    assert fire(queue) == 1
    assert fired(queue) == [start + timedelta(seconds=60) * 16]
    assert (only(queue).fired, only(queue).skipped) == (1, 0)
    queue.pause_schedule("tick")
    clock.advance(30)
    queue.resume_schedule("tick")
    assert only(queue).boundary == start + timedelta(seconds=60) * 17


def test_to_resume_what_is_not_paused_misses_nothing(queue: Queue, clock: FakeClock) -> None:
    """A boundary that is due stays due."""
    queue.schedule("tick", "@every 60s", "work")
    clock.advance(90)
    queue.resume_schedule("tick")
    assert fire(queue) == 1


def test_run_now_makes_one_job_and_touches_no_boundary(queue: Queue, clock: FakeClock) -> None:
    """Also of a paused schedule."""
    before = queue.schedule("tick", "@every 60s", "work", "p", priority=3)
    queue.pause_schedule("tick")
    made = queue.run_now("tick")
    job = queue.get(made.job_id)
    assert (made.created, job.boundary, job.idempotency_key) == (True, None, None)
    assert (job.kind, job.payload, job.priority) == ("work", "p", 3)
    queue.resume_schedule("tick")
    assert only(queue) == before
    clock.advance(60)
    assert fire(queue) == 1
    assert queue.run_now("tick").job_id != made.job_id


def test_an_unscheduled_one_is_gone_and_its_jobs_are_not(queue: Queue, clock: FakeClock) -> None:
    """What was fired is an ordinary job."""
    queue.schedule("tick", "@every 60s", "work")
    clock.advance(60)
    assert fire(queue) == 1
    queue.unschedule("tick")
    clock.advance(600)
    assert fire(queue) == 0
    assert queue.schedules() == []
    assert queue.stats().counts[JobState.PENDING] == 1


@pytest.mark.parametrize(
    ("misfire", "hours", "skipped"), [("all", [1, 2, 3, 4, 5, 6, 7, 8], 0), ("latest", [8], 7), ("skip", [], 8)]
)
def test_what_was_missed_in_an_outage_is_as_the_schedule_says(
    queue: Queue, clock: FakeClock, misfire: Misfire, hours: list[int], skipped: int
) -> None:
    """Replayed one by one and in order, only the latest, or none; then it goes on where it would have."""
    start = now(clock)
    queue.schedule("tick", "@every 1h", "work", misfire=misfire)
    clock.advance(8.5 * HOUR)
    assert fire(queue) == len(hours)
    assert fired(queue) == [start + timedelta(hours=hour) for hour in hours]
    after = only(queue)
    assert (after.fired, after.skipped) == (len(hours), skipped)
    assert after.boundary == start + timedelta(hours=9)
    clock.advance(HOUR / 2)
    assert fire(queue) == 1
    assert fired(queue)[-1] == start + timedelta(hours=9)


@pytest.mark.parametrize("misfire", ["all", "latest", "skip"])
def test_a_minute_late_is_not_missed(queue: Queue, clock: FakeClock, misfire: Misfire) -> None:
    """A ticker that was held up fires what has come, whatever the policy."""
    start = now(clock)
    queue.schedule("tick", "@every 10s", "work", misfire=misfire)
    clock.advance(70)
    assert fire(queue) == 7
    assert fired(queue) == [start + timedelta(seconds=10) * step for step in range(1, 8)]
    assert only(queue).skipped == 0


def test_no_more_than_the_latest_64_are_replayed_and_the_others_are_told_of(
    queue: Queue, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Logged as a warning, and counted in the row."""
    start = now(clock)
    queue.schedule("tick", "*/1 * * * *", "work")
    clock.advance(8 * HOUR)
    assert fire(queue) == 64
    minute = start.replace(second=0) + timedelta(hours=8)
    assert fired(queue) == [minute - timedelta(minutes=back) for back in reversed(range(64))]
    assert (only(queue).fired, only(queue).skipped) == (64, 480 - 64)
    (record,) = [record for record in caplog.records if record.name == "litequeue.schedules"]
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "schedule tick: 416 boundaries that were missed are skipped, 64 are fired (misfire=all)"
    )
    assert fire(queue) == 0


def test_a_clock_that_steps_back_fires_nothing_twice(queue: Queue, clock: FakeClock) -> None:
    """The boundaries stay where they are; they are fired when the clock comes to them (§8)."""
    queue.schedule("tick", "@every 60s", "work")
    queue.schedule("tock", "* * * * *", "work")
    clock.advance(600)
    assert fire(queue) == 20
    before = queue.schedules()
    clock.step_wall(-HOUR)
    for _ in range(60):
        assert fire(queue) == 0
        clock.advance(59)
    assert queue.schedules() == before
    clock.advance(120)
    assert fire(queue) == 2
    boundaries = [(job.idempotency_key, job.boundary) for job in queue.list()]
    assert len(boundaries) == len(set(boundaries)) == 22


def test_a_rule_that_is_changed_after_a_step_back_fires_nothing_twice(queue: Queue, clock: FakeClock) -> None:
    """It goes on after the last boundary that was fired."""
    queue.schedule("tick", "0 * * * *", "work")
    clock.advance(HOUR)
    assert fire(queue) == 1
    last = only(queue).last_boundary
    clock.step_wall(-2 * HOUR)
    assert last is not None
    assert queue.schedule("tick", "*/30 * * * *", "work").boundary == last + timedelta(minutes=30)


def test_both_ends_of_summer_time_come_once(queue: Queue, clock: FakeClock) -> None:
    """02:30 in Berlin, in the night that leaves it out and in the one that has it twice."""
    clock.advance((datetime(2025, 10, 25, 12, tzinfo=UTC) - now(clock)).total_seconds())
    queue.schedule("nightly", "30 2 * * *", "work", timezone="Europe/Berlin")
    for _ in range(160 * 48):
        clock.advance(HOUR / 2)
        fire(queue)
    autumn = datetime(2025, 10, 26, 0, 30, tzinfo=UTC)
    boundaries = fired(queue)
    assert boundaries[:2] == [autumn, autumn + timedelta(hours=25)]
    assert boundaries == sorted(set(boundaries), key=boundaries.index)
    nights = [boundary for boundary in boundaries if boundary is not None and boundary.month == 3]
    assert datetime(2026, 3, 29, 1, 0, tzinfo=UTC) in nights
    assert len(boundaries) == 160


# --- twice is never


def test_two_tickers_that_have_both_seen_a_boundary_fire_it_once(make_queue: MakeQueue, clock: FakeClock) -> None:
    """Both work out the same plan; one finds the boundary as it has seen it, the other one does nothing."""
    one, other = make_queue(), make_queue()
    one.schedule("tick", "@every 60s", "work")
    clock.advance(200)
    with one._store.read() as reader:
        plan = _plan(reader)
    with other._store.read() as reader:
        assert _plan(reader) == plan
    assert _fire(one, plan) == 3
    assert _fire(other, plan) is None
    assert _fire(one, plan) is None
    assert len(fired(one)) == len(set(fired(one))) == 3
    assert only(one).fired == 3


def _plan(reader: Any) -> Any:  # noqa: ANN401 - of the engine
    from litequeue.sqlite import scheduling  # noqa: PLC0415 - of the engine: a second one has its own

    (row,), now = scheduling.due(reader, scheduling.BEFORE_ALL, None)
    return scheduling.planned(row, now)


def _fire(queue: Queue, plan: Any) -> int | None:  # noqa: ANN401 - of the engine
    from litequeue.sqlite import scheduling  # noqa: PLC0415 - of the engine: a second one has its own

    done = queue._do(lambda context: scheduling.fire(context, plan), durable=True)
    return None if done is None else done.jobs


@pytest.mark.parametrize("change", ["pause", "unschedule", "respec", "remis", "step back"])
def test_a_plan_is_void_when_the_schedule_was_changed_meanwhile(queue: Queue, clock: FakeClock, change: str) -> None:
    """What is done is done with the schedule as it is under the lock."""
    queue.schedule("tick", "@every 60s", "work")
    clock.advance(200)
    with queue._store.read() as reader:
        plan = _plan(reader)
    match change:
        case "pause":
            queue.pause_schedule("tick")
        case "unschedule":
            queue.unschedule("tick")
        case "respec":
            queue.schedule("tick", "@every 61s", "work")
        case "remis":
            queue.schedule("tick", "@every 60s", "work", misfire="skip")
        case _:
            clock.step_wall(-100)
    assert _fire(queue, plan) is None
    assert queue.list() == []


def test_what_was_changed_beside_the_rule_counts_at_once(queue: Queue, clock: FakeClock) -> None:
    """A payload that is declared between the look and the lock is that of the job."""
    queue.schedule("tick", "@every 60s", "work", "old")
    clock.advance(60)
    with queue._store.read() as reader:
        plan = _plan(reader)
    queue.schedule("tick", "@every 60s", "work", "new")
    assert _fire(queue, plan) == 1
    assert [job.payload for job in queue.list()] == ["new"]


def test_the_key_guards_a_schedule_that_was_made_anew(queue: Queue, clock: FakeClock) -> None:
    """Removed and declared again after the clock stepped back, it comes to boundaries that have had their jobs (V2)."""
    queue.schedule("tick", "0 * * * *", "work")
    clock.advance(HOUR)
    assert fire(queue) == 1
    queue.unschedule("tick")
    clock.step_wall(-HOUR)
    queue.schedule("tick", "0 * * * *", "work")
    clock.advance(HOUR)
    assert fire(queue) == 0
    assert len(fired(queue)) == 1


# --- what cannot be fired


def test_one_that_cannot_be_fired_keeps_no_other_from_it(
    queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too large by now, or unreadable to this process: it stays due, and is missed when its time is over."""
    queue.schedule("a", "@every 60s", "work", "x" * 1000)
    queue.schedule("b", "@every 60s", "work", "x")
    queue.set("max_payload", 500)
    clock.advance(60)
    fires = queue.fire_schedules()
    assert fires.jobs == 1
    assert list(fires.refused) == ["a"]
    assert isinstance(fires.refused["a"], PayloadError)
    queue.set("max_payload", 5000)
    assert fire(queue) == 1
    queue.schedule("c", "0 * * * *", "work")
    from litequeue import schedules  # noqa: PLC0415 - patched

    schedules.rule.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "cronsim", None)
    clock.advance(HOUR)
    fires = queue.fire_schedules()
    assert list(fires.refused) == ["c"]
    assert "litequeue-jobs[cron]" in str(fires.refused["c"])
    assert fires.jobs == 120


def test_a_pass_ends_although_time_goes_on_faster_than_it_works(
    queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes meanwhile is left to the next one."""
    for name in ("a", "b", "c"):
        queue.schedule(name, "@every 1s", "work")
    clock.advance(1)
    wall_us = clock.wall_us

    def hasty() -> int:
        clock.advance(2)
        return wall_us()

    monkeypatch.setattr(clock, "wall_us", hasty)
    assert 3 <= fire(queue) <= 9


def test_more_due_schedules_than_one_look_reads_are_all_fired(queue: Queue, clock: FakeClock) -> None:
    """In the order of their boundaries."""
    for number in range(250):
        queue.schedule(f"{number:03}", f"@every {300 - number}s", "work", number)
    clock.advance(300)
    assert fire(queue) == 250 + sum(300 // (300 - number) - 1 for number in range(250))
    assert fire(queue) == 0
