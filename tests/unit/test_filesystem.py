"""What the mount table's text and the verdicts leave open beside `tests/sqlite/test_file_systems.py` (§6)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from litequeue.sqlite import filesystem

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("escaped", "name"),
    [
        (r"a\040b", "a b"),
        (r"a\011b", "a\tb"),
        (r"a\012b", "a\nb"),
        (r"a\134b", "a\\b"),
        (r"a\134040b", r"a\040b"),
        (r"a\040-\040b", "a - b"),
        (r"\043a", "#a"),
        ("é", "é"),
    ],
)
def test_the_escapes_of_a_mount_point_are_undone(escaped: str, name: str) -> None:
    """White space and the backslash itself, each once (§6; proc(5), mountinfo)."""
    table = f"1 1 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / /mnt/{escaped} rw - nfs4 server:/x rw\n"
    assert filesystem.kind_in(table, f"/mnt/{name}/deep") == "nfs4"
    assert filesystem.kind_in(table, f"/mnt/{name}x") == "ext4"


@pytest.mark.parametrize("tags", ["", "shared:1 ", "shared:1 master:2 propagate_from:3 unbindable "])
def test_any_number_of_tags_may_stand_before_the_hyphen(tags: str) -> None:
    """Optional fields (§6; proc(5), mountinfo)."""
    assert filesystem.kind_in(f"2 1 0:2 / /mnt rw {tags}- cifs //server/a rw\n", "/mnt") == "cifs"


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        *((kind, "breaks") for kind in ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs")),
        *((kind, "sound") for kind in ("ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay", None)),
        *((kind, "unknown") for kind in ("fuse", "fuseblk", "fuse.sshfs", "fuse.ext4", "EXT4", "new", "")),
    ],
)
def test_a_verdict_is_by_the_whole_name(kind: str | None, verdict: str) -> None:
    """Known to break SQLite, known to be sound, or neither; what cannot be known is no reason (§6)."""
    assert filesystem.judge(kind) == verdict


def test_room_is_asked_for_at_most_ten_times_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is what is free less the reserve and less what was taken since; no answer is no limit (§6 `QueueFull`).

    Each transaction may ask, once, unless one has asked less than a tenth of a second ago.
    """
    moment = 5.0
    free: int | None = filesystem.FREE_SPACE_RESERVE_BYTES + 7
    asked = []

    def answer(folder: str) -> int | None:
        asked.append(folder)
        return free

    monkeypatch.setattr(filesystem, "free_bytes", answer)
    monkeypatch.setattr(filesystem, "time", SimpleNamespace(monotonic=lambda: moment))
    room = filesystem.Room(str(tmp_path), lambda: 0)
    assert not room.take(8)
    assert room.take(4)
    assert not room.take(4), "what was taken since the disk was asked is gone"
    free = 0
    moment += 0.0999
    room.begin()
    assert room.take(3)
    room.begin()
    moment += 0.001
    assert not room.take(0)
    free = None
    moment += 0.2
    assert not room.take(0), "a long transaction's own jobs are not on the disk yet"
    room.begin()
    assert room.take(2**60)
    assert asked == [str(tmp_path)] * 3


def test_room_that_was_given_back_is_there_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the file to the disk, or by a verb that was undone (§6 `QueueFull`, G11)."""
    free = filesystem.FREE_SPACE_RESERVE_BYTES + 7
    monkeypatch.setattr(filesystem, "free_bytes", lambda _: free)
    monkeypatch.setattr(filesystem, "time", SimpleNamespace(monotonic=lambda: 5.0))
    room = filesystem.Room(str(tmp_path), lambda: 0)
    assert room.take(3)
    assert room.take(4)
    assert not room.take(1)
    room.back_to(3)
    assert room.take(4)
    free += 8
    room.begin()
    assert not room.take(1)
    room.ask_again()
    room.begin()
    assert room.take(15)


def test_room_is_short_when_less_than_twice_the_reserve_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then a file gives back what it does not need; where nobody tells, it keeps it (§6 `QueueFull`)."""
    room = filesystem.Room(str(tmp_path), lambda: 0)
    for free, is_short in ((2 * filesystem.FREE_SPACE_RESERVE_BYTES, False), (0, True), (None, False)):
        monkeypatch.setattr(filesystem, "free_bytes", lambda _, free=free: free)
        assert room.is_short() is is_short


def test_the_free_space_of_a_folder_is_that_of_an_ordinary_user(tmp_path: Path) -> None:
    """Or not known (§6)."""
    free = filesystem.free_bytes(str(tmp_path))
    assert free is None or free >= 0
