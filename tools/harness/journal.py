"""What a process called and what it got, in a file of its own that outlives it.

Owns: the lines. One is written before a call and one after it, each by a single `write` on a descriptor opened for
appending, so that it is in the kernel's hands, and survives a SIGKILL, before the next thing happens. A line has a
number, the process id, and the monotonic time of the host, which all its processes share. Invariants: a call without
its second line has an unknown outcome; a last line that is torn is none. Leaves out: what the calls mean.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import cast

SUFFIX = ".journal"


class Outcome(Enum):
    """What became of a call, as far as its caller knows."""

    DONE = auto()
    """It was acknowledged."""
    NOTHING = auto()
    """It raised, and so it says that it did nothing."""
    UNKNOWN = auto()
    """Its caller was killed inside it, or was told that nobody knows."""


class Journal:
    """The journal that this process writes; serves many threads. Its path must not exist."""

    def __init__(self, path: Path, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._lines = 0
        self._sessions = 0

    def open_session(self, worker: str) -> int:
        """Note that a queue handle was opened; return its number within this journal."""
        with self._lock:
            self._sessions += 1
            session = self._sessions
        self._write({"s": session, "opened": worker})
        return session

    def call(self, session: int, verb: str, asked: dict[str, object], inside: int | None = None) -> int:
        """Note what is about to be called; return its number. `inside` is the number of the open transaction."""
        line = {"s": session, "call": verb, "asked": asked}
        return self._write(line if inside is None else {**line, "in": inside})

    def note(self, session: int, what: str, told: dict[str, object]) -> None:
        """Note something that has happened, and is no call."""
        self._write({"s": session, "note": what, "told": told})

    def got(self, number: int, heard: dict[str, object]) -> None:
        """Note what a call has returned."""
        self._write({"of": number, "heard": heard})

    def raised(self, number: int, error: str, text: str, heard: dict[str, object], *, is_unknown: bool) -> None:
        """Note what a call has raised."""
        self._write({"of": number, "error": error, "text": text, "unknown": is_unknown, "heard": heard})

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _write(self, line: dict[str, object]) -> int:
        with self._lock:
            self._lines += 1
            number = self._lines
            stamped = {"n": number, "pid": self._pid, "t": self._now_ns(), **line}
            left = memoryview(json.dumps(stamped, separators=(",", ":")).encode() + b"\n")
            while left:
                left = left[os.write(self._descriptor, left) :]
        return number


@dataclass(slots=True)
class Call:
    """One call, or what was noted, as its journal tells of it; times are monotonic ns of the host."""

    writer: str
    """The journal's name: process ids come again, these do not."""
    session: int
    number: int
    verb: str
    asked_at: int
    asked: dict[str, object]
    inside: int | None = None
    """The number of the transaction, or of the exchange, that it is a part of."""
    heard_at: int | None = None
    """When its answer was known; for a part of a transaction, when that one's was."""
    heard: dict[str, object] = field(default_factory=dict)
    outcome: Outcome = Outcome.UNKNOWN
    error: str | None = None
    parts: list[Call] = field(default_factory=list)
    """What a transaction or an exchange consists of."""


@dataclass(slots=True)
class Told:
    """What is known of a journal besides its calls."""

    lines: int = 0
    last_line_at: dict[int, int] = field(default_factory=dict)
    """When each session was last heard of: its process lived then."""


def read(path: Path, told: Told) -> Iterator[Call]:
    """Read a journal: each call once its outcome is known, those that are not at the end; parts with their whole.

    Raises:
        ValueError: a line that is not the last one cannot be read, so this is not what a process wrote.
    """
    open_calls: dict[int, Call] = {}
    for line in _lines(path):
        told.lines += 1
        at = cast("int", line["t"])
        if "of" in line:
            call = open_calls[cast("int", line["of"])]
            told.last_line_at[call.session] = at
            _hear(call, line, at)
            if call.inside is None:
                for done in (call, *call.parts):
                    del open_calls[done.number]
                yield call
            continue
        session = cast("int", line["s"])
        told.last_line_at[session] = at
        if "note" in line:
            verb, asked = cast("str", line["note"]), cast("dict[str, object]", line["told"])
            number = cast("int", line["n"])
            yield Call(path.stem, session, number, verb, at, asked, heard_at=at, outcome=Outcome.DONE)
        if "call" in line:
            call = Call(
                path.stem,
                session,
                cast("int", line["n"]),
                cast("str", line["call"]),
                at,
                cast("dict[str, object]", line["asked"]),
                cast("int | None", line.get("in")),
            )
            open_calls[call.number] = call
            if call.inside is not None:
                open_calls[call.inside].parts.append(call)
    for call in open_calls.values():
        if call.inside is None:
            _share(call)
            yield call


def _hear(call: Call, line: dict[str, object], at: int) -> None:
    call.heard_at = at
    call.heard = cast("dict[str, object]", line["heard"])
    call.error = cast("str | None", line.get("error"))
    if call.error is None:
        call.outcome = Outcome.DONE
    else:
        call.outcome = Outcome.UNKNOWN if line["unknown"] else Outcome.NOTHING
    _share(call)


def _share(call: Call) -> None:
    """Let the parts of a transaction have its outcome."""
    for part in call.parts:
        part.heard_at = call.heard_at
        if call.outcome is Outcome.NOTHING:
            part.outcome = Outcome.NOTHING
        elif call.outcome is Outcome.UNKNOWN and part.outcome is Outcome.DONE:
            part.outcome = Outcome.UNKNOWN


def _lines(path: Path) -> Iterator[dict[str, object]]:
    with path.open("rb") as file:
        for number, text in enumerate(file, start=1):
            if not text.endswith(b"\n"):  # its writer was killed inside the write
                return
            try:
                yield json.loads(text.decode())
            except ValueError as exc:
                raise ValueError(f"line {number} of {path} is not a journal's: {text[:80]!r}") from exc


def digest(value: object) -> str:
    """Return what stands for a payload or a result: the same for what msgpack gives back."""
    text = json.dumps(value, sort_keys=True, default=repr, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
