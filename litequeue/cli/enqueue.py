"""`init` and `enqueue`: the commands that create a queue.

Leaves out: the batches in which many jobs from lines are committed (`batches`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from uuid import UUID

import click

from litequeue import NewJob, Queue
from litequeue.cli.batches import Loader
from litequeue.cli.commands import Command
from litequeue.cli.failures import Interrupted, Misuse, nothing_to_do
from litequeue.cli.ids import GivenId, given_id, whole_ids
from litequeue.cli.input import (
    duration_option,
    exclude_each_other,
    moment_option,
    new_kind,
    one_scope,
    payload,
    read_json_bytes,
    scope_options,
    standard_input,
)
from litequeue.cli.output import warn
from litequeue.cli.stepwise import stepwise
from litequeue.cli.target import Target, pass_target
from litequeue.model import OnConflict, OnParentFailure


@click.command(
    cls=Command,
    epilog="litequeue --db app.queue init",
)
@pass_target
def init(target: Target) -> None:
    """Make the queue file, unless it is one already."""
    with target.queue(create=True) as queue:
        click.echo(f"{queue.path} is a queue file")


@click.command(
    cls=Command,
    epilog="""
litequeue --db app.queue enqueue mail:send '{"to": "a@example.org"}' --delay 5m
litequeue --db app.queue enqueue tick --key hourly
litequeue --db app.queue enqueue publish --after 0190a0c5-7b5e-7000-8000-000000000001
seq -f '{"page": %g}' 1000 | litequeue --db app.queue enqueue book:page --lines
""",
)
@click.argument("kind", type=new_kind)
@click.argument("payload_json", metavar="[PAYLOAD]", required=False)
@click.option("--lines", is_flag=True, help="One job a line of standard input; each line is a JSON payload.")
@scope_options(many=False)
@click.option("--priority", type=int, default=100, show_default=True, help="0 to 255; lower is sooner.")
@click.option("--delay", metavar="DURATION", type=duration_option, help="Not before so long from now.")
@click.option("--run-at", metavar="TIME", type=moment_option, help="Not before an ISO 8601 time with its zone.")
@click.option("--expires", metavar="DURATION", type=duration_option, help="Dead if not started within so long.")
@click.option("--max-attempts", metavar="N", type=int, help="Instead of what the settings say.")
@click.option("--key", metavar="TEXT", help="Idempotency key: one active job for each scope, kind and key.")
@click.option(
    "--on-conflict",
    type=click.Choice(["return", "raise", "reset"]),
    default="return",
    show_default=True,
    help="When the key is taken: return that job, fail, or let this one's payload count.",
)
@click.option("--id", "job_id", metavar="UUID", type=click.UUID, help="The job's id, instead of a new one.")
@click.option("--after", metavar="ID", type=given_id, multiple=True, help="Wait until this job has completed (many).")
@click.option(
    "--on-parent-failure",
    type=click.Choice(["cancel", "run"]),
    default="cancel",
    show_default=True,
    help="When a job of --after is dead or cancelled: cancel this one, or take that for an end as well.",
)
@pass_target
def enqueue(
    target: Target,
    *,
    kind: str,
    payload_json: str | None,
    lines: bool,
    scope: str | None,
    system: bool,
    priority: int,
    delay: float | None,
    run_at: datetime | None,
    expires: float | None,
    max_attempts: int | None,
    key: str | None,
    on_conflict: OnConflict,
    job_id: UUID | None,
    after: tuple[GivenId, ...],
    on_parent_failure: OnParentFailure,
) -> None:
    """Put a job at the end of its line, and print its id.

    PAYLOAD is JSON; `-` reads it from standard input, without it the payload is null. For a task of a Tasks it is an
    object of the function's keyword arguments, [args, kwargs], or null for none.

    With --lines, blank lines are skipped, lines are committed as they come, and the number of jobs is printed instead
    of ids; when a line is refused, every job before it is in the queue. Where there was no queue file, one is made, and
    a line on standard error says so.
    """
    exclude_each_other(delay=delay, run_at=run_at)
    if on_conflict != "return" and key is None:
        raise Misuse("--on-conflict goes with --key")
    if on_parent_failure != "cancel" and not after:
        raise Misuse("--on-parent-failure goes with --after")
    where = one_scope(scope, system=system)
    template = NewJob(
        kind,
        None,
        where,
        priority,
        delay,
        run_at,
        expires,
        max_attempts,
        key,
        on_conflict,
        job_id,
        (),
        on_parent_failure,
    )
    if lines:
        if payload_json not in (None, "-"):
            raise Misuse("--lines reads payloads from standard input, so there is no PAYLOAD argument")
        if key is not None or job_id is not None:
            raise Misuse("--key and --id are for one job, --lines is for many")
        with _made_if_absent(target) as queue:
            loader = Loader(queue, "enqueued")
            _enqueue_lines(loader, replace(template, after=whole_ids(queue, after)))
        if not loader.made:
            nothing_to_do()
        return
    job = replace(template, payload=payload(payload_json))
    with _made_if_absent(target) as queue:
        (enqueued,) = queue.enqueue_many((replace(job, after=whole_ids(queue, after)),))
    click.echo(str(enqueued.job_id))
    if not enqueued.created:
        warn(f"job {enqueued.job_id} was there already" + (" and was reset" if on_conflict == "reset" else ""))


@contextmanager
def _made_if_absent(target: Target) -> Iterator[Queue]:
    """Open the queue; of a file that was not there, say at the end that it is now: its name may be a slip."""
    is_new = not Path(target.required_path()).exists()
    with target.queue(create=True) as queue:
        yield queue
    if is_new:
        warn(f"made {queue.path}")


def _enqueue_lines(loader: Loader, template: NewJob) -> None:
    try:
        with stepwise() as told:
            for _ in loader.load(standard_input(), lambda line: replace(template, payload=read_json_bytes(line)), told):
                pass
    except KeyboardInterrupt as exc:
        raise Interrupted(f"interrupted; {loader.told()}") from exc
    click.echo(loader.told())
