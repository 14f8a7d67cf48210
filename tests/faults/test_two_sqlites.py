"""A second SQLite, or a plain `open()`, on the files of a queue that the same process has open, under load.

POSIX takes all of a process's locks on a file away when any of its descriptors for it is closed, and two SQLites of one
process do not see each other's locks (DESIGN §3, "Two SQLites in one process destroy data"). What each process was told
goes to a log of its own, and all logs are compared with the file at the end. Children leave protections out on purpose,
one at a time: a load that breaks nothing without the gate would prove nothing with it.
"""

from __future__ import annotations

import contextlib
import os
import select
import sqlite3
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

import litequeue
from litequeue import ANY, JobState, LiteQueueError, QueueBusy, UsageError
from litequeue.sqlite import anchor, intruders, ofd
from litequeue.sqlite.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litequeue import Queue
    from tests.faults.children import Child, Children, Parent

pytestmark = pytest.mark.slow

EVERY_S = 0.002
"""How often an intruder comes: hundreds of times a second."""
ROUNDS = 200
MOST_TRIES = 12
"""How often a load without a protection is repeated until it breaks something; nearly always once is enough."""

FILES = ("", "-wal", "-shm")


# --- in the children


def _leave_out(protections: list[str]) -> None:
    """Switch protections of the package off, in this process only."""
    if "gate" in protections:
        Gate.enter = lambda *_: True  # type: ignore[method-assign]
    if "anchor" in protections:
        anchor.hold = void  # type: ignore[assignment]
    if "hook" in protections:
        intruders.keep_out = void  # type: ignore[assignment]


def _open_raw(path: str) -> None:
    for suffix in FILES:
        with contextlib.suppress(FileNotFoundError):
            Path(path + suffix).open("rb").close()


