"""How fast, how flat, how fair: this package beside a floor written by hand, and beside what people use today.

Every measurement is a process of its own with a fresh file; subjects alternate within each round; shown are medians of
the rounds and their range, and ratios taken within the same round. Durability is what a live connection says. A long
run may be split, a workload or more a command, and shown as one with `--from`. `--help` has examples, and how long they
take.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import environment

if __name__ == "__main__":
    draws = any(argument.startswith("--plots") for argument in sys.argv)
    environment.ensure("bench" if draws else None)  # before what follows, which imports the package

from harness import report

if TYPE_CHECKING:
    from benching.runs import Run

SHORT = "short form: it runs, and the figures mean nothing"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or read what was measured; show it. Return the exit status."""
    from benching import asking, document, goals, runs, summary, tables  # noqa: PLC0415 - the environment comes first

    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = asking.parser()
    options = asking.read(parser, given)
    if options.read is None:
        shown = [_measured(options, runs.shown(given))]
    else:
        try:
            shown = runs.read(options.read)
        except runs.NoRun as exc:
            parser.error(str(exc))
    is_short = any(run.is_short for run in shown)
    if is_short and asking.is_published(options):
        parser.error("the figures of a short run mean nothing: no page and no plots of them")
    rows = summary.summarise(chain.from_iterable(run.samples for run in shown))
    found = tables.tables(rows)
    judged = [] if is_short else goals.judged(rows)
    if judged:
        found[document.GOALS] = judged
    missed = goals.missed(judged) if options.strict else []
    print(json.dumps(asdict(shown[0])) if options.json == "-" else _text(shown, found, missed), flush=True)
    if options.document is not None:
        page = options.document.read_text(encoding="utf-8")
        options.document.write_text(document.written(page, found, shown), encoding="utf-8")
    if options.plots is not None:
        from benching import plots  # noqa: PLC0415 - matplotlib is not always there

        for path in plots.draw(rows, options.plots):
            report.say(f"drawn: {path}")
    return 1 if missed else 0


def _measured(options: argparse.Namespace, command: str) -> Run:
    import click  # noqa: PLC0415

    from benching import asking, peer_environment, running, runs  # noqa: PLC0415
    from benching.crew import Crew  # noqa: PLC0415
    from benching.machine import machine  # noqa: PLC0415
    from benching.registry import workloads  # noqa: PLC0415
    from benching.workload import Scale  # noqa: PLC0415

    factor = 1.0 if options.size is None else options.size
    scale = Scale(min(factor, 0.005) if options.short else factor, options.short)
    rounds = 1 if options.short else options.rounds or asking.ROUNDS
    wanted = [workload for workload in workloads() if not options.workloads or workload.name in options.workloads]
    size: dict[str, report.Figure] = {"rounds": rounds, "size": scale.size}
    run = runs.Run(command, report.seed_of(options), size, options.short, report.taken_with(), machine())
    pythons = {"subjects": Path(sys.executable)}
    peers: list[str] = []
    if options.peers is not None:
        there = peer_environment.prepare()
        pythons["peers"] = there.python
        peers = [name for name in there.adapters if name in options.peers]
        run.samples += [
            running.absent(name, reason).as_dict() for name, reason in there.left_out.items() if name in options.peers
        ]
        run.size = {**size, "rounds of peers": min(rounds, running.PEER_ROUNDS)}
    todo = running.steps(wanted, options.subjects or asking.OWN, peers, scale, rounds)
    kept = None if options.json in (None, "-") else Path(options.json)
    with (
        tempfile.TemporaryDirectory(prefix="litequeue-bench-") as folder,
        click.progressbar(
            length=sum(step.turns() for step in todo),
            label="measuring",
            file=sys.stderr,
            item_show_func=lambda sample: (
                f"{sample.workload}: {sample.cell}, {sample.durability}, {sample.subject}" if sample else ""
            ),
        ) as bar,
    ):
        for sample in running.run(todo, Crew(pythons, Path(folder)), run.seed):
            if kept is not None and run.samples and run.samples[-1]["workload"] != sample.workload:
                runs.write(run, kept)
            run.samples.append(sample.as_dict())
            bar.update(1, sample)
    run.surroundings = {**run.surroundings, "load at the end": machine()["load"]}
    if kept is not None:
        runs.write(run, kept)
    return run


def _text(shown: Sequence[Run], tables: dict[str, list[dict[str, report.Figure]]], missed: list[str]) -> str:
    """Return what a person reads: what each run was, and the tables of all."""
    told = [
        report.Report("bench", run.seed, run.size, surroundings=run.surroundings, taken=run.taken, judges=False)
        for run in shown
    ]
    told[-1].tables, told[-1].broken = tables, missed
    first = [SHORT] if any(run.is_short for run in shown) else []
    return "\n".join([*first, *(one.as_text() for one in told)])


if __name__ == "__main__":
    sys.exit(report.run(main))
