"""A worker that has nothing to do: what that costs, and how soon a handler begins after an enqueue elsewhere.

The worker has done a job and come to rest. For some seconds nothing happens, and the processor time of all its
processes and threads is taken, and their memory; then another process enqueues jobs at odd intervals, each with the
time at which its enqueue began in its payload. A handler returns how long ago that was; both clocks are the system's
monotonic one.
"""

from __future__ import annotations

import shutil
import time
from typing import cast

from benching.crew import Crew, Named
from benching.order import Answer, Measured, Meet, Order
from benching.payloads import number_of
from benching.subject import MODES, Resulting, Subject
from benching.working import Progress, family, memory_mb, processor_s, working
from benching.workload import BOTH, Cell, Column, Scale, Workload
from benching.workloads import waking
from benching.workloads.verbs import percentile

_AT_ONCE = 4
_SETTLED_S = 0.5
_SETTLED_SHARE = 0.05
_MOST_SETTLING_S = 20.0


def late(payload: bytes, progress: Progress | None = None) -> int:
    """Be the handler: return how long ago the enqueue began, ns."""
    took = time.monotonic_ns() - number_of(payload)
    if progress is not None:
        progress.note()
    return took


def attend(subject: Subject, order: Order, meet: Meet) -> Measured:
    """Run a worker that first has nothing to do, and then single jobs."""
    numbers = order["numbers"]
    jobs = int(numbers["jobs"])
    progress = Progress((1, 1 + jobs))
    subject.open(order["folder"], order["durability"])
    with working(subject, order, progress, late):
        progress.reached_at(1)
        _settle()
        meet()
        begun_at = time.monotonic()
        processes = family()
        before = {process: processor_s(process) for process in processes}
        time.sleep(numbers["idle s"])
        idle = [(processor_s(process) - before[process]) / (time.monotonic() - begun_at) for process in processes]
        memory = [memory_mb(process) for process in processes]
        progress.reached_at(1 + jobs)
    _, *took = cast("list[int]", cast("Resulting", subject).results())
    has = subject.pragmas()
    subject.close()
    took.sort()
    figures = {
        "p50 ms": percentile(took, 50) / 1000,
        "p99 ms": percentile(took, 99) / 1000,
        "longest ms": took[-1] / 1e6,
        "idle %": sum(idle) * 100,
        "most idle %": max(idle) * 100,
        "MB": sum(memory),
        "most MB": max(memory),
    }
    return Measured(figures, has)


TASKS = {"attend": attend, "ringer": waking.ringer, "make": waking.make}


def _settle() -> None:
    """Wait until every process has started, and does as good as nothing."""
    until = time.monotonic() + _MOST_SETTLING_S
    while time.monotonic() < until:
        used = sum(map(processor_s, family()))
        time.sleep(_SETTLED_S)
        if sum(map(processor_s, family())) - used < _SETTLED_SHARE * _SETTLED_S:
            return
    raise RuntimeError(f"the worker is still busy after {_MOST_SETTLING_S:g} s without a job")


class WorkerIdle(Workload):
    """One worker in each mode, one process that enqueues."""

    name = "worker idle"
    title = "A worker with nothing to do, and from an enqueue in another process to its handler"
    main = "p50 ms"
    subjects = ("ours",)
    columns = (
        Column("p50 ms", "p50, ms", is_shown_spread=True),
        Column("p99 ms", "p99, ms"),
        Column("idle %", "idle, % of a core", is_shown_spread=True),
        Column("most idle %", "its busiest process, %"),
        Column("MB", "memory, MB"),
        Column("most MB", "its largest process, MB"),
    )

    def cells(self, scale: Scale) -> list[Cell]:
        """Every mode at each durability, with the default number of jobs at once."""
        numbers = {"at once": _AT_ONCE, "jobs": scale.count(200, 10), "idle s": scale.seconds(5.0)}
        return [
            Cell(
                self.name,
                f"{mode}, {_AT_ONCE} at once",
                durability,
                {**numbers, "mode": MODES.index(mode)},
                with_peers=False,
            )
            for durability in (BOTH[:1] if scale.is_short else BOTH)
            for mode in MODES
        ]

    def measure(self, crew: Crew, cell: Cell, subject: Named, number: int) -> Answer:
        """Let the two at a fresh file."""
        folder = self.place(crew, cell) / f"{subject.name}-{number}"
        try:
            made = crew.run(self.order(cell, subject, folder, "make"))
            if "figures" not in made:
                return made
            tasks = [self.order(cell, subject, folder, task, seed=number) for task in ("attend", "ringer")]
            attended, rang = crew.run_together(tasks)
            return rang if "failed" in rang and "figures" in attended else attended
        finally:
            shutil.rmtree(folder, ignore_errors=True)
