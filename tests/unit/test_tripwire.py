"""The identities of the file, its log and its shared memory: what trips the wire, and what does not (§6, DESIGN §3).

The files here are plain ones that no SQLite has open.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from litequeue.sqlite import tripwire
from litequeue.sqlite.tripwire import AFTER_COMMIT, ALL_FILES, Tripwire

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["cheapest", "stat"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Ask for identities in this platform's cheapest way, and in the one that all platforms have."""
    name: str = request.param
    if name == "stat":
        monkeypatch.setattr(tripwire, "_cheapest_way", tripwire._ByStat)
    return name


SUFFIXES = ["", "-wal", "-shm"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a file with its log and its shared memory beside it; its name is not plain."""
    file = tmp_path / "jobs é%20.queue"
    for suffix in SUFFIXES:
        beside(file, suffix).write_bytes(b"content")
    return file


@pytest.fixture(params=["fresh", "settled"])
def wire(path: Path, request: pytest.FixtureRequest) -> Tripwire:
    """Give a wire that is armed on the three files, in a folder that has just changed, or not for long."""
    armed = Tripwire(str(path))
    armed.arm()
    if request.param == "settled":
        settle(path)
    else:  # from now on, whatever the test takes
        os.utime(path.parent, (time.time() + 1000, time.time() + 1000))
    assert not armed.is_tripped()
    assert (armed._unchanged is not None) == (request.param == "settled")
    return armed


def settle(path: Path, *, ns: int = 1) -> None:
    """Make the folder's last change an old one."""
    long_ago = (time.time_ns() // 1_000_000_000 - 100) * 1_000_000_000 + ns
    os.utime(path.parent, ns=(long_ago, long_ago))


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
    """Counts the looks at files, and at their folder."""

    def __init__(self, wire: Tripwire) -> None:
        self.files = self.folders = 0
        self._way = wire._way
        wire._way = self

    def identity(self, path: bytes) -> tripwire.Identity | None:
        """Look at a file."""
        self.files += 1
        return self._way.identity(path)

    def folder(self, path: bytes) -> tripwire.Folder | None:
        """Look at the folder."""
        self.folders += 1
        return self._way.folder(path)


def test_a_folder_that_has_not_changed_stands_for_its_files(path: Path) -> None:
    """One look instead of three, for each question (DESIGN §3)."""
    wire = Tripwire(str(path))
    wire.arm()
    settle(path)
    looks = Looks(wire)
    assert [wire.is_tripped() for _ in range(5)] == [False] * 5
    assert (looks.folders, looks.files) == (5, 3)
    (path.parent / "another").touch()
    assert not wire.is_tripped()
    assert looks.files == 6


def test_a_folder_that_has_just_changed_is_not_believed(path: Path) -> None:
    """Another change within the same tick of the kernel's clock would leave no trace (DESIGN §3)."""
    wire = Tripwire(str(path))
    wire.arm()
    (path.parent / "another").touch()
    looks = Looks(wire)
    assert not wire.is_tripped()
    assert not wire.is_tripped()
    assert looks.files == 6


@pytest.mark.parametrize(("age_s", "ns", "is_believed"), [(1, 0, False), (3, 0, True), (1, 1, True)])
def test_times_of_whole_seconds_are_believed_later(path: Path, age_s: int, ns: int, *, is_believed: bool) -> None:
    """Where a folder's times are that coarse, so are the ticks (DESIGN §3)."""
    wire = Tripwire(str(path))
    wire.arm()
    then = (time.time_ns() // 1_000_000_000 - age_s) * 1_000_000_000 + ns
    os.utime(path.parent, ns=(then, then))
    looks = Looks(wire)
    assert not wire.is_tripped()
    assert not wire.is_tripped()
    assert looks.files == (3 if is_believed else 6)


def test_what_leaves_no_trace_in_the_folder_is_seen_a_little_later(
    path: Path, wire: Tripwire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when something is mounted over a file; here its time is set back (DESIGN §3)."""
    settle(path)
    assert not wire.is_tripped()
    path.rename(path.with_name("moved"))
    settle(path)
    later = time.monotonic() + 0.11
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert wire.is_tripped()
