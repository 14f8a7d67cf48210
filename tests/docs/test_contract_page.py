"""The contract as users read it has every promise, state and error."""

from __future__ import annotations

import re
from pathlib import Path

from litequeue import JobState, errors

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "contract.md").read_text(encoding="utf-8")


def first_cells() -> set[str]:
    """Return what stands in the first column of the page's tables."""
    cells = re.findall(r"^\| ([^|]+?) \|", PAGE, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"\w+", cell)}


def test_every_promise_has_its_row() -> None:
    """Those that the tests name (G1 to G11, V1 to V17)."""
    assert {f"G{number}" for number in range(1, 12)} | {f"V{number}" for number in range(1, 18)} <= first_cells()


def test_every_state_has_its_row() -> None:
    """By its word."""
    assert {str(state) for state in JobState} <= first_cells()


def test_every_error_has_its_row() -> None:
    """And what to do about it; one that is added must be told of."""
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert kinds - {"LiteQueueError"} <= first_cells()
