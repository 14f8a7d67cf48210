"""A worker that works off a backlog with handlers that do nothing, beside single verbs on the same file.

Within a measurement the two take turns: so many jobs by a lease and a completion after the other, so many by the
library's worker. Its time is that from one job to a later one, so neither its start nor its end is in it. A handler
reads its payload, as whoever leases by single verbs does.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

from benching.crew import Crew, Named
from benching.order import Answer, Measured, Meet, Order
from benching.payloads import payload
from benching.subject import MODES, Subject
from benching.working import Progress, nothing, working
from benching.workload import BOTH, Cell, Column, Scale, Workload
from benching.workloads.verbs import put

_WARM = 100
_SINGLE_WARM = 5
_TURNS = {"threads": 6, "asyncio": 6, "processes": 3}
"""Short ones, so that the disk is the same for both; processes take half a second to start."""


def backlog(subject: Subject, order: Order, _: Meet) -> Measured:
    """Let single verbs and a worker at backlogs of the same file, in turns."""
    numbers = order["numbers"]
    subject.open(order["folder"], order["durability"])
    halves: list[tuple[str, Callable[[Subject, Order], float]]] = [("single us", _singly), ("us", _by_worker)]
    took: dict[str, list[float]] = {name: [] for name, _ in halves}
    for turn in range(int(numbers["turns"])):
        for name, half in halves if (turn + int(numbers["round"])) % 2 else reversed(halves):
            took[name].append(half(subject, order))
    figures = {name: sum(found) / len(found) for name, found in took.items()}
    has = subject.pragmas()
    subject.close()
    return Measured({**figures, "times": figures["single us"] / figures["us"]}, has)


TASKS = {"backlog": backlog}


def _singly(subject: Subject, order: Order) -> float:
    """Return what a job costs by a lease and a completion, one after the other; µs."""
    jobs = int(order["numbers"]["single jobs"])
    put(subject, [payload(number) for number in range(_SINGLE_WARM + jobs)])
    begun_at = 0
    for number in range(_SINGLE_WARM + jobs):
        if number == _SINGLE_WARM:
            begun_at = time.perf_counter_ns()
        token = subject.lease()
        if token is None:
            raise RuntimeError("a job is missing")
        subject.payload_id(token)
        subject.complete(token)
    return (time.perf_counter_ns() - begun_at) / 1000 / jobs


def _by_worker(subject: Subject, order: Order) -> float:
    """Return what a job costs in the middle of a worker's work; µs."""
    jobs = int(order["numbers"]["jobs"])
    progress = Progress((_WARM, _WARM + jobs))
    put(subject, [payload(number) for number in range(_WARM + jobs)])
    with working(subject, order, progress, nothing):
        begun_at = progress.reached_at(_WARM)
        took = progress.reached_at(_WARM + jobs) - begun_at
    return took / 1000 / jobs


class Worker(Workload):
    """Every mode with some numbers of jobs at once, at each durability."""

    name = "worker"
    title = "A worker and a backlog of jobs whose handlers do nothing"
    main = "us"
    subjects = ("ours",)
    columns = (
        Column("us", "µs a job", is_shown_spread=True),
        Column("single us", "single verbs, µs a job"),
        Column("times", "× single verbs", is_shown_spread=True),
    )

    def cells(self, scale: Scale) -> list[Cell]:
        """Threads and asyncio with 4, 8 and 32 at once, 2 and 4 processes; peers have 4 at once only."""
        at_once = {"threads": (4, 8, 32), "asyncio": (4, 8, 32), "processes": (2, 4)}
        jobs = {"normal": 2_500, "full": 1_000}
        single_jobs = {"normal": 500, "full": 100}
        return [
            Cell(
                self.name,
                f"{mode}, {count} at once",
                durability,
                {
                    "mode": MODES.index(mode),
                    "at once": count,
                    "jobs": scale.count(jobs[durability], 2 * count),
                    "single jobs": scale.count(single_jobs[durability]),
                    "turns": 1 if scale.is_short else _TURNS[mode],
                },
                with_peers=mode != "processes" and count == 4,  # noqa: PLR2004 - the default
            )
            for durability in (BOTH[1:] if scale.is_short else BOTH)
            for mode in MODES
            for count in at_once[mode][: 1 if scale.is_short else None]
        ]

    def measure(self, crew: Crew, cell: Cell, subject: Named, number: int) -> Answer:
        """Measure in a fresh file."""
        folder = self.place(crew, cell) / f"{subject.name}-{number}"
        try:
            return crew.run(self.order(cell, subject, folder, "backlog", round=number))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
