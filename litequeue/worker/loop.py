"""Handlers on one event loop (`mode="asyncio"`).

Owns: the loop, in a thread of its own, and a task for each asynchronous handler; plain functions run in threads beside
it. Invariants: nothing of the queue waits for the loop (leases are extended elsewhere), so a handler that starves it
keeps its lease; every run that was started is posted once. A late cancellation, after the handler has ended, does
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import cast

from litequeue.worker.run import Run
from litequeue.worker.threads import Threads

_JOIN_S = 1.0


class Loop:
    """Up to so many handlers at once, as tasks of one event loop."""

    def __init__(self, most: int, post: Callable[[Run], None]) -> None:
        self._post = post
        self._threads = Threads(most, post)
        self._tasks: dict[Run, asyncio.Task[None]] = {}
        self._is_over = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="litequeue-loop", daemon=True)
        self._thread.start()

    def start(self, runs: Sequence[Run]) -> None:
        """Begin these: coroutines on the loop, plain functions in threads."""
        coroutines = [run for run in runs if run.handler.is_async]
        if coroutines:
            self._loop.call_soon_threadsafe(self._begin, coroutines)
        functions = [run for run in runs if not run.handler.is_async]
        if functions:
            self._threads.start(functions)

    def cancel(self, run: Run) -> None:
        """Cancel the task, at its next await; a plain function sees `lease.cancelled`."""
        self._threads.cancel(run)
        if run.handler.is_async:
            with contextlib.suppress(RuntimeError):  # closed: nothing runs there any more
                self._loop.call_soon_threadsafe(self._cancel, run)

    def close(self, *, is_idle: bool) -> None:
        """End the loop; tasks that still run in it, because they do not let themselves be cancelled, are left."""
        self._threads.close(is_idle=is_idle)
        self._is_over = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while not self._is_over:  # a handler may have stopped it
                self._loop.run_forever()
        finally:
            if not self._tasks:
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
                self._loop.close()

    def _begin(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self._tasks[run] = self._loop.create_task(self._work(run))

    def _cancel(self, run: Run) -> None:
        task = self._tasks.get(run)
        if task is not None:
            task.cancel()

    async def _work(self, run: Run) -> None:
        try:
            run.succeeded(await cast("Coroutine[object, object, object]", run.handler.call(run.lease)))
        except BaseException as exc:  # noqa: BLE001 - whatever a handler raises is what it came to
            run.raised(exc)
        del self._tasks[run]
        self._post(run)
