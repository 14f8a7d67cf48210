"""What the handlers of the harness do with a job, by its sort.

Owns: each sort of work, written once for plain and for asynchronous handlers, which differ in how they wait and how
they say a word. Invariants: a run leaves its side effect before it says, or lets be said, that it is done; what a run
comes to is told after all else. Leaves out: the sorts themselves and their results (`killing.tasks`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Protocol, TypeVar, cast

from killing import tasks
from killing.tasks import Payload
from killing.worker import Orders
from litequeue import Discard, Lease, NewJob, Retry, Snooze
from litequeue.aio import AsyncLease
from working.telling import HandlerTelling

T = TypeVar("T")

TIMEOUTS_S = {"overtime": 0.3, "stubborn": 0.15}
"""How long these sorts may take."""
MOST_PAYLOAD_BYTES = 2**16
_SIGN_S = 0.02
_LONGEST_S = 3.0
"""Where nobody says that the time is over, because whoever would is stopped."""


class Hopeless(Exception):
    """What is declared permanent."""


class Damaged(AssertionError):
    """Something that must not be; the run is reported, and fails."""


class TellingTransaction(Protocol):
    """What a handler does in a transaction of its lease."""

    async def execute(self, sql: str, parameters: Sequence[str | int]) -> object:
        """Run the handler's own SQL."""

    async def complete(self, result: object) -> None:
        """Complete the job at the end."""


class Hand(Protocol):
    """A lease in a handler's hand: words that can be awaited, whether that takes anything or not."""

    lease: Lease

    async def pause(self, seconds: float) -> None:
        """Take time."""

    async def checkpoint(self, continuation: bytes, progress: float) -> None:
        """Store how far the work has come."""

    async def extend(self) -> None:
        """Prolong the lease."""

    async def complete(self, result: object, then: Sequence[NewJob] = ()) -> None:
        """Finish the job by the handler's own word."""

    async def fail(self, error: str, delay: float) -> None:
        """Fail the run by the handler's own word."""

    async def release(self, delay: float | None) -> None:
        """Give the job back by the handler's own word."""

    def transaction(self) -> AbstractAsyncContextManager[TellingTransaction]:
        """Open a transaction that completes the job."""
        ...


