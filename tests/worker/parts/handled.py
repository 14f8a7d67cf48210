"""Handlers that processes of a worker import. They meet the test by files in a folder that the payload names."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Lease
    from litequeue.aio import AsyncLease

PATIENCE_S = 60.0


def _folder(lease: Lease) -> Path:
    return Path(cast("str", lease.payload))


def note(lease: Lease, what: str) -> None:
    """Leave a line for the test: what, by which process, at which attempt."""
    with _folder(lease).joinpath(what).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {lease.attempts}\n")


def wait_for(lease: Lease, word: str) -> None:
    """Wait until the test has made a file."""
    give_up = time.monotonic() + PATIENCE_S
    while not _folder(lease).joinpath(word).exists():
        if time.monotonic() > give_up:
            raise TimeoutError(word)
        time.sleep(0.005)


def quick(lease: Lease) -> int:
    """Say which process this is."""
    note(lease, "quick")
    return os.getpid()


def held(lease: Lease) -> str:
    """Run until the test says so."""
    note(lease, "begun")
    wait_for(lease, "go")
    note(lease, "done")
    return "done"


def held_first(lease: Lease) -> str:
    """Run until the test says so, at the first attempt."""
    note(lease, "begun")
    if lease.attempts == 1:
        wait_for(lease, "never")
    return "done"


def deaf(lease: Lease) -> NoReturn:
    """Never end, and hear nothing."""
    note(lease, "begun")
    while True:
        time.sleep(60)


def poison(lease: Lease) -> NoReturn:
    """End the process that runs it."""
    note(lease, "poison")
    os._exit(3)


def large(_: Lease) -> bytes:
    """Return more than a queue takes that has been told so."""
    return b"x" * 2000


def bad(_: Lease) -> NoReturn:
    """Fail."""
    raise ValueError("no such page")


def reading(lease: Lease) -> list[object]:
    """Read what the test writes by a bare system call; say how many bytes came, and whether this is the main thread."""
    import ctypes  # noqa: PLC0415 - only here
    import threading  # noqa: PLC0415

    pipe = os.open(_folder(lease).joinpath("pipe"), os.O_RDWR)
    note(lease, "begun")
    came = ctypes.CDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)
    return [came, threading.current_thread() is threading.main_thread()]


def forking(lease: Lease) -> int:
    """Fork, let the copy return, and say how it ended."""
    note(lease, "begun")
    copy = os.fork()
    return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) if copy else 0


async def asynchronous(_: AsyncLease) -> int:
    """Say which process this is."""
    return os.getpid()


def starter(_: Lease) -> int:
    """Start a program that only SIGTERM ends, and end it so."""
    import subprocess  # noqa: PLC0415 - only here
    import sys  # noqa: PLC0415

    program = subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"], stdout=-1)
    assert program.stdout is not None
    program.stdout.readline()
    program.terminate()
    return program.wait(PATIENCE_S)


def undecided(exc: Exception) -> bool:
    """Be a predicate that fails itself."""
    raise LookupError(f"nobody knows about {exc}")


def forks(_: Lease) -> list[int]:
    """Fork copies of this process that end in the ways in which a program ends; return how each did."""
    return [_fork(end) for end in (lambda: sys.exit(3), _raise, _stay)]


def _raise() -> NoReturn:
    raise ValueError("in the copy")


def _stay() -> NoReturn:
    """Wait for a signal; not by `pause`, which sleeps on when one has come just before it."""
    while True:
        time.sleep(0.02)


def _fork(end: Callable[[], object]) -> int:
    """Fork; the copy goes out of the handler by `end`. One that waits is ended by SIGTERM."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(theirs, b"up")
        end()
    os.read(ours, 2)
    if end is _stay:
        os.kill(pid, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def forks_and_dies(lease: Lease) -> NoReturn:
    """Leave a copy that goes on, and die at the first attempt."""
    note(lease, "forks")
    if os.fork() == 0:
        wait_for(lease, "go")
        os._exit(0)
    os._exit(1)


def environment(lease: Lease) -> str | None:
    """Return a variable of the environment."""
    return os.environ.get(cast("str", lease.payload))
