"""Who has died, and who only seems to: processes that lease, are killed, stopped, forked and closed (DESIGN §4).

Times here are long, so that no deadline can be what ends a lease.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import JobState, Maintenance, NewJob, Queue, Transition
from litequeue import maintenance as maintenance_module
from litequeue.sqlite import gate, ofd, opening, presence, upkeep
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litequeue.sqlite.context import Context
    from tests.faults.children import Children, Parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ofd.HAS_LOCKS, reason="this platform does not tell who has died"),
]

YEAR_S = 31_536_000


@pytest.fixture
def queue(path: str) -> Iterator[Queue]:
    """Give the handle of a process that lives on."""
    with litequeue.open(path) as handle:
        yield handle


def _lease(parent: Parent, path: str, worker_id: str, limit: int) -> None:
    """Lease for a year, say which, and end when told to."""
    with litequeue.open(path) as queue:
        leases = queue.lease_many(limit, worker_id=worker_id, ttl=YEAR_S)
        parent.say(" ".join(str(lease.job_id) for lease in leases))
        parent.hear()
        parent.say(f"conflicts {len(queue.complete_many(leases))}")


# --- dead


def test_the_leases_of_a_killed_process_are_reaped_at_once_whatever_their_time(
    queue: Queue, path: str, processes: Children
) -> None:
    """Killed with 250 leases of a year: one pass takes them all back and counts the attempt (V11, G5, §2)."""
    queue.enqueue_many(NewJob("work", number) for number in range(260))
    killed = processes.start(_lease, path, "w", 250)
    assert len(killed.hear().split()) == 250
    assert Maintenance(queue).run_once().reaped == 0
    killed.kill()
    assert Maintenance(queue).run_once().reaped == 250
    assert {state: count for state, count in queue.stats().counts.items() if count} == {
        JobState.PENDING: 10,
        JobState.RETRYABLE: 250,
    }
    (job,) = queue.list(JobState.RETRYABLE, limit=1)
    assert (job.attempts, job.reaps, job.last_error) == (1, 1, "worker died")
    assert job.events[-1][1:] == (Transition.REAPED, "worker died")
    assert Maintenance(queue).run_once().reaped == 0
    assert not queue.has_dead(), "the dead are forgotten"


def test_whoever_runs_maintenance_notices_a_death_in_about_a_second(
    queue: Queue, path: str, processes: Children
) -> None:
    """Between two passes an hour apart (V11)."""
    job_id = queue.enqueue("work").job_id
    killed = processes.start(_lease, path, "w", 1)
    killed.hear()
    maintenance = Maintenance(queue)
    thread = threading.Thread(target=maintenance.run, args=(3600,))
    thread.start()
    try:
        killed.kill()
        died_at = time.monotonic()
        while queue.get(job_id).state is JobState.LEASED and time.monotonic() - died_at < 30:
            time.sleep(0.01)
        assert queue.get(job_id).state is JobState.RETRYABLE
        assert time.monotonic() - died_at < 10, "half a second, and what a loaded machine adds"
    finally:
        maintenance.stop()
        thread.join()


def test_a_death_is_noticed_in_the_middle_of_a_long_pass(
    queue: Queue, path: str, processes: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass with much to do looks between its steps (V11)."""
    monkeypatch.setattr(maintenance_module, "_PROBE_S", 0.0)
    queue.set("completed_retention", 0.000001)
    job_id = queue.enqueue("held", priority=0).job_id
    killed = processes.start(_lease, path, "w", 1)
    killed.hear()
    queue.enqueue_many(NewJob("done") for _ in range(20))
    queue.complete_many(queue.lease_many(20))

    def kill() -> int:
        killed.kill()
        return 0

    monkeypatch.setattr(queue, "pull_in", kill)  # what comes after the pass has looked for the dead
    assert Maintenance(queue).run_once().reaped == 1
    assert queue.get(job_id).last_error == "worker died"


def test_a_killer_of_its_workers_is_dead_after_its_attempts_without_waiting_for_deadlines(
    queue: Queue, path: str, processes: Children
) -> None:
    """Each death counts once (G6)."""
    queue.set("backoff_base", 0)
    job_id = queue.enqueue("poison", max_attempts=3).job_id
    for _ in range(3):
        killed = processes.start(_lease, path, "w", 1)
        assert killed.hear() == str(job_id)
        killed.kill()
        Maintenance(queue).run_once()
    job = queue.get(job_id)
    assert (job.state, job.attempts, job.reaps, job.last_error) == (JobState.DEAD, 3, 3, "worker died")


