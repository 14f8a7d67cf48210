"""What the pages of the guide show, runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from litequeue.cli import litequeue as command

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted((DOCS / "guide").glob("*.md"))


@pytest.mark.filterwarnings("ignore:this process writes")  # of an old SQLite in `sqlite3`, on the page about it
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run_in_their_order(page: Path, pytester: pytest.Pytester) -> None:
    """A reader who pastes one block after the other, and then types the commands, sees them work; tests in it pass.

    What has tests in it is a file of tests, which pytest runs with the fixtures that they ask for.
    """
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks
    tests = re.findall(r"^ *def (test_\w+)", "".join(blocks), re.MULTILINE)
    if tests:
        pytester.makepyfile(test_page="\n\n".join(blocks))
        pytester.runpytest("-p", "no:randomly").assert_outcomes(passed=len(tests))
    else:
        names: dict[str, Any] = {"__name__": "__guide__"}
        for block in blocks:
            exec(compile(block, str(page), "exec"), names)  # noqa: S102 - our own page
    for line in re.findall(r"^\$ litequeue (.*)$", text, re.MULTILINE):
        result = CliRunner().invoke(command, shlex.split(line, comments=True))
        assert result.exit_code == 0, f"{line}: {result.output}"


def test_the_guide_names_each_of_its_pages() -> None:
    """And no other."""
    named = re.findall(r"\(guide/(\w+\.md)\)", (DOCS / "guide.md").read_text(encoding="utf-8"))
    assert sorted(named) == [page.name for page in PAGES]
