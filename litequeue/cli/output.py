"""What a person reads: lines and tables.

Owns: the layout and the colours of text, and the safety of it: characters that could steer a terminal are shown as
escapes, whoever wrote them into a payload, a note or an error. Also the lines for what the library logs and warns of.
Leaves out: JSON (`jsonable`) and times (`times`).
"""

from __future__ import annotations

import json
import logging
import os
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import click

from litequeue.cli.jsonable import Json
from litequeue.model import SYSTEM, JobState, SpecialScope

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STEERING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that have no place in text that is only shown: controls, bidirectional marks, surrogates …"""
NOTHING = "-"
COLOURS = {
    JobState.LEASED: "cyan",
    JobState.COMPLETED: "green",
    JobState.RETRYABLE: "yellow",
    JobState.DEAD: "red",
    JobState.CANCELLED: "bright_black",
}
"""What stands out in a listing; click shows it on a terminal only, and nowhere where NO_COLOR is set (`Root`)."""
_SHORT_CHARS = 80


def plain(text: str) -> str:
    """Replace characters that a terminal would obey, line ends among them, by escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) if unicodedata.category(char) in _STEERING else char for char in text)


def one_line(text: str) -> str:
    """Put text on one line."""
    return plain(" ".join(line.strip() for line in text.splitlines()))


def block(text: str, indent: int) -> str:
    """Lay text of several lines out behind a label of so many characters."""
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    return f"\n{' ' * indent}".join(plain(line.expandtabs(4)) for line in lines)


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Line up columns; the last one is as long as it likes."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell + " " * (most - width(cell)) for cell, most in zip(row, widths, strict=True)).rstrip()


def fitted(text: str, most: int | None) -> str:
    """Cut text that is longer than so many characters, if it is to be cut at all; it has no colours."""
    return text if most is None or len(text) <= most else f"{text[: max(0, most - 1)]}…"


def with_detail(line: str, detail: str, most: int | None) -> str:
    """Put a detail behind a line, or below it where the two are longer than so many characters."""
    if not detail:
        return line.rstrip()
    whole = f"{line}  {detail}"
    return whole if most is None or width(whole) <= most else f"{line.rstrip()}\n    {detail}"


def columns() -> int | None:
    """Return how wide the terminal is that the result goes to; `None` where it goes elsewhere."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None if sys.stdout.isatty() else None
    except (AttributeError, OSError, ValueError):  # there is no such stream, or none that is a file
        return None


def width(line: str) -> int:
    """Return how many characters a line shows: its colours take no room."""
    return len(click.unstyle(line))


def pretty(value: Json) -> str:
    """Write JSON for a person: short values on one line, longer ones indented."""
    short = json.dumps(value, ensure_ascii=False)
    return short if len(short) <= _SHORT_CHARS else json.dumps(value, ensure_ascii=False, indent=2)


def utc(moment_us: int) -> str:
    """Write a time of a log in UTC, to the second."""
    return f"{_EPOCH + timedelta(microseconds=moment_us):%Y-%m-%dT%H:%M:%SZ}"


def state_text(state: JobState) -> str:
    """Write a state, in its colour where colours are shown."""
    colour = COLOURS.get(state)
    return state.name.lower() if colour is None else click.style(state.name.lower(), fg=colour)


def scope_text(scope: str | SpecialScope) -> str:
    """Write a scope; the system's has no name."""
    return "(system)" if scope is SYSTEM else "(all)" if isinstance(scope, SpecialScope) else plain(scope)


def setting_text(value: float | str | None) -> str:
    """Write a setting as `settings set` reads it."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else plain(str(value))


def count_of(count: int, thing: str) -> str:
    """Write a number of things."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def warn(text: str) -> None:
    """Say something on standard error that is not the result."""
    click.echo(f"litequeue: {one_line(text)}", err=True)


@contextmanager
def messages() -> Iterator[None]:
    """Show what the library logs as lines on standard error, warnings and worse."""
    logger = logging.getLogger("litequeue")
    handler = Messages()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class Messages(logging.Handler):
    """Turns log records into lines; a traceback in one is left out."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one; when nobody can read it, the work goes on all the same."""
        try:
            warn(record.getMessage())
        except OSError:
            return


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"  # noqa: PLR2004 - the basic plane
