"""One measurement: so many processes on one fresh file, and what they were served.

Owns: the processes, from their start to the last wait, the figures of their turns, and the checker's word. Invariants:
all begin together, at a rendezvous; shares count only the time in which all of them were still at work; the file is
looked at when every process is gone.
"""

from __future__ import annotations

import multiprocessing
import time
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import litequeue
from contending import worker
from contending.worker import Durability, Orders
from harness import found as finding
from harness.checker import Findings, judge
from harness.history import Histories, family, gather
from harness.journal import SUFFIX
from harness.promises import Rule
from working import contender
from working.orders import WorkerOrders

WorkerMode = Literal["threads", "asyncio", "processes"]
Mode = Literal["drain", "mixed", WorkerMode]
"""Verbs, or real workers in one of their modes."""

WORKER_MODES: tuple[WorkerMode, ...] = get_args(WorkerMode)
_FILLERS = 4
_LONGS = 2
"""For each filler: so many jobs last longer than a lease."""
_PATIENCE_S = 120.0
"""How long a process may take to end, after its time is over."""
_FORK = multiprocessing.get_context("fork")  # this process has no thread, and no queue open while it forks


class Plan(NamedTuple):
    """What to measure."""

    processes: int
    durability: Durability
    mode: Mode
    is_gated: bool
    jobs: int
    most_s: float
    control: str | None = None

    @property
    def is_of_workers(self) -> bool:
        """Whether real workers do the work."""
        return self.mode in WORKER_MODES

    def __str__(self) -> str:
        waiting = "gate" if self.is_gated else "busy timeout"
        return f"{self.processes} processes, {self.durability}, {self.mode}, {waiting}"


