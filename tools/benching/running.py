"""One run: every workload, cell by cell, round by round, and within a round subject by subject.

Invariants: subjects alternate, in an order that is drawn anew for each round, so that what the machine does meanwhile
meets all of them; a subject that cannot do a cell is not asked again for it; nothing is left behind.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from benching.crew import Crew, Named
from benching.order import Answer, Durability, Figures, Pragmas
from benching.workload import Cell, Scale, Workload

PEER_ROUNDS = 3
"""Of a peer at most: they are many, and no goal hangs on the last percent of theirs."""
EVERY = "all"
"""The workload of a sample that stands for all of them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What came out of one measurement."""

    workload: str
    cell: str
    durability: Durability
    """What was asked for."""
    subject: str
    is_peer: bool
    round: int
    figures: Figures
    has: Pragmas
    """What the live connection said."""
    unsupported: str | None = None
    failed: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


class Step(NamedTuple):
    """A cell with those who are measured at it."""

    workload: Workload
    cell: Cell
    subjects: list[Named]
    rounds: int

    def at(self, number: int) -> list[Named]:
        """Return who takes a turn in a round: the peers in the first ones only, beside the others."""
        return [one for one in self.subjects if one.where != "peers" or number < PEER_ROUNDS]

    def turns(self) -> int:
        """Return how many measurements it is."""
        return sum(len(self.at(number)) for number in range(self.rounds))


def steps(
    workloads: Sequence[Workload], own: Sequence[str], peers: Sequence[str], scale: Scale, rounds: int
) -> list[Step]:
    """Return what is to be done."""
    found = []
    for workload in workloads:
        for cell in workload.cells(scale):
            subjects = [Named("subjects", name) for name in workload.subjects if name in own]
            if cell.with_peers:
                subjects += [Named("peers", name) for name in peers]
            if subjects:
                found.append(Step(workload, cell, subjects, 1 if cell.is_once else rounds))
    return found


def absent(peer: str, reason: str) -> Sample:
    """Return what stands for a peer that could not be installed."""
    unsupported = f"not installed: {reason}"
    return Sample(EVERY, EVERY, "full", peer, is_peer=True, round=0, figures={}, has={}, unsupported=unsupported)


def run(todo: Sequence[Step], crew: Crew, seed: int) -> Iterator[Sample]:
    """Do it; yield a sample for each subject and round, also where there are no figures."""
    draw = random.Random(seed)
    for step in todo:
        workload, cell, subjects, rounds = step
        try:
            why_not = {subject: workload.prepare(crew, cell, subject) for subject in subjects}
            for number in range(rounds):
                order = step.at(number)
                draw.shuffle(order)
                for subject in order:
                    answer = why_not[subject] or workload.measure(crew, cell, subject, number)
                    if "unsupported" in answer:
                        why_not[subject] = answer
                    yield _sample(cell, subject, number, answer)
        finally:
            workload.finish(crew, cell)


def _sample(cell: Cell, subject: Named, number: int, answer: Answer) -> Sample:
    return Sample(
        cell.workload,
        cell.name,
        cell.durability,
        subject.name,
        subject.where == "peers",
        number,
        answer.get("figures", {}),
        answer.get("has", {}),
        answer.get("unsupported"),
        answer.get("failed"),
    )
