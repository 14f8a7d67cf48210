"""`dead`: dead letters and what they died of.

Leaves out: everything that `jobs` does to jobs in other states, by the same work (`acting`), and the counting of what
they died of (`sqlite.causes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from litequeue import Job, JobState, Queue
from litequeue.cli.acting import Which, act, older_than_option, purge_many, which_jobs, yes_option
from litequeue.cli.asides import remarks, tell
from litequeue.cli.commands import Group
from litequeue.cli.failures import Failure, Misuse, fail_quietly
from litequeue.cli.ids import GivenId, given_id, whole_id
from litequeue.cli.input import kind_option, many_scopes, scope_options
from litequeue.cli.jsonable import Json, dumps, job_form, shown_form
from litequeue.cli.layout import described
from litequeue.cli.listing import listing_lines
from litequeue.cli.output import one_line, plain, warn
from litequeue.cli.showing import Seen, job_lines
from litequeue.cli.target import Target, pass_target
from litequeue.cli.times import Times, utc_option
from litequeue.model import ANY, Scope, SpecialScope, storable_scope
from litequeue.sqlite.causes import Cause
from litequeue.sqlite.walks import whole

_ERROR_CHARS = 200
"""Of the first line of an error, in a file or a pipe; they are told apart by the whole line."""
_OF_KIND = "Only this kind, or every kind that begins so ('area:')."


@click.group(cls=Group, epilog="litequeue --db app.queue dead ls --by-error")
def dead() -> None:
    """Look after dead letters: jobs that will not be tried again."""


@dead.command(
    "ls",
    epilog="""
litequeue --db app.queue dead ls --by-error
litequeue --db app.queue dead ls --kind ingest: --all-scopes --json
""",
)
@kind_option(_OF_KIND)
@scope_options(many=True)
@click.option("--by-error", is_flag=True, help="A line for each kind and error, with how many have died of it.")
@click.option("--limit", metavar="N", type=int, default=100, show_default=True, help="At most so many; 1 to 10,000.")
@utc_option
@click.option("--json", "as_json", is_flag=True, help="A JSON list: jobs as `jobs show --json` has them, or causes.")
@pass_target
def list_dead(
    target: Target,
    *,
    kind: str | None,
    scope: str | None,
    system: bool,
    all_scopes: bool,
    by_error: bool,
    limit: int,
    utc: bool,
    as_json: bool,
) -> None:
    """List dead letters, or with --by-error what they have died of.

    Errors are the same when their first lines are; to count them every dead letter is read, and --limit counts lines.
    When --db is given several times, before the command, all these files are listed, up to --limit of each; one that
    cannot be read has a line on standard error, and the status is then 1.
    """
    where = many_scopes(scope, system=system, all_scopes=all_scopes)
    times = Times.now(utc=utc)

    def look(queue: Queue) -> _Dead:
        page = queue.list(JobState.DEAD, kind, where, limit)
        causes = _causes(queue, kind, where)[:limit] if by_error and page else []
        return _Dead(
            page, causes, remarks(queue, where, page, f"nothing{'' if kind is None else f' of {kind}'} is dead")
        )

    looked = target.look(look)
    if as_json:
        forms: list[dict[str, Json]] = []
        for path, one in looked.found.items():
            named: dict[str, Json] = {"db": path} if target.is_several else {}
            forms += [
                named | (_form(each) if isinstance(each, Cause) else job_form(each)) for each in one.shown(by_error)
            ]
        click.echo(dumps([*forms]))
    else:
        for path, one in looked.found.items():
            prefix = f"{plain(path)}: " if target.is_several else ""
            if prefix and one.page:
                click.echo(prefix.rstrip())
            scoped = listing_lines(one.page, times, with_scope=all_scopes)
            for line in _cause_lines(one.causes, times) if by_error else scoped:
                click.echo(line)
            tell([f"{prefix}{remark}" for remark in one.remarks])
        if any(len(one.shown(by_error)) == limit for one in looked.found.values()):
            warn(f"there may be more: raise --limit{'' if by_error else ', or look at the errors with --by-error'}")
    if not looked.is_whole:
        fail_quietly()


class _Dead(NamedTuple):
    """What is dead in a file."""

    page: Sequence[Job]
    causes: Sequence[Cause]
    remarks: Sequence[str]

    def shown(self, by_error: bool) -> Sequence[Job | Cause]:
        return self.causes if by_error else self.page


@dead.command(
    epilog="litequeue --db app.queue dead show 0190a0c5-7b5e-7000-8000-000000000001",
)
@click.argument("given", metavar="ID", type=given_id)
@utc_option
@click.option("--json", "as_json", is_flag=True, help="A JSON object; its times are µs since the epoch, UTC.")
@pass_target
def show(target: Target, *, given: GivenId, utc: bool, as_json: bool) -> None:
    """Show one dead letter, as `jobs show` does.

    Its error is under `last_error`, what led to it in its event log. A job that is not dead is an error, with status 1.
    """
    with target.queue() as queue:
        seen = Seen.of(queue, whole_id(queue, given, JobState.DEAD))
    if seen.job.state is not JobState.DEAD:
        raise Failure(f"job {seen.job.job_id} is not dead: it is {seen.job.state}")
    if as_json:
        click.echo(dumps(shown_form(seen.job, seen.dependencies)))
        return
    for line in job_lines(seen, Times.now(utc=utc)):
        click.echo(line)


@dead.command(
    epilog="""
