"""A queue file is made once, whole or not at all, whoever dies or comes at the same time."""

from __future__ import annotations

import itertools
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import apsw
import pytest

import litequeue
from litequeue import CannotOpen, JobState

if TYPE_CHECKING:
    from tests.faults.children import Children, Parent


class Disk(apsw.VFS):
    """The ordinary file system, under which the process dies at its n-th write or sync."""

    def __init__(self) -> None:
        self.left: int | None = None
        super().__init__("deadly", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - apsw's name
        """Open a file of ours."""
        return File(self, name, flags)

    def step(self) -> None:
        """Let an operation pass, or die."""
        if self.left is not None:
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1


class File(apsw.VFSFile):
    """A file at whose writes and syncs the process may die."""

    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - apsw's name
        """Write."""
        self._disk.step()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - apsw's name
        """Sync."""
        self._disk.step()
        super().xSync(flags)


def _die_at_each_write(_parent: Parent, path: str) -> int:
    """Create a queue in a fork that dies at its n-th write or sync, and then open what it left; count both ends."""
    disk = Disk()
    for nth in itertools.count():
        place = f"{path}{nth}"
        pid = os.fork()
        if pid == 0:
            disk.left = nth
            litequeue.open(place)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status in (0, -signal.SIGKILL)
        with litequeue.open(place) as queue:
            queue.enqueue("work")
            lease = queue.lease_next()
            assert lease is not None
            lease.complete()
        with litequeue.open(place, create=False) as queue:
            assert queue.stats().counts[JobState.COMPLETED] == 1
            with queue.transaction() as tx:
                assert tx.execute("PRAGMA integrity_check") == [("ok",)]
        if status == 0:
            return nth
    raise AssertionError


@pytest.mark.slow
def test_a_creator_that_dies_at_any_write_leaves_a_file_that_is_simply_made_again(
    path: Path, processes: Children
) -> None:
    """Killed at each of its writes and syncs, a creator leaves nothing half made (issue: "The file")."""
    deaths = processes.run(_die_at_each_write, str(path))
    assert isinstance(deaths, int)
    assert deaths > 20, "it was killed at many points"


def _die_at_statement(nth: int) -> None:
    """Let this process die at the n-th statement of its next connections."""
    left = nth

    def trace(_event: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    apsw.connection_hooks.append(lambda connection: connection.trace_v2(apsw.SQLITE_TRACE_STMT, trace))


def _die_at_each_statement(_parent: Parent, path: str) -> int:
    """Create a queue in a fork that dies at its n-th statement, and open what it left, by another creator."""
    for nth in itertools.count(1):
        place = f"{path}{nth}"
        pid = os.fork()
        if pid == 0:
            _die_at_statement(nth)
            litequeue.open(place)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with litequeue.open(place) as queue:
            queue.enqueue("work")
            assert queue.stats().total == 1
        if status == 0:
            return nth
    raise AssertionError


@pytest.mark.slow
def test_a_creator_that_dies_at_any_statement_leaves_a_file_that_is_simply_made_again(
    path: Path, processes: Children
) -> None:
    """The same, at the beginning of each statement (issue: "The file")."""
    deaths = processes.run(_die_at_each_statement, str(path))
    assert isinstance(deaths, int)
    assert deaths > 20, "it was killed at many points"


def _create_and_enqueue(parent: Parent, path: str, rounds: int) -> None:
    """Open a file that does not exist yet, at the same time as others, and enqueue."""
    parent.say("ready")
    for number in range(rounds):
        parent.hear()
        with litequeue.open(f"{path}{number}") as queue:
            queue.enqueue("work")
        parent.say("done")


@pytest.mark.slow
def test_eight_processes_that_create_a_file_at_once_get_one_queue(path: Path, processes: Children) -> None:
    """Each of eight simultaneous creators works in the one queue that came of it (issue: "The file", G2)."""
    rounds = 12
    creators = [processes.start(_create_and_enqueue, str(path), rounds) for _ in range(8)]
    for creator in creators:
        assert creator.hear() == "ready"
    for number in range(rounds):
        for creator in creators:
            creator.say("create")
        for creator in creators:
            assert creator.hear() == "done"
        with litequeue.open(f"{path}{number}", create=False) as queue:
            assert queue.stats().total == 8
    for creator in creators:
        creator.result()


def test_a_new_file_has_the_marks_of_a_queue(path: Path) -> None:
    """A file of our own has application id, page size, incremental vacuum and WAL mode (DESIGN §2)."""
    with litequeue.open(path) as queue, queue.transaction() as tx:
        tx.enqueue("work")
        connection = apsw.Connection(str(path))
        found = {
            name: connection.execute(f"PRAGMA {name}").fetchall()[0][0]
            for name in ("application_id", "page_size", "auto_vacuum", "journal_mode", "encoding")
        }
        connection.close()
    assert found == {
        "application_id": int.from_bytes(b"lQue"),
        "page_size": 2048,
        "auto_vacuum": 2,
        "journal_mode": "wal",
        "encoding": "UTF-8",
    }


@pytest.mark.parametrize("durability", ["full", "enqueue", "normal"])
def test_the_schema_is_created_under_full_in_one_transaction(
    path: Path, durability: Literal["full", "enqueue", "normal"]
) -> None:
    """Whatever the mode, the tables come in one synced transaction (§7)."""
    synced: list[tuple[str, object]] = []

    def watch(connection: apsw.Connection) -> None:
        def trace(event: dict[str, str]) -> None:
            word = re.match(r"BEGIN|COMMIT", event["sql"]) or re.search(r"CREATE(?= .*litequeue_)", event["sql"])
            if word:
                synced.append((word[0], connection.pragma("synchronous")))

        if connection.filename:  # the schema that is expected is made in memory, once a process
            connection.trace_v2(apsw.SQLITE_TRACE_STMT, trace)

    apsw.connection_hooks.append(watch)
    try:
        litequeue.open(path, durability=durability).close()
    finally:
        apsw.connection_hooks.remove(watch)
    creating = [index for index, (word, _) in enumerate(synced) if word == "CREATE"]
    assert len(creating) > 10
    first, last = creating[0], creating[-1]
    assert [word for word, _ in synced[first - 1 : last + 2] if word != "CREATE"] == ["BEGIN", "COMMIT"]
    assert {mode for _, mode in synced[first - 1 : last + 2]} == {2}


def test_an_empty_file_becomes_a_queue(path: Path) -> None:
    """A 0-byte file, as `touch` or a temporary file makes it, is a new one (§6)."""
    path.touch()
    with litequeue.open(path) as queue:
        queue.enqueue("work")
        assert queue.stats().total == 1


def test_a_file_that_is_not_there_is_not_made_without_create(path: Path) -> None:
    """`create=False` on an absent file is `CannotOpen`, and leaves the folder empty (§6)."""
    with pytest.raises(CannotOpen) as caught:
        litequeue.open(path, create=False)
    assert caught.value.path == str(path)
    assert "no such file" in caught.value.reason
    assert list(path.parent.iterdir()) == []
