"""kill -9 at random moments and at named points: what was acknowledged is in the file, and nothing happens twice.

    python tools/crash.py --kills 1000
    python tools/crash.py --kills 1000 --restricted
    python tools/crash.py --kills 1000 --applications
    python tools/crash.py --kills 40 --control no-fence

Workers lease, work, verify and end their leases in every way there is, on one file for each durability mode. Each is
killed at a random moment, or kills itself at a point that it was told: around BEGIN and COMMIT, after a statement,
within a commit, in a checkpoint, while opening or closing; some are stopped until after their lease has lapsed, and
then speak. Some jobs kill every worker that takes them. With `--restricted` jobs are in several scopes, which are
served in turn, limits hold some back, an operator pauses some, and schedules make some. Then the rest is worked off in
peace, and the journals of all processes, the event logs and the file are held against the contract (`harness.checker`).

With `--applications` half of the processes are applications whose rows and jobs commit together, in each way that there
is, and the others work on the jobs: a row and its job are both there or neither, and nothing is leased before the
commit (`applying.verdict`).
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import environment

if __name__ == "__main__":
    environment.ensure("dev")  # before what follows, which imports the package

from harness import report

if TYPE_CHECKING:
    from harness.report import Figure
    from killing.crew import Crew
    from killing.verdict import Verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the harness; return the exit status."""
    from applying import running  # noqa: PLC0415
    from killing import unrestrained  # noqa: PLC0415
    from killing.sabotage import CONTROLS  # noqa: PLC0415
    from killing.verdict import judge_file  # noqa: PLC0415
    from working import sabotage  # noqa: PLC0415

    every = {**CONTROLS, **sabotage.CONTROLS, **unrestrained.CONTROLS, **running.CONTROLS}
    parser = report.parser("kill and stop workers until a promise breaks", every)
    options = _options(parser, arguments)
    if options.applications is not None:
        return running.run(parser, options)
    known = {**(sabotage.CONTROLS if options.workers_of else CONTROLS)}
    if options.restricted:
        known |= unrestrained.CONTROLS
    if options.control not in {None, *known}:
        at_work = "real workers" if options.workers_of else "verbs"
        how = "with" if options.restricted else "without"
        parser.error(f"--control {options.control} is not for {at_work} {how} --restricted")
    seed = report.seed_of(options)
    size: dict[str, Figure] = {"kills": options.kills, "workers": options.workers, "modes": len(options.durability)}
    if options.workers_of:
        size["workers of"] = " ".join(options.workers_of)
    if options.restricted:
        size["restricted"] = "yes"
    told = report.Report("crash", seed, size, options.control)
    logging.getLogger("litequeue").addHandler(logging.NullHandler())  # dead jobs are what this is about
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no worker and no file is left behind
    with tempfile.TemporaryDirectory(prefix="litequeue-crash-") as folder:
        crews = list(_crews(options, seed, Path(folder)))
        for crew in crews:
            crew.run()
            told.broken += crew.broken
            report.say(f"{crew.orders.title}: {crew.deaths.total()} killed, {crew.stops} stopped")
        verdicts = [judge_file(crew.orders, crew.slowest_start_s) for crew in crews]
    for verdict in verdicts:
        told.broken += verdict.broken
    _tell(told.tables, crews, verdicts)
    return told.finish(as_json=options.json)


def _crews(options: argparse.Namespace, seed: int, folder: Path) -> Iterator[Crew]:
    """Yield the crews, each with a folder of its own and its part of the kills."""
    from killing.crew import Crew  # noqa: PLC0415
    from killing.worker import Orders  # noqa: PLC0415
    from working.crew import WorkersCrew  # noqa: PLC0415
    from working.orders import WorkerOrders  # noqa: PLC0415

    files = [(mode, durability) for mode in options.workers_of or [None] for durability in options.durability]
    for number, (mode, durability) in enumerate(files):
        place = folder / f"{mode or 'verbs'}-{durability}"
        place.mkdir()
        kills = len(range(number, options.kills, len(files)))
        if mode is None:
            orders = Orders(place, "", seed, durability, control=options.control, is_restricted=options.restricted)
            yield Crew(orders, size=options.workers, kills=kills)
        else:
            orders = WorkerOrders(
                place,
                "",
                seed,
                durability,
                control=options.control,
                is_restricted=options.restricted,
                mode=mode,
                has_appointments=options.control is None,
            )
            yield WorkersCrew(orders, size=options.workers, kills=kills)