class Plain:
    """The hand of a plain handler: nothing that it awaits takes a turn of a loop."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease

    async def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop

    async def checkpoint(self, continuation: bytes, progress: float) -> None:
        """Store how far the work has come."""
        self.lease.checkpoint(continuation, progress)

    async def extend(self) -> None:
        """Prolong the lease."""
        self.lease.extend()

    async def complete(self, result: object, then: Sequence[NewJob] = ()) -> None:
        """Finish the job."""
        self.lease.complete(result, then)

    async def fail(self, error: str, delay: float) -> None:
        """Fail the run."""
        self.lease.fail(error, delay=delay)

    async def release(self, delay: float | None) -> None:
        """Give the job back."""
        self.lease.release(delay)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[TellingTransaction]:
        """Open a transaction that completes the job."""
        lease = self.lease
        with lease.transaction() as tx:

            class Inside:
                async def execute(self, sql: str, parameters: Sequence[str | int]) -> object:
                    return tx.execute(sql, parameters)

                async def complete(self, result: object) -> None:
                    tx.complete(lease, result)

            yield Inside()


class Awaiting:
    """The hand of an asynchronous handler."""

    def __init__(self, shell: AsyncLease) -> None:
        self.lease = shell.lease
        self._shell = shell

    async def pause(self, seconds: float) -> None:
        """Let others have their turns."""
        await asyncio.sleep(seconds)

    async def checkpoint(self, continuation: bytes, progress: float) -> None:
        """Store how far the work has come."""
        await self._shell.checkpoint(continuation, progress)

    async def extend(self) -> None:
        """Prolong the lease."""
        await self._shell.extend()

    async def complete(self, result: object, then: Sequence[NewJob] = ()) -> None:
        """Finish the job."""
        await self._shell.complete(result, then)

    async def fail(self, error: str, delay: float) -> None:
        """Fail the run."""
        await self._shell.fail(error, delay=delay)

    async def release(self, delay: float | None) -> None:
        """Give the job back."""
        await self._shell.release(delay)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[TellingTransaction]:
        """Open a transaction that completes the job."""
        lease = self.lease
        async with self._shell.transaction() as tx:

            class Inside:
                async def execute(self, sql: str, parameters: Sequence[str | int]) -> object:
                    return await tx.execute(sql, parameters)

                async def complete(self, result: object) -> None:
                    await tx.complete(lease, result)

            yield Inside()


def at_once(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine that never waits for a loop."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    work.close()
    raise RuntimeError("a plain handler waited for a loop")


async def handle(hand: Hand, orders: Orders, die: Callable[[Random], None]) -> object:
    """Be the handler of one run; `die` ends the process of whoever takes poison."""
    lease = hand.lease
    with HandlerTelling(lease) as telling:
        doing = _Doing(hand, orders, telling, die)
        try:
            returned = await doing.do()
        except BaseException as exc:
            if isinstance(exc, Damaged):
                orders.said("trouble").write_text(f"{lease}: {exc}", encoding="utf-8")
            telling.came_to(_ends(lease, exc), None)
            raise
        telling.came_to(_ends(lease, returned), returned)
    return returned


def _ends(lease: Lease, came: object) -> list[str]:
    """Return how a run may end that has come to this."""
    if lease.settled:
        return ["itself"]
    if isinstance(came, Snooze):
        return ["released"]
    if isinstance(came, (BaseException, _Unpackable)) or (isinstance(came, bytes) and len(came) > MOST_PAYLOAD_BYTES):
        return ["failed"]
    return ["completed"]


class _Unpackable:
    """A result that no queue can store."""


class _Doing:
    """One run of one job."""

    def __init__(self, hand: Hand, orders: Orders, telling: HandlerTelling, die: Callable[[Random], None]) -> None:
        self._hand = hand
        self._orders = orders
        self._telling = telling
        self._die = die
        self._lease = hand.lease
        self._random = Random(f"{self._lease.job_id} {self._lease.lease_generation}")

    async def do(self) -> object:
        """Do what the job's sort is about; return what the handler returns."""
        task = cast("Payload", self._lease.payload)
        if not tasks.is_whole(task):
            raise Damaged(f"it arrived with a damaged payload: {task}")
        if task["how"] == tasks.POISON:
            self._die(self._random)
        await self._hand.pause(self._random.choice((0, 0.002, 0.02)))
        self._telling.effect(task["how"])
        match task["how"]:
            case "hopeless":
                return self._give_up()
            case tasks.UNPACKABLE:
                return self._random.choice((_Unpackable(), b"." * (MOST_PAYLOAD_BYTES + 1)))
            case "slow" | "deaf" | "overtime" | "stubborn" | tasks.DOOMED:
                return await self._take_time(task)
            case "sleepy" if not self._orders.is_last:
                await self._doze()
                return tasks.work(task)
            case "flaky" | "retried" | "snoozed" | "released" | "failed" if self._is_early(task["how"]):
                return await self._come_back(task["how"])
            case _:
                return await self._finish(task)

    async def _finish(self, task: Payload) -> object:
        hand, result = self._hand, tasks.work(task)
        match task["how"]:
            case "steps":
                if self._lease.continuation is not None:
                    raise Damaged("it began with the continuation of an earlier lease")
                await hand.checkpoint(b"half", 0.5)
                if self._lease.continuation != b"half":
                    raise Damaged(f"it has the continuation {self._lease.continuation!r}")
                await hand.extend()
            case "side" | "side and no result":
                async with hand.transaction() as tx:
                    row = str(self._lease.job_id), self._lease.lease_generation
                    await tx.execute("INSERT INTO side VALUES (?, ?)", row)
                    if result is not None:
                        await tx.complete(result)
            case "then":
                await hand.complete(result, then=[tasks.follower(task)])
            case _:
                pass
        return result

    def _is_early(self, how: str) -> bool:
        """Tell whether a job that succeeds later is not there yet."""
        if how in {"snoozed", "released"}:  # these do not count as attempts
            return tasks.happens(self._random, 0.5)
        return self._lease.attempts < 3  # noqa: PLR2004 - the third attempt succeeds

    async def _come_back(self, how: str) -> object:
        verdict: Retry | Snooze
        match how:
            case "flaky":
                raise ValueError("not yet")
            case "released":
                await self._hand.release(self._random.choice((None, 0.05)))
                return None
            case "failed":
                await self._hand.fail("by its own word", delay=self._random.choice((0.0, 0.05)))
                return None
            case "retried":
                verdict = Retry(self._random.choice((None, 0.0, 0.02)), "not yet")
            case _:
                verdict = Snooze(0.05)
        if tasks.happens(self._random, 0.5):
            raise verdict
        return verdict

    def _give_up(self) -> object:
        match self._random.randrange(4):
            case 0:
                raise Hopeless("declared so")
            case 1:
                raise Discard("never")
            case 2:
                return Discard("never")
            case _:
                raise ValueError("never")

    async def _take_time(self, task: Payload) -> object:
        """Take longer than there may be time; some hear that it is over, some do not, and some speak afterwards."""
        how = task["how"]
        if how in TIMEOUTS_S and self._lease.attempts > 1:
            return tasks.work(task)
        if how == "overtime":
            await self._wait(_LONGEST_S)
        elif how in {"slow", tasks.DOOMED}:
            await self._wait(self._random.uniform(0.1, 0.4))
        else:
            await self._go_on(TIMEOUTS_S.get(how, 0.1) + 0.2)
        if how == "deaf":
            await self._hand.complete(tasks.work(task))
        return tasks.work(task)

    async def _doze(self) -> None:
        """Fall asleep past the lease in the first run; stay long in the next, so that the sleeper finds it held."""
        held = self._orders.held(str(self._lease.job_id))
        if self._lease.attempts > 1:
            held.touch()
            await self._go_on(self._lease.ttl_us * 1.5e-6)
        elif not held.exists():
            self._orders.said("asleep").write_text(str(self._lease.job_id), encoding="ascii")
            os.kill(os.getpid(), signal.SIGSTOP)

    async def _wait(self, seconds: float) -> None:
        await self._go_on(seconds, lambda: self._lease.cancelled)
        if self._lease.cancelled:
            raise TimeoutError("told to stop")

    async def _go_on(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Take time, and leave a sign of life now and then."""
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0 and not is_over():
            await self._hand.pause(min(_SIGN_S, left_s))
            self._telling.effect("still at work")
