"""Where a queue file may be, whose it is, and what is said when it cannot be opened (§6 "CannotOpen")."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import CannotOpen, Maintenance, UsageError, WaitTimeout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.children import Children, Parent


def _modes(folder: Path) -> dict[str, str]:
    return {one.name: oct(stat.S_IMODE(one.stat().st_mode)) for one in folder.iterdir()}


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Give this process another umask."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("mode", [None, 0o660, 0o640, 0o644])
def test_every_file_of_a_queue_has_the_mode_that_was_asked_for(path: Path, mode: int | None) -> None:
    """0600 unless told otherwise: the file, its log, its shared memory, its sidecars, whatever the umask (§9)."""
    with litequeue.open(path) if mode is None else litequeue.open(path, mode=mode) as queue:
        queue.enqueue("work")
        maintenance = Maintenance(queue)
        maintenance.stop()
        maintenance.run()
        job_id = queue.enqueue("work").job_id
        while not path.with_name(f"{path.name}-done").exists():  # on a busy machine a short time is over before that
            with pytest.raises(WaitTimeout):
                queue.wait_for(job_id, 0.01)
        found = _modes(path.parent)
    names = {path.name, *(path.name + suffix for suffix in ("-wal", "-shm", "-lock", "-bell", "-done"))}
    assert names <= found.keys()
    assert set(found.values()) == {oct(mode or 0o600)}


def test_what_is_made_beside_a_file_has_the_mode_of_that_file(path: Path) -> None:
    """A worker that was told nothing opens the file of an application that is for a group (§9)."""
    with litequeue.open(path, mode=0o660):
        pass
    for beside in path.parent.iterdir():
        if beside != path:
            beside.unlink()
    with litequeue.open(path) as queue:
        queue.enqueue("work")
        assert queue.lease_next() is not None
        assert set(_modes(path.parent).values()) == {"0o660"}
    assert [found.code for found in litequeue.doctor(path).findings if found.code == "sidecar.mode"] == []


@pytest.mark.parametrize("mode", [0o660, 0o600])
def test_what_lies_beside_a_file_follows_its_mode(path: Path, mode: int) -> None:
    """Who is let in by a chmod of the file may use it once its owner has opened it, who is shut out may not (§9)."""
    with litequeue.open(path, mode=mode ^ 0o060) as queue:
        queue.enqueue("work")
        assert queue.lease_next() is not None
    path.chmod(mode)
    with litequeue.open(path) as queue:
        queue.enqueue("work")
        assert set(_modes(path.parent).values()) == {oct(mode)}


def test_a_sidecar_that_was_there_before_does_not_widen_the_mode(path: Path) -> None:
    """A lock file that another user has planted in a shared folder does not open the queue to everybody (§9)."""
    sidecar = path.with_name(f"{path.name}-lock")
    sidecar.touch()
    sidecar.chmod(0o666)
    with litequeue.open(path) as queue:
        queue.enqueue("work")
        found = _modes(path.parent)
    del found[sidecar.name]
    assert set(found.values()) == {"0o600"}


def test_a_link_is_followed_to_the_real_file(path: Path) -> None:
    """Through a symbolic link it is the same queue, with the same sidecars, beside the real file (DESIGN §4)."""
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    link = elsewhere / "link.queue"
    link.symlink_to(path)
    with litequeue.open(link) as through, litequeue.open(path, create=False) as direct:
        assert through.path == direct.path == str(path)
        through.enqueue("work")
        assert direct.stats().total == 1
    assert [one.name for one in elsewhere.iterdir()] == ["link.queue"]


def test_a_relative_path_stays_what_it_was_when_the_folder_changes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handle knows its absolute path (§9)."""
    monkeypatch.chdir(path.parent)
    with litequeue.open(path.name) as queue:
        monkeypatch.chdir("/")
        queue.enqueue("work")
        assert queue.path == str(path)


@pytest.mark.parametrize(
    "name", ["with space", "50%41?.db", "a#b&c=d", "ünïcode ☃", "line\nbreak", "it's", 'qu"ote', "-dash", "a" * 200]
)
def test_a_file_may_have_any_name(path: Path, name: str) -> None:
    """What a name holds is never taken for part of a URI or of SQL (§9)."""
    odd = path.with_name(name)
    with litequeue.open(odd) as queue:
        queue.enqueue("work")
    assert sorted(one.name for one in path.parent.iterdir()) == sorted([name, f"{name}-bell", f"{name}-lock"])


