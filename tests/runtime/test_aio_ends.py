"""What is left when tasks, loops, threads or processes end: no lock, no lease, and no exit that hangs (issue 5, 8)."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import JobState, Queue, aio
from litequeue.aio import crew, session, turns
from litequeue.aio.errand import Errand
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from litequeue.aio import AsyncQueue, AsyncTransaction
    from litequeue.sqlite.store import Store
    from tests.faults.children import Children, Parent
    from tests.runtime.stops import Cancelling

pytestmark = pytest.mark.slow

PATIENCE_S = 30.0


def run_until(
    loop: asyncio.AbstractEventLoop, work: Coroutine[object, None, None], reached: asyncio.Event
) -> asyncio.Task[None]:
    """Run a task until it has set the event, and stop the loop there; return it, since nobody else keeps it."""
    task = loop.create_task(work)
    loop.run_until_complete(asyncio.wait_for(reached.wait(), PATIENCE_S))
    assert not task.done()
    return task


class Held:
    """A transaction that a task holds open in a loop that has stopped."""

    def __init__(self, q: AsyncQueue) -> None:
        self.reached = asyncio.Event()
        self.q = q
        self.tx: AsyncTransaction | None = None

    async def work(self) -> None:
        """Hold it."""
        async with self.q.transaction() as tx:
            self.tx = tx
            await tx.enqueue("inside")
            self.reached.set()
            await asyncio.Event().wait()

    def until_free(self) -> None:
        """Wait until its thread has left it."""
        assert self.tx is not None
        assert self.tx._session is not None
        assert self.tx._session._left.wait(PATIENCE_S)


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_transaction_of_a_loop_that_has_gone_is_rolled_back(
    queue: Queue, assert_free: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch, *, is_dropped: bool
) -> None:
    """At once when its coroutine is dropped, else when its thread sees that the loop was closed (G5, G11)."""
    if is_dropped:
        monkeypatch.setattr(session, "_NET_S", 2 * PATIENCE_S)
    loop = asyncio.new_event_loop()
    q = loop.run_until_complete(opened(queue))
    held = Held(q)
    kept = [run_until(loop, held.work(), held.reached)]
    loop.close()
    if is_dropped:
        kept.clear()
        gc.collect()
    held.until_free()
    assert_free(Path(queue.path))
    asyncio.run(goes_on(q))
    assert [job.kind for job in queue.list() if job.kind != "of another process"] == ["goes on"]


def test_a_transaction_of_a_loop_that_nobody_runs_any_more_is_rolled_back(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, assert_free: Callable[[Path], None]
) -> None:
    """Nobody can end it, and everybody waits for it (G5)."""
    monkeypatch.setattr(session, "_NET_S", 0.01)
    monkeypatch.setattr(session, "_STOPPED_S", 0.1)
    loop = asyncio.new_event_loop()
    q = loop.run_until_complete(opened(queue))
    held = Held(q)
    kept = [run_until(loop, held.work(), held.reached)]
    held.until_free()
    kept.clear()
    assert_free(Path(queue.path))
    loop.close()
    gc.collect()
    asyncio.run(goes_on(q))


def test_what_stands_in_line_when_its_loop_is_closed_is_not_done(queue: Queue) -> None:
    """It had not begun, and nobody hears of it (G11)."""
    loop = asyncio.new_event_loop()
    q = loop.run_until_complete(opened(queue))
    held = Held(q)
    kept = run_until(loop, held.work(), held.reached)
    late = [loop.create_task(q.enqueue("late")) for _ in range(20)]
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    held.until_free()
    asyncio.run(goes_on(q))
    assert [job.kind for job in queue.list()] == ["goes on"]
    assert not any(task.done() for task in [kept, *late])


def test_a_loop_that_runs_now_and_then_keeps_its_transaction(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is gone when it has not run for ten seconds; one that is only busy is not, however long (V14)."""
    now = [0.0]
    loop = asyncio.new_event_loop()
    q = loop.run_until_complete(opened(queue))
    monkeypatch.setattr(session, "_NET_S", PATIENCE_S)
    held = Held(q)
    task = run_until(loop, held.work(), held.reached)
    assert held.tx is not None
    its = held.tx._session
    assert its is not None
    with monkeypatch.context() as patch:
        patch.setattr(session, "time", SimpleNamespace(monotonic=lambda: now[0]))
        assert not its._has_loop_gone()
        now[0] = 10.0
        assert not its._has_loop_gone()
        loop.run_until_complete(asyncio.sleep(0))
        now[0] = 20.0
        assert not its._has_loop_gone()
        loop.run_until_complete(busy(its, now))
        now[0] = 2000.0
        assert not its._has_loop_gone()
        now[0] = 2010.0
        assert not its._has_loop_gone()
        now[0] = 2010.1
        assert its._has_loop_gone()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.run_until_complete(goes_on(q))
    loop.close()


