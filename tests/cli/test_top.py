"""`top`: frames that fit and say what they leave out, one printed, and the live view on a terminal (issue 8)."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import select
import signal
import sys
import time
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from click.testing import CliRunner
from rich.console import Console

from litequeue import SYSTEM, JobState
from litequeue.cli import litequeue as command
from litequeue.cli import top_frame, top_screen, top_text
from litequeue.cli.times import Times
from litequeue.cli.top_frame import Frame
from litequeue.cli.top_screen import View
from litequeue.sqlite.attending import RunningJob
from litequeue.sqlite.causes import Cause
from litequeue.sqlite.flow import Flow
from litequeue.sqlite.surveying import Counted, Done, Running, State
from litequeue.top import FileFigures, Kept, OutOfReach

if TYPE_CHECKING:
    from pathlib import Path

    from litequeue import Queue
    from tests.cli.conftest import Cli, Processes

NOW_US = 1_800_000_000_000_000
JOB_ID = UUID("0190a0c5-7b5e-7000-8000-000000000001")
posix = pytest.mark.skipif(sys.platform == "win32", reason="the terminals here are POSIX")


def figures(  # noqa: PLR0917 - what a test varies
    path: str = "/srv/app.queue",
    kinds: int = 3,
    running: int = 2,
    causes: int = 1,
    age_s: float = 0.0,
    lapsed: int = 0,
) -> FileFigures:
    """Make figures of a file."""
    names = [f"area:kind-{number:02}-{'x' * number}" for number in range(kinds)]
    jobs = {(name, state): 10**number for name in names for number, state in enumerate(JobState)}
    return FileFigures(
        path=path,
        at_us=NOW_US,
        state=State(123_456_789, 1_000, 4_000_000, lapsed, 12.0),
        flow=Kept(Flow(1234.5, 0.25, 0, is_estimated=True), 0),
        running=Kept([run(number) for number in range(running)], 0),
        oldest=Kept(dict.fromkeys(names, NOW_US - 90_000_000), 0),
        done=Kept([Done("area:kind-00", n / 100, n / 10, None) for n in range(1, 101)], 0),
        causes=Kept([Cause("mail", f"boom {n}\x1b[2J", 7, JOB_ID, NOW_US - 1) for n in range(causes)], 0),
        counted=Kept(Counted(jobs, {}, {("acme", JobState.DEAD): 2, (SYSTEM, JobState.PENDING): 1}), age_s),
    )


def run(number: int) -> Running:
    """Make a job that runs, each half as long as the one before and twice as far."""
    leased_at = NOW_US - 100_000_000 // 2**number
    job = RunningJob(
        UUID(int=JOB_ID.int + number),
        "default",
        "ingest",
        "host:17:abcd" if number % 2 else "bench",
        leased_at,
        NOW_US + 1,
        min(1.0, 0.1 * 2**number),
        f"page {number}\u202e",
    )
    return Running(job, 17, "host")


def lines(
    *files: FileFigures | OutOfReach, width: int = 80, height: int | None = None, hint: str = "q: quit"
) -> list[str]:
    """Draw a frame; return its rows."""
    console = Console(width=width, color_system=None, markup=False, emoji=False, highlight=False)
    frame = Frame(files, Times(NOW_US, is_utc=True), 5.0, hint)
    with console.capture() as captured:
        console.print(top_frame.drawn(frame, width, height))
    return [line.rstrip() for line in captured.get().splitlines()]


def row(shown: list[str], beginning: str) -> str:
    """Return the one row that begins so."""
    (found,) = [line for line in shown if line.startswith(beginning)]
    return found


def cells(shown: list[str], beginning: str) -> str:
    """Return the one row that begins so, without what lines its columns up."""
    return " ".join(row(shown, beginning).split())


# --- frames


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("height", [1, 8, 24, 100])
@pytest.mark.parametrize("files", [1, 3])
def test_a_frame_fits_its_terminal(width: int, height: int, files: int) -> None:
    """However much there is to tell, and however small it is (issue 8: usable at 80 columns)."""
    shown = lines(
        *(figures(f"/srv/{n}.queue", kinds=30, running=25, causes=20, age_s=9, lapsed=1) for n in range(files)),
        OutOfReach("/srv/gone.queue", "it is not there " * 20),
        width=width,
        height=height,
    )
    assert len(shown) <= height
    assert max(map(len, shown)) <= width
    assert shown[0].startswith("litequeue top")
    assert shown[0].endswith("q: quit")
    if height >= 24:
        headings = [line.split()[0] for line in shown if re.match(r"(FILE|LATENCY|RUNNING|\d+ DEAD)\b", line)]
        assert {"FILE", "LATENCY"} <= {*headings}
        assert sum("KIND" in line for line in shown) >= 2


def test_a_frame_of_24_rows_has_something_of_every_table_and_says_what_it_leaves_out() -> None:
    """Each has its share of the rows, the most active kinds first come in (issue 8)."""
    shown = lines(figures(kinds=30, running=25, causes=20), height=24)
    assert len(shown) == 24
    assert row(shown, "KIND").startswith("KIND 4/30")
    assert row(shown, "RUNNING").startswith("RUNNING 4/25")
    assert any(line.endswith("ERROR 4/20") for line in shown)


def test_rows_that_are_left_go_to_what_wants_them_and_then_between_the_tables() -> None:
    """A larger terminal shows more, and has room to breathe."""
    assert top_frame.shares([1, 9, 3], 7) == [1, 3, 3]
    assert top_frame.shares([1, 9, 3], 100) == [1, 9, 3]
    assert top_frame.shares([1, 2], 0) == [0, 0]
    small, large = lines(figures(kinds=9), height=24), lines(figures(kinds=9), height=40)
    assert "" not in small
    assert "" in large


def test_every_figure_stands_in_its_row() -> None:
    """States by kind and by scope, rates, ages, quantiles, progress and holders, causes, sizes (issue 8, item 2)."""
    shown = lines(figures())
    assert cells(shown, "app.queue") == "app.queue ~1,234 ~0.2 0.0 1 min 123.5 MB 4.0 MB 12 s"
    assert cells(shown, "wait") == "wait 500 ms 900 ms 990 ms from ready to leased"
    assert cells(shown, "run ") == "run 5.0 s 9.0 s 9.9 s from leased to completed"
    assert cells(shown, "KIND") == "KIND pending leased done retry dead sched cancel wait OLDEST"
    assert cells(shown, "area:kind-00") == "area:kind-00- 1 10 100 1,000 10,000 100k 1.0M 10.0M 1 min"
    assert cells(shown, "SCOPE") == "SCOPE pending leased completed retryable dead"
    assert cells(shown, "acme") == "acme - - - - 2"
    assert cells(shown, "(system)") == "(system) 1 - - - -"
    assert re.fullmatch(rf"{JOB_ID}  ingest  1 min  .{{4}}  10%  bench \(host:17\)", row(shown, str(JOB_ID)))
    assert row(shown, str(UUID(int=JOB_ID.int + 1))).endswith("  ingest   50 s  ╸     20%  host:17")
    assert cells(shown, "7 DEAD") == "7 DEAD KIND LAST ERROR"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("files", [1, 2])
def test_ids_are_whole_and_kinds_give_way(width: int, files: int) -> None:
    """Jobs of one `enqueue_many` differ at the end of their ids only; of a kind both ends stay (issue 8)."""
    kind = "ingest:invoices:extract-tables-from-scanned-pages"
    long = [
        Running(dataclasses.replace(one.job, kind=kind, note="page 3 " * 20), 17, "host") for one in map(run, range(3))
    ]
    there = [
        dataclasses.replace(figures(f"/srv/{n}.queue", kinds=0, causes=0), running=Kept(long, 0)) for n in range(files)
    ]
    shown = lines(*there, width=width)
    (heading,) = [line for line in shown if " KIND  " in line]
    assert ("HELD BY" in heading) == (width > 80 or files == 1)
    for one in long:
        found = [line for line in shown if str(one.job.job_id) in line]
        assert len(found) == files
        assert all(re.search(r"  ing\S*…\S*ges  ", line) for line in found)


def test_a_wide_frame_has_notes() -> None:
    """What a wider terminal has room for, and no character that steers it."""
    shown = lines(figures(), width=140)
    assert row(shown, str(JOB_ID)).endswith(r"page 0\u202e")
    assert row(shown, "app.queue").split()[-2:] == ["kB", "33.3M"]
    assert any(line.endswith(r"boom 0\u001b[2J") for line in shown)


def test_figures_that_are_kept_are_said_to_be_old() -> None:
    """Counts that take long are those of a while ago, and some are not there yet (issue 8)."""
    assert "ago" not in "".join(lines(figures(causes=0)))
    assert lines(figures(age_s=12.3))[1] == "counts of 12 s ago"
    first = figures()
    unfinished = FileFigures(first.path, NOW_US, first.state, first.flow, None, None, first.done, None, None)
    assert lines(unfinished)[1] == "running jobs not yet, ages not yet, errors not yet, counts not yet"


def test_several_files_are_one_view_that_names_each() -> None:
    """By as much of their paths as tells them apart; one that is out of reach is a row (issue 8)."""
    shown = lines(
        figures("/srv/a/app.queue", kinds=1, running=1),
        figures("/srv/b/app.queue", kinds=1, lapsed=1),
        OutOfReach("/srv/mail.queue", "the file\nhas gone"),
    )
    assert shown[1] == "mail.queue: the file has gone"
    assert shown[2] == "b/app.queue: 1 lease lapsed, not taken back yet"
    assert re.search("^FILE +KIND .* OLDEST$", "\n".join(shown), re.MULTILINE)
    assert [line.split()[0] for line in shown if " area:" in line] == ["a/app…ueue", "b/app…ueue"]
    assert row(shown, "LATENCY").startswith("LATENCY OF 200 JOBS")


def test_a_file_with_nothing_in_it_has_a_frame() -> None:
    """Nothing runs, and nothing is dead."""
    shown = lines(figures(kinds=0, running=0, causes=0))
    assert "RUNNING: none" in shown
    assert "DEAD: none" in shown
    assert "KIND: none" in shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0 ms"),
        (0.0004, "0.4 ms"),
        (0.05, "50 ms"),
        (0.9999, "1.0 s"),
        (12, "12 s"),
        (59.6, "1 min"),
        (5_399, "89 min"),
        (5_400, "1 h"),
        (1e6, "11 d"),
        (1e9, "11,574 d"),
    ],
)
def test_lengths_of_time_are_short(seconds: float | None, text: str) -> None:
    """In their largest unit."""
    assert top_text.span_text(seconds) == text


# --- one frame


def test_one_frame_is_printed_without_colours_where_there_is_no_terminal(cli: Cli, queue: Queue) -> None:
    """For a pipe, a mail or a page; nothing else is printed (§9)."""
    queue.enqueue("work")
    queue.enqueue("work")
    queue.fail_many(queue.lease_many(1), "boom\nand more", retryable=False)
    out = cli.done("top", "--once", "--utc")
    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in out.splitlines())
    assert re.search(r"^work +1 +- +- +- +1 ", out, re.MULTILINE)
    assert re.search(r"^ +1 +work +now +boom$", out, re.MULTILINE)


def test_a_width_of_no_columns_is_an_unknown_one(cli: Cli, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """As some programs have it that start others: a frame of 80 columns."""
    queue.enqueue("work:kind")
    monkeypatch.setenv("COLUMNS", "0")
    assert "work:kind" in cli.done("top", "--once")


def test_one_frame_of_several_files_shows_those_that_can_be_read(cli: Cli, queue: Queue, tmp_path: Path) -> None:
    """The others are a row, and a line on standard error; the status is 1 (§9)."""
    queue.enqueue("work")
    gone = tmp_path / "gone.queue"
    result = CliRunner().invoke(command, ["--db", str(gone), "--db", str(cli.path), "top", "--once"])
    assert (result.exit_code, result.stderr) == (1, f"litequeue: cannot open {gone}: there is no such file\n")
    assert "gone.queue: cannot open" in result.stdout
    assert "work" in result.stdout
    assert cli("top", "--once").status == 0


def test_a_file_that_is_not_there_is_told_at_once(cli: Cli) -> None:
    """With how to make it; it is not made (§9)."""
    assert cli("top", "--once").line_of_failure(1).endswith("init`")
    assert not cli.path.exists()


def test_without_a_terminal_the_live_view_says_what_there_is(cli: Cli, queue: Queue) -> None:
    """Wrong usage, before anything is opened (§9)."""
    line = cli("top").line_of_failure(2)
    assert line == "standard output is no terminal that can show a live view; --once prints one frame"
    assert cli("top", "--interval", "0").line_of_failure(2) == "--interval is 0 s; it must be 0.2 to 3600 s"
    assert queue.stats().total == 0


def test_without_rich_one_line_says_what_to_install(cli: Cli, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the command needs none of it (issue 8: the extra `tui`)."""
    monkeypatch.setitem(sys.modules, "rich", None)
    queue.enqueue("work")
    line = cli("top", "--once").line_of_failure(1)
    assert line == "`litequeue top` needs rich: pip install 'litequeue-jobs[tui]', or '.[tui]' in a clone"
    cli.done("stats")


