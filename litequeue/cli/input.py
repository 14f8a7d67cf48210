"""What a person or a pipe hands in: durations, moments, JSON and lines.

Owns: the reading of text into the values that the library takes. Invariant: what is wrong on the command line is wrong
usage (status 2), what is wrong on standard input is an error (status 1); the bounds of values are the library's.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from io import BufferedReader
from typing import NoReturn, ParamSpec, TypeVar, cast

import click

from litequeue.arguments import UNITS_S
from litequeue.cli.failures import Failure, Misuse
from litequeue.errors import cut
from litequeue.model import ANY, SYSTEM, Scope, SpecialScope

P = ParamSpec("P")
R = TypeVar("R")

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h|d)", re.ASCII)
_WHOLE = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_CHUNK_BYTES = 65_536
_SHOWN_CHARS = 80


class NotJson(ValueError):
    """Text that is not JSON; the message says what is wrong with it."""


def number(text: str) -> float:
    """Read a number, whole if it is written so.

    Raises:
        ValueError: it is not a number.
    """
    return int(text) if _WHOLE.fullmatch(text) else float(text)


def seconds(text: str) -> float:
    """Read a duration: seconds, or a number with one of the units s, m, h and d.

    Raises:
        ValueError: it is neither.
    """
    found = _DURATION.fullmatch(text)
    return number(text) if found is None else number(found[1]) * UNITS_S[found[2]]


def duration_option(text: str) -> float:
    """Read the value of an option that is a duration."""
    try:
        return seconds(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a duration, such as 90, 1.5, 30s, 5m, 2h or 1d") from None


def moment_option(text: str) -> datetime:
    """Read the value of an option that is a time."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not an ISO 8601 time, such as 2031-05-04T08:00:00+02:00") from None


def kind_text(text: str) -> str:
    """Read a kind, or a filter of kinds; one that ends in a star was meant for a pattern, and would take nothing."""
    if text.endswith("*"):
        prefix = text.rstrip("*").rstrip(":")
        meant = f"{prefix}: is every kind that begins so" if prefix else "without it every kind is meant"
        raise click.BadParameter(f"{text!r} is no pattern that is known here: {meant}")
    return text


def new_kind(text: str) -> str:
    """Read the kind of a new job; one that ends in a star looks like a pattern, which no job has for its kind."""
    if text.endswith("*"):
        raise click.BadParameter(f"{text!r} looks like a pattern; a job has one kind, such as mail:send")
    return text


def kind_option(help_text: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Add `--kind`."""
    return click.option("--kind", metavar="KIND", type=kind_text, help=help_text)


def scope_options(*, many: bool, default: str = "default") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Add `--scope` and `--system`, and for commands that look at `many` scopes `--all-scopes`."""

    def decorate(command: Callable[P, R]) -> Callable[P, R]:
        if many:
            command = click.option("--all-scopes", is_flag=True, help="Every scope.")(command)
        command = click.option("--system", is_flag=True, help="The system's own scope, which has no name.")(command)
        return click.option("--scope", metavar="NAME", help=f"Tenant or namespace.  [default: {default}]")(command)

    return decorate


def exclude_each_other(**options: object) -> None:
    """Refuse more than one of some options, which are named as their parameters are: none wins silently.

    Raises:
        Misuse: two or more were given.
    """
    given = [
        f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None and value is not False
    ]
    if len(given) > 1:
        raise Misuse(f"{' and '.join(given)} exclude each other")


def one_scope(name: str | None, *, system: bool) -> Scope | None:
    """Return the scope of `--scope` and `--system`; `None` is the default one."""
    exclude_each_other(scope=name, system=system)
    return SYSTEM if system else name


def many_scopes(name: str | None, *, system: bool, all_scopes: bool) -> Scope | SpecialScope | None:
    """Return the scope or scopes of `--scope`, `--system` and `--all-scopes`; `None` is the default one."""
    if all_scopes and (system or name is not None):
        raise Misuse("--all-scopes excludes --scope and --system")
    return ANY if all_scopes else one_scope(name, system=system)


def read_json(text: str) -> object:
    """Read strict JSON.

    Raises:
        NotJson: it is not, or a number in it is not finite.
    """
    try:
        value: object = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except json.JSONDecodeError as exc:
        raise NotJson(f"not JSON: {exc.msg} at character {exc.pos + 1}") from exc
    except RecursionError as exc:
        raise NotJson("not readable as JSON: nested too deep") from exc
    except NotJson:
        raise
    except ValueError as exc:  # more digits than Python turns into a number
        raise NotJson(f"not readable as JSON: {exc}") from exc
    return value


def read_json_bytes(data: bytes) -> object:
    """Read strict JSON in UTF-8.

    Raises:
        NotJson: it is not.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise NotJson(f"not UTF-8: byte 0x{data[exc.start]:02x} at position {exc.start + 1}") from exc
    return read_json(text)


def payload(argument: str | None) -> object:
    """Return a payload from the argument, or from standard input when it is `-`; without an argument it is null.

    Standard input is only read when that was asked for: it may be a pipe that somebody else is reading, or never ends.
    """
    if argument is None:
        return None
    if argument != "-":
        try:
            return read_json(argument)
        except NotJson as exc:
            raise Misuse(f"PAYLOAD is {exc} (text needs double quotes of its own)") from exc
    try:
        return read_json_bytes(standard_input().read())
    except NotJson as exc:
        raise Failure(f"standard input is {exc}") from exc


def standard_input() -> BufferedReader:
    """Return standard input as bytes.

    Raises:
        Failure: there is none.
    """
    if sys.stdin is None:
        raise Failure("standard input is closed")
    return cast("BufferedReader", sys.stdin.buffer)


def arriving_lines(stream: BufferedReader, most_bytes: int) -> Iterator[list[bytes]]:
    """Read lines as they come: each list is what was there to be read, so a slow producer is not waited for.

    Raises:
        NotJson: a line is longer than `most_bytes`, and may have no end.
    """
    rest = bytearray()
    while chunk := stream.read1(_CHUNK_BYTES):
        whole, end, begun = chunk.rpartition(b"\n")
        if not end:
            rest += chunk
            if len(rest) > most_bytes:
                raise NotJson(f"longer than {most_bytes:,} bytes, more than any job has that max_payload allows")
            continue
        rest += whole
        yield bytes(rest).split(b"\n")
        rest = bytearray(begun)
    if rest:
        yield [bytes(rest)]


def _refuse(constant: str) -> NoReturn:
    raise NotJson(f"not JSON: {constant} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise NotJson(f"not readable as JSON: {cut(text, _SHOWN_CHARS)} is beyond what a number can hold")
    return value
