"""`schedule`: declare, look at, hold and fire schedules.

Owns: how a schedule is written for a person and as JSON. Leaves out: what a spec means, and when it fires.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from itertools import islice

import click

from litequeue import Schedule, arguments, boundaries, run_schedules, schedules
from litequeue.cli.asides import tell_empty
from litequeue.cli.commands import Group
from litequeue.cli.input import duration_option, new_kind, one_scope, payload, scope_options
from litequeue.cli.jsonable import Json, dumps, jsonable, readable
from litequeue.cli.layout import wide_or_narrow
from litequeue.cli.output import plain, warn
from litequeue.cli.running import signals
from litequeue.cli.target import Target, pass_target
from litequeue.cli.times import Times, utc_option
from litequeue.errors import ScheduleNotFound
from litequeue.model import Misfire

_MOST_SHOWN = 1000


@click.group(
    cls=Group,
    epilog="litequeue --db app.queue schedule ls",
)
def schedule() -> None:
    """Enqueue jobs again and again: schedules."""


@schedule.command(
    epilog="""
litequeue --db app.queue schedule add tick '@every 5m' work:tick
litequeue --db app.queue schedule add report '30 2 * * mon' report:week --timezone Europe/Berlin
""",
)
@click.argument("name")
@click.argument("spec")
@click.argument("kind", type=new_kind)
@click.argument("payload_json", metavar="[PAYLOAD]", required=False)
@click.option("--timezone", metavar="ZONE", default="UTC", show_default=True, help="Of cron fields: an IANA name.")
@click.option(
    "--misfire",
    type=click.Choice(["all", "latest", "skip"]),
    default="all",
    show_default=True,
    help="What becomes of boundaries that are found more than a minute late.",
)
@scope_options(many=False)
@click.option("--priority", type=int, default=100, show_default=True, help="0 to 255; lower is sooner.")
@click.option("--max-attempts", metavar="N", type=int, help="Instead of what the settings say.")
@click.option("--expires", metavar="DURATION", type=duration_option, help="Dead if not started within so long.")
@pass_target
def add(
    target: Target,
    *,
    name: str,
    spec: str,
    kind: str,
    payload_json: str | None,
    timezone: str,
    misfire: Misfire,
    scope: str | None,
    system: bool,
    priority: int,
    max_attempts: int | None,
    expires: float | None,
) -> None:
    """Declare a schedule, or change the one of that name.

    Prints when it fires next. SPEC is '@every 90s' (s, m, h or d, from 1 s on), five cron fields, or @hourly,
    @daily, @weekly, @monthly or @yearly. With the same SPEC and zone as before it keeps its next boundary. PAYLOAD
    is JSON; `-` reads it from standard input.
    """
    where = one_scope(scope, system=system)
    value = payload(payload_json)
    with target.queue() as queue:
        made = queue.schedule(
            name,
            spec,
            kind,
            value,
            scope=where,
            priority=priority,
            max_attempts=max_attempts,
            expires=expires,
            timezone=timezone,
            misfire=misfire,
        )
    click.echo(f"next at {_moment(made.boundary)}")


@schedule.command(
    "ls",
    epilog="litequeue --db app.queue schedule ls --json",
)
@utc_option
@click.option("--json", "as_json", is_flag=True, help="A JSON list; boundaries are ISO 8601, other times µs, UTC.")
@pass_target
def list_schedules(target: Target, *, utc: bool, as_json: bool) -> None:
    """List schedules, by name. Times are by the clock here, unless --utc is given."""
    with target.queue() as queue:
        found = queue.schedules()
    if as_json:
        click.echo(dumps([_form(one) for one in found]))
        return
    for line in _lines(found, Times.now(utc=utc)):
        click.echo(line)
    tell_empty(found, "there is no schedule")


@schedule.command(
    epilog="litequeue --db app.queue schedule rm nightly",
)
@click.argument("name")
@pass_target
def rm(target: Target, *, name: str) -> None:
    """Remove a schedule; the jobs that it has made stay."""
    with target.queue() as queue:
        queue.unschedule(name)
    click.echo(f"removed {plain(name)}")


@schedule.command(
    epilog="litequeue --db app.queue schedule pause nightly",
)
@click.argument("name")
@pass_target
def pause(target: Target, *, name: str) -> None:
    """Make no jobs at its boundaries until `resume`."""
    with target.queue() as queue:
        queue.pause_schedule(name)
    click.echo(f"paused {plain(name)}")


@schedule.command(
    epilog="litequeue --db app.queue schedule resume nightly",
)
@click.argument("name")
@pass_target
def resume(target: Target, *, name: str) -> None:
    """Go on with its next boundary from now.

    Those that came meanwhile are not made up for.
    """
    with target.queue() as queue:
        queue.resume_schedule(name)
    click.echo(f"resumed {plain(name)}")


@schedule.command(
    "next",
    epilog="litequeue --db app.queue schedule next nightly -n 5",
)
@click.argument("name")
@click.option(
    "-n", "count", metavar="N", type=click.IntRange(1, _MOST_SHOWN), default=1, show_default=True, help="How many."
)
@click.option("--json", "as_json", is_flag=True, help="A JSON list of ISO 8601 times.")
@pass_target
def next_boundaries(target: Target, *, name: str, count: int, as_json: bool) -> None:
    """Show when a schedule fires next, in its time zone and in UTC."""
    with target.queue() as queue:
        found = next((one for one in queue.schedules() if one.name == name), None)
    if found is None:
        raise ScheduleNotFound(name)
    zone = schedules.zone(found.timezone)
    shown = [moment.astimezone(zone).isoformat() for moment in islice(_boundaries(found), count)]
    if found.is_paused:
        warn(f"{name} is paused: these are its boundaries from where it was")
    if as_json:
        click.echo(dumps(jsonable(shown)))
        return
    for text in shown:
        click.echo(f"{text}  {_moment(datetime.fromisoformat(text))}")


@schedule.command(
    epilog="litequeue --db app.queue schedule now nightly",
)
@click.argument("name")
@pass_target
def now(target: Target, *, name: str) -> None:
    """Enqueue one job of a schedule at once, and print its id.

    Its boundaries stay as they are.
    """
    with target.queue() as queue:
        made = queue.run_now(name)
    click.echo(str(made.job_id))


@schedule.command(
    epilog="litequeue --db app.queue schedule run",
)
@pass_target
def run(target: Target) -> None:
    """Fire schedules, and do nothing else, until told to stop.

    `maintain` and workers do this too. SIGTERM or Ctrl-C ends it, with status 0. Of several on one file one works, the
    others stand by and take over when it dies. Status 1 also says that the lock file by which it led was taken away.
    """
    stop = threading.Event()
    with signals() as told, target.queue() as queue:
        told.heed(partial(run_schedules, queue, stop), stop.set)


def _boundaries(found: Schedule) -> Iterator[datetime]:
    """Return the boundaries of a schedule from the next one on."""
    rule = schedules.rule(found.spec, found.timezone)
    at = arguments.moment_us("boundary", found.boundary)
    while (moment := boundaries.moment(at)) is not None:
        yield moment
        at = rule.after(at, at)


def _form(one: Schedule) -> dict[str, Json]:
    """Return a schedule by the names of its fields."""
    hidden = ("encoded_payload", "decoder")
    form = {field.name: jsonable(getattr(one, field.name)) for field in fields(one) if field.name not in hidden}
    form["payload"] = readable(lambda: jsonable(one.payload))
    return form


def _lines(found: Sequence[Schedule], times: Times) -> Iterator[str]:
    """Return a heading and a line for each; nothing when there is none. A narrow terminal has how far times are."""
    if not found:
        return
    forms: list[list[list[str]]] = []
    for zone, text in ((times.zone, times.short), ("", times.distance)):
        heading = ["NAME", "SPEC", "ZONE", "KIND", f"NEXT{zone}", f"LAST{zone}", "FIRED", "SKIPPED"]
        forms.append([heading, *(_cells(one, text) for one in found)])
    yield from wide_or_narrow(*forms, names=[0, 1, 2, 3])


def _cells(one: Schedule, text: Callable[[int | None], str]) -> list[str]:
    upcoming = "paused" if one.is_paused else text(arguments.moment_us("boundary", one.boundary))
    last = None if one.last_boundary is None else arguments.moment_us("boundary", one.last_boundary)
    names = map(plain, (one.name, one.spec, one.timezone, one.kind))
    return [*names, upcoming, text(last), str(one.fired), str(one.skipped)]


def _moment(moment: datetime) -> str:
    """Write a time in UTC, to the second, with what is below that only where there is something."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
