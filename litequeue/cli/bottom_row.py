"""The last row of a terminal, kept out of what scrolls above it.

Owns: the terminal's scroll region while a line is shown below it. Invariants: whatever is written to the terminal
meanwhile, by whomever (handlers, their child processes, logs), scrolls above the line and neither tears it nor is torn,
since the cursor never stays in the last row; each drawing is one write; the terminal is given back whole at the end,
when the process is stopped (Ctrl-Z), and while another one is in its foreground. Leaves out: what the line says.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SAVE, _RESTORE = "\x1b7", "\x1b8"
_CLEAR_LINE = "\x1b[2K"
_LEAST_ROWS, _LEAST_COLUMNS = 4, 40
HAS_JOB_CONTROL = hasattr(os, "tcgetpgrp") and hasattr(signal, "SIGTSTP")
"""Whether a process can know that the terminal is another one's just now, and that it is about to be stopped."""
_PATIENCE_S = 0.5
"""A terminal that takes nothing more (Ctrl-S) holds up whoever writes to it; the end of a command is not to wait."""


class BottomRow:
    """The last row of the terminal that a descriptor leads to; serves many threads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rows = 0
        """The height for which the region is set; 0 while the terminal is whole."""
        self._is_closed = False
        self._lock = threading.RLock()  # a signal handler may give it back while its own thread does

    def draw(self, text: str) -> None:
        """Show a line of plain text; not while the terminal is too small, or another program is in its foreground."""
        with self._lock:
            columns, rows = self._size()
            if self._is_closed or rows < _LEAST_ROWS or columns < _LEAST_COLUMNS or not self._is_in_foreground():
                self._give_back()
                return
            make_room = "" if rows == self._rows else self._leaving() + _entering(rows)
            self._rows = rows
            self._write(f"{make_room}{_SAVE}\x1b[{rows};1H{_CLEAR_LINE}{text[: columns - 1]}\r{_RESTORE}")

    @contextmanager
    def given_back(self) -> Iterator[None]:
        """Let the whole terminal scroll, the line cleared, for the length of a `with` block; drawing waits for its end.

        Not when the terminal takes nothing just now: then it stays as it is.
        """
        if not self._lock.acquire(timeout=_PATIENCE_S):
            yield
            return
        try:
            self._give_back()
            yield
        finally:
            self._lock.release()

    def close(self) -> None:
        """Give the terminal back for good."""
        self._is_closed = True
        with self.given_back():
            pass

    def _give_back(self) -> None:
        text = self._leaving()
        self._rows = 0
        if text:
            self._write(text)

    def _leaving(self) -> str:
        """Return what clears the line and ends the region, which moves the cursor: hence it is saved."""
        return f"{_SAVE}\x1b[r\x1b[{self._rows};1H{_CLEAR_LINE}{_RESTORE}" if self._rows else ""

    def _size(self) -> tuple[int, int]:
        try:
            return os.get_terminal_size(self._descriptor)
        except OSError:
            return 0, 0

    def _is_in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:  # a terminal, but not the one that controls this process
            return True

    def _write(self, text: str) -> None:
        left = text.encode("ascii", errors="replace")
        with contextlib.suppress(OSError):  # it has been closed
            while left:
                left = left[os.write(self._descriptor, left) :]


def _entering(rows: int) -> str:
    """Return what makes the last row free, scrolling by one if need be, and sets the region above it."""
    return f"\n{_SAVE}\x1b[1;{rows - 1}r{_RESTORE}\x1b[1A"
