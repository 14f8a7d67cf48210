"""An interrupt (Ctrl-C, an exception of a signal handler) in the middle of a verb.

Python raises it between two steps of its own, so it is tried at each function that a verb enters, one after the other;
inside COMMIT too, by the hook that SQLite calls there. What is promised: whoever was interrupted is told the truth
(G11), and the file stays free for everybody else (G5).
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import itertools
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import litequeue
from litequeue import JobState, LiteQueueError
from litequeue.sqlite.watching import WATCHER
from tests.collecting import uncollected

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from litequeue import Queue
    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow


class Interrupt(BaseException):
    """What the signal handler raises."""


class Interrupted(NamedTuple):
    """What came of a verb that was interrupted; the exception itself is gone, with all that it kept alive."""

    place: str
    error: str | None
    says_done: bool


class Interrupter:
    """Raises once, at the n-th function that this thread enters; `place` is where, empty before."""

    def __init__(self, nth: int) -> None:
        self.place = ""
        self._nth = self._left = nth
        sys.setprofile(self._at_each_event)

    def _at_each_event(self, frame: FrameType, event: str, _argument: object) -> None:
        is_resumed = frame.f_code.co_flags & inspect.CO_GENERATOR and frame.f_lasti > 10  # no signal comes there
        if event == "call" and not is_resumed:
            self._left -= 1
            if self._left == 0:
                self.place = f"{self._nth} {Path(frame.f_code.co_filename).name} {frame.f_code.co_qualname}"
                sys.setprofile(None)
                raise Interrupt


def _interrupt_at(nth: int, work: Callable[[], object]) -> Interrupted:
    """Raise at the n-th function that `work` enters."""
    with uncollected():
        interrupter = Interrupter(nth)
        try:
            work()
        except BaseException as exc:  # noqa: BLE001 - also what an interrupt has led to
            sys.setprofile(None)
            says_done = any("had been committed" in note for note in getattr(exc, "__notes__", []))
            return Interrupted(interrupter.place, type(exc).__name__, says_done)
        finally:
            sys.setprofile(None)
    return Interrupted(interrupter.place, None, says_done=True)


def _transact(queue: Queue) -> None:
    with queue.transaction() as tx:
        tx.execute("INSERT INTO mine VALUES (1)")
        tx.enqueue("new")


def _fail_to_transact(queue: Queue) -> None:
    with queue.transaction() as tx:
        tx.enqueue("new")
        raise LookupError("the caller's own")


def _cases(queue: Queue) -> dict[str, tuple[Callable[[], object], Callable[[Queue], bool]]]:
    """Return each verb, ready to be called, with the question whether it has been done."""
    job_id = queue.enqueue("old").job_id
    lease = queue.lease_next(["old"])
    assert lease is not None
    queue.enqueue("finished")
    done = queue.lease_next(["finished"])
    assert done is not None
    done.complete()
    ready = queue.enqueue("ready").job_id

    def is_in(state: JobState, one: object) -> Callable[[Queue], bool]:
        return lambda other: other.get(str(one)).state is state

    def has_new(other: Queue) -> bool:
        return bool(other.list(kind="new"))

    return {
        "enqueue": (lambda: queue.enqueue("new"), has_new),
        "transaction": (lambda: _transact(queue), has_new),
        "lease_next": (lambda: queue.lease_next(["ready"]), is_in(JobState.LEASED, ready)),
        "complete": (lease.complete, is_in(JobState.COMPLETED, job_id)),
        "set": (lambda: queue.set("lease_ttl", 7), lambda other: other.settings()["lease_ttl"] == 7),
        "a transaction that fails": (lambda: _fail_to_transact(queue), has_new),
        "a verb that is refused": (done.complete, lambda _: False),
    }


def _interrupt_everywhere(parent: Parent, path: str, verb: str) -> None:
    """Interrupt a verb at each function that it enters, each time in a fresh file; tell what was wrong where."""
    wrong: dict[str, list[str]] = {"untrue": [], "other errors": [], "still locked": []}
    with litequeue.open(path) as queue, queue.transaction() as tx:
        tx.execute("CREATE TABLE mine (a)")
    for nth in itertools.count(1):
        copy = shutil.copyfile(path, f"{path}{nth}")
        queue = litequeue.open(copy, durability="normal", busy_timeout=0.1)
        other = litequeue.open(copy, durability="normal", busy_timeout=0.1)
        work, is_done = _cases(queue)[verb]
        other.stats()  # what follows looks with fresh eyes
        came = _interrupt_at(nth, work)
        if not came.place:
            break
        gc.collect()
        if came.error != "Interrupt":
            wrong["other errors"].append(f"{came.place}: {came.error}")
        if is_done(other) != came.says_done:
            wrong["untrue"].append(f"{came.place}: it was {'done' if is_done(other) else 'not done'}")
        try:
            other.enqueue("of another handle")
            queue.enqueue("of the same handle")
        except LiteQueueError as exc:
            wrong["still locked"].append(f"{came.place}: {exc}")
    assert nth > 20, "the verb was interrupted at many places"
    parent.result(wrong)
    os._exit(0)  # some handles may be past closing


@pytest.mark.parametrize(
    "verb",
    [
        "enqueue",
        "transaction",
        "lease_next",
        "complete",
        "set",
        "a transaction that fails",
        "a verb that is refused",
    ],
)
def test_an_interrupted_verb_tells_whether_it_was_committed_and_leaves_the_file_free(
    path: str, processes: Children, verb: str
) -> None:
    """An interrupt after the commit says so, and any other one means that nothing was done (G11).

    None leaves a write transaction open: it would stop every other process until this one ends (G5). That goes for one
    in the midst of undoing, too, when the verb has failed by itself.
    """
    assert processes.run(_interrupt_everywhere, path, verb) == {"untrue": [], "other errors": [], "still locked": []}


def _interrupt_waits_everywhere(_: Parent, path: str) -> dict[str, list[str]]:
    wrong: dict[str, list[str]] = {"descriptors": [], "listeners": []}
    with litequeue.open(path) as queue:
        waiter = queue.waiter()
        assert not waiter.wait(0)
        for_job = queue.job_waiter(queue.enqueue("other", delay=60).job_id)

        def wait_for(seconds: float) -> None:
            with contextlib.suppress(litequeue.WaitTimeout):
                for_job.wait(seconds)

        wait_for(0.001)
        before = len(list(Path("/dev/fd").iterdir()))
        for wait, least in ((waiter.wait, 20), (waiter.pause, 8), (wait_for, 20)):
            for nth in itertools.count(1):
                place = _interrupt_at(nth, lambda wait=wait: wait(0.001)).place  # type: ignore[misc]
                if not place:
                    break
                if len(list(Path("/dev/fd").iterdir())) != before:
                    wrong["descriptors"].append(place)
                if WATCHER._listeners or waiter._listeners or for_job._listeners:
                    wrong["listeners"].append(place)
            assert nth > least, "the wait was interrupted at many places"
        queue.enqueue("work")
        assert waiter.wait(0)
    return wrong


def test_an_interrupted_wait_leaves_nothing_behind(path: str, processes: Children) -> None:
    """No descriptor, no listener, and a handle that goes on, wherever a signal handler raises (DESIGN §4)."""
    assert processes.run(_interrupt_waits_everywhere, path) == {"descriptors": [], "listeners": []}


def _fork_interrupted_at(nth: int, queue: Queue) -> tuple[str, int]:
    """Fork, raise at the n-th function that the hooks enter, in parent and child; return where, and the child's end."""
    interrupter = Interrupter(nth)
    pid = os.fork()  # Python prints what a hook raises, and goes on
    sys.setprofile(None)
    if pid == 0:
        try:
            queue.enqueue("of the child")
        except BaseException:  # noqa: BLE001 - told by the status
            os._exit(1)
        os._exit(0)
    return interrupter.place, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _interrupt_forks_everywhere(parent: Parent, path: str) -> None:
    sys.unraisablehook = lambda _: None
    wrong: list[str] = []
    for nth in itertools.count(1):
        queue = litequeue.open(f"{path}{nth}", durability="normal", busy_timeout=0.5)
        queue.enqueue("before")
        place, status = _fork_interrupted_at(nth, queue)
        if not place:
            break
        if status != 0:
            wrong.append(f"{place}: the child cannot use the queue")
        works = [threading.Thread(target=queue.enqueue, args=["of a thread"])]
        works[0].start()
        works[0].join()
        try:
            queue.enqueue("of the parent")
            kinds = sorted(job.kind for job in queue.list())
            expected = ["before", *["of the child"] * (status == 0), "of a thread", "of the parent"]
            if kinds != sorted(expected):
                wrong.append(f"{place}: {kinds}")
            queue.close()
        except LiteQueueError as exc:
            wrong.append(f"{place}: {exc!r}")
    assert nth > 20, "the fork was interrupted at many places"
    parent.result(wrong)
    os._exit(0)


def test_a_fork_whose_hooks_are_interrupted_leaves_the_handle_to_both(path: str, processes: Children) -> None:
    """Neither side is locked out of its own handle, wherever a signal handler raises (DESIGN §3, G5)."""
    assert processes.run(_interrupt_forks_everywhere, path) == []