def _end_by_an_error(parent: Parent, path: str) -> None:
    with litequeue.open(path) as queue:
        parent.say(str(len(queue.lease_many(2, ttl=YEAR_S))))
        raise ValueError("a worker's own mistake")


def test_a_handle_that_an_error_ended_is_a_dead_holder(queue: Queue, path: str, processes: Children) -> None:
    """It gave nothing back; its leases need not wait for their deadline (§4, G6)."""
    queue.enqueue_many([NewJob("work"), NewJob("work")])
    child = processes.start(_end_by_an_error, path)
    child.hear()
    assert child.status() == 1
    assert Maintenance(queue).run_once().reaped == 2


def test_what_moved_on_since_it_was_found_is_left_alone(queue: Queue, path: str) -> None:
    """Two maintainers find a dead holder's job; the slower one comes when it is leased anew (G1).

    maintainer A: finds the job · maintainer B: reaps it · a worker: leases it · A: has to leave it.
    """
    queue.set("backoff_base", 0)
    job_id = queue.enqueue("work").job_id
    dead = litequeue.open(path)
    assert dead.lease_next(ttl=YEAR_S) is not None
    (holder,) = queue._look(lambda reader: reader.all("SELECT id FROM litequeue_holder"))[0]
    found = queue._look(lambda reader: upkeep.held_by(reader, holder))
    dead._close(release=False)
    assert Maintenance(queue).run_once().reaped == 1
    lease = queue.lease_next(ttl=YEAR_S)
    assert lease is not None
    assert lease.job_id == job_id
    assert queue._do(lambda context: upkeep.reap_found(context, found), durable=False) == 0
    lease.complete()


# --- alive


def test_a_stopped_process_is_not_touched_before_its_deadline(queue: Queue, path: str, processes: Children) -> None:
    """It keeps its lock, and finishes when it goes on (DESIGN §4)."""
    job_id = queue.enqueue("work").job_id
    stopped = processes.start(_lease, path, "w", 1)
    stopped.hear()
    stopped.signal(signal.SIGSTOP)
    for _ in range(3):
        assert Maintenance(queue).run_once().reaped == 0
    stopped.signal(signal.SIGCONT)
    stopped.say("go on")
    assert stopped.hear() == "conflicts 0"
    assert queue.get(job_id).state is JobState.COMPLETED


def test_two_processes_of_one_worker_id_do_not_share_their_fate(queue: Queue, path: str, processes: Children) -> None:
    """Each handle is a holder of its own, whatever it is called (DESIGN §4)."""
    queue.enqueue_many([NewJob("work"), NewJob("work")])
    killed, other = (processes.start(_lease, path, "the same", 1) for _ in range(2))
    lost, kept = killed.hear(), other.hear()
    killed.kill()
    assert Maintenance(queue).run_once().reaped == 1
    assert queue.get(lost).state is JobState.RETRYABLE
    assert queue.get(kept).state is JobState.LEASED
    other.say("go on")
    assert other.hear() == "conflicts 0"


def test_doctor_tells_of_a_dead_holder_and_mends_it(queue: Queue, path: str, processes: Children) -> None:
    """A warning as long as nobody maintains the file; reaping loses nothing (V11)."""
    job_id = queue.enqueue("work").job_id
    killed = processes.start(_lease, path, "w", 1)
    killed.hear()
    assert "lease.dead" not in {finding.code for finding in litequeue.doctor(path).findings}
    killed.kill()
    (found,) = [finding for finding in litequeue.doctor(path).findings if finding.code == "lease.dead"]
    assert (found.severity, found.count, found.examples) == ("warning", 1, (str(job_id),))
    assert litequeue.doctor(path, fix=True).mended == ("reaped leases of processes that have died: 1",)
    assert queue.get(job_id).state is JobState.RETRYABLE


def test_two_handles_of_one_process_are_two_holders(queue: Queue, path: str) -> None:
    """One that is let go of does not take the other's leases along, and a lock is seen inside its own process too."""
    queue.enqueue_many([NewJob("work"), NewJob("work")])
    other = litequeue.open(path)
    leases = [queue.lease_next(ttl=YEAR_S), other.lease_next(ttl=YEAR_S)]
    assert None not in leases
    assert Maintenance(queue).run_once().reaped == 0
    other._close(release=False)
    assert Maintenance(queue).run_once().reaped == 1
    assert leases[0] is not None
    leases[0].complete()


