"""The clocks: the one of the system, and the one that tests move by hand (§8, §9, G8)."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from litequeue import Clock, SystemClock
from litequeue.testing import FakeClock

Reading = tuple[int, int, str]


def read(clock: Clock) -> Reading:
    """Return all that a clock shows."""
    return clock.wall_us(), clock.monotonic_us(), clock.boot_id()


@pytest.fixture
def fake() -> FakeClock:
    """Give a clock at 1,000 s and 50 s, of the boot `a`."""
    return FakeClock(wall_us=1_000_000_000, monotonic_us=50_000_000, boot_id="a")


def test_the_systems_wall_clock_is_that_of_python() -> None:
    """In whole µs since the epoch (§8)."""
    before = time.time_ns()
    found = SystemClock().wall_us()
    assert before // 1000 <= found <= time.time_ns() // 1000
    assert isinstance(found, int)


def test_the_systems_monotonic_clock_is_that_of_python() -> None:
    """In whole µs (§8)."""
    before = time.monotonic_ns()
    found = SystemClock().monotonic_us()
    assert before // 1000 <= found <= time.monotonic_ns() // 1000
    assert isinstance(found, int)


def test_the_systems_boot_has_one_identity() -> None:
    """The same for every clock of this machine, and without white space around it (§8)."""
    found = SystemClock().boot_id()
    assert found == SystemClock().boot_id() == found.strip() != ""


def test_a_fake_clock_stands_still(fake: FakeClock) -> None:
    """Nothing moves it but its methods (§9)."""
    assert read(fake) == read(fake) == (1_000_000_000, 50_000_000, "a")


@pytest.mark.parametrize("duration", [2.5, timedelta(seconds=2, milliseconds=500)])
def test_time_passes_on_both_clocks(fake: FakeClock, duration: float | timedelta) -> None:
    """By seconds or a timedelta (§9)."""
    fake.advance(duration)
    assert read(fake) == (1_002_500_000, 52_500_000, "a")


@pytest.mark.parametrize("duration", [-1, -1e-6, timedelta(microseconds=-1)])
def test_time_does_not_pass_backwards(fake: FakeClock, duration: float | timedelta) -> None:
    """That is what a step of the wall clock is for; nothing has moved (§9)."""
    with pytest.raises(ValueError, match="step_wall"):
        fake.advance(duration)
    assert read(fake) == (1_000_000_000, 50_000_000, "a")


@pytest.mark.parametrize(("duration", "wall_us"), [(3600, 4_600_000_000), (-900, 100_000_000), (timedelta(0), 10**9)])
def test_a_step_of_the_wall_clock_leaves_the_monotonic_one(
    fake: FakeClock, duration: float | timedelta, wall_us: int
) -> None:
    """In either direction (§8)."""
    fake.step_wall(duration)
    assert read(fake) == (wall_us, 50_000_000, "a")


def test_a_suspended_machine_does_not_count(fake: FakeClock) -> None:
    """The wall clock has gone on, the monotonic one has not (§8)."""
    fake.suspend(timedelta(hours=1))
    assert read(fake) == (4_600_000_000, 50_000_000, "a")


def test_a_reboot_is_another_boot_with_a_monotonic_clock_that_begins_again(fake: FakeClock) -> None:
    """Each reboot is its own, unless it is given a name (§8)."""
    boots = [fake.boot_id()]
    for _ in range(3):
        fake.reboot()
        boots.append(fake.boot_id())
        assert (fake.wall_us(), fake.monotonic_us()) == (1_000_000_000, 1_000_000)
    assert len(set(boots)) == 4
    fake.reboot("b", monotonic_us=7)
    assert read(fake) == (1_000_000_000, 7, "b")


def test_both_are_clocks() -> None:
    """Whatever has the three methods is one (§9)."""
    clocks: list[Clock] = [SystemClock(), FakeClock()]
    for clock in clocks:
        assert [type(value) for value in read(clock)] == [int, int, str]
