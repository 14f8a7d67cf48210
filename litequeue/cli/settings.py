"""`settings`: what every process that uses the file agrees on.

Owns: the reading of a value's text by the form of its setting. Leaves out: names, defaults and bounds, which are the
library's; text that has no form goes there as it is and is refused with the bounds.
"""

from __future__ import annotations

import click

from litequeue.cli.commands import Group
from litequeue.cli.input import number, seconds
from litequeue.cli.jsonable import dumps, jsonable
from litequeue.cli.output import plain, setting_text, table
from litequeue.cli.target import Target, pass_target
from litequeue.settings import SPECS, Value, check_name

_FLAGS = {"true": True, "false": False}
_kind_option = click.option(
    "--kind", metavar="KIND", help="For one kind, or with a ':' at its end for every kind that begins so."
)


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

    Durations are in seconds; `none` is forever or no limit. Without NAME and --kind, what kinds have of their own
    follows (in JSON, as "kinds").
    """
    if name is not None:
        check_name(name, kind)
    with target.queue() as queue:
        values = queue.settings(kind)
        kinds = {} if kind is not None else queue.kind_settings()
    if name is not None:
        click.echo(dumps(jsonable(values[name])) if as_json else setting_text(values[name]))
        return
    if as_json:
        click.echo(dumps(jsonable(values if kind is not None else {**values, "kinds": kinds})))
        return
    rows = [(own, setting_text(value), "") for own, value in values.items()]
    rows += [
        (own, setting_text(value), f"for {plain(of)}") for of, owns in kinds.items() for own, value in owns.items()
    ]
    for line in table(rows):
        click.echo(line)


@settings.command(
    "set",
    context_settings={"ignore_unknown_options": True},  # so that -1 is a value, to be refused as one
    epilog="""
litequeue --db app.queue settings set lease_ttl 10m --kind ingest:
litequeue --db app.queue settings set dead_retention 30d
""",
)
@click.argument("name")
@click.argument("value")
@_kind_option
@pass_target
def set_value(target: Target, *, name: str, value: str, kind: str | None) -> None:
    """Change a setting, for every process at once.

    VALUE is a number; for durations also 30s, 5m, 2h or 1d; `none` for forever or no limit; true or false; or a word.
    """
    check_name(name, kind)
    with target.queue() as queue:
        queue.set(name, _value(name, value), kind)


@settings.command(
    epilog="litequeue --db app.queue settings unset lease_ttl --kind ingest:",
)
@click.argument("name")
@_kind_option
@pass_target
def unset(target: Target, *, name: str, kind: str | None) -> None:
    """Go back to a default, or for a kind to what the file says."""
    check_name(name, kind)
    with target.queue() as queue:
        queue.unset(name, kind)


def _value(name: str, text: str) -> Value:
    """Read the text of a value; what has no form is left to the library, which refuses it with the bounds."""
    form = SPECS[name].form
    if form == "flag":
        return _FLAGS.get(text, text)
    if form == "jitter":
        return text
    if text == "none":
        return None
    try:
        return seconds(text) if form == "seconds" else number(text)
    except ValueError:
        return text
