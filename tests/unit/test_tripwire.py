"""The identities of the file, its log and its shared memory: what trips the wire, and what does not (§6, DESIGN §3).

The files here are plain ones that no SQLite has open.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from litequeue.sqlite import tripwire
from litequeue.sqlite.folders import FOLDERS
from litequeue.sqlite.tripwire import AFTER_COMMIT, ALL_FILES, Tripwire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["cheapest", "stat"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Ask for identities in this platform's cheapest way, and in the one that all platforms have."""
    name: str = request.param
    if name == "stat":
        monkeypatch.setattr(tripwire, "_cheapest_way", lambda: tripwire._by_stat)
    return name


SUFFIXES = ["", "-wal", "-shm"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a file with its log and its shared memory beside it; its name is not plain."""
    file = tmp_path / "jobs é%20.queue"
    for suffix in SUFFIXES:
        beside(file, suffix).write_bytes(b"content")
    return file


@contextmanager
def _armed(path: Path) -> Iterator[Tripwire]:
    """Arm a wire on the three files, while all is as it was."""
    wire = Tripwire(str(path))
    wire.arm()
    assert not wire.is_tripped()
    yield wire
    wire.disarm()


@pytest.fixture(params=["told", "not told"])
def wire(path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tripwire]:
    """Give a wire that is armed on the three files, where the kernel tells of their folder, and where it does not."""
    if request.param == "not told":
        monkeypatch.setattr(FOLDERS, "watch", lambda _: None)
    elif sys.platform != "linux":
        pytest.skip("only Linux tells")
    with _armed(path) as wire:
        yield wire


def beside(path: Path, suffix: str) -> Path:
    """Return the path of a file that belongs to another."""
    return path.with_name(path.name + suffix)


def is_noticed(wire: Tripwire, suffix: str) -> bool:
    """Tell whether the loss of that file trips the wire, and is looked for when it has to be.

    Before a write all three count; after a commit a lost shared memory is no reason to take the word back.
    """
    assert wire.is_tripped(AFTER_COMMIT) is (wire.is_tripped(ALL_FILES) and suffix != "-shm")
    return wire.is_tripped(ALL_FILES)


def test_a_wire_that_is_not_armed_never_trips(path: Path) -> None:
    """Nothing is remembered yet (DESIGN §3)."""
    wire = Tripwire(str(path))
    assert wire.file is None
    path.unlink()
    assert not wire.is_tripped(ALL_FILES)


def test_what_happens_to_a_file_in_its_place_does_not_trip_it(path: Path, wire: Tripwire) -> None:
    """Writing, growing, shrinking, other times, another mode, another link to it: it is still the file (§6)."""
    path.write_bytes(b"longer than before")
    os.truncate(path, 1)
    os.utime(path, (1, 1))
    path.chmod(0o600)
    path.with_name("link").hardlink_to(path)
    beside(path, "-wal").write_bytes(b"")
    beside(path, "-shm").write_bytes(b"")
    assert not wire.is_tripped(ALL_FILES)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_renamed_file_trips_it_until_it_is_back(path: Path, wire: Tripwire, suffix: str) -> None:
    """Each of the three; the identity goes with the file, not with the name (§6)."""
    file = beside(path, suffix)
    moved = file.rename(file.with_name("moved"))
    assert is_noticed(wire, suffix)
    moved.rename(file)
    assert not is_noticed(wire, suffix)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_replaced_file_trips_it_although_it_is_the_same_in_content(path: Path, wire: Tripwire, suffix: str) -> None:
    """As a restored backup is (§6)."""
    file = beside(path, suffix)
    copied = file.with_name("copy")
    copied.write_bytes(file.read_bytes())
    copied.replace(file)
    assert is_noticed(wire, suffix)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_deleted_file_trips_it_also_when_it_is_made_again(path: Path, wire: Tripwire, suffix: str) -> None:
    """Whoever has the old one open, as a handle has, keeps its inode from being used again (§6)."""
    file = beside(path, suffix)
    with file.open("rb"):
        file.unlink()
        assert is_noticed(wire, suffix)
        file.write_bytes(b"")
        assert is_noticed(wire, suffix)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_was_not_there_trips_it(path: Path, suffix: str) -> None:
    """It is somebody else's (§6)."""
    file = beside(path, suffix)
    file.unlink()
    wire = Tripwire(str(path))
    wire.arm()
    assert not is_noticed(wire, suffix)
    file.write_bytes(b"")
    assert is_noticed(wire, suffix)


def test_a_folder_that_is_gone_trips_it(path: Path, wire: Tripwire) -> None:
    """Nothing at the path is another thing at the path (§6)."""
    path.parent.rename(path.parent.with_name(f"{path.parent.name}-moved"))
    assert is_noticed(wire, "")


def test_a_wire_that_was_disarmed_forgets_and_can_be_armed_anew(path: Path, wire: Tripwire) -> None:
    """As a connection is closed and opened (DESIGN §3)."""
    old = wire.file
    copied = path.with_name("copy")
    copied.write_bytes(b"")
    copied.replace(path)
    wire.disarm()
    assert wire.file is None
    assert not wire.is_tripped(ALL_FILES)
    wire.arm()
    assert not wire.is_tripped(ALL_FILES)
    assert wire.file is not None
    assert wire.file != old


def test_wires_on_the_same_file_see_the_same_identity(path: Path, wire: Tripwire, tmp_path: Path) -> None:
    """Through another name, too; another file has another one (DESIGN §3)."""
    (tmp_path / "link").hardlink_to(path)
    (tmp_path / "symbolic").symlink_to(path)
    (tmp_path / "other").write_bytes(b"file")
    found = {}
    for name in ("link", "symbolic", "other"):
        another = Tripwire(str(tmp_path / name))
        another.arm()
        found[name] = another.file
    assert found["link"] == found["symbolic"] == wire.file
    assert found["other"] != wire.file


def test_the_identity_has_the_inode(path: Path, wire: Tripwire) -> None:
    """Whatever way it was asked for (DESIGN §3)."""
    assert wire.file is not None
    assert wire.file[1] == path.stat().st_ino


class Looks:
    """Counts the looks at files."""

    def __init__(self, wire: Tripwire) -> None:
        self.count = 0
        self._way = wire._way
        wire._way = self

    def __call__(self, path: bytes) -> tripwire.Identity | None:
        """Look at a file."""
        self.count += 1
        return self._way(path)


@pytest.fixture
def told(path: Path) -> Iterator[Tripwire]:
    """Give a wire on files whose folder the kernel tells of, when all is as it was."""
    if sys.platform != "linux":
        pytest.skip("only Linux tells")
    with _armed(path) as wire:
        yield wire


def test_while_nothing_happens_in_the_folder_nobody_looks_at_the_files(
    path: Path, told: Tripwire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel is asked, which costs a third of a look (DESIGN §3); what happens to the files is no news."""
    monkeypatch.setattr(tripwire, "_LOOK_AGAIN_S", 1000.0)
    assert not told.is_tripped()  # from here on
    looks = Looks(told)
    path.write_bytes(b"other content")
    path.chmod(0o600)
    assert [told.is_tripped() for _ in range(5)] == [False] * 5
    assert looks.count == 0
    (path.parent / "another").touch()
    assert not told.is_tripped()
    assert not told.is_tripped()
    assert looks.count == 3


def test_each_wire_hears_of_a_change_whoever_takes_it_off_the_queue(path: Path, told: Tripwire) -> None:
    """Two handles on one file, and one on a file beside it (DESIGN §3)."""
    other = Tripwire(str(path))
    other.arm()
    beside_it = Tripwire(str(path.with_name("other")))
    beside_it.arm()
    assert not any(wire.is_tripped() for wire in (told, other, beside_it))
    path.rename(path.with_name("moved"))
    assert not beside_it.is_tripped(), "it takes the event"
    assert other.is_tripped()
    assert told.is_tripped()
    other.disarm()
    beside_it.disarm()


def test_a_folder_is_watched_until_the_last_wire_on_it_is_disarmed(path: Path, told: Tripwire) -> None:
    """A handle that closes does not make another one deaf (DESIGN §3)."""
    other = Tripwire(str(path))
    other.arm()
    other.disarm()
    other.disarm()
    assert not told.is_tripped()
    path.rename(path.with_name("moved"))
    assert told.is_tripped()


def test_what_the_kernel_does_not_tell_is_seen_a_little_later(
    path: Path, told: Tripwire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when something is mounted over a file, or a folder further up is renamed (DESIGN §3)."""
    monkeypatch.setattr(told, "_has_news", lambda _: False)
    path.rename(path.with_name("moved"))
    assert not told.is_tripped()
    later = time.monotonic() + 0.11
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert told.is_tripped()


def test_a_forked_child_leaves_its_parent_the_news(path: Path, told: Tripwire) -> None:
    """It has the parent's descriptor, and would take the parent's events (DESIGN §3)."""
    child = os.fork()
    if child == 0:
        wire = Tripwire(str(path))
        wire.arm()
        path.rename(path.with_name("moved"))
        os._exit(0 if wire.is_tripped() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert told.is_tripped()
