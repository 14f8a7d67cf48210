"""The disk is full, or fails, at every operation of every verb: whoever asked hears the truth, and nothing is lost.

    python tools/iofaults.py [--points N] [--verbs TEXT] [--seed S] [--json] [--control NAME]

A VFS under SQLite fails the first, second, third … operation of each verb, in each way that a disk has, once or from
then on, in two durability modes (`disk_faults.trial` says what is judged). Then the room: jobs until the reserve is
reached or `max_bytes`, and the whole queue worked off at that limit, under a quota in the VFS and, where mounting is
allowed, on a small file system. Exits with 1 when a promise is broken (contract G2, G11, §6).
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import environment

if __name__ == "__main__":
    environment.ensure("dev")  # before what follows, which imports the package

from disk_faults import pool as company
from disk_faults.pool import workers
from disk_faults.room import LIMITS
from disk_faults.trial import Point
from disk_faults.verbs import VERBS
from harness import report
from harness.failing import KINDS, Kind, Sort

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import ProcessPoolExecutor

    from disk_faults.trial import Finding
    from harness.report import Figure, Report
    from litequeue.sqlite.store import Durability

CONTROLS = {
    "swallowed-error": "the disk says that it wrote what it did not",
    "blind-undo": "a commit that failed is taken for one that left nothing behind",
    "no-reserve": "enqueue may use the last byte of the disk",
}
_DURABILITIES: tuple[Durability, ...] = ("full", "normal")
_MOST_OPERATIONS = 20
"""Of a verb with more of a sort, so many are failed: the first, the last, and some between."""
_AT_EACH_END = 7
_CHUNK = 20


def main(arguments: list[str] | None = None) -> int:
    """Run the harness; return the exit status."""
    parser = report.parser("Fail every disk operation of every verb, and fill disks.", CONTROLS)
    parser.add_argument(
        "--points", type=report.some_or_none, default=None, help="a sample of so many points, 0 is none (default: all)"
    )
    parser.add_argument("--verbs", default="", help="only verbs whose name has this in it")
    parser.add_argument(
        "--limits", nargs="*", choices=LIMITS, default=LIMITS, help="which limits to fill a queue up to (default: all)"
    )
    parser.add_argument(
        "--processes", type=report.some, default=os.cpu_count() or 1, help="processes (default: one a core)"
    )
    options = parser.parse_args(arguments)
    seed = report.seed_of(options)
    size = {"points": "all" if options.points is None else options.points, "verbs": options.verbs or "all"}
    found = report.Report("iofaults", seed, size, options.control)
    verbs = [verb.name for verb in VERBS if options.verbs in verb.name]
    if not verbs:
        parser.error(f"no verb has {options.verbs!r} in its name: {', '.join(verb.name for verb in VERBS)}")
    if options.points == 0 and not options.limits:
        parser.error("neither points nor limits: nothing to do")
    with workers(options.processes, options.control) as pool:
        if options.points != 0:
            points = _sample(_points(pool, verbs, random.Random(seed)), options.points, random.Random(seed))
            _try(pool, points, found)
        _fill(pool, list(options.limits), seed, found)
    return found.finish(as_json=options.json)


def _points(pool: ProcessPoolExecutor, verbs: list[str], chance: random.Random) -> list[Point]:
    """List every point: what each verb asks of the disk is counted first."""
    pairs = [(verb, durability) for verb in verbs for durability in _DURABILITIES]
    counted = pool.map(company.operations, *zip(*pairs, strict=True))
    return [
        Point(verb, durability, name, nth, for_good)
        for (verb, durability), operations in zip(pairs, counted, strict=True)
        for name, kind in KINDS.items()
        for nth in _chosen(_count(operations, kind), chance)
        for for_good in (False, True)
    ]


def _count(operations: Counter[Sort], kind: Kind) -> int:
    return operations.total() if kind.sort is None else operations[kind.sort]


def _chosen(count: int, chance: random.Random) -> list[int]:
    if count <= _MOST_OPERATIONS:
        return list(range(count))
    between = range(_AT_EACH_END, count - _AT_EACH_END)
    some = sorted(chance.sample(between, _MOST_OPERATIONS - 2 * _AT_EACH_END))
    return [*range(_AT_EACH_END), *some, *range(count - _AT_EACH_END, count)]


def _sample(points: list[Point], count: int | None, chance: random.Random) -> list[Point]:
    """Choose points so that every verb, and then every kind of fault, has its share."""
    if count is None or count >= len(points):
        return points
    by_pair: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in points:
        by_pair[point.verb, point.kind].append(point)
    pairs = sorted(by_pair)
    chance.shuffle(pairs)
    return [chance.choice(by_pair[pair]) for pair in (pairs * (count // len(pairs) + 1))[:count]]


def _try(pool: ProcessPoolExecutor, points: list[Point], found: Report) -> None:
    began = time.monotonic()
    chunks = [points[start : start + _CHUNK] for start in range(0, len(points), _CHUNK)]
    findings: list[Finding] = []
    for done in pool.map(company.play, chunks):
        findings += done
        if len(findings) // 2000 > (len(findings) - len(done)) // 2000:
            report.say(f"{len(findings)} of {len(points)} fault points, {time.monotonic() - began:.0f} s")
    found.broken += [what for finding in findings for what in finding.broken]
    found.add("verb × kind of fault", list(_by_verb(findings)))
    found.add("answers by kind of fault", list(_by_kind(findings)))


def _by_verb(findings: list[Finding]) -> Iterator[dict[str, Figure]]:
    """Count points by verb, and those of each kind of fault beside them."""
    for verb in VERBS:
        mine = [finding for finding in findings if finding.point.verb == verb.name]
        if mine:
            kinds = Counter(_short(finding.point.kind) for finding in mine if finding.is_met)
            yield {
                "verb": verb.name,
                "points": sum(finding.is_met for finding in mine),
                **{kind: kinds[kind] for kind in dict.fromkeys(map(_short, KINDS))},
                "broken": sum(bool(finding.broken) for finding in mine),
            }


def _by_kind(findings: list[Finding]) -> Iterator[dict[str, Figure]]:
    answers = sorted({finding.answer for finding in findings if finding.is_met})
    for kind in KINDS:
        mine = [finding for finding in findings if finding.point.kind == kind and finding.is_met]
        counted = Counter(finding.answer for finding in mine)
        yield {
            "kind": kind,
            "points": len(mine),
            **{answer: counted[answer] for answer in answers},
            "broken": sum(bool(finding.broken) for finding in mine),
        }


def _short(kind: str) -> str:
    return kind.partition(",")[0]


def _fill(pool: ProcessPoolExecutor, limits: list[str], seed: int, found: Report) -> None:
    rows: list[dict[str, Figure]] = []
    for drained in pool.map(company.drain, limits, [seed] * len(limits)):
        rows.append(drained.row)
        found.broken += drained.broken
    found.add("room: a queue worked off at its limit", rows)


if __name__ == "__main__":
    sys.exit(report.run(main))
