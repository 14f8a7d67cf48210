"""`maintain`: upkeep of the file as a process of its own, until it is told to stop.

Owns: the lines. Leaves out: signals (`running`), what is due, who leads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial

import click

from litequeue import Maintenance, MaintenanceReport
from litequeue.cli.commands import Command
from litequeue.cli.failures import nothing_to_do
from litequeue.cli.input import duration_option, exclude_each_other
from litequeue.cli.output import count_of, utc, warn
from litequeue.cli.running import signals
from litequeue.cli.target import Target, pass_target

_COUNTS = frozenset(field.name for field in fields(MaintenanceReport))
"""What the library's log says of a pass, each an attribute of the record."""
_OF_THE_FILE = frozenset({"freed_bytes", "wal_pages", "wal_bytes", "wal_held_s"})
"""Those that are told in words of their own."""
_log = logging.getLogger("litequeue.maintenance")


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
    exclude_each_other(once=once, every=every)
    if once:
        with target.queue() as queue:
            report = Maintenance(queue).run_once()
        click.echo(_text(report))
        if not report:
            nothing_to_do()
        return
    with signals() as told, target.queue() as queue:
        maintenance = Maintenance(queue)
        with _lines_of_passes(maintenance):
            told.heed(partial(maintenance.run, every), maintenance.stop)


@contextmanager
def _lines_of_passes(maintenance: Maintenance) -> Iterator[None]:
    """Print what the library logs of its passes, and let it log as much as a person wants to know.

    Raises:
        OSError: nobody could read a line; that was the end of the maintenance.
    """
    handler = _Lines(maintenance)
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
    if handler.error is not None:
        raise handler.error


class _Lines(logging.Handler):
    """Prints a pass that did something on standard output, everything else on standard error."""

    def __init__(self, maintenance: Maintenance) -> None:
        super().__init__()
        self._maintenance = maintenance
        self.error: OSError | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line; when nobody can read it, that is the end."""
        try:
            report = report_of(record)
            if report is None:
                warn(record.getMessage())
            else:
                click.echo(f"{utc(int(record.created * 1_000_000))} {report}")
        except OSError as exc:
            self.error = exc
            self._maintenance.stop()


def report_of(record: logging.LogRecord) -> str | None:
    """Return what a record of the library's log says of a pass, in words; `None` when it tells of something else."""
    said = vars(record)
    if not said.keys() >= _COUNTS:
        return None
    return _text(MaintenanceReport(**{name: said[name] for name in _COUNTS}))


def _text(report: MaintenanceReport) -> str:
    """Say what was done and what is left; of what is nothing, nothing is said."""
    counts = {name: count for name, count in report.as_dict().items() if count and name not in _OF_THE_FILE}
    parts = [", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items())]
    if report.freed_bytes:
        parts.append(f"{report.freed_bytes:,} bytes given back")
    if not report:
        parts.append("nothing was due")
    if report.wal_pages:
        held = f", which a reader has held for {report.wal_held_s:,} s" if report.wal_held_s else ""
        pages = count_of(report.wal_pages, "page")
        parts.append(f"{pages} left in the write-ahead log of {report.wal_bytes:,} bytes{held}")
    return "; ".join(part for part in parts if part)
