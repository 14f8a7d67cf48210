"""Power loss at any moment: no mode loses more than it says, and no file is damaged.

    python tools/powerloss.py [--images N] [--workloads N] [--verbs N] [--mode MODE] [--seed N] [--control NAME]

Random work on a real queue is recorded (`power_loss.random_work`, `power_loss.recording`): every write, truncation,
sync and deletion that SQLite asks for, and every verb that was acknowledged. Then the power goes at each place of that
log, some times over: what a disk may hold then is built (`power_loss.disk`), opened in another process and judged
(`power_loss.images`). Contract §7: `full` has all that was acknowledged, `enqueue` every acknowledged job, `normal`
some earlier state, whole, and no older than the last complete checkpoint; handles of several modes on one file keep the
promise of their own. Exits with 1 when a promise is broken; the
same seed and sizes break it again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from typing import NamedTuple

import environment

if __name__ == "__main__":
    environment.ensure("dev")  # before what follows, which imports the package

from harness import report
from power_loss import disk, images
from power_loss.disk import MAIN, WAL, Sort, Step
from power_loss.images import Part, Tally
from power_loss.random_work import MODES, Recording, record

CONTROLS = {
    "synchronous-off": "SQLite is told not to sync, while the mode promises full durability",
    "ignored-fsync": "the disk answers a sync and does nothing",
    "forgotten-folder": "the folder is never synced, only the files are",
    "early-acknowledgement": "verbs are acknowledged before they commit",
}
CONTROL_MODE = "full"
"""Every sabotage is of this mode's promise."""
PART_IMAGES = 1000
PATIENCE_S = 600.0
"""For one recording; far above what it takes."""


_ASKED = {
    Sort.CREATED: "creations",
    Sort.WRITTEN: "writes",
    Sort.TRUNCATED: "truncations",
    Sort.SYNCED: "syncs",
    Sort.DELETED: "deletions",
}


