"""Damaged queue files: `python tools/hostile.py [--flips 1000]`.

Flips a bit, a byte or a sector at random places of a queue file, of its `-wal` or of its `-shm`, cuts files short and
puts foreign logs beside them; then every verb, every read and every command is let loose on the file, in a process
that may crash. Promise (contract §6): it works, or it is an error of the contract's tree, and one line of the command.
Broken by: any other exception, a traceback, a crash, a hang, memory beyond a bound, a job in two hands, a job with
another one's payload, a write to any file that is not the queue's, a write to a file that was refused.

Two things cannot be told, because SQLite keeps no checksums of its pages: a flipped bit inside a stored value that
still reads, and shared memory (`-shm`) that is scribbled on under the hands of a program, which SQLite believes: there,
jobs that were mixed up are counted and not promised against.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

if __name__ == "__main__":
    import environment

    environment.ensure("dev")

from damage import specimens, wounds
from damage.specimens import Made
from harness import report

if TYPE_CHECKING:
    from damage.exercise import Answer
    from damage.wounds import Wound

CONTROLS = {
    "raw-errors": "SQLite's errors come through as they are",
    "blind-codec": "stored values are decoded without a guard",
    "writes-beside": "a file beside the queue is written to",
    "crashes": "the process that uses the file dies",
}
PATIENCE_S = 90.0
"""How long a trial may take before it counts as a hang; a healthy one takes a third of a second."""
MOST_RSS_KIB = 400 * 1024
_TELL_EVERY = 100
_OURS = ("", "-wal", "-shm", "-lock", "-maintenance", "-schedules", "-bell", "-done", "-journal")
_CHILD = Path(__file__).with_name("damage") / "child.py"


class _Gone(Exception):
    """The child has died or says nothing."""


class Child:
    """The process that uses the files, started anew when it has died."""

    def __init__(self, control: str | None) -> None:
        self._command = [sys.executable, str(_CHILD), control or "", str(specimens.WALL_US)]
        self._complaints = Path(tempfile.mkdtemp(prefix="litequeue-hostile-child-")) / "stderr"
        self._process = self._started()
        self._heard = b""

    def ask(self, question: Mapping[str, object]) -> Mapping[str, object]:
        """Ask, and wait for the next line; the next question goes to another process when this one has died."""
        try:
            os.write(_descriptor(self._process.stdin), json.dumps(question).encode() + b"\n")
        except BrokenPipeError:
            raise self._gone("it crashed") from None
        says = _descriptor(self._process.stdout)
        deadline = time.monotonic() + PATIENCE_S
        while b"\n" not in self._heard:
            readable, _, _ = select.select([says], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                self._process.send_signal(signal.SIGABRT)  # so that it says where it is
                raise self._gone(f"it hangs: nothing within {PATIENCE_S:.0f} s")
            more = os.read(says, 65_536)
            if not more:
                raise self._gone("it crashed")
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        return cast("Mapping[str, object]", json.loads(line))

    def end(self) -> None:
        """Leave no process behind."""
        self._process.kill()
        self._process.communicate()
        shutil.rmtree(self._complaints.parent)

    def _gone(self, how: str) -> _Gone:
        self._process.communicate()
        status = self._process.returncode
        said = self._complaints.read_text(encoding="utf-8", errors="replace")
        self._process, self._heard = self._started(), b""
        name = signal.Signals(-status).name if status < 0 else f"status {status}"
        return _Gone(f"{how}: {name} {said[:600]}")

    def _started(self) -> subprocess.Popen[bytes]:
        with self._complaints.open("wb") as complaints:  # not a pipe, which nobody would read in time
            return subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=specimens.environment(),
            )


def _descriptor(stream: IO[bytes] | None) -> int:
    return cast("IO[bytes]", stream).fileno()


@dataclass(slots=True)
class Tally:
    """What came of the trials."""

    by_wound: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_stage: Counter[tuple[str, str]] = field(default_factory=Counter)
    first_errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    mixed_by_shared_memory: int = 0
    """Files whose shared memory was scribbled on in use, and in which jobs were mixed up: no promise is made there."""
    slowest_s: float = 0.0
    most_rss_kib: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return the exit status."""
    parser = report.parser("damaged queue files: flipped bits, cut files, foreign logs", CONTROLS)
    parser.add_argument("--flips", type=report.some, default=1000, help="how many files are damaged (default: 1000)")
    options = parser.parse_args(arguments)
    seed = report.seed_of(options)
    with tempfile.TemporaryDirectory(prefix="litequeue-hostile-") as folder:
        root = Path(folder)
        tally = run(specimens.make_all(root, seed), root, seed, options.flips, options.control)
    found = report.Report("hostile", seed, {"flips": options.flips}, options.control)
    found.add("what came of a wound, by the file that was hit", _by_wound(tally))
    found.add("where the first error came", _pairs(tally.first_errors, "stage", "error", "files"))
    found.add("every call", _pairs(tally.by_stage, "stage", "outcome", "calls"))
    found.add(
        "bounds",
        [
            {
                "slowest file, s": tally.slowest_s,
                "most memory, MiB": tally.most_rss_kib // 1024,
                "files mixed up by shared memory": tally.mixed_by_shared_memory,
            }
        ],
    )
    found.broken = tally.broken
    return found.finish(as_json=options.json)


