"""Logs and journals that do not belong to their file, and files that end too early (§6 "a corrupt or truncated file").

What stands in a log cannot be told from the file's own by anybody, as SQLite names no file in it: so it works, or it is
a named error, and the file that is refused stays as it was.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest
from click.testing import CliRunner

import litequeue
from litequeue import ANY, LiteQueueError, NewJob, NotAQueue, StorageCorrupt
from litequeue.cli import litequeue as command

if TYPE_CHECKING:
    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow

PAGE_BYTES = 2048


def _work_and_die(_parent: Parent, path: str, kind: str, jobs: int) -> None:
    """Enqueue, lease and complete, and leave it all in the log, as `kill -9` does."""
    queue = litequeue.open(path, durability="normal")
    queue.enqueue_many(NewJob(kind, "x" * 200) for _ in range(jobs))
    for lease in queue.lease_many(jobs // 3):
        lease.complete("done")
    os.kill(os.getpid(), signal.SIGKILL)


def _use(path: str) -> str:
    """Use a file in every way; return what came of opening it. What is not an error of the package is raised."""
    try:
        queue = litequeue.open(path, create=False)
    except LiteQueueError as exc:
        _command(path, "stats")
        return type(exc).__name__
    uses = (
        lambda: queue.enqueue("new"),
        lambda: queue.list(scope=ANY, limit=1000),
        lambda: queue.stats(scope=ANY),
        lambda: queue.complete_many(queue.lease_many(1000)),
        queue.prune,
        queue.close,
    )
    for use in uses:
        try:
            use()
        except LiteQueueError:
            continue
    _command(path, "jobs ls --all-scopes")
    return "opened"


def _command(path: str, words: str) -> None:
    result = CliRunner().invoke(command, ["--db", path, *words.split()])
    assert result.exit_code in (0, 1), result
    assert result.exception is None or isinstance(result.exception, SystemExit), result


def _killed(processes: Children, path: str, kind: str, jobs: int) -> None:
    assert processes.start(_work_and_die, path, kind, jobs).status() == -signal.SIGKILL


def test_a_log_of_another_queue_is_a_named_error_or_works(path: str, processes: Children) -> None:
    """It is the log of a queue, so it may be played; whatever comes of it has a name (§6)."""
    other = f"{path}.other"
    _killed(processes, path, "mine", 100)
    _killed(processes, other, "theirs", 300)
    shutil.copy(f"{other}-wal", f"{path}-wal")
    Path(f"{path}-shm").unlink()
    _use(path)
    before = Path(f"{other}-wal").read_bytes()
    assert _use(other) == "opened"
    assert before
    assert litequeue.open(other).stats().total == 301


def test_an_older_log_of_the_same_file_is_a_named_error_or_works(path: str, processes: Children) -> None:
    """A backup of the file that was put back without its own log meets the log of another day (§6)."""
    _killed(processes, path, "early", 100)
    shutil.copy(f"{path}-wal", f"{path}.older")
    for _ in range(2):
        with litequeue.open(path) as queue:
            queue.enqueue_many(NewJob("late", "y" * 300) for _ in range(200))
            queue.complete_many(queue.lease_many(150))
    shutil.copy(f"{path}.older", f"{path}-wal")
    _use(path)


@pytest.mark.parametrize("start", range(6))
def test_a_log_that_ends_too_early_loses_no_more_than_its_end(path: str, processes: Children, start: int) -> None:
    """At every length it is what was committed up to there: a queue, or a file that was not one yet (G2, §6)."""
    _killed(processes, path, "work", 30)
    whole = {suffix: Path(path + suffix).read_bytes() for suffix in ("", "-wal")}
    frame = 24 + PAGE_BYTES
    lengths = [0, 1, 31, 32, 33, 500, 1000]
    lengths += [32 + at * frame + odd for at in range(len(whole["-wal"]) // frame) for odd in (0, 1, 24, frame - 1)]
    totals = []
    for length in lengths[start::6]:
        for suffix in ("", "-wal", "-shm"):
            Path(path + suffix).unlink(missing_ok=True)
        Path(path).write_bytes(whole[""])
        Path(f"{path}-wal").write_bytes(whole["-wal"][:length])
        try:
            with litequeue.open(path, create=False) as queue:
                totals.append(queue.stats().total)
                queue.complete_many(queue.lease_many(1000))
        except (NotAQueue, StorageCorrupt):
            totals.append(0)
    assert totals == sorted(totals)
    assert set(totals) <= {0, 30}


@pytest.mark.parametrize("length", [0, *range(1, 1001, 111), PAGE_BYTES - 1])
def test_a_file_of_a_few_bytes_is_refused(path: str, length: int) -> None:
    """Up to its first page a file that was a queue is `NotAQueue` or `StorageCorrupt`, and it stays as it is (§6)."""
    litequeue.open(path).close()
    stump = Path(path).read_bytes()[:length]
    Path(path).write_bytes(stump)
    with pytest.raises((NotAQueue, StorageCorrupt)):
        litequeue.open(path, create=False)
    assert Path(path).read_bytes() == stump
    _command(path, "stats")
    assert Path(path).read_bytes() == stump


def test_a_file_cut_at_any_page_is_corrupt_and_not_written_to(path: str) -> None:
    """One that ends too early is refused at its opening, at whatever page (§6)."""
    with litequeue.open(path) as queue:
        queue.enqueue_many(NewJob("work", "x" * 500) for _ in range(100))
    whole = Path(path).read_bytes()
    for pages in range(1, len(whole) // PAGE_BYTES):
        for odd in (0, 1, 1000):
            cut = whole[: pages * PAGE_BYTES + odd]
            Path(path).write_bytes(cut)
            with pytest.raises(StorageCorrupt):
                litequeue.open(path)
            assert Path(path).read_bytes() == cut
            assert not Path(f"{path}-wal").exists()


def test_an_emptied_file_does_not_take_its_log_along(path: str, processes: Children) -> None:
    """SQLite would throw the log away; the jobs in it are all that is left (G2, §6)."""
    _killed(processes, path, "work", 30)
    Path(path).write_bytes(b"")
    log = Path(f"{path}-wal").read_bytes()
    for create in (True, False):
        with pytest.raises(StorageCorrupt, match="its write-ahead log is not"):
            litequeue.open(path, create=create)
    _command(path, "stats")
    _command(path, "enqueue work")
    assert Path(path).read_bytes() == b""
    assert Path(f"{path}-wal").read_bytes() == log


def _die_in_a_rollback_journal(_parent: Parent, path: str) -> None:
    """Die with a journal that has to be played back: another application's, on a database of its own."""
    connection = apsw.Connection(path)
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, entry TEXT)")
    connection.execute("INSERT INTO orders (entry) VALUES ('first')")
    connection.execute("PRAGMA cache_size = 2").fetchall()
    connection.execute("PRAGMA cache_spill = 1").fetchall()
    connection.execute("BEGIN IMMEDIATE")
    for number in range(500):
        connection.execute("INSERT INTO orders (entry) VALUES (?)", (f"{number}" * 200,))
    os.kill(os.getpid(), signal.SIGKILL)


