"""Handlers in processes: each a holder of its own, killed when its time is over, and nobody else's concern."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import handled
import pytest
from meeting import lines, pid_of, until

import litequeue
from litequeue import Handler, JobState, UsageError, Worker, WorkerEvent
from litequeue.worker.process import Child
from litequeue.worker.run import EXIT_FORKED
from litequeue.worker.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from litequeue import Job, Queue
    from litequeue.worker.handlers import Handling
    from tests.faults.children import Children, Parent
    from tests.worker.conftest import Work

pytestmark = pytest.mark.slow


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _states_when_settled(pid: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Look at a process each time that its parent settles a job; source of the letters: proc(5)."""
    states: list[str] = []
    exchange = litequeue.Queue.exchange

    def watched(queue: Queue, settlements: list[object], *rest: object, **named: object) -> object:
        states.append(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0])
        return exchange(queue, settlements, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(litequeue.Queue, "exchange", watched)
    return states


def test_handlers_run_in_processes_of_their_own(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], tmp_path: Path
) -> None:
    """Plain and asynchronous ones; results and events come as in every mode, and nothing is left at the end."""
    events: list[WorkerEvent] = []
    handlers: dict[str, Handling] = {"quick": handled.quick, "async": handled.asynchronous, "bad": handled.bad}
    worker = work(handlers, mode="processes", concurrency=2, on_event=events.append)
    jobs = [queue.enqueue(kind, str(tmp_path), max_attempts=1).job_id for kind in ("quick", "async", "quick", "bad")]
    results = [ended(job_id).result for job_id in jobs[:3]]
    assert os.getpid() not in results
    failed = ended(jobs[3])
    assert str(failed.last_error).startswith("ValueError: no such page")
    until(lambda: len(events) == 8, "all events")
    ending = worker.drained()
    assert (ending.completed, ending.dead, ending.is_clean) == (3, 1, True)
    assert sorted(event.name for event in events) == ["completed"] * 3 + ["dead"] + ["started"] * 4
    assert {event.job_id for event in events} == set(jobs)
    assert not any(_is_alive(int(str(pid))) for pid in results)


def test_poison_is_dead_after_its_attempts_and_harms_no_neighbour(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], tmp_path: Path
) -> None:
    """G6: `os._exit` costs one attempt of its own job each time; the neighbours run on, once each."""
    queue.set("backoff_base", 0)
    poison = queue.enqueue("poison", str(tmp_path), max_attempts=3).job_id
    neighbour = queue.enqueue("held", str(tmp_path)).job_id
    worker = work({"poison": handled.poison, "held": handled.held}, mode="processes", concurrency=2)
    job = ended(poison)
    assert (job.state, job.attempts, job.reaps) == (JobState.DEAD, 3, 3)
    assert job.last_error == "worker died"
    assert [attempt for _, attempt in lines(tmp_path, "poison")] == ["1", "2", "3"]
    (tmp_path / "go").touch()
    assert ended(neighbour).attempts == 1
    ending = worker.drained()
    assert (ending.completed, ending.lost) == (1, 3)


def test_a_handler_that_hears_nothing_is_killed_when_its_time_is_over(
    queue: Queue, work: Work, in_state: Callable[[UUID, JobState], Job], tmp_path: Path
) -> None:
    """A timeout is hard: the process dies, the run has failed with an attempt, and the next one begins."""
    events: list[WorkerEvent] = []
    handlers: dict[str, Handling] = {"deaf": Handler(handled.deaf, timeout=0.2), "quick": handled.quick}
    worker = work(handlers, mode="processes", concurrency=1, on_event=events.append)
    job_id = queue.enqueue("deaf", str(tmp_path)).job_id
    job = in_state(job_id, JobState.RETRYABLE)
    assert job.last_error == "timed out after 0.2 s"
    assert (job.attempts, job.reaps) == (1, 0)
    pid = pid_of(tmp_path)
    until(lambda: not _is_alive(pid), "its end")
    in_state(queue.enqueue("quick", str(tmp_path)).job_id, JobState.COMPLETED)
    assert worker.drained().failed == 1
    assert [event.name for event in events][:3] == ["started", "timed_out", "failed"]


def test_a_result_that_cannot_be_stored_is_not_lost_with_the_next_job(
    queue: Queue, work: Work, in_state: Callable[[UUID, JobState], Job], tmp_path: Path
) -> None:
    """§6: the process is killed for the job after it; the one before has failed by then, and is not reaped."""
    queue.set("max_payload", 1000)
    large = queue.enqueue("large").job_id
    deaf = queue.enqueue("deaf", str(tmp_path)).job_id
    handlers: dict[str, Handling] = {"large": handled.large, "deaf": Handler(handled.deaf, timeout=0.2)}
    worker = work(handlers, mode="processes", concurrency=1)
    in_state(deaf, JobState.RETRYABLE)
    job = in_state(large, JobState.DEAD)
    assert (job.attempts, job.reaps) == (1, 0)
    ending = worker.drained()
    assert (ending.failed, ending.dead) == (1, 1)