async def busy(its: session.Session, now: list[float]) -> None:
    """Let the thread look while the loop is busy for long."""
    for moment in (30.0, 1000.0):
        now[0] = moment
        assert not its._has_loop_gone()


async def opened(queue: Queue) -> AsyncQueue:
    """Open another handle on a queue."""
    return await aio.open(queue.path, clock=queue._store.clock, durability="normal")


async def goes_on(q: AsyncQueue) -> None:
    """Use a queue in another loop."""
    await q.enqueue("goes on")
    async with q.transaction() as tx:
        await tx.stats()
    await q.close()


@pytest.mark.parametrize("cancelling", ["begun"], indirect=True)
@pytest.mark.parametrize("verb", ["lease_next", "transaction"])
def test_what_a_verb_has_taken_when_its_loop_has_gone_is_given_back(
    queue: Queue, cancelling: Callable[[str], Cancelling], assert_free: Callable[[Path], None], verb: str
) -> None:
    """By the thread that took it, for nobody else can (G5)."""
    queue.enqueue("work")
    loop = asyncio.new_event_loop()
    q = loop.run_until_complete(opened(queue))
    cancel = cancelling(verb)

    async def work() -> None:
        if verb == "lease_next":
            await q.lease_next()
        else:
            async with q.transaction():
                raise AssertionError

    async def begun() -> None:
        tasks.append(asyncio.create_task(work()))
        await cancel.before.reached()
        cancel.after.go()

    tasks: list[asyncio.Task[None]] = []
    with cancel.armed(*((Queue, verb) if verb == "lease_next" else (session.Session, "_enter"))):
        loop.run_until_complete(begun())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        cancel.before.go()
        asyncio.run(until_idle(q))
    assert_free(Path(queue.path))
    assert queue.stats().counts[JobState.LEASED] == 0
    assert queue.stats().counts[JobState.PENDING] == 1
    with suppress(RuntimeError):
        tasks.clear()
        gc.collect()
    asyncio.run(goes_on(q))


async def until_idle(q: AsyncQueue) -> None:
    """Wait until the verbs and transactions of before have ended."""
    for _ in range(2):  # what gives back stands in line behind the first
        await turns.of(q.queue).writing.outcome(Errand("next", lambda: None, is_alone=True), PATIENCE_S)


def test_a_coroutine_that_is_closed_in_line_is_not_done(queue: Queue) -> None:
    """As if it had been cancelled (G11)."""

    async def main() -> None:
        async with await opened(queue) as q:
            async with q.transaction():
                coroutine = q.enqueue("never")
                stepped = asyncio.ensure_future(waited(coroutine))
                await asyncio.sleep(0)
                coroutine.close()
                stepped.cancel()
            await q.enqueue("goes on")
            assert [job.kind for job in await q.list()] == ["goes on"]

    asyncio.run(main())


async def waited(coroutine: Coroutine[object, None, object]) -> None:
    """Begin a coroutine by hand and never go on."""
    coroutine.send(None)
    await asyncio.Event().wait()


# --- no loop, no threads


def test_without_a_loop_of_asyncio_nothing_is_done(queue: Queue) -> None:
    """It says what it misses (§6)."""
    q = aio.AsyncQueue(queue)
    for coroutine in (q.enqueue("never"), q.wait(0), q.close(), q.transaction().__aenter__()):
        with pytest.raises(RuntimeError, match="no running event loop"):
            coroutine.send(None)
    assert queue.stats().total == 0
    queue.enqueue("goes on")


