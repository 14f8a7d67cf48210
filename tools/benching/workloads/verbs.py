"""One process, one verb at a time or one batch: what a verb costs in a file that nobody else wants.

A pair is a lease, its payload read, and a completion. Each measurement has a fresh file, and a few verbs before it that
nobody times. Times are means, with the checkpoints that fell into them, so they add up to the rate.
"""

from __future__ import annotations

import shutil
import time
from array import array
from collections.abc import Callable, Sequence

from benching.crew import Crew, Named
from benching.order import Answer, Figures, Measured, Meet, Order
from benching.payloads import payload
from benching.subject import Subject, Unsupported
from benching.workload import BOTH, PAYLOADS, Cell, Column, Scale, Workload

_WARM = 20
_MOST_BYTES = 20_000_000
"""Of all payloads of one file."""
_MOST_S = 3.0
_BATCH = 100
_FILL_BYTES = 2_000_000


def percentile(sorted_ns: Sequence[int], percent: float) -> float:
    """Return a percentile in µs."""
    return sorted_ns[min(len(sorted_ns) - 1, int(len(sorted_ns) * percent / 100))] / 1000


def spread(took: Sequence[int]) -> Figures:
    """Return how long verbs took."""
    if not took:
        raise Unsupported("nothing was done")
    in_order = sorted(took)
    return {"p50 us": percentile(in_order, 50), "p99 us": percentile(in_order, 99), "longest us": in_order[-1] / 1000}


def put(subject: Subject, payloads: Sequence[bytes]) -> None:
    """Fill a file, in batches where the library has them."""
    step = max(1, _FILL_BYTES // max(1, len(payloads[0])))
    try:
        for start in range(0, len(payloads), step):
            subject.enqueue_many(payloads[start : start + step])
    except Unsupported:
        for one in payloads:
            subject.enqueue(one)


def _made(order: Order) -> list[bytes]:
    size = int(order["numbers"]["bytes"])
    return [payload(number, size) for number in range(int(order["numbers"]["jobs"]) + _WARM)]


def _timed(verb: Callable[[], bool], times: int, most_s: float) -> Figures:
    """Do a verb so many times, or as often as there is time for."""
    clock = time.perf_counter_ns
    took = array("q")
    deadline = clock() + int(most_s * 1e9)
    for _ in range(times):
        begun_at = clock()
        if not verb():
            raise RuntimeError(f"nothing to lease, {times - len(took)} jobs before the end")
        ended_at = clock()
        took.append(ended_at - begun_at)
        if ended_at > deadline:
            break
    return {"us": sum(took) / len(took) / 1000, **spread(took), "jobs": len(took)}


def enqueue(subject: Subject, order: Order, _: Meet) -> Measured:
    """Enqueue one by one."""
    subject.open(order["folder"], order["durability"])
    payloads = _made(order)
    for one in payloads[:_WARM]:
        subject.enqueue(one)
    left = iter(payloads[_WARM:])

    def verb() -> bool:
        subject.enqueue(next(left))
        return True

    figures = _timed(verb, len(payloads) - _WARM, order["numbers"]["most s"])
    return _ended(subject, figures)


def bulk(subject: Subject, order: Order, _: Meet) -> Measured:
    """Enqueue all in one batch."""
    subject.open(order["folder"], order["durability"])
    payloads = _made(order)
    subject.enqueue_many(payloads[:_WARM])
    begun_at = time.perf_counter_ns()
    subject.enqueue_many(payloads[_WARM:])
    took = time.perf_counter_ns() - begun_at
    jobs = len(payloads) - _WARM
    return _ended(subject, {"us": took / jobs / 1000, "jobs": jobs})


def pair(subject: Subject, order: Order, _: Meet) -> Measured:
    """Lease, read and complete one by one."""
    subject.open(order["folder"], order["durability"])
    put(subject, _made(order))

    def verb() -> bool:
        token = subject.lease()
        if token is None:
            return False
        subject.payload_id(token)
        subject.complete(token)
        return True

    for _number in range(_WARM):
        verb()
    return _ended(subject, _timed(verb, int(order["numbers"]["jobs"]), order["numbers"]["most s"]))


def hundreds(subject: Subject, order: Order, _: Meet) -> Measured:
    """Lease, read and complete a hundred at a time."""
    subject.open(order["folder"], order["durability"])
    subject.lease_many(1)  # before the file is filled in vain
    payloads = _made(order)
    put(subject, payloads)
    subject.complete_many(subject.lease_many(_WARM))
    clock = time.perf_counter_ns
    done, wanted = 0, len(payloads) - _WARM
    begun_at = clock()
    deadline = begun_at + int(order["numbers"]["most s"] * 1e9)
    while done < wanted and clock() < deadline:
        tokens = subject.lease_many(_BATCH)
        for token in tokens:
            subject.payload_id(token)
        subject.complete_many(tokens)
        done += len(tokens)
        if not tokens:
            raise RuntimeError(f"nothing to lease, {wanted - done} jobs before the end")
    return _ended(subject, {"us": (clock() - begun_at) / done / 1000, "jobs": done})


def _ended(subject: Subject, figures: Figures) -> Measured:
    has = subject.pragmas()
    subject.close()
    return Measured(figures, has)


TASKS = {"enqueue": enqueue, "bulk": bulk, "pair": pair, "hundreds": hundreds}


class Verbs(Workload):
    """A task of this module at each payload and durability."""

    main = "us"
    subjects = ("ours", "bare", "statements")

    def __init__(self, task: str, name: str, title: str, jobs: dict[str, int], *, is_timed_singly: bool) -> None:
        self.name = name
        self.title = title
        self._task = task
        self._jobs = jobs
        singly = (Column("p50 us", "p50, µs"), Column("p99 us", "p99, µs"), Column("longest us", "longest, µs"))
        self.columns = (
            Column("us", "µs a job", is_shown_spread=True),
            *(singly if is_timed_singly else (Column("jobs", "jobs"),)),
        )

    def cells(self, scale: Scale) -> list[Cell]:
        """Every payload at every durability; peers have the smallest only."""
        durabilities = BOTH[:1] if scale.is_short and self._task != "enqueue" else BOTH
        payloads = list(PAYLOADS.items())[: 1 if scale.is_short else None]
        return [
            Cell(
                self.name,
                name,
                durability,
                {
                    "bytes": size,
                    "jobs": scale.count(min(self._jobs[durability], _MOST_BYTES // size)),
                    "most s": scale.seconds(_MOST_S),
                },
                with_peers=name == "100 B",
            )
            for durability in durabilities
            for name, size in payloads
        ]

    def measure(self, crew: Crew, cell: Cell, subject: Named, number: int) -> Answer:
        """Measure in a fresh file."""
        folder = self.place(crew, cell) / f"{subject.name}-{number}"
        try:
            return crew.run(self.order(cell, subject, folder, self._task))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


ENQUEUE = Verbs("enqueue", "enqueue", "Enqueue, one by one", {"normal": 10_000, "full": 1_000}, is_timed_singly=True)
BULK = Verbs(
    "bulk", "enqueue in bulk", "Enqueue, all in one batch", {"normal": 20_000, "full": 20_000}, is_timed_singly=False
)
PAIR = Verbs(
    "pair", "lease+complete", "Lease and complete, one by one", {"normal": 5_000, "full": 1_000}, is_timed_singly=True
)
HUNDREDS = Verbs(
    "hundreds",
    "lease+complete in hundreds",
    "Lease and complete, a hundred at a time",
    {"normal": 20_000, "full": 20_000},
    is_timed_singly=False,
)