def _look(path: str) -> None:
    """Look into the file with another SQLite, and close it as if it were the last one out."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path, timeout=0)) as other:
        other.execute("SELECT count(*) FROM litequeue_job").fetchall()


INTRUDERS = {"open()": _open_raw, "sqlite3": _look}


@contextlib.contextmanager
def _intruding(path: str, intruder: str | None) -> Iterator[None]:
    """Let an intruder come all the time."""
    is_over = threading.Event()
    intrude = INTRUDERS[intruder] if intruder else lambda _: is_over.wait()

    def come_again() -> None:
        while not is_over.wait(EVERY_S):
            intrude(path)

    thread = threading.Thread(target=come_again)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _log_of(path: str) -> Callable[[str, object], None]:
    descriptor = os.open(f"{path}.log-{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    return lambda what, job_id: void(os.write(descriptor, f"{what} {job_id}\n".encode()))


def void(_: object) -> None:
    """Take an answer that nobody needs."""


def _is_told_to_stop() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def _work(parent: Parent, path: str, rounds: int, intruder: str | None, left_out: list[str]) -> str:
    """Enqueue, lease, complete and read, so many times or until told to stop; tell how it ended."""
    _leave_out(left_out)
    log = _log_of(path)
    queue = litequeue.open(path, durability="normal")
    with _intruding(path, intruder):
        parent.say("begun")
        ended = _told(lambda: _work_on(queue, log, rounds))
    if ended != "done":
        parent.result(ended)
        os._exit(0)  # what is lost is not to be closed either
    queue.close()
    return ended


def _work_on(queue: Queue, log: Callable[[str, object], None], rounds: int) -> None:
    done = 0
    while done < rounds if rounds else not _is_told_to_stop():
        job_id = queue.enqueue("work").job_id
        log("enqueued", job_id)
        lease = queue.lease_next()
        if lease is not None:
            lease.complete()
            log("completed", lease.job_id)
        assert queue.get(job_id).job_id == job_id
        done += 1


def _open_and_close(parent: Parent, path: str, left_out: list[str]) -> str:
    """Open, enqueue one job and close, until told to stop; tell how it ended."""
    _leave_out(left_out)
    log = _log_of(path)
    parent.say("begun")

    def go_on() -> None:
        while not _is_told_to_stop():
            with litequeue.open(path, durability="normal") as queue:
                log("enqueued", queue.enqueue("work").job_id)

    return _told(go_on)


def _told(work: Callable[[], None]) -> str:
    try:
        work()
    except (LiteQueueError, AssertionError) as exc:
        return f"{type(exc).__name__}: {exc}"
    return "done"


# --- in the tests


@dataclass
class Outcome:
    """What became of a load."""

    ends: list[str]
    """How each process ended."""
    lost: list[str] = field(default_factory=list)
    """What was acknowledged and is not in the file."""
    integrity: str = "ok"

    @property
    def is_silent_loss(self) -> bool:
        """Whether a process was told something that is not so."""
        return bool(self.lost) or self.integrity != "ok"

    @property
    def is_broken(self) -> bool:
        """Whether anything went wrong that no user of the file may see."""
        return self.is_silent_loss or any(not end.startswith(("done", "StorageLost")) for end in self.ends)


def _compare(path: str, ends: list[str]) -> Outcome:
    """Compare what was acknowledged with what the file holds."""
    outcome = Outcome(ends)
    acknowledged = [line.split() for log in _logs(path) for line in log.read_text(encoding="ascii").splitlines()]
    try:
        with litequeue.open(path, create=False) as queue:
            with queue.transaction() as tx:
                outcome.integrity = str(tx.execute("PRAGMA integrity_check")[0][0])
            states = _states(queue)
    except LiteQueueError as exc:
        outcome.integrity = f"{type(exc).__name__}: {exc}"
        return outcome
    for what, job_id in acknowledged:
        if job_id not in states or (what == "completed" and states[job_id] is not JobState.COMPLETED):
            outcome.lost.append(f"{what} {job_id}")
    return outcome


def _states(queue: Queue) -> dict[str, JobState]:
    states: dict[str, JobState] = {}
    page = queue.list(scope=ANY, limit=10_000)
    while page:
        states.update((str(job.job_id), job.state) for job in page)
        page = queue.list(scope=ANY, limit=10_000, after=page[-1])
    return states


def _logs(path: str) -> list[Path]:
    return list(Path(path).parent.glob("*.log-*"))


def _load(path: str, processes: Children, intruder: str, left_out: list[str]) -> Outcome:
    """One process with an intruder, two that work beside it, one that opens and closes."""
    litequeue.open(path).close()
    beside: list[Child] = [processes.start(_work, path, 0, None, left_out) for _ in range(2)]
    beside.append(processes.start(_open_and_close, path, left_out))
    for child in beside:
        assert child.hear() == "begun"
    intruded = processes.start(_work, path, ROUNDS, intruder, left_out)
    assert intruded.hear() == "begun"
    ends = [_end_of(intruded)]
    for child in beside:
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            child.say("stop")
    return _compare(path, ends + [_end_of(child) for child in beside])


def _end_of(child: Child, *before: str) -> str:
    """Return what a child returned after having said these lines, or how it ended instead."""
    try:
        assert [child.hear() for _ in before] == list(before)
        return str(child.result())
    except AssertionError as exc:  # without what protects it, it may well have crashed
        return f"crashed: {exc}"


@pytest.mark.parametrize("intruder", INTRUDERS)
def test_an_intruder_under_load_loses_nothing(path: str, processes: Children, intruder: str) -> None:
    """Nothing lost in any process, and no alarm either: the gate and the anchor stand in for the locks (G2, G11, §6).

    The hook that keeps `sqlite3` out is left out, as other copies of SQLite know nothing of it.
    """
    outcome = _load(path, processes, intruder, ["hook"])
    assert outcome == Outcome(["done"] * 4)


@pytest.mark.parametrize("intruder", INTRUDERS)
def test_without_the_gate_the_same_load_breaks_the_file(tmp_path: Path, processes: Children, intruder: str) -> None:
    """The load has teeth: with dropped locks and no gate acknowledged work is lost, or done twice (DESIGN §3)."""
    for number in range(MOST_TRIES):
        (tmp_path / str(number)).mkdir()
        outcome = _load(str(tmp_path / str(number) / "app.queue"), processes, intruder, ["hook", "gate"])
        if outcome.is_broken:
            return
    pytest.fail("nothing was broken: this load proves nothing")


def _alone(path: str, processes: Children, intruder: str, left_out: list[str]) -> Outcome:
    """Only the process with the intruder: here the intruder's close can take itself for the last one out."""
    child = processes.start(_work, path, ROUNDS, intruder, left_out)
    return _compare(path, [_end_of(child, "begun")])


@pytest.mark.parametrize("intruder", INTRUDERS)
def test_an_intruder_in_the_only_process_loses_nothing(path: str, processes: Children, intruder: str) -> None:
    """An intruder that closes last does not remove the log beneath a commit (G2, G11, §6)."""
    assert _alone(path, processes, intruder, ["hook"]) == Outcome(["done"])


