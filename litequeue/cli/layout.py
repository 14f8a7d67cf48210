"""How lines fit a terminal: tables, texts beside or below them, texts behind a label.

Owns: how wide the terminal is, and what gives way when it is too narrow. Invariants: where the result goes to a file or
a pipe nothing is elided or broken for want of room; names lose their middle, since they differ at both ends, texts
their end, and numbers and ids nothing. Leaves out: what stands in a table, and the view of `top`, which `rich` draws.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator, Sequence

import click

from litequeue.cli.output import plain

Rows = Sequence[Sequence[str]]
GAP = 2
"""Between two columns."""
INDENT = 4
"""Of a text below its row."""
_LEAST = 8
"""What is left of a name, however narrow the terminal is."""
_LEAST_TEXT = 20
"""As much of a text stands on a line, however narrow the terminal is."""
_ENOUGH = 80
"""A text has room beside its row when this much of it has."""


def columns() -> int | None:
    """Return how wide the terminal is that the result goes to; `None` where it goes elsewhere."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None if sys.stdout.isatty() else None
    except (AttributeError, OSError, ValueError):  # there is no such stream, or none that is a file
        return None


def is_terminal() -> bool:
    """Tell whether somebody sees the result as it comes."""
    return columns() is not None


def width(line: str) -> int:
    """Return how many characters a line shows: its colours take no room."""
    return len(click.unstyle(line))


def fitted(text: str, most: int | None) -> str:
    """Cut text that is longer than so many characters, if it is to be cut at all; it has no colours."""
    return text if most is None or len(text) <= most else f"{text[: max(0, most - 1)]}…"


def cut(line: str) -> str:
    """Cut a line, which has no colours, where the terminal ends."""
    return fitted(line, columns())


def elided(name: str, most: int) -> str:
    """Leave the middle out of a name that is longer than so many characters, but for eight of them."""
    most = max(most, _LEAST)
    if len(name) <= most:
        return name
    tail = (most - 1) // 2
    return f"{name[: most - 1 - tail]}…{name[-tail:]}"


def narrowed(widths: Sequence[int], names: Sequence[int], over: int) -> list[int]:
    """Return the widths of columns after so many characters are taken from those of names, each from the widest one."""
    left = list(widths)
    for _ in range(over):
        widest = max(names, key=left.__getitem__)
        if left[widest] <= _LEAST:
            break
        left[widest] -= 1
    return left


def table(rows: Rows, *, names: Sequence[int] = (), gap: int = GAP, least_last: int | None = None) -> Iterator[str]:
    """Line up columns; the last one is as long as it likes.

    On a terminal that is too narrow the columns `names`, whose cells have no colours, give way: the widest first, for
    the whole of the last column or for so much of it.
    """
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    most = columns()
    if most is not None and names:
        last = widths[-1] if least_last is None else min(widths[-1], least_last)
        widths = narrowed(widths, names, sum(widths[:-1]) + last + gap * (len(widths) - 1) - most)
        rows = [[elided(cell, widths[at]) if at in names else cell for at, cell in enumerate(row)] for row in rows]
    for row in rows:
        padded = (cell + " " * (most - width(cell)) for cell, most in zip(row, widths, strict=True))
        yield (" " * gap).join(padded).rstrip()


def wide_or_narrow(wide: Rows, narrow: Rows, *, names: Sequence[int]) -> Iterator[str]:
    """Line up columns as they are wanted or, on a terminal that is too narrow for that, a second form of them."""
    lines = list(table(wide))
    most = columns()
    if most is None or max(map(width, lines)) <= most:
        yield from lines
    else:
        yield from table(narrow, names=names, gap=1)


def described(wide: Rows, narrow: Rows, *, names: Sequence[int] = (), most_chars: int | None = None) -> Iterator[str]:
    """Line up columns, the last of which is a text about the row.

    On a terminal that has no room for them beside the rows of `wide`, the texts of `narrow` stand below its rows. They
    are cut where the line ends; to a file or a pipe goes as much as `most_chars`.
    """
    most = columns()
    if most is None:
        yield from table([[*cells, fitted(text, most_chars)] for *cells, text in wide])
        return
    room = most - GAP - max(width(line) for line in table([cells for *cells, _ in wide]))
    if room >= min(_ENOUGH, max(len(text) for *_, text in wide)):
        yield from table([[*cells, fitted(text, room)] for *cells, text in wide])
        return
    lines = table([cells for *cells, _ in narrow], names=names)
    for line, (*_, text) in zip(lines, narrow, strict=True):
        yield line
        if text:
            yield fitted(f"{' ' * INDENT}{text}", most)


def logged(rows: Rows, *, names: Sequence[int] = ()) -> Iterator[str]:
    """Line up columns, the last of which is a text that is shown whole: below its row where it does not fit."""
    most = columns()
    if most is None:
        yield from table(rows)
        return
    lines = list(table([cells for *cells, _ in rows], names=names))
    begin = max(map(width, lines), default=0) + GAP
    for line, (*_, text) in zip(lines, rows, strict=True):
        if not text or begin + len(text) > most:
            yield line
            yield from (f"{' ' * INDENT}{part}" for part in _broken(text, max(_LEAST_TEXT, most - INDENT)) if part)
        else:
            yield f"{line}{' ' * (begin - width(line))}{text}"


def behind(label: str, text: str, indent: int) -> Iterator[str]:
    """Lay text out behind a label, which takes so many characters: all lines of it begin below each other."""
    most = columns()
    room = None if most is None else max(_LEAST_TEXT, most - indent)
    for number, line in enumerate(_broken(text, room)):
        yield f"{label if number == 0 else '':<{indent}}{line}".rstrip()


def _broken(text: str, room: int | None) -> Iterator[str]:
    """Return the lines of a text, made safe to be shown; those that are too long broken, between words if there are."""
    for line in text.replace("\r\n", "\n").removesuffix("\n").split("\n"):
        shown = plain(line.expandtabs(4))
        if room is None or len(shown) <= room:
            yield shown
        else:
            yield from textwrap.wrap(shown, room, expand_tabs=False, replace_whitespace=False, break_on_hyphens=False)
