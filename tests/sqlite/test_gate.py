"""The pace of the write gate: who tries when, by a clock that the test moves (DESIGN §3).

Each `Gate` has a description of the sidecar of its own, so several in one process meet as those of several do.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from litequeue.sqlite import gate as room
from litequeue.sqlite import ofd, presence
from litequeue.sqlite.gate import Gate

pytest.importorskip("fcntl", reason="the gate is POSIX")

needs_line = pytest.mark.skipif(not ofd.HAS_LOCKS, reason="without such locks there is no line")


class Time:
    """Stands in for `time` in the gate: a sleep takes no time, and something may happen in it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        """Return the time by this clock."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let the time pass at once."""
        self.slept.append(seconds)
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Return the clock by which the gate waits."""
    fake = Time()
    monkeypatch.setattr(room, "time", fake)
    return fake


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[Callable[[], Gate]]:
    """Make gates on one sidecar."""
    with contextlib.ExitStack() as ends:

        def make() -> Gate:
            gate = Gate(str(tmp_path / "app.queue-lock"), 0o600)
            ends.callback(gate.close)
            return gate

        yield make


@contextlib.contextmanager
def _somebody_first_in_line(tmp_path: Path) -> Iterator[None]:
    """Stand in line, as another process does that waits, or has been stopped there."""
    descriptor = os.open(tmp_path / "app.queue-lock", os.O_RDWR | os.O_CREAT, 0o600)
    ofd.lock(descriptor, room._FIRST_IN_LINE, 1)
    try:
        yield
    finally:
        os.close(descriptor)


def _crowded(gates: Callable[[], Gate], fake: Time) -> Gate:
    """Return a gate that had to wait for its turn just now, and has ended it."""
    gate, other = gates(), gates()
    assert other.enter(fake.now)
    fake.meanwhile = other.leave
    assert gate.enter(fake.now + 1)
    assert fake.slept
    gate.leave()
    fake.meanwhile = lambda: None
    fake.slept.clear()
    return gate


@needs_line
def test_the_first_in_line_tries_often_and_the_others_seldom(
    gates: Callable[[], Gate], fake: Time, tmp_path: Path
) -> None:
    """So that many who wait do not take the time of the one who works (G10)."""
    assert gates().enter(fake.now)
    assert not gates().enter(fake.now + 0.3)
    often = len(fake.slept)
    fake.slept.clear()
    with _somebody_first_in_line(tmp_path):
        assert not gates().enter(fake.now + 0.3)
    assert often > 5 * len(fake.slept) > 0


@needs_line
def test_the_next_one_moves_up_when_the_first_in_line_has_its_turn(
    gates: Callable[[], Gate], fake: Time, tmp_path: Path
) -> None:
    """Its pace is that of the first one from then on, though it began as one of the others (G10)."""
    assert gates().enter(fake.now)
    with contextlib.ExitStack() as first:
        first.enter_context(_somebody_first_in_line(tmp_path))
        fake.meanwhile = lambda: first.close() if len(fake.slept) == 2 else None
        assert not gates().enter(fake.now + 0.1)
    _, seldom, *often = fake.slept
    assert seldom > 2 * max(often)


@needs_line
def test_whoever_has_come_back_for_long_lets_the_first_in_line_go_ahead(
    gates: Callable[[], Gate], fake: Time, tmp_path: Path
) -> None:
    """Within its stint it has the turn at once; then it tries only after a pause, in which the other has it (G10)."""
    gate, first = _crowded(gates, fake), gates()
    with _somebody_first_in_line(tmp_path):
        assert gate.enter(fake.now)
        gate.leave()
        assert fake.slept == [], "it may still come back at once"
        fake.now += room._STINT_S
        had = []
        fake.meanwhile = lambda: had.append(first.enter(fake.now))
        assert not gate.enter(fake.now + room._STEP_BACK_S / 4)
        assert had == [True]


@needs_line
def test_a_first_in_line_that_never_comes_costs_a_pause(gates: Callable[[], Gate], fake: Time, tmp_path: Path) -> None:
    """It may have been stopped there; a gate that is free is had all the same (G5, DESIGN §3)."""
    gate = _crowded(gates, fake)
    fake.now += room._STINT_S
    with _somebody_first_in_line(tmp_path):
        assert gate.enter(fake.now + 1)
    assert len(fake.slept) == 1
    assert sum(fake.slept) <= 1.5 * room._STEP_BACK_S


@needs_line
def test_whoever_has_not_met_anybody_for_a_second_asks_nothing_of_the_line(
    gates: Callable[[], Gate], fake: Time, tmp_path: Path
) -> None:
    """A handle that is alone pays for its turn only (DESIGN §5)."""
    gate = _crowded(gates, fake)
    fake.now += room._REMEMBERED_S
    with _somebody_first_in_line(tmp_path):
        assert gate.enter(fake.now + 1)
    assert fake.slept == []


def test_with_nobody_in_line_a_long_stint_goes_on(gates: Callable[[], Gate], fake: Time) -> None:
    """Nobody waits, so nobody is let ahead."""
    gate = _crowded(gates, fake)
    for _ in range(100):
        assert gate.enter(fake.now)
        gate.leave()
        fake.now += room._STINT_S / 2
    assert fake.slept == []


@needs_line
@pytest.mark.parametrize("is_had", [True, False])
def test_the_line_is_left_with_the_end_of_the_wait(
    gates: Callable[[], Gate], fake: Time, tmp_path: Path, *, is_had: bool
) -> None:
    """However it ends; otherwise nobody else would be the first one."""
    gate, other = gates(), gates()
    assert other.enter(fake.now)
    fake.meanwhile = other.leave if is_had else fake.meanwhile
    assert gate.enter(fake.now + 0.1) is is_had
    with _somebody_first_in_line(tmp_path):
        pass


@needs_line
def test_an_interrupt_in_the_wait_leaves_the_line(gates: Callable[[], Gate], fake: Time, tmp_path: Path) -> None:
    """And the gate is not had (G11)."""
    assert gates().enter(fake.now)

    def interrupt() -> None:
        raise KeyboardInterrupt

    fake.meanwhile = interrupt
    with pytest.raises(KeyboardInterrupt):
        gates().enter(fake.now + 1)
    with _somebody_first_in_line(tmp_path):
        pass


@pytest.mark.parametrize("wait_s", [0.0, -1.0, 0.0005, 0.01])
def test_nobody_waits_longer_than_the_deadline(gates: Callable[[], Gate], fake: Time, wait_s: float) -> None:
    """Not for a pause longer either (§6, QueueBusy)."""
    assert gates().enter(fake.now)
    deadline = fake.now + wait_s
    assert not gates().enter(deadline)
    assert fake.now == pytest.approx(max(deadline, 1000.0), rel=1e-9)


def test_nobody_waits_longer_than_a_second(gates: Callable[[], Gate], fake: Time) -> None:
    """Then the caller decides how to go on: a stopped process may have the gate (DESIGN §3)."""
    assert gates().enter(fake.now)
    assert not gates().enter(fake.now + 60)
    assert fake.now == pytest.approx(1000.0 + room._LONGEST_WAIT_S, rel=1e-9)


@needs_line
def test_a_free_gate_is_had_at_the_deadline_too(gates: Callable[[], Gate], fake: Time, tmp_path: Path) -> None:
    """Whoever has no time to wait does not let anybody ahead (§6)."""
    gate = _crowded(gates, fake)
    fake.now += room._STINT_S
    with _somebody_first_in_line(tmp_path):
        assert gate.enter(fake.now - 1)
    assert fake.slept == []


def test_without_such_locks_everybody_is_the_first_in_line(
    gates: Callable[[], Gate], fake: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere than on Linux, or on a file system that has none (DESIGN §3)."""
    monkeypatch.setattr(ofd, "HAS_LOCKS", False)
    gate = _crowded(gates, fake)
    fake.now += room._STINT_S
    assert gate.enter(fake.now)
    assert fake.slept == []
    assert not gates().enter(fake.now + 0.3)
    assert len(fake.slept) > 0.3 / room._RETRY_S * 5


def test_no_holder_has_the_byte_of_the_first_in_line() -> None:
    """Both lock one byte of the same sidecar (DESIGN §4)."""
    assert room._FIRST_IN_LINE >= presence._MOST
