"""`maintain`: upkeep of the file as a process of its own, until it is told to stop.

Owns: the signals and the lines. The upkeep runs in a thread of its own, because a signal handler may interrupt the main
thread anywhere, and what it then calls must not need a lock that this thread holds. Leaves out: what is due, who leads.
"""

from __future__ import annotations

import logging
import queue as waiting
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from types import FrameType

import click

from litequeue import Maintenance, MaintenanceReport
from litequeue.cli.commands import Command
from litequeue.cli.failures import Misuse, nothing_to_do
from litequeue.cli.input import duration_option
from litequeue.cli.output import count_of, utc, warn
from litequeue.cli.target import Target, pass_target

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOOK_S = 1.0
"""Where a wait is not interrupted by signals (Windows), their handlers run when it ends."""
_COUNTS = frozenset(field.name for field in fields(MaintenanceReport))
"""What the library's log says of a pass, each an attribute of the record."""
_OF_THE_FILE = frozenset({"freed_bytes", "wal_pages", "wal_bytes", "wal_held_s"})
"""Those that are told in words of their own."""
_log = logging.getLogger("litequeue.maintenance")

Ending = waiting.SimpleQueue[BaseException | None]
"""What ends the command: a signal or a finished run (`None`), or an error. A signal handler may put into it."""


@click.command(
    cls=Command,
    epilog="""
litequeue --db app.queue maintain --every 5s
litequeue --db app.queue maintain --once
""",
)
@click.option("--once", is_flag=True, help="Do one pass, whoever else maintains the file, and print what was done.")
@click.option(
    "--every", metavar="DURATION", type=duration_option, help="Between two passes.  [default: setting reaper_interval]"
)
@pass_target
def maintain(target: Target, *, once: bool, every: float | None) -> None:
    """Keep the file up, until told to stop.

    A pass reaps lapsed leases, promotes due jobs, buries those that are too late to start, removes finished ones whose
    retention is over, gives room that they have left back to the disk when it is much, and copies the write-ahead log
    back. One that did something prints a line. A program that reads for long, and so lets the log grow, is warned of.

    SIGTERM or Ctrl-C ends it, with status 0. Of several on one file one works, the others stand by and take over when
    it dies. With --once, status 3 says that nothing was due.
    """
    if once and every is not None:
        raise Misuse("--once and --every exclude each other")
    if once:
        with target.queue() as queue:
            report = Maintenance(queue).run_once()
        click.echo(_text(report))
        if not report:
            nothing_to_do()
        return
    ending: Ending = waiting.SimpleQueue()
    with signals_into(ending), target.queue() as queue, _lines_of_passes(ending):
        _run(Maintenance(queue), every, ending)


def _run(maintenance: Maintenance, every: float | None, ending: Ending) -> None:
    """Maintain until the first thing that ends it; raise it when it is an error."""

    def work() -> None:
        try:
            maintenance.run(every)
        except BaseException as exc:  # noqa: BLE001 - raised again below, in the main thread
            ending.put(exc)
        else:
            ending.put(None)

    thread = threading.Thread(target=work, name="litequeue-maintain")
    thread.start()
    try:
        ended = _first(ending)
    finally:
        maintenance.stop()
        thread.join()
    if ended is not None:
        raise ended


def _first(ending: Ending) -> BaseException | None:
    while True:
        try:
            return ending.get(timeout=_LOOK_S)
        except waiting.Empty:
            continue


@contextmanager
def signals_into(ending: Ending) -> Iterator[None]:
    """Turn the signals that ask a process to end into an ending; once they have, they say nothing new."""
    is_told = False

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_told
        is_told = True
        ending.put(None)  # SimpleQueue.put is reentrant: it may interrupt itself

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if is_told else handler)


@contextmanager
def _lines_of_passes(ending: Ending) -> Iterator[None]:
    """Print what the library logs of its passes, and let it log as much as a person wants to know."""
    handler = _Lines(ending)
    before = _log.level, _log.propagate
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    _log.propagate = False
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.setLevel(before[0])
        _log.propagate = before[1]


class _Lines(logging.Handler):
    """Prints a pass that did something on standard output, everything else on standard error."""

    def __init__(self, ending: Ending) -> None:
        super().__init__()
        self._ending = ending

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line; when nobody can read it, that is the end."""
        said = vars(record)
        try:
            if said.keys() >= _COUNTS:
                report = MaintenanceReport(**{name: said[name] for name in _COUNTS})
                click.echo(f"{utc(int(record.created * 1_000_000))} {_text(report)}")
            else:
                warn(record.getMessage())
        except OSError as exc:
            self._ending.put(exc)


def _text(report: MaintenanceReport) -> str:
    counts = {name: count for name, count in report.as_dict().items() if name not in _OF_THE_FILE}
    done = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items())
    held = f", which a reader has held for {report.wal_held_s:,} s" if report.wal_held_s else ""
    log = f"{count_of(report.wal_pages, 'page')} left in the write-ahead log of {report.wal_bytes:,} bytes{held}"
    return f"{done}; {report.freed_bytes:,} bytes given back; {log}"
