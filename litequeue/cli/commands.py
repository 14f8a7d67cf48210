"""What every command of `litequeue` has: examples in its help, and an edge at which errors become lines.

Owns: the way from the library's errors, and from what the system throws in, to a line (`failures`) and a status.
Invariant: no traceback for what a user, a file or a full disk did wrong; an error that is nobody's fault but ours still
shows one.
"""

from __future__ import annotations

import errno
import io
import os
import shlex
import sys

import click

from litequeue.cli.failures import Failure, Interrupted, Misuse, in_options
from litequeue.cli.output import messages
from litequeue.errors import LiteQueueError, UsageError

_DB = "--db"


class Command(click.Command):
    """A command whose epilog is examples, one a line, and whose errors speak of its options."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command.

        Raises:
            Misuse, Failure: what the library has refused, in the words of the command line.
        """
        try:
            return super().invoke(ctx)
        except UsageError as exc:
            raise Misuse(in_options(exc, self)) from exc
        except LiteQueueError as exc:
            raise Failure(in_options(exc, self)) from exc

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options and arguments; of one that goes before the command, say so."""
        given = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as exc:
            raise _misplaced(ctx, exc, given) from None

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the examples as they are to be typed."""
        _write_examples(self.epilog, formatter)


class Group(click.Group):
    """A group of such commands, with examples of its own."""

    command_class = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options and arguments; of one that goes before the command, say so."""
        given = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as exc:
            raise _misplaced(ctx, exc, given) from None

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the examples as they are to be typed."""
        _write_examples(self.epilog, formatter)


class Root(Group):
    """The group of all commands."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a command.

        Raises:
            click.ClickException: with the line and the status to end with.
        """
        if os.environ.get("NO_COLOR"):  # https://no-color.org: set, and not empty
            ctx.color = False
        try:
            with messages():
                return super().invoke(ctx)
        except KeyboardInterrupt as exc:
            raise Interrupted("interrupted") from exc
        except OSError as exc:
            if exc.errno == errno.EPIPE:  # nobody reads on: click ends quietly
                raise
            _drop_unwritten()
            place = "" if exc.filename is None else f" ({exc.filename})"
            raise Failure(f"{exc.strerror or exc}{place}") from exc


def _misplaced(ctx: click.Context, exc: click.NoSuchOption, args: list[str]) -> click.ClickException:
    """Return what to say of an unknown option: the line as it was meant, when it is the root's own `--db`."""
    root = ctx.find_root()
    if exc.option_name != _DB or ctx is root:
        return exc
    place = next(place for place, word in enumerate(args) if word == _DB or word.startswith(f"{_DB}="))
    name, equals, value = args[place].partition("=")
    rest = args[place + 1 :]
    if not equals:
        value, rest = (rest[0], rest[1:]) if rest else ("FILE", [])
    commands = ctx.command_path.split(" ")[1:]
    line = shlex.join([root.command_path, name, value, *commands, *args[:place], *rest])
    return Misuse(f"{_DB} goes before the command: {line}")


def _write_examples(examples: str | None, formatter: click.HelpFormatter) -> None:
    if examples is not None:
        with formatter.section("Examples"):
            for line in examples.strip().splitlines():
                formatter.write(f"{'':>{formatter.current_indent}}$ {line}\n")


def _drop_unwritten() -> None:
    """Forget output that cannot be written, or the interpreter tries again at its end and shows a traceback."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = io.StringIO()
