"""A restore: the content of a backup instead of a queue that nobody has open, and nothing else is ever touched."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import ANY, JobState, NewJob
from litequeue.sqlite import ofd
from litequeue.sqlite.examining import problems

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.faults import children


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """Give a backup of a queue of three jobs, one of them leased, and a table of the application's."""
    source = tmp_path / "source.queue"
    with litequeue.open(source, durability="normal") as queue:
        queue.enqueue_many(NewJob("kept", n) for n in range(3))
        queue.lease_many(1, ttl=86_400)
        with queue.transaction() as tx:
            tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
            tx.execute("INSERT INTO orders VALUES (7)")
        queue.backup(tmp_path / "app.backup")
    for left in tmp_path.glob("source.queue*"):
        left.unlink()
    return tmp_path / "app.backup"


@pytest.fixture
def old(path: Path) -> Path:
    """Give the path of a queue with other jobs, which nobody has open."""
    make_old(path)
    return path


def make_old(path: Path, jobs: int = 5) -> None:
    """Make a queue with other jobs."""
    with litequeue.open(path, durability="normal") as queue:
        queue.enqueue_many(NewJob("old", n) for n in range(jobs))


def kinds(path: Path) -> list[str]:
    """Return the kinds of all jobs, as whoever opens the file next sees them."""
    with litequeue.open(path, create=False) as queue:
        return [job.kind for job in queue.list(scope=ANY)]


def names(path: Path) -> list[str]:
    """Return what lies in the folder of a file."""
    return sorted(found.name for found in path.parent.iterdir())


def test_a_file_that_is_not_there_is_made(backup: Path, path: Path) -> None:
    """With the permissions asked for, and the application's tables in it (§9)."""
    copied = litequeue.restore(backup, path, mode=0o640)
    assert (copied.path, copied.jobs) == (str(path), 3)
    assert names(path) == ["app.backup", "app.queue", "app.queue-lock"]
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o777 == 0o640
    assert problems(str(path)) == []
    assert kinds(path) == ["kept"] * 3
    with litequeue.open(path) as queue, queue.transaction() as tx:
        assert tx.execute("SELECT id FROM orders") == [(7,)]


def test_a_queue_is_replaced_in_its_place(backup: Path, old: Path) -> None:
    """The same file, with other content; nothing is left beside it (§9)."""
    inode = old.stat().st_ino
    old.with_name("app.queue-done").touch()
    assert litequeue.restore(backup, old, overwrite=True).jobs == 3
    assert old.stat().st_ino == inode
    beside = ["app.queue-bell", "app.queue-done", "app.queue-lock"]
    assert names(old) == ["app.backup", "app.queue", *beside]
    assert problems(str(old)) == []
    assert kinds(old) == ["kept"] * 3


def test_all_leases_have_lapsed_after_a_restore(backup: Path, path: Path) -> None:
    """Their holders hold jobs of another file (§8, G5)."""
    litequeue.restore(backup, path)
    with litequeue.open(path) as queue:
        assert queue.stats().lapsed == 1
        assert queue.reap_expired() == 1
        assert queue.stats().counts[JobState.RETRYABLE] == 1


def test_jobs_are_overwritten_only_when_asked(
    backup: Path, old: Path, fingerprint: Callable[[], dict[str, str]]
) -> None:
    """The refusal says how many; a queue without jobs needs no asking (§9)."""
    before = fingerprint()
    with pytest.raises(litequeue.CannotOpen, match="it holds 5 jobs"):
        litequeue.restore(backup, old)
    assert fingerprint() == before
    with litequeue.open(old) as queue, queue.transaction() as tx:
        tx.execute("SELECT 1")
    empty = old.with_name("empty.queue")
    litequeue.open(empty).close()
    litequeue.restore(backup, empty)
    assert kinds(empty) == ["kept"] * 3


@pytest.mark.parametrize("content", [b"", b"SQLite"], ids=["zero bytes", "table-less"])
def test_an_empty_file_is_a_new_queue(backup: Path, path: Path, content: bytes) -> None:
    """As `open` takes it (§6)."""
    if content:
        connection = apsw.Connection(str(path))
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.close()
    else:
        path.touch()
    litequeue.restore(backup, path)
    assert kinds(path) == ["kept"] * 3


