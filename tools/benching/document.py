"""The tables of a run, written into a page between markers.

A page says where a table goes: `<!-- bench: NAME -->`, and where it ends: `<!-- end -->`. What stands between is
written anew, with the command and the commit that the figures belong to; the rest of the page is a person's. `NAME` is
a workload, `subjects`, `goals`, `left out` or `run`. Invariant: a marker whose table the run does not have keeps what
is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from benching.registry import workloads
from benching.tables import LEFT_OUT, SUBJECTS, Table, markdown
from harness.report import Report

GOALS = "Goals"
_BLOCK = re.compile(r"(<!-- bench: ([^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def written(page: str, told: Report, command: str) -> str:
    """Return the page with the tables of a run."""
    titles = _titles()
    belongs = f"`{command}`, seed {told.seed}, at commit `{told.taken['commit']}`:\n\n"

    def block(found: re.Match[str]) -> str:
        name = found[2]
        if name == "run":
            return f"{found[1]}\n{_facts({**told.taken, **told.surroundings, **told.size})}\n\n{found[3]}"
        table: Table | None = told.tables.get(titles.get(name, name))
        return f"{found[1]}\n{belongs}{markdown(table)}\n\n{found[3]}" if table else found[0]

    return _BLOCK.sub(block, page)


def unknown(page: str) -> list[str]:
    """Return the names of markers that no run can fill."""
    return [found[2] for found in _BLOCK.finditer(page) if found[2] not in {"run", *_titles()}]


def _titles() -> dict[str, str]:
    """Return the title of each table by the name of its marker."""
    own = {"subjects": SUBJECTS, "goals": GOALS, "left out": LEFT_OUT}
    return {workload.name: workload.title for workload in workloads()} | own


def _facts(facts: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())
