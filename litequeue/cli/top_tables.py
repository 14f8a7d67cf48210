"""The tables of `top`: what is in each column.

Invariants: each row is one row of the terminal, whatever is in it; characters that could steer a terminal are shown as
escapes. Leaves out: how many rows there is room for (`top_frame`).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from rich.progress_bar import ProgressBar
from rich.style import Style
from rich.table import Table
from rich.text import Text

from litequeue.cli.layout import GAP, elided, narrowed
from litequeue.cli.output import COLOURS, NOTHING, count_of, one_line, plain, scope_text, state_name
from litequeue.cli.times import Times
from litequeue.cli.top_text import count_text, rate_text, size_text, span_text
from litequeue.metrics.of_file import QUANTILES
from litequeue.model import JobState
from litequeue.sqlite.attending import RunningJob
from litequeue.sqlite.causes import Cause
from litequeue.sqlite.surveying import Done, Running
from litequeue.top import FileFigures
from litequeue.top.watch import MOST_RUNNING

_BAR_CHARS = {True: 10, False: 4}
"""Of the bar of a job's progress, by whether the terminal is wide."""
_PERCENT_CHARS = 4
_LEAST_TEXT = 32
"""As much of an error or a note has room before names have."""
_ACTIVE = (JobState.PENDING, JobState.LEASED, JobState.RETRYABLE, JobState.DEAD)
_ALWAYS = (*_ACTIVE, JobState.COMPLETED)
"""These states have columns of their own, whether any job is in them or not; so columns seldom come and go."""
HEADING = "bold underline"
Cell = str | Text | Table
Column = tuple[str | Text, Literal["left", "right", "name", "text"]]
"""A heading, and on which side of it the cells are; of names, on the left, the middle gives way, of texts the end."""
_FILE: Column = ("FILE", "name")
_OLDEST: Column = ("OLDEST", "right")
_HOLDER: Column = ("HELD BY", "name")
_NOTE: Column = ("NOTE", "text")
LATENCIES: tuple[tuple[str, Callable[[Done], float | None], str], ...] = (
    ("wait", lambda done: done.wait_s, "from ready to leased"),
    ("run", lambda done: done.run_s, "from leased to completed"),
)
"""Names, values, and what they mean."""


def files(
    there: Sequence[FileFigures], rows: int, names: Mapping[str, str], now_us: int, width: int, *, is_wide: bool
) -> Table:
    """Draw a row a file: how fast jobs come and go, how long the oldest waits, sizes, upkeep."""
    columns: list[Column] = [
        (_name("FILE", rows, len(there)), "name"),
        *((heading, "right") for heading in ("ENQUEUED/S", "COMPLETED/S", "FAILED/S", "OLDEST", "SIZE")),
        *((heading, "right") for heading in ("LOG", "UPKEEP")),
        *(((heading, "right") for heading in ("FREE", "JOBS")) if is_wide else []),
    ]
    return _table(columns, [_file(one, names[one.path], now_us, is_wide=is_wide) for one in there[:rows]], width)


def _file(one: FileFigures, name: str, now_us: int, *, is_wide: bool) -> list[Cell]:
    flow = None if one.flow is None else one.flow.found
    rates = [] if flow is None else [flow.enqueued, flow.completed, flow.failed]
    oldest = min(one.oldest.found.values(), default=None) if one.oldest else None
    return [
        _cell(name, "bold"),
        *([rate_text(rate, is_estimated=flow.is_estimated) for rate in rates] if flow else [NOTHING] * 3),
        _age(oldest, now_us),
        size_text(one.state.file_bytes),
        size_text(one.state.wal_bytes),
        span_text(one.state.maintenance_age_s),
        *([size_text(one.state.free_bytes), _total(one)] if is_wide else []),
    ]


def _total(one: FileFigures) -> str:
    return NOTHING if one.counted is None else count_text(sum(one.counted.found.jobs.values()))


