"""What somebody has put in the place of a queue's files: refused by name, and written to by nobody (§6).

Links, pipes, devices and folders under the names of the file, of its log, of its shared memory and of its sidecars;
each with the library and with the command. The bytes of a file are looked at only while nobody has it open.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest
from click.testing import CliRunner

import litequeue
from litequeue import CannotOpen, LiteQueueError, Maintenance, NotAQueue, WaitTimeout
from litequeue.cli import litequeue as command
from litequeue.sqlite.leadership import Leadership

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

SUFFIXES = ("-wal", "-shm", "-journal", "-lock", "-maintenance", "-schedules", "-bell", "-done")
VICTIM = b"not the queue's\n" * 300


def _a_folder(place: Path, _: Path) -> None:
    place.mkdir()


def _a_link(place: Path, victim: Path) -> None:
    place.symlink_to(victim)


def _a_dangling_link(place: Path, victim: Path) -> None:
    place.symlink_to(victim.with_name("nowhere"))


def _a_hard_link(place: Path, victim: Path) -> None:
    place.hardlink_to(victim)


def _a_pipe(place: Path, _: Path) -> None:
    os.mkfifo(place)


def _a_device(place: Path, _: Path) -> None:
    try:
        os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")


PUT: dict[str, Callable[[Path, Path], None]] = {
    "a folder": _a_folder,
    "a link": _a_link,
    "a dangling link": _a_dangling_link,
    "a hard link": _a_hard_link,
    "a pipe": _a_pipe,
    "a device": _a_device,
}


def _use(path: str) -> list[str]:
    """Open the queue, write, read and maintain; then run commands. Return what the library and the command said."""
    try:
        with litequeue.open(path) as queue:
            queue.enqueue("work", "x" * 1000)
            queue.stats()
            waiting = queue.enqueue("other", delay=60).job_id
            with contextlib.suppress(WaitTimeout):
                queue.wait_for(waiting, 0.01)
            queue.cancel(waiting)
            Maintenance(queue).run_once()
            leadership = Leadership(queue.path, "maintenance", queue.mode)  # as `Maintenance.run` takes it
            leadership.take()
            leadership.give()
        said = ["worked"]
    except LiteQueueError as exc:
        said = [type(exc).__name__]
    for line in ("stats", "enqueue work", "maintain --once"):
        result = CliRunner().invoke(command, ["--db", path, *line.split()])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        told = [said_so for said_so in result.stderr.splitlines() if "its bell failed" not in said_so]
        assert len(told) == (result.exit_code == 1), result
        said.append(f"{line}: {result.exit_code}")
    return said


def _is_untouched(victim: Path) -> bool:
    return victim.read_bytes() == VICTIM and stat.S_IMODE(victim.stat().st_mode) == 0o644


@pytest.mark.parametrize("put", PUT)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_stands_in_the_place_of_a_sidecar_is_not_written_to(path: str, suffix: str, put: str) -> None:
    """`CannotOpen`, or it is in nobody's way; never a hang, never a byte or a mode changed at its other end (§6)."""
    with litequeue.open(path) as queue:
        queue.enqueue("work")
    place = Path(path + suffix)
    place.unlink(missing_ok=True)
    victim = Path(path).parent / "victim.txt"
    victim.write_bytes(VICTIM)
    victim.chmod(0o644)
    PUT[put](place, victim)
    before = Path(path).read_bytes()
    said = _use(path)
    is_a_lock = suffix in ("-lock", "-maintenance")
    if suffix in ("-bell", "-done", "-schedules") or (put == "a hard link" and is_a_lock):
        assert said[0] == "worked"  # an ordinary file, which is only locked; or one that no verb needs
    else:
        assert said[0] == "CannotOpen"
    if said[0] == "CannotOpen" and suffix != "-maintenance":
        assert said[1:] == ["stats: 1", "enqueue work: 1", "maintain --once: 1"]
        assert Path(path).read_bytes() == before
    assert _is_untouched(victim)
    assert not victim.with_name("nowhere").exists()
    assert stat.S_IFMT(place.lstat().st_mode) == {
        "a folder": stat.S_IFDIR,
        "a link": stat.S_IFLNK,
        "a dangling link": stat.S_IFLNK,
        "a hard link": stat.S_IFREG,
        "a pipe": stat.S_IFIFO,
        "a device": stat.S_IFCHR,
    }.get(put)


def test_a_second_name_of_the_file_cannot_be_opened(path: str) -> None:
    """By the other name it has another log, so one of the two would lose what it was told is stored (G2, §6)."""
    with litequeue.open(path) as queue:
        queue.enqueue("work")
    other = Path(path).with_name("other.queue")
    other.hardlink_to(path)
    before = Path(path).read_bytes()
    for name in (path, str(other)):
        assert _use(name) == ["CannotOpen", "stats: 1", "enqueue work: 1", "maintain --once: 1"]
    assert Path(path).read_bytes() == before
    other.unlink()
    with litequeue.open(path, create=False) as queue:
        assert queue.stats().total == 1


@pytest.mark.filterwarnings("ignore:.*file system")
@pytest.mark.parametrize(
    "target", ["/dev/null", "/dev/zero", "/dev/full", "/proc/self/mem", "/proc/version", "/dev/stdin"]
)
def test_devices_and_the_files_of_the_kernel_cannot_be_opened(target: str, tmp_path: Path) -> None:
    """By name or through a link: `CannotOpen` or `NotAQueue`, at once (§6)."""
    if not Path(target).exists():
        pytest.skip("not here")
    link = tmp_path / "link.queue"
    link.symlink_to(target)
    for name in (target, str(link)):
        with pytest.raises((CannotOpen, NotAQueue)):
            litequeue.open(name)
    assert [one.name for one in tmp_path.iterdir()] == ["link.queue"]


