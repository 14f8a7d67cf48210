"""How a command ends when it is not simply done: one line on standard error, and the exit status of contract §9."""

from __future__ import annotations

from typing import IO, NoReturn

import click

from litequeue.cli.output import one_line

NOTHING_TO_DO = 3


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


def nothing_to_do() -> NoReturn:
    """End with status 3."""
    raise click.exceptions.Exit(NOTHING_TO_DO)


def fail_quietly() -> NoReturn:
    """End with status 1, when each error has had its line."""
    raise click.exceptions.Exit(Failure.exit_code)
