"""What a workload is: cells to measure, how a cell is measured, and which figures come out.

Standard library only, since the modules of the workloads are read in the children of peers too. Invariant: every
subject of a cell gets the same numbers, so that its figures may stand beside each other.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from benching.crew import Crew, Named
from benching.order import Answer, Durability, Order

PAYLOADS = {"100 B": 100, "4 kB": 4_096, "100 kB": 102_400}
BOTH: tuple[Durability, ...] = ("normal", "full")


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a run is; 1.0 is the long form."""

    size: float = 1.0
    is_short: bool = False

    def count(self, number: int, least: int = 20) -> int:
        """Return how many of what the long form has so many of."""
        return max(least, round(number * self.size))

    def seconds(self, number: float) -> float:
        """Return how long what takes so long at most in the long form."""
        return number * min(1.0, max(self.size, 0.05)) if self.is_short else number


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of a workload, as it is shown."""

    name: str
    """Of the figure; with its unit."""
    title: str
    is_shown_spread: bool = False


class Part(NamedTuple):
    """One table of a workload."""

    name: str
    """Of its place on the page."""
    title: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of a workload's table: what each subject is measured at, several times over."""

    workload: str
    name: str
    durability: Durability
    numbers: dict[str, float] = field(default_factory=dict)
    with_peers: bool = True
    """Whether peers are measured too; some cells are about this package alone."""
    at_any_durability: bool = False
    """Whether a library without that durability is measured at the one it has, as it is not at another cell."""
    is_once: bool = False
    """One round only: it takes long, and counts bytes rather than time."""


class Workload(ABC):
    """A kind of measurement."""

    name: str
    title: str
    main: str
    """The figure that stands for the workload; smaller is better."""
    columns: tuple[Column, ...]
    subjects: tuple[str, ...] = ("ours", "bare")
    """Of this project's own; peers come besides."""

    @property
    def option(self) -> str:
        """Return its name on a command line."""
        return self.name.replace(" ", "-")

    def parts(self) -> tuple[Part, ...]:
        """Return its tables: one, unless that would be too wide."""
        return (Part(self.name, self.title, self.columns),)

    @abstractmethod
    def cells(self, scale: Scale) -> list[Cell]:
        """Return what there is to measure."""

    def prepare(self, crew: Crew, cell: Cell, subject: Named) -> Answer | None:  # noqa: ARG002 - a default
        """Do what is done once, before the rounds; return why a subject is left out."""
        return None

    @abstractmethod
    def measure(self, crew: Crew, cell: Cell, subject: Named, number: int) -> Answer:
        """Measure once; `number` is the round's."""

    def finish(self, crew: Crew, cell: Cell) -> None:
        """Remove what the cell has left."""
        shutil.rmtree(self.place(crew, cell), ignore_errors=True)

    def place(self, crew: Crew, cell: Cell) -> Path:
        """Return the folder of a cell."""
        return crew.folder / f"{self.name}-{cell.name}-{cell.durability}".replace(" ", "-")

    def order(self, cell: Cell, subject: Named, folder: Path, task: str, **more: float) -> Order:
        """Make an order for a child."""
        folder.mkdir(parents=True, exist_ok=True)
        return {
            "module": type(self).__module__.rpartition(".")[2],
            "task": task,
            "where": subject.where,
            "subject": subject.name,
            "folder": str(folder),
            "durability": cell.durability,
            "at_any_durability": cell.at_any_durability,
            "numbers": {**cell.numbers, **more},
        }