def test_a_queue_in_use_is_refused_also_when_the_handle_is_idle(backup: Path, old: Path) -> None:
    """Any handle, of this process as of others; it goes on as if nothing had happened (§9)."""
    with litequeue.open(old) as queue:
        with pytest.raises(litequeue.QueueBusy, match="in use"):
            litequeue.restore(backup, old, overwrite=True)
        queue.enqueue("old")
        assert len(queue.list()) == 6
    assert problems(str(old)) == []
    litequeue.restore(backup, old, overwrite=True)


def test_a_holder_without_a_connection_is_in_use_all_the_same(backup: Path, old: Path) -> None:
    """A fork closes the connections of its parent until the next verb; who has leased is known by its lock (§9)."""
    with litequeue.open(old) as queue:
        (lease,) = queue.lease_many(1)
        queue._store._handle.before_fork()
        queue._store._handle.after_fork_in_parent()
        with pytest.raises(litequeue.QueueBusy, match="in use"):
            litequeue.restore(backup, old, overwrite=True)
        lease.complete()


def test_a_handle_that_a_fork_has_disconnected_is_in_use_all_the_same(backup: Path, old: Path) -> None:
    """Between a fork and its next verb it has no connection, and has not leased: nothing may replace its jobs (§9)."""
    with litequeue.open(old) as queue:
        job_id = queue.enqueue("acknowledged").job_id
        queue._store._handle.before_fork()
        queue._store._handle.after_fork_in_parent()
        with pytest.raises(litequeue.QueueBusy, match="in use"):
            litequeue.restore(backup, old, overwrite=True)
        with litequeue.open(backup) as other, pytest.raises(litequeue.CannotOpen, match="in use"):
            other.backup(old, overwrite=True)
        assert queue.get(job_id).kind == "acknowledged"
    litequeue.restore(backup, old, overwrite=True)
    assert kinds(old) == ["kept"] * 3


