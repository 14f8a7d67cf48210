"""A fork of a process that has a queue open: both sides go on, and neither loses what it was told is stored.

The child must never use an inherited connection, and its SQLite must not believe in locks that only its parent holds
(DESIGN §3): a daemonising parent once lost 248 of 874 commits. What was acknowledged goes to a log file, by each side
for itself, and is compared with the queue at the end.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import ANY, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Queue
    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow


def _log_of(path: str) -> Callable[[object], None]:
    """Return what writes down, for this process and its forks, what has been acknowledged."""
    descriptor = os.open(f"{path}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def log(what: object) -> None:
        os.write(descriptor, f"{what}\n".encode())

    return log


def _enqueue_some(queue: Queue, log: Callable[[object], None], count: int) -> None:
    for _ in range(count):
        log(queue.enqueue("work").job_id)


def _assert_all_there(path: str, expected: int | None = None) -> None:
    """Every acknowledged job is in the file, once, and the file is sound."""
    with open(f"{path}.log", encoding="ascii") as log:  # noqa: PTH123 - a path of text
        acknowledged = log.read().split()
    with litequeue.open(path, create=False) as queue:
        stored = [str(job.job_id) for job in queue.list(scope=ANY, limit=10_000)]
        with queue.transaction() as tx:
            assert tx.execute("PRAGMA integrity_check") == [("ok",)]
    assert sorted(stored) == sorted(acknowledged)
    assert expected is None or len(stored) == expected


def _fork_and_write_on_both_sides(parent: Parent, path: str, rounds: int) -> None:
    queue, log = litequeue.open(path), _log_of(path)
    for _ in range(rounds):
        child = parent.fork(lambda: _enqueue_some(queue, log, 5))
        _enqueue_some(queue, log, 5)
        parent.join(child)
    queue.close()


def test_both_sides_of_a_fork_write_with_the_same_handle(path: str, processes: Children) -> None:
    """A handle works on in the parent and in the child at the same time, over many forks (§6 "use after fork")."""
    processes.run(_fork_and_write_on_both_sides, path, 40)
    _assert_all_there(path, 400)


def _fork_grandchildren(parent: Parent, path: str) -> None:
    queue, log = litequeue.open(path), _log_of(path)

    def generation(depth: int) -> None:
        _enqueue_some(queue, log, 5)
        if depth:
            children = [parent.fork(lambda: generation(depth - 1)) for _ in range(2)]
            _enqueue_some(queue, log, 5)
            parent.join(*children)

    generation(3)


def test_forks_of_forks_write_with_the_same_handle(path: str, processes: Children) -> None:
    """A tree of 15 processes, all with the handle of the first one, loses nothing (§6 "use after fork")."""
    processes.run(_fork_grandchildren, path)
    _assert_all_there(path, 15 * 5 + 7 * 5)


def _use_multiprocessing(_parent: Parent, path: str, rounds: int) -> None:
    queue, log = litequeue.open(path), _log_of(path)
    context = multiprocessing.get_context("fork")
    for _ in range(rounds):
        workers = [context.Process(target=_enqueue_some, args=(queue, log, 5)) for _ in range(3)]
        for worker in workers:
            worker.start()
        _enqueue_some(queue, log, 5)
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0


def test_multiprocessing_children_use_the_handle_that_they_are_given(path: str, processes: Children) -> None:
    """The same with `multiprocessing` and its start method fork (§6 "use after fork")."""
    processes.run(_use_multiprocessing, path, 8)
    _assert_all_there(path, 8 * 4 * 5)


def _daemonise(_parent: Parent, path: str, rounds: int) -> None:
    """Fork twice and exit in the ordinary way, as daemons do, while the daemon goes on with the inherited handle."""
    log = _log_of(path)
    for _ in range(rounds):
        alive, daemon_end = os.pipe()
        first = os.fork()
        if first == 0:
            queue = litequeue.open(path)
            _enqueue_some(queue, log, 5)
            if os.fork() == 0:
                _enqueue_some(queue, log, 20)
                os._exit(0)
            _enqueue_some(queue, log, 1)
            queue.close()
            os._exit(0)
        os.close(daemon_end)
        os.waitpid(first, 0)
        assert os.read(alive, 1) == b"", "the daemon has ended when nobody can write to the pipe any more"
        os.close(alive)


def test_a_daemonising_parent_that_closes_its_handle_takes_nothing_from_the_daemon(
    path: str, processes: Children
) -> None:
    """The parent's last close neither removes the log that the daemon writes to nor loses a commit (G2, DESIGN §3)."""
    processes.run(_daemonise, path, 25)
    _assert_all_there(path, 25 * 26)


