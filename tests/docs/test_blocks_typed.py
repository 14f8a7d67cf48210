"""What the pages show, a strict type checker takes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"(?:`(?P<file>\w+\.py)`:\n\n)?^```python\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def written(folder: Path) -> list[str]:
    """Write every Python block of the pages into a file, its own where the page says so; return their names."""
    for page in PAGES:
        for number, block in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8")), 1):
            path = folder / (block["file"] or f"{page.stem.lower()}_{number}.py")
            assert not path.exists(), path
            path.write_text(block["text"], encoding="utf-8")
    names = sorted(path.name for path in folder.glob("*.py"))
    assert names
    return names


@pytest.mark.slow
def test_every_block_of_the_pages_is_typed(tmp_path: Path) -> None:
    """A reader who pastes a block into a program with strict mypy is not told that it is wrong."""
    pytest.importorskip("mypy")
    words = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=cache", *written(tmp_path)]
    told = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert told.returncode == 0, told.stdout + told.stderr