def test_a_lost_lease_kills_the_process(
    queue: Queue, work: Work, in_state: Callable[[UUID, JobState], Job], tmp_path: Path
) -> None:
    """V9: a job that was cancelled is worked on no longer, whatever its handler does; another process takes over."""
    events: list[WorkerEvent] = []
    handlers = {"deaf": handled.deaf, "quick": handled.quick}
    worker = work(handlers, mode="processes", concurrency=1, on_event=events.append)
    job_id = queue.enqueue("deaf", str(tmp_path)).job_id
    pid = pid_of(tmp_path)
    queue.cancel(job_id)
    until(lambda: not _is_alive(pid), "its end")
    in_state(queue.enqueue("quick", str(tmp_path)).job_id, JobState.COMPLETED)
    assert worker.drained().lost == 1
    assert [event.name for event in events].count("lost") == 1
    assert queue.get(job_id).state is JobState.CANCELLED


def test_a_drain_lets_processes_finish(queue: Queue, work: Work, ended: Callable[[UUID], Job], tmp_path: Path) -> None:
    """Finished work is acknowledged, by the process that did it."""
    job_id = queue.enqueue("held", str(tmp_path)).job_id
    worker = work({"held": handled.held}, mode="processes", concurrency=2)
    pid_of(tmp_path)
    worker.worker.stop()
    (tmp_path / "go").touch()
    ending = worker.join()
    assert (ending.completed, ending.is_clean) == (1, True)
    assert ended(job_id).result == "done"


@pytest.mark.parametrize("stops", [1, 2])
def test_past_the_drain_processes_are_killed_and_their_jobs_given_back(
    queue: Queue, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: int
) -> None:
    """V8: pending with attempts unchanged, not reaped; nobody works on it any more when it can be leased again."""
    job_id = queue.enqueue("deaf", str(tmp_path)).job_id
    worker = work({"deaf": handled.deaf}, mode="processes", concurrency=2, drain_timeout=0.1 if stops == 1 else 3600)
    pid = pid_of(tmp_path)
    seen = _states_when_settled(pid, monkeypatch)
    for _ in range(stops):
        worker.worker.stop()
    ending = worker.join()
    assert ending.interrupted == 1
    assert seen == ["T"], "its handler stood still when its job was given back"
    job = queue.get(job_id)
    assert (job.state, job.attempts, job.reaps) == (JobState.PENDING, 0, 0)
    assert not _is_alive(pid)
    lease = queue.lease_next()
    assert lease is not None
    assert lease.attempts == 1


def _supervise(parent: Parent, path: str) -> None:
    with litequeue.open(path) as queue:
        parent.say("up")
        Worker(queue, {"held": handled.held}, mode="processes", concurrency=1).run()


def test_processes_of_a_killed_parent_end_after_their_job(
    queue: Queue, path: Path, processes: Children, ended: Callable[[UUID], Job], tmp_path: Path
) -> None:
    """SIGKILL of the parent: the job runs on under its lease, is acknowledged, and nothing new is leased."""
    first, second = (queue.enqueue("held", str(tmp_path)).job_id for _ in range(2))
    parent = processes.start(_supervise, str(path))
    assert parent.hear() == "up"
    pid = pid_of(tmp_path)
    parent.signal(signal.SIGKILL)
    parent.status()
    (tmp_path / "go").touch()
    assert ended(first).attempts == 1
    until(lambda: not _is_alive(pid), "its end")
    assert queue.get(second).state is JobState.PENDING


def _supervise_briefly(parent: Parent, path: str) -> None:
    drain = Child.drain

    def told(child: Child) -> None:
        drain(child)
        parent.say("told to drain")

    Child.drain = told  # type: ignore[method-assign,assignment]
    with litequeue.open(path) as queue:
        parent.say("up")
        handlers: dict[str, Handling] = {"deaf": Handler(handled.deaf, timeout=1.5)}
        Worker(queue, handlers, mode="processes", concurrency=1).run()


@pytest.mark.parametrize("is_draining", [False, True])
def test_processes_of_a_killed_parent_keep_to_their_time(
    queue: Queue, path: Path, processes: Children, tmp_path: Path, is_draining: bool
) -> None:
    """SIGKILL of the parent: what would have been killed when its time is over ends then by itself."""
    queue.enqueue("deaf", str(tmp_path))
    parent = processes.start(_supervise_briefly, str(path))
    assert parent.hear() == "up"
    pid = pid_of(tmp_path)
    if is_draining:
        parent.signal(signal.SIGTERM)
        assert parent.hear() == "told to drain"
    parent.signal(signal.SIGKILL)
    parent.status()
    until(lambda: not _is_alive(pid), "its end")


