"""The ends of a handle: closed, dropped, left to the end of the process; and two of them on one file."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import JobState, LeaseConflict, QueueClosed

if TYPE_CHECKING:
    from tests.faults.children import Children, Parent

_kept: list[object] = []
"""What a child keeps alive until its process ends."""


def _exit_with_leases(parent: Parent, path: str, how: str) -> None:
    """End the process with an open handle that holds leases."""
    queue = litequeue.open(path)
    leases = queue.lease_many(3)
    _kept.extend([queue, leases])
    parent.say(f"holds {len(leases)}")
    match how:
        case "an uncaught exception":
            raise LookupError
        case "an exit in another thread's time":
            threading.Thread(target=queue.stats).start()
        case "sys.exit":
            sys.exit(0)
        case "a signal that Python turns into an exception":
            os.kill(os.getpid(), signal.SIGINT)
        case _:
            pass


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        "the end of the program",
        "sys.exit",
        "an uncaught exception",
        "an exit in another thread's time",
        "a signal that Python turns into an exception",
    ],
)
def test_the_end_of_a_process_leaves_the_leases_of_its_open_handles_to_lapse(
    path: str, processes: Children, how: str
) -> None:
    """Who forgets to close loses nothing, but it counts: a job that always ends its process must die (G5, G6)."""
    with litequeue.open(path) as queue:
        queue.enqueue_many(litequeue.NewJob("work") for _ in range(3))
    child = processes.start(_exit_with_leases, path, how)
    assert child.hear() == "holds 3"
    child.status()
    with litequeue.open(path) as queue:
        assert [(job.state, job.attempts) for job in queue.list()] == [(JobState.LEASED, 1)] * 3


def _exit_beside_a_daemon(parent: Parent, path: str) -> None:
    """End the process while a daemon thread keeps a transaction open."""
    queue = litequeue.open(path)
    inside = threading.Event()

    def transact() -> None:
        with queue.transaction() as tx:
            tx.enqueue("never committed")
            inside.set()
            threading.Event().wait()

    threading.Thread(target=transact, daemon=True).start()
    inside.wait()
    _kept.append(queue)
    parent.say("ends")


@pytest.mark.slow
def test_a_process_ends_in_time_although_a_daemon_thread_has_a_transaction_open(path: str, processes: Children) -> None:
    """The exit waits a bounded time, the transaction is rolled back, and the file is free (G5)."""
    child = processes.start(_exit_beside_a_daemon, path)
    assert child.hear() == "ends"
    assert child.status(10) == 0
    with litequeue.open(path, busy_timeout=0.5) as queue:
        assert queue.list() == []
        queue.enqueue("work")


def test_what_a_dropped_handle_held_lapses(path: str) -> None:
    """A handle that nobody can reach any more is closed, but as after a crash (G6, DESIGN §3 "finalizers")."""
    with litequeue.open(path) as other:
        job_id = other.enqueue("work").job_id

        def lease_and_forget() -> None:
            forgotten = litequeue.open(path)
            assert forgotten.lease_next() is not None

        lease_and_forget()
        gc.collect()
        assert other.get(job_id).state is JobState.LEASED
        assert other.get(job_id).attempts == 1


def test_a_dropped_handle_without_leases_lets_go_of_the_file(path: str) -> None:
    """No descriptor stays open (DESIGN §3)."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("the platform does not list a process's open files")

    def use_and_forget() -> None:
        litequeue.open(path).enqueue("work")

    for _ in range(3):
        use_and_forget()
    gc.collect()
    open_files = [str(one.readlink()) for one in descriptors.iterdir() if one.is_symlink()]
    assert [one for one in open_files if one.startswith(path)] == []


def test_a_lease_keeps_its_handle_alive(path: str) -> None:
    """A handle is not dropped while one of its leases can still be spoken for (§9)."""
    with litequeue.open(path) as other:
        job_id = other.enqueue("work").job_id
        lease = litequeue.open(path).lease_next()
        gc.collect()
        assert lease is not None
        assert other.get(job_id).state is JobState.LEASED
        lease.complete()
        assert other.get(job_id).state is JobState.COMPLETED


def test_two_handles_of_one_process_share_the_file(path: str) -> None:
    """Each sees at once what the other commits, and either may end a lease of the other (G1, §9)."""
    with litequeue.open(path) as first, litequeue.open(path) as second:
        made = [first.enqueue("work").job_id, second.enqueue("work").job_id]
        assert [job.job_id for job in first.list()] == [job.job_id for job in second.list()] == made
        lease = first.lease_next()
        assert lease is not None
        assert first.worker_id != second.worker_id
        second.complete(lease)
        with pytest.raises(LeaseConflict):
            lease.complete()
        assert first.get(lease.job_id).state is JobState.COMPLETED


def test_the_close_of_one_handle_leaves_the_other_ones_leases_and_locks(path: str) -> None:
    """A close in the same process releases only what that handle held, and no lock of the other (G1, DESIGN §3)."""
    with litequeue.open(path) as keeper:
        keeper.enqueue_many(litequeue.NewJob("work") for _ in range(2))
        kept = keeper.lease_next()
        with litequeue.open(path) as second:
            assert second.lease_next() is not None
            with keeper.transaction() as tx:
                tx.enqueue("in transaction")
        assert kept is not None
        states = [job.state for job in keeper.list()]
        assert sorted(states) == [JobState.PENDING, JobState.PENDING, JobState.LEASED]
        kept.complete()
        with pytest.raises(QueueClosed):
            second.list()


def test_a_close_waits_for_the_threads_that_use_the_handle(path: str) -> None:
    """A transaction of another thread ends before the handle does; verbs after it are `QueueClosed` (§9)."""
    queue = litequeue.open(path)
    inside, closing = threading.Event(), threading.Event()

    def transact() -> None:
        with queue.transaction() as tx:
            tx.enqueue("work")
            inside.set()
            closing.wait()

    thread = threading.Thread(target=transact)
    thread.start()
    inside.wait()
    closer = threading.Thread(target=queue.close)
    closer.start()
    closing.set()
    thread.join()
    closer.join()
    with pytest.raises(QueueClosed):
        queue.enqueue("work")
    queue.close()
    with litequeue.open(path, create=False) as again:
        assert [job.kind for job in again.list()] == ["work"]


def test_the_last_close_leaves_one_file_and_its_sidecar(path: str) -> None:
    """The last handle copies the write-ahead log back and removes it (DESIGN §3)."""
    folder = Path(path).parent
    first, second = litequeue.open(path), litequeue.open(path)
    first.enqueue("work")
    first.close()
    assert (folder / "app.queue-wal").exists()
    second.close()
    assert sorted(one.name for one in folder.iterdir()) == ["app.queue", "app.queue-bell", "app.queue-lock"]
