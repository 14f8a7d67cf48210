"""The tables of a run, made from its summary: for the terminal, and for a page.

Ratios first: a row says who, the median of the main figure with its spread, and how many times the floor that is; then
the rest. Sorted by what the subjects held, so that only what may be compared stands together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benching.registry import workloads
from benching.summary import FLOOR, Row, Spread
from benching.workload import Workload
from harness.report import Figure

Table = list[dict[str, Figure]]
_ORDER = {"normal": 0, "full": 1}


def tables(rows: Sequence[Row]) -> dict[str, Table]:
    """Return a table for each workload that was measured, by title."""
    found = {}
    for workload in workloads():
        mine = [row for row in rows if row.key.workload == workload.name and row.figures]
        if mine:
            found[workload.title] = _table(workload, mine)
    left_out = [
        {
            "workload": row.key.workload,
            "cell": row.key.cell,
            "asked": row.key.asked,
            "subject": row.key.subject,
            "why": row.why_not,
        }
        for row in rows
        if row.why_not
    ]
    return found | ({"What has no figure, or failed": _merged(left_out)} if left_out else {})


def _table(workload: Workload, rows: list[Row]) -> Table:
    cells = list(dict.fromkeys(row.key.cell for row in rows))
    in_order = sorted(
        rows,
        key=lambda row: (_ORDER.get(row.key.asked, 9), cells.index(row.key.cell), row.is_peer, _main(workload, row)),
    )
    is_compared = any(row.key.subject == FLOOR for row in rows)
    is_a_time = workload.main == "us"
    made: Table = []
    for row in in_order:
        line: dict[str, Figure] = {
            "asked": row.key.asked,
            "what": row.key.cell,
            "subject": row.key.subject if row.delivery != "at most once" else f"{row.key.subject} (at most once)",
            "held": row.held,
        }
        if is_compared:
            ratio = row.to_floor.get(workload.main)
            line[f"× {FLOOR}"] = None if ratio is None else round(ratio.median, 2)
        if is_a_time:
            took = row.figures.get("us")
            line["jobs/s"] = None if took is None else round(1e6 / took.median)
        for column in workload.columns:
            spread = row.figures.get(column.name)
            line[column.title] = None if spread is None else _rounded(spread.median)
            if column.is_shown_spread:
                line[f"{column.title} from–to"] = None if spread is None else _from_to(spread)
        made.append(line)
    return made


def _main(workload: Workload, row: Row) -> float:
    spread = row.figures.get(workload.main)
    return spread.median if spread is not None else float("inf")


def _rounded(value: float) -> float:
    """Keep three digits of what is small."""
    return round(value) if abs(value) >= 100 else float(f"{value:.3g}")  # noqa: PLR2004 - readable


def _from_to(spread: Spread) -> str:
    return f"{_rounded(spread.least):g}–{_rounded(spread.most):g}"


def _merged(rows: Sequence[Mapping[str, Figure]]) -> Table:
    """Tell once what is so for several cells."""
    found: dict[tuple[Figure, ...], dict[str, Figure]] = {}
    for row in rows:
        key = (row["workload"], row["subject"], row["why"])
        known = found.setdefault(
            key, {"workload": row["workload"], "subject": row["subject"], "cells": "", "why": row["why"]}
        )
        cell = f"{row['cell']} {row['asked']}"
        known["cells"] = f"{known['cells']}, {cell}" if known["cells"] else cell
    for known in found.values():
        if str(known["cells"]).count(",") > 1:
            known["cells"] = f"{str(known['cells']).count(',') + 1} of them"
    return list(found.values())


def markdown(table: Table) -> str:
    """Return a table as a page has it."""
    columns = list(table[0])
    lines = [columns, ["---"] * len(columns), *[[_cell(row.get(column)) for column in columns] for row in table]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Figure) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value).replace("|", "\\|")
