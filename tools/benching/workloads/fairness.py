"""Leases that go round the scopes: whom they serve when, and what that costs.

One process leases and completes one job after the other, of all scopes in turn. Where one scope has a large backlog and
the others have a few jobs, it is told at which lease each of these had its first job, and its last, beside the bound
that is promised: with all weights 1, the n-th job of a scope at lease n times the number of scopes at the latest. The
costs are medians, beside those of a lease from one scope of the same file, by turns.
"""

from __future__ import annotations

import shutil
import statistics
import time
from typing import cast

from benching.crew import Crew, Named
from benching.order import Answer, Figures, Measured, Meet, Order
from benching.subject import Fair, Subject
from benching.workload import Cell, Column, Scale, Workload

_OWN = "default"
"""The scope of the handle: that of the backlog, where there is one."""
_BLOCK = 10
_WARM = 2


def go_round(subject: Subject, order: Order, _: Meet) -> Measured:
    """Put jobs in, and lease them in turn."""
    numbers = order["numbers"]
    scopes, jobs, times = (int(numbers[name]) for name in ("scopes", "jobs", "times"))
    fair = cast("Fair", subject)
    subject.open(order["folder"], order["durability"])
    fair.fill_scopes([_OWN], int(numbers["backlog"]))
    fair.fill_scopes([f"scope {number:05}" for number in range(scopes)], jobs)
    figures = _served(subject, scopes, jobs) if numbers["is small"] else {}
    figures |= _timed(subject, times)
    has = subject.pragmas()
    subject.close()
    return Measured(figures, has)


TASKS = {"go round": go_round}


def _served(subject: Subject, scopes: int, jobs: int) -> Figures:
    """Lease until every job of the small scopes is done; return at which lease that was."""
    had: dict[str, int] = {}
    first = leases = 0
    while sum(had.values()) < scopes * jobs:
        _pair_in_turn(subject, had)
        leases += 1
        if len(had) == scopes and not first:
            first = leases
    bound = (scopes + 1) * jobs
    return {"first at": first, "done at": leases, "bound": bound, "of bound": leases / bound}


def _timed(subject: Subject, times: int) -> Figures:
    """Time pairs of all scopes, and of one."""
    took: dict[str, list[int]] = {"in turn": [], "alone": []}
    for block in range(_WARM + times // _BLOCK):
        for name, samples in took.items() if block % 2 else reversed(took.items()):
            for _ in range(_BLOCK):
                begun_at = time.perf_counter_ns()
                if name == "in turn":
                    _pair_in_turn(subject, {})
                else:
                    subject.complete(subject.lease())
                if block >= _WARM:
                    samples.append(time.perf_counter_ns() - begun_at)
    in_turn, alone = (statistics.median(samples) / 1000 for samples in took.values())
    return {"in turn us": in_turn, "alone us": alone, "in turn x": in_turn / alone}


def _pair_in_turn(subject: Subject, had: dict[str, int]) -> None:
    """Lease the next and complete it; count it for its scope, unless that is the one with the backlog."""
    taken = cast("Fair", subject).lease_in_turn()
    if taken is None:
        raise RuntimeError("no scope has a job left")
    token, scope = taken
    subject.complete(token)
    if scope != _OWN:
        had[scope] = had.get(scope, 0) + 1


class Fairness(Workload):
    """A large tenant beside small ones; one active scope, and ten thousand."""

    name = "fairness"
    title = "Leases that go round the scopes (`normal`)"
    main = "in turn us"
    subjects = ("ours",)
    columns = (
        Column("first at", "each small one has been served at lease"),
        Column("done at", "all small ones are done at lease"),
        Column("bound", "promised at lease"),
        Column("in turn us", "lease+complete in turn, µs"),
        Column("alone us", "from one scope, µs"),
        Column("in turn x", "× from one scope", is_shown_spread=True),
    )

    def cells(self, scale: Scale) -> list[Cell]:
        """Return the backlog beside 99 scopes; then one scope, and many."""
        times = scale.count(2_000, 4 * _BLOCK)
        backlog, many = scale.count(1_000_000, 1_000 + 2 * times), scale.count(10_000, 20)
        own = times + (_WARM + 1) * _BLOCK
        cells: dict[str, dict[str, float]] = {
            f"{backlog:,} jobs beside 99 scopes of 10": {"backlog": backlog, "scopes": 99, "jobs": 10, "is small": 1},
            "1 scope": {"backlog": 2 * own, "scopes": 0, "jobs": 0, "is small": 0},
            f"{many:,} scopes": {"backlog": 2 * own, "scopes": many, "jobs": 2, "is small": 0},
        }
        return [
            Cell(self.name, name, "normal", {**numbers, "times": times}, with_peers=False)
            for name, numbers in cells.items()
        ]

    def measure(self, crew: Crew, cell: Cell, subject: Named, number: int) -> Answer:
        """Do it in a fresh file."""
        folder = self.place(crew, cell) / f"{subject.name}-{number}"
        try:
            return crew.run(self.order(cell, subject, folder, "go round"))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
