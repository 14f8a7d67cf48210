"""`top`: a live view of files.

Owns: the options, and how the view begins and ends. Leaves out: the figures (`litequeue.top`), their drawing
(`top_frame`) and the terminal (`top_screen`).
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial

import click

from litequeue.cli.commands import Command
from litequeue.cli.failures import Failure, Misuse, fail_quietly
from litequeue.cli.input import duration_option
from litequeue.cli.output import warn
from litequeue.cli.running import OutputStuck, signals
from litequeue.cli.target import Target, open_file, pass_target, with_hint
from litequeue.cli.times import Times, utc_option
from litequeue.errors import CannotOpen, missing_extra
from litequeue.top import FileFigures, OutOfReach, Watch

LEAST_INTERVAL_S, MOST_INTERVAL_S = 0.2, 3600.0
WINDOW_S = 5.0
"""Rates are those of so many seconds, or of the interval where that is longer."""
BUDGET_S = 0.5
"""How long a look at all files may count; what is not done by then goes on in the next one."""
_QUIT = [signal.SIGQUIT] if hasattr(signal, "SIGQUIT") else []
"""Ctrl-\\: of it the terminal would not be given back."""
_BUSY_S = 1.0
"""How long a look waits for a file that is locked."""


@click.command(
    cls=Command,
    epilog="""
litequeue --db app.queue top --once
litequeue --db app.queue --db mail.queue top --once --utc
litequeue --db app.queue top --interval 5s
""",
)
@click.option(
    "--interval",
    "interval_s",
    metavar="DURATION",
    type=duration_option,
    default="2s",
    show_default=True,
    help=f"Time between two looks; {LEAST_INTERVAL_S:g} s to an hour.",
)
@click.option("--once", is_flag=True, help="Print one frame and end; for a pipe, too.")
@utc_option
@pass_target
def top(target: Target, *, interval_s: float, once: bool, utc: bool) -> None:
    """Watch queues on the terminal: what waits, runs and fails.

    Also how fast jobs go. Needs the extra `tui`. Give --db before the command once for each file. It only reads, and
    takes no write lock. Counts that take long are kept for a while; the second row then says how old they are. Rates go
    by the jobs that are in the files: see docs/guide/top.md.

    The key q ends it, and so do Ctrl-C and other signals, with status 0. A file that goes away is said to be gone until
    it is there again; see docs/guide/top.md for one that was moved. With --once and several files, the status is 1 when
    one cannot be read.
    """
    if not LEAST_INTERVAL_S <= interval_s <= MOST_INTERVAL_S:
        raise Misuse(f"--interval is {interval_s:g} s; it must be {LEAST_INTERVAL_S:g} to {MOST_INTERVAL_S:g} s")
    paths = target.distinct_paths()
    if not once and not _is_screen():
        raise Misuse("standard output is no terminal that can show a live view; --once prints one frame")
    _require_rich()
    window_s = max(interval_s, WINDOW_S)
    with contextlib.closing(Watch(paths, partial(open_file, busy_timeout=_BUSY_S), window_s)) as watch:
        if not once or len(paths) == 1:
            _reach(watch)  # a name that was mistyped is told at once; what goes wrong later is told in the view
        if once:
            _print(watch, utc=utc)
        else:
            _show(watch, interval_s, utc=utc)


def _require_rich() -> None:
    try:
        import rich  # noqa: F401, PLC0415 - only with the extra
    except ModuleNotFoundError:
        raise Failure(str(missing_extra("tui", "`litequeue top`", "rich"))) from None


def _is_screen() -> bool:
    try:
        return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    except (AttributeError, ValueError):  # there is no standard output, or it is closed
        return False


def _reach(watch: Watch) -> None:
    try:
        watch.reach()
    except CannotOpen as exc:
        raise with_hint(exc, exc.path) from exc


def _print(watch: Watch, *, utc: bool) -> None:
    from litequeue.cli.top_frame import Frame, console, drawn  # noqa: PLC0415 - only with the extra

    files = watch.look()
    lost = [one for one in files if isinstance(one, OutOfReach)]
    if len(files) == len(lost) == 1:
        raise Failure(lost[0].reason)
    out = console()
    with out.capture() as captured:
        out.print(drawn(Frame(files, Times.now(utc=utc), watch.window_s, hint=""), out.width, None))
    for line in captured.get().splitlines():
        click.echo(line.rstrip())
    for one in lost:
        warn(one.reason)
    if lost:
        fail_quietly()


def _show(watch: Watch, interval_s: float, *, utc: bool) -> None:
    from rich.console import RenderableType  # noqa: PLC0415 - only with the extra

    from litequeue.cli.top_frame import Frame, console, drawn  # noqa: PLC0415
    from litequeue.cli.top_screen import View  # noqa: PLC0415

    def look() -> tuple[list[FileFigures | OutOfReach], Times]:
        return watch.look(min(BUDGET_S, interval_s / 2)), Times.now(utc=utc)

    def draw(seen: tuple[list[FileFigures | OutOfReach], Times] | None, width: int, height: int) -> RenderableType:
        files, times = ([], Times.now(utc=utc)) if seen is None else seen
        hint = f"every {interval_s:g} s   q: quit"
        return drawn(Frame(files, times, watch.window_s, hint), width, height)

    view = View(console(), look, draw, interval_s)
    with _held_back(), signals(also=_QUIT) as told:
        told.heed(view.run, view.stop, view.let_go)


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Keep what is written to standard error from the screen; it is said, each line once, when the view is over."""
    kept = io.StringIO()
    try:
        with contextlib.redirect_stderr(kept):
            yield
    except OutputStuck:
        kept = io.StringIO()
        raise
    finally:
        for line in dict.fromkeys(kept.getvalue().splitlines()):
            click.echo(line, err=True)