def test_processes_import_what_they_are_told_to_before_their_handlers(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What sets up the application, though no handler stands in it."""
    (tmp_path / "set_up.py").write_text("import os\nos.environ['SET_UP'] = 'yes'\n")
    monkeypatch.syspath_prepend(tmp_path)
    work({"job": handled.environment}, mode="processes", concurrency=1, imports=["set_up"])
    assert ended(queue.enqueue("job", "SET_UP").job_id).result == "yes"
    with pytest.raises(UsageError, match="imports"):
        Worker(queue, {"job": handled.environment}, mode="processes", imports="set_up")


def test_a_stopped_process_loses_its_job_and_its_late_word_is_refused(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], tmp_path: Path
) -> None:
    """G1: SIGSTOP until past the lease; the new holder's outcome stands."""
    queue.set("backoff_base", 0)
    job_id = queue.enqueue("held", str(tmp_path)).job_id
    worker = work({"held": handled.held_first}, mode="processes", concurrency=2, lease_ttl=0.5, maintenance=True)
    pid = pid_of(tmp_path)
    os.kill(pid, signal.SIGSTOP)
    job = ended(job_id)
    assert (job.result, job.attempts, job.reaps) == ("done", 2, 1)
    (tmp_path / "never").touch()
    os.kill(pid, signal.SIGCONT)
    ending = worker.drained()
    assert ending.completed == 1
    assert queue.get(job_id).lease_generation == 2


def test_a_signal_to_a_process_that_starts_does_not_end_it(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service manager signals every process of a group at once; when they end is their parent's to say."""
    spawn = Supervisor._spawn
    pids: list[int] = []

    def signalled(supervisor: Supervisor) -> Child:
        child = spawn(supervisor)
        assert child.process.pid is not None
        pids.append(child.process.pid)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(child.process.pid, number)
        return child

    monkeypatch.setattr(Supervisor, "_spawn", signalled)
    work({"quick": handled.quick}, mode="processes", concurrency=1)
    assert ended(queue.enqueue("quick", str(tmp_path)).job_id).result == pids[0]
    assert len(pids) == 1


def test_programs_that_handlers_start_heed_signals(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], tmp_path: Path
) -> None:
    """What keeps a process of the worker from SIGTERM is not handed on."""
    work({"job": handled.starter}, mode="processes", concurrency=1)
    assert ended(queue.enqueue("job", str(tmp_path)).job_id).result == -signal.SIGTERM


def test_a_handler_has_the_main_thread_and_no_signal_interrupts_it(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], tmp_path: Path
) -> None:
    """A library of C that a handler calls need not know of signals that only ask for a drain."""
    os.mkfifo(tmp_path / "pipe")
    work({"job": handled.reading}, mode="processes", concurrency=1)
    job_id = queue.enqueue("job", str(tmp_path)).job_id
    pid = pid_of(tmp_path)
    for number in (signal.SIGTERM, signal.SIGINT) * 10:
        os.kill(pid, number)
        until(lambda: not _pending(pid), "its delivery")
    (tmp_path / "pipe").write_bytes(b"x")
    assert ended(job_id).result == [1, True]


def _pending(pid: int) -> int:
    """Return the signals that a process has yet to take; source: proc(5)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return int(next(line.split()[1] for line in status if line.startswith("ShdPnd")), 16)


def test_a_process_that_a_handler_forks_and_lets_return_does_not_become_a_worker(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], tmp_path: Path
) -> None:
    """It would lease jobs, have no heartbeat, and hear of no drain."""
    worker = work({"job": handled.forking}, mode="processes", concurrency=1)
    assert ended(queue.enqueue("job", str(tmp_path)).job_id).result == EXIT_FORKED
    assert worker.drained().completed == 1


def test_until_empty_ends_when_all_processes_have_found_nothing(queue: Queue, work: Work, tmp_path: Path) -> None:
    """As in the other modes."""
    queue.enqueue_many(litequeue.NewJob("quick", str(tmp_path)) for _ in range(20))
    worker = work({"quick": handled.quick}, mode="processes", concurrency=2, until_empty=True)
    assert worker.join().completed == 20


def test_handlers_that_cannot_be_sent_are_refused_at_once(queue: Queue) -> None:
    """A lambda cannot be imported by another process."""
    with pytest.raises(UsageError, match="import"):
        Worker(queue, {"job": lambda _: None}, mode="processes")


def test_processes_that_never_begin_end_the_worker(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not spin: after three in a row `run` says what ended them."""
    worker = Worker(queue, {"quick": handled.quick}, mode="processes", concurrency=1, maintenance=False)
    monkeypatch.setattr(queue.options.place.__class__, "__reduce__", _breaks, raising=False)
    with pytest.raises(UsageError, match="before they begin"):
        worker.run()


def _breaks(_: object) -> tuple[Callable[[], None], tuple[()]]:
    return _exit, ()


def _exit() -> None:
    os._exit(7)
