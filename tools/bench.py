"""How fast, how flat, how fair: this package beside a floor written by hand, and beside what people use today.

    python tools/bench.py                                  about a quarter of an hour
    python tools/bench.py --peers --json run.json          the peers too, in an environment of their own: longer
    python tools/bench.py enqueue drain --subjects ours bare --size 0.2
    python tools/bench.py --from run.json --document docs/performance.md --plots docs/performance

Every measurement is a process of its own with a fresh file; subjects alternate within each round; shown are medians of
the rounds, between what they lay, and ratios taken within the same round. Durability is what a live connection says.
`--from` shows what an earlier run has written, and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import environment

if __name__ == "__main__":
    draws = any(argument.startswith("--plots") for argument in sys.argv)
    environment.ensure("bench" if draws else None)  # before what follows, which imports the package

from benching.subject import names
from harness import report

OWN = names("subjects")
PEERS = names("peers")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or read what was measured; show it. Return the exit status."""
    from benching import document, goals, summary, tables  # noqa: PLC0415 - the environment comes first

    options = _parser().parse_args(arguments)
    if options.read is None:
        told, samples = _measured(options)
        command = shlex.join(["python", "tools/bench.py", *(sys.argv[1:] if arguments is None else arguments)])
    else:
        told, samples, command = _read(options.read)
    rows = summary.summarise(samples)
    for title, table in tables.tables(rows).items():
        told.add(title, table)
    judged = goals.judged(rows)
    if judged:
        told.add(document.GOALS, judged)
    if options.strict:
        told.broken += goals.missed(judged)
    whole = {**told.as_dict(), "command": command, "samples": samples}
    if options.json is not None and options.json != "-":
        Path(options.json).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(whole) if options.json == "-" else told.as_text(), flush=True)
    if options.document is not None:
        page = options.document.read_text(encoding="utf-8")
        options.document.write_text(document.written(page, told, command), encoding="utf-8")
    if options.plots is not None:
        from benching import plots  # noqa: PLC0415 - matplotlib is not always there

        for path in plots.draw(rows, options.plots):
            report.say(f"drawn: {path}")
    return 1 if told.broken else 0


def _parser() -> argparse.ArgumentParser:
    from benching.registry import workloads  # noqa: PLC0415

    known = [workload.name for workload in workloads()]
    parser = argparse.ArgumentParser(description="measure this package beside others, in one run")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of: {', '.join(known)} (default all)")
    parser.add_argument("--subjects", nargs="+", choices=OWN, default=OWN, help="of this project's own (default all)")
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="measure peers too (default all)")
    parser.add_argument("--rounds", type=report.some, default=5, help="for each measurement (default %(default)s)")
    parser.add_argument("--size", type=report.seconds, default=1.0, help="a factor on how much is done (default 1)")
    parser.add_argument("--short", action="store_true", help="only prove that it runs: the figures mean nothing")
    parser.add_argument("--seed", type=int, default=None, help="of the order of subjects (default: new, and printed)")
    parser.add_argument("--strict", action="store_true", help="end with 1 when a goal is missed")
    parser.add_argument("--json", metavar="FILE", help="write the whole run there (-: to standard output, no tables)")
    parser.add_argument("--from", dest="read", metavar="FILE", type=Path, help="show an earlier run, from its JSON")
    parser.add_argument(
        "--document", metavar="PAGE", type=Path, help="write the tables into a page, between its markers"
    )
    parser.add_argument("--plots", metavar="FOLDER", type=Path, help="draw plots (needs the extra `bench`)")
    return parser


def _measured(options: argparse.Namespace) -> tuple[report.Report, list[dict[str, Any]]]:
    import click  # noqa: PLC0415

    from benching import peer_environment, running  # noqa: PLC0415
    from benching.crew import Crew  # noqa: PLC0415
    from benching.machine import machine  # noqa: PLC0415
    from benching.registry import workloads  # noqa: PLC0415
    from benching.workload import Scale  # noqa: PLC0415

    scale = Scale(min(options.size, 0.005) if options.short else options.size, options.short)
    rounds = 1 if options.short else options.rounds
    wanted = [workload for workload in workloads() if not options.workloads or workload.name in options.workloads]
    unknown = set(options.workloads) - {workload.name for workload in wanted}
    if unknown:
        sys.exit(f"no such workload: {', '.join(sorted(unknown))}")
    pythons = {"subjects": Path(sys.executable)}
    peers: list[str] = []
    samples: list[dict[str, Any]] = []
    if options.peers is not None:
        there = peer_environment.prepare()
        pythons["peers"] = there.python
        peers = [name for name in there.adapters if name in (options.peers or PEERS)]
        samples += [running.absent(name, reason).as_dict() for name, reason in there.left_out.items()]
    todo = running.steps(wanted, options.subjects, peers, scale, rounds)
    seed = report.seed_of(options)
    told = report.Report("bench", seed, {"rounds": rounds, "size": scale.size}, surroundings=machine(), judges=False)
    with (
        tempfile.TemporaryDirectory(prefix="litequeue-bench-") as folder,
        click.progressbar(
            length=sum(len(step.subjects) * step.rounds for step in todo),
            label="measuring",
            file=sys.stderr,
            item_show_func=lambda sample: (
                f"{sample.workload}: {sample.cell}, {sample.durability}, {sample.subject}" if sample else ""
            ),
        ) as bar,
    ):
        for sample in running.run(todo, Crew(pythons, Path(folder)), seed):
            samples.append(sample.as_dict())
            bar.update(1, sample)
    told.surroundings = {**told.surroundings, "load at the end": machine()["load"]}
    return told, samples


def _read(path: Path) -> tuple[report.Report, list[dict[str, Any]], str]:
    whole = json.loads(path.read_text(encoding="utf-8"))
    told = report.Report(
        "bench",
        whole["seed"],
        whole["size"],
        surroundings=whole["surroundings"],
        taken=whole["taken_with"],
        judges=False,
    )
    return told, whole["samples"], whole["command"]


if __name__ == "__main__":
    sys.exit(report.run(main))
