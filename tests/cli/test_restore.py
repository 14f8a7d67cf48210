"""`restore`: a queue from a backup, never over one in use, and over jobs only when asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import litequeue

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """Give a backup with one job of the kind `kept`."""
    with litequeue.open(tmp_path / "source.queue") as queue:
        queue.enqueue("kept")
        queue.backup(tmp_path / "app.backup")
    return tmp_path / "app.backup"


def test_a_queue_is_made_from_a_backup(cli: Cli, backup: Path) -> None:
    """One of the commands that create a file (§9)."""
    out = cli.done("restore", backup)
    assert out.startswith(f"{cli.path}: 1 job, ")
    assert "kept" in cli.done("jobs", "ls")


def test_jobs_are_overwritten_only_when_asked(cli: Cli, backup: Path) -> None:
    """The refusal says what would be lost (§9)."""
    cli.done("enqueue", "precious")
    line = cli("restore", backup).line_of_failure(1)
    assert str(cli.path) in line
    assert "it holds 1 job, which is" in line
    assert "precious" in cli.done("jobs", "ls")
    cli.done("restore", backup, "--overwrite")
    listed = cli.done("jobs", "ls")
    assert "kept" in listed
    assert "precious" not in listed


def test_a_queue_in_use_is_refused(cli: Cli, backup: Path) -> None:
    """Whatever was asked for (§9)."""
    with litequeue.open(cli.path) as queue:
        queue.enqueue("precious")
        assert "is in use" in cli("restore", backup, "--overwrite").line_of_failure(1)
        assert len(queue.list()) == 1


def test_what_is_no_backup_is_refused(cli: Cli, tmp_path: Path) -> None:
    """And makes no queue (§6, §9)."""
    (tmp_path / "notes.txt").write_text("hello " * 1000)
    assert "not a queue file" in cli("restore", tmp_path / "notes.txt").line_of_failure(1)
    assert "no such file" in cli("restore", tmp_path / "absent").line_of_failure(1)
    assert [found.name for found in tmp_path.iterdir()] == ["notes.txt"]
