"""A run as it is kept: its samples, and what they belong to.

Owns the JSON of a run and what may be shown together. Invariants: a file is replaced as a whole, so that an interrupted
run leaves what it has; runs that are shown together measured different workloads, since a ratio is taken within a
round; a command is kept without the places of files, which are nobody else's.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benching.running import EVERY
from harness.report import Figure

_PLACES = ("--json", "--plots", "--document")


class NoRun(ValueError):
    """That is not the JSON of a run, or not one that can be shown with the others."""


@dataclass(slots=True)
class Run:
    """One command, and what it has measured."""

    command: str
    seed: int
    size: Mapping[str, Figure]
    """How large it was: rounds, and a factor on how much was done."""
    is_short: bool
    """Whether it only proves that the benchmark runs."""
    taken: Mapping[str, str]
    """Commit, Python and SQLite."""
    surroundings: Mapping[str, Figure]
    """The machine."""
    samples: list[dict[str, Any]] = field(default_factory=list)

    def workloads(self) -> list[str]:
        """Return what was measured, in its order."""
        return [name for name in dict.fromkeys(sample["workload"] for sample in self.samples) if name != EVERY]

    def facts(self) -> dict[str, Figure]:
        """Return what the figures belong to, by name."""
        return {**self.taken, **self.surroundings, **self.size, "seed": self.seed}


def shown(arguments: Sequence[str]) -> str:
    """Return a command line as others may repeat it: without the names of files."""
    kept: list[str] = []
    left = iter(arguments)
    for argument in left:
        if argument in _PLACES:
            next(left, None)
        elif not argument.startswith(tuple(f"{place}=" for place in _PLACES)):
            kept.append(argument)
    return shlex.join(["python", "tools/bench.py", *kept])


def write(run: Run, path: Path) -> None:
    """Keep a run, in place of what was there."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(asdict(run), indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def read(paths: Iterable[Path]) -> list[Run]:
    """Read runs that belong together; raise `NoRun` where one does not."""
    found: list[Run] = []
    seen: dict[str, Path] = {}
    for path in paths:
        run = _read(path)
        for name in run.workloads():
            if name in seen:
                raise NoRun(f"{name} was measured in {seen[name]} and in {path}: only different workloads go together")
            seen[name] = path
        found.append(run)
    return found


def _read(path: Path) -> Run:
    try:
        return Run(**json.loads(path.read_text(encoding="utf-8")))
    except OSError as exc:
        raise NoRun(f"{path}: {exc.strerror}") from exc
    except (ValueError, TypeError) as exc:
        raise NoRun(f"{path} is not what `--json` writes") from exc


def common(runs: Sequence[Run]) -> dict[str, Figure]:
    """Return the facts that all runs share."""
    first, *others = [run.facts() for run in runs]
    return {name: value for name, value in first.items() if all(facts.get(name) == value for facts in others)}