def _options(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    from applying.orders import Way  # noqa: PLC0415 - the environment comes first
    from killing.worker import Durability  # noqa: PLC0415
    from litequeue.worker.worker import Mode  # noqa: PLC0415

    modes = get_args(Durability)
    parser.add_argument(
        "--kills", type=report.some, default=100, help="processes to kill, over all modes (default %(default)s)"
    )
    parser.add_argument(
        "--workers", type=report.some, default=6, help="processes at work at once (default %(default)s)"
    )
    parser.add_argument(
        "--durability", nargs="+", choices=modes, default=list(modes), help="the modes, a file each (default: all)"
    )
    parser.add_argument(
        "--workers-of",
        nargs="+",
        choices=get_args(Mode),
        default=[],
        metavar="MODE",
        help="let litequeue.Worker do the work in these modes (threads, processes, asyncio), a file for each with each "
        "durability (default: processes that call the verbs themselves)",
    )
    parser.add_argument(
        "--restricted",
        action="store_true",
        help="let limits, pauses, schedules and weights be in force, and jobs be in several scopes",
    )
    parser.add_argument(
        "--applications",
        nargs="*",
        choices=get_args(Way),
        metavar="WAY",
        help="let applications commit rows and jobs together in these ways (outbox, lease-in-transaction, attach, "
        "dbapi; default: all), a file for each with each durability, beside workers",
    )
    return parser.parse_args(arguments)


def _tell(tables: dict[str, list[dict[str, Figure]]], crews: Sequence[Crew], verdicts: Sequence[Verdict]) -> None:
    modes = [crew.orders.title for crew in crews]
    points = sorted({point for crew in crews for point in crew.deaths})
    tables["processes killed"] = [
        {"where": point, **{mode: crew.deaths[point] for mode, crew in zip(modes, crews, strict=True)}}
        for point in points
    ]
    rows = [_figures(crew, verdict) for crew, verdict in zip(crews, verdicts, strict=True)]
    tables["what happened"] = [
        {"figure": name, **{mode: row[name] for mode, row in zip(modes, rows, strict=True)}} for name in rows[0]
    ]
    rules = Counter(str(breach.rule) for verdict in verdicts for breach in verdict.findings.breaches)
    if rules:
        tables["what the checker found"] = [{"broken": rule, "times": count} for rule, count in rules.most_common()]
    ended = [verdict.findings.unknown for verdict in verdicts]
    tables["calls of unknown outcome, by how they ended"] = [
        {"what": what, **{mode: one[what] for mode, one in zip(modes, ended, strict=True)}}
        for what in sorted(set().union(*ended))
    ]


def _figures(crew: Crew, verdict: Verdict) -> dict[str, Figure]:
    findings = verdict.findings
    calls = findings.calls
    handled = sum(count for name, count in calls.items() if name.startswith("handle "))
    of_workers = {"cancelled": findings.jobs["cancelled"], "handlers begun": handled} if handled else {}
    return {
        **crew.figures,
        "jobs": findings.jobs.total(),
        "completed": findings.jobs["completed"],
        "dead (poison and hopeless)": findings.jobs["dead"],
        "leases": findings.leases,
        **of_workers,
        "jobs leased more than once": findings.repeated_jobs,
        "stale words refused": _count(calls, "refused"),
        "calls that found the file busy": _count(calls, "raised QueueBusy"),
        "calls of unknown outcome": _count(calls, "unknown"),
        "longest time without progress, s": round(verdict.longest_s, 2),
        **findings.restrained,
    }


def _count(calls: Counter[str], outcome: str) -> int:
    """Count the calls that ended so; what a handler does is none."""
    return sum(
        count for name, count in calls.items() if name.endswith(f" {outcome}") and not name.startswith("handle ")
    )


if __name__ == "__main__":
    sys.exit(report.run(main))