class Shared(NamedTuple):
    """How evenly the turns went round while all were at work."""

    least_to_most: float
    """The turns of the least served process, as a share of those of the most served one."""
    during_s: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What came out."""

    plan: Plan
    findings: Findings
    done: int
    """Jobs that were completed."""
    took_s: float
    shared: Shared
    took_ns: Sequence[int]
    """Of every verb, in order."""
    broken: list[str]

    def percentile_ms(self, percent: float) -> float:
        """Return how long a verb takes at most in that share of the cases."""
        return self.took_ns[min(len(self.took_ns) - 1, int(len(self.took_ns) * percent / 100))] / 1e6

    @property
    def doubled(self) -> int:
        """Leases and completions that only one process can have had."""
        return self.findings.count(Rule.GENERATIONS, Rule.ONE_HOLDER, Rule.STALE, Rule.ONE_COMPLETION)

    @property
    def lost(self) -> int:
        """What was acknowledged and is not in the file."""
        return self.findings.count(Rule.TRUTH)


def measure(plan: Plan, folder: Path) -> Measured:
    """Fill a fresh file, let the processes at it, and look at what they have left."""
    folder.mkdir()
    makers = plan.processes // 2 if plan.mode == "mixed" else 0
    filled = plan.jobs // 2 if makers else plan.jobs
    fillers = [_orders(plan, folder, f"filler-{number}", makes) for number, makes in _parts(filled, _FILLERS)]
    mode = next((mode for mode in WORKER_MODES if mode == plan.mode), None)
    if mode is not None:
        fillers = [replace(order, longs=_LONGS) for order in fillers]
    litequeue.open(fillers[0].queue).close()
    broken = _run([_FORK.Process(target=worker.fill, args=(orders,)) for orders in fillers], _PATIENCE_S)
    if mode is not None:
        return _measure_workers(plan, mode, folder, broken)
    orders = [_orders(plan, folder, f"maker-{number}", makes) for number, makes in _parts(plan.jobs - filled, makers)]
    orders += [_orders(plan, folder, f"drainer-{number}", 0) for number in range(plan.processes - makers)]
    meeting, making = _FORK.Barrier(plan.processes), _FORK.Value("l", makers)
    processes = [_FORK.Process(target=worker.work, args=(order, meeting, making)) for order in orders]
    broken += _run(processes, plan.most_s + _PATIENCE_S)
    broken += [order.trouble.read_text(encoding="utf-8") for order in orders if order.trouble.exists()]
    turns = [_turns(order.turns) for order in orders if order.turns.exists()]
    return _judge(plan, folder, gather(folder.glob(f"*{SUFFIX}")), turns, broken)


def _measure_workers(plan: Plan, mode: WorkerMode, folder: Path, broken: list[str]) -> Measured:
    """Let real workers at the file; what each was served is what it and its processes have begun to handle."""
    blank = WorkerOrders(folder, "", 0, plan.durability, control=plan.control, mode=mode, has_appointments=False)
    orders = [replace(blank, name=f"worker-{number}") for number in range(plan.processes)]
    meeting = _FORK.Barrier(plan.processes)
    processes = [_FORK.Process(target=contender.work, args=(order, plan.most_s, meeting)) for order in orders]
    broken += _run(processes, plan.most_s + _PATIENCE_S)
    broken += [trouble.read_text(encoding="utf-8") for trouble in folder.glob("*.trouble")]
    histories = gather(folder.glob(f"*{SUFFIX}"))
    begun: dict[str, list[int]] = {order.name: [] for order in orders}
    for history in histories.jobs.values():
        for one in history.handled:
            begun[family(one.session)].append(one.began_at)
    last = max((at for times in begun.values() for at in times), default=0)  # from then on there is nothing to be had
    turns = [
        Turns(sorted(begun[order.name]), histories.exchanges.get(order.name, []), last, order.said("cut").exists())
        for order in orders
    ]
    measured = _judge(plan, folder, histories, turns, broken)
    repeated = measured.findings.repeated_runs  # one whose time is over gives back what it has not begun
    if repeated:
        measured.broken.append(f"{plan}: {repeated} jobs were leased again, and nothing had happened")
    return measured


def _orders(plan: Plan, folder: Path, name: str, makes: int) -> Orders:
    return Orders(folder, name, plan.durability, plan.is_gated, makes, plan.most_s, plan.control)


def _parts(whole: int, count: int) -> list[tuple[int, int]]:
    """Divide a number of jobs among so many."""
    return [(number, len(range(number, whole, count))) for number in range(count)]


def _run(processes: list[ForkProcess], most_s: float) -> list[str]:
    """Start processes and wait for all of them; return what went wrong."""
    deadline = time.monotonic() + most_s
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
        return [f"a process ended with {process.exitcode}" for process in processes if process.exitcode != 0]
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()


class Turns(NamedTuple):
    """What one process was served, in its order; ns."""

    begun_at: Sequence[int]
    took: Sequence[int]
    ended_at: int
    is_cut: bool
    """Whether its time was over."""


def _turns(path: Path) -> Turns:
    told = array("q")
    told.frombytes(path.read_bytes())
    return Turns(told[0:-2:2], told[1:-2:2], told[-2], bool(told[-1]))


def _judge(plan: Plan, folder: Path, histories: Histories, turns: list[Turns], broken: list[str]) -> Measured:
    is_drained = not any(turn.is_cut for turn in turns)
    with litequeue.open(folder / "app.queue", create=False) as queue:
        findings = judge(histories, finding.read(queue), is_drained=is_drained, is_fifo=True)
    broken += [str(breach) for breach in findings.breaches]
    with litequeue.open(folder / "app.queue", create=False) as queue, queue.transaction() as tx:
        broken += [f"integrity_check: {row[0]!s}" for row in tx.execute("PRAGMA integrity_check") if row != ("ok",)]
    began_at = min((turn.begun_at[0] for turn in turns if turn.begun_at), default=0)
    return Measured(
        plan,
        findings,
        findings.jobs["completed"],
        max(1, max((turn.ended_at for turn in turns), default=0) - began_at) / 1e9,
        shared(turns),
        sorted(took for turn in turns for took in turn.took) or [0],
        [f"{plan}: {what}" for what in broken],
    )


def shared(turns: Sequence[Turns]) -> Shared:
    """Return what each was served from when all had begun until the first one ended."""
    if not turns or not all(turn.begun_at for turn in turns):
        return Shared(0.0, 0.0)
    begun_at = max(turn.begun_at[0] for turn in turns)
    over_at = min(turn.ended_at for turn in turns)
    served = [bisect_left(turn.begun_at, over_at) - bisect_left(turn.begun_at, begun_at) for turn in turns]
    return Shared(min(served) / max(1, *served), max(0, over_at - begun_at) / 1e9)
