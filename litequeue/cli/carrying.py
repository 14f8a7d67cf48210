"""`jobs export` and `jobs import`: jobs as JSON lines, to be carried to another file, or edited on the way.

Owns: where lines go and come from. Invariants: both commands are streams; as a job keeps its id, a line that is
imported again finds its job. Leaves out: what is in a line (`carried`), and the walk over jobs (`Queue.exporter`).
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from typing import TextIO

import click

from litequeue import JobState, Queue
from litequeue.arguments import RESERVED_PREFIX
from litequeue.cli.batches import Loader
from litequeue.cli.carried import Unfit, form_of, job_of
from litequeue.cli.commands import Command
from litequeue.cli.failures import Failure, Interrupted, fail_quietly, nothing_to_do
from litequeue.cli.files import foreign_file, new_file
from litequeue.cli.input import (
    kind_option,
    many_scopes,
    read_json_bytes,
    scope_options,
    standard_input,
)
from litequeue.cli.jsonable import dumps
from litequeue.cli.output import count_of, warn
from litequeue.cli.progress import progress
from litequeue.cli.stepwise import stepwise
from litequeue.cli.target import Target, pass_target
from litequeue.model import SYSTEM
from litequeue.sqlite.exporting import Found

_UNFINISHED = [state for state in JobState if not state.is_terminal]
_STANDARD = "-"


@dataclass(slots=True)
class _Tally:
    """What an export has come to so far."""

    looked_at: int = 0
    written: int = 0
    unfit: int = 0
    """Jobs that cannot be exported."""
    messages: int = 0
    """Messages of outboxes, which are no jobs of anybody's own."""
    shortened: int = 0
    """Lines of jobs that wait for some that have no line."""
    awaited: set[bytes] = field(default_factory=set)
    """The ids of the jobs that have a line and that others wait for: some hundred bytes of memory each."""


@click.command(
    "export",
    cls=Command,
    epilog="""
litequeue --db app.queue jobs export jobs.jsonl --all-scopes
litequeue --db app.queue jobs export --state dead --kind mail:
""",
)
@click.argument("file", metavar="[FILE]", default=_STANDARD)
@click.option(
    "--state",
    type=click.Choice([state.name.lower() for state in JobState]),
    help="Only jobs in this state, instead of all that have not ended.",
)
@kind_option("Only this kind, or with a ':' at its end every kind that begins so.")
@scope_options(many=True)
@pass_target
def export_jobs(
    target: Target, *, file: str, state: str | None, kind: str | None, scope: str | None, system: bool, all_scopes: bool
) -> None:
    """Write jobs as JSON lines, for `jobs import`.

    To FILE, which must not exist and is there when it is whole, or to standard output. Those that have not ended,
    unless --state says which. Each that is there all the while is written once, after those that it waits for; workers
    may go on meanwhile. What it waits for and is not exported, it waits for no more; that is said. Attempts, results
    and event logs stay behind, and so do the messages of outboxes.
    """
    where = many_scopes(scope, system=system, all_scopes=all_scopes)
    states = _UNFINISHED if state is None else [JobState[state.upper()]]
    tally = _Tally()
    with (
        stepwise() as told,
        target.queue() as queue,
        _output(file, queue) as out,
        progress("exporting", out=out) as drawn,
    ):
        exporter = queue.exporter(states, kind, where)
        total = 0 if drawn is None else exporter.count()
        for step in exporter.steps():
            for line in _lines(step.found, tally):
                with told.waiting():
                    out.write(line)
            told.end_if_told()
            tally.looked_at += step.looked_at
            if drawn is not None and total:
                drawn(min(tally.looked_at, total), total)
    if tally.shortened:
        warn(f"in {count_of(tally.shortened, 'line')} `after` leaves out jobs that are not exported")
    if tally.messages:
        warn(f"{count_of(tally.messages, 'message')} of outboxes left out")
    if file != _STANDARD:
        click.echo(f"{count_of(tally.written, 'job')} exported")
    if tally.unfit:
        fail_quietly()


@click.command(
    "import",
    cls=Command,
    epilog="""
litequeue --db other.queue jobs import jobs.jsonl
jq -c '.priority = 1' dead.jsonl | litequeue --db app.queue jobs import
""",
)
@click.argument("file", metavar="[FILE]", default=_STANDARD)
@pass_target
def import_jobs(target: Target, *, file: str) -> None:
    """Enqueue jobs from JSON lines, in FILE or on standard input.

    A line is as `jobs export` writes it. Each job keeps its id, so a line that was imported before is counted as there
    already and changes nothing, unless its job is dead or cancelled by now: then it is queued anew, as by any enqueue
    of its id. Lines are committed in steps; when one is refused, every job before it is in the queue, and none after
    it.
    """
    with target.queue() as queue:
        loader = Loader(queue, "imported")
        with _input(file, queue.path) as lines, progress("importing") as drawn, stepwise() as told:
            total = _size(lines)
            try:
                for read in loader.load(lines, lambda line: job_of(read_json_bytes(line)), told):
                    if drawn is not None and total:
                        drawn(min(read, total), total)
            except KeyboardInterrupt as exc:
                raise Interrupted(f"interrupted; {loader.told()}") from exc
    click.echo(loader.told())
    if not loader.made and not loader.known:
        nothing_to_do()


def _lines(found: list[Found], tally: _Tally) -> Iterator[str]:
    """Return a line for each job; of one that cannot have any it is told why."""
    for one in found:
        job = one.job
        if job.scope is not SYSTEM and job.scope.startswith(RESERVED_PREFIX):
            tally.messages += 1
            continue
        missing = () if one.waits is None else one.waits.parents
        parents = [parent for parent in missing if parent.bytes in tally.awaited]
        try:
            line = dumps(form_of(one, parents))
        except Unfit as exc:
            warn(f"job {job.job_id} is left out: {exc}")
            tally.unfit += 1
            continue
        tally.written += 1
        tally.shortened += len(parents) < len(missing)
        if one.is_awaited:
            tally.awaited.add(job.job_id.bytes)
        yield line + "\n"


@contextmanager
def _output(path: str, queue: Queue) -> Iterator[TextIO]:
    if path == _STANDARD:
        if sys.stdout is None:
            raise Failure("standard output is closed")
        yield sys.stdout
        return
    with new_file(path, queue.mode, queue.path) as file:
        yield file


@contextmanager
def _input(path: str, queue_path: str) -> Iterator[BufferedReader]:
    if path == _STANDARD:
        yield standard_input()
        return
    with foreign_file(path, queue_path) as file:
        yield file


def _size(lines: BufferedReader) -> int:
    """Return how many bytes there are to read; 0 where that is not known."""
    try:
        status = os.fstat(lines.fileno())
    except (OSError, ValueError):  # no file at all
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
