"""What the pages show, a strict type checker takes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "guide").glob("*.md"))
PAGES = ("README.md", "docs/workers.md", *GUIDE)


def written(folder: Path) -> list[str]:
    """Write every Python block of the pages into a file of its own; return their names."""
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        assert blocks
        for number, block in enumerate(blocks, 1):
            (folder / f"{Path(page).stem.lower()}_{number}.py").write_text(block, encoding="utf-8")
    return sorted(path.name for path in folder.glob("*.py"))


@pytest.mark.slow
def test_every_block_of_the_pages_is_typed(tmp_path: Path) -> None:
    """A reader who pastes a block into a program with strict mypy is not told that it is wrong."""
    pytest.importorskip("mypy")
    words = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=cache", *written(tmp_path)]
    told = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert told.returncode == 0, told.stdout + told.stderr
