"""A backup: one moment of a file in use, whole at its place or not there, and fit to be opened."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import ANY, JobState, NewJob
from litequeue.sqlite import copying
from litequeue.sqlite.examining import problems
from litequeue.sqlite.place import SIDECARS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litequeue import Queue
    from tests.faults import children

MANY = 2000


@pytest.fixture
def queue(path: Path) -> Iterator[Queue]:
    """Give a handle on a queue with jobs of many pages."""
    with litequeue.open(path, durability="normal") as opened:
        opened.enqueue_many(NewJob("work", n) for n in range(MANY))
        yield opened


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Give the path of a backup that does not exist yet, in a folder of its own."""
    folder = tmp_path / "backups"
    folder.mkdir()
    return folder / "app.backup"


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a copy take many steps."""
    monkeypatch.setattr(copying, "_STEP_PAGES", 10)


def ids(queue: Queue) -> set[object]:
    """Return the ids of all jobs."""
    return {job.job_id for job in queue.list(scope=ANY, limit=10_000)}


def alone(target: Path) -> None:
    """Make sure that nothing lies beside a backup."""
    assert [found.name for found in target.parent.iterdir()] == [target.name]


def test_a_backup_is_a_queue_with_the_same_jobs(queue: Queue, target: Path) -> None:
    """Jobs, settings and states, in a file with nothing beside it (V13)."""
    (lease,) = queue.lease_many(1)
    lease.complete({"a": 1})
    queue.set("max_attempts", 7)
    copied = queue.backup(target)
    assert (copied.path, copied.jobs, copied.file_bytes) == (str(target), MANY, target.stat().st_size)
    alone(target)
    assert problems(str(target)) == []
    with litequeue.open(target, create=False) as copy:
        assert ids(copy) == ids(queue)
        assert copy.settings() == queue.settings()
        assert copy.get(lease.job_id).result == {"a": 1}


@pytest.mark.usefixtures("small_steps")
def test_a_backup_is_one_moment_however_much_is_written_meanwhile(queue: Queue, target: Path) -> None:
    """Every step of the copy is followed by a commit, and none of them is in it, nor begins it again (V13)."""
    with queue.transaction() as tx:
        tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    steps = []

    def write(done: int, total: int) -> None:
        steps.append((done, total))
        with queue.transaction() as tx:
            tx.execute("INSERT INTO orders DEFAULT VALUES")
            tx.enqueue("late")

    before = ids(queue)
    queue.backup(target, progress=write)
    assert len(steps) > 10
    assert steps[-1][0] == steps[-1][1] == steps[0][1]
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    with litequeue.open(target) as copy:
        assert ids(copy) == before
        with copy.transaction() as tx:
            assert tx.execute("SELECT count(*) FROM orders") == [(0,)]
    assert len(ids(queue)) == MANY + len(steps)
    assert problems(queue.path) == []


def test_leases_in_a_backup_have_lapsed_when_it_is_opened(queue: Queue, target: Path) -> None:
    """They belong to holders of another file; those of the original go on (§8, G5)."""
    (lease,) = queue.lease_many(1, ttl=86_400)
    queue.backup(target)
    with litequeue.open(target) as copy:
        assert copy.stats().lapsed == 1
        assert copy.reap_expired() == 1
        assert copy.get(lease.job_id).state is JobState.RETRYABLE
    assert queue.stats().lapsed == 0
    lease.complete()


@pytest.mark.usefixtures("small_steps")
def test_the_other_verbs_go_on_while_a_copy_is_made(queue: Queue, target: Path) -> None:
    """Reading and leasing on the same handle wait for nothing (V13)."""
    done = []

    def work(_done: int, _total: int) -> None:
        (lease,) = queue.lease_many(1)
        lease.complete()
        done.append(queue.get(lease.job_id).state)

    queue.backup(target, progress=work)
    assert set(done) == {JobState.COMPLETED}


def test_a_file_that_exists_is_replaced_only_when_asked(queue: Queue, target: Path) -> None:
    """And is what it was until the copy is there (§6)."""
    target.write_text("precious")
    with pytest.raises(litequeue.CannotOpen, match="it exists already"):
        queue.backup(target)
    assert target.read_text() == "precious"
    queue.backup(target, overwrite=True)
    alone(target)
    with litequeue.open(target) as copy:
        assert ids(copy) == ids(queue)


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_queue_itself_is_never_the_target(queue: Queue, tmp_path: Path, path: Path, overwrite: bool) -> None:
    """By its name, a link, another name of the same file, or the name of a file beside it (§6)."""
    (tmp_path / "link").symlink_to(path)
    os.link(path, tmp_path / "hard")
    beside = [f"app.queue{suffix}" for suffix in SIDECARS]
    for name in ("app.queue", "link", "hard", *beside, "../" + tmp_path.name + "/app.queue"):
        with pytest.raises(litequeue.CannotOpen, match=r"the queue itself|exists already|SQLite's logs"):
            queue.backup(tmp_path / name, overwrite=overwrite)
    assert len(ids(queue)) == MANY


def test_another_queue_in_use_is_never_the_target(queue: Queue, target: Path) -> None:
    """A rename would take its file away from under it, and leave its log to the copy (§6)."""
    with litequeue.open(target) as other:
        other.enqueue("mine")
        with pytest.raises(litequeue.CannotOpen, match="in use by this name"):
            queue.backup(target, overwrite=True)
        assert len(ids(other)) == 1
    queue.backup(target, overwrite=True)


def test_a_stale_log_at_the_target_is_refused(queue: Queue, target: Path) -> None:
    """SQLite would take it for the copy's (§6)."""
    target.with_name("app.backup-wal").write_bytes(b"stale")
    with pytest.raises(litequeue.CannotOpen, match="backup-wal lies there"):
        queue.backup(target)
    assert not target.exists()


