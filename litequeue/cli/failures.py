"""How a command ends when it is not simply done: one line on standard error, and the exit status of contract §9.

Owns: what the library says of its arguments, in the words of the command line. Invariant: who reads a line has never
seen a name that only a program would use, as long as there is an option for it.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import IO, NoReturn

import click

from litequeue.cli.output import one_line
from litequeue.errors import LiteQueueError, UsageError

NOTHING_TO_DO = 3
_OTHERWISE = {"idempotency_key": "key", "kinds": "kind", "payload": "payload_json"}
"""Arguments of the library whose options have other names."""
_FORMS = {
    "seconds or a timedelta": "a duration of seconds",
    "an aware datetime (with a time zone)": "an ISO 8601 time with its zone, such as 2031-05-04T08:00:00+02:00,",
}
"""What bounds say of values, as a program gives them and as they are written here."""
_QUOTED = re.compile(r"`(\w+)`")


class Failure(click.ClickException):
    """An error: status 1."""

    def show(self, file: IO[str] | None = None) -> None:
        """Print the line."""
        click.echo(f"litequeue: {one_line(self.format_message())}", file=file, err=file is None)


class Misuse(Failure):
    """The command line is wrong: status 2."""

    exit_code = 2


class Interrupted(Failure):
    """The user has pressed Ctrl-C: status 130, as a shell says it."""

    exit_code = 130


class GivenBack(Failure):
    """A worker had to give back jobs that still ran: status 4."""

    exit_code = 4


def in_options(exc: LiteQueueError, command: click.Command) -> str:
    """Return what the library has said, with the options of a command in the place of its own arguments."""
    names = {param.name: _written(param) for param in command.params}
    text = _QUOTED.sub(lambda found: names.get(found[1], found[0]), str(exc))
    if not isinstance(exc, UsageError) or exc.argument is None:
        return text
    option = names.get(_OTHERWISE.get(exc.argument, exc.argument))
    head = f"{exc.argument} must be "
    if option is None or not text.startswith(head):
        return text
    said = text.removeprefix(head)
    for form, written in _FORMS.items():
        said = said.replace(form, written)
    if isinstance(exc.value, datetime):
        said = said.replace(repr(exc.value), exc.value.isoformat())
    return f"{option} must be {said}"


def _written(param: click.Parameter) -> str:
    """Return how a parameter is written: an option by its long name, an argument as help shows it."""
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    return param.metavar.strip("[].") if param.metavar else str(param.name).upper()


def nothing_to_do() -> NoReturn:
    """End with status 3."""
    raise click.exceptions.Exit(NOTHING_TO_DO)


def fail_quietly() -> NoReturn:
    """End with status 1, when each error has had its line."""
    raise click.exceptions.Exit(Failure.exit_code)
