"""A run with applications, from its options to its report."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from applying import member, placing, verdict
from applying.crew import ApplicationsCrew
from applying.orders import ApplicationOrders, Way
from harness import report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from applying.verdict import Verdict
    from harness.report import Figure

CONTROLS = {**placing.CONTROLS, **member.CONTROLS}
_ONLY = {
    placing.KEYLESS: ("outbox",),
    member.TOLD_LATE: ("outbox",),
    member.LEASE_ALONE: ("lease-in-transaction",),
}
"""Controls that sabotage nothing in the other ways."""


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Kill and judge; return the exit status."""
    ways: Sequence[Way] = options.applications or get_args(Way)
    if options.workers_of or options.restricted:
        parser.error("--applications is a run of its own: without --workers-of and --restricted")
    if options.control not in {None, *CONTROLS} or not set(ways) <= set(_ONLY.get(options.control, ways)):
        parser.error(f"--control {options.control} is not for applications by {', '.join(ways)}")
    seed = report.seed_of(options)
    size: dict[str, Figure] = {
        "kills": options.kills,
        "processes": options.workers,
        "modes": len(options.durability),
        "applications": " ".join(ways),
    }
    told = report.Report("crash", seed, size, options.control)
    logging.getLogger("litequeue").setLevel(logging.CRITICAL)  # what is killed leaves much to warn of
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no process and no file is left behind
    with tempfile.TemporaryDirectory(prefix="litequeue-crash-") as folder:
        crews = list(_crews(options, ways, seed, Path(folder)))
        verdicts: list[Verdict] = []
        for crew, orders in crews:
            crew.run()
            told.broken += crew.broken
            report.say(f"{orders.title}: {crew.deaths.total()} killed, {crew.stops} stopped")
            verdicts.append(verdict.judge(orders))
            told.broken += [f"{orders.title}: {breach}" for breach in verdicts[-1].breaches]
    titles = [orders.title for _, orders in crews]
    points = sorted({point for crew, _ in crews for point in crew.deaths})
    told.add(
        "processes killed",
        [
            {"where": point, **{title: crew.deaths[point] for title, (crew, _) in zip(titles, crews, strict=True)}}
            for point in points
        ],
    )
    rows = [{**crew.figures, **one.figures} for (crew, _), one in zip(crews, verdicts, strict=True)]
    figures = [
        {"figure": name, **{title: row[name] for title, row in zip(titles, rows, strict=True)}} for name in rows[0]
    ]
    told.add("what happened", figures)
    rules = Counter(str(breach.rule) for one in verdicts for breach in one.breaches)
    if rules:
        told.add("what the checker found", [{"broken": rule, "times": count} for rule, count in rules.most_common()])
    return told.finish(as_json=options.json)


def _crews(
    options: argparse.Namespace, ways: Sequence[Way], seed: int, folder: Path
) -> Iterator[tuple[ApplicationsCrew, ApplicationOrders]]:
    """Yield the crews, each with a folder of its own and its part of the kills."""
    files = [(way, durability) for way in ways for durability in options.durability]
    for number, (way, durability) in enumerate(files):
        place = folder / f"{way}-{durability}"
        place.mkdir()
        kills = len(range(number, options.kills, len(files)))
        orders = ApplicationOrders(place, "", seed, durability, control=options.control, way=way)
        yield ApplicationsCrew(orders, size=options.workers, kills=kills), orders
