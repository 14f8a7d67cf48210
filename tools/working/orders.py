"""What a worker of a harness is told at its start."""

from __future__ import annotations

from dataclasses import dataclass

from killing.worker import Orders
from litequeue.worker.worker import Mode


@dataclass(frozen=True, slots=True)
class WorkerOrders(Orders):
    """Orders for a real worker."""

    mode: Mode = "threads"
    drain_timeout_s: float = 5.0
    pid: int = 0
    """Its process; those that it starts have others."""
    has_appointments: bool = True
    """Whether its processes may die at named points."""

    @property
    def title(self) -> str:
        """What the file is called in what is told of it."""
        return f"{self.mode}/{self.durability}"