def test_a_closed_handle_leaves_no_holder_behind(queue: Queue, path: str) -> None:
    """What it held it has released: nothing was reaped (§4)."""
    job_id = queue.enqueue("work").job_id
    with litequeue.open(path) as other:
        assert other.lease_next(ttl=YEAR_S) is not None
    assert not queue.has_dead()
    assert (queue.get(job_id).state, queue.get(job_id).reaps) == (JobState.PENDING, 0)


# --- forks


def _lease_and_fork(parent: Parent, path: str, how: str) -> None:
    """Lease, start a process that outlives this one, say its id, and wait to be killed."""
    queue = litequeue.open(path)
    assert queue.lease_next(ttl=YEAR_S) is not None
    if how == "exec":
        command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        subprocess.Popen(command, stdin=subprocess.PIPE, close_fds=False)
        parent.say("started")
        parent.hear()
    elif os.fork() == 0:
        if how == "uses the queue":
            queue.enqueue("from the child")
            with litequeue.open(path) as another:
                another.enqueue("from the child")
        sys.stdin.close()
        parent.say("started")
        signal.pause()
    signal.pause()


@pytest.mark.parametrize("how", ["is idle", "uses the queue", "exec"])
def test_a_child_does_not_keep_its_dead_parent_alive(queue: Queue, path: str, processes: Children, how: str) -> None:
    """A fork, or another program that was started, outlives the holder (DESIGN §4)."""
    job_id = queue.enqueue("work").job_id
    killed = processes.start(_lease_and_fork, path, how)
    assert killed.hear() == "started"
    assert Maintenance(queue).run_once().reaped == 0
    killed.kill()
    assert Maintenance(queue).run_once().reaped == 1
    assert queue.get(job_id).last_error == "worker died"


def _lease_in_both(parent: Parent, path: str) -> None:
    """Lease, fork, let the fork lease as well and die; then finish what this process holds."""
    queue = litequeue.open(path)
    mine = queue.lease_next(["first"], ttl=YEAR_S)
    assert mine is not None

    def lease_and_die() -> None:
        assert queue.lease_next(["second"], ttl=YEAR_S) is not None
        os.kill(os.getpid(), signal.SIGKILL)

    pid = parent.fork(lease_and_die)
    os.waitpid(pid, 0)
    parent.say("the fork is dead")
    parent.hear()
    mine.complete()


def test_a_fork_is_a_holder_of_its_own(queue: Queue, path: str, processes: Children) -> None:
    """Its death ends its own leases, and not its parent's."""
    first, second = (result.job_id for result in queue.enqueue_many([NewJob("first"), NewJob("second")]))
    child = processes.start(_lease_in_both, path)
    child.hear()
    assert Maintenance(queue).run_once().reaped == 1
    assert queue.get(second).last_error == "worker died"
    child.say("go on")
    child.result()
    assert queue.get(first).state is JobState.COMPLETED


def _fork_and_die(parent: Parent, path: str) -> None:
    """Open, and fork; the fork lives on and does nothing."""
    queue = litequeue.open(path)
    if os.fork() == 0:
        sys.stdin.close()
        parent.say(str(os.getpid()))
        signal.pause()
    signal.pause()
    queue.close()


def test_a_fork_has_its_parents_handle_open_before_it_uses_it(path: str, processes: Children) -> None:
    """A restore must not replace what it is about to use, also when the parent has died (G2)."""
    killed = processes.start(_fork_and_die, path)
    fork = int(killed.hear())
    place = opening.resolve(path, create=False, allow_network=False)
    killed.kill()
    assert presence.is_attended(place)
    os.kill(fork, signal.SIGKILL)


def _close_and_fork(parent: Parent, path: str) -> None:
    """Open, close, and fork; the fork lives on."""
    litequeue.open(path).close()
    if os.fork() == 0:
        sys.stdin.close()
        parent.say("started")
    signal.pause()


def test_a_fork_of_a_process_that_has_closed_its_handle_uses_no_file(path: str, processes: Children) -> None:
    """Who has a handle open is asked by a restore, and a closed one is not open in a child either."""
    child = processes.start(_close_and_fork, path)
    assert child.hear() == "started"
    place = opening.resolve(path, create=False, allow_network=False)
    assert not presence.is_attended(place)
    with litequeue.open(path):
        assert presence.is_attended(place)
    assert not presence.is_attended(place)