def test_without_the_anchor_an_intruder_takes_an_acknowledged_job_away(tmp_path: Path, processes: Children) -> None:
    """The anchor is what protects there: without it the intruder removes the log beneath a commit (DESIGN §3)."""
    for number in range(MOST_TRIES):
        (tmp_path / str(number)).mkdir()
        outcome = _alone(str(tmp_path / str(number) / "app.queue"), processes, "sqlite3", ["hook", "anchor"])
        if outcome.is_silent_loss:
            return
    pytest.fail("nothing was lost: this load proves nothing")


def _hold_a_transaction(parent: Parent, path: str) -> list[str]:
    """Keep a transaction open for as long as the test likes, after something in this process has dropped its locks."""
    queue = litequeue.open(path)
    with queue.transaction() as tx:
        jobs = [tx.enqueue("of the holder").job_id]
        _open_raw(path)
        parent.say("held")
        parent.hear()
        jobs.append(tx.enqueue("of the holder").job_id)
    jobs.append(queue.enqueue("of the holder").job_id)
    return [str(job_id) for job_id in jobs]


def _write_beside(parent: Parent, path: str, busy_timeout: float) -> list[str]:
    """Try to write for so long; then, when the test says so, once more."""
    queue = litequeue.open(path, busy_timeout=busy_timeout)
    try:
        jobs = [queue.enqueue("beside").job_id]
        parent.say("written")
    except QueueBusy:
        jobs = []
        parent.say("busy")
    parent.hear()
    jobs.append(queue.enqueue("beside").job_id)
    return [str(job_id) for job_id in jobs]


@pytest.mark.parametrize("busy_timeout", [0.2, 1.5])
def test_nobody_writes_into_a_long_transaction_whose_locks_were_dropped(
    path: str, processes: Children, busy_timeout: float
) -> None:
    """However long it takes: the gate is passed by only when its holder does not run; here it is `QueueBusy` (§6, G2).

    Otherwise one of the two would commit over what the other one was told is stored.
    """
    holder = processes.start(_hold_a_transaction, path)
    assert holder.hear() == "held"
    beside = processes.start(_write_beside, path, busy_timeout)
    assert beside.hear() == "busy"
    holder.say("go on")
    jobs = cast("list[str]", holder.result())
    beside.say("go on")
    jobs += cast("list[str]", beside.result())
    with litequeue.open(path) as queue:
        assert set(_states(queue)) == set(jobs)


def _lose_the_log_and_open_again(_parent: Parent, path: str, when: str) -> list[str]:
    """Remove what lies beside the file; open it again in the same process, and in another one."""
    queue, other = litequeue.open(path), litequeue.open(path)
    queue.enqueue("work")
    for suffix in FILES[1:]:
        os.unlink(path + suffix)  # noqa: PTH108 - a path of text
    said = [_told(lambda: void(queue.enqueue("work")))] if when == "noticed" else []
    said += [_told(lambda: void(litequeue.open(path))) for _ in range(2)]
    queue.close()
    other.close()
    return [one.split(":")[0] for one in [*said, _told(lambda: void(litequeue.open(path)))]]


@pytest.mark.parametrize("when", ["noticed", "unnoticed"])
def test_a_process_that_lost_the_log_cannot_open_the_file_again(path: str, processes: Children, when: str) -> None:
    """Its SQLite would go on with the removed log and memory, where nobody else looks: `StorageLost` (§6, G11).

    A new process can.
    """
    with litequeue.open(path) as queue:
        queue.enqueue("first")
    said = processes.run(_lose_the_log_and_open_again, path, when)
    assert said == ["StorageLost"] * (4 if when == "noticed" else 3)
    with litequeue.open(path) as queue:
        queue.enqueue("after")
        assert [job.kind for job in queue.list()] == ["first", "after"]


def _replace_and_open_again(_parent: Parent, path: str) -> list[str]:
    queue = litequeue.open(path)
    for suffix in FILES:
        os.rename(path + suffix, f"{path}.old{suffix}")  # noqa: PTH104 - a path of text
    said = _told(lambda: void(queue.enqueue("work")))
    with litequeue.open(path) as new:
        new.enqueue("of the new file")
        return [said.split(":")[0], *(job.kind for job in new.list())]


def test_a_process_whose_file_was_replaced_can_open_the_new_one(path: str, processes: Children) -> None:
    """Another file is another matter: nothing of the old one is in its way (§6)."""
    assert processes.run(_replace_and_open_again, path) == ["StorageLost", "of the new file"]


