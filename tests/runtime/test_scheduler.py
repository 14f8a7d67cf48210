"""Who fires schedules, and when: maintenance, `run_schedules`, and the lead between them (issue 6)."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import LeadershipLost, Maintenance, QueueClosed, QueueFull, UsageError, run_schedules, scheduler
from litequeue.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litequeue import Queue
    from litequeue.testing import FakeClock

HALF_A_MINUTE = 30.0
PATIENCE_S = 10.0


class Ticker:
    """`run_schedules` in a thread."""

    def __init__(self, queue: Queue) -> None:
        self.stop = threading.Event()
        self.error: BaseException | None = None
        self._queue = queue
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        """Stop it, and wait for its end."""
        self.stop.set()
        self.join()

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            run_schedules(self._queue, self.stop)
        except BaseException as exc:  # noqa: BLE001 - told to the test
            self.error = exc


@pytest.fixture
def ticker() -> Iterator[Callable[[Queue], Ticker]]:
    """Give what runs `run_schedules` in threads that end with the test."""
    started: list[Ticker] = []

    def begin(queue: Queue) -> Ticker:
        started.append(Ticker(queue))
        return started[-1]

    yield begin
    for one in started:
        one.end()


class Heard(logging.Handler):
    """Waits for words in the log."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: list[str] = []
        self._changed = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        """Hear a record."""
        with self._changed:
            self._texts.append(record.getMessage())
            self._changed.notify_all()

    def wait(self, word: str) -> None:
        """Wait until a line with a word in it has come; it and those before it are forgotten."""
        with self._changed:
            found = self._changed.wait_for(lambda: any(word in text for text in self._texts), PATIENCE_S)
            assert found, f"{word!r} is not in {self._texts}"
            while word not in self._texts.pop(0):
                pass


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Give the ear for the log of schedules and of maintenance."""
    handler = Heard()
    loggers = [logging.getLogger(f"litequeue.{name}") for name in ("schedules", "maintenance")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield handler
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextmanager
def maintained(queue: Queue, every: float) -> Iterator[Maintenance]:
    """Run maintenance in a thread meanwhile."""
    maintenance = Maintenance(queue)
    thread = threading.Thread(target=maintenance.run, args=(every,))
    thread.start()
    try:
        yield maintenance
    finally:
        maintenance.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_a_pass_of_maintenance_fires_and_reports_it(queue: Queue, clock: FakeClock) -> None:
    """`run_once`, whoever leads; a pass that only fired is one that did something."""
    queue.schedule("tick", "@every 60s", "work")
    assert not Maintenance(queue).run_once()
    clock.advance(180)
    report = Maintenance(queue).run_once()
    assert report
    assert report.fired == 3
    assert report.as_dict()["fired"] == 3
    assert not Maintenance(queue).run_once()


def test_a_long_pass_fires_in_its_midst(queue: Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A boundary that comes while a million jobs are pruned does not wait for the end of that."""
    queue.schedule("tick", "@every 1d", "work")
    queue.enqueue_many(litequeue.NewJob("old") for _ in range(250))
    queue.complete_many(queue.lease_many(250))
    clock.advance(86_399)
    maintenance = Maintenance(queue)
    prune = queue.prune
    monkeypatch.setattr(time, "monotonic", lambda: float(clock.monotonic_us()))

    def meanwhile() -> int:
        clock.advance(86_401)
        done = prune()
        assert [schedule.fired for schedule in queue.schedules()] == [2]
        return done

    monkeypatch.setattr(queue, "prune", meanwhile)
    report = maintenance.run_once()
    assert (report.fired, report.pruned) == (2, 250)


def test_the_loop_of_maintenance_fires_between_its_passes(queue: Queue, clock: FakeClock, heard: Heard) -> None:
    """Soon after the clock jumped, and a schedule was added, though the next pass is far away."""
    with maintained(queue, 3600):
        queue.schedule("tick", "@every 1h", "work")
        clock.advance(3600)
        heard.wait("schedules have made 1 job")
        queue.schedule("tock", "@every 1m", "work")
        clock.advance(120)
        heard.wait("schedules have made 2 jobs")
    assert len(queue.list()) == 3