@pytest.mark.parametrize("where", ["absent/app.backup", "file/app.backup", "."])
def test_a_place_where_nothing_can_be_is_refused(queue: Queue, tmp_path: Path, where: str) -> None:
    """With the reason; nothing is left behind (§6)."""
    (tmp_path / "file").touch()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(litequeue.CannotOpen):
        queue.backup(tmp_path / where, overwrite=True)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_a_backup_has_the_permissions_of_the_queue(tmp_path: Path, target: Path) -> None:
    """Not those of the umask: it holds the same payloads (§6)."""
    with litequeue.open(tmp_path / "open.queue", mode=0o640) as queue:
        queue.backup(target)
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_damaged_queue_is_not_backed_up(path: Path, target: Path) -> None:
    """A copy would look like a backup and be none (§6)."""
    with litequeue.open(path) as queue:
        queue.enqueue_many(NewJob("work", n) for n in range(MANY))
    connection = apsw.Connection(str(path))
    ((start, page_bytes),) = connection.execute(
        "SELECT (rootpage - 1) * page_size, page_size FROM sqlite_schema, pragma_page_size"
        " WHERE name = 'litequeue_job_ready'"
    ).fetchall()
    connection.close()
    data = bytearray(path.read_bytes())
    assert isinstance(start, int)
    assert isinstance(page_bytes, int)
    data[start : start + page_bytes] = b"\xff" * page_bytes
    path.write_bytes(data)
    with litequeue.open(path) as queue, pytest.raises(litequeue.StorageCorrupt, match="damaged"):
        queue.backup(target)
    assert list(target.parent.iterdir()) == []


def test_a_handle_whose_file_was_replaced_backs_up_nothing(queue: Queue, path: Path, target: Path) -> None:
    """What lies at the path is another file (§6)."""
    path.rename(path.with_name("away"))
    path.write_bytes(b"")
    with pytest.raises(litequeue.StorageLost):
        queue.backup(target)
    assert list(target.parent.iterdir()) == []


def test_a_backup_inside_a_transaction_is_refused(queue: Queue, target: Path) -> None:
    """It would not hold what the transaction has written (§4)."""
    with queue.transaction(), pytest.raises(litequeue.UsageError, match="inside it"):
        queue.backup(target)


