"""A fork while a transaction is open: another thread's is waited for, one's own stays the parent's alone.

A child that inherits an open transaction has an SQLite that believes in a lock which nobody holds (DESIGN §3), so it
may not use the file, whatever handle it tries; and above all it may not end the parent's transaction.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING

import pytest

import litequeue

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Queue
    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow


def _refused(work: Callable[[], object]) -> str:
    """Return the name of the error that a call raises, or what it answered."""
    try:
        return f"answered {work()!r}"
    except Exception as exc:  # noqa: BLE001 - told to the test
        return type(exc).__name__


def _fork_beside_a_transaction(parent: Parent, path: str, which: str) -> list[int]:
    """Fork while another thread is inside `transaction()`, on this handle or on another one."""
    mine = litequeue.open(path)
    other = litequeue.open(path) if which == "another handle" else mine
    inside, forking = threading.Event(), threading.Event()

    def transact() -> None:
        with other.transaction() as tx:
            tx.enqueue("in transaction")
            inside.set()
            forking.wait()
            tx.enqueue("in transaction")

    thread = threading.Thread(target=transact)
    thread.start()
    inside.wait()
    os.register_at_fork(before=forking.set)  # runs before the hooks of the package, which wait for the thread

    def child() -> None:
        for queue in (mine, other):
            queue.enqueue("child")
            assert queue.stats().counts[litequeue.JobState.PENDING] >= 3

    pid = parent.fork(child)
    thread.join()
    for queue in (mine, other):
        queue.enqueue("parent")
    parent.join(pid)
    by_kind = mine.stats().by_kind
    return [sum(by_kind[kind].values()) for kind in ("in transaction", "child", "parent")]


@pytest.mark.parametrize("which", ["the same handle", "another handle"])
def test_a_fork_beside_another_threads_transaction_leaves_both_sides_able_to_write(
    path: str, processes: Children, which: str
) -> None:
    """The fork waits for the transaction, which commits whole; then both sides write (§6 "use after fork")."""
    assert processes.run(_fork_beside_a_transaction, path, which) == [2, 2, 2]


def _fork_beside_reads_and_writes(parent: Parent, path: str, rounds: int) -> int:
    """Fork all the time beside threads that read, write and transact on the same handle."""
    queue = litequeue.open(path, durability="normal")
    queue.enqueue("first")
    is_over = threading.Event()
    failures: list[BaseException] = []

    def transact() -> None:
        with queue.transaction() as tx:
            tx.enqueue("work")

    def repeat(work: Callable[[], object]) -> None:
        try:
            while not is_over.is_set():
                work()
        except BaseException as exc:  # noqa: BLE001 - told to the test
            failures.append(exc)

    works: list[Callable[[], object]] = [transact, lambda: queue.enqueue("work"), queue.stats, queue.list]
    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        for _ in range(rounds):
            parent.join(parent.fork(lambda: queue.enqueue("child")))
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert not failures, failures
    return sum(queue.stats().by_kind["child"].values())


def test_forks_beside_busy_threads_leave_every_child_able_to_write(path: str, processes: Children) -> None:
    """Threads that read, write and transact meanwhile neither stop a child nor are stopped by it (§6)."""
    assert processes.run(_fork_beside_reads_and_writes, path, 40) == 40


def _fork_inside(_parent: Parent, path: str, leave: str) -> dict[str, object]:
    """Fork in the middle of one's own transaction; the child tries everything, then leaves the block."""
    queue = litequeue.open(path)
    before = queue.enqueue("before").job_id
    told, tell = os.pipe()
    pid = -1
    try:
        with queue.transaction() as tx:
            tx.enqueue("inside")
            pid = os.fork()
            if pid == 0:
                said = [
                    _refused(lambda: queue.enqueue("child")),
                    _refused(lambda: queue.get(before)),
                    _refused(lambda: tx.enqueue("child")),
                    _refused(lambda: tx.execute("SELECT 1")),
                    _refused(lambda: litequeue.open(path)),
                ]
                os.write(tell, f"{' '.join(said)}\n".encode())
                if leave == "raise":
                    raise LookupError
            else:
                os.close(tell)
                os.waitpid(pid, 0)
                tx.enqueue("inside")
                if leave != "normally, and the parent commits":
                    raise LookupError
    except BaseException as exc:
        if pid == 0:
            os.write(tell, f"left by {type(exc).__name__}\n".encode())
            os._exit(0)
        if not isinstance(exc, LookupError):
            raise
    if pid == 0:
        os.write(tell, b"left as if it had committed\n")
        os._exit(0)
    with os.fdopen(told) as heard:
        said_by_child, left = heard.read().splitlines()
    queue.enqueue("after")
    kinds = {kind: sum(counts.values()) for kind, counts in queue.stats().by_kind.items()}
    with queue.transaction() as tx:
        sound = tx.execute("PRAGMA integrity_check") == [("ok",)]
    return {"said": said_by_child.split(), "left": left, "kinds": kinds, "sound": sound}


