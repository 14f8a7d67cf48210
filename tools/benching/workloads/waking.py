"""From an enqueue in one process to the lease of that job in another, which was waiting; and what waiting costs.

One process waits by the library's own means; first nothing happens for some seconds, and its processor time is taken;
then another enqueues jobs at odd intervals, each with the time at which its enqueue began in its payload. Both clocks
are the system's monotonic one. The latency ends when the lease has been returned.
"""

from __future__ import annotations

import random
import shutil
import time

from benching.crew import Crew, Named
from benching.order import Answer, Measured, Meet, Order
from benching.payloads import number_of, payload
from benching.subject import Subject
from benching.workload import Cell, Column, Scale, Workload
from benching.workloads.verbs import percentile

_QUIET_S = 0.3
"""Between the end of what is idle and the first enqueue."""
_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.004, 0.026
_LATE_S = 5.0


def waiter(subject: Subject, order: Order, meet: Meet) -> Measured:
    """Wait in vain, then for each job."""
    numbers = order["numbers"]
    subject.open(order["folder"], order["durability"])
    while (token := subject.lease()) is not None:
        subject.complete(token)
    subject.wait(0.05)
    meet()
    begun_at, used = time.monotonic(), time.process_time()
    while (left := begun_at + numbers["idle s"] - time.monotonic()) > 0:
        subject.wait(left)
    idle = (time.process_time() - used) / (time.monotonic() - begun_at)
    took: list[int] = []
    deadline = time.monotonic() + numbers["jobs"] * _MOST_PAUSE_S + _LATE_S
    while len(took) < numbers["jobs"] and time.monotonic() < deadline:
        token = subject.lease()
        if token is None:
            subject.wait(1.0)
            continue
        leased_at = time.monotonic_ns()
        took.append(leased_at - number_of(subject.payload_id(token)))
        subject.complete(token)
    has = subject.pragmas()
    subject.close()
    took.sort()
    if not took:
        raise RuntimeError("no job arrived")
    figures = {
        "p50 ms": percentile(took, 50) / 1000,
        "p99 ms": percentile(took, 99) / 1000,
        "longest ms": took[-1] / 1e6,
        "idle %": idle * 100,
        "late": numbers["jobs"] - len(took),
    }
    return Measured(figures, has)


def ringer(subject: Subject, order: Order, meet: Meet) -> Measured:
    """Enqueue at odd intervals."""
    numbers = order["numbers"]
    draw = random.Random(int(numbers["seed"]))
    subject.open(order["folder"], order["durability"])
    has = subject.pragmas()
    meet()
    time.sleep(numbers["idle s"] + _QUIET_S)
    for _ in range(int(numbers["jobs"])):
        subject.enqueue(payload(time.monotonic_ns()))
        time.sleep(draw.uniform(_LEAST_PAUSE_S, _MOST_PAUSE_S))
    subject.close()
    return Measured({}, has)


def make(subject: Subject, order: Order, _: Meet) -> Measured:
    """Make the file, so that two processes need not do it at once."""
    subject.open(order["folder"], order["durability"])
    subject.enqueue(payload(0))
    has = subject.pragmas()
    subject.close()
    return Measured({}, has)


TASKS = {"waiter": waiter, "ringer": ringer, "make": make}


class Waking(Workload):
    """One waiting process, one that enqueues."""

    name = "wake-up"
    title = "From an enqueue to the lease in another, waiting process"
    main = "p50 ms"
    columns = (
        Column("p50 ms", "p50, ms", is_shown_spread=True),
        Column("p99 ms", "p99, ms", is_shown_spread=True),
        Column("longest ms", "longest, ms"),
        Column("idle %", "idle, % of a core", is_shown_spread=True),
        Column("late", "never came"),
    )

    def cells(self, scale: Scale) -> list[Cell]:
        """One cell: `normal`."""
        numbers = {"jobs": scale.count(200, 10), "idle s": scale.seconds(2.0)}
        return [Cell(self.name, "one waiter, one producer", "normal", numbers, at_any_durability=True)]

    def measure(self, crew: Crew, cell: Cell, subject: Named, number: int) -> Answer:
        """Let the two at a fresh file."""
        folder = self.place(crew, cell) / f"{subject.name}-{number}"
        try:
            made = crew.run(self.order(cell, subject, folder, "make"))
            if "figures" not in made:
                return made
            tasks = [self.order(cell, subject, folder, task, seed=number) for task in ("waiter", "ringer")]
            waited, rang = crew.run_together(tasks)
            return rang if "failed" in rang and "figures" in waited else waited
        finally:
            shutil.rmtree(folder, ignore_errors=True)
