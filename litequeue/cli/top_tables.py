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

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

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

_ID_CHARS = 18
"""Of an id, where there is not: its time, and some bits by chance."""
_BAR_CHARS = 10
_ACTIVE = (JobState.PENDING, JobState.LEASED, JobState.RETRYABLE, JobState.DEAD)
_ALWAYS = (*_ACTIVE, JobState.COMPLETED)
"""These states have columns of their own, whether any job is in them or not; so columns seldom come and go."""
HEADING = "bold underline"
_GAP = 2
Cell = Text | RenderableType
Column = tuple[str | Text, Literal["left", "right"]]
"""A heading, and on which side of it the cells are."""
_FILE: Column = ("FILE", "left")
_OLDEST: Column = ("OLDEST", "right")
_NOTE: Column = ("NOTE", "left")
LATENCIES: tuple[tuple[str, Callable[[Done], float | None], str], ...] = (
    ("wait", lambda done: done.wait_s, "from ready to leased"),
    ("run", lambda done: done.run_s, "from leased to completed"),
)
"""Names, values, and what they mean."""


def files(there: Sequence[FileFigures], rows: int, names: Mapping[str, str], now_us: int, *, is_wide: bool) -> Table:
    """Draw a row a file: how fast jobs come and go, how long the oldest waits, sizes, upkeep."""
    table = _table(
        (_name("FILE", rows, len(there)), "left"),
        *((heading, "right") for heading in ("ENQUEUED/S", "COMPLETED/S", "FAILED/S", "OLDEST", "SIZE")),
        *((heading, "right") for heading in ("LOG", "UPKEEP")),
        *(((heading, "right") for heading in ("FREE", "JOBS")) if is_wide else []),
    )
    for one in there[:rows]:
        flow = None if one.flow is None else one.flow.found
        rates = [] if flow is None else [flow.enqueued, flow.completed, flow.failed]
        oldest = min(one.oldest.found.values(), default=None) if one.oldest else None
        table.add_row(
            _cell(names[one.path], "bold"),
            *([rate_text(rate, is_estimated=flow.is_estimated) for rate in rates] if flow else [NOTHING] * 3),
            _age(oldest, now_us),
            size_text(one.state.file_bytes),
            size_text(one.state.wal_bytes),
            span_text(one.state.maintenance_age_s),
            *([size_text(one.state.free_bytes), _total(one)] if is_wide else []),
        )
    return table


def _total(one: FileFigures) -> str:
    return NOTHING if one.counted is None else count_text(sum(one.counted.found.jobs.values()))


def latency(done: Sequence[Done], rows: int) -> Table:
    """Draw quantiles of how long jobs waited and ran."""
    table = _table(
        (f"LATENCY OF {count_of(len(done), 'JOB')}".upper(), "left"),
        *((f"P{quantile * 100:g}", "right") for quantile in QUANTILES),
        ("", "left"),
    )
    for name, value, meaning in LATENCIES[:rows]:
        values = [seconds for run in done if (seconds := value(run)) is not None]
        table.add_row(name, *map(span_text, _quantiles(values)), _cell(meaning, "dim"))
    return table


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


def jobs(name: str, found: Sequence[Row], rows: int, now_us: int, *, with_age: bool, with_file: bool) -> Table:
    """Draw jobs by state, in the order of their names; of too many, the most active."""
    shown = sorted(found, key=attrgetter("rank"))[:rows]
    states = [state for state in JobState if state in _ALWAYS or any(row.counts[state] for row in found)]
    is_tight = len(states) > len(_ALWAYS)
    table = _table(
        *([_FILE] if with_file else []),
        (_name(name, rows, len(found)), "left"),
        *((_state(state, is_short=is_tight), "right") for state in states),
        *([_OLDEST] if with_age else []),
        gap=1 if is_tight else _GAP,
    )
    for row in sorted(shown, key=attrgetter("file", "name")):
        table.add_row(
            *([_cell(row.file)] if with_file else []),
            _cell(row.name, "bold"),
            *(_count(row.counts[state]) for state in states),
            *([_age(row.oldest_us, now_us)] if with_age else []),
        )
    return table


def running_jobs(
    running: Sequence[tuple[str, Running]], rows: int, now_us: int, *, is_wide: bool, with_file: bool
) -> Table:
    """Draw the jobs that are leased: since when, how far they are, and who has them."""
    table = _table(
        *([_FILE] if with_file else []),
        (_name("RUNNING", rows, len(running), MOST_RUNNING), "left"),
        ("KIND", "left"),
        ("FOR", "right"),
        ("PROGRESS", "left"),
        ("HELD BY", "left"),
        *([_NOTE] if is_wide else []),
    )
    for label, run in running[:rows]:
        job = run.job
        table.add_row(
            *([_cell(label)] if with_file else []),
            str(job.job_id) if is_wide else str(job.job_id)[:_ID_CHARS],
            _cell(plain(job.kind), "bold"),
            span_text(max(0, now_us - job.leased_at) / 1_000_000),
            _progress(job, now_us),
            _cell(_holder(run)),
            *([_cell(one_line(job.note or ""))] if is_wide else []),
        )
    return table


def _progress(job: RunningJob, now_us: int) -> Cell:
    if job.lease_deadline <= now_us:
        return Text("lapsed", "red")
    if job.progress is None:
        return NOTHING
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        ProgressBar(1.0, job.progress, _BAR_CHARS, complete_style="cyan", finished_style="green"),
        f"{job.progress:4.0%}",
    )
    return bar


def _holder(run: Running) -> str:
    """Say who has a job: the host and the process, or the name that the worker has given itself."""
    worker_id = run.job.worker_id
    if run.pid is None or run.host is None:
        return plain(worker_id)
    process = f"{run.host}:{run.pid}"
    return plain(process if worker_id.startswith(f"{process}:") else f"{worker_id} ({process})")


def causes_of_death(causes: Sequence[tuple[str, Cause]], rows: int, times: Times, *, with_file: bool) -> Table:
    """Draw what dead letters have died of, and how many."""
    total = sum(cause.jobs for _, cause in causes)
    table = _table(
        *([_FILE] if with_file else []),
        (f"{count_text(total)} DEAD", "right"),
        ("KIND", "left"),
        ("LAST", "right"),
        (_name("ERROR", rows, len(causes)), "left"),
    )
    for label, cause in causes[:rows]:
        table.add_row(
            *([_cell(label)] if with_file else []),
            Text(count_text(cause.jobs), "red"),
            _cell(plain(cause.kind), "bold"),
            times.distance(cause.last_finished_at),
            _cell(one_line(cause.error)),
        )
    return table


def _table(*columns: Column, gap: int = _GAP) -> Table:
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style=HEADING)
    for heading, alignment in columns:
        text = heading if isinstance(heading, Text) else Text(heading)
        table.add_column(one_row(text), justify=alignment, no_wrap=alignment == "right")
    return table


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


def _cell(text: str, style: str = "") -> Text:
    return one_row(Text(text, style))


def one_row(text: Text) -> Text:
    """Keep text on one row, whatever becomes of its width."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
