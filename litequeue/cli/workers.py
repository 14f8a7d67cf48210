"""`workers`: who works on the file, and on what.

Leaves out: how it is known who lives (`Queue.workers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

import click

from litequeue.cli.asides import tell_empty
from litequeue.cli.commands import Command
from litequeue.cli.jsonable import Json, dumps, jsonable
from litequeue.cli.layout import cut, table
from litequeue.cli.listing import how_far
from litequeue.cli.output import NOTHING, one_line, plain, scope_text
from litequeue.cli.target import Target, pass_target
from litequeue.cli.times import Times
from litequeue.model import Scope
from litequeue.sqlite.attending import RunningJob, WorkerInfo

_SHOWN_JOBS = 10
_HEADING = ("HOLDER", "PID", "HOST", "SINCE", "STATE", "RUNNING", "KINDS")
_HOST, _KINDS = 2, 6
_KIND = 1
_LEAST_TOLD = 16
"""As much of what a job tells of itself has room before its kind has: how far it is."""
_LIVES = {True: "alive", False: click.style("dead", fg="red"), None: "unknown"}


@click.command(
    cls=Command,
    epilog="""
litequeue --db app.queue workers
litequeue --db app.queue workers --json
""",
)
@click.option("--json", "as_json", is_flag=True, help="A JSON list; its times are µs since the epoch, UTC.")
@pass_target
def workers(target: Target, *, as_json: bool) -> None:
    """List who works on the file, and the jobs that each runs.

    That is each open handle that has leased a job, or waits for one as a worker does, alive or dead by what the system
    tells of its process (unknown where it does not). The dead are there until maintenance has taken their jobs back.
    KINDS are those of the jobs that run just now.
    """
    with target.queue() as queue:
        found, home = queue.workers(), queue.scope
    if as_json:
        click.echo(dumps([_worker_form(worker) for worker in found]))
        return
    for line in _lines(found, Times.now(utc=False), home):
        click.echo(line)
    tell_empty(found, "nobody works on the file")


def _lines(found: Sequence[WorkerInfo], times: Times, home: Scope) -> Iterator[str]:
    """Return a heading, and for each worker a line and one for each of its first jobs; nothing when there is none."""
    if not found:
        return
    heading, *rows = table([_HEADING, *(_cells(worker, times) for worker in found)], names=[_HOST, _KINDS])
    shown = [worker.jobs[:_SHOWN_JOBS] for worker in found]
    rows_of_jobs = [_job_cells(job, times, home) for of_worker in shown for job in of_worker]
    jobs = table(rows_of_jobs, names=[_KIND], least_last=_LEAST_TOLD)
    yield heading
    for worker, row, of_worker in zip(found, rows, shown, strict=True):
        yield row
        for _ in of_worker:
            yield cut(next(jobs))
        if worker.running > len(of_worker):
            yield f"  and {worker.running - len(of_worker):,} more"


def _cells(worker: WorkerInfo, times: Times) -> list[str]:
    return [
        str(worker.holder),
        str(worker.pid),
        plain(worker.host),
        times.distance(worker.since),
        _LIVES[worker.is_alive],
        f"{worker.running:,}",
        plain(", ".join(worker.kinds)) or NOTHING,
    ]


def _job_cells(job: RunningJob, times: Times, home: Scope) -> list[str]:
    scope = "" if job.scope == home else f"in {scope_text(job.scope)} "
    told = one_line(f"{scope}{' '.join(how_far(job))}")
    return [f"  {job.job_id}", plain(job.kind), times.distance(job.leased_at), told]


def _worker_form(worker: WorkerInfo) -> dict[str, Json]:
    form = {field.name: jsonable(getattr(worker, field.name)) for field in fields(worker) if field.name != "jobs"}
    jobs: list[Json] = [
        {field.name: jsonable(getattr(job, field.name)) for field in fields(job)} for job in worker.jobs
    ]
    return form | {"kinds": jsonable(worker.kinds), "jobs": jobs}
