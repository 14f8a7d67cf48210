"""What the benchmark is to show, as bounds on the figures of one run.

A goal belongs to one subject, ours, and is judged by the medians of the rounds. Missing one is no failure of a run: a
time is not a test. What was not measured is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from benching.subject import MODES, SORTS
from benching.summary import Key, Row
from harness.report import Figure

Rows = Mapping[Key, Row]
OURS = "ours"
_FLAT = 1.3


class Goal(NamedTuple):
    """A bound."""

    what: str
    bound: float
    measure: Callable[[Rows], float | None]
    """The figure, when it was measured."""
    is_least: bool = False
    """Whether the bound is the least allowed, rather than the most."""

    def is_reached(self, figure: float) -> bool:
        """Judge."""
        return figure >= self.bound if self.is_least else figure <= self.bound


def _times_floor(workload: str, cell: str, durability: str, figure: str = "us") -> Callable[[Rows], float | None]:
    def measure(rows: Rows) -> float | None:
        row = rows.get(Key(workload, cell, durability, OURS))
        return row.to_floor[figure].median if row and figure in row.to_floor else None

    return measure


def _figure(
    workload: str, cell: str, durability: str, figure: str, *, worst: bool = False
) -> Callable[[Rows], float | None]:
    def measure(rows: Rows) -> float | None:
        row = rows.get(Key(workload, cell, durability, OURS))
        spread = row.figures.get(figure) if row else None
        return None if spread is None else spread.least if worst else spread.median

    return measure


def _rate_to_floor(cell: str, durability: str) -> Callable[[Rows], float | None]:
    times = _times_floor("drain", cell, durability)

    def measure(rows: Rows) -> float | None:
        ratio = times(rows)
        return 1 / ratio if ratio else None

    return measure


def _longest_to_stock(cell: str, durability: str) -> Callable[[Rows], float | None]:
    def measure(rows: Rows) -> float | None:
        found = [rows.get(Key("drain", cell, durability, subject)) for subject in (OURS, "stock")]
        longest = [row.figures["longest us"].median for row in found if row is not None and row.figures]
        return longest[0] / longest[1] if len(longest) == len(found) else None

    return measure


def _to_best_peer(workload: str, durability: str, cell: str = "100 B") -> Callable[[Rows], float | None]:
    """Return our time as a share of the fastest peer's that held the same durability and promises as much.

    Leases that cannot be acknowledged are no match for ours; an enqueue is the same whatever becomes of the job.
    """

    def measure(rows: Rows) -> float | None:
        ours = rows.get(Key(workload, cell, durability, OURS))
        if ours is None or not ours.figures:
            return None
        peers = [
            row.figures["us"].median
            for row in rows.values()
            if row.is_peer and row.figures and row.key.workload == workload and row.held == ours.held
            if workload == "enqueue" or row.delivery != "at most once"
        ]
        return ours.figures["us"].median / min(peers) if peers else None

    return measure


def _memory_of_threads(rows: Rows) -> float | None:
    """Return how many times its memory near the beginning a worker with threads has at the end."""
    found = [
        row.figures["times"].median
        for key, row in rows.items()
        if key.workload == "worker memory" and key.cell.startswith("threads") and row.figures
    ]
    return found[0] if found else None


def _growth(sort: str, verb: str) -> Callable[[Rows], float | None]:
    """Return how many times an empty file's cost a verb has beside the most rows that were there."""

    def measure(rows: Rows) -> float | None:
        found = [
            row.figures[f"{verb} x"].median
            for key, row in rows.items()
            if key.workload == "growth" and key.subject == OURS and key.cell.startswith(f"{sort} ") and row.figures
        ]
        return found[-1] if found else None

    return measure