def test_an_unfinished_copy_is_no_queue(queue: Queue, path: Path) -> None:
    """Neither to be opened nor to be made, whatever it holds (§6)."""
    copied = queue.backup(path.with_name("whole"))
    unfinished = path.with_name(".whole.0123abcd.litequeue-partial")
    Path(copied.path).rename(unfinished)
    with pytest.raises(litequeue.CannotOpen, match="unfinished"):
        litequeue.open(unfinished)
    with pytest.raises(litequeue.CannotOpen, match="unfinished"):
        queue.backup(unfinished, overwrite=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a limit that POSIX has")
def test_no_room_is_one_error_and_leaves_nothing(processes: children.Children, queue: Queue, target: Path) -> None:
    """Neither a part of a copy nor a change to what was there (§6)."""
    target.write_text("precious")
    assert processes.run(back_up_without_room, queue.path, str(target)) == "CannotOpen"
    assert target.read_text() == "precious"
    alone(target)


def back_up_without_room(_parent: children.Parent, path: str, target: str) -> str:
    """Back up where no file may grow beyond a fifth of the queue, in a process of its own."""
    import resource  # noqa: PLC0415 - POSIX only
    import signal  # noqa: PLC0415 - POSIX only

    with litequeue.open(path) as queue:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (Path(path).stat().st_size // 5, resource.RLIM_INFINITY))
        try:
            queue.backup(target, overwrite=True)
        except litequeue.LiteQueueError as exc:
            return type(exc).__name__
    return "nothing"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX forks")
def test_a_fork_in_the_middle_of_a_copy_does_not_harm_it(
    processes: children.Children, queue: Queue, target: Path
) -> None:
    """The child neither goes on with it nor takes it back, however it ends (DESIGN §3)."""
    assert processes.run(back_up_and_fork, queue.path, str(target)) == MANY
    alone(target)
    assert problems(str(target)) == []


def back_up_and_fork(parent: children.Parent, path: str, target: str) -> int:
    """Fork at a step of the copy; the child unwinds everything that it inherited."""
    copying._STEP_PAGES = 10
    forks: list[int] = []

    class Unwound(BaseException):
        pass

    def fork(_done: int, _total: int) -> None:
        if len(forks) < 2:
            forks.append(os.fork())
            if forks[-1] == 0:
                raise Unwound

    with litequeue.open(path) as queue:
        try:
            copied = queue.backup(target, progress=fork)
        except Unwound:
            os._exit(0)
    parent.join(*forks)
    return copied.jobs


def contents(path: Path) -> dict[str, list[object]]:
    """Return every row of every table but what a copy leaves behind: the boot, and who holds leases here."""
    connection = apsw.Connection(str(path))
    try:
        names = [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        left_behind = {"litequeue_host", "litequeue_holder", "sqlite_sequence"}
        return {
            name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
            for name in names
            if name not in left_behind
        }
    finally:
        connection.close()


@pytest.mark.parametrize("is_restored", [False, True])
def test_nothing_is_left_out_of_a_copy(path: Path, target: Path, *, is_restored: bool) -> None:
    """Results, checkpoints, kept triggers, schedules, messages, settings, the application's own rows: all (V13)."""
    with litequeue.open(path) as queue:
        queue.schedule("tick", "@every 5m", "work", "tock")
        queue.set("lease_ttl", 7)
        queue.set("max_attempts", 3, kind="mail:")
        queue.set("concurrency", 9, scope=ANY)
        queue.set("rate", "9/1s")
        queue.pause("nothing")
        queue.set_weight("default", 9)
        queue.enqueue_many(NewJob("work", n, idempotency_key=str(n)) for n in range(4))
        done, failed, held, _ = queue.lease_many(4, scope=ANY)
        done.complete("result")
        failed.fail("boom", retryable=False)
        held.checkpoint(b"half", 0.5, "note")
        queue.enqueue("work", "again", idempotency_key="2", on_conflict="reset")
        queue.put_message("mail", "first", key="one")
        late = queue.enqueue("work", delay=60).job_id
        queue.enqueue_many(NewJob("work", after=[late], priority=9) for _ in range(200))
        queue.cancel(late)
        with queue.transaction() as tx:
            tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
            tx.execute("INSERT INTO orders VALUES (7)")
        queue.backup(target)
        queue._store.holdings.leases.clear()  # the leases stay in the file, to be compared
    expected = contents(path)
    assert all(expected.values()), "a row in each table"
    if is_restored:
        litequeue.restore(target, path.with_name("restored.queue"))
        assert contents(path.with_name("restored.queue")) == expected
    else:
        assert contents(target) == expected
