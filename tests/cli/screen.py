"""A terminal as a person sees it: what a program writes to it, laid out on rows.

Owns: the few sequences that the command uses, with the rules of the terminals that everybody has: a scroll region, a
cursor that is saved and restored, lines that go to the history when the region begins at the top. Invariant: a sequence
that is not known here is an error, so nothing that a job brings in steers it unseen.
"""

from __future__ import annotations

import fcntl
import os
import re
import termios
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PIECES = re.compile(r"\x1b[78]|\x1b\[([0-9;]*)([A-Za-z])|[\r\n]|[^\x00-\x1f\x7f-\x9f]+")


class Screen:
    """Rows of characters."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self.history: list[str] = []
        """Lines that have scrolled off the top."""
        self.region = (0, rows - 1)
        self._cells = [[" "] * columns for _ in range(rows)]
        self._at = self._saved = (0, 0)

    def feed(self, text: str) -> None:
        """Take what was written."""
        place = 0
        while place < len(text):
            piece = _PIECES.match(text, place)
            assert piece is not None, f"nobody knows what to do with {text[place : place + 20]!r}"
            self._take(piece)
            place = piece.end()

    def lines(self) -> list[str]:
        """Return the rows."""
        return ["".join(row).rstrip() for row in self._cells]

    def scrolled(self) -> list[str]:
        """Return every line above the last row, also those that have scrolled away; empty ones left out."""
        return [line for line in [*self.history, *self.lines()[:-1]] if line]

    @property
    def is_whole(self) -> bool:
        """Whether all rows scroll."""
        return self.region == (0, self.rows - 1)

    def _take(self, piece: re.Match[str]) -> None:
        row, column = self._at
        match piece[0]:
            case "\r":
                self._at = row, 0
            case "\n":
                self._new_line()
            case "\x1b7":
                self._saved = self._at
            case "\x1b8":
                self._at = self._saved
            case text if piece[2] is None:
                for char in text:
                    self._put(char)
            case _:
                self._control(piece[2], [int(number or 0) for number in piece[1].split(";")], row, column)

    def _control(self, letter: str, numbers: list[int], row: int, column: int) -> None:
        match letter, numbers:
            case "H", [down, right]:
                self._at = min(max(down, 1), self.rows) - 1, min(max(right, 1), self.columns) - 1
            case "A", [up]:
                self._at = max(row - up, 0), column
            case "K", [2]:
                self._cells[row] = [" "] * self.columns
            case "r", [0]:
                self.region, self._at = (0, self.rows - 1), (0, 0)
            case "r", [top, bottom]:
                self.region, self._at = (top - 1, bottom - 1), (0, 0)
            case _:
                raise AssertionError(f"nobody knows what to do with {letter} {numbers}")

    def _put(self, char: str) -> None:
        row, column = self._at
        if column == self.columns:
            self._at = row, 0
            self._new_line()
            row, column = self._at
        self._cells[row][column] = char
        self._at = row, column + 1

    def _new_line(self) -> None:
        row, column = self._at
        top, bottom = self.region
        if row == bottom:
            gone = self._cells.pop(top)
            self._cells.insert(bottom, [" "] * self.columns)
            if top == 0:
                self.history.append("".join(gone).rstrip())
        elif row < self.rows - 1:
            self._at = row + 1, column


class Terminal:
    """A pseudo-terminal with a `Screen`, which a program may be given as its own."""

    def __init__(self, rows: int = 12, columns: int = 100) -> None:
        self.screen = Screen(rows, columns)
        self._leader, self.descriptor = os.openpty()
        termios.tcsetwinsize(self.descriptor, (rows, columns))
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def take_over(self) -> None:
        """Make it the terminal that controls this process: called in a child."""
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._leader, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        """Make the window larger or smaller, as a window manager does; what stands there stays."""
        with self._changed:
            screen = Screen(rows, columns)
            screen.history = [*self.screen.history, *self.screen.lines()]
            self.screen = screen
        termios.tcsetwinsize(self.descriptor, (rows, columns))

    def wait_for(self, condition: Callable[[Screen], object], seconds: float = 30) -> None:
        """Wait until the screen is so."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.screen), seconds), self._shown()

    def close(self) -> None:
        """Read the rest, once nobody else has it open any more, and close."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            self._reader.join()
            os.close(self._leader)

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                data = os.read(self._leader, 65536)
            except OSError:  # nobody has it open any more
                return
            rest = self._show(rest + data)

    def _show(self, data: bytes) -> bytes:
        """Show what is whole; return what is not: a read may end within a sequence, or within a character."""
        whole = data.rpartition(b"\x1b")[0] if re.search(rb"\x1b(?:\[[0-9;]*)?$", data) else data
        with self._changed:
            self.screen.feed(whole.decode())
            self._changed.notify_all()
        return data[len(whole) :]

    def _shown(self) -> str:
        return "\n".join([*self.screen.history, "-" * 20, *self.screen.lines()])
