"""`settings`: what every process that uses the file agrees on.

Owns: the reading of a value's text by the form of its setting. Leaves out: names, defaults and bounds, which are the
library's; text that has no form goes there as it is and is refused with the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import click

from litequeue.cli.commands import Group
from litequeue.cli.failures import Misuse
from litequeue.cli.input import kind_option, number, one_scope, seconds
from litequeue.cli.jsonable import Json, dumps, jsonable
from litequeue.cli.layout import table
from litequeue.cli.output import plain, scope_text, setting_text
from litequeue.cli.target import Target, pass_target
from litequeue.model import ANY, Scope, SpecialScope
from litequeue.settings import SPECS, Value, check_name
from litequeue.sqlite.setting_verbs import KindValues

Place = Scope | SpecialScope
P = ParamSpec("P")
R = TypeVar("R")
_FLAGS = {"true": True, "false": False}
_kind_option = kind_option("For one kind, or with a ':' at its end for every kind that begins so.")


def _scope_options(command: Callable[P, R]) -> Callable[P, R]:
    each = click.option(
        "--each-scope", is_flag=True, help="Within each scope by itself, unless it has a value of its own."
    )
    system = click.option("--system", is_flag=True, help="Within the system's own scope, which has no name.")
    one = click.option("--scope", metavar="NAME", help="Within this scope by itself.")
    return one(system(each(command)))


def _where(scope: str | None, *, system: bool, each_scope: bool) -> Place | None:
    if each_scope and (system or scope is not None):
        raise Misuse("--each-scope excludes --scope and --system")
    return ANY if each_scope else one_scope(scope, system=system)


@click.group(
    cls=Group,
    epilog="litequeue --db app.queue settings get",
)
def settings() -> None:
    """Read and change the settings in the file."""


@settings.command(
    epilog="""
litequeue --db app.queue settings get
litequeue --db app.queue settings get lease_ttl --kind ingest:pdf
""",
)
@click.argument("name", required=False)
@_kind_option
@click.option("--json", "as_json", is_flag=True, help="A JSON object of settings, or with NAME its value.")
@pass_target
def get(target: Target, *, name: str | None, kind: str | None, as_json: bool) -> None:
    """Show the settings in force, or one of them.

    Durations are in seconds; `none` is forever or no limit. Without NAME and --kind, what kinds and scopes have of
    their own follows (in JSON, as "kinds" and "scopes").
    """
    if name is not None:
        check_name(name, kind)
    with target.queue() as queue:
        values = queue.settings(kind)
        kinds = {} if kind is not None else queue.kind_settings()
        scopes = {} if kind is not None else queue.scope_settings()
    if name is not None:
        click.echo(dumps(jsonable(values[name])) if as_json else setting_text(values[name]))
        return
    if as_json:
        owns = {} if kind is not None else {"kinds": kinds, "scopes": [_scope_form(*own) for own in _of_scopes(scopes)]}
        click.echo(dumps(jsonable({**values, **owns})))
        return
    rows = [(own, setting_text(value), "") for own, value in values.items()]
    rows += [
        (own, setting_text(value), f"for {plain(of)}") for of, owns in kinds.items() for own, value in owns.items()
    ]
    rows += [_scope_row(*own) for own in _of_scopes(scopes)]
    for line in table(rows):
        click.echo(line)


@settings.command(
    "set",
    context_settings={"ignore_unknown_options": True},  # so that -1 is a value, to be refused as one
    epilog="""
litequeue --db app.queue settings set lease_ttl 10m --kind ingest:
litequeue --db app.queue settings set dead_retention 30d
litequeue --db app.queue settings set concurrency 2 --kind import: --each-scope
litequeue --db app.queue settings set rate 100/5m --kind api:
""",
)
@click.argument("name")
@click.argument("value")
@_kind_option
@_scope_options
@pass_target
def set_value(
    target: Target, *, name: str, value: str, kind: str | None, scope: str | None, system: bool, each_scope: bool
) -> None:
    """Change a setting, for every process at once.

    VALUE is a number; for durations also 30s, 5m, 2h or 1d; for a rate 10/s or 100/5m; `none` for forever or no limit;
    true or false; or a word. Only `concurrency` may be held against a scope by itself.
    """
    check_name(name, kind)
    where = _where(scope, system=system, each_scope=each_scope)
    wanted = _value(name, value)
    with target.queue() as queue:
        queue.set(name, wanted, kind, scope=where)
    click.echo(f"{name} {setting_text(wanted)}{_place_text(kind, where)}")


@settings.command(
    epilog="litequeue --db app.queue settings unset lease_ttl --kind ingest:",
)
@click.argument("name")
@_kind_option
@_scope_options
@pass_target
def unset(target: Target, *, name: str, kind: str | None, scope: str | None, system: bool, each_scope: bool) -> None:
    """Go back to a default, or for a kind to what the file says."""
    check_name(name, kind)
    where = _where(scope, system=system, each_scope=each_scope)
    with target.queue() as queue:
        queue.unset(name, kind, scope=where)
    click.echo(f"{name} unset{_place_text(kind, where)}")


def _value(name: str, text: str) -> Value:
    """Read the text of a value; what has no form is left to the library, which refuses it with the bounds."""
    form = SPECS[name].form
    if form == "flag":
        return _FLAGS.get(text, text)
    if form == "jitter":
        return text
    if text == "none":
        return None
    if form == "rate":
        return text
    try:
        return seconds(text) if form == "seconds" else number(text)
    except ValueError:
        return text


def _of_scopes(scopes: dict[Place, KindValues]) -> Iterator[tuple[Place, str | None, str, Value]]:
    for scope, kinds in scopes.items():
        for kind, owns in kinds.items():
            for name, value in owns.items():
                yield scope, kind, name, value


def _scope_form(scope: Place, kind: str | None, name: str, value: Value) -> Json:
    is_each = scope is ANY
    return {
        "scope": None if is_each else jsonable(scope),
        "each_scope": is_each,
        "kind": kind,
        "name": name,
        "value": value,
    }


def _scope_row(scope: Place, kind: str | None, name: str, value: Value) -> tuple[str, str, str]:
    return name, setting_text(value), _place_text(kind, scope).removeprefix(" ")


def _place_text(kind: str | None, scope: Place | None) -> str:
    """Say for what a setting is, behind its value."""
    of = "" if kind is None else f" for {plain(kind)}"
    if scope is None:
        return of
    return f"{of} in {'each scope' if scope is ANY else f'scope {scope_text(scope)}'}"
