"""The tables of some runs, written into a page between markers.

A page says where a table goes: `<!-- bench: NAME -->`, and where it ends: `<!-- end -->`. What stands between is
written anew; the rest of the page is a person's. `NAME` is a table of a workload, `subjects`, `goals`, `left out` or
`runs`. Invariant: every figure between markers is of the runs that stand at `runs`, each with its command and its
commit; a table that they do not have says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from benching import runs as recorded
from benching.registry import workloads
from benching.runs import Run
from benching.tables import LEFT_OUT, SUBJECTS, Table, markdown
from harness.report import Figure

GOALS = "Goals"
RUNS = "runs"
_BLOCK = re.compile(r"(<!-- bench: ([^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def written(page: str, tables: Mapping[str, Table], runs: Sequence[Run]) -> str:
    """Return the page with the tables of these runs."""
    titles = _titles()
    numbers = {name: number for number, run in enumerate(runs, 1) for name in run.workloads()}

    def block(found: re.Match[str]) -> str:
        name = found[2]
        if name == RUNS:
            return f"{found[1]}\n{_told(runs)}\n\n{found[3]}"
        title, workload = titles.get(name, (name, None))
        table = tables.get(title)
        of = f"Of run {numbers[workload]}.\n\n" if len(runs) > 1 and workload in numbers else ""
        body = f"{of}{markdown(table)}" if table else "Nothing." if name == "left out" else "Not measured."
        return f"{found[1]}\n{body}\n\n{found[3]}"

    return _BLOCK.sub(block, page)


def unfit(page: str) -> str | None:
    """Return why no run can be written into a page, if so."""
    names = [found[2] for found in _BLOCK.finditer(page)]
    if not names:
        return "it has no markers"
    unknown = [name for name in names if name not in {RUNS, *_titles()}]
    if unknown:
        return f"no table is called {', '.join(unknown)}"
    return None if RUNS in names else f"it has no place for the {RUNS}"


def _titles() -> dict[str, tuple[str, str | None]]:
    """Return the title of each table, and the workload that it is of, by the name of its marker."""
    own: dict[str, tuple[str, str | None]] = {
        "subjects": (SUBJECTS, None),
        "goals": (GOALS, None),
        "left out": (LEFT_OUT, None),
    }
    return {part.name: (part.title, workload.name) for workload in workloads() for part in workload.parts()} | own


def _told(runs: Sequence[Run]) -> str:
    """Return the runs as a list, and what all of them share."""
    shared = recorded.common(runs)
    lines = []
    for number, run in enumerate(runs, 1):
        own = {name: value for name, value in run.facts().items() if name not in shared} if len(runs) > 1 else {}
        lines.append(f"{number}. `{run.command}`{': ' if own else ''}{_facts(own)}")
    return "\n".join([*lines, "", f"{'All of them: ' if len(runs) > 1 else ''}{_facts(shared)}"])


def _facts(facts: Mapping[str, Figure]) -> str:
    return ", ".join(f"{name} `{value}`" if name == "commit" else f"{name} {value}" for name, value in facts.items())