# --- the live view


class Screen:
    """A terminal of the test's own: what is written to it, and keys."""

    def __init__(self) -> None:
        self.leader, self.follower = os.openpty()
        self.written = ""
        self.resize(24, 80)

    def resize(self, rows: int, columns: int) -> None:
        """Make the window so large."""
        import termios  # noqa: PLC0415 - POSIX

        termios.tcsetwinsize(self.follower, (rows, columns))

    def modes(self) -> list[object]:
        """Return how it treats what is typed."""
        import termios  # noqa: PLC0415 - POSIX

        return list(termios.tcgetattr(self.follower))

    def wait_for(self, pattern: str, seconds: float = 30) -> str:
        """Wait until so much has been written, and return it; it is not found again."""
        until = time.monotonic() + seconds
        while (found := re.search(pattern, self.written, re.DOTALL)) is None:
            ready, _, _ = select.select([self.leader], [], [], max(0, until - time.monotonic()))
            assert ready, self.written
            self.written += os.read(self.leader, 65_536).decode(errors="replace")
        seen = self.written[: found.end()]
        self.written = self.written[found.end() :]
        return seen

    def close(self) -> None:
        """Let it go."""
        os.close(self.leader)
        os.close(self.follower)


@posix
@pytest.mark.slow
def test_the_live_view_follows_the_file_and_the_window_and_gives_the_terminal_back(
    processes: Processes, queue: Queue
) -> None:
    """Until q is pressed, with status 0; signals end it in the same way, also after Ctrl-S (issue 8, item 2)."""
    queue.enqueue("work:first")
    with contextlib.closing(Screen()) as screen:
        before = screen.modes()
        for number, end in enumerate(["q", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGINT"]):
            process = processes.start(
                "top", "--interval", "0.2", stdin=screen.follower, stdout=screen.follower, environment={"TERM": "xterm"}
            )
            begun = screen.wait_for("work:first")
            assert "\x1b[?1049h" in begun, "the alternate screen"
            assert screen.modes() != before
            kind = f"work:next-{number}"
            queue.enqueue(kind)
            screen.wait_for(kind)
            screen.resize(30, 132)
            screen.wait_for("FREE")
            screen.resize(24, 80)
            if end == "q":
                os.write(screen.leader, b"q")
            else:
                if end == "SIGINT":
                    os.write(screen.leader, b"\x13")
                process.send_signal(signal.Signals[end])
            screen.wait_for(r"\x1b\[\?1049l.*\x1b\[\?25h|\x1b\[\?25h.*\x1b\[\?1049l")
            outcome = processes.outcome(process)
            assert (outcome.status, outcome.err) == (0, "")
            assert screen.modes() == before


@posix
def test_what_goes_wrong_in_a_look_ends_the_view_and_is_raised() -> None:
    """With the terminal given back first."""

    def look() -> int:
        if len(looks) == 2:
            raise RuntimeError("as an example")
        looks.append(None)
        return len(looks)

    looks: list[None] = []
    with contextlib.closing(Screen()) as screen, open(screen.follower, "w", closefd=False, encoding="utf-8") as file:
        console = Console(file=file, force_terminal=True, _environ={"TERM": "xterm"})
        view = View(console, look, lambda seen, *_: f"seen {seen}", 0.01)
        with pytest.raises(RuntimeError, match="as an example"):
            view.run()
        written = screen.wait_for(r"\x1b\[\?1049l")
    assert "\x1b[?1049h" in written


@posix
def test_without_termios_there_are_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows; nor are there any where standard input is no terminal, or there is none (issue 8, item 7)."""
    with contextlib.closing(Screen()) as screen, open(screen.follower, closefd=False, encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        assert top_screen._keys() == screen.follower
        monkeypatch.setattr(top_screen, "termios", None)
        assert top_screen._keys() is None
    monkeypatch.undo()
    monkeypatch.setattr(sys, "stdin", None)
    assert top_screen._keys() is None


def test_names_are_as_long_as_they_must_be() -> None:
    """Of files in different folders; no two are named the same."""
    assert top_text.labels(["/a/x.queue"]) == ["x.queue"]
    assert top_text.labels(["/a/x.queue", "/b/x.queue", "/b/y.queue"]) == ["a/x.queue", "b/x.queue", "y.queue"]
    assert top_text.labels(["/x", "/y", "/z/x"]) == ["/x", "y", "z/x"]
