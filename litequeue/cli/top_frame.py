"""A frame of `top`: the figures of files as rows of a terminal.

Owns: which tables there are, which of their columns and how many of their rows have room. Invariants: a frame has no
more rows than the terminal, nor is any wider; what was left out, and what is older than the moment, is said; characters
that could steer a terminal are shown as escapes. Leaves out: where the figures come from (`litequeue.top`), and the
screen (`top_screen`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from litequeue.cli import top_tables as tables
from litequeue.cli.output import count_of, one_line
from litequeue.cli.times import Times
from litequeue.cli.top_tables import HEADING, LATENCIES, one_row
from litequeue.cli.top_text import labels, span_text
from litequeue.top import FileFigures, OutOfReach

MOST_ROWS = 20
"""Of each table, where the height sets no bound."""
_WIDE = 120
"""From so many columns on there is room for notes and longer bars."""
_USUAL_COLUMNS = 80
_OLD_S = 1.0
"""What is older is said to be."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What is to be drawn."""

    files: Sequence[FileFigures | OutOfReach]
    times: Times
    window_s: float
    """Rates are those of so many seconds."""
    hint: str
    """What stands at the right of the first row."""


class _Section(NamedTuple):
    """A table: its name, and what draws its heading and as many of its rows as are asked for, if it has any."""

    name: str
    wanted: int
    draw: Callable[[int], Table]


def console() -> Console:
    """Return what frames are printed on: standard output, in plain text unless it is a terminal."""
    made = Console(file=sys.stdout, markup=False, emoji=False, highlight=False)
    if made.width < 1:  # COLUMNS=0: it is not known
        made.width = _USUAL_COLUMNS
    return made


def drawn(frame: Frame, width: int, height: int | None) -> Group:
    """Draw a frame with no more than so many columns and rows; without a height, it has the rows that it needs."""
    there = [one for one in frame.files if isinstance(one, FileFigures)]
    names = dict(zip((one.path for one in frame.files), labels([one.path for one in frame.files]), strict=True))
    top = [_first_row(frame, width), *_remarks(frame, there, names)]
    sections = _sections(frame, there, names, width) if there else []
    if height is None:
        rows = [min(section.wanted, MOST_ROWS) for section in sections]
        room = len(sections)
    else:
        top = top[:height]
        sections = sections[: height - len(top)]
        room = height - len(top) - len(sections)
        rows = shares([section.wanted for section in sections], room)
        room -= sum(rows)
    parts: list[RenderableType] = [*top]
    for section, count in zip(sections, rows, strict=True):
        if room >= len(sections):  # else each row is needed
            parts.append(Text())
        parts.append(section.draw(count) if section.wanted else Text(f"{section.name}: none", HEADING))
    return Group(*parts)


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """Share rows out: one to each in turn that still wants one."""
    given = [0] * len(wanted)
    while room > 0 and given != list(wanted):
        for place, want in enumerate(wanted):
            if room > 0 and given[place] < want:
                given[place] += 1
                room -= 1
    return given


def _first_row(frame: Frame, width: int) -> Text:
    zone = " UTC" if frame.times.is_utc else ""
    moment = f"{frame.times.short(frame.times.now_us)}{zone}"
    left = Text("litequeue top", "bold")
    right = f"rates of {frame.window_s:g} s   {moment}   {frame.hint}".rstrip()
    left.append(" " * max(1, width - len(left) - len(right)) + right, "not bold")
    return one_row(left)


def _remarks(frame: Frame, there: Sequence[FileFigures], names: Mapping[str, str]) -> list[Text]:
    """Say what is wrong with which file, and which figures are not of this moment."""
    remarks = [
        one_row(Text(f"{names[one.path]}: {one_line(one.reason)}", "bold red"))
        for one in frame.files
        if isinstance(one, OutOfReach)
    ]
    remarks += [
        one_row(Text(f"{names[one.path]}: {count_of(one.state.lapsed, 'lease')} lapsed, not taken back yet", "yellow"))
        for one in there
        if one.state.lapsed
    ]
    kept = [
        (name, None if any(survey is None for survey in surveys) else max(survey.age_s for survey in surveys if survey))
        for name, surveys in (
            ("rates", [one.flow for one in there]),
            ("running jobs", [one.running for one in there]),
            ("ages", [one.oldest for one in there]),
            ("latencies", [one.done for one in there]),
            ("errors", [one.causes for one in there]),
            ("counts", [one.counted for one in there]),
        )
        if there
    ]
    old = [f"{name} of {span_text(age_s)} ago" for name, age_s in kept if age_s is not None and age_s >= _OLD_S]
    missing = [f"{name} not yet" for name, age_s in kept if age_s is None]
    if old or missing:
        remarks.append(one_row(Text(", ".join([*old, *missing]), "yellow")))
    return remarks


def _sections(frame: Frame, there: Sequence[FileFigures], names: Mapping[str, str], width: int) -> list[_Section]:
    now_us = frame.times.now_us
    done = [run for one in there if one.done for run in one.done.found]
    kinds, scopes = tables.by_kind(there, names), tables.by_scope(there, names)
    running = [(names[one.path], run) for one in there if one.running for run in one.running.found]
    running.sort(key=lambda row: row[1].job.leased_at)
    causes = [(names[one.path], cause) for one in there if one.causes for cause in one.causes.found]
    causes.sort(key=lambda row: (-row[1].jobs, row[0], row[1].kind, row[1].error))
    with_file, is_wide = len(frame.files) > 1, width >= _WIDE

    def files(rows: int) -> Table:
        return tables.files(there, rows, names, now_us, width, is_wide=is_wide)

    def latency(rows: int) -> Table:
        return tables.latency(done, rows, width)

    def by_kind(rows: int) -> Table:
        return tables.jobs("KIND", kinds, rows, now_us, width, with_age=True, with_file=with_file)

    def by_scope(rows: int) -> Table:
        return tables.jobs("SCOPE", scopes, rows, now_us, width, with_age=False, with_file=with_file)

    def leased(rows: int) -> Table:
        return tables.running_jobs(running, rows, now_us, width, is_wide=is_wide, with_file=with_file)

    def dead(rows: int) -> Table:
        return tables.causes_of_death(causes, rows, frame.times, width, with_file=with_file)

    return [
        _Section("FILE", len(there), files),
        _Section("LATENCY", len(LATENCIES) if done else 0, latency),
        _Section("KIND", len(kinds), by_kind),
        _Section("SCOPE", len(scopes), by_scope),
        _Section("RUNNING", len(running), leased),
        _Section("DEAD", len(causes), dead),
    ]