def test_the_wait_ends_at_the_boundary(queue: Queue, clock: FakeClock) -> None:
    """Not half a second later: the pause before it is as long as it takes, by the clock of the handle."""
    queue.schedule("tick", "@every 60s", "work")
    one = Scheduler(queue)
    assert one.tick() == scheduler.LOOK_S
    clock.advance(59.9)
    assert one.tick() == pytest.approx(0.1)
    clock.advance(0.1)
    assert one.tick() == scheduler.LOOK_S
    assert len(queue.list()) == 1
    one.give()


def test_run_schedules_fires_until_it_is_told_to_stop(
    queue: Queue, clock: FakeClock, ticker: Callable[[Queue], Ticker], heard: Heard
) -> None:
    """It returns then, and does nothing else for the file."""
    queue.schedule("tick", "@every 60s", "work")
    queue.enqueue("due", delay=60)
    one = ticker(queue)
    clock.advance(60)
    heard.wait("schedules have made 1 job")
    one.end()
    assert one.error is None
    assert queue.stats().counts[litequeue.JobState.SCHEDULED] == 1


@pytest.mark.parametrize("stop", [None, lambda: True, True])
def test_what_cannot_say_stop_is_refused(queue: Queue, stop: object) -> None:
    """With the argument, its value and what it should be (§6)."""
    with pytest.raises(UsageError, match="stop must be an Event, or whatever has is_set") as caught:
        run_schedules(queue, stop)  # type: ignore[arg-type]
    assert (caught.value.argument, caught.value.value) == ("stop", stop)


def test_of_several_one_leads_and_another_takes_over(
    queue: Queue,
    path: Path,
    clock: FakeClock,
    ticker: Callable[[Queue], Ticker],
    heard: Heard,
) -> None:
    """Also between `run_schedules` and maintenance, which agree on who fires."""
    queue.schedule("tick", "@every 60s", "work")
    with litequeue.open(path, clock=clock) as second, litequeue.open(path, clock=clock) as third:
        one = ticker(queue)
        clock.advance(60)
        heard.wait("schedules have made 1 job")
        other = ticker(second)
        heard.wait("standing by")
        with maintained(third, 3600):
            leads = Scheduler(third)
            assert not leads.lead()
            leads.give()
            one.end()
            heard.wait("taking over")
            clock.advance(60)
            heard.wait("schedules have made 1 job")
            other.end()
            clock.advance(60)
            heard.wait("schedules have made 1 job")
    assert (one.error, other.error) == (None, None)
    assert len(queue.list()) == 3


@pytest.mark.parametrize("loss", ["removed", "replaced"])
def test_a_lost_lead_is_an_error_and_no_clean_stop(
    queue: Queue, clock: FakeClock, ticker: Callable[[Queue], Ticker], heard: Heard, loss: str
) -> None:
    """Another one may lead by now; whoever looks at the end of `run_schedules` can tell the two apart."""
    queue.schedule("tick", "@every 60s", "work")
    one = ticker(queue)
    clock.advance(60)
    heard.wait("schedules have made 1 job")
    sidecar = Path(f"{queue.path}-schedules")
    if loss == "removed":
        sidecar.unlink()
    else:
        sidecar.with_name("new").touch()
        sidecar.with_name("new").rename(sidecar)
    one.join()
    assert isinstance(one.error, LeadershipLost)
    assert one.error.path == str(sidecar)
    assert not one.stop.is_set()


def test_maintenance_goes_on_without_the_lead(queue: Queue, path: Path, clock: FakeClock, heard: Heard) -> None:
    """Its upkeep does not end because somebody has removed a lock file; it leads anew."""
    queue.schedule("tick", "@every 60s", "work")
    with maintained(queue, 0.05):
        for sidecar in ("schedules", "maintenance"):
            clock.advance(60)
            heard.wait("schedules have made 1 job")
            Scheduler(queue).give()
            Path(f"{path}-{sidecar}").unlink(missing_ok=True)
        clock.advance(60)
        heard.wait("schedules have made 1 job")
    assert len(queue.list()) == 3