def test_a_dangling_link_makes_the_file_where_it_points(path: str) -> None:
    """The queue and its sidecars stand beside the real file; in a folder that is not there nothing is made (§6)."""
    folder = Path(path).parent / "elsewhere"
    link = Path(path).parent / "link.queue"
    link.symlink_to(folder / "real.queue")
    with pytest.raises(CannotOpen, match="there is no folder"):
        litequeue.open(link)
    folder.mkdir()
    with pytest.raises(CannotOpen, match="there is no such file"):
        litequeue.open(link, create=False)
    with litequeue.open(link) as queue:
        assert queue.path == str(folder / "real.queue")
    assert sorted(one.name for one in folder.iterdir()) == ["real.queue", "real.queue-lock"]


@pytest.mark.parametrize(
    "name",
    ["file:app.queue?mode=memory", "file::memory:", "file:///etc/passwd", "a?vfs=memdb", "a?immutable=1", "%2e%2e%2fa"],
)
def test_a_name_is_never_taken_for_a_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It is the name of a file in this folder, or of none (§6, §9)."""
    monkeypatch.chdir(tmp_path)
    if "/" in name:
        with pytest.raises(CannotOpen):
            litequeue.open(name)
        assert list(tmp_path.iterdir()) == []
        return
    with litequeue.open(name) as queue:
        queue.enqueue("work")
    assert sorted(one.name for one in tmp_path.iterdir()) == [name, f"{name}-bell", f"{name}-lock"]
    with litequeue.open(name, create=False) as queue:
        assert queue.stats().total == 1


@pytest.mark.parametrize("length", [235, 243, 244, 247, 250, 251, 255, 256])
def test_a_name_so_long_that_its_sidecars_have_none_cannot_be_opened(tmp_path: Path, length: int) -> None:
    """It works, or it is `CannotOpen`; and then it has not left a file behind that nobody can use (§6)."""
    place = tmp_path / ("n" * length)
    try:
        with litequeue.open(place) as queue:
            queue.enqueue("work")
            queue.stats()
    except CannotOpen:
        assert length > 240
        assert list(tmp_path.iterdir()) == []
    else:
        assert length < 250
        with litequeue.open(place, create=False) as queue:
            assert queue.stats().total == 1


# --- files that are something else


def _sparse(path: Path) -> None:
    with path.open("wb") as opened:
        opened.truncate(2**40)


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "a" * 5000)


def _database_header_alone(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + bytes(4096))


def _random(path: Path) -> None:
    path.write_bytes(os.urandom(20_480))


OTHER: dict[str, Callable[[Path], None]] = {
    "a terabyte of nothing": _sparse,
    "an archive": _zip,
    "a header and nothing": _database_header_alone,
    "what might be encrypted": _random,
}


@pytest.mark.parametrize("what", OTHER)
def test_a_file_that_is_something_else_is_refused_and_not_written_to(path: str, what: str) -> None:
    """`NotAQueue` or `StorageCorrupt`, at once, from the library and from each command (§6)."""
    file = Path(path)
    OTHER[what](file)
    before = _facts(file)
    said = _use(path)
    assert said[0] in ("NotAQueue", "StorageCorrupt")
    assert said[1:] == ["stats: 1", "enqueue work: 1", "maintain --once: 1"]
    assert _facts(file) == before
    assert {one.name for one in file.parent.iterdir()} <= {file.name, f"{file.name}-lock"}


def _facts(file: Path) -> tuple[int, int, bytes]:
    with file.open("rb") as opened:
        return file.stat().st_size, file.stat().st_mtime_ns, opened.read(100_000)


SHAPES = {
    "pages of 512 bytes": ["PRAGMA page_size = 512"],
    "pages of 64 KiB": ["PRAGMA page_size = 65536"],
    "no vacuum": ["PRAGMA auto_vacuum = NONE"],
    "full vacuum": ["PRAGMA auto_vacuum = FULL"],
    "a rollback journal": ["PRAGMA journal_mode = DELETE"],
    "a persistent journal": ["PRAGMA journal_mode = PERSIST"],
    "exclusive locking": ["PRAGMA locking_mode = EXCLUSIVE"],
    "a user's version": ["PRAGMA user_version = 9"],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_empty_database_of_any_shape_becomes_a_queue(path: str, shape: str) -> None:
    """A table-less file is a new one, whatever its pages, its vacuum or its journal (§6)."""
    connection = apsw.Connection(path)
    for statement in SHAPES[shape]:
        connection.execute(statement).fetchall()
    connection.execute("CREATE TABLE a (b)")
    connection.execute("DROP TABLE a")
    connection.close()
    with litequeue.open(path) as queue:
        queue.enqueue("work", "x" * 100_000)
    with litequeue.open(path, create=False) as queue:
        lease = queue.lease_next()
        assert lease is not None
        lease.complete()


def test_a_database_with_bytes_reserved_on_each_page_becomes_a_queue(path: str) -> None:
    """Room that an extension (a checksum, a cipher) has reserved on each page is left to it (§6)."""
    connection = apsw.Connection(path)
    reserved = ctypes.c_int(32)
    connection.file_control("main", apsw.SQLITE_FCNTL_RESERVE_BYTES, ctypes.addressof(reserved))
    connection.execute("CREATE TABLE a (b)")
    connection.execute("DROP TABLE a")
    connection.close()
    assert Path(path).read_bytes()[20] == 32
    with litequeue.open(path) as queue:
        queue.enqueue("work", "x" * 10_000)
    assert Path(path).read_bytes()[20] == 32
    with litequeue.open(path, create=False) as queue:
        assert queue.list()[0].payload == "x" * 10_000