def run(made: Made, folder: Path, seed: int, flips: int, control: str | None = None) -> Tally:
    """Damage so many files, one after the other, in a folder that nothing is left in."""
    draw = random.Random(seed)
    tally = Tally()
    child = Child(control)
    try:
        for number in range(1, flips + 1):
            trial(child, wounds.draw_wound(draw, made), folder / str(number), tally)
            if number % _TELL_EVERY == 0:
                report.say(f"{number} of {flips} files, {len(tally.broken)} broken promises")
    finally:
        child.end()
    return tally


def trial(child: Child, wound: Wound, folder: Path, tally: Tally) -> None:
    """Damage one file and let the child loose on it."""
    path, twin = wound.lay_out(folder / "queue"), wound.lay_out(folder / "twin")
    if wound.live:
        wound.inflict(twin)
    bystander = path.with_name("bystander.txt")
    bystander.write_text("not the queue's\n", encoding="utf-8")
    before = _hashes(path.parent)
    began = time.monotonic()
    question = {"path": str(path), "twin": str(twin), "payloads": dict(wound.specimen.payloads), "live": wound.live}
    try:
        said = child.ask(question)
        if "open" in said:
            wound.inflict(path)
            said = child.ask({})
        answer = cast("Answer", said)
    except _Gone as exc:
        tally.by_wound[wound.where, "crashed"] += 1
        tally.broken.append(f"{wound}: {exc}")
    else:
        _judge(wound, answer, tally)
        for what in _written(before, _hashes(path.parent), refused=not answer["has_opened"]):
            tally.broken.append(f"{wound}: {what}")
    tally.slowest_s = max(tally.slowest_s, time.monotonic() - began)
    shutil.rmtree(folder)


def _judge(wound: Wound, answer: Answer, tally: Tally) -> None:
    if answer["first_error"] is None:
        tally.by_wound[wound.where, "worked"] += 1
    else:
        stage, name = answer["first_error"]
        tally.first_errors[stage, name] += 1
        tally.by_wound[wound.where, "refused" if stage == "open" else "named error later"] += 1
    for stage, outcome, count in answer["outcomes"]:
        tally.by_stage[stage, outcome] += count
    if wound.suffix == "-shm":
        tally.mixed_by_shared_memory += bool(answer["mixed"])
        wrong = answer["wrong"]
    else:
        wrong = answer["wrong"] + answer["mixed"]
    tally.broken += [f"{wound}: {what}" for what in dict.fromkeys(wrong)]
    if answer["rss_kib"] > MOST_RSS_KIB >= tally.most_rss_kib:
        tally.broken.append(f"{wound}: the process has grown to {answer['rss_kib'] // 1024} MiB")
    tally.most_rss_kib = max(tally.most_rss_kib, answer["rss_kib"])


def _hashes(folder: Path) -> dict[str, str]:
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in sorted(folder.iterdir())}


def _written(before: Mapping[str, str], after: Mapping[str, str], *, refused: bool) -> list[str]:
    """Say what was written that must not be: any file that is not the queue's, and the queue's when it was refused."""
    ours = {f"app.queue{suffix}" for suffix in _OURS}
    kept = before.keys() if refused else before.keys() - ours
    changed = [f"{name} was written to" for name in sorted(kept) if after.get(name) != before[name]]
    return changed + [f"{name} was made" for name in sorted(after.keys() - before.keys() - ours)]


def _by_wound(tally: Tally) -> list[dict[str, report.Figure]]:
    columns = ("worked", "refused", "named error later", "crashed")
    places = sorted({where for where, _ in tally.by_wound})
    return [{"hit": where, **{column: tally.by_wound[where, column] for column in columns}} for where in places]


def _pairs(counts: Counter[tuple[str, str]], first: str, second: str, what: str) -> list[dict[str, report.Figure]]:
    return [{first: key[0], second: key[1], what: counts[key]} for key in sorted(counts)]


if __name__ == "__main__":
    sys.exit(report.run(main))
