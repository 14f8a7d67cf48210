"""`jobs`: look at jobs, run them again, stop them.

Owns: the order of work on many jobs. Invariant: what acts on many does so in bounded transactions, answers for each job
that was refused, and takes up none twice: a page goes on after the last key of the one before, and a job that comes
back keeps its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from uuid import UUID

import click

from litequeue import Job, JobState, Queue, rules
from litequeue.cli.commands import Group
from litequeue.cli.failures import Misuse, fail_quietly, nothing_to_do
from litequeue.cli.ids import GivenId, given_id, whole_id, whole_ids
from litequeue.cli.input import many_scopes, scope_options
from litequeue.cli.jsonable import dependencies_form, dumps, job_form
from litequeue.cli.listing import job_lines, listing_lines
from litequeue.cli.output import count_of, warn
from litequeue.cli.target import Target, pass_target
from litequeue.cli.times import Times, utc_option
from litequeue.model import Scope, SpecialScope
from litequeue.rules import Verb

_STEP = 100
"""Jobs in one transaction, so that none holds the write lock for long."""


@click.group(
    cls=Group,
    epilog="litequeue --db app.queue jobs ls --state dead",
)
def jobs() -> None:
    """Look at jobs, run them again, stop them.

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
@click.option("--kind", metavar="KIND", help="Only this kind, or with a ':' at its end every kind that begins so.")
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
    if as_json:
        click.echo(dumps([job_form(job) for job in page]))
        return
    for line in listing_lines(page, Times.now(utc=utc), with_scope=all_scopes):
        click.echo(line)
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
    """Show one job: every field, and its whole event log.

    ID may be the beginning of an id that no other job has.
    """
    with target.queue() as queue:
        job = queue.get(whole_id(queue, given))
        dependencies = queue.dependencies(job.job_id)
    if as_json:
        chain = {"dependencies": dependencies_form(dependencies)} if dependencies.is_any else {}
        click.echo(dumps(job_form(job) | chain))
        return
    for line in job_lines(job, dependencies, Times.now(utc=utc)):
        click.echo(line)


@jobs.command(
    epilog="""
litequeue --db app.queue jobs retry 0190a0c5-7b5e-7000-8000-000000000001
litequeue --db app.queue jobs retry --state dead --kind mail:
""",
)
@click.argument("given", metavar="[ID]...", nargs=-1, type=given_id)
@click.option(
    "--state",
    type=click.Choice([state.name.lower() for state in JobState if rules.may_act(Verb.RETRY, state)]),
    help="Every job in this state, instead of ids.",
)
@click.option("--kind", metavar="KIND", help="With --state: only this kind, or every kind that begins so ('area:').")
@scope_options(many=True)
@pass_target
def retry(
    target: Target,
    *,
    given: tuple[GivenId, ...],
    state: str | None,
    kind: str | None,
    scope: str | None,
    system: bool,
    all_scopes: bool,
) -> None:
    """Run jobs again.

    Finished ones start anew, with their attempts back at 0; delayed ones, and those that wait for others, go now. Works
    in steps of a hundred jobs. A job that is refused gets a line on standard error, and the status is then 1.
    """
    where = many_scopes(scope, system=system, all_scopes=all_scopes)
    if bool(given) == (state is not None):
        raise Misuse("give the ids of jobs, or --state for all jobs in a state")
    if given and (kind is not None or all_scopes or where is not None):
        raise Misuse("--kind and scopes go with --state; an id needs none")
    with target.queue() as queue:
        steps = (
            _steps(whole_ids(queue, given)) if state is None else _pages(queue, JobState[state.upper()], kind, where)
        )
        _act(steps, queue.retry_many, "retried")


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
        _act(_steps(whole_ids(queue, given)), queue.cancel_many, "cancelled")


def _steps(job_ids: Sequence[UUID]) -> Iterator[list[UUID]]:
    for start in range(0, len(job_ids), _STEP):
        yield [*job_ids[start : start + _STEP]]


def _pages(queue: Queue, state: JobState, kind: str | None, scope: Scope | SpecialScope | None) -> Iterator[list[UUID]]:
    after: Job | None = None
    while page := queue.list(state, kind, scope, _STEP, after):
        after = page[-1]
        yield [job.job_id for job in page]


def _act(steps: Iterable[list[UUID]], verb: Callable[[list[UUID]], Sequence[Exception]], done: str) -> None:
    """Apply a verb step by step; tell who was refused at once, and at the end, however it comes, how many were not."""
    tried = refused = 0
    try:
        for step in steps:
            refusals = verb(step)
            tried += len(step)
            refused += len(refusals)
            for refusal in refusals:
                warn(str(refusal))
    except BaseException:
        if tried:
            click.echo(_tally(tried, refused, done))
        raise
    click.echo(_tally(tried, refused, done))
    if refused:
        fail_quietly()
    if not tried:
        nothing_to_do()


def _tally(tried: int, refused: int, done: str) -> str:
    return f"{count_of(tried - refused, 'job')} {done}" + (f", {refused} refused" if refused else "")
