"""`outbox`: the messages that could not be delivered, and what is to become of them.

Leaves out: their delivery, which is a program's own (`Outbox.deliver`), and to have one tried again (`jobs retry`).
"""

from __future__ import annotations

import click

from litequeue import InvalidTransition, JobNotFound, Outbox
from litequeue.cli.asides import tell_empty
from litequeue.cli.commands import Group
from litequeue.cli.failures import fail_quietly
from litequeue.cli.ids import GivenId, given_id, whole_ids
from litequeue.cli.jsonable import dumps, job_form
from litequeue.cli.listing import listing_lines
from litequeue.cli.output import count_of, warn
from litequeue.cli.target import Target, pass_target
from litequeue.cli.times import Times, utc_option


@click.group(
    cls=Group,
    epilog="litequeue --db app.queue outbox dead orders",
)
def outbox() -> None:
    """Look after messages that could not be delivered."""


@outbox.command(
    epilog="""
litequeue --db app.queue outbox dead orders
litequeue --db app.queue jobs retry 0190a0c5-7b5e-7000-8000-000000000001
""",
)
@click.argument("name", metavar="NAME")
@click.option("--limit", metavar="N", type=int, default=100, show_default=True, help="At most so many; 1 to 10,000.")
@utc_option
@click.option("--json", "as_json", is_flag=True, help="A JSON list, each message as `jobs show --json` has its job.")
@pass_target
def dead(target: Target, *, name: str, limit: int, utc: bool, as_json: bool) -> None:
    """List the dead messages of an outbox: each holds its key back.

    `jobs retry` has one delivered again, `outbox discard` gives it up.
    """
    with target.queue() as queue:
        page = Outbox(queue, name).dead(limit)
    if as_json:
        click.echo(dumps([job_form(job) for job in page]))
        return
    for line in listing_lines(page, Times.now(utc=utc), with_scope=False):
        click.echo(line)
    tell_empty(page, f"no message of {name} is dead")
    if len(page) == limit:
        warn("there may be more")


@outbox.command(
    epilog="litequeue --db app.queue outbox discard orders 0190a0c5-7b5e-7000-8000-000000000001",
)
@click.argument("name", metavar="NAME")
@click.argument("given", metavar="ID...", nargs=-1, required=True, type=given_id)
@pass_target
def discard(target: Target, *, name: str, given: tuple[GivenId, ...]) -> None:
    """Give up messages; the next ones of their keys have their turn.

    Only those that are not delivered. ID may be the beginning of an id that no other job has; one that waits behind
    another of its key needs the whole of its own. One that is refused gets a line on standard error, and the status is
    then 1.
    """
    refused = 0
    with target.queue() as queue:
        distinct = whole_ids(queue, given)
        of_name = Outbox(queue, name)
        for message_id in distinct:
            try:
                of_name.discard(message_id)
            except (JobNotFound, InvalidTransition) as exc:
                warn(str(exc))
                refused += 1
    said = f"{count_of(len(distinct) - refused, 'message')} discarded"
    click.echo(said + (f", {refused} refused" if refused else ""))
    if refused:
        fail_quietly()
