"""`jobs`: look at jobs, run them again, stop them, change where they wait.

Owns: what is asked of them, and how a page or one of them is shown. Leaves out: the work on many (`acting`), and dead
letters by their cause (`dead`).
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from uuid import UUID

import click

from litequeue import InvalidTransition, JobNotFound, JobState, Queue, rules
from litequeue.cli.acting import Which, act, in_steps, older_than_option, purge_many, which_options, yes_option
from litequeue.cli.asides import remarks, tell
from litequeue.cli.carrying import export_jobs, import_jobs
from litequeue.cli.commands import Group
from litequeue.cli.failures import Misuse
from litequeue.cli.ids import GivenId, given_id, whole_id, whole_ids
from litequeue.cli.input import (
    duration_option,
    exclude_each_other,
    kind_option,
    many_scopes,
    moment_option,
    scope_options,
)
from litequeue.cli.jsonable import dumps, job_form, shown_form
from litequeue.cli.listing import gone_of, listing_lines, missing_of
from litequeue.cli.output import warn
from litequeue.cli.showing import Seen, job_lines
from litequeue.cli.target import Target, pass_target
from litequeue.cli.times import Times, utc_option
from litequeue.rules import Verb

_LATER = [JobState.RETRYABLE, JobState.SCHEDULED, JobState.WAITING]
"""What is to run at some time, or after other jobs."""


@click.group(
    cls=Group,
    epilog="litequeue --db app.queue jobs ls --state dead",
)
def jobs() -> None:
    """Look at jobs, run them again, stop them, change where they wait.

    Wherever a command takes the ID of a job, as much of its beginning will do as no other job has, 4 digits at least.
    """


@jobs.command(
    "ls",
    epilog="""
litequeue --db app.queue jobs ls --state dead --kind ingest: --limit 20
litequeue --db app.queue jobs ls --all-scopes --json
""",
)
@click.option("--state", type=click.Choice([state.name.lower() for state in JobState]), help="Only jobs in this state.")
@kind_option("Only this kind, or with a ':' at its end every kind that begins so.")
@scope_options(many=True)
@click.option("--limit", metavar="N", type=int, default=100, show_default=True, help="At most so many; 1 to 10,000.")
@click.option("--after", metavar="ID", type=given_id, help="Go on after this job: the last one of the page before.")
@utc_option
@click.option("--json", "as_json", is_flag=True, help="A JSON list, each job as `jobs show --json` has it.")
@pass_target
def list_jobs(
    target: Target,
    *,
    state: str | None,
    kind: str | None,
    scope: str | None,
    system: bool,
    all_scopes: bool,
    limit: int,
    after: GivenId | None,
    utc: bool,
    as_json: bool,
) -> None:
    """List jobs.

    They come in the order of scope, state, priority and enqueueing. Times are by the clock here, unless --utc is given.
    """
    where = many_scopes(scope, system=system, all_scopes=all_scopes)
    wanted = None if state is None else JobState[state.upper()]
    with target.queue() as queue:
        page = queue.list(wanted, kind, where, limit, None if after is None else queue.get(whole_id(queue, after)))
        missing, gone = ({}, set[int]()) if as_json else (missing_of(queue, page), gone_of(queue, page))
        beside = remarks(queue, where, page, "no such job")
    if as_json:
        click.echo(dumps([job_form(job) for job in page]))
        return
    for line in listing_lines(page, Times.now(utc=utc), with_scope=all_scopes, missing=missing, gone=gone):
        click.echo(line)
    tell(beside)
    if len(page) == limit:
        warn(f"there may be more: --after {page[-1].job_id}")


@jobs.command(
    epilog="litequeue --db app.queue jobs show 0190a0c5-7b5e-7000-8000-000000000001",
)
@click.argument("given", metavar="ID", type=given_id)
@utc_option
@click.option("--json", "as_json", is_flag=True, help="A JSON object; its times are µs since the epoch, UTC.")
@pass_target
def show(target: Target, *, given: GivenId, utc: bool, as_json: bool) -> None:
    """Show one job: its fields, what holds it back, its event log.

    ID may be the beginning of an id that no other job has.
    """
    with target.queue() as queue:
        seen = Seen.of(queue, whole_id(queue, given))
    if as_json:
        click.echo(dumps(shown_form(seen.job, seen.dependencies)))
        return
    for line in job_lines(seen, Times.now(utc=utc)):
        click.echo(line)


@jobs.command(
    epilog="""
