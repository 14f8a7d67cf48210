"""What docs/guide/work.md says of the command is so."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

import litequeue
from litequeue.cli import litequeue as command
from litequeue.worker import WorkerEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guide" / "work.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the current folder; what is imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("app.tasks", "app"):
        sys.modules.pop(name, None)


def test_the_module_of_the_page_is_worked_with_as_the_page_says(folder: Path) -> None:
    """Its first block, in its file, and the command below it."""
    (module,) = re.findall(r"`app/tasks.py`:\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (folder / "app").mkdir()
    (folder / "app" / "tasks.py").write_text(module, encoding="utf-8")
    typed = re.search(r"^\$ litequeue (--db app\.queue work .*)$", PAGE, re.MULTILINE)
    by_hand = re.search(r"^\$ litequeue (--db app\.queue enqueue mail:send .*)$", PAGE, re.MULTILINE)
    assert typed is not None
    assert by_hand is not None
    with litequeue.open("app.queue", durability="normal") as queue:
        ids = [queue.enqueue("mail:send", [["a"], {}]).job_id, queue.enqueue("report", [[3], {}]).job_id]
        result = CliRunner().invoke(command, [*typed[1].split(), "--until-empty"])
        assert result.exit_code == 0, result.output
        assert [queue.wait_for(job_id, 0).result for job_id in ids] == ["sent to a", 3]
        enqueued = CliRunner().invoke(command, shlex.split(by_hand[1]))
        assert enqueued.exit_code == 0, enqueued.output
        result = CliRunner().invoke(command, [*typed[1].split(), "--until-empty"])
        assert (result.exit_code, queue.get(enqueued.output.strip()).result) == (0, "sent to a@example.org")


def test_every_enqueue_and_schedule_of_the_page_is_one(folder: Path) -> None:
    """The lines that a reader copies into a shell (issue 5)."""
    lines = re.findall(r"^\$ litequeue (--db app\.queue (?:enqueue|schedule) .*)$", PAGE, re.MULTILINE)
    assert len(lines) > 1
    for line in lines:
        result = CliRunner().invoke(command, shlex.split(line))
        assert result.exit_code == 0, result.output
    assert (folder / "app.queue").exists()


def test_every_option_stands_on_the_page_with_its_default() -> None:
    """An option that is added or changed must be told of."""
    rows = {
        name: default.strip(" `")
        for names, default in re.findall(r"^\| (`--[^|]*)\|([^|]*)\|", PAGE, re.MULTILINE)
        for name in re.findall(r"`(--[\w-]+)`", names)
    }
    options = [option for option in command.commands["work"].params if isinstance(option, click.Option)]
    assert set(rows) == {option.opts[0] for option in options}
    told = {option.opts[0]: str(option.default) for option in options if option.show_default}
    assert {name: rows[name] for name in told} == told


def test_every_status_stands_on_the_page() -> None:
    """Those that the help tells (issue 5, item 6)."""
    assert re.findall(r"^\| (\d) \|", PAGE, re.MULTILINE) == ["0", "1", "2", "3", "4"]


def test_the_attributes_of_records_are_those_of_events() -> None:
    """On which metrics build (issue 5, item 11)."""
    assert "`event`, `job_id`, `kind`, `scope`,\n`attempt`, `generation`, `worker_id`, `duration_s`, `detail`" in PAGE
    assert set(WorkerEvent.__slots__) - {"name"} | {"event"} == set(
        re.findall(r"`(\w+)`", PAGE.partition("on each of a job:")[2].partition(".")[0])
    )


@pytest.mark.parametrize("block", re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
def test_every_block_of_the_page_runs(block: str, folder: Path) -> None:
    """A reader who pastes a block into a fresh folder sees it work."""
    exec(compile(block, str(folder / "page.py"), "exec"), {"__name__": "page"})  # noqa: S102 - our own page