GOALS = (
    Goal("enqueue, normal, × bare", 3.0, _times_floor("enqueue", "100 B", "normal")),
    Goal("enqueue in bulk, normal, × bare", 7.0, _times_floor("enqueue in bulk", "100 B", "normal")),
    Goal("lease+complete, normal, × bare", 1.6, _times_floor("lease+complete", "100 B", "normal")),
    Goal(
        "lease+complete in hundreds, normal, × bare", 3.0, _times_floor("lease+complete in hundreds", "100 B", "normal")
    ),
    Goal("enqueue, full, × bare", 1.5, _times_floor("enqueue", "100 B", "full")),
    Goal("lease+complete, full, × bare", 1.25, _times_floor("lease+complete", "100 B", "full")),
    Goal("enqueue, normal, × the fastest peer", 1.0, _to_best_peer("enqueue", "normal")),
    Goal("enqueue, full, × the fastest peer", 1.0, _to_best_peer("enqueue", "full")),
    Goal("lease+complete, normal, × the fastest peer", 1.0, _to_best_peer("lease+complete", "normal")),
    Goal("lease+complete, full, × the fastest peer", 1.0, _to_best_peer("lease+complete", "full")),
    Goal(
        "lease+complete in hundreds, normal, × the fastest peer",
        1.0,
        _to_best_peer("lease+complete in hundreds", "normal"),
    ),
    Goal(
        "4 processes, full: least/most served, worst round",
        0.5,
        _figure("drain", "4 processes", "full", "share", worst=True),
        is_least=True,
    ),
    Goal(
        "4 processes, full: least/most served, median",
        0.7,
        _figure("drain", "4 processes", "full", "share"),
        is_least=True,
    ),
    Goal("4 processes, full: longest verb, × stock's", 0.1, _longest_to_stock("4 processes", "full")),
    Goal("4 processes, full: jobs/s, × bare's", 0.8, _rate_to_floor("4 processes", "full"), is_least=True),
    Goal("8 threads, full: syncs a verb", 1 / 3, _figure("threads", "8 threads", "full", "syncs a verb")),
    Goal("wake-up, p50, ms", 1.5, _figure("wake-up", "one waiter, one producer", "normal", "p50 ms")),
    Goal("wake-up, p99, ms", 5.0, _figure("wake-up", "one waiter, one producer", "normal", "p99 ms")),
    Goal("idle while waiting, % of a core", 0.2, _figure("wake-up", "one waiter, one producer", "normal", "idle %")),
    *(
        Goal(
            f"worker, {count} threads, full: jobs/s, × single verbs'",
            5.0,
            _figure("worker", f"threads, {count} at once", "full", "times"),
            is_least=True,
        )
        for count in (4, 8, 32)
    ),
    *(
        Goal(
            f"idle worker, {mode}: its busiest process, % of a core",
            0.2,
            _figure("worker idle", f"{mode}, 4 at once", "normal", "most idle %"),
        )
        for mode in MODES
    ),
    *(
        Goal(
            f"idle worker, {mode}: its largest process, MB",
            60.0,
            _figure("worker idle", f"{mode}, 4 at once", "normal", "most MB"),
        )
        for mode in MODES
    ),
    Goal("a worker with threads: memory at the end, × that after a twentieth of its jobs", 1.05, _memory_of_threads),
    *(Goal(f"lease+complete beside {sort} rows, × empty", _FLAT, _growth(sort, "pair")) for sort in SORTS),
    *(Goal(f"enqueue beside {sort} rows, × empty", _FLAT, _growth(sort, "enqueue")) for sort in SORTS),
    *(Goal(f"get beside {sort} rows, × empty", _FLAT, _growth(sort, "get")) for sort in SORTS),
)


def judged(rows: Sequence[Row]) -> list[dict[str, Figure]]:
    """Return a row for each goal that was measured."""
    by_key = {row.key: row for row in rows}
    found: list[dict[str, Figure]] = []
    for goal in GOALS:
        figure = goal.measure(by_key)
        if figure is not None:
            found.append(
                {
                    "goal": goal.what,
                    "to reach": f"{'≥' if goal.is_least else '≤'} {goal.bound:.3g}",
                    "figure": float(f"{figure:.3g}"),
                    "": "reached" if goal.is_reached(figure) else "missed",
                }
            )
    return found


def missed(table: Sequence[Mapping[str, Figure]]) -> list[str]:
    """Return what was missed, in words."""
    return [f"{row['goal']}: {row['figure']}, to reach {row['to reach']}" for row in table if row[""] == "missed"]
