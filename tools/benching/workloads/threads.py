"""Threads of one process that enqueue on one handle, and how often the disk is synced for a verb.

All begin together; the time is that from their start to the last one's end. Syncs are counted in another process with
the same work, since counting slows it down.
"""

from __future__ import annotations

import shutil
import threading
import time
from array import array
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from benching.crew import Crew, Named
from benching.order import Answer, Figures, Measured, Meet, Order
from benching.payloads import payload
from benching.subject import Subject, Threaded, Unsupported
from benching.workload import BOTH, Cell, Column, Scale, Workload
from benching.workloads.verbs import spread

_WARM = 20


def together(subject: Subject, order: Order, _: Meet) -> Measured:
    """Enqueue from so many threads, and time it."""
    count, each = _shape(subject, order)
    subject.open(order["folder"], order["durability"])
    _warm_up(subject)
    whole, took = _work(subject, count, each)
    jobs = sum(map(len, took))
    figures: Figures = {"us": whole / 1000 / jobs, **spread([one for mine in took for one in mine]), "jobs": jobs}
    has = subject.pragmas()
    subject.close()
    return Measured(figures, has)


def counted(subject: Subject, order: Order, _: Meet) -> Measured:
    """Enqueue from so many threads, and count the syncs."""
    count, each = _shape(subject, order)
    if not hasattr(subject, "count_syncs"):
        raise Unsupported("its syncs are not counted")
    threaded = cast("Threaded", subject)
    threaded.count_syncs()
    subject.open(order["folder"], order["durability"])
    _warm_up(subject)
    before = threaded.syncs()
    _work(subject, count, each)
    figures: Figures = {"syncs a verb": (threaded.syncs() - before) / (count * each)}
    has = subject.pragmas()
    subject.close()
    return Measured(figures, has)


TASKS = {"together": together, "counted": counted}


def _shape(subject: Subject, order: Order) -> tuple[int, int]:
    """Return how many threads there are to be, and how many jobs for each."""
    count = int(order["numbers"]["threads"])
    if count > 1 and not getattr(subject, "serves_threads", False):
        raise Unsupported("a handle serves one thread")
    return count, int(order["numbers"]["jobs"]) // count


def _warm_up(subject: Subject) -> None:
    for number in range(_WARM):
        subject.enqueue(payload(number))


def _work(subject: Subject, count: int, each: int) -> tuple[int, list[array[int]]]:
    """Let threads enqueue; return how long it took them together, and each verb; ns."""
    took = [array("q") for _ in range(count)]
    meeting = threading.Barrier(count + 1)

    def work(mine: array[int]) -> None:
        clock = time.perf_counter_ns
        meeting.wait()
        for number in range(each):
            begun_at = clock()
            subject.enqueue(payload(number))
            mine.append(clock() - begun_at)

    with ThreadPoolExecutor(count) as pool:
        working = [pool.submit(work, mine) for mine in took]
        meeting.wait()
        begun_at = time.perf_counter_ns()
        for one in working:
            one.result()
        whole = time.perf_counter_ns() - begun_at
    return whole, took


class Threads(Workload):
    """One thread, and eight."""

    name = "threads"
    title = "Threads that enqueue on one handle"
    main = "us"
    columns = (
        Column("us", "µs a job", is_shown_spread=True),
        Column("p50 us", "p50, µs"),
        Column("p99 us", "p99, µs"),
        Column("syncs a verb", "syncs a verb"),
    )

    def cells(self, scale: Scale) -> list[Cell]:
        """One and eight threads at each durability."""
        jobs = {"normal": scale.count(10_000, 80), "full": scale.count(2_000, 80)}
        return [
            Cell(
                self.name,
                f"{count} threads",
                durability,
                {"threads": count, "jobs": jobs[durability]},
                with_peers=False,
            )
            for durability in (BOTH[1:] if scale.is_short else BOTH)
            for count in ((8,) if scale.is_short else (1, 8))
        ]

    def measure(self, crew: Crew, cell: Cell, subject: Named, number: int) -> Answer:
        """Time in one process, count in another."""
        around = self.place(crew, cell) / f"{subject.name}-{number}"
        try:
            timed = crew.run(self.order(cell, subject, around / "timed", "together"))
            synced = crew.run(self.order(cell, subject, around / "counted", "counted"))
            if "figures" in timed and "figures" in synced:
                timed["figures"] |= synced["figures"]
            return synced if "failed" in synced else timed
        finally:
            shutil.rmtree(around, ignore_errors=True)
