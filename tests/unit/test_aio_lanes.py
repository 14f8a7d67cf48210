"""The lanes of the coroutines: who has a turn when, with threads but without a queue (issue 5, 8)."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from litequeue import QueueBusy
from litequeue.aio.errand import Errand
from litequeue.aio.turns import Lane

PATIENCE_S = 30.0


class Work:
    """Something that a thread does until it is let go, and the order in which such things began and ended."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._go: dict[str, threading.Event] = {}
        self._begun: dict[str, threading.Event] = {}

    def errand(self, name: str, *, is_alone: bool = False) -> Errand[None]:
        """Return an errand that does it."""
        self._go[name], self._begun[name] = threading.Event(), threading.Event()
        return Errand(name, lambda: self._do(name), is_alone=is_alone)

    def go(self, *names: str) -> None:
        """Let these end."""
        for name in names:
            self._go[name].set()

    async def begun(self, *names: str) -> None:
        """Wait until these have begun."""
        for name in names:
            assert await asyncio.to_thread(self._begun[name].wait, PATIENCE_S)

    def _do(self, name: str) -> None:
        self.log.append(f"{name} begins")
        self._begun[name].set()
        assert self._go[name].wait(PATIENCE_S)
        self.log.append(f"{name} ends")


async def outcomes(lane: Lane, *errands: Errand[None]) -> list[asyncio.Task[None]]:
    """Let errands stand in a lane, in order, each for a task of its own."""
    tasks = [asyncio.create_task(lane.outcome(errand, PATIENCE_S)) for errand in errands]
    await asyncio.sleep(0)
    return tasks


def test_so_many_go_on_at_a_time_and_no_more() -> None:
    """The next begins when one has ended."""

    async def main() -> None:
        lane, work = Lane(2), Work()
        tasks = await outcomes(lane, *map(work.errand, "abc"))
        await work.begun("a", "b")
        assert "c begins" not in work.log
        work.go("a")
        await tasks[0]
        await work.begun("c")
        work.go("b", "c")
        await asyncio.gather(*tasks)
        assert work.log.index("a ends") < work.log.index("c begins")

    asyncio.run(main())


def test_who_wants_the_lane_alone_waits_for_those_at_work_and_is_passed_by_nobody() -> None:
    """It begins when they have ended, and those behind it begin when it has (V14)."""

    async def main() -> None:
        lane, work = Lane(8), Work()
        first = [work.errand("a"), work.errand("b")]
        tasks = await outcomes(lane, *first, work.errand("alone", is_alone=True), work.errand("c"), work.errand("d"))
        await work.begun("a", "b")
        work.go("a", "c", "d")
        await tasks[0]
        assert sorted(work.log) == ["a begins", "a ends", "b begins"]
        work.go("b")
        await work.begun("alone")
        assert "c begins" not in work.log
        work.go("alone")
        await asyncio.gather(*tasks)
        alone = work.log.index("alone begins")
        assert work.log[alone + 1] == "alone ends"
        assert {"a ends", "b ends"} <= set(work.log[:alone])

    asyncio.run(main())


def test_two_that_want_it_alone_have_it_one_after_the_other() -> None:
    """And the lane is free afterwards (V14)."""

    async def main() -> None:
        lane, work = Lane(8), Work()
        tasks = await outcomes(lane, *(work.errand(name, is_alone=True) for name in "ab"), work.errand("c"))
        work.go("a", "b", "c")
        await asyncio.gather(*tasks)
        assert work.log == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]

    asyncio.run(main())


def test_after_one_that_was_alone_several_go_on_at_once() -> None:
    """As many as the lane takes."""

    async def main() -> None:
        lane, work = Lane(3), Work()
        tasks = await outcomes(lane, work.errand("alone", is_alone=True), *map(work.errand, "abc"))
        work.go("alone")
        await work.begun("a", "b", "c")
        work.go("a", "b", "c")
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_who_is_cancelled_in_line_stands_there_no_longer() -> None:
    """Behind a long transaction no heap of what nobody wants piles up (issue 5, 8)."""

    async def main() -> None:
        lane, work = Lane(8), Work()
        (alone,) = await outcomes(lane, work.errand("alone", is_alone=True))
        await work.begun("alone")
        tasks = await outcomes(lane, *(work.errand(f"late{n}") for n in range(100)))
        assert len(lane._waiting) == 100
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert not lane._waiting
        work.go("alone")
        await alone
        assert len(work.log) == 2

    asyncio.run(main())


def test_patience_ends_when_the_lane_has_not_moved_and_not_when_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long line that moves is no reason to give up, however long one stands in it (§6 `QueueBusy`)."""
    now = [100.0]

    async def main() -> None:
        lane, work = Lane(1), Work()
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        lane.start_afresh()
        errand = work.errand("a")
        asking = (errand, errand, 100.0, 10.0)
        now[0] = 108.0
        assert lane._lose_patience(*asking) == pytest.approx(2.0)
        lane._moved_at = 105.0
        now[0] = 114.0
        assert lane._lose_patience(*asking) == pytest.approx(1.0)
        now[0] = 115.0
        assert lane._lose_patience(*asking) is None
        with pytest.raises(QueueBusy, match="10 s"):
            await errand.outcome()
        monkeypatch.undo()

    asyncio.run(main())


def test_each_end_of_a_turn_moves_the_lane() -> None:
    """That is what patience counts from."""

    async def main() -> None:
        lane, work = Lane(1), Work()
        lane._moved_at = 0.0
        tasks = await outcomes(lane, work.errand("a"), work.errand("b"))
        work.go("a")
        await work.begun("b")
        assert lane._moved_at > 0.0
        work.go("b")
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_nobody_comes_to_a_turn_in_a_lane_that_was_abandoned() -> None:
    """Neither who stood there nor who comes (issue 5, 8)."""

    async def main() -> None:
        lane, work = Lane(1), Work()
        (task,) = await outcomes(lane, work.errand("a"))
        await work.begun("a")
        late = await outcomes(lane, work.errand("b"))
        lane.abandon()
        late += await outcomes(lane, work.errand("c"))
        work.go("a", "b", "c")
        await task
        for each in late:
            each.cancel()
        await asyncio.wait(late)
        assert work.log == ["a begins", "a ends"]

    asyncio.run(main())
