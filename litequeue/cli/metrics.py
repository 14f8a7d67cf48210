"""`metrics`: what files tell of themselves, in Prometheus' text format, printed once or served.

Owns: the options and the lines. Leaves out: what is told (`litequeue.metrics`), signals (`running`).
"""

from __future__ import annotations

import contextlib

import click

from litequeue.cli.commands import Command
from litequeue.cli.failures import Failure, Misuse, fail_quietly
from litequeue.cli.output import warn
from litequeue.cli.running import signals
from litequeue.cli.target import Target, open_file, pass_target, with_hint
from litequeue.errors import CannotOpen, LiteQueueError, QueueClosed
from litequeue.metrics.collector import BUDGET_S, MAX_KINDS, MOST_KINDS
from litequeue.metrics.files import Files
from litequeue.metrics.server import LOOPBACK, MetricsServer
from litequeue.metrics.text import render

_MOST_PORT = 65_535


@click.command(
    cls=Command,
    epilog="""
litequeue --db app.queue metrics
litequeue --db app.queue metrics --serve 9464
litequeue --db app.queue --db mail.queue metrics
""",
)
@click.option(
    "--serve",
    "port",
    metavar="PORT",
    type=click.IntRange(0, _MOST_PORT),
    help="Answer scrapes at /metrics until told to stop; 0 takes a free port.",
)
@click.option("--host", metavar="ADDRESS", help=f"Listen there; anyone who reaches it may read.  [default: {LOOPBACK}]")
@click.option(
    "--max-kinds",
    metavar="N",
    type=click.IntRange(1, MOST_KINDS),
    default=MAX_KINDS,
    show_default=True,
    help="Kinds with values of their own; the others share the kind (other).",
)
@pass_target
def metrics(target: Target, *, port: int | None, host: str | None, max_kinds: int) -> None:
    """Print metrics for Prometheus, or serve them until told to stop.

    They are read from the file, without its write lock; `db` names the file in each. Give --db before the command
    once for each file. A file that cannot be read has litequeue_up 0. What only a worker knows of its own runs it
    tells itself: see `litequeue.metrics.Collector`.

    SIGTERM, SIGHUP or Ctrl-C ends the server at once, with status 0. When a file of several cannot be read, the others
    are printed, and the status is 1.
    """
    if host is not None and port is None:
        raise Misuse("--host goes with --serve")
    paths = target.distinct_paths()
    with contextlib.closing(Files(paths, open_file, max_kinds)) as files:
        if port is not None or len(paths) == 1:
            _open(files)  # a name that was mistyped is told at once; what goes wrong later is told in the metrics
        if port is not None:
            _serve(files, port, LOOPBACK if host is None else host)
        else:
            _print(files, is_one=len(paths) == 1)


def _open(files: Files) -> None:
    try:
        files.reach()
    except CannotOpen as exc:
        raise with_hint(exc, exc.path) from exc


def _print(files: Files, *, is_one: bool) -> None:
    page = files.page()
    if is_one and files.errors:
        raise files.errors[0]
    click.echo(render(page), nl=False)
    for error in files.errors:
        warn(str(error))
    if files.errors:
        fail_quietly()


def _serve(files: Files, port: int, host: str) -> None:
    with signals() as told:
        told_of: set[str] = set()

        def text() -> str:
            page = files.page(BUDGET_S)
            _warn_once(files.errors, told_of)
            return render(page)

        try:
            server = MetricsServer(text, port, host)
        except (OSError, UnicodeError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else exc
            raise Failure(f"cannot listen on {host}, port {port}: {reason}") from exc
        click.echo(server.url)
        told.heed(server.run, server.shutdown)


def _warn_once(errors: list[LiteQueueError], told_of: set[str]) -> None:
    """Say what is wrong with a file when it begins to be, not at each scrape."""
    now = {str(error) for error in errors if not isinstance(error, QueueClosed)}  # that is our own end
    for line in sorted(now - told_of):
        with contextlib.suppress(OSError):
            warn(line)
    told_of.clear()
    told_of.update(now)
