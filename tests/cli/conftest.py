"""What the tests of the command have: the command, in this process or in one of its own, on a file of the test's.

Most tests run it in-process, as fast as a call; those that need signals, pipes or permissions start it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, NoReturn

import apsw
import pytest
from click.testing import CliRunner

import litequeue
from litequeue.cli import litequeue as command
from litequeue.worker.signals import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from litequeue import Queue

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
_PLAIN = {"PYTHONUTF8": "1", "PYTHONUNBUFFERED": ""}
"""What the tests expect of Python's streams: UTF-8, and buffered as they are at a user's."""


@dataclass(frozen=True)
class Outcome:
    """How a run of the command ended."""

    status: int
    out: str
    err: str

    def line_of_failure(self, status: int) -> str:
        """Return the one clear line of an error, having made sure that there is nothing else (contract §9)."""
        assert (self.status, self.out) == (status, ""), self
        return self.only_complaint()

    def only_complaint(self) -> str:
        """Return the one line on standard error, without its beginning."""
        assert self.err.startswith("litequeue: "), self
        assert self.err.count("\n") == 1, self
        assert self.err.endswith("\n"), self
        return self.err.removeprefix("litequeue: ").rstrip("\n")


class Cli:
    """The command on one queue file, in this process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, *arguments: object, stdin: str | bytes | IO[bytes] | None = None) -> Outcome:
        """Run the command; an exception that escapes it, which a user would see as a traceback, is raised here."""
        result = CliRunner().invoke(command, ["--db", str(self.path), *map(str, arguments)], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    def done(self, *arguments: object, stdin: str | bytes | None = None) -> str:
        """Run the command, which must succeed in silence, but for the news of a file; return what it printed."""
        outcome = self(*arguments, stdin=stdin)
        assert (outcome.status, outcome.err.removeprefix(f"litequeue: made {self.path}\n")) == (0, ""), outcome
        return outcome.out

    def json(self, *arguments: object) -> object:
        """Run the command with `--json`; return what every JSON parser would make of its output."""
        out = self.done(*arguments, "--json")
        assert out.isascii()
        value: object = json.loads(out, parse_constant=_refuse_constant)
        return value


class Processes:
    """The command in processes of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started: list[subprocess.Popen[str]] = []

    def start(
        self,
        *arguments: str,
        stdin: int | IO[str] | None = subprocess.DEVNULL,
        stdout: int | IO[str] = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        environment: dict[str, str] | None = None,
        before: Callable[[], None] | None = None,
    ) -> subprocess.Popen[str]:
        """Start `python -m litequeue` on the file; `before` is called in the child."""
        process = subprocess.Popen(
            [sys.executable, "-m", "litequeue", "--db", str(self._path), *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=self._path.parent,
            encoding="utf-8",
            env={**os.environ, **_PLAIN, **(environment or {})},
            preexec_fn=before,  # noqa: PLW1509 - no other thread of ours holds a lock that the child would need
        )
        self._started.append(process)
        return process

    def run(self, *arguments: str, before: Callable[[], None] | None = None) -> Outcome:
        """Run the command to its end."""
        return self.outcome(self.start(*arguments, before=before))

    def outcome(self, process: subprocess.Popen[str]) -> Outcome:
        """Wait for the end of a command; return it with what had not been read yet."""
        out, err = process.communicate(timeout=60)
        return Outcome(process.returncode, out or "", err or "")

    def next_line(self, process: subprocess.Popen[str], name: str = "stdout") -> str:
        """Wait for the next line that a process prints."""
        stream = process.stdout if name == "stdout" else process.stderr
        assert stream is not None
        line = stream.readline()
        assert line.endswith("\n"), (line, process.poll())
        return line.rstrip("\n")

    def end(self) -> None:
        """End what a failed test has left running."""
        for process in self._started:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()


@pytest.fixture(autouse=True)
def handlers() -> Iterator[list[object]]:
    """Give the handlers of the signals that end a command, in their order, and put them back."""
    before = [signal.getsignal(number) for number in SIGNALS]
    yield [*before]
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Give the path of a queue file that does not exist yet."""
    return tmp_path / "app.queue"


@pytest.fixture
def cli(db: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Give the command, on `db`; the environment names no other file."""
    monkeypatch.delenv("LITEQUEUE_DB", raising=False)
    return Cli(db)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Give what makes the command take its output for a terminal of so many columns."""

    def of(columns: int) -> None:
        monkeypatch.setattr("litequeue.cli.layout.columns", lambda: columns)

    return of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the current folder; what is imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        module = sys.modules[name]
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]  # a namespace has no file
        if any(str(place).startswith(str(tmp_path)) for place in places):
            del sys.modules[name]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command wait for locks for a moment only, instead of ten seconds."""
    defaults = litequeue.open.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "busy_timeout", 0.05)


@pytest.fixture
def processes(db: Path) -> Iterator[Processes]:
    """Give the command in processes of its own, on `db`; none outlives the test."""
    processes = Processes(db)
    yield processes
    processes.end()


@pytest.fixture
def queue(db: Path) -> Iterator[Queue]:
    """Give a handle on `db`, by the clocks of the system as the command has them."""
    with litequeue.open(db, durability="normal") as handle:
        yield handle


@pytest.fixture
def sql(db: Path) -> Callable[[str], list[tuple[object, ...]]]:
    """Give SQL on `db`, from a connection that knows nothing of the queue's rules."""

    def run(text: str) -> list[tuple[object, ...]]:
        connection = apsw.Connection(str(db))
        try:
            return list(connection.execute(text))
        finally:
            connection.close()

    return run


@pytest.fixture
def obedient() -> Callable[[], None] | None:
    """Give what makes a child obey the permissions of files, which root does not; nothing to do for other users."""
    if os.name != "posix":
        pytest.skip("permissions are POSIX here")
    if os.geteuid() != 0:
        return None
    if sys.platform != "linux":
        pytest.skip("root can give this up on Linux only")
    libc = ctypes.CDLL(None, use_errno=True)

    def give_up() -> None:
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                os._exit(99)

    return give_up


def _refuse_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not JSON")
