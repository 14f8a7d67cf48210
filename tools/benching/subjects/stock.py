"""This package with SQLite's stock busy timeout in place of the write gate: what the gate is good for."""

from __future__ import annotations

from benching.subjects import ours
from contending import stock

_BUSY_S = 60.0


class Subject(ours.Subject):
    """A queue without a gate."""

    name = "stock"

    def open(self, folder: str, durability: str) -> None:
        """Take the gate away, and open the queue."""
        stock.apply(_BUSY_S)
        super().open(folder, durability)
