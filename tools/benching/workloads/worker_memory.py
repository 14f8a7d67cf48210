"""A worker that works off a million jobs: whether its memory stays as it is.

The process of the worker enqueues them itself, some batches ahead, and nothing that is finished is kept, so that file
and backlog stay small. After each batch the memory of all its processes is read. What is compared is the middle of the
last twentieth with that of the second: in the first everything comes to its size. One round: a leak does not vary.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from benching.crew import Crew, Named
from benching.order import Answer, Measured, Meet, Order
from benching.payloads import payload
from benching.subject import MODES, Subject, Unsupported
from benching.working import Progress, family, memory_mb, nothing, working
from benching.workload import Cell, Column, Scale, Workload
from benching.workloads.filesize import Folder

_BATCHES = 1_000
_AHEAD = 4
_PATIENCE_S = 900.0


def last(subject: Subject, order: Order, _: Meet) -> Measured:
    """Work off so many jobs, and look at the memory all the while."""
    jobs = int(order["numbers"]["jobs"])
    batch = max(10, jobs // _BATCHES)
    maintain: Callable[[], None] | None = getattr(subject, "maintain", None)
    if maintain is None:
        raise Unsupported("it keeps what is finished")
    subject.open(order["folder"], order["durability"])
    maintain()
    folder = Folder(order["folder"])
    payloads = [payload(number) for number in range(batch)]
    marks = range(batch, jobs + 1, batch)
    progress = Progress(marks)
    found: list[float] = []
    with working(subject, order, progress, nothing):
        for _number in range(_AHEAD):
            subject.enqueue_many(payloads)
        begun_at = time.perf_counter_ns()
        ended_at = begun_at
        for mark in marks:
            ended_at = progress.reached_at(mark)
            if mark + _AHEAD * batch <= marks[-1]:
                subject.enqueue_many(payloads)
            found.append(sum(map(memory_mb, family())))
            folder.sizes()
    twentieth = max(1, len(found) // 20)
    early = statistics.median(found[twentieth : 2 * twentieth])
    late = statistics.median(found[-twentieth:])
    has = subject.pragmas()
    subject.close()
    figures = {
        "us": (ended_at - begun_at) / 1000 / marks[-1],
        "early MB": early,
        "late MB": late,
        "times": late / early,
        "most MB": max(found),
        "file MB": folder.most_file,
        "log MB": folder.most_log,
    }
    return Measured(figures, has)


TASKS = {"last": last}


class WorkerMemory(Workload):
    """A million jobs by threads, fewer by the other modes."""

    name = "worker memory"
    title = "The memory of a worker that goes on and on"
    main = "times"
    subjects = ("ours",)
    columns = (
        Column("us", "µs a job, with its enqueue"),
        Column("early MB", "after the first twentieth, MB"),
        Column("late MB", "at the end, MB"),
        Column("times", "end × beginning"),
        Column("most MB", "most, MB"),
        Column("file MB", "largest file, MB"),
        Column("log MB", "largest log, MB"),
    )

    def cells(self, scale: Scale) -> list[Cell]:
        """Every mode, at `normal`."""
        jobs = {"threads": 1_000_000, "asyncio": 300_000, "processes": 100_000}
        counts = {mode: scale.count(jobs[mode], 200) for mode in MODES}
        return [
            Cell(
                self.name,
                f"{mode}, {counts[mode]:,} jobs",
                "normal",
                {"mode": MODES.index(mode), "at once": 2 if mode == "processes" else 8, "jobs": counts[mode]},
                with_peers=False,
                is_once=True,
            )
            for mode in MODES
        ]

    def measure(self, crew: Crew, cell: Cell, subject: Named, number: int) -> Answer:
        """Do it, with the patience that it takes."""
        folder = self.place(crew, cell) / f"{subject.name}-{number}"
        try:
            return replace(crew, patience_s=_PATIENCE_S).run(self.order(cell, subject, folder, "last"))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