def test_one_that_stands_by_follows_the_lock_file(queue: Queue, path: Path, clock: FakeClock) -> None:
    """Whose lock file was removed while it stood by does not lead by a file that nobody else sees."""
    with litequeue.open(path, clock=clock) as second, litequeue.open(path, clock=clock) as third:
        leader, standby, newcomer = Scheduler(queue), Scheduler(second), Scheduler(third)
        assert leader.lead()
        assert not standby.lead()
        Path(f"{path}-schedules").unlink()
        assert newcomer.lead()
        assert not standby.lead()
        with pytest.raises(LeadershipLost):
            leader.lead()
        assert not leader.lead()
        newcomer.give()
        assert standby.lead()
        standby.give()
        leader.give()


def test_one_that_stands_by_fires_nothing(queue: Queue, path: Path, clock: FakeClock) -> None:
    """What is due is the leader's, until it is gone."""
    queue.schedule("tick", "@every 60s", "work")
    clock.advance(60)
    with litequeue.open(path, clock=clock) as other:
        leader, standby = Scheduler(queue), Scheduler(other)
        assert leader.lead()
        standby.tick()
        assert queue.list() == []
        leader.give()
        standby.tick()
        assert len(queue.list()) == 1
        standby.give()


def test_a_file_without_schedules_has_no_lock_file_for_them(queue: Queue, path: Path) -> None:
    """Maintenance takes the lead when there is something to fire."""
    one = Scheduler(queue)
    assert one.tick() == scheduler.LOOK_S
    assert not Path(f"{path}-schedules").exists()


def test_what_cannot_be_fired_is_said_once(queue: Queue, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    """And again when the reason is another one, or when it comes back after it had gone."""
    queue.schedule("tick", "@every 1h", "work", "x" * 1000)
    queue.set("max_payload", 500)
    clock.advance(3600)
    one = Scheduler(queue)

    def warned() -> list[str]:
        texts = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        caplog.clear()
        return texts

    one.tick()
    one.tick()
    (text,) = warned()
    assert text.startswith("schedule tick is due and cannot be fired: the payload of work has")
    queue.set("max_payload", 400)
    one.tick()
    assert len(warned()) == 1
    queue.set("max_payload", 5000)
    one.tick()
    assert warned() == []
    assert len(queue.list()) == 1
    clock.advance(3600)
    queue.set("max_payload", 500)
    one.tick()
    assert len(warned()) == 1
    one.give()


def test_a_full_file_fires_when_it_has_room_again(queue: Queue, clock: FakeClock) -> None:
    """Nothing is lost: the boundary stays due (§6 "QueueFull")."""
    queue.schedule("tick", "@every 1h", "work", "x" * 100_000)
    queue.set("max_bytes", 65_536)
    clock.advance(3600)
    fires = queue.fire_schedules()
    assert fires.jobs == 0
    assert isinstance(fires.refused["tick"], QueueFull)
    queue.set("max_bytes", None)
    assert queue.fire_schedules().jobs == 1


def test_a_closed_handle_ends_it_with_the_reason(
    path: Path, clock: FakeClock, ticker: Callable[[Queue], Ticker]
) -> None:
    """What can never work again is not tried again (§9)."""
    queue = litequeue.open(path, clock=clock)
    queue.schedule("tick", "@every 60s", "work")
    one = ticker(queue)
    queue.close()
    one.join()
    assert isinstance(one.error, QueueClosed)


def test_a_busy_file_is_tried_again(
    queue: Queue, path: Path, clock: FakeClock, ticker: Callable[[Queue], Ticker], heard: Heard
) -> None:
    """Nothing is lost by it (§6 "QueueBusy, the only retryable error")."""
    queue.schedule("tick", "@every 60s", "work")
    with litequeue.open(path, clock=clock, busy_timeout=0.05) as other:
        with queue.transaction():
            one = ticker(other)
            clock.advance(60)
            heard.wait("will be tried again")
        heard.wait("schedules have made 1 job")
        one.end()
    assert one.error is None