def latency(done: Sequence[Done], rows: int, width: int) -> Table:
    """Draw quantiles of how long jobs waited and ran."""
    columns: list[Column] = [
        (f"LATENCY OF {count_of(len(done), 'JOB')}".upper(), "left"),
        *((f"P{quantile * 100:g}", "right") for quantile in QUANTILES),
        ("", "text"),
    ]
    shown: list[list[Cell]] = []
    for name, value, meaning in LATENCIES[:rows]:
        values = [seconds for run in done if (seconds := value(run)) is not None]
        shown.append([name, *map(span_text, _quantiles(values)), _cell(meaning, "dim")])
    return _table(columns, shown, width)


def _quantiles(values: Iterable[float]) -> list[float | None]:
    known = sorted(values)
    return [known[math.ceil(quantile * len(known)) - 1] if known else None for quantile in QUANTILES]


@dataclass(frozen=True, slots=True)
class Row:
    """Jobs of a kind or a scope."""

    file: str
    name: str
    counts: Counter[JobState]
    oldest_us: int | None
    """Since when the oldest ready one has been so, where that is known."""

    @property
    def rank(self) -> tuple[int, int, str, str]:
        """Where it comes in the order of those that are shown when not all can be: the most active first."""
        return -sum(self.counts[state] for state in _ACTIVE), -self.counts.total(), self.file, self.name


def by_kind(there: Sequence[FileFigures], names: Mapping[str, str]) -> list[Row]:
    """Return the jobs of each file by kind."""
    counts: defaultdict[tuple[str, str], Counter[JobState]] = defaultdict(Counter)
    oldest: dict[tuple[str, str], int] = {}
    for one in there:
        for (kind, state), count in one.counted.found.jobs.items() if one.counted else ():
            counts[names[one.path], plain(kind)][state] += count
        for kind, ready_at in one.oldest.found.items() if one.oldest else ():
            oldest[names[one.path], plain(kind)] = ready_at
    return [Row(*name, states, oldest.get(name)) for name, states in counts.items()]


def by_scope(there: Sequence[FileFigures], names: Mapping[str, str]) -> list[Row]:
    """Return the jobs of each file by scope."""
    counts: defaultdict[tuple[str, str], Counter[JobState]] = defaultdict(Counter)
    for one in there:
        for (scope, state), count in one.counted.found.by_scope.items() if one.counted else ():
            counts[names[one.path], scope_text(scope)][state] += count
    return [Row(*name, states, None) for name, states in counts.items()]


def jobs(
    name: str, found: Sequence[Row], rows: int, now_us: int, width: int, *, with_age: bool, with_file: bool
) -> Table:
    """Draw jobs by state, in the order of their names; of too many, the most active."""
    shown = sorted(found, key=attrgetter("rank"))[:rows]
    states = [state for state in JobState if state in _ALWAYS or any(row.counts[state] for row in found)]
    is_tight = len(states) > len(_ALWAYS)
    columns: list[Column] = [
        *([_FILE] if with_file else []),
        (_name(name, rows, len(found)), "name"),
        *((_state(state, is_short=is_tight), "right") for state in states),
        *([_OLDEST] if with_age else []),
    ]
    lines: list[list[Cell]] = [
        [
            *([_cell(row.file)] if with_file else []),
            _cell(row.name, "bold"),
            *(_count(row.counts[state]) for state in states),
            *([_age(row.oldest_us, now_us)] if with_age else []),
        ]
        for row in sorted(shown, key=attrgetter("file", "name"))
    ]
    return _table(columns, lines, width, gap=1 if is_tight else GAP)


def running_jobs(
    running: Sequence[tuple[str, Running]], rows: int, now_us: int, width: int, *, is_wide: bool, with_file: bool
) -> Table:
    """Draw the jobs that are leased: since when, how far they are, and who has them where there is room for it."""
    with_holder = is_wide or not with_file
    columns: list[Column] = [
        *([_FILE] if with_file else []),
        (_name("RUNNING", rows, len(running), MOST_RUNNING), "left"),
        ("KIND", "name"),
        ("FOR", "right"),
        ("PROGRESS", "left"),
        *([_HOLDER] if with_holder else []),
        *([_NOTE] if is_wide else []),
    ]
    lines: list[list[Cell]] = [
        [
            *([_cell(label)] if with_file else []),
            str(run.job.job_id),
            _cell(plain(run.job.kind), "bold"),
            span_text(max(0, now_us - run.job.leased_at) / 1_000_000),
            _progress(run.job, now_us, _BAR_CHARS[is_wide]),
            *([_cell(_holder(run))] if with_holder else []),
            *([_cell(one_line(run.job.note or ""))] if is_wide else []),
        ]
        for label, run in running[:rows]
    ]
    return _table(columns, lines, width)


