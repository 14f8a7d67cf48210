"""Where a cancellation comes: the four points at which a task may be while a thread works for it, each forced.

In line: the thread has not come to it. Begun: the thread is about to do it. Done: the thread has done it, and the loop
has not heard. Heard: the loop has heard, and the task has not gone on.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from litequeue.aio.errand import Errand

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from litequeue.aio.turns import Lane

PATIENCE_S = 30.0
IN_LINE, BEGUN, DONE, HEARD = "in line", "begun", "done", "heard"
POINTS = (IN_LINE, BEGUN, DONE, HEARD)


class Stop:
    """A place where a thread stops until the test lets it go on."""

    def __init__(self) -> None:
        self._came = threading.Event()
        self._may_go = threading.Event()

    @property
    def was_reached(self) -> bool:
        """Whether a thread has come here."""
        return self._came.is_set()

    def here(self) -> None:
        """Stop."""
        self._came.set()
        assert self._may_go.wait(PATIENCE_S)

    async def reached(self) -> None:
        """Wait until a thread stops here."""
        assert await asyncio.to_thread(self._came.wait, PATIENCE_S)

    def go(self) -> None:
        """Let the thread go on."""
        self._may_go.set()


class Cancelling:
    """Cancels a task at one point of one errand."""

    def __init__(self, point: str, errand: str) -> None:
        self.point = point
        self.errand = errand
        self.before = Stop()
        self.after = Stop()
        self.in_front = Stop()
        self.task: asyncio.Task[None] | None = None

    @contextmanager
    def armed(self, owner: type, method: str) -> Iterator[None]:
        """Stop before and after a method, in whatever thread."""
        plain: Callable[..., object] = getattr(owner, method)
        plain_wake = Errand._wake

        def stopping(*args: object, **kwargs: object) -> object:
            self.before.here()
            try:
                return plain(*args, **kwargs)
            finally:
                self.after.here()

        def waking(errand: Errand[object]) -> None:
            plain_wake(errand)
            if errand.name == self.errand and self.task is not None:
                self.task.cancel()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, method, stopping)
            if self.point == HEARD:
                patch.setattr(Errand, "_wake", waking)
            yield

    @property
    def has_begun(self) -> bool:
        """Whether the errand is begun before the task is cancelled."""
        return self.point != IN_LINE

    def another(self) -> Errand[None]:
        """Return what a lane or a thread is to be busy with when the task comes."""
        return Errand("another", self.in_front.here, is_alone=True)

    async def notes(
        self,
        work: Callable[[], Coroutine[object, None, None]],
        lane: Lane | None = None,
        *,
        is_kept: bool = False,
        goes_at_once: bool = True,
    ) -> list[str]:
        """Do the work in a task, see it through the point, and return what its error says beside.

        In line it is for a lane; without one the work itself has to see to the line (`another`). From there what
        `is_kept` is done all the same, and what does not go at once has something else to do first.
        """
        if self.point == IN_LINE and lane is not None:
            lane.enter(self.another())
            await self.in_front.reached()
        task = self.task = asyncio.create_task(work())
        if self.point == IN_LINE:
            for stop in (self.before, self.after):
                stop.go()
            await self.in_front.reached()
            await _let_it_run()
            task.cancel()
            await _let_it_run()
            was_done = task.done()
            self.in_front.go()
            assert was_done == goes_at_once, "who stands in line goes at once; a block rolls back first"
        else:
            await self._pass(self.before, BEGUN)
            await self._pass(self.after, DONE)
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert task.cancelled()
        if lane is not None:
            await lane.outcome(Errand("next", lambda: None), PATIENCE_S)
        assert self.before.was_reached == (self.has_begun or is_kept)
        return list(getattr(caught.value, "__notes__", []))

    async def _pass(self, stop: Stop, point: str) -> None:
        await stop.reached()
        if point == self.point:
            assert self.task is not None
            for _ in range(2):
                self.task.cancel()
                await _let_it_run()
            assert not self.task.done(), "the task did not wait for its thread"
        stop.go()


async def _let_it_run() -> None:
    """Let the loop's tasks come as far as they can without a thread."""
    for _ in range(5):
        await asyncio.sleep(0)
