"""Waiting in a task: each wait has a thread, which waits as the plain one does.

Invariants: a wait holds no lane, so nothing waits for it; a cancellation or an interrupt ends it at once, and none is
lost:

    task: counts its wait in, then looks for interrupts    one from before is seen
    other: interrupts, then ends the waits that there are  one from here on ends it

Leaves out: what is waited for, and how (`litequeue.sqlite.arrivals`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from litequeue.aio.errand import Errand
from litequeue.aio.turns import Turns, aside
from litequeue.lease import Duration
from litequeue.sqlite.arrivals import Waiter

T = TypeVar("T")


class AsyncWaiter:
    """Waits for jobs, again and again, until it is interrupted. Make one with `AsyncQueue.waiter`.

    Many tasks may share it; each wait has a thread while it lasts.
    """

    def __init__(self, turns: Turns, make: Callable[[], Waiter]) -> None:
        self._turns = turns
        self._make = make
        self._make()  # what was asked for can be waited for
        self._going_on: list[Waiter] = []
        """One for each wait, so that a cancellation ends no other. Changed and copied in one step each."""
        self._is_interrupted = False

    def interrupt(self) -> None:
        """End the waits that go on, or the next one, at once; safe in every thread and in signal handlers."""
        self._is_interrupted = True
        for waiter in self._going_on.copy():
            waiter.interrupt()

    async def wait(self, timeout: Duration | None = None) -> bool:
        """Wait as `AsyncQueue.wait` does; `False` when the time is over, or when it was interrupted.

        `timeout` is seconds or a timedelta; `None` waits for ever, 0 only looks. An interrupt that came before ends it
        without a look.

        Raises:
            UsageError: the time is out of its bounds, or this task has a transaction open.
            QueueClosed: the queue was closed, also while this waits.
        """
        return bool(await self._attend("wait", lambda waiter: waiter.wait(timeout)))

    async def pause(self, timeout: Duration | None = None) -> None:
        """Wait for the time alone, or for an interrupt: nothing is looked for.

        `timeout` is seconds or a timedelta; `None` waits for ever.

        Raises:
            UsageError: the time is out of its bounds, or this task has a transaction open.
        """
        await self._attend("pause", lambda waiter: waiter.pause(timeout))

    async def _attend(self, name: str, wait: Callable[[Waiter], bool | None]) -> bool | None:
        self._turns.refuse_inside()
        waiter = self._make()
        self._going_on.append(waiter)
        try:
            if self._is_interrupted:
                waiter.interrupt()
            errand = Errand(name, partial(wait, waiter), stop=waiter.interrupt)
            aside(errand)
            has_work = await errand.outcome()
            if not has_work:
                self._is_interrupted = False
            return has_work
        finally:
            self._going_on.remove(waiter)