def _connect(_parent: Parent, path: str) -> list[str]:
    """Try to open a file with `sqlite3` in all the ways there are to name it."""
    os.symlink(path, f"{path}.link")  # noqa: PTH211 - a path of text
    os.chdir(Path(path).parent)
    ways: list[str | bytes | Path] = [path, path.encode(), Path(path), f"{path}.link", Path(path).name]
    uris = [f"file:{path}", f"file://{path}?mode=ro", f"file:{Path(path).name}?mode=ro&cache=shared"]
    uris.append(f"file:{path.replace('a', '%61')}")

    def attempt(database: str | bytes | Path, *, uri: bool = False) -> str:
        try:
            sqlite3.connect(database, uri=uri).close()
        except UsageError as exc:
            return f"refused: {exc}"
        return "opened"

    return [*(attempt(way) for way in ways), *(attempt(uri, uri=True) for uri in uris)]


def _connect_to_an_open_queue(parent: Parent, path: str) -> list[str]:
    queue = litequeue.open(path)
    said = _connect(parent, path)
    queue.enqueue("work")
    queue.close()
    return [one.partition(":")[0] for one in said]


def test_sqlite3_is_refused_a_file_that_the_process_has_open(path: str, processes: Children) -> None:
    """However it is named; the queue works on as if nothing had been (DESIGN §3)."""
    assert processes.run(_connect_to_an_open_queue, path) == ["refused"] * 9
    with litequeue.open(path) as queue:
        assert queue.stats().total == 1


def _connect_elsewhere(parent: Parent, path: str) -> list[str]:
    with litequeue.open(f"{path}.other"):
        litequeue.open(path).close()
        said = _connect(parent, path)
        sqlite3.connect(":memory:").close()
        sqlite3.connect(f"{path}.new").close()
    return sorted(set(said))


def test_sqlite3_may_open_what_no_handle_of_the_process_is_on(path: str, processes: Children) -> None:
    """Another file, a queue that has been closed again, a database in memory (DESIGN §3)."""
    assert processes.run(_connect_elsewhere, path) == ["opened"]


def _write_with_sqlite3(_parent: Parent, path: str, times: int) -> None:
    for number in range(times):
        with contextlib.closing(sqlite3.connect(path, timeout=60)) as other, other:
            other.execute("INSERT INTO mine VALUES (?)", (number,))


def test_another_process_may_write_its_own_tables_with_sqlite3(path: str, processes: Children) -> None:
    """The hazard is within one process only; from another one `sqlite3` is a user like others (V14, DESIGN §3)."""
    with litequeue.open(path, durability="normal") as queue:
        with queue.transaction() as tx:
            tx.execute("CREATE TABLE mine (number INTEGER)")
        child = processes.start(_write_with_sqlite3, path, 50)
        count = 0
        while child.is_running() or not count:
            queue.enqueue("work")
            count += 1
        child.result()
        with queue.transaction() as tx:
            assert tx.execute("SELECT count(*) FROM mine") == [(50,)]
            assert tx.execute("PRAGMA integrity_check") == [("ok",)]
        assert queue.stats().total == count


def test_the_anchor_is_let_go_with_the_last_handle(path: str) -> None:
    """Then the last one out copies the log back and removes it, as ever; not before (DESIGN §3)."""
    first, second = litequeue.open(path), litequeue.open(path)
    first.close()
    assert Path(f"{path}-wal").exists()
    second.enqueue("work")
    second.close()
    assert not Path(f"{path}-wal").exists()


def _close_one_of_two(parent: Parent, path: str) -> None:
    """Close one of two handles, drop SQLite's own locks as an intruder does, and tell which ranges are locked still."""
    queue, closed = litequeue.open(path), litequeue.open(path)
    queue.enqueue("work")
    closed.close()
    locked = []
    for suffix, start, length in anchor._RANGES:
        os.close(os.open(path + suffix, os.O_RDWR))
        descriptor = os.open(path + suffix, os.O_RDWR)
        locked.append(ofd.is_locked(descriptor, start, length))
        os.close(descriptor)
    parent.result(locked)
    os._exit(0)


@pytest.mark.skipif(not ofd.HAS_LOCKS, reason="this platform has no such locks")
def test_the_anchor_is_held_again_when_another_handle_has_closed(path: str, processes: Children) -> None:
    """It is let go of for every closing; what is still open has to have it back (DESIGN §3)."""
    assert processes.run(_close_one_of_two, path) == [True, True]
