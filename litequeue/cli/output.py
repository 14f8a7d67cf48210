"""What a person reads: texts, one by one.

Owns: the words and the colours of text, and the safety of it: characters that could steer a terminal are shown as
escapes, whoever wrote them into a payload, a note or an error. Also the lines for what the library logs and warns of.
Leaves out: JSON (`jsonable`), times (`times`), and how lines fit a terminal (`layout`).
"""

from __future__ import annotations

import json
import logging
import unicodedata
from collections.abc import Iterator
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
_SHORT_NAMES = {
    JobState.COMPLETED: "done",
    JobState.RETRYABLE: "retry",
    JobState.SCHEDULED: "sched",
    JobState.CANCELLED: "cancel",
    JobState.WAITING: "wait",
}
"""Of states, as headings of a table that has so many of them that it would not fit."""
_SHORT_CHARS = 80


def plain(text: str) -> str:
    """Replace characters that a terminal would obey, line ends among them, by escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) if unicodedata.category(char) in _STEERING else char for char in text)


def one_line(text: str) -> str:
    """Put text on one line."""
    return plain(" ".join(line.strip() for line in text.splitlines()))


def pretty(value: Json) -> str:
    """Write JSON for a person: short values on one line, longer ones indented."""
    short = json.dumps(value, ensure_ascii=False)
    return short if len(short) <= _SHORT_CHARS else json.dumps(value, ensure_ascii=False, indent=2)


def utc(moment_us: int) -> str:
    """Write a time of a log in UTC, to the second."""
    return f"{_EPOCH + timedelta(microseconds=moment_us):%Y-%m-%dT%H:%M:%SZ}"


def state_name(state: JobState, *, is_short: bool) -> str:
    """Write a state, in a few letters or as options take it."""
    return _SHORT_NAMES.get(state, state.name.lower()) if is_short else state.name.lower()


def state_text(state: JobState, *, is_short: bool = False) -> str:
    """Write a state, in its colour where colours are shown."""
    colour, name = COLOURS.get(state), state_name(state, is_short=is_short)
    return name if colour is None else click.style(name, fg=colour)


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
