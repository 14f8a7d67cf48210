"""The processes of a run with applications: every other one places orders, the others do what is to be done."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from applying import member, placing
from applying.orders import ApplicationOrders
from killing.crew import Crew, Play
from killing.strikes import Appointment
from killing.tasks import happens
from killing.worker import LEASE_S

_BEGUN_S = 0.5
_LONGEST_S = 3.0
"""How long a stranger, a program that has to start first, and a worker beside it live at least, and at most."""


class ApplicationsCrew(Crew):
    """Applications and workers on one file."""

    PLAY: ClassVar[Play] = Play(member.prepare, member.main, LEASE_S)

    def _hire(self, now: float) -> None:
        orders, random = self.orders, self._random
        is_among_strangers = isinstance(orders, ApplicationOrders) and orders.way == "dbapi"
        is_stranger = is_among_strangers and self._started % 2 == 1
        if not is_among_strangers or (not is_stranger and happens(random, 0.3)):
            super()._hire(now)
            return
        appointment = None
        if is_stranger and happens(random, 0.65):
            appointment = Appointment(random.choice(placing.POINTS), 1 + int(random.expovariate(0.03)))
        dies_at = now + (2 * _LONGEST_S if appointment else random.uniform(_BEGUN_S, _LONGEST_S))
        self._start(replace(orders, appointment=appointment), self.PLAY.work, dies_at=dies_at)