# --- when nothing can be said


def _remove(lock: Path) -> None:
    lock.unlink()


def _replace(lock: Path) -> None:
    lock.rename(f"{lock}-old")
    lock.touch()


@pytest.mark.parametrize("change", [_remove, _replace])
def test_a_replaced_sidecar_makes_nobody_look_dead(
    queue: Queue, path: str, processes: Children, change: Callable[[Path], None]
) -> None:
    """Presence then says nothing of those who hold a byte of the old one: deadlines decide (DESIGN §4)."""
    queue.enqueue_many([NewJob("work"), NewJob("work")])
    living, killed = (processes.start(_lease, path, "w", 1) for _ in range(2))
    for child in (living, killed):
        child.hear()
    change(Path(f"{path}-lock"))
    killed.kill()
    assert Maintenance(queue).run_once().reaped == 0
    assert Path(f"{path}-lock").exists() == (change is _replace), "who only looks makes no file"
    with litequeue.open(path) as other:
        other.enqueue("work")
        assert other.lease_next(ttl=YEAR_S) is not None, "who comes later is known by the new one"
        assert Maintenance(other).run_once().reaped == 0
        other._store.holdings.presence.close()
        assert Maintenance(queue).run_once().reaped == 1
    living.say("go on")
    assert living.hear() == "conflicts 0"