litequeue --db app.queue dead retry 0190a0c5-7b5e-7000-8000-000000000001
litequeue --db app.queue dead retry --all --kind mail:
""",
)
@click.argument("given", metavar="[ID]...", nargs=-1, type=given_id)
@click.option("--all", "everything", is_flag=True, help="Every dead letter, instead of ids.")
@kind_option(f"With --all: {_OF_KIND[0].lower()}{_OF_KIND[1:]}")
@scope_options(many=True)
@pass_target
def retry(
    target: Target,
    *,
    given: tuple[GivenId, ...],
    everything: bool,
    kind: str | None,
    scope: str | None,
    system: bool,
    all_scopes: bool,
) -> None:
    """Run dead letters again, with their attempts back at 0.

    Works in steps of a hundred jobs. A job that is refused gets a line on standard error, and the status is then 1.
    """
    which = _which(given, kind, scope, everything=everything, system=system, all_scopes=all_scopes)
    with target.queue() as queue:
        act(which.steps(queue), queue.retry_many, "retried")


@dead.command(
    epilog="litequeue --db app.queue dead purge --all --kind mail: --older-than 30d --yes",
)
@click.argument("given", metavar="[ID]...", nargs=-1, type=given_id)
@click.option("--all", "everything", is_flag=True, help="Every dead letter, instead of ids.")
@kind_option(f"With --all: {_OF_KIND[0].lower()}{_OF_KIND[1:]}")
@scope_options(many=True)
@older_than_option
@yes_option
@pass_target
def purge(
    target: Target,
    *,
    given: tuple[GivenId, ...],
    everything: bool,
    kind: str | None,
    scope: str | None,
    system: bool,
    all_scopes: bool,
    older_than: float | None,
    yes: bool,
) -> None:
    """Remove dead letters for good.

    Works in steps of a hundred jobs. A job that is refused gets a line on standard error, and the status is then 1.
    """
    which = _which(
        given, kind, scope, everything=everything, system=system, all_scopes=all_scopes, older_than=older_than
    )
    purge_many(target, which, yes=yes)


def _which(
    given: tuple[GivenId, ...],
    kind: str | None,
    scope: str | None,
    *,
    everything: bool,
    system: bool,
    all_scopes: bool,
    older_than: float | None = None,
) -> Which:
    if bool(given) == everything:
        raise Misuse("give the ids of dead letters, or --all")
    state = "dead" if everything else None
    return which_jobs(
        given, state, kind, scope, system=system, all_scopes=all_scopes, older_than=older_than, among=JobState.DEAD
    )


def _causes(queue: Queue, kind: str | None, scope: Scope | SpecialScope | None) -> list[Cause]:
    """Return what dead letters have died of, the most frequent first."""
    place = queue.scope if scope is None else scope
    return whole(queue.surveyor().causes(None if place is ANY else storable_scope(place), kind))


def _cause_lines(causes: Sequence[Cause], times: Times) -> Iterator[str]:
    if not causes:
        return
    heading = ["JOBS", "KIND", "LAST", "LAST JOB"]
    rows = [
        [
            str(cause.jobs),
            plain(cause.kind),
            times.distance(cause.last_finished_at),
            str(cause.last_job_id),
            one_line(cause.error),
        ]
        for cause in causes
    ]
    yield from described([[*heading, "ERROR"], *rows], [[*heading, ""], *rows], names=[1], most_chars=_ERROR_CHARS)


def _form(cause: Cause) -> dict[str, Json]:
    return {
        "kind": cause.kind,
        "error": cause.error,
        "jobs": cause.jobs,
        "last_finished_at": cause.last_finished_at,
        "last_job_id": str(cause.last_job_id),
    }