def test_without_threads_a_verb_says_so_and_the_queue_goes_on(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system gives no more threads (§6)."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        q = await opened(queue)
        monkeypatch.setattr(crew.CREW, "_resting", [])
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            for coroutine in (q.enqueue("never"), q.get(litequeue.NewJob("x").kind), q.wait(0), q.prune()):
                with pytest.raises(RuntimeError, match="can't start new thread"):
                    await coroutine
            with pytest.raises(RuntimeError, match="can't start new thread"):
                async with q.transaction():
                    raise AssertionError
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await aio.open(queue.path)
        assert (await q.stats()).total == 0
        await goes_on(q)

    asyncio.run(main())


# --- opening


@pytest.mark.parametrize("cancelling", ["begun", "done", "heard"], indirect=True)
def test_a_cancelled_opening_leaves_nothing_open(
    queue: Queue, cancelling: Callable[[str], Cancelling], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a handle, nor a lock (issue 5, 8)."""
    handles: list[Queue] = []
    plain = Queue.__init__

    def known(handle: Queue, store: Store, scope: litequeue.Scope) -> None:
        handles.append(handle)
        plain(handle, store, scope)

    monkeypatch.setattr(Queue, "__init__", known)
    cancel = cancelling("open")

    async def work() -> None:
        await aio.open(queue.path, clock=queue._store.clock)

    async def main() -> None:
        with cancel.armed(Queue, "__init__"):
            notes = await cancel.notes(work)
        assert notes == ["litequeue: the queue was opened when this came; it is closed again"]
        with pytest.raises(litequeue.QueueClosed):
            handles[0].stats()

    asyncio.run(main())


# --- processes


def leave(parent: Parent, path: str, what: str) -> None:
    """Leave a loop as it is, with a queue in use, and end."""
    loop = asyncio.new_event_loop()
    q = loop.run_until_complete(aio.open(path, clock=FakeClock(), durability="normal")._open())
    loop.run_until_complete(q.enqueue("work"))
    lease = loop.run_until_complete(q.lease_next())
    assert lease is not None
    if what == "transaction":
        held = Held(q)
        _kept.append(run_until(loop, held.work(), held.reached))
    if what == "wait":
        _kept.extend(map(loop.create_task, (q.wait(kinds=["never"]), q.waiter(["never"]).pause())))
        loop.run_until_complete(asyncio.sleep(0.1))
    if what == "closed loop":
        held = Held(q)
        _kept.append(run_until(loop, held.work(), held.reached))
        loop.close()
    if what == "line":
        held = Held(q)
        _kept.append(run_until(loop, held.work(), held.reached))
        _kept.extend(loop.create_task(q.enqueue("late")) for _ in range(20))
        loop.run_until_complete(asyncio.sleep(0))
    parent.say("left")
    if what == "error":
        raise RuntimeError("mine")


_kept: list[object] = []


def fork_beside_a_line(parent: Parent, path: str) -> None:
    """Fork while threads are at work in the lanes, and one has a lane alone."""
    q = asyncio.run(aio.open(path, durability="normal")._open())
    go = threading.Event()
    for lane in turns.of(q.queue).lanes:
        lane.enter(Errand("another", go.wait, is_alone=True))
    parent.join(parent.fork(lambda: asyncio.run(q.enqueue("inside"))))
    go.set()
    asyncio.run(q.enqueue("after"))
    asyncio.run(q.close())


def test_a_forked_process_begins_with_empty_lanes(path: Path, processes: Children) -> None:
    """Nobody in it would ever come to the end of what the parent's threads do (§6 "use after fork")."""
    processes.run(fork_beside_a_line, str(path))


@pytest.mark.parametrize("what", ["nothing", "transaction", "wait", "closed loop", "line", "error"])
def test_a_process_that_leaves_its_loop_as_it_is_ends_at_once(
    path: Path, processes: Children, assert_free: Callable[[Path], None], what: str
) -> None:
    """Rolled back, and what was held lapses, for nobody closed it; the file is free (G5, G6, issue 5, 8)."""
    child = processes.start(leave, str(path), what)
    assert child.hear() == "left"
    left_at = time.monotonic()
    assert child.status() == (what == "error")
    assert time.monotonic() - left_at < 5
    assert_free(path)
    with litequeue.open(path, clock=FakeClock()) as queue:
        assert queue.stats().by_kind.keys() == {"work", "of another process"}
        assert queue.stats().counts[JobState.LEASED] == 1
    errors = child.errors()
    assert "Fatal" not in errors
    assert "was not closed" not in errors, "the lock was free when the queue was closed"


def fork(parent: Parent, path: str) -> list[str]:
    """Use a queue before, in and after a fork."""

    async def use(name: str) -> None:
        await asyncio.gather(q.enqueue(name), q.stats(), q.wait(0))
        async with q.transaction() as tx:
            await tx.enqueue(name)

    q = asyncio.run(aio.open(path, durability="normal")._open())
    asyncio.run(use("before"))
    parent.join(parent.fork(lambda: asyncio.run(use("inside"))))
    asyncio.run(use("after"))
    return [job.kind for job in asyncio.run(q.list())]


def test_a_forked_process_uses_the_queue_with_threads_of_its_own(path: Path, processes: Children) -> None:
    """None of the parent's exist in it (§6 "use after fork")."""
    assert processes.run(fork, str(path)) == [name for name in ("before", "inside", "after") for _ in range(2)]