def test_a_handle_meets_its_file_again_with_other_content_where_nobody_tells_who_is_there(
    backup: Path, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the same file, so it neither takes it for lost nor remembers what was in it (§9)."""
    monkeypatch.setattr(ofd, "HAS_LOCKS", False)
    with litequeue.open(old) as queue:
        queue.set("max_attempts", 9)
        queue._store._handle.before_fork()
        queue._store._handle.after_fork_in_parent()
        litequeue.restore(backup, old, overwrite=True)
        assert [job.kind for job in queue.list()] == ["kept"] * 3
        assert queue.settings()["max_attempts"] == 5
        queue.enqueue("more")
    assert problems(str(old)) == []


@pytest.mark.slow
def test_a_queue_in_use_by_another_process_is_refused(processes: children.Children, backup: Path, old: Path) -> None:
    """Its idle handle is enough; when that process is killed, the way is free (§9)."""
    child = processes.start(sit_on, str(old))
    assert child.hear() == "open"
    with pytest.raises(litequeue.QueueBusy, match="in use"):
        litequeue.restore(backup, old, overwrite=True)
    child.kill()
    litequeue.restore(backup, old, overwrite=True)
    assert kinds(old) == ["kept"] * 3


def sit_on(parent: children.Parent, path: str) -> None:
    """Open a queue and do nothing."""
    with litequeue.open(path) as queue:
        queue.enqueue("old")
        parent.say("open")
        parent.hear()


def test_a_crashed_queue_is_replaced_and_its_log_with_it(tmp_path: Path, backup: Path, old: Path) -> None:
    """A log that the crashed program has left is never played into the new content (G2)."""
    crashed = tmp_path / "crashed.queue"
    crash_into(old, crashed)
    litequeue.restore(backup, crashed, overwrite=True)
    assert not crashed.with_name("crashed.queue-wal").exists()
    assert problems(str(crashed)) == []
    assert kinds(crashed) == ["kept"] * 3


def crash_into(old: Path, crashed: Path) -> None:
    """Copy a queue file with the log of a commit that has not been copied back, as a crash leaves them."""
    connection = apsw.Connection(str(old))
    connection.execute("UPDATE litequeue_job SET kind = 'logged'")
    copies = {suffix: old.with_name(old.name + suffix).read_bytes() for suffix in ("", "-wal")}
    connection.close()
    for suffix, data in copies.items():
        crashed.with_name(crashed.name + suffix).write_bytes(data)


def test_a_raw_copy_is_restored_with_its_log(tmp_path: Path, old: Path, path: Path) -> None:
    """What was committed counts, whether it had been copied back or not; the copy stays as it was (G2)."""
    raw, new = tmp_path / "raw.copy", tmp_path / "new.queue"
    crash_into(old, raw)
    before = {suffix: raw.with_name(raw.name + suffix).read_bytes() for suffix in ("", "-wal")}
    litequeue.restore(raw, new)
    assert kinds(new) == ["logged"] * 5
    assert {suffix: raw.with_name(raw.name + suffix).read_bytes() for suffix in ("", "-wal")} == before
    assert path.exists()


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_log_without_its_file_is_refused(backup: Path, path: Path, suffix: str) -> None:
    """Of a queue that somebody has removed: SQLite would play it into the new one (G2)."""
    path.with_name(path.name + suffix).write_bytes(b"stale")
    before = names(path)
    with pytest.raises(litequeue.CannotOpen, match=f"app.queue{suffix} lies there"):
        litequeue.restore(backup, path)
    assert names(path) == before


def truncate(backup: Path) -> None:
    """Cut a backup in half."""
    os.truncate(backup, backup.stat().st_size // 2)


def flip(backup: Path) -> None:
    """Break an index of a backup, which opening it does not notice."""
    connection = apsw.Connection(str(backup))
    sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'litequeue_job_ready'"
    page = int(str(connection.execute(sql).fetchall()[0][0]))
    connection.close()
    data = bytearray(backup.read_bytes())
    data[(page - 1) * 2048 : page * 2048] = b"\xff" * 2048
    backup.write_bytes(data)


def alter(backup: Path) -> None:
    """Change the version of a backup."""
    connection = apsw.Connection(str(backup))
    connection.execute("UPDATE litequeue_meta SET schema_version = 99")
    connection.close()


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda backup: backup.write_bytes(b""), litequeue.NotAQueue),
        (lambda backup: backup.write_bytes(b"hello" * 1000), litequeue.NotAQueue),
        (lambda backup: backup.unlink(), litequeue.CannotOpen),
        (truncate, litequeue.StorageCorrupt),
        (flip, litequeue.StorageCorrupt),
        (alter, litequeue.SchemaMismatch),
    ],
    ids=["empty", "text", "absent", "truncated", "flipped", "newer"],
)
@pytest.mark.parametrize("exists", [True, False])
def test_what_is_no_sound_backup_is_refused_and_nothing_is_touched(  # noqa: PLR0917 - fixtures and parameters
    backup: Path,
    path: Path,
    fingerprint: Callable[[], dict[str, str]],
    spoil: Callable[[Path], object],
    error: type[Exception],
    exists: bool,
) -> None:
    """The target stays as it was, or absent (§6)."""
    if exists:
        make_old(path)
    spoil(backup)
    before = fingerprint()
    with pytest.raises(error):
        litequeue.restore(backup, path, overwrite=True)
    assert fingerprint() == before


def make_foreign(path: Path) -> None:
    """Make another application's file."""
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE invoices (id)")
    connection.close()


def make_newer(path: Path) -> None:
    """Make a queue of another version."""
    make_old(path)
    alter(path)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (make_foreign, litequeue.NotAQueue),
        (lambda path: path.write_text("hello" * 1000), litequeue.NotAQueue),
        (lambda path: path.mkdir(), litequeue.CannotOpen),
        (make_newer, litequeue.SchemaMismatch),
    ],
    ids=["foreign", "text", "folder", "newer"],
)
def test_what_is_not_this_queue_is_never_overwritten(
    backup: Path,
    path: Path,
    fingerprint: Callable[[], dict[str, str]],
    make: Callable[[Path], object],
    error: type[Exception],
) -> None:
    """Whatever was asked for: somebody has to move it away (§6)."""
    make(path)
    before = fingerprint()
    with pytest.raises(error):
        litequeue.restore(backup, path, overwrite=True)
    assert fingerprint() == before


