"""File systems that break SQLite are refused, unknown ones are warned about (§6, last line)."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import CannotOpen
from litequeue.sqlite import filesystem

if TYPE_CHECKING:
    from pathlib import Path

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
40 22 0:35 / /mnt/share rw,relatime shared:5 master:1 - nfs4 server:/export rw,vers=4.2
41 40 0:36 / /mnt/share/local rw,relatime - xfs /dev/vdb rw
42 22 0:37 / /mnt/with\\040space rw - cifs //server/share rw
43 22 0:38 / /home rw - ext4 /dev/vdc rw
44 43 0:39 / /home rw - 9p host rw
45 22 0:40 / /media/a rw - fuse.sshfs me@there:/ rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "ext4"),
        ("/var/lib", "ext4"),
        ("/mnt", "ext4"),
        ("/mnt/share", "nfs4"),
        ("/mnt/share/deep/down", "nfs4"),
        ("/mnt/share2", "ext4"),
        ("/mnt/share/local/x", "xfs"),
        ("/mnt/with space/x", "cifs"),
        ("/home/me", "9p"),
        ("/media/a/b", "fuse.sshfs"),
    ],
)
def test_the_innermost_mount_of_a_folder_decides(folder: str, kind: str) -> None:
    """Mounts inside mounts, over mounts, with white space in their names (§6; proc(5), mountinfo)."""
    assert filesystem.kind_in(MOUNTS, folder) == kind


@pytest.mark.parametrize("text", ["", "nonsense\n", "1 2 3 - ext4\n", "22 1 254:0 / / rw,relatime\n"])
def test_a_mount_table_that_cannot_be_read_says_nothing(text: str) -> None:
    """What is not understood is no reason to refuse a file (§6)."""
    assert filesystem.kind_in(text, "/var") is None
    assert filesystem.judge(None) == "sound"


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs"])
def test_a_file_system_that_breaks_sqlite_is_refused_unless_allowed(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """NFS, SMB, 9p and virtiofs are `CannotOpen` with the reason; `allow_network=True` opens all the same (§6)."""
    monkeypatch.setattr(filesystem, "kind_of", lambda _folder: kind)
    with pytest.raises(CannotOpen, match=kind) as caught:
        litequeue.open(path)
    assert "allow_network" in caught.value.reason
    assert list(path.parent.iterdir()) == []
    with litequeue.open(path, allow_network=True) as queue:
        queue.enqueue("work")


@pytest.mark.parametrize("kind", ["fuse", "fuseblk", "fuse.sshfs", "somethingfs"])
def test_an_unknown_file_system_is_warned_about(path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """FUSE and unknown ones open with a warning that points at the caller (§6)."""
    monkeypatch.setattr(filesystem, "kind_of", lambda _folder: kind)
    with pytest.warns(UserWarning, match=kind) as caught:
        litequeue.open(path).close()
    assert caught[0].filename == __file__


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", None])
def test_a_sound_file_system_is_opened_without_a_word(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: str | None
) -> None:
    """Known local ones, and where the platform does not tell (§6)."""
    monkeypatch.setattr(filesystem, "kind_of", lambda _folder: kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        litequeue.open(path).close()


def test_this_machines_own_mount_table_can_be_read(tmp_path: Path) -> None:
    """The folder of this test lies on some file system, where the platform tells (§6)."""
    kind = filesystem.kind_of(str(tmp_path))
    assert kind is None or kind.isprintable()