def test_without_such_locks_deadlines_decide(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is called dead on a platform that does not tell (DESIGN §4)."""
    monkeypatch.setattr(ofd, "HAS_LOCKS", False)
    clock = FakeClock()
    with litequeue.open(path, clock=clock) as queue:
        queue.enqueue("work")
        with litequeue.open(path, clock=clock) as other:
            assert other.lease_next(ttl=60) is not None
            other._close(release=False)
        assert Maintenance(queue).run_once().reaped == 0
        clock.advance(61)
        assert Maintenance(queue).run_once().reaped == 1


def test_a_sidecar_that_cannot_be_opened_costs_presence_and_not_the_lease(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No descriptor is left for it: the lease is taken, a warning says what it means."""

    def refuse(*_: object, **__: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(presence, "open_sidecar", refuse)
    queue = litequeue.open(path)
    queue.enqueue("work")
    lease = queue.lease_next()
    assert lease is not None
    monkeypatch.undo()
    assert "end by their deadline only" in caplog.text
    assert not queue.has_dead()
    lease.complete()
    queue.close()


def test_planted_holders_are_nobody(queue: Queue) -> None:
    """Rows with ids that no handle ever had, in the name of the very sidecar (§6)."""
    queue.enqueue("work")
    assert queue.lease_next(ttl=YEAR_S) is not None

    def plant(context: Context) -> None:
        for holder_id in (-5, 0, 2**63 - 1):
            context.write(
                "INSERT INTO litequeue_holder SELECT ?, pid, host, since, sidecar FROM litequeue_holder WHERE id = 1",
                (holder_id,),
            )

    queue._do(plant, durable=False)
    assert not queue.has_dead()
    assert Maintenance(queue).run_once().reaped == 0


def _fail_to_close(queue: Queue) -> None:
    """Close while another thread reads for longer than the time-out."""
    is_reading, is_over = threading.Event(), threading.Event()

    def read() -> None:
        with queue._store.read():
            is_reading.set()
            is_over.wait()

    thread = threading.Thread(target=read)
    thread.start()
    is_reading.wait()
    try:
        with pytest.raises(litequeue.QueueBusy):
            queue.close()
    finally:
        is_over.set()
        thread.join()


def test_a_handle_that_could_not_be_closed_is_a_holder_again_when_it_goes_on(queue: Queue, path: str) -> None:
    """Its row went when it gave its leases back; the next lease has a row of its own."""
    queue.enqueue_many([NewJob("work"), NewJob("work")])
    other = litequeue.open(path, busy_timeout=0.05)
    assert other.lease_next(ttl=YEAR_S) is not None
    _fail_to_close(other)
    assert other.lease_next(ttl=YEAR_S) is not None
    assert _holders(queue) == [2]
    other._close(release=False)
    assert Maintenance(queue).run_once().reaped == 1


# --- ids


def _holders(queue: Queue) -> list[object]:
    with queue.transaction() as tx:
        return [row[0] for row in tx.execute("SELECT id FROM litequeue_holder ORDER BY id")]


def _roll_back_a_first_lease(queue: Queue) -> None:
    with queue.transaction() as tx:
        assert tx.lease_next(ttl=YEAR_S) is not None
        raise ValueError("undone")


def test_a_first_lease_that_was_rolled_back_leaves_no_holder_and_no_lock(queue: Queue, path: str) -> None:
    """The id that it had may be another one's next: its lock is not in the way, nor taken for the other's (G1)."""
    queue.enqueue("work")
    with pytest.raises(ValueError, match="undone"):
        _roll_back_a_first_lease(queue)
    assert _holders(queue) == []
    with litequeue.open(path) as other:
        assert other.lease_next(ttl=YEAR_S) is not None
        (holder,) = _holders(queue)
        assert not queue.has_dead()
        other._store.holdings.presence.close()
        assert queue.has_dead(), "the byte is the other's alone"
        assert holder == 1


def test_an_id_whose_byte_somebody_still_holds_is_passed_over(queue: Queue, path: str) -> None:
    """One that rolled back may not have let go yet: the next one takes the next id (DESIGN §4)."""
    queue.enqueue("work")
    late = presence.Presence(queue._store.place)
    late.sidecar()
    assert late.hold(1)
    with litequeue.open(path) as other:
        assert other.lease_next(ttl=YEAR_S) is not None
        assert _holders(queue) == [2]
        late.close()
        assert not queue.has_dead()


def test_a_savepoint_that_took_the_first_lease_back_leaves_no_holder(queue: Queue) -> None:
    """A verb that fails inside a transaction undoes what it did, the holder's row with it (G11, V14)."""
    with queue.transaction() as tx:
        with pytest.raises(ZeroDivisionError):
            tx._do(lambda context: context.holder_id // 0, durable=False)
        tx.enqueue("work")
    assert _holders(queue) == []
    assert queue._store.holdings.presence.holder_id is None


def test_ids_are_never_used_again(queue: Queue, path: str) -> None:
    """A row that goes takes its id along, so a lease never names somebody else (DESIGN §4)."""
    seen: list[object] = []
    for _ in range(3):
        queue.enqueue("work")
        with litequeue.open(path) as other:
            lease = other.lease_next()
            assert lease is not None
            seen += _holders(queue)
            lease.complete()
    assert seen == [1, 2, 3]


# --- the boot


def test_a_changed_boot_id_is_not_believed_while_a_holder_lives(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """A boot ends every process: with one alive, its leases go on, and the lease clock stays (§8)."""
    clock, odd = FakeClock(), FakeClock(boot_id="another")
    with litequeue.open(path, clock=clock) as queue:
        queue.enqueue("work")
        lease = queue.lease_next(ttl=60)
        assert lease is not None
        with litequeue.open(path, clock=odd) as other:
            assert other.stats().lapsed == 0
            assert Maintenance(other).run_once().reaped == 0
        assert "not believed" in caplog.text
        lease.extend()
        queue._close(release=False)
    with litequeue.open(path, clock=odd) as other:
        assert other.stats().lapsed == 1, "with nobody alive it is a boot"
        assert Maintenance(other).run_once().reaped == 1
        assert _holders(other) == []


def test_a_boot_forgets_the_holders_of_the_one_before(path: str, processes: Children) -> None:
    """Their bytes are free and their leases have lapsed by the lease clock already (§8)."""
    with litequeue.open(path) as queue:
        queue.enqueue("work")
    killed = processes.start(_lease, path, "w", 1)
    killed.hear()
    killed.kill()
    clock = FakeClock()
    with litequeue.open(path, clock=clock) as queue:
        assert _holders(queue) == []
        job = queue.list(JobState.LEASED)[0]
        assert Maintenance(queue).run_once().reaped == 1
        assert queue.get(job.job_id).last_error == "lease expired"


def test_the_gate_and_presence_do_not_meet_on_one_sidecar(queue: Queue, path: str) -> None:
    """The gate's lock on the whole file, and a holder's on one byte of it, are of two sorts (DESIGN §4)."""
    queue.enqueue("work")
    assert queue.lease_next(ttl=YEAR_S) is not None
    other = gate.Gate(f"{path}-lock", 0o600)
    assert other.enter(time.monotonic() + 1)
    assert not queue.has_dead()
    other.close()
