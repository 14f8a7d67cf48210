"""What a person reads: lines, tables, times.

Owns: the layout of text, and the safety of it: characters that could steer a terminal are shown as escapes, whoever
wrote them into a payload, a note or an error. Also the lines for what the library logs and warns about.
Leaves out: JSON (`jsonable`).
"""

from __future__ import annotations

import json
import logging
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import click

from litequeue.cli.jsonable import Json
from litequeue.model import SYSTEM, SpecialScope

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STEERING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that have no place in text that is only shown: controls, bidirectional marks, surrogates …"""
NOTHING = "-"
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
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def pretty(value: Json) -> str:
    """Write JSON for a person: short values on one line, longer ones indented."""
    short = json.dumps(value, ensure_ascii=False)
    return short if len(short) <= _SHORT_CHARS else json.dumps(value, ensure_ascii=False, indent=2)


def utc(moment_us: int | None) -> str:
    """Write a time in UTC, to the second."""
    moment = _moment(moment_us)
    return str(moment_us or NOTHING) if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def utc_and_local(moment_us: int | None) -> str:
    """Write a time in UTC, to the µs, and as the clock on the wall shows it here."""
    moment = _moment(moment_us)
    if moment is None:
        return str(moment_us or NOTHING)
    local = moment.astimezone()
    zone = f"{local:%z}"
    return f"{moment:%Y-%m-%dT%H:%M:%S.%fZ} ({local:%Y-%m-%d %H:%M:%S} {zone[:3]}:{zone[3:]} here)"


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


def _moment(moment_us: int | None) -> datetime | None:
    """Return the datetime, or `None` when there is none that Python's years could hold."""
    if moment_us is None:
        return None
    try:
        moment = _EPOCH + timedelta(microseconds=moment_us)
        moment.astimezone()
    except (OverflowError, ValueError, OSError):
        return None
    return moment


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"  # noqa: PLR2004 - the basic plane
