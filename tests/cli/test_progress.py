"""The bar of a long command: for eyes only."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

from litequeue.cli.progress import progress

if TYPE_CHECKING:
    import pytest


class Terminal(io.StringIO):
    """A stream that says that somebody looks at it."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def test_a_bar_is_drawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the end, and once more when the work begins again, each on a line of its own (§9)."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("copying") as drawn:
        assert drawn is not None
        for done in (1, 5, 10, 2, 10):
            drawn(done, 10)
    drawings = terminal.getvalue()
    assert drawings.count("copying") >= 2
    assert "100%" in drawings
    assert drawings.count("\n") == 2


def test_nothing_is_drawn_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe gets the result and the errors only (§9)."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress("copying") as drawn:
        assert drawn is None


def test_nothing_is_drawn_over_a_result_on_the_same_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that go to a terminal themselves would be torn by a bar (issue 8)."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress("exporting", out=Terminal()) as drawn:
        assert drawn is None
    with progress("exporting", out=io.StringIO()) as drawn:
        assert drawn is not None
