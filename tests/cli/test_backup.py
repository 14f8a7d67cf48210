"""`backup`: a copy of a queue in use, and one clear line when there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import litequeue

if TYPE_CHECKING:
    from pathlib import Path

    from litequeue import Queue
    from tests.cli.conftest import Cli, Processes


def test_a_queue_in_use_is_copied(cli: Cli, queue: Queue, tmp_path: Path) -> None:
    """The line says what there is now (§9)."""
    job_id = queue.enqueue("work").job_id
    out = cli.done("backup", tmp_path / "app.backup")
    size = (tmp_path / "app.backup").stat().st_size
    assert out == f"{tmp_path / 'app.backup'}: 1 job, {size:,} bytes\n"
    with litequeue.open(tmp_path / "app.backup", create=False) as copy:
        assert copy.get(job_id).kind == "work"


def test_a_file_that_exists_is_replaced_only_when_asked(cli: Cli, tmp_path: Path) -> None:
    """Status 1 and the reason; then with `--overwrite` (§9)."""
    cli.done("enqueue", "work")
    (tmp_path / "app.backup").write_text("precious")
    said = cli("backup", tmp_path / "app.backup").line_of_failure(1)
    assert said.endswith("it exists already (--overwrite replaces it)")
    assert (tmp_path / "app.backup").read_text() == "precious"
    cli.done("backup", tmp_path / "app.backup", "--overwrite")
    assert litequeue.doctor(tmp_path / "app.backup").is_healthy


@pytest.mark.parametrize("options", [(), ("--overwrite",)])
def test_there_has_to_be_a_queue(cli: Cli, tmp_path: Path, options: tuple[str, ...]) -> None:
    """Nothing is made of nothing (§9)."""
    assert "there is no such file" in cli("backup", tmp_path / "app.backup", *options).line_of_failure(1)
    assert list(tmp_path.iterdir()) == []


def test_the_queue_itself_is_no_target(cli: Cli) -> None:
    """Whatever was asked for (§9)."""
    cli.done("enqueue", "work")
    assert "would replace the queue itself" in cli("backup", cli.path, "--overwrite").line_of_failure(1)
    assert "jobs: 1" in cli.done("doctor")


@pytest.mark.slow
def test_no_progress_is_drawn_where_nobody_sees_it(processes: Processes, cli: Cli, tmp_path: Path) -> None:
    """Standard error stays empty in a pipe (§9)."""
    cli.done("enqueue", "work")
    outcome = processes.run("backup", str(tmp_path / "app.backup"))
    assert (outcome.status, outcome.err) == (0, "")
