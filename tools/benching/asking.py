"""The command line of `tools/bench.py`, and what is wrong with one before anything is measured.

Names have commas between them, so that no option takes the workload behind it for a value. Invariant: what could only
fail after the measuring, or would mean something else than it says, is refused first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benching import document
from benching.registry import workloads
from benching.running import PEER_ROUNDS
from benching.subject import names
from harness import report

OWN = names("subjects")
PEERS = names("peers")
ROUNDS = 5
_ALL = "all"
_OF_MEASURING = ("workloads", "subjects", "peers", "rounds", "size", "short", "seed", "json")
_EXAMPLES = """\
examples:
  python tools/bench.py                                      25 to 30 minutes
  python tools/bench.py --peers --json run.json              20 minutes more
  python tools/bench.py enqueue wake-up --subjects=ours,bare     2 minutes
  python tools/bench.py worker worker-idle worker-memory         15 minutes
  python tools/bench.py --from run.json other.json --document docs/performance.md
"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of `tools/bench.py`."""
    known = {workload.option: workload.name for workload in workloads()}
    made = argparse.ArgumentParser(
        description="Measure this package beside others, in one run.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "workloads",
        nargs="*",
        metavar="WORKLOAD",
        type=lambda text: _one_of(known, text, "workload"),
        help=f"of: {', '.join(known)} (default all)",
    )
    measured = made.add_argument_group("what is measured", "None of this goes with --from, which measures nothing.")
    measured.add_argument(
        "--subjects",
        type=_list(OWN, "subject"),
        metavar="A,B",
        help=f"of this project's own: {', '.join(OWN)} (default all)",
    )
    measured.add_argument(
        "--peers",
        nargs="?",
        type=_list(PEERS, "peer"),
        metavar="A,B",
        help=f"peers too, all or (--peers=A,B) some of: {', '.join(PEERS)}; the first time they are downloaded "
        "from the package index into an environment of their own, in about a minute",
    )
    measured.add_argument(
        "--rounds", type=report.some, help=f"for each measurement (default {ROUNDS}; peers have {PEER_ROUNDS} at most)"
    )
    measured.add_argument("--size", type=_factor, help="a factor of more than 0 on how much is done (default 1)")
    measured.add_argument("--short", action="store_true", help="only prove that it runs: the figures mean nothing")
    measured.add_argument("--seed", type=int, help="of the order of subjects (default: new, and printed)")
    measured.add_argument(
        "--json", metavar="FILE", help="keep the run there, workload by workload (-: to standard output, no tables)"
    )
    told = made.add_argument_group("what is made of it")
    told.add_argument(
        "--from", dest="read", nargs="+", metavar="FILE", type=Path, help="show earlier runs as one, from their JSON"
    )
    told.add_argument("--document", metavar="PAGE", type=Path, help="write the tables into a page, between its markers")
    told.add_argument("--plots", metavar="FOLDER", type=Path, help="draw plots (installs the extra `bench`)")
    told.add_argument("--strict", action="store_true", help="end with 1 when a goal is missed")
    return made


def _one_of(known: dict[str, str], text: str, what: str) -> str:
    if text not in known:
        raise argparse.ArgumentTypeError(f"no such {what}: {text!r} (there is {', '.join(known)})")
    return known[text]


def _list(known: Sequence[str], what: str) -> Callable[[str], list[str]]:
    """Return what reads some names, with commas between them."""
    by_name = {name: name for name in known}

    def read(text: str) -> list[str]:
        return list(known) if text == _ALL else [_one_of(by_name, name, what) for name in text.split(",")]

    return read


def _factor(text: str) -> float:
    try:
        return report.seconds(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a factor of more than 0, as 0.2") from None


def is_published(options: argparse.Namespace) -> bool:
    """Tell whether others are to read it."""
    return options.document is not None or options.plots is not None


def read(made: argparse.ArgumentParser, given: Sequence[str]) -> argparse.Namespace:
    """Read a command line; end with what is wrong with it."""
    options = made.parse_args([f"--peers={_ALL}" if argument == "--peers" else argument for argument in given])
    for wrong in _wrong(options):
        made.error(wrong)
    return options


def _wrong(options: argparse.Namespace) -> Iterator[str]:
    given = [name for name in _OF_MEASURING if getattr(options, name) not in (None, False, [])]
    if options.read is not None and given:
        told = ", ".join(name if name == "workloads" else f"--{name}" for name in given)
        yield f"--from measures nothing: it does not go with {told}"
    if options.short and (options.strict or is_published(options)):
        yield "the figures of --short mean nothing: it does not go with --document, --plots or --strict"
    if options.json not in (None, "-"):
        yield from _unwritable("--json", Path(options.json), is_folder=False)
    if options.plots is not None:
        yield from _unwritable("--plots", options.plots, is_folder=True)
    if options.document is not None:
        unfit = _unfit(options.document)
        if unfit is not None:
            yield f"--document {options.document}: {unfit}"


def _unwritable(option: str, path: Path, *, is_folder: bool) -> Iterator[str]:
    if not path.parent.is_dir():
        yield f"{option} {path}: there is no folder {path.parent}"
    if path.exists() and path.is_dir() != is_folder:
        yield f"{option} {path}: that is {'no' if is_folder else 'a'} folder"


def _unfit(page: Path) -> str | None:
    try:
        return document.unfit(page.read_text(encoding="utf-8"))
    except OSError as exc:
        return exc.strerror
    except ValueError:
        return "that is no text"