def _lease_and_let_a_child_end(parent: Parent, path: str, how: str) -> list[str]:
    queue = litequeue.open(path)
    queue.enqueue("work")
    lease = queue.lease_next()
    assert lease is not None

    def child() -> None:
        assert queue.worker_id != lease.worker_id, "a child is another worker"
        if how == "close":
            queue.close()
        elif how == "use and close":
            queue.enqueue("other")
            queue.close()

    parent.join(parent.fork(child))
    if how == "exit":  # the ordinary end of a process, with all its exit handlers
        process = multiprocessing.get_context("fork").Process(target=queue.stats)
        process.start()
        process.join()
    state = queue.get(lease.job_id).state.name
    lease.complete()
    return [state, queue.get(lease.job_id).state.name]


@pytest.mark.parametrize("how", ["close", "use and close", "exit"])
def test_a_childs_end_releases_nothing_that_its_parent_holds(path: str, processes: Children, how: str) -> None:
    """The leases of a handle are its parent's; a child that closes it leaves them alone (§6, §4 "Closing")."""
    assert processes.run(_lease_and_let_a_child_end, path, how) == ["LEASED", "COMPLETED"]


def _fork_beside_an_opening(parent: Parent, path: str) -> None:
    """Fork while another thread is in the middle of `litequeue.open`."""
    litequeue.open(path).close()
    log = _log_of(path)
    inside, may_go_on = threading.Event(), threading.Event()

    class SlowBoot(SystemClock):
        def boot_id(self) -> str:  # asked for in the middle of an opening
            inside.set()
            may_go_on.wait()
            return super().boot_id()

    opened: list[Queue] = []
    opener = threading.Thread(target=lambda: opened.append(litequeue.open(path, clock=SlowBoot())))
    opener.start()
    inside.wait()
    # An opening that a fork has to wait for must be able to end: this hook runs before those of the package.
    os.register_at_fork(before=may_go_on.set)
    told, tell = os.pipe()

    def child() -> None:
        queue = litequeue.open(path)
        _enqueue_some(queue, log, 5)
        parent.say("written")
        os.read(told, 1)
        _enqueue_some(queue, log, 5)

    pid = parent.fork(child)
    opener.join()
    parent.hear()  # the child has the file open
    _enqueue_some(opened[0], log, 5)
    opened[0].close()
    os.write(tell, b"x")
    parent.join(pid)


def test_a_fork_beside_another_threads_opening_leaves_both_sides_able_to_write(path: str, processes: Children) -> None:
    """A child that inherits half an opening does not believe in the parent's locks (§6 "use after fork", DESIGN §3).

    Otherwise the parent's close takes the write-ahead log from under it.
    """
    child = processes.start(_fork_beside_an_opening, path)
    assert child.hear() == "written"
    child.say("go on")
    child.result()
    _assert_all_there(path, 15)


def _open_and_fork_all_the_time(parent: Parent, path: str, rounds: int) -> None:
    """Threads open, use and close handles while the main thread forks children that do the same."""
    log = _log_of(path)
    is_over = threading.Event()
    failures: list[BaseException] = []

    def open_and_close() -> None:
        try:
            while not is_over.is_set():
                with litequeue.open(path) as queue:
                    _enqueue_some(queue, log, 1)
        except BaseException as exc:  # noqa: BLE001 - told to the test
            failures.append(exc)

    def child() -> None:
        for _ in range(3):
            with litequeue.open(path) as queue:
                _enqueue_some(queue, log, 1)

    threads = [threading.Thread(target=open_and_close) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(rounds):
            parent.join(parent.fork(child), parent.fork(child))
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def test_forks_beside_threads_that_open_and_close_handles_lose_nothing(path: str, processes: Children) -> None:
    """Whatever moment of an opening or a closing a fork meets, both sides write on and lose nothing (G2, §6)."""
    processes.run(_open_and_fork_all_the_time, path, 30)
    _assert_all_there(path)
