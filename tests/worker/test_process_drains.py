"""The end of a worker with processes: none of them is killed with a job in hand, and none that is nearly done.

And their beginning, when something is in the way. What a process does at a point in time is forced there (`troubled`).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import handled
import pytest
import troubled
from meeting import pid_of, until

import litequeue
from litequeue import Handler, JobState, Worker, WorkerEvent
from litequeue.worker import supervisor

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from litequeue import Job, Queue
    from litequeue.worker.handlers import Handling
    from tests.faults.children import Children, Parent
    from tests.worker.conftest import Work

pytestmark = pytest.mark.slow


def test_a_process_that_has_just_leased_is_not_killed_with_its_job(queue: Queue, work: Work, tmp_path: Path) -> None:
    """V8: its parent has not heard of the job yet when it is told to end at once; no attempt is lost."""
    handler = troubled.Troubled(tmp_path, troubled.halt_before_it_tells, handled.deaf)
    worker = work({"deaf": handler}, mode="processes", concurrency=1)
    job_id = queue.enqueue("deaf", str(tmp_path)).job_id
    until((tmp_path / "leased").exists, "the lease")
    for _ in range(2):
        worker.worker.stop()
    assert worker.join().interrupted == 1
    job = queue.get(job_id)
    assert (job.state, job.attempts, job.reaps) == (JobState.PENDING, 0, 0)


def test_a_process_that_waits_for_its_next_try_gives_the_job_back(queue: Queue, work: Work, tmp_path: Path) -> None:
    """V8: a pause that is waited out by a process counts no attempt when the worker is told to end at once."""
    events: list[WorkerEvent] = []
    handlers = {"later": Handler(troubled.again_later, short_retry=60)}
    worker = work(handlers, mode="processes", concurrency=1, on_event=events.append)
    job_id = queue.enqueue("later", str(tmp_path)).job_id
    until(lambda: [event.name for event in events] == ["started", "retried"], "the failure")
    for _ in range(2):
        worker.worker.stop()
    worker.join()
    job = queue.get(job_id)
    assert (job.state, job.attempts, job.reaps) == (JobState.SCHEDULED, 1, 0)


def _hold_the_lock(parent: Parent, path: str) -> None:
    with litequeue.open(path) as queue, queue.transaction():
        parent.say("held")
        parent.hear()


def test_a_locked_file_at_the_end_loses_no_attempt_and_no_outcome(  # noqa: PLR0917 - fixtures
    queue: Queue,
    path: Path,
    work: Work,
    processes: Children,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Told to end at once while somebody else has the file: what was done is acknowledged, what runs is given back."""
    tries: list[object] = []
    speak = supervisor.Supervisor._speak_for

    def counted(*given: object) -> object:
        done = speak(*given)  # type: ignore[arg-type]
        tries.append(done)
        return done

    monkeypatch.setattr(supervisor.Supervisor, "_speak_for", counted)
    monkeypatch.setattr(supervisor, "_BUSY_S", 0.05)
    done, deaf = queue.enqueue("held", str(tmp_path)).job_id, queue.enqueue("deaf", str(tmp_path)).job_id
    worker = work({"held": handled.held, "deaf": handled.deaf}, mode="processes", concurrency=2)
    until(lambda: queue.stats().counts[JobState.LEASED] == 2, "both jobs")
    locker = processes.start(_hold_the_lock, str(path))
    assert locker.hear() == "held"
    (tmp_path / "go").touch()
    until((tmp_path / "done").exists, "the handler's end")
    for _ in range(2):
        worker.worker.stop()
    until(lambda: len(tries) > 5, "tries in vain")
    locker.say("go")
    ending = worker.join()
    assert (ending.completed, ending.lost) == (1, 0)
    # Twice where the other process has not yet read that it is to end, and takes what was given back.
    assert ending.interrupted in {1, 2}
    assert (queue.get(done).state, queue.get(done).attempts) == (JobState.COMPLETED, 1)
    job = queue.get(deaf)
    assert (job.state, job.attempts, job.reaps) == (JobState.PENDING, 0, 0)


def test_a_third_word_to_stop_still_gives_back_what_can_be(queue: Queue, work: Work, tmp_path: Path) -> None:
    """V8: three signals at once cost no attempt, where nothing is in the way."""
    job_id = queue.enqueue("deaf", str(tmp_path)).job_id
    worker = work({"deaf": handled.deaf}, mode="processes", concurrency=1)
    until((tmp_path / "begun").exists, "the handler")
    for _ in range(3):
        worker.worker.stop()
    assert worker.join().interrupted == 1
    job = queue.get(job_id)
    assert (job.state, job.attempts, job.reaps) == (JobState.PENDING, 0, 0)


