"""What the benchmark measures of a worker: jobs counted in any thread, and processor time and memory of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

import pytest

from benching import working
from benching.order import Order
from benching.subject import MODES, Subject, Unsupported
from benching.workloads import worker_idle

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from benching.subject import Handle

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")


def _order(mode: str) -> Order:
    return cast("Order", {"numbers": {"mode": MODES.index(mode), "at once": 3}})


def test_jobs_are_counted_whatever_thread_does_them() -> None:
    """None is counted twice, and each mark is reached once, in order."""
    progress = working.Progress((1, 500, 1000))
    with ThreadPoolExecutor(8) as pool:
        for _ in range(1000):
            pool.submit(working.nothing, b"", progress)
        times = [progress.reached_at(mark) for mark in (1, 500, 1000)]
    assert times == sorted(times)
    with pytest.raises(RuntimeError, match="fewer than 1000 jobs"):
        progress.reached_at(1000, within_s=0)


def test_the_handler_counts_only_where_it_runs_in_this_process() -> None:
    """In other processes it could not: there the library tells, and nobody listens elsewhere."""
    given: list[tuple[str, int, Handle, object]] = []

    class Fake:
        modes = ("threads", "processes")

        def working(self, mode: str, at_once: int, handle: Handle, on_done: object) -> AbstractContextManager[None]:
            given.append((mode, at_once, handle, on_done))
            return cast("AbstractContextManager[None]", None)

    subject = cast("Subject", Fake())
    for mode in Fake.modes:
        working.working(subject, _order(mode), working.Progress(()), working.nothing)
    (in_threads, in_processes) = given
    assert in_threads[:2] == ("threads", 3)
    assert in_threads[2] is not working.nothing
    assert in_threads[3] is None
    assert in_processes[2] is working.nothing
    assert in_processes[3] is not None
    with pytest.raises(Unsupported, match="no worker of this sort"):
        working.working(subject, _order("asyncio"), working.Progress(()), working.nothing)


def test_a_handler_tells_how_late_it_is() -> None:
    """Since the time in its payload, by the clock that processes share."""
    took = worker_idle.late(b"%020d" % (time.monotonic_ns() - 5_000_000))
    assert 5_000_000 <= took < 5_000_000_000


@on_linux
def test_processor_time_is_that_of_all_threads() -> None:
    """Also of those that have ended, and of another process."""
    before = working.processor_s(os.getpid())
    thread = threading.Thread(target=_work, args=(0.05,))
    thread.start()
    thread.join()
    assert working.processor_s(os.getpid()) - before >= 0.05


@on_linux
def test_a_family_is_this_process_and_those_it_has_started() -> None:
    """Their memory and their time can be read while they are there."""
    code = "print(1, flush=True); x = bytearray(50_000_000); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert set(working.family()) >= {os.getpid(), child.pid}
        child.stdout.readline()
        assert 50 <= working.memory_mb(child.pid) < 200
        assert 0 < working.processor_s(child.pid) < 60
        child.communicate(b"\n")
    assert child.pid not in working.family()


def _work(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