def test_a_file_is_not_restored_to_itself(old: Path, tmp_path: Path) -> None:
    """By any name, nor is what lies beside it (§6)."""
    (tmp_path / "link").symlink_to(old)
    beside = old.with_name(f"{old.name}-done")
    beside.touch()
    for source in (old, tmp_path / "link", beside):
        with pytest.raises(litequeue.CannotOpen, match="the very file"):
            litequeue.restore(source, old, overwrite=True)
    assert kinds(old) == ["old"] * 5


@pytest.mark.parametrize("jobs", [1, 3000])
def test_sizes_and_pages_may_differ(tmp_path: Path, path: Path, jobs: int) -> None:
    """The content of a file with larger pages, over one that is larger or smaller (§9)."""
    other = tmp_path / "other.queue"
    connection = apsw.Connection(str(other))
    connection.execute("PRAGMA page_size = 8192").fetchall()
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    with pytest.raises(litequeue.NotAQueue):
        litequeue.open(other)
    connection.execute("DROP TABLE orders")
    connection.close()
    make_old(other, 300)
    make_old(path, jobs)
    litequeue.restore(other, path, overwrite=True)
    assert problems(str(path)) == []
    with litequeue.open(path) as queue:
        assert queue.stats().total == 300


@pytest.mark.skipif(sys.platform == "win32", reason="links")
def test_a_link_is_followed_to_the_queue(backup: Path, old: Path, tmp_path: Path) -> None:
    """As `open` does: the link stays a link."""
    (tmp_path / "link").symlink_to(old)
    litequeue.restore(backup, tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert kinds(old) == ["kept"] * 3


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a limit that POSIX has")
@pytest.mark.parametrize(("jobs_there", "jobs_in_backup", "share"), [(5, 3000, 0.5), (3000, 300, 1.0)])
def test_no_room_leaves_the_old_queue(
    processes: children.Children, path: Path, jobs_there: int, jobs_in_backup: int, share: float
) -> None:
    """While the backup is copied as well as while the target is overwritten, for which it needs a journal (§6, G2)."""
    backup = path.with_name("other.queue")
    make_old(path, jobs_there)
    make_old(backup, jobs_in_backup)
    before = names(path)
    assert processes.run(restore_without_room, str(backup), str(path), share) == "CannotOpen"
    assert names(path) == before
    assert problems(str(path)) == []
    with litequeue.open(path) as queue:
        assert queue.stats().total == jobs_there


def restore_without_room(_parent: children.Parent, source: str, path: str, share: float) -> str:
    """Restore where no file may grow beyond so many times the backup, in a process of its own."""
    import resource  # noqa: PLC0415 - POSIX only
    import signal  # noqa: PLC0415 - POSIX only

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = os.stat(source).st_size  # noqa: PTH116 - a path as text
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size * share), resource.RLIM_INFINITY))
    try:
        litequeue.restore(source, path, overwrite=True)
    except litequeue.LiteQueueError as exc:
        return type(exc).__name__
    return "nothing"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_damaged_target_is_replaced_or_named_whatever_page_is_damaged(
    backup: Path, path: Path, *, overwrite: bool
) -> None:
    """The very case that one restores for: an error of the tree that says what to do, or the backup's content (§6)."""
    make_old(path, jobs=200)
    whole = path.read_bytes()
    outcomes = set()
    for start in range(0, len(whole), 2048):
        path.write_bytes(whole[:start] + b"X" * 2048 + whole[start + 2048 :])
        try:
            litequeue.restore(backup, path, overwrite=overwrite)
        except litequeue.StorageCorrupt as exc:
            outcomes.add("damaged" if "move it away" in "".join(exc.__notes__) else f"no way out: {exc}")
        except (litequeue.CannotOpen, litequeue.NotAQueue, litequeue.SchemaMismatch) as exc:
            outcomes.add(type(exc).__name__)
        else:
            assert kinds(path) == ["kept"] * 3
            outcomes.add("restored")
        for left in path.parent.glob(f"{path.name}-*"):
            left.unlink()
    assert ("restored" in outcomes) == overwrite
    assert "damaged" in outcomes
    assert not any(outcome.startswith("no way out") for outcome in outcomes)
