"""Schedules in real processes that share a clock which jumps: no boundary twice, misfires as configured (issue 6, G3).

Three processes tick on one file: two by `run_schedules`, one by maintenance, whose passes fire whoever leads, so that
there are two tickers at work in earnest. The test moves the clock, and waits until all that was due is fired; a model
of its own says what that has to be.
"""

from __future__ import annotations

import mmap
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

import litequeue
from litequeue import ANY, Maintenance, run_schedules
from litequeue.schedules import MAX_COUNTED
from litequeue.sqlite.examining import problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litequeue import Queue
    from litequeue.model import Misfire
    from tests.faults.children import Child, Children, Parent

pytestmark = pytest.mark.slow

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
START = datetime(2025, 3, 29, 12, tzinfo=UTC)
MINUTE = 60_000_000
PATIENCE_S = 30.0


def us(moment: datetime) -> int:
    """Return µs since the epoch."""
    return (moment - EPOCH) // timedelta(microseconds=1)


class SharedClock:
    """A clock that processes share: one number in a file; the monotonic one only ever goes on."""

    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 16)

    @classmethod
    def made(cls, path: Path, moment: datetime) -> SharedClock:
        """Make the file, at a time."""
        path.write_bytes(us(moment).to_bytes(8, "little") + (1_000_000).to_bytes(8, "little"))
        return cls(str(path))

    def wall_us(self) -> int:
        """Return the wall clock."""
        return int.from_bytes(self._memory[:8], "little")

    def monotonic_us(self) -> int:
        """Return the monotonic clock."""
        return int.from_bytes(self._memory[8:], "little")

    def boot_id(self) -> str:
        """Return the boot, which is one and the same."""
        return "shared"

    def step(self, by: timedelta) -> None:
        """Set the wall clock; time passes on the other one when it goes forwards."""
        ahead_us = by // timedelta(microseconds=1)
        self._memory[8:] = (self.monotonic_us() + max(0, ahead_us)).to_bytes(8, "little")
        self._memory[:8] = (self.wall_us() + ahead_us).to_bytes(8, "little")


def run_ticker(parent: Parent, path: str, clock: str) -> None:
    """Run the schedules until killed, and say when this one leads and when it stands by."""
    parent.say("ready")
    with litequeue.open(path, clock=SharedClock(clock), durability="normal") as queue:
        run_schedules(queue, threading.Event())


def run_maintenance(parent: Parent, path: str, clock: str) -> None:
    """Maintain until killed, with passes that come often."""
    parent.say("ready")
    with litequeue.open(path, clock=SharedClock(clock), durability="normal") as queue:
        Maintenance(queue).run(0.02)


# --- the model