litequeue --db app.queue jobs retry 0190a0c5-7b5e-7000-8000-000000000001
litequeue --db app.queue jobs retry --state dead --kind mail:
""",
)
@which_options(state for state in JobState if rules.may_act(Verb.RETRY, state))
@pass_target
def retry(target: Target, *, which: Which) -> None:
    """Run jobs again.

    Finished ones start anew, with their attempts back at 0; delayed ones, and those that wait for others, go now. Works
    in steps of a hundred jobs. A job that is refused gets a line on standard error, and the status is then 1.
    """
    with target.queue() as queue:
        act(which.steps(queue), queue.retry_many, "retried")


@jobs.command(
    "run-now",
    epilog="""
litequeue --db app.queue jobs run-now 0190a0c5-7b5e-7000-8000-000000000001
litequeue --db app.queue jobs run-now --state scheduled --kind mail:
""",
)
@which_options(_LATER)
@pass_target
def run_now(target: Target, *, which: Which) -> None:
    """Let jobs go now that are to run later.

    Delayed ones, those that wait out their back-off, and those that wait for other jobs. As `jobs retry`, but never a
    finished one. Works in steps of a hundred jobs. A job that is refused gets a line on standard error, and the status
    is then 1.
    """
    with target.queue() as queue:
        act(which.steps(queue), partial(_run_now, queue), "ready now")


def _run_now(queue: Queue, job_ids: list[UUID]) -> list[Exception]:
    """Let those go that wait; in one transaction, so that none ends between the look and the word."""
    with queue.transaction() as tx:
        refused: list[Exception] = []
        later: list[UUID] = []
        for job_id in job_ids:
            try:
                state = tx.get(job_id).state
            except JobNotFound as exc:
                refused.append(exc)
                continue
            if state in _LATER:
                later.append(job_id)
            else:
                refused.append(InvalidTransition(job_id, state.name.lower(), "run", ", and not to run later"))
        return [*refused, *tx.retry_many(later)]


@jobs.command(
    epilog="litequeue --db app.queue jobs cancel 0190a0c5-7b5e-7000-8000-000000000001",
)
@click.argument("given", metavar="ID...", nargs=-1, required=True, type=given_id)
@pass_target
def cancel(target: Target, *, given: tuple[GivenId, ...]) -> None:
    """Stop jobs that wait or run.

    The holder of a running one is refused from then on. A job that is refused gets a line on standard error, and the
    status is then 1.
    """
    with target.queue() as queue:
        act(in_steps(whole_ids(queue, given)), queue.cancel_many, "cancelled")


@jobs.command(
    epilog="""
litequeue --db app.queue jobs edit 0190a0c5-7b5e-7000-8000-000000000001 --priority 10
litequeue --db app.queue jobs edit 0190a0c5-7b5e-7000-8000-000000000001 --delay 2h
""",
)
@click.argument("given", metavar="ID...", nargs=-1, required=True, type=given_id)
@click.option("--priority", metavar="N", type=int, help="0 to 255; lower is sooner, 100 is what jobs have by default.")
@click.option("--delay", metavar="DURATION", type=duration_option, help="Not before so long from now.")
@click.option("--run-at", metavar="TIME", type=moment_option, help="Not before this ISO 8601 time with a zone.")
@pass_target
def edit(
    target: Target,
    *,
    given: tuple[GivenId, ...],
    priority: int | None,
    delay: float | None,
    run_at: datetime | None,
) -> None:
    """Change the priority of jobs that wait, or when they are due.

    Everything else stays: a job with a new priority goes ahead of those that have it and were enqueued later. To let a
    job go now is `jobs run-now`. A job that is refused gets a line on standard error, and the status is then 1.
    """
    if priority is None and delay is None and run_at is None:
        raise Misuse("nothing to change: give --priority, --delay or --run-at")
    exclude_each_other(delay=delay, run_at=run_at)
    change = partial(Queue.edit_many, priority=priority, delay=delay, run_at=run_at)
    with target.queue() as queue:
        act(in_steps(whole_ids(queue, given)), partial(change, queue), "edited")


@jobs.command(
    epilog="""
litequeue --db app.queue jobs purge --state completed --older-than 7d --yes
litequeue --db app.queue jobs purge --state dead --kind mail: --yes
""",
)
@which_options(state for state in JobState if rules.may_act(Verb.REMOVE, state))
@older_than_option
@yes_option
@pass_target
def purge(target: Target, *, which: Which, yes: bool) -> None:
    """Remove finished jobs for good, before their retention is over.

    Works in steps of a hundred jobs. A completed job whose idempotency key still counts is refused, and stays until its
    window is over; messages of an outbox are given up with `outbox discard`. A job that is refused gets a line on
    standard error, and the status is then 1.
    """
    purge_many(target, which, yes=yes)


for _command in (export_jobs, import_jobs):
    jobs.add_command(_command)
