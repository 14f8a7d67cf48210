"""Handlers in threads, and how one thread runs a handler to its end.

Owns: the threads, each with an event loop of its own once an asynchronous handler has come to it. Invariants: a thread
starts when it is needed, and serves until the end; every run that was started is posted once, whatever its handler
raises; threads are daemons, because one that ignores that it was told to stop must not keep the process.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, cast

from litequeue.worker.run import Run

if TYPE_CHECKING:
    import asyncio

_JOIN_S = 1.0
"""For how long the end waits for each thread that has nothing left to do."""


class Inline:
    """Runs handlers in the thread that calls, one after the other."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def do(self, run: Run) -> None:
        """Run a handler to its end, whatever that is."""
        try:
            runner = self._loop() if run.handler.is_async else None
            returned = run.handler.call(run.lease)
            if runner is not None:
                returned = runner.run(_interruptible(run, cast("Coroutine[object, object, object]", returned)))
            run.succeeded(returned)
        except BaseException as exc:  # noqa: BLE001 - whatever a handler raises is what it came to
            run.raised(exc)

    def _loop(self) -> asyncio.Runner:
        if self._runner is None:
            import asyncio  # noqa: PLC0415 - only who has such handlers pays for it

            self._runner = asyncio.Runner()
        return self._runner

    def close(self) -> None:
        """Close the event loop, if there is one."""
        if self._runner is not None:
            self._runner.close()


class Threads:
    """Up to so many handlers at once, each in a thread."""

    def __init__(self, most: int, post: Callable[[Run], None]) -> None:
        self._most = most
        self._post = post
        self._runs: SimpleQueue[Run | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._lock = threading.Lock()

    def start(self, runs: Sequence[Run]) -> None:
        """Begin these, each in a thread that is free, or in a new one."""
        with self._lock:
            self._unfinished += len(runs)
            missing = min(self._unfinished, self._most) - len(self._threads)
        for _ in range(missing):
            name = f"litequeue-handler-{len(self._threads)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        for run in runs:
            self._runs.put(run)

    def cancel(self, run: Run) -> None:
        """See `cancel`."""
        cancel(run)

    def close(self, *, is_idle: bool) -> None:
        """End the threads; those of handlers that still run end with the process."""
        for _ in self._threads:
            self._runs.put(None)
        if is_idle:
            for thread in self._threads:
                thread.join(_JOIN_S)

    def _serve(self) -> None:
        with contextlib.closing(Inline()) as here:
            while (run := self._runs.get()) is not None:
                here.do(run)
                with self._lock:
                    self._unfinished -= 1
                self._post(run)
                del run


def cancel(run: Run) -> None:
    """Set `lease.cancelled`, for the handler to look at; an asynchronous one is cancelled at its next await."""
    run.lease.cancelled = True
    if run.interrupt is not None:
        run.interrupt()


async def _interruptible(run: Run, work: Coroutine[object, object, object]) -> object:
    """Run an asynchronous handler so that another thread can cancel it."""
    import asyncio  # noqa: PLC0415 - has been imported by whoever runs this

    loop = asyncio.get_running_loop()
    task = asyncio.current_task()

    def interrupt() -> None:
        if task is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing runs in it
                loop.call_soon_threadsafe(task.cancel)

    run.interrupt = interrupt
    if run.lease.cancelled:  # told before there was anything to interrupt
        interrupt()
    try:
        return await work
    finally:
        run.interrupt = None
