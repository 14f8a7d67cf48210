"""What the README shows, runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=[f"block-{number}" for number in range(1, len(BLOCKS) + 1)])
def test_every_python_block_of_the_readme_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader who pastes a block into a fresh folder sees it work."""
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(README), "exec"), {"__name__": "__readme__"})  # noqa: S102 - our own page


def test_the_readme_has_blocks() -> None:
    """The test above has something to run."""
    assert len(BLOCKS) >= 2
