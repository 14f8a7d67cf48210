"""What a process of a run with applications is told at its start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from killing.worker import Orders

Way = Literal["outbox", "lease-in-transaction", "attach", "dbapi"]


@dataclass(frozen=True, slots=True)
class ApplicationOrders(Orders):
    """Orders for an application, or for one of the workers beside it."""

    way: Way = "outbox"
    """How the jobs commit with the application's rows."""

    @property
    def title(self) -> str:
        """What the file is called in what is told of it."""
        return f"{self.way}/{self.durability}"

    @property
    def number(self) -> int:
        """Which of the processes it is, by the order in which they were started."""
        return int(self.name.rpartition("-")[2])

    @property
    def is_application(self) -> bool:
        """Whether it places orders; the others do what is to be done about them."""
        return not self.is_last and self.number % 2 == 0
