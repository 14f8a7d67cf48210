"""The tables of a run, made from its summary: for the terminal, and for a page.

Ratios first: a row says who, the median of the main figure with its spread, and how many times the floor that is; then
the rest. Sorted by what the subjects held, so that only what may be compared stands together.
"""

from __future__ import annotations

from collections.abc import Sequence

from benching.registry import workloads
from benching.summary import FLOOR, Row
from benching.workload import Part, Workload
from harness.report import Figure
from litequeue.bench import Spread

Table = list[dict[str, Figure]]
SUBJECTS = "What the live connections say"
LEFT_OUT = "What has no figure, or failed"
_ASKED = ("journal_mode", "synchronous", "page_size", "sqlite")
_LEVELS = {"normal": 0, "full": 1}


def tables(rows: Sequence[Row]) -> dict[str, Table]:
    """Return a table for each workload that was measured, by title."""
    found = {SUBJECTS: _subjects(rows)} if any(row.has for row in rows) else {}
    for workload in workloads():
        mine = [row for row in rows if row.key.workload == workload.name and row.figures]
        if mine:
            found |= {part.title: _table(workload, part, mine) for part in workload.parts()}
    left_out = _left_out(rows)
    return found | ({LEFT_OUT: left_out} if left_out else {})


def _left_out(rows: Sequence[Row]) -> Table:
    """Return why there are figures that are not there; once for each reason of a subject."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        if row.why_not:
            workloads_of = found.setdefault((row.key.subject, row.why_not), {})
            cell = f"{row.key.cell}, {row.key.asked}"
            workloads_of[row.key.workload] = "" if row.key.workload in workloads_of else f" ({cell})"
    return [
        {"subject": subject, "why": why, "where": ", ".join(f"{name}{cell}" for name, cell in where.items())}
        for (subject, why), where in sorted(found.items())
    ]


def _table(workload: Workload, part: Part, rows: list[Row]) -> Table:
    cells = list(dict.fromkeys(row.key.cell for row in rows))
    in_order = sorted(
        rows,
        key=lambda row: (
            _LEVELS.get(row.held, len(_LEVELS)),
            row.held,
            cells.index(row.key.cell),
            _main(workload, row),
        ),
    )
    has_main = any(column.name == workload.main for column in part.columns)
    is_compared = has_main and any(row.key.subject == FLOOR for row in rows)
    has_other = any(row.held != row.key.asked for row in rows)
    made: Table = []
    for row in in_order:
        line: dict[str, Figure] = {"durability": row.held}
        if has_other:
            line["asked for"] = row.key.asked
        line |= {"what": row.key.cell, "subject": row.who}
        if is_compared:
            ratio = row.to_floor.get(workload.main)
            line[f"× {FLOOR}"] = None if ratio is None else round(ratio.median, 2)
        if has_main and workload.main == "us":
            took = row.figures.get("us")
            line["jobs/s"] = None if took is None else round(1e6 / took.median)
        for column in part.columns:
            spread = row.figures.get(column.name)
            line[column.title] = None if spread is None else _rounded(spread.median)
            if column.is_shown_spread:
                line["from–to" if column.name == workload.main else f"{column.title}, from–to"] = (
                    None if spread is None else _from_to(spread)
                )
        made.append(line)
    return made


def _subjects(rows: Sequence[Row]) -> Table:
    """Return what each subject has, by durability; once where it is always the same."""
    found: dict[tuple[str, ...], dict[str, Figure]] = {}
    for row in sorted(rows, key=lambda row: (row.is_peer, row.key.subject, _LEVELS.get(row.held, len(_LEVELS)))):
        if row.has:
            line: dict[str, Figure] = {"subject": row.who, "library": str(row.has.get("library", ""))}
            line |= {"durability": row.held} | {name: str(row.has.get(name, "unknown")) for name in _ASKED}
            found.setdefault(tuple(map(str, line.values())), line)
    return list(found.values())


def _main(workload: Workload, row: Row) -> float:
    spread = row.figures.get(workload.main)
    return spread.median if spread is not None else float("inf")


def _rounded(value: float) -> float:
    """Keep three digits of what is small."""
    return round(value) if abs(value) >= 100 else float(f"{value:.3g}")  # noqa: PLR2004 - readable


def _from_to(spread: Spread) -> str:
    return f"{_rounded(spread.least):g}–{_rounded(spread.most):g}"


def markdown(table: Table) -> str:
    """Return a table as a page has it."""
    columns = list(table[0])
    lines = [columns, ["---"] * len(columns), *[[_cell(row.get(column)) for column in columns] for row in table]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Figure) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value).replace("|", "\\|")