def test_a_folder_in_its_place_cannot_be_opened(path: Path) -> None:
    """A folder is not a file (§6)."""
    path.mkdir()
    with pytest.raises(CannotOpen, match="it is a folder") as caught:
        litequeue.open(path)
    assert caught.value.path == str(path)
    assert list(path.iterdir()) == []
    assert [one.name for one in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("create", [True, False])
def test_a_missing_folder_is_named(path: Path, *, create: bool) -> None:
    """No folder is made, and the reason names the one that is missing (§6)."""
    with pytest.raises(CannotOpen, match=f"no folder {path.parent / 'nowhere'}"):
        litequeue.open(path.parent / "nowhere" / "app.queue", create=create)
    assert list(path.parent.iterdir()) == []


def test_a_path_below_a_file_cannot_be_opened(path: Path) -> None:
    """A file in the place of the folder is no folder (§6)."""
    path.touch()
    with pytest.raises(CannotOpen):
        litequeue.open(path / "app.queue")


def test_links_in_a_circle_cannot_be_opened(path: Path) -> None:
    """A circle of links has no real file (§6)."""
    other = path.with_name("other")
    path.symlink_to(other)
    other.symlink_to(path)
    with pytest.raises(CannotOpen):
        litequeue.open(path)


def test_a_pipe_cannot_be_opened(path: Path) -> None:
    """Neither does a named pipe make the opening wait (§6)."""
    os.mkfifo(path)
    with pytest.raises(CannotOpen, match="not an ordinary file"):
        litequeue.open(path)


@pytest.mark.parametrize("name", ["bad-\udcff-name", "nul-\0-name", "n" * 300])
def test_a_name_that_no_file_can_have_cannot_be_opened(path: Path, name: str) -> None:
    """Bytes that are not UTF-8, a NUL or a name that is too long are refused in words (§6)."""
    with pytest.raises(CannotOpen) as caught:
        litequeue.open(f"{path.parent}/{name}")
    str(caught.value).encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("name", ["", ":memory:"])
def test_what_is_not_the_path_of_a_file_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A queue cannot live in memory (§6)."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        litequeue.open(name)
    assert caught.value.argument == "path"


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Give a folder that every user can reach; pytest's own are private."""
    folder = Path(tempfile.mkdtemp(prefix="litequeue-test-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def _open_unprivileged(_parent: Parent, path: str, folder_mode: int) -> str:
    """Try to open a file as somebody whom permissions hold; say how it ended."""
    if os.geteuid() == 0:
        with tempfile.TemporaryDirectory() as warm:
            litequeue.open(Path(warm) / "app.queue").close()  # loads what only root can read
        os.chmod(Path(path).parent, folder_mode)  # noqa: PTH101 - the same
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    else:
        Path(path).parent.chmod(folder_mode)
    try:
        litequeue.open(path)
    except CannotOpen as exc:
        return exc.reason
    return "opened"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file_mode", "folder_mode"),
    [(None, 0o555), (0o000, 0o755), (0o444, 0o755), (0o444, 0o777), (0o666, 0o555), (0o666, 0o000)],
    ids=[
        "no file in a read-only folder",
        "an unreadable file",
        "a read-only file",
        "a read-only file in an open folder",
        "a writable file in a read-only folder",
        "a folder that may not be entered",
    ],
)
def test_without_permission_a_file_cannot_be_opened(
    public_folder: Path, processes: Children, file_mode: int | None, folder_mode: int
) -> None:
    """`CannotOpen` with the reason, and nothing is made or changed (§6)."""
    path = public_folder / "app.queue"
    if file_mode is not None:
        litequeue.open(path).close()
        path.with_name("app.queue-lock").unlink()
        path.chmod(file_mode)
    before = sorted(one.name for one in public_folder.iterdir())
    reason = processes.run(_open_unprivileged, str(path), folder_mode)
    assert isinstance(reason, str)
    assert "permission" in reason.lower()
    public_folder.chmod(0o755)
    assert sorted(one.name for one in public_folder.iterdir()) == before
