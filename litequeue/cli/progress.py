"""How far a long command has come: a bar on a terminal, nothing anywhere else.

Invariant: it is drawn on standard error, so that standard output stays the result.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar


class Progress:
    """Draws what has been done of how much; called by the library."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: ProgressBar[int] | None = None
        self._done = 0

    def __call__(self, done: int, total: int) -> None:
        """Draw so much of the bar."""
        if self._bar is None or done < self._done:  # a second round
            self.end()
            self._bar = click.progressbar(length=total, label=self._label, file=sys.stderr)
            self._done = 0
        self._bar.update(done - self._done)
        self._done = done

    def end(self) -> None:
        """End the line of the bar."""
        if self._bar is not None:
            self._bar.render_finish()
            self._bar = None


@contextmanager
def progress(label: str, *, out: TextIO | None = None) -> Iterator[Progress | None]:
    """Give what draws a bar for the length of a `with` block, or `None` where nobody would see it.

    There is none either where the result itself, `out`, goes to a terminal: the two would be on the same one.
    """
    if not sys.stderr.isatty() or (out is not None and out.isatty()):
        yield None
        return
    drawn = Progress(label)
    try:
        yield drawn
    finally:
        drawn.end()