def every(interval: timedelta) -> Callable[[int, int], list[int]]:
    """Return what lists all boundaries of an interval that began at `START`, in (after, until]."""
    interval_us = interval // timedelta(microseconds=1)

    def between(after: int, until: int) -> list[int]:
        first = us(START) + ((after - us(START)) // interval_us + 1) * interval_us
        return list(range(first, until + 1, interval_us))

    return between


def passing(minutes: set[int]) -> Callable[[int, int], list[int]]:
    """Return what lists the times at which the clock in Berlin shows these minutes, as time passes."""

    def between(after: int, until: int) -> list[int]:
        looked_at = range((after // MINUTE + 1) * MINUTE, until + 1, MINUTE)
        return [at for at in looked_at if (EPOCH + timedelta(microseconds=at)).astimezone(BERLIN).minute in minutes]

    return between


def nightly(after: int, until: int) -> list[int]:
    """List 02:30 in Berlin: 03:00 where that is left out, the first one where it comes twice."""
    day = (EPOCH + timedelta(microseconds=after)).date() - timedelta(days=1)
    found = []
    while day <= (EPOCH + timedelta(microseconds=until)).date() + timedelta(days=1):
        is_left_out = (day.month, day.day) == (3, 30)
        hour, minute = (3, 0) if is_left_out else (2, 30)
        found.append(us(datetime(day.year, day.month, day.day, hour, minute, tzinfo=BERLIN)))
        day += timedelta(days=1)
    return [at for at in found if after < at <= until]


@dataclass
class Expected:
    """One schedule of the model."""

    spec: str
    misfire: Misfire
    between: Callable[[int, int], list[int]]
    last: int = us(START)
    fired: list[int] = field(default_factory=list)
    skipped: int = 0

    def see(self, now: int) -> None:
        """Do what is to be done at this time."""
        due = self.between(self.last, now)
        if not due:
            return
        self.last = due[-1]
        fire = due[-64:]
        if now - due[0] > MINUTE:
            if self.misfire == "latest":
                fire = due[-1:]
            elif self.misfire == "skip":
                fire = [at for at in due if now - at <= MINUTE]
        self.fired += fire
        is_counted_out = self.spec.startswith("@every") or len(due) <= MAX_COUNTED
        self.skipped += (len(due) if is_counted_out else MAX_COUNTED + 1) - len(fire)


def model() -> dict[str, Expected]:
    """Return every sort of rule with every policy."""
    quarters = passing({0, 15, 30, 45})
    found: dict[str, Expected] = {}
    for misfire in ("all", "latest", "skip"):
        found |= {
            f"nightly {misfire}": Expected("30 2 * * *", misfire, nightly),
            f"hourly {misfire}": Expected("@hourly", misfire, passing({0})),
            f"quarter {misfire}": Expected("*/15 * * * *", misfire, quarters),
            f"90s {misfire}": Expected("@every 90s", misfire, every(timedelta(seconds=90))),
        }
    return found


# --- the run

HOUR, SOON = timedelta(hours=1), timedelta(seconds=40)
LITTLE_BY_LITTLE = [SOON] * 120
"""Eighty minutes, so that each boundary in them is found in time."""


def to(moment: datetime) -> datetime:
    """Stand for a jump to a time."""
    return moment


STEPS: list[timedelta | datetime] = [
    *[SOON] * 30,
    8 * HOUR,
    *[SOON] * 5,
    -HOUR,
    *[SOON] * 5,
    HOUR + 2 * SOON,
    to(datetime(2025, 3, 30, 0, 20, tzinfo=UTC)),
    *LITTLE_BY_LITTLE,  # 02:30 is left out
    -HOUR,
    HOUR,
    to(datetime(2025, 10, 25, 22, 30, tzinfo=UTC)),
    to(datetime(2025, 10, 26, 0, 10, tzinfo=UTC)),
    *LITTLE_BY_LITTLE,  # 02:30 comes twice
    -HOUR,
    *[SOON] * 10,
    8 * HOUR,
]


@pytest.fixture
def shared(tmp_path: Path) -> tuple[SharedClock, str]:
    """Give the clock, and the file that it is in."""
    file = tmp_path / "clock"
    return SharedClock.made(file, START), str(file)


@pytest.fixture
def queue(path: str, shared: tuple[SharedClock, str]) -> Iterator[Queue]:
    """Give a handle by the shared clock."""
    with litequeue.open(path, clock=shared[0], durability="normal") as opened:
        yield opened


def settle(queue: Queue, clock: SharedClock) -> None:
    """Wait until nothing is due any more."""
    now = EPOCH + timedelta(microseconds=clock.wall_us())
    deadline = time.monotonic() + PATIENCE_S
    while any(schedule.boundary <= now for schedule in queue.schedules()):
        assert time.monotonic() < deadline, "nobody fires"
        queue.wait(0.01, kinds=["nothing"])


def started(processes: Children, path: str, clock: str) -> list[Child]:
    """Start all three, and wait until they run."""
    children = [processes.start(work, path, clock) for work in (run_ticker, run_ticker, run_maintenance)]
    for child in children:
        assert child.hear() == "ready"
    return children


def boundaries(queue: Queue) -> dict[str, list[int]]:
    """Return the boundaries that were fired, by the name of the schedule, in the order in which they were enqueued."""
    found: dict[str, list[int]] = {}
    for job in sorted(queue.list(scope=ANY, limit=10_000), key=lambda job: job.created_at):
        assert job.boundary is not None
        name = str(job.payload)
        assert job.idempotency_key == f"litequeue:schedule:{name}:{us(job.boundary)}"
        found.setdefault(name, []).append(us(job.boundary))
    return found


def test_no_boundary_twice_and_misfires_as_configured_whatever_the_clock_does(
    path: str, queue: Queue, shared: tuple[SharedClock, str], processes: Children
) -> None:
    """Eight hours ahead, one back, over both ends of summer time; one of the three is killed on the way (G3)."""
    clock, file = shared
    schedules = model()
    for name, expected in schedules.items():
        queue.schedule(name, expected.spec, "work", name, timezone="Europe/Berlin", misfire=expected.misfire)
    children = started(processes, path, file)
    for number, step in enumerate(STEPS):
        if number == len(STEPS) // 2:
            children.pop(0).kill()
        now = EPOCH + timedelta(microseconds=clock.wall_us())
        clock.step(step - now if isinstance(step, datetime) else step)
        for expected in schedules.values():
            expected.see(clock.wall_us())
        settle(queue, clock)
    for child in children:
        child.kill()
    found = boundaries(queue)
    twice = {name: Counter(fired).most_common(1) for name, fired in found.items()}
    assert max(times[0][1] for times in twice.values()) == 1
    assert found == {name: expected.fired for name, expected in schedules.items() if expected.fired}
    told = {schedule.name: (schedule.fired, schedule.skipped) for schedule in queue.schedules()}
    assert told == {name: (len(expected.fired), expected.skipped) for name, expected in schedules.items()}
    assert min(expected.skipped for name, expected in schedules.items() if "all" not in name) > 0
    assert schedules["90s all"].skipped > 0
    assert problems(queue._store._writer.connection or path) == []


@pytest.mark.parametrize("heir", [run_ticker, run_maintenance])
def test_another_one_fires_within_a_second_of_the_leaders_death(
    path: str,
    queue: Queue,
    shared: tuple[SharedClock, str],
    processes: Children,
    heir: Callable[[Parent, str, str], None],
) -> None:
    """The kernel gives the lead away with the process; those who stand by ask again and again (issue 6)."""
    clock, file = shared
    queue.schedule("tick", "@every 60s", "work", "tick")
    leader = processes.start(run_ticker, path, file)
    assert leader.hear() == "ready"
    clock.step(timedelta(seconds=60))
    settle(queue, clock)
    others = [processes.start(heir, path, file) for _ in range(2)]
    for other in others:
        assert other.hear() == "ready"
    leader.kill()
    died_at = time.monotonic()
    clock.step(timedelta(seconds=60))
    settle(queue, clock)
    assert time.monotonic() - died_at < 10, "about one, and what a loaded machine adds"
    assert [schedule.fired for schedule in queue.schedules()] == [2]
    for other in others:
        other.kill()
