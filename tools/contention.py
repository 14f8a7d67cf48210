"""Many processes want the same file at once: each job goes to one of them, none is lost, and each gets its share.

    python tools/contention.py --jobs 100000 --processes 2 8 32
    python tools/contention.py --jobs 2000 --processes 8 --control gate-off

For each number of processes, durability and mode, with the write gate and with SQLite's stock busy timeout in its
place, one after the other: a fresh file is filled, the processes meet, and then all work at once. In the mode `drain`
all lease and complete, one verb at a time; in `mixed` half of them enqueue meanwhile. The journals of all processes and
the file are held against the contract (`harness.checker`). With the gate the least served process must have had a
stated share of what the most served one had, while all were at work (G10).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import environment

if __name__ == "__main__":
    environment.ensure("dev")  # before what follows, which imports the package

from harness import report

if TYPE_CHECKING:
    from contending.cell import Measured, Plan
    from harness.report import Figure

FLOOR = 0.5
"""The least share of the least to the most served process, with the gate.

It gave 0.72 to 0.91 with 8 to 32 processes on a quiet machine, and 0.55 and more at a load of many times its cores;
without it 8 processes had 0.3 to 0.7, and 32 had 0.17 to 0.54, in `full` 0.44 at most.
"""
LEAST_S = 2.0
"""A share of less time together tells of the kernel's scheduler, and is not judged."""
LEAST_OF_WORKERS_S = 5.0
"""The same for workers, who take and hand in several jobs at once, and whose processes start one after the other."""
GATE_OFF = "gate-off"
UNBEATEN = "no-heartbeat"
CONTROLS = {
    GATE_OFF: "SQLite's stock busy timeout instead of the gate, held to the gate's fairness",
    "double-lease": "the head of the queue is read before the lock is taken, and taken without another look",
    UNBEATEN: "workers do not extend their leases (the modes of workers; the other controls are for verbs)",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the harness; return the exit status."""
    from contending.cell import measure  # noqa: PLC0415 - the environment comes first

    parser = report.parser("let many processes at one file, and see what each is served", CONTROLS)
    options = _options(parser, arguments)
    sizes: dict[str, Figure] = {"jobs": options.jobs, "seconds": options.seconds}
    told = report.Report("contention", report.seed_of(options), sizes, options.control)
    measured: list[Measured] = []
    for number, plan in enumerate(_plans(options)):
        with tempfile.TemporaryDirectory(prefix="litequeue-contention-") as folder:
            one = measure(plan, Path(folder, str(number)))
        report.say(f"{plan}: {one.done} jobs in {one.took_s:.1f} s, share {one.shared.least_to_most:.2f}")
        measured.append(one)
        told.broken += one.broken
        share = one.shared.least_to_most
        is_held_to_it = plan.is_gated or options.control == GATE_OFF
        least_s = LEAST_OF_WORKERS_S if plan.is_of_workers else LEAST_S
        if is_held_to_it and share < FLOOR and one.shared.during_s >= least_s:
            told.broken.append(f"{plan}: the least served had {share:.2f} of the most served, {FLOOR} is due (G10)")
    told.add("what was served", [_served(one) for one in measured])
    told.add("how long a verb took, ms", [_took(one) for one in measured])
    return told.finish(as_json=options.json)


def _options(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    from contending.cell import WORKER_MODES  # noqa: PLC0415

    parser.add_argument("--jobs", type=report.some, default=100_000, help="in each file (default %(default)s)")
    parser.add_argument("--processes", type=report.some, nargs="+", default=[2, 8, 32], help="(default 2 8 32)")
    parser.add_argument("--durability", nargs="+", choices=["normal", "full"], default=["normal", "full"])
    parser.add_argument(
        "--mode",
        nargs="+",
        choices=["drain", "mixed", *WORKER_MODES],
        default=["drain", "mixed"],
        help="single verbs, or real workers in one of their modes, always with the gate (default: drain mixed)",
    )
    parser.add_argument(
        "--gate", choices=["on", "off", "both"], default="both", help="off: SQLite's stock busy timeout instead"
    )
    parser.add_argument(
        "--seconds",
        type=report.seconds,
        default=30.0,
        help="for each file at most; what was done is told (default %(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.control is not None and any(
        (mode in WORKER_MODES) != (options.control == UNBEATEN) for mode in options.mode
    ):
        parser.error(f"--control {options.control} is not for --mode {' '.join(options.mode)}")
    return options


def _plans(options: argparse.Namespace) -> Iterator[Plan]:
    """Yield what to measure: the gate and its absence beside each other, now the one first and now the other."""
    from contending.cell import WORKER_MODES, Plan  # noqa: PLC0415

    gates = {"on": [True], "off": [False], "both": [True, False]}[options.gate]
    if options.control is not None:
        gates = [options.control != GATE_OFF]
    control = None if options.control == GATE_OFF else options.control
    for durability in options.durability:
        for processes in options.processes:
            for mode in options.mode:
                for is_gated in [True] if mode in WORKER_MODES else gates:
                    yield Plan(processes, durability, mode, is_gated, options.jobs, options.seconds, control)
                gates.reverse()


def _served(one: Measured) -> dict[str, Figure]:
    return {
        **_named(one),
        "jobs done": one.done,
        "left": one.plan.jobs - one.done,
        "s": round(one.took_s, 2),
        "jobs/s": round(one.done / one.took_s),
        "together, s": round(one.shared.during_s, 2),
        "least/most served": round(one.shared.least_to_most, 3),
        "doubled": one.doubled,
        "lost": one.lost,
        "busy": sum(count for what, count in one.findings.calls.items() if what.endswith("QueueBusy")),
    }


def _took(one: Measured) -> dict[str, Figure]:
    return {
        **_named(one),
        "p50": round(one.percentile_ms(50), 3),
        "p99": round(one.percentile_ms(99), 2),
        "p99.9": round(one.percentile_ms(99.9), 1),
        "longest": round(one.percentile_ms(100), 1),
    }


def _named(one: Measured) -> dict[str, Figure]:
    plan = one.plan
    return {
        "processes": plan.processes,
        "durability": plan.durability,
        "mode": plan.mode,
        "waiting": "gate" if plan.is_gated else "busy timeout",
    }


if __name__ == "__main__":
    sys.exit(report.run(main))
