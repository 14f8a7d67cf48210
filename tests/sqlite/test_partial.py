"""Moving a finished file to its place: in one step, and never over somebody else's file."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from litequeue.sqlite import partial as room

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["in one step", "by a look before it"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Move in each of the two ways that platforms have."""
    if request.param == "by a look before it":
        monkeypatch.setattr(room, "_rename_if_free", lambda _made, _path: errno.ENOSYS)


@pytest.mark.usefixtures("_way")
def test_a_file_is_moved_to_a_free_place(tmp_path: Path) -> None:
    """And has one name then: a queue of two is refused (§6)."""
    with room.partial(str(tmp_path / "done"), 0o640) as made:
        room.publish(made, str(tmp_path / "done"), overwrite=False)
    assert [found.name for found in tmp_path.iterdir()] == ["done"]
    assert (tmp_path / "done").stat().st_nlink == 1
    assert (tmp_path / "done").stat().st_mode & 0o777 == 0o640


@pytest.mark.usefixtures("_way")
def test_a_file_that_came_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """Somebody else's file stays, and nothing is left beside it (§6)."""
    with room.partial(str(tmp_path / "done"), 0o600) as made:
        (tmp_path / "done").write_text("precious")
        with pytest.raises(FileExistsError):
            room.publish(made, str(tmp_path / "done"), overwrite=False)
        assert room.leftovers(str(tmp_path / "done")) == [made.rpartition("/")[2]]
    assert (tmp_path / "done").read_text() == "precious"
    assert room.leftovers(str(tmp_path / "done")) == []
