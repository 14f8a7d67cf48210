"""`pause`, `resume` and `pauses`: what is not leased for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import click

from litequeue.cli.asides import tell_empty
from litequeue.cli.commands import Command
from litequeue.cli.failures import Misuse, nothing_to_do
from litequeue.cli.input import kind_option, many_scopes, scope_options
from litequeue.cli.jsonable import Json, dumps, jsonable
from litequeue.cli.layout import table
from litequeue.cli.output import plain, scope_text, warn
from litequeue.cli.target import Target, pass_target
from litequeue.cli.times import Times, utc_option
from litequeue.model import ANY, Pause, Scope, SpecialScope

P = ParamSpec("P")
R = TypeVar("R")


def _place_options(command: Callable[P, R]) -> Callable[P, R]:
    return kind_option("This kind, or with a ':' at its end every kind that begins so.")(
        scope_options(many=True, default="every scope")(command)
    )


def _place(
    kind: str | None, scope: str | None, *, system: bool, all_scopes: bool
) -> tuple[str | None, Scope | SpecialScope | None]:
    where = many_scopes(scope, system=system, all_scopes=all_scopes)
    if kind is None and where is None:
        raise Misuse("give --kind, --scope or --system, or --all-scopes for the whole file")
    return kind, where


@click.command(
    cls=Command,
    epilog="""
litequeue --db app.queue pause --kind mail:
litequeue --db app.queue pause --scope tenant-7
""",
)
@_place_options
@pass_target
def pause(target: Target, *, kind: str | None, scope: str | None, system: bool, all_scopes: bool) -> None:
    """Lease no more jobs of a kind, a scope or both.

    It holds for every worker, until `resume`. Jobs that are leased go on, and new ones may be enqueued.
    """
    paused, where = _place(kind, scope, system=system, all_scopes=all_scopes)
    with target.queue() as queue:
        queue.pause(paused, scope=where)
    click.echo(f"paused {_told(paused, where)}")


@click.command(
    cls=Command,
    epilog="""
litequeue --db app.queue resume --kind mail:
litequeue --db app.queue resume --scope tenant-7
""",
)
@_place_options
@pass_target
def resume(target: Target, *, kind: str | None, scope: str | None, system: bool, all_scopes: bool) -> None:
    """Take back a pause, given with the same options as `pause`.

    Ends with status 3 when there is no such pause; `pauses` shows those that there are.
    """
    paused, where = _place(kind, scope, system=system, all_scopes=all_scopes)
    with target.queue() as queue:
        is_done = queue.resume(paused, scope=where)
    if not is_done:
        warn(f"there is no pause of {_told(paused, where)}: `pauses` lists those that there are")
        nothing_to_do()
    click.echo(f"resumed {_told(paused, where)}")


@click.command(
    cls=Command,
    epilog="litequeue --db app.queue pauses",
)
@utc_option
@click.option("--json", "as_json", is_flag=True, help="A JSON list; its times are µs since the epoch, UTC.")
@pass_target
def pauses(target: Target, *, utc: bool, as_json: bool) -> None:
    """List what is paused, and since when."""
    with target.queue() as queue:
        found = queue.pauses()
    if as_json:
        click.echo(dumps([_form(pause) for pause in found]))
        return
    times = Times.now(utc=utc)
    rows = [(scope_text(pause.scope), plain(pause.kind or "(all)"), times.full(pause.since)) for pause in found]
    for line in table([("SCOPE", "KIND", "SINCE"), *rows], names=(0, 1)) if rows else ():
        click.echo(line)
    tell_empty(rows, "nothing is paused")


def _told(kind: str | None, scope: Scope | SpecialScope | None) -> str:
    """Write what a pause holds back; without a scope it does so in every one."""
    place = "all scopes" if scope is None or scope is ANY else f"scope {scope_text(scope)}"
    return f"{'every kind' if kind is None else plain(kind)} in {place}"


def _form(pause: Pause) -> Json:
    is_everywhere = pause.scope is ANY
    scope = None if is_everywhere else jsonable(pause.scope)
    return {"scope": scope, "all_scopes": is_everywhere, "kind": pause.kind, "since": pause.since}
