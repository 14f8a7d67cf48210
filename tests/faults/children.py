"""Functions of a test module, run in processes of their own.

A child is `python children.py MODULE FUNCTION ARGUMENTS`: it loads the test module by its path, calls the function with
a `Parent` and the arguments (JSON), and sends back what it returned. Both sides speak in lines, so a test waits for a
message and never for a time. Owns the end of every child: none outlives its test.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from typing import TYPE_CHECKING, Concatenate, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")

PATIENCE_S = 60.0
"""How long a test waits for a message before it fails; far above anything that a healthy child takes."""


class Parent:
    """The test, as its child sees it."""

    def say(self, line: str) -> None:
        """Send a line to the test; from a signal handler too, which may come in the midst of another line's sending."""
        unsent = f"{line}\n".encode()
        while unsent:
            unsent = unsent[os.write(1, unsent) :]

    def hear(self) -> str:
        """Wait for a line from the test; when the test is gone, so is the child."""
        line = sys.stdin.readline()
        if not line:
            os._exit(3)
        return line.rstrip("\n")

    def result(self, returned: object) -> None:
        """Send what the function returns, when the process cannot end in the ordinary way."""
        self.say(f"result {json.dumps(returned)}")

    def fork(self, work: Callable[[], object]) -> int:
        """Run `work` in a fork of this process that ends right after it; return the fork's process id."""
        pid = os.fork()
        if pid == 0:
            try:
                work()
            except BaseException:  # noqa: BLE001 - the fork's end is its report
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        return pid

    def join(self, *pids: int) -> None:
        """Wait for forks, and make sure that they ended well."""
        statuses = {pid: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids}
        assert not any(statuses.values()), f"forks ended with {statuses}"


class Child:
    """A process that runs one function of a test module."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # a group of its own: its forks are found at the end
        )
        self._heard = b""

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def say(self, line: str) -> None:
        """Send a line to the child."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def hear(self, patience_s: float = PATIENCE_S) -> str:
        """Wait for the next line of the child."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + patience_s
        while b"\n" not in self._heard:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            more = os.read(self._process.stdout.fileno(), 65_536) if readable else b""
            if not more:
                os.killpg(self.pid, signal.SIGKILL)
                raise AssertionError(f"the child said nothing more{'' if readable else ' in time'}: {self.errors()}")
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()

    def rest(self) -> list[str]:
        """Return the whole lines that an ended child has said and nobody has heard."""
        assert self._process.stdout is not None
        said = self._heard + self._process.stdout.read()
        self._heard = b""
        return said.decode().split("\n")[:-1]

    def result(self, patience_s: float = PATIENCE_S) -> object:
        """Wait for the child's end; return what its function returned."""
        last = self.hear(patience_s)
        status = self._process.wait(patience_s)
        assert status == 0, f"the child ended with {status} after {last!r}: {self.errors()}"
        kind, _, text = last.partition(" ")
        assert kind == "result", f"the child ended by saying {last!r}"
        returned: object = json.loads(text)
        return returned

    def status(self, patience_s: float = PATIENCE_S) -> int:
        """Wait for the child's end; return its exit status, negative for a signal."""
        return self._process.wait(patience_s)

    def is_running(self) -> bool:
        """Tell whether the child has not ended yet."""
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal to the child."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the child as `kill -9` does, and wait until the kernel has let go of all that it held."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE_S)

    def errors(self) -> str:
        """Return what an ended child wrote to its standard error."""
        assert self._process.stderr is not None
        return self._process.stderr.read().decode(errors="replace")

    def end(self) -> None:
        """Make sure that the process and its forks are gone and its pipes are closed."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):  # what was said to a child that had gone
                    stream.close()


class Children:
    """The children of one test."""

    def __init__(self) -> None:
        self._started: list[Child] = []

    def start(self, function: Callable[Concatenate[Parent, P], object], *args: P.args, **kwargs: P.kwargs) -> Child:
        """Run a function of a test module in a process of its own; its arguments must be JSON."""
        code = function.__code__
        assert not kwargs, "a child takes positional arguments"
        command = [sys.executable, __file__, code.co_filename, function.__name__, json.dumps(args)]
        # A test module's children see the package that the test sees, whatever folder the test runs in.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        child = Child(command, environment)
        self._started.append(child)
        return child

    def run(self, function: Callable[Concatenate[Parent, P], object], *args: P.args, **kwargs: P.kwargs) -> object:
        """Run a function of a test module in a process of its own; return what it returned."""
        return self.start(function, *args, **kwargs).result()

    def end(self) -> None:
        """Leave no process behind."""
        for child in self._started:
            child.end()


def main() -> None:
    """Be the child."""
    path, name, arguments = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("module_of_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    parent = Parent()
    parent.result(getattr(module, name)(parent, *json.loads(arguments)))


if __name__ == "__main__":
    main()
