"""One call that a thread makes for a task, and what a cancellation of the task means for it.

Invariants: a call is either made or withdrawn, never both: who comes first, the thread or the cancellation, has the one
claim that there is. A call that was begun runs to its end, and the task goes on no sooner, cancelled or not. What
nobody takes any more, because the task was cancelled or its loop is gone, is undone where it can be, once.

    task: is cancelled, and finds no claim      it waits on, undoes what came of the call, and raises
    thread: ends the call; the loop is closed   it begins to undo by itself

Leaves out: when a thread is free for it (`turns`), and which thread that is (`crew`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import copy_context
from typing import Generic, TypeVar, cast

T = TypeVar("T")
Undo = Callable[[T], "Errand[None] | None"]
"""Begins to undo what nobody takes; returns what does it, or `None` when there is nothing to do."""

_log = logging.getLogger("litequeue")


class Errand(Generic[T]):
    """A call, its claim, and its outcome. Make it in the task that wants it, or in a thread for nobody."""

    def __init__(
        self,
        name: str,
        call: Callable[[], T],
        *,
        done: str | None = None,
        undone: str = "it is undone",
        undo: Undo[T] | None = None,
        stop: Callable[[], None] | None = None,
        is_alone: bool = False,
        is_kept: bool = False,
    ) -> None:
        """Say what is to be called.

        `done` tells a cancelled task that it was done, unless that is of no interest; `undone` what became of it by
        `undo`. `stop` ends the call early, in whatever thread and at whatever time. `is_alone` wants a lane for itself
        (`turns`). What `is_kept` is made although the task is cancelled before.
        """
        self.name = name
        self.is_alone = is_alone
        self._done = done
        self._undone = undone
        self._is_kept = is_kept
        self._call: Callable[[], T] | None = call
        self._undo = undo
        self._stop = stop
        self._context = copy_context()
        self._claims = [None]
        self._loop = _running_loop()
        self._woken: asyncio.Future[None] | None = None
        self._outcomes: list[tuple[T | None, BaseException | None]] = []
        """What came of the call, until somebody takes it: in one step, so only one does."""
        self._is_over = False
        self._is_forsaken = False

    @property
    def is_claimed(self) -> bool:
        """Whether the call was begun or withdrawn."""
        return not self._claims

    @property
    def is_orphan(self) -> bool:
        """Whether nobody can hear of the outcome any more."""
        return self._is_forsaken or (self._loop is not None and self._loop.is_closed())

    # --- in whatever thread

    def run(self) -> None:
        """Make the call and tell the task; unless it was withdrawn, or nobody can hear of it any more."""
        if not self._claim() or (self.is_orphan and not self._is_kept):
            return
        call, self._call = cast("Callable[[], T]", self._call), None
        result: T | None = None
        error: BaseException | None = None
        try:
            result = self._context.run(call)
        except BaseException as exc:  # noqa: BLE001 - raised in the task
            error = exc
        del call  # nobody has to wait for the thread's next work to see the end of what it refers to
        self._ended(result, error)

    def fail(self, error: BaseException) -> bool:
        """Let the task raise this if the call has not begun; tell whether it has not."""
        if not self._claim():
            return False
        self._call = None
        self._ended(None, error)
        return True

    def _claim(self) -> bool:
        try:
            self._claims.pop()
        except IndexError:
            return False
        return True

    def _ended(self, result: T | None, error: BaseException | None) -> None:
        self._outcomes.append((result, error))
        if self._loop is not None and not self._is_forsaken:
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # the loop is closed
                self._is_forsaken = True
        if self._loop is None or self._is_forsaken:
            self._abandon()

    def _abandon(self) -> Errand[None] | None:
        """Undo what came of the call, if nobody has taken it; return what does that."""
        try:
            result, error = self._outcomes.pop()
        except IndexError:
            return None
        if error is not None:
            _log.warning("%s, whose caller has gone, failed: %s", self.name, _shown(error))
            return None
        return None if self._undo is None else self._undo(cast("T", result))

    # --- in the loop

    async def outcome(self) -> T:
        """Wait for the end of the call; return or raise what came of it.

        Raises:
            CancelledError: the task was cancelled. The call was not made; or it has ended, as a note on the error says.
        """
        cut_off = await self._end()
        if cut_off is None:
            result, error = self._outcomes.pop()
            if error is None:
                return cast("T", result)
        else:
            error = self._outcomes[0][1]
            if error is None:
                undoing = self._abandon()
                if self._done is not None:
                    undone = "" if undoing is None else f"; {self._undone}"
                    cut_off.add_note(f"litequeue: {self._done} when this came{undone}")
                if undoing is not None:
                    await undoing.settled()
            else:
                self._outcomes.clear()
                if self._stop is None:  # else it was told to
                    cut_off.add_note(f"litequeue: {self.name} raised {_shown(error)} when this came")
            error = cut_off
        try:
            raise error
        finally:
            del error, cut_off  # they know this frame

    async def settled(self) -> None:
        """Wait for the end of the call, however often the task is cancelled; what it raised is logged."""
        await self._end()
        self._abandon()

    async def _end(self) -> asyncio.CancelledError | None:
        """Wait for the end of the call; return what cancelled the task meanwhile, or raise it if no call was made."""
        cut_off: asyncio.CancelledError | None = None
        while not self._is_over:
            self._woken = asyncio.get_running_loop().create_future()
            try:
                await self._woken
            except asyncio.CancelledError as exc:
                if not self._is_kept and self._claim():
                    raise
                cut_off = cut_off or exc
                self._end_early()
            except GeneratorExit:  # the task itself has gone, with its loop
                self._is_forsaken = True
                if self._is_kept or not self._claim():
                    self._end_early()
                    self._abandon()
                raise
        return cut_off

    def _wake(self) -> None:
        self._is_over = True
        if self._is_forsaken:
            self._abandon()
        elif self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _end_early(self) -> None:
        if self._stop is not None:
            self._stop()


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # in a thread that undoes what nobody takes: nobody waits for that either
        return None
