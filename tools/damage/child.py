"""The process that uses damaged files: it may crash, hang or eat memory without harm to the harness.

Owns the limits it runs under, the lines it speaks (JSON, one question one answer), and the sabotages that its parent
may ask for. A question is a path; the answer says what came of every stage. For a wound under its hands it says `open`
and waits for a line.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypedDict, cast
from uuid import UUID

import msgpack

from damage.exercise import Answer, Exercise
from litequeue import codec
from litequeue.sqlite import opening, store

_SAYS = 1
"""Standard output, by its descriptor: `sys.stdout` is the commands'."""
MEMORY_BYTES = 2**30
"""All that the process may have of addresses: a size that a wound has made up is refused."""


class Question(TypedDict):
    """Which file to use."""

    path: str
    twin: str
    """The same file once more, for the commands."""
    payloads: dict[str, int]
    """The number in each job's payload, by its id."""
    live: bool
    """Whether the parent wounds the file once it is open."""


def main(control: str, wall_us: str) -> None:
    """Answer questions until there are no more."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o077)
    logging.getLogger("litequeue").addHandler(logging.NullHandler())
    sabotage = CONTROLS.get(control)
    for line in sys.stdin:
        _say(_answer(cast("Question", json.loads(line)), int(wall_us), sabotage))


def _answer(question: Question, wall_us: int, sabotage: Callable[[Path], None] | None) -> Answer:
    path = Path(question["path"])
    exercise = Exercise(path, Path(question["twin"]), question["payloads"], wall_us)
    if sabotage is not None:
        sabotage(path)

    def when_open() -> None:
        if question["live"]:
            _say({"open": True})
            sys.stdin.readline()

    exercise.run(when_open)
    return exercise.answer(_most_rss_kib())


def _most_rss_kib() -> int:
    """Return the most memory that this process has had; what `getrusage` tells includes that of its parent."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))


def _say(answer: Mapping[str, object]) -> None:
    os.write(_SAYS, json.dumps(answer).encode() + b"\n")


# --- sabotage


_SAY_NOTHING: Mapping[str, Callable[..., object]] = {
    "translate": lambda _exc, _path: None,
    "damaged": lambda _path, cause: cause,
    "meaning": lambda exc, _path: exc,
}


def _raw_errors(_: Path) -> None:
    """Let what SQLite says through as it is."""
    for module in (store, opening):
        for name in ("translate", "damaged", "meaning"):
            if hasattr(module, name):
                setattr(module, name, _SAY_NOTHING[name])


def _blind_codec(_: Path) -> None:
    """Decode without a guard."""

    def decode(encoded: bytes, owner: UUID | str) -> object:
        del owner
        value: object = msgpack.unpackb(encoded[1:])
        return value

    codec.decode = decode
    codec.DECODER = codec.DECODER._replace(value=decode)


def _touch_bystander(path: Path) -> None:
    with path.with_name("bystander.txt").open("a") as bystander:
        bystander.write("touched")


def _crash(_: Path) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


CONTROLS: Mapping[str, Callable[[Path], None]] = {
    "raw-errors": _raw_errors,
    "blind-codec": _blind_codec,
    "writes-beside": _touch_bystander,
    "crashes": _crash,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
