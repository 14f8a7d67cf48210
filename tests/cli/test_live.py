"""The live line: its numbers, how sparingly they are asked for, and the row that it has for itself."""

from __future__ import annotations

import io
import os
import sys
import termios
import threading
from typing import IO, TYPE_CHECKING, NamedTuple
from uuid import uuid4

import pytest

from litequeue import JobState, QueueBusy
from litequeue.cli import live
from litequeue.cli.bottom_row import BottomRow
from litequeue.worker import WorkerEvent

if sys.platform == "win32":
    pytest.skip("the terminals here are POSIX", allow_module_level=True)

from tests.cli.screen import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litequeue import Queue
    from litequeue.worker.events import EventName
    from tests.conftest import JobIn


class Watch:
    """A clock that moves by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


class Counting:
    """A count of a certain dearness."""

    def __init__(self, watch: Watch, cost_s: float) -> None:
        self.asked = 0
        self.is_busy = False
        self._watch = watch
        self._cost_s = cost_s

    def __call__(self) -> int:
        """Count."""
        self._watch.now += self._cost_s
        self.asked += 1
        if self.is_busy:
            raise QueueBusy("as an example")
        return self.asked


class Case(NamedTuple):
    """How dear a count is, and how often it may then be asked for in 1,000 s."""

    cost_s: float
    most: int


@pytest.mark.parametrize("case", [Case(0.0, 1000), Case(0.002, 1000), Case(0.1, 100), Case(3.0, 4)])
def test_what_waits_is_counted_once_a_second_and_for_a_hundredth_of_the_time(case: Case) -> None:
    """A file with a million jobs takes longer to count: then it is counted less often (item 10, G9)."""
    watch = Watch()
    counting = Counting(watch, case.cost_s)
    backlog = live.Backlog(counting, watch)
    until = watch.now + 1000
    while watch.now < until:
        assert backlog.latest() == counting.asked
        watch.now += 0.25
    assert case.most * 0.7 <= counting.asked <= case.most
    assert counting.asked * case.cost_s <= 1000 * 0.01 + case.cost_s


def test_a_count_that_fails_is_unknown_until_the_next_one() -> None:
    """A busy file is no reason to end, nor to ask at once again (item 7)."""
    watch = Watch()
    counting = Counting(watch, 0.0)
    backlog = live.Backlog(counting, watch)
    counting.is_busy = True
    assert [backlog.latest(), backlog.latest()] == [None, None]
    assert counting.asked == 1
    counting.is_busy = False
    watch.now += 1
    assert backlog.latest() == 2


def test_the_rate_is_that_of_the_last_seconds() -> None:
    """It follows what happens now, and not what the first hour was like (item 10)."""
    watch = Watch()
    rate = live.Rate(watch)
    assert rate.per_second(0) == 0
    shown = []
    for tick in range(1, 65):
        watch.now += 0.25
        shown.append(rate.per_second(5 * min(tick, 40)))
    assert shown[:40] == pytest.approx([20] * 40)
    assert shown[45] == pytest.approx(15, abs=2)
    assert shown[-1] == 0


def test_the_line_has_the_five_numbers() -> None:
    """Running, done, failed, rate and backlog (item 10)."""
    tally = live.Tally()
    names: list[EventName] = ["started", "completed", "settled", "failed", "retried", "discarded"]
    for name in [*names, "snoozed", "released", "lost", "timed_out"]:
        tally(WorkerEvent(name, uuid4(), "work", "default", 1, 1, "me", 0.1, "", 0))
    assert live.line(3, tally, 1.25, 12_345) == "running 3   done 2   failed 3   1.2/s   backlog 12,345"
    assert live.line(0, live.Tally(), 1234.5, None) == "running 0   done 0   failed 0   1,234/s   backlog ?"


def test_the_backlog_is_what_this_worker_could_lease_now(queue: Queue, job_in: JobIn) -> None:
    """Ready jobs of its kinds and its scope: not those that are delayed, held, done, of other kinds or elsewhere."""
    for state in JobState:
        if state is not JobState.PENDING:
            job_in(state, kind="work")
    for kind in ("work", "mail:a", "mail:b", "other"):
        queue.enqueue(kind)
    queue.enqueue("work", scope="elsewhere")
    assert live.count_ready(queue, None, ("work", "mail:")) == 3
    assert live.count_ready(queue, "elsewhere", ("work",)) == 1


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """Give a terminal."""
    terminal = Terminal()
    yield terminal
    terminal.close()


@pytest.fixture
def stream(terminal: Terminal) -> Iterator[IO[str]]:
    """Give a stream to the terminal."""
    with open(os.dup(terminal.descriptor), "w", encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor
        yield stream


def test_a_line_is_shown_on_a_terminal_that_can_show_one(
    terminal: Terminal, stream: IO[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not on one that says it is dumb, or has no size, and not where there is none (item 10)."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    assert live.terminal() == stream.fileno()
    terminal.resize(0, 0)
    assert live.terminal() is None
    terminal.resize(24, 80)
    assert live.terminal() == stream.fileno()
    monkeypatch.setenv("TERM", "dumb")
    assert live.terminal() is None
    monkeypatch.delenv("TERM")
    assert live.terminal() is None
    monkeypatch.setenv("TERM", "xterm")
    for other in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", other)
        assert live.terminal() is None


def write(terminal: Terminal, text: str) -> None:
    """Write to the terminal as a program that knows nothing of the row."""
    os.write(terminal.descriptor, text.encode())


def test_whatever_is_written_scrolls_above_the_row(terminal: Terminal) -> None:
    """Lines, pieces of lines, lines longer than the terminal: none is torn, and the row stays (item 10)."""
    row = BottomRow(terminal.descriptor)
    write(terminal, "before\n")
    for number in range(30):
        row.draw(f"number {number}")
        write(terminal, f"line {number} be")
        row.draw(f"number {number} and more")
        write(terminal, "gun\n")
    write(terminal, "x" * 150 + "\n")
    row.draw("the end")
    terminal.wait_for(lambda screen: screen.lines()[-1] == "the end")
    expected = ["before", *(f"line {number} begun" for number in range(30)), "x" * 100, "x" * 50]
    assert terminal.screen.scrolled() == expected
    row.close()
    write(terminal, "after\n")
    terminal.wait_for(lambda screen: "after" in screen.lines())
    assert terminal.screen.is_whole
    assert [*terminal.screen.scrolled(), terminal.screen.lines()[-1]] == [*expected, "after", ""]
    row.draw("too late")
    write(terminal, "last\n")
    terminal.wait_for(lambda screen: "last" in screen.lines())
    assert terminal.screen.lines()[-1] != "too late"


def test_the_row_follows_the_size_of_the_terminal(terminal: Terminal) -> None:
    """It is cut to the width, moves with the height, and gives way where there is no room for it."""
    row = BottomRow(terminal.descriptor)
    row.draw("y" * 300)
    terminal.wait_for(lambda screen: screen.lines()[-1] == "y" * 99)
    terminal.resize(20, 60)
    row.draw("moved")
    terminal.wait_for(lambda screen: screen.lines()[-1] == "moved")
    assert terminal.screen.region == (0, 18)
    terminal.resize(3, 60)
    row.draw("no room")
    write(terminal, "line\n")
    terminal.wait_for(lambda screen: "line" in screen.lines())
    assert terminal.screen.is_whole
    assert "no room" not in terminal.screen.lines()
    row.close()


def test_a_program_in_the_background_draws_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal is another one's then, and is given back to it whole (item 10)."""
    row = BottomRow(terminal.descriptor)
    row.draw("mine")
    terminal.wait_for(lambda screen: screen.lines()[-1] == "mine")
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
    row.draw("not mine")
    write(terminal, "line\n")
    terminal.wait_for(lambda screen: "line" in screen.lines())
    assert terminal.screen.is_whole
    assert terminal.screen.lines()[-1] == ""
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())
    row.draw("mine again")
    terminal.wait_for(lambda screen: screen.lines()[-1] == "mine again")
    row.close()


def test_a_terminal_that_is_gone_does_no_harm() -> None:
    """The work goes on when the window is closed (item 10)."""
    leader, descriptor = os.openpty()
    termios.tcsetwinsize(descriptor, (12, 100))
    row = BottomRow(descriptor)
    row.draw("one")
    os.close(leader)
    row.draw("two")
    row.close()
    os.close(descriptor)


def test_a_terminal_that_takes_nothing_does_not_hold_up_the_end(terminal: Terminal) -> None:
    """Ctrl-S, and then the command is to end: it does, whatever becomes of the row (item 6)."""
    row = BottomRow(terminal.descriptor)
    drawing, may_end = threading.Event(), threading.Event()

    def draw() -> None:
        with row._lock:  # as a drawing that cannot write
            drawing.set()
            may_end.wait(30)

    thread = threading.Thread(target=draw)
    thread.start()
    assert drawing.wait(30)
    row.close()
    may_end.set()
    thread.join()