class Workload(NamedTuple):
    """One recorded log."""

    recording: Recording
    places: list[int]
    commits: int
    asked: Counter[str]
    """What SQLite asked of the disk."""
    broken: list[str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the harness; return the exit status."""
    parser = report.parser("Let the power go at every place of a recorded log, and see what is left.", CONTROLS)
    parser.add_argument("--images", type=report.some, default=120_000, help="what disks may hold, over all modes")
    parser.add_argument("--workloads", type=report.some, default=4, help="recorded logs for each mode")
    parser.add_argument("--verbs", type=report.some, default=150, help="verbs in each workload")
    parser.add_argument("--mode", choices=[*MODES, "all"], default="all", help="the durability to look at")
    parser.add_argument(
        "--processes",
        type=report.some,
        default=os.cpu_count() or 1,
        help="processes that judge images (default: one a core)",
    )
    options = parser.parse_args(arguments)
    if options.control is not None and options.mode not in {"all", CONTROL_MODE}:
        parser.error(f"the sabotages are of the mode {CONTROL_MODE}")
    wanted = options.mode if options.control is None else CONTROL_MODE
    modes = tuple(mode for mode in MODES if wanted in {mode, "all"})
    seed = report.seed_of(options)
    size = {"images": options.images, "workloads": options.workloads, "verbs": options.verbs}
    told = report.Report("powerloss", seed, size, options.control)
    with tempfile.TemporaryDirectory(prefix="litequeue-powerloss-") as folder:
        found = [_mode(mode, options, seed, Path(folder), len(modes)) for mode in modes]
    told.add("what was left", [_row(mode, workloads, tally) for mode, workloads, tally in found])
    told.add("what was recorded", [_work(mode, workloads) for mode, workloads, _ in found])
    told.add("names in the folder that were not what they had been", [_names(mode, tally) for mode, _, tally in found])
    for _, workloads, tally in found:
        told.broken += [one for workload in workloads for one in workload.broken]
        told.broken += tally.broken
    return told.finish(as_json=options.json)


def _mode(
    mode: str, options: argparse.Namespace, seed: int, folder: Path, modes: int
) -> tuple[str, list[Workload], Tally]:
    """Record the workloads of a mode and judge their images."""
    workloads = [
        recorded(folder / f"{mode}-{number}.log", seed * 1000 + number, mode, options.verbs, options.control)
        for number in range(options.workloads)
    ]
    share = -(-options.images // (modes * options.workloads))
    parts = [part for workload in workloads for part in _parts(workload, share)]
    tally = images.Tally()
    for done, one in enumerate(_checked(parts, options.processes), 1):
        tally.add(one)
        if done % 10 == 0:
            report.say(f"{mode}: {tally.images} of {share * options.workloads} images")
    return mode, workloads, tally


def recorded(log: Path, seed: int, mode: str, verbs: int, sabotage: str | None) -> Workload:
    """Record one workload, in a process of its own, because its VFS never goes away."""
    recording = Recording(str(log), seed, mode, verbs, sabotage)
    process = multiprocessing.get_context("spawn").Process(target=record, args=(recording,))
    process.start()
    try:
        process.join(PATIENCE_S)
    finally:
        process.kill()  # nothing to an ended one
        process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"the workload of seed {seed} in the mode {mode} ended with {process.exitcode}")
    steps = disk.load(log)
    ledger = images.Ledger(steps)
    broken = [f"{mode}, workload of seed {seed}: {one}" for one in _lines(log.with_suffix(".broken"))]
    if sabotage is None and not _is_faithful(steps, recording.database):
        broken.append(f"{mode}, workload of seed {seed}: the log does not make the files that SQLite made")
    return Workload(recording, ledger.places(), ledger.committed[-1], _asked(steps), broken)


def _asked(steps: list[Step]) -> Counter[str]:
    """Count what SQLite asked of the disk, and what that was for."""
    asked = Counter(_ASKED[step.sort] for step in steps if step.sort in _ASKED)
    asked["checkpoints"] = sum(step[:2] == (Sort.SYNCED, MAIN) for step in steps)
    asked["logs begun"] = sum(step[:3] == (Sort.WRITTEN, WAL, 0) for step in steps)
    asked["logs cut"] = sum(step[:3] == (Sort.TRUNCATED, WAL, 0) for step in steps)
    asked["logs deleted"] = sum(step[:2] == (Sort.DELETED, WAL) for step in steps)
    return asked


def _is_faithful(steps: list[Step], database: Path) -> bool:
    """Tell whether the log, played to the end, makes the very files that are there."""
    model = disk.Disk()
    for step in steps:
        model.play(step)
    made = model.after_loss(Random(0), disk.EVERYTHING).files
    paths = {suffix: database.with_name(database.name + suffix) for suffix in disk.SUFFIXES}
    return made == {suffix: path.read_bytes() for suffix, path in paths.items() if path.exists()}


def _parts(workload: Workload, share: int) -> Iterator[Part]:
    """Spread so many images over all places of a log: each place as often as the others, the rest drawn."""
    rounds, rest = divmod(share, len(workload.places))
    draw = Random(workload.recording.seed)
    chosen = [(place, variant) for variant in range(rounds) for place in workload.places]
    chosen += [(place, rounds + draw.randrange(3)) for place in draw.sample(workload.places, rest)]
    chosen.sort()
    log, seed, mode = workload.recording[:3]
    for start in range(0, len(chosen), PART_IMAGES):
        yield Part(log, mode, seed, tuple(chosen[start : start + PART_IMAGES]))


def _checked(parts: list[Part], processes: int) -> Iterator[Tally]:
    """Judge the parts, in this process when one is enough; a recording VFS has never been here."""
    if processes == 1:
        yield from map(images.check, parts)
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(images.check, parts)


def _row(mode: str, workloads: list[Workload], tally: Tally) -> dict[str, str | int]:
    return {
        "mode": mode,
        "workloads": len(workloads),
        "operations": sum(workload.asked[sort] for workload in workloads for sort in _ASKED.values()),
        "commits": sum(workload.commits for workload in workloads),
        "images": tally.images,
        "distinct": tally.distinct,
        "by the package": tally.by_package,
        "most commits behind": tally.most_behind,
        "acknowledged lost": tally.lost,
        "corrupt": tally.damaged,
    }


def _work(mode: str, workloads: list[Workload]) -> dict[str, str | int]:
    asked = sum((workload.asked for workload in workloads), Counter[str]())
    return {"mode": mode, **{what: asked[what] for what in workloads[0].asked}}


def _names(mode: str, tally: Tally) -> dict[str, str | int]:
    return {"mode": mode, **{suffix or "database": count for suffix, count in tally.misplaced.items()}}


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    sys.exit(report.run(main))