def _progress(job: RunningJob, now_us: int, bar_chars: int) -> Cell:
    if job.lease_deadline <= now_us:
        return Text("lapsed", "red")
    if job.progress is None:
        return NOTHING
    bar = Table.grid(padding=(0, 1, 0, 0))
    bar.add_column(width=bar_chars)
    bar.add_column(width=_PERCENT_CHARS)
    bar.add_row(
        ProgressBar(1.0, job.progress, bar_chars, complete_style="cyan", finished_style="green"),
        f"{job.progress:{_PERCENT_CHARS}.0%}",
    )
    return bar


def _holder(run: Running) -> str:
    """Say who has a job: the host and the process, or the name that the worker has given itself."""
    worker_id = run.job.worker_id
    if run.pid is None or run.host is None:
        return plain(worker_id)
    process = f"{run.host}:{run.pid}"
    return plain(process if worker_id.startswith(f"{process}:") else f"{worker_id} ({process})")


def causes_of_death(
    causes: Sequence[tuple[str, Cause]], rows: int, times: Times, width: int, *, with_file: bool
) -> Table:
    """Draw what dead letters have died of, and how many."""
    total = sum(cause.jobs for _, cause in causes)
    columns: list[Column] = [
        *([_FILE] if with_file else []),
        (f"{count_text(total)} DEAD", "right"),
        ("KIND", "name"),
        ("LAST", "right"),
        (_name("ERROR", rows, len(causes)), "text"),
    ]
    lines: list[list[Cell]] = [
        [
            *([_cell(label)] if with_file else []),
            Text(count_text(cause.jobs), "red"),
            _cell(plain(cause.kind), "bold"),
            times.distance(cause.last_finished_at),
            _cell(one_line(cause.error)),
        ]
        for label, cause in causes[:rows]
    ]
    return _table(columns, lines, width)


def _table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int, gap: int = GAP) -> Table:
    """Draw a table whose names give way as those of a listing do."""
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style=HEADING)
    for heading, role in columns:
        text = heading if isinstance(heading, Text) else Text(heading)
        table.add_column(one_row(text), justify="right" if role == "right" else "left", no_wrap=role != "text")
    names = [at for at, (_, role) in enumerate(columns) if role == "name"]
    widths = [max(map(_width, column)) for column in zip([heading for heading, _ in columns], *rows, strict=True)]
    needed = [
        min(most, _LEAST_TEXT) if role == "text" else most for most, (_, role) in zip(widths, columns, strict=True)
    ]
    widths = narrowed(widths, names, sum(needed) + gap * (len(columns) - 1) - width)
    for row in rows:
        table.add_row(*(_elided(cell, widths[at]) if at in names else cell for at, cell in enumerate(row)))
    return table


def _width(cell: Cell) -> int:
    """Return how many characters a cell takes."""
    if isinstance(cell, Table):
        return sum(column.width or 0 for column in cell.columns) + len(cell.columns) - 1
    return len(cell)


def _elided(cell: Cell, most: int) -> Cell:
    return _cell(elided(cell.plain, most), cell.style) if isinstance(cell, Text) else cell


def _name(name: str, shown: int, total: int, most: int | None = None) -> str:
    """Return a heading, with how many of how many rows are below it when not all are."""
    if shown == total and (most is None or total < most):
        return name
    more = "+" if most is not None and total >= most else ""
    return f"{name} {shown}/{total}{more}"


def _state(state: JobState, *, is_short: bool) -> Text:
    return Text(state_name(state, is_short=is_short), COLOURS.get(state, ""))


def _count(count: int) -> Text:
    return Text(count_text(count)) if count else Text(NOTHING, "dim")


def _age(since_us: int | None, now_us: int) -> str:
    return NOTHING if since_us is None else span_text(max(0, now_us - since_us) / 1_000_000)


def _cell(text: str, style: str | Style = "") -> Text:
    return one_row(Text(text, style))


def one_row(text: Text) -> Text:
    """Keep text on one row, whatever becomes of its width."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
