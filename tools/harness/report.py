"""How every fault harness is asked for a run, and how it tells what it found.

Owns the common options (`--seed`, `--json`, `--control`), the table, the JSON and the exit status. Invariants: a run
says which code, SQLite and seed its figures belong to; it ends with 1 when a promise was broken, whatever the figures
look like, with 2 when the harness itself failed, and with 130 when it was interrupted. A negative control is a run with
a sabotage that has to end with 1: a harness that passes it proves nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import subprocess
import sys
import textwrap
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent.parent
MOST_BROKEN = 20
"""Broken promises that are printed; the count tells of the others."""

_SHOWN_CHARS = 400

Figure = str | int | float | None


def parser(description: str, controls: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return a parser with the options that every harness has; `controls` says what each sabotage does."""
    told = "; ".join(f"{name}: {what}" for name, what in controls.items())
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--seed", type=int, default=None, help="repeat a run (default: a new seed, which is printed)")
    made.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    made.add_argument(
        "--control",
        choices=sorted(controls),
        help=f"sabotage the run, which then has to fail. {told}".replace("%", "%%"),
    )
    return made


def some(text: str) -> int:
    """Read a size; a run of nothing would break no promise."""
    number = int(text) if text.strip().isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def some_or_none(text: str) -> int:
    """Read a size that may be 0, where another part of the run remains."""
    return 0 if text.strip() == "0" else some(text)


def seconds(text: str) -> float:
    """Read a time of more than 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds of more than 0")
    return number


def run(main: Callable[[], int]) -> int:
    """Run a harness as a command; a harness that fails by itself ends with 2, so that no control passes by that."""
    try:
        return main()
    except KeyboardInterrupt:
        say("interrupted: nothing is proved")
        return 130
    except Exception:  # noqa: BLE001 - told in full
        traceback.print_exc()
        say("the harness itself failed: nothing is proved")
        return 2


def seed_of(options: argparse.Namespace) -> int:
    """Return the seed that was given, or a new one."""
    given: int | None = options.seed
    return secrets.randbelow(2**31) if given is None else given


@dataclass(slots=True)
class Report:
    """What a run found."""

    harness: str
    seed: int
    size: Mapping[str, Figure]
    """How large the run was, by the names of the options that say so."""
    control: str | None = None
    tables: dict[str, list[dict[str, Figure]]] = field(default_factory=dict)
    """Figures by title; each row has the same columns as the first."""
    broken: list[str] = field(default_factory=list)
    """Every promise that was broken, with what is needed to see it again."""
    surroundings: Mapping[str, Figure] = field(default_factory=dict)
    """What else the figures belong to: the machine, where times are told."""
    taken: Mapping[str, str] = field(default_factory=lambda: taken_with())  # noqa: PLW0108 - defined below
    """What they were taken with; a report that is read back keeps its own."""
    judges: bool = True
    """Whether a run without a broken promise proves anything."""

    def add(self, title: str, rows: Sequence[Mapping[str, Figure]]) -> None:
        """Add a table."""
        self.tables[title] = [dict(row) for row in rows]

    def finish(self, *, as_json: bool) -> int:
        """Print everything; return the exit status."""
        print(json.dumps(self.as_dict()) if as_json else self.as_text(), flush=True)
        return 1 if self.broken else 0

    def as_dict(self) -> dict[str, object]:
        """Return the run as plain values."""
        return {
            "harness": self.harness,
            "seed": self.seed,
            "size": dict(self.size),
            "control": self.control,
            "taken_with": dict(self.taken),
            "surroundings": dict(self.surroundings),
            "tables": self.tables,
            "broken_count": len(self.broken),
            "broken": self.broken[:MOST_BROKEN],
        }

    def as_text(self) -> str:
        """Return the run as a person reads it."""
        size = ", ".join(f"{name} {value}" for name, value in self.size.items())
        lines = [f"{self.harness}: seed {self.seed}, {size}"]
        if self.control is not None:
            lines.append(f"negative control: {self.control} (this run has to fail)")
        lines += [
            ", ".join(f"{name} {value}" for name, value in told.items())
            for told in (self.taken, self.surroundings)
            if told
        ]
        for title, rows in self.tables.items():
            lines += ["", title, *_aligned(rows)]
        if not self.broken:
            lines += ["", "no promise was broken"] if self.judges else []
        else:
            lines += ["", f"BROKEN: {len(self.broken)}"]
            lines += [f"  {textwrap.shorten(one, _SHOWN_CHARS)}" for one in self.broken[:MOST_BROKEN]]
        return "\n".join(lines)


def taken_with() -> dict[str, str]:
    """Say what the figures of this run belong to."""
    import apsw  # noqa: PLC0415 - a script may be read before its environment is made

    return {
        "commit": _commit(),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
    }


def _commit() -> str:
    """Return the commit that is checked out, marked when files differ from it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def _aligned(rows: Sequence[Mapping[str, Figure]]) -> list[str]:
    if not rows:
        return ["(nothing)"]
    columns = list(rows[0])
    cells = [columns, *[[_shown(row.get(column)) for column in columns] for row in rows]]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    is_number = [all(isinstance(row.get(column), (int, float, type(None))) for row in rows) for column in columns]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in cells
    ]


def _shown(value: Figure) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 1000 else str(value)  # noqa: PLR2004 - readable


def say(text: str) -> None:
    """Tell of progress on stderr, so that standard output stays the report."""
    print(text, file=sys.stderr, flush=True)