def test_another_databases_journal_beside_a_queue_is_a_named_error_or_works(path: str, processes: Children) -> None:
    """SQLite plays a hot journal back into whatever file it lies beside; what comes of it has a name (§6)."""
    other = f"{path}.other"
    assert processes.start(_die_in_a_rollback_journal, other).status() == -signal.SIGKILL
    assert Path(f"{other}-journal").stat().st_size > 0
    with litequeue.open(path) as queue:
        queue.enqueue_many(NewJob("work", "x" * 500) for _ in range(100))
    shutil.copy(f"{other}-journal", f"{path}-journal")
    _use(path)


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"not a journal\n" * 100, os.urandom(3000)])
def test_what_is_no_journal_is_in_nobodys_way(path: str, content: bytes) -> None:
    """Rubbish by the name of a journal loses nothing of the queue (G2)."""
    with litequeue.open(path) as queue:
        queue.enqueue_many(NewJob("work", "x" * 500) for _ in range(10))
    Path(f"{path}-journal").write_bytes(content)
    with litequeue.open(path, create=False) as queue:
        assert queue.stats().total == 10


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"not a log\n" * 100, os.urandom(3000)])
@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_what_is_no_log_and_no_shared_memory_is_in_nobodys_way(path: str, suffix: str, content: bytes) -> None:
    """Rubbish by these names, which belong to the queue, loses nothing of it (G2)."""
    with litequeue.open(path) as queue:
        queue.enqueue_many(NewJob("work", "x" * 500) for _ in range(10))
    Path(path + suffix).write_bytes(content)
    with litequeue.open(path, create=False) as queue:
        assert queue.stats().total == 10
        assert len(queue.lease_many(20)) == 10
