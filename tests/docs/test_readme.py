"""What the README shows, runs."""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import litequeue
from litequeue import JobState
from litequeue.settings import SPECS

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=[f"block-{number}" for number in range(1, len(BLOCKS) + 1)])
def test_every_python_block_of_the_readme_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader who pastes a block into a fresh folder sees it work."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the test runner keeps its own handlers
    names: dict[str, Any] = {"__name__": "__readme__"}
    exec(compile(block, str(README), "exec"), names)  # noqa: S102 - our own page
    if "work" in names:
        _let_work(names, tmp_path)
    for name in [name for name in names if name.startswith("test_")]:
        names[name](tmp_path)


def _let_work(names: dict[str, Any], folder: Path) -> None:
    """Let the page's worker do a job, and stop it as its signal handler would."""
    path = folder / "app.queue"
    with litequeue.open(path) as queue:
        job_id = queue.enqueue("work").job_id
        worker = threading.Thread(target=names["work"], args=(str(path), 0.01))
        worker.start()
        while queue.get(job_id).state is not JobState.COMPLETED:
            names["stop"].wait(0.01)
        names["stop"].set()
        worker.join()


def test_every_setting_stands_in_the_readme_with_its_default() -> None:
    """A setting that is added or changed must be told of."""
    page = README.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| ([^|]+) \|", page, re.MULTILINE)
    told = {
        name: value.strip()
        for names, values in rows
        for name, value in zip(re.findall(r"`(\w+)`", names), values.split(","), strict=False)
    }
    words: dict[object, str] = {None: "none", False: "false"}
    shown = {name: words.get(spec.default, str(spec.default)) for name, spec in SPECS.items()}
    assert {name: told.get(name) for name in shown} == shown


def test_the_readme_has_blocks() -> None:
    """The test above has something to run."""
    assert len(BLOCKS) >= 2