@pytest.mark.parametrize("leave", ["normally", "raise", "normally, and the parent commits"])
def test_a_child_forked_inside_a_transaction_is_refused_and_cannot_end_it(
    path: str, processes: Children, leave: str
) -> None:
    """Every verb of the child is a `UsageError`, also on new handles, and leaving the block commits nothing (§6, G11).

    The parent goes on: it commits or rolls back as if there had been no fork.
    """
    found = processes.run(_fork_inside, path, leave)
    assert isinstance(found, dict)
    assert found["said"] == ["UsageError"] * 5
    inside = {"inside": 2} if leave == "normally, and the parent commits" else {}
    assert found["kinds"] == {"before": 1, "after": 1, **inside}
    assert found["left"] == ("left by LookupError" if leave == "raise" else "left by UsageError")
    assert found["sound"]


def _end_the_transaction_in_the_child_first(_parent: Parent, path: str) -> int:
    """Let the child leave the block while the parent is still inside; then the parent writes more and commits."""
    queue = litequeue.open(path)
    pid = -1
    try:
        with queue.transaction() as tx:
            tx.enqueue_many([litequeue.NewJob("inside", "x" * 4000) for _ in range(50)])
            pid = os.fork()
            if pid:
                os.waitpid(pid, 0)
                tx.enqueue_many([litequeue.NewJob("inside", "y" * 4000) for _ in range(50)])
    finally:
        if pid == 0:
            os._exit(0)
    queue.close()
    return _count(path)


def _count(path: str) -> int:
    """Count the jobs of a file that is opened anew, and check it."""
    with litequeue.open(path) as queue, queue.transaction() as tx:
        assert tx.execute("PRAGMA integrity_check") == [("ok",)]
        return queue.stats().total


def test_a_transaction_survives_a_child_that_leaves_its_block(path: str, processes: Children) -> None:
    """Nothing that a child does to an inherited transaction damages what its parent commits (G2, DESIGN §3)."""
    assert processes.run(_end_the_transaction_in_the_child_first, path) == 100


def _fork_with_a_held_transaction(parent: Parent, path: str) -> list[str]:
    """Another thread keeps its transaction for longer than the fork waits."""
    queue = litequeue.open(path, busy_timeout=0.2)
    inside, forked = threading.Event(), threading.Event()

    def transact() -> None:
        with queue.transaction() as tx:
            tx.enqueue("in transaction")
            inside.set()
            forked.wait()

    thread = threading.Thread(target=transact)
    thread.start()
    inside.wait()
    told, tell = os.pipe()
    pid = parent.fork(lambda: os.write(tell, _refused(lambda: queue.enqueue("child")).encode()))
    parent.join(pid)
    forked.set()
    thread.join()
    queue.enqueue("parent")
    return [os.read(told, 1000).decode(), *sorted(queue.stats().by_kind)]


def test_a_child_that_had_to_inherit_a_transaction_is_refused(path: str, processes: Children) -> None:
    """A transaction that outlasts the fork's patience is the parent's alone; the child hears why (§6)."""
    assert processes.run(_fork_with_a_held_transaction, path) == ["UsageError", "in transaction", "parent"]


def _fork_without_hooks(parent: Parent, path: str) -> list[str]:
    """Fork as a C library does: Python is not told."""
    queue = litequeue.open(path)
    queue.enqueue("before")
    told, tell = os.pipe()
    may_go_on, go_on = os.pipe()
    pid: int = ctypes.PyDLL(None).fork()
    if pid == 0:
        os.write(tell, f"{_refused(lambda: bool(queue.enqueue('child')))};".encode())
        os.read(may_go_on, 1)
        os.write(tell, f"{_refused(lambda: bool(queue.enqueue('child')))};".encode())
        os._exit(0)
    first = os.read(told, 1000).decode()
    queue.close()  # the last close of the file takes the write-ahead log with it
    os.write(go_on, b"x")
    parent.join(pid)
    return (first + os.read(told, 1000).decode()).split(";")[:2]


def test_a_child_of_a_fork_without_hooks_is_safe_or_refused(path: str, processes: Children) -> None:
    """Where the hooks did not run, the child is refused or works on; its parent's close never takes its file (§6)."""
    found = processes.run(_fork_without_hooks, path)
    assert found in (["answered True"] * 2, ["UsageError"] * 2)


def _open_after_spoiling(parent: Parent, path: str) -> list[str]:
    """Let a child that may not use one file use another one."""
    queue, other = litequeue.open(path), litequeue.open(f"{path}.other")
    told, tell = os.pipe()

    def child() -> None:
        opened: list[Queue] = []
        said = [_refused(queue.stats), _refused(lambda: opened.append(litequeue.open(f"{path}.third")))]
        said.append(_refused(lambda: other.enqueue("child").created))
        os.write(tell, ";".join(said).encode())

    with queue.transaction():
        parent.join(parent.fork(child))
    return os.read(told, 1000).decode().split(";")


def test_a_child_forked_inside_a_transaction_may_use_other_files(path: str, processes: Children) -> None:
    """Only the file whose transaction it inherited is closed to the child (§6 "use after fork")."""
    assert processes.run(_open_after_spoiling, path) == ["UsageError", "answered None", "answered True"]
