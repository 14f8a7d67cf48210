"""`bench`: how fast a queue is on this machine and this disk.

Owns: the options, and the lines. Leaves out: the measuring (`litequeue.bench`).
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import click

from litequeue.bench import PAYLOAD_BYTES, Measured, NoRoom, Report, Spread, Stopped, measure
from litequeue.cli.commands import Command
from litequeue.cli.failures import Failure, Interrupted, Misuse
from litequeue.cli.input import duration_option
from litequeue.cli.jsonable import Json, dumps
from litequeue.cli.layout import table
from litequeue.cli.output import NOTHING, plain, warn
from litequeue.cli.progress import progress
from litequeue.cli.running import signals
from litequeue.cli.target import Target, pass_target
from litequeue.sqlite import filesystem
from litequeue.sqlite.store import Durability

_DURABILITIES: tuple[Durability, ...] = ("full", "enqueue", "normal")
_LEAST_S, _MOST_S = 1.0, 300.0
_SYNCHRONOUS = {0: "off", 1: "normal", 2: "full", 3: "extra"}
_PER_MS = 1_000


@click.command(
    cls=Command,
    epilog="""
litequeue --db app.queue bench
litequeue bench --folder . --durability full --time 1s --json
""",
)
@click.option("--folder", metavar="DIR", help="Measure there.  [default: where --db lies, else the current folder]")
@click.option(
    "--durability",
    "durabilities",
    type=click.Choice(_DURABILITIES),
    multiple=True,
    help="May be repeated.  [default: all three]",
)
@click.option(
    "--time",
    "seconds",
    metavar="DURATION",
    type=duration_option,
    default="10s",
    show_default=True,
    help=f"How long to measure in all; {_LEAST_S:g} to {_MOST_S:g} s.",
)
@click.option("--json", "as_json", is_flag=True, help="A JSON object; rates are jobs in a second, times µs.")
@pass_target
def bench(
    target: Target, *, folder: str | None, durabilities: tuple[Durability, ...], seconds: float, as_json: bool
) -> None:
    """Measure what this machine and this disk are good for.

    Enqueues, leases and completes small jobs, one by one and a hundred in a call, at each durability, in queues of its
    own in a temporary folder; the file of --db is not touched, and need not be there. Shown are medians over some
    rounds, and between what these lay: a busy machine has wide ones. P50 and P99 are how long a call takes.

    Ctrl-C ends it with status 130, and nothing is left behind.
    """
    if not _LEAST_S <= seconds <= _MOST_S:
        raise Misuse(f"--time is {seconds:g} s; it must be {_LEAST_S:g} to {_MOST_S:g} s")
    place = os.path.realpath(target.folder() if folder is None else folder)
    if not Path(place).is_dir():
        raise Failure(f"cannot measure in {place}: there is no such folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise Failure(f"cannot measure in {place}: no permission to write there{filesystem.owner_of(place)}")
    chosen = tuple(dict.fromkeys(durabilities)) or _DURABILITIES
    report = _measured(place, chosen, seconds)
    if as_json:
        click.echo(dumps(_form(place, report)))
        return
    for line in _lines(place, report):
        click.echo(line)


def _measured(place: str, durabilities: tuple[Durability, ...], seconds: float) -> Report:
    is_over = threading.Event()
    with warnings.catch_warnings(record=True) as caught, progress("measuring") as drawn, signals() as told:
        try:
            report = told.heed(
                lambda: measure(place, durabilities, seconds, progress=drawn, is_over=is_over.is_set), is_over.set
            )
        except Stopped:
            raise Interrupted("interrupted") from None
        except NoRoom as exc:
            raise Failure(str(exc)) from exc
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        warn(f"warning: {text}")
    return report


def _lines(place: str, report: Report) -> Iterator[str]:
    first = report.results[0].pragmas
    where = f"{plain(place)}, file system {report.file_system or 'unknown'}"
    yield f"{where}; SQLite {first.sqlite}, page size {first.page_size}, journal mode {first.journal_mode}"
    yield f"jobs of {PAYLOAD_BYTES} bytes, {report.rounds} rounds"
    for durability in dict.fromkeys(one.durability for one in report.results):
        yield ""
        of_it = [one for one in report.results if one.durability == durability]
        yield f"durability {durability}: {_synchronous(of_it)}"
        yield from table([["WORK", "AT ONCE", "JOBS/S", "BETWEEN", "P50", "P99"], *map(_cells, of_it)])


def _synchronous(found: Sequence[Measured]) -> str:
    """Say how commits reach the disk, by what the connection itself has said of them."""
    levels = {one.work.name: one.pragmas.synchronous for one in found}
    told = {name: f"{_SYNCHRONOUS.get(level, NOTHING)} ({level})" for name, level in levels.items()}
    if len({*told.values()}) == 1:
        return f"synchronous is {next(iter(told.values()))}"
    return "synchronous is " + ", ".join(f"{text} to {name}" for name, text in told.items())


def _cells(one: Measured) -> list[str]:
    rate = one.jobs_per_s
    return [
        one.work.name,
        str(one.work.batch),
        f"{rate.median:,.0f}",
        f"{rate.least:,.0f} – {rate.most:,.0f}",
        f"{one.p50_us.median / _PER_MS:.3g} ms",
        f"{one.p99_us.median / _PER_MS:.3g} ms",
    ]


def _form(place: str, report: Report) -> dict[str, Json]:
    return {
        "folder": place,
        "file_system": report.file_system,
        "payload_bytes": PAYLOAD_BYTES,
        "rounds": report.rounds,
        "results": [
            {
                "durability": one.durability,
                "work": one.work.name,
                "at_once": one.work.batch,
                "jobs_per_s": _spread_form(one.jobs_per_s),
                "p50_us": _spread_form(one.p50_us),
                "p99_us": _spread_form(one.p99_us),
                **one.pragmas._asdict(),
            }
            for one in report.results
        ],
    }


def _spread_form(spread: Spread) -> dict[str, Json]:
    return cast("dict[str, Json]", spread._asdict())