def test_a_third_word_to_stop_is_the_last_where_the_file_is_locked(  # noqa: PLR0917 - fixtures
    queue: Queue, path: Path, work: Work, processes: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends without giving back, and says so: that was no clean end."""
    monkeypatch.setattr(supervisor, "_BUSY_S", 0.05)
    events: list[WorkerEvent] = []
    job_id = queue.enqueue("deaf", str(tmp_path)).job_id
    with litequeue.open(path, busy_timeout=0.1) as hasty:
        worker = work({"deaf": handled.deaf}, queue=hasty, mode="processes", concurrency=1, on_event=events.append)
        until(lambda: [event.name for event in events] == ["started"], "the handler")
        locker = processes.start(_hold_the_lock, str(path))
        assert locker.hear() == "held"
        for _ in range(3):
            worker.worker.stop()
        ending = worker.join()
    assert (ending.interrupted, ending.is_clean) == (1, False)
    assert [event.name for event in events] == ["started", "lost"]
    locker.say("go")
    locker.status()
    assert queue.reap_dead() == 1
    assert (queue.get(job_id).attempts, queue.get(job_id).reaps) == (1, 1)


def _die_while_it_speaks(parent: Parent, path: str, when: str) -> None:
    hand_in = supervisor.Supervisor._hand_in

    def die(*given: object) -> None:
        if when == "after":
            hand_in(*given)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGKILL)

    def stop() -> None:
        parent.hear()
        worker.stop()
        worker.stop()

    supervisor.Supervisor._hand_in = die  # type: ignore[method-assign,assignment]
    with litequeue.open(path) as queue:
        handler = troubled.Troubled(Path(), troubled.never_look, handled.held)
        worker = Worker(queue, {"held": handler}, mode="processes", concurrency=1, lease_ttl=3600)
        threading.Thread(target=stop, daemon=True).start()
        worker.run()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody hears of the death of a parent")
def test_a_process_goes_on_whose_parent_dies_when_it_has_stopped_it(
    queue: Queue, path: Path, processes: Children, ended: Callable[[UUID], Job], tmp_path: Path
) -> None:
    """It may have the write lock just then, and everybody would wait for it: it does its job, and ends."""
    job_id = queue.enqueue("held", str(tmp_path)).job_id
    parent = processes.start(_die_while_it_speaks, str(path), "before")
    until((tmp_path / "begun").exists, "the handler")
    parent.say("stop")
    assert parent.status() == -signal.SIGKILL
    (tmp_path / "go").touch()
    job = ended(job_id)
    assert (job.result, job.attempts) == ("done", 1)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody hears of the death of a parent")
def test_a_process_ends_whose_parent_dies_when_it_has_spoken_for_it(
    queue: Queue, path: Path, processes: Children, tmp_path: Path
) -> None:
    """G1: its job has been given back and is another's to take; it looks at once, and not at its next heartbeat."""
    job_id = queue.enqueue("held", str(tmp_path)).job_id
    parent = processes.start(_die_while_it_speaks, str(path), "after")
    pid = pid_of(tmp_path)
    parent.say("stop")
    assert parent.status() == -signal.SIGKILL
    until(lambda: not Path("/proc", str(pid)).exists(), "its end")
    job = queue.get(job_id)
    assert (job.state, job.attempts, job.reaps) == (JobState.PENDING, 0, 0)


@pytest.mark.parametrize("befalls", [troubled.find_it_busy, troubled.be_killed_as_it_starts])
def test_processes_that_cannot_begin_for_a_while_are_started_again(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], tmp_path: Path, befalls: Callable[[Path], None]
) -> None:
    """A file that is briefly busy, or a system that kills them, does not end the worker."""
    worker = work({"quick": troubled.Troubled(tmp_path, befalls, handled.quick)}, mode="processes", concurrency=1)
    assert ended(queue.enqueue("quick", str(tmp_path)).job_id).state is JobState.COMPLETED
    assert worker.drained().completed == 1


def test_a_handler_that_has_ended_its_job_itself_and_hangs_is_killed_all_the_same(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], tmp_path: Path
) -> None:
    """Its time limit holds for it, not only for its job: what the job came to stands, and the next one begins."""
    handlers: dict[str, Handling] = {"own": Handler(troubled.complete_and_hang, timeout=0.1), "quick": handled.quick}
    worker = work(handlers, mode="processes", concurrency=1)
    job_id = queue.enqueue("own", str(tmp_path)).job_id
    assert ended(job_id).result == "by its own word"
    assert ended(queue.enqueue("quick", str(tmp_path)).job_id).state is JobState.COMPLETED
    worker.drained()
    assert (queue.get(job_id).state, queue.get(job_id).attempts) == (JobState.COMPLETED, 1)
