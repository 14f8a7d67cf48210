"""Child processes: started, brought together, listened to, and ended.

Invariants: every wait has an end; a child that does not answer is killed, and its measurement has failed; what a child
writes to standard error is told when it fails, and only then.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import IO, NamedTuple, cast

from benching.order import Answer, Order

CHILD = Path(__file__).resolve().parent / "child.py"
PATIENCE_S = 240.0
"""How long a child may take, whatever it does."""
_TOLD_CHARS = 1500


class Named(NamedTuple):
    """A subject, by where its adapter is found."""

    where: str
    """`subjects` or `peers`."""
    name: str


@dataclass(frozen=True, slots=True)
class Crew:
    """What children are started with."""

    pythons: dict[str, Path]
    """The Python of each environment, by where its subjects are found."""
    folder: Path
    """Where the files lie."""
    patience_s: float = PATIENCE_S

    def run(self, order: Order) -> Answer:
        """Let one child do an order."""
        return self.run_together([order])[0]

    def run_together(self, orders: Sequence[Order]) -> list[Answer]:
        """Let children do their orders at once; those that meet go on together when the last is there."""
        with contextlib.ExitStack() as stack:
            children = [stack.enter_context(_child(self.pythons[order["where"]], self.patience_s)) for order in orders]
            for child, order in zip(children, orders, strict=True):
                child.say(json.dumps(order))
            first = [child.hear() for child in children]
            meeting = [child for child, answer in zip(children, first, strict=True) if answer.get("ready")]
            if len(meeting) not in {0, len(children)}:
                for child in meeting:
                    child.process.kill()
            else:
                for child in meeting:
                    child.say("go")
            return [
                cast("Answer", child.hear() if answer.get("ready") else answer)
                for child, answer in zip(children, first, strict=True)
            ]


@dataclass(frozen=True, slots=True)
class _Child:
    process: subprocess.Popen[str]
    errors: IO[str]

    def say(self, line: str) -> None:
        """Write a line to it; that it is gone is found out when it is listened to."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(f"{line}\n")
                self.process.stdin.flush()

    def hear(self) -> dict[str, object]:
        """Read its next line."""
        line = self.process.stdout.readline() if self.process.stdout is not None else ""
        with contextlib.suppress(json.JSONDecodeError):
            return cast("dict[str, object]", json.loads(line))
        status = self.process.wait()
        self.errors.seek(0)
        return {"failed": f"the process ended with {status}: {line} {self.errors.read()[-_TOLD_CHARS:]}"}


@contextlib.contextmanager
def _child(python: Path, patience_s: float) -> Iterator[_Child]:
    """Start a child, and see to its end."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [str(python), str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        clock = Timer(patience_s, process.kill)
        clock.daemon = True
        clock.start()
        try:
            with process:
                yield _Child(process, errors)
                if process.stdin is not None:
                    with contextlib.suppress(BrokenPipeError):
                        process.stdin.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()
        except BaseException:
            process.kill()
            raise
        finally:
            clock.cancel()
