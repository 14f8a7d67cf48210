"""Whoever starts the workers, kills them, stops them and replaces them.

Owns: the processes, from the fork to the last wait; none outlives the run. Invariants: this process never opens the
queue, so a fork of it is a clean start; the number of workers that are not stopped stays the same; every death has a
cause, the worker's own last word or what was done to it here, and one that has none is reported.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, NamedTuple

from killing import strikes, worker
from killing.strikes import Appointment
from killing.tasks import happens
from killing.worker import LEASE_S, Orders

AT_RANDOM = "at a random moment"
WHILE_STOPPED = "while stopped"
_STEP_S = 0.01
PATIENCE_S = 30.0
"""How long a worker may take to end when it is asked to, and the drain without a sign of life."""
APPOINTMENT_S = 3.0
"""A worker that does not come to its point is killed wherever it is."""
_LEAST_S = 2.5
"""How long a restricted run lasts, however soon enough are killed: its schedules come due each second."""
_MOST_STOPPED = 6
_MOST_ASKED = 2
"""A real worker that is asked once more gives nothing back that it cannot give back at once."""


@dataclass(slots=True)
class Member:
    """A worker process."""

    pid: int
    orders: Orders
    dies_at: float
    stops_at: float | None = None
    wakes_at: float | None = None
    """When it is stopped: until when."""
    ends_by: float = float("inf")
    """When it is asked to end: until when it has to."""
    killed: str | None = None
    """What was done to it here."""
    asked: int = 0
    """How often it was asked to end."""
    is_alone: bool = False
    """Whether nobody who makes jobs was left when it began."""

    def ask(self) -> None:
        """Ask it to end."""
        self.asked += 1
        os.kill(self.pid, signal.SIGTERM)


class Play(NamedTuple):
    """What the processes of a crew do."""

    prepare: Callable[[Orders], None]
    """The first one, which makes the queue."""
    work: Callable[[Orders], int]
    """The others; returns the exit status."""
    lease_s: float


class Crew:
    """The workers on one file."""

    PLAY: ClassVar[Play] = Play(worker.prepare, worker.main, LEASE_S)

    def __init__(self, orders: Orders, *, size: int, kills: int) -> None:
        self.deaths: Counter[str] = Counter()
        self.stops = 0
        self.slowest_start_s = 0.0
        """How long it took at most until one that was started could work, where that is not at once."""
        self.broken: list[str] = []
        self.orders = orders
        self._random = Random(f"{orders.seed} crew {orders.title}")
        self._size = size
        self._kills = kills
        self._members: list[Member] = []
        self._started = 0
        self._has_drained = False
        self._lasts_until = 0.0

    def run(self) -> None:
        """Work and kill until enough have been killed; then let the rest be done, without kills."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        try:
            self._start(self.orders, lambda orders: worker.reported(orders, self.PLAY.prepare))
            self._until(lambda: not self._members, PATIENCE_S, "the queue could not be made")
            if self.orders.is_restricted:
                self._lasts_until = time.monotonic() + _LEAST_S
            self._until(self._kill_on, self._kills + 2 * PATIENCE_S, f"{self._kills} kills took too long")
            self._dismiss(with_sleepers=False)
            self._until(self._drain_on, PATIENCE_S * 2, "jobs are left that nobody could finish (G5)")
            self._dismiss(with_sleepers=True)
        finally:
            self._end_all()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    def _end_all(self) -> None:
        for member in self._members:
            os.kill(member.pid, signal.SIGKILL)
            os.waitpid(member.pid, 0)

    def _until(self, is_done: Callable[[], bool], most_s: float, complaint: str) -> None:
        deadline = time.monotonic() + most_s
        while not is_done():
            if time.monotonic() > deadline:
                self.broken.append(f"{self.orders.title}: {complaint} ({most_s:g} s)")
                return
            signal.sigtimedwait({signal.SIGCHLD}, _STEP_S)
            self._listen()
            self._wake_sleepers(time.monotonic())

    @property
    def figures(self) -> dict[str, int]:
        """What was done to them."""
        return {"killed": self.deaths.total(), "stopped, most past their lease": self.stops}

    # --- phases

    def _kill_on(self) -> bool:
        now = time.monotonic()
        for member in self._members:
            if member.ends_by <= now:
                self.broken.append(f"{member.orders.name} did not end when asked to ({PATIENCE_S:g} s)")
                member.dies_at = member.ends_by
                member.ends_by = float("inf")
            if member.dies_at <= now and member.killed is None:
                member.killed = AT_RANDOM if member.wakes_at is None else WHILE_STOPPED
                os.kill(member.pid, signal.SIGKILL)
            elif member.stops_at is not None and member.stops_at <= now:
                member.stops_at = None
                os.kill(member.pid, signal.SIGSTOP)
        awake = sum(member.wakes_at is None for member in self._members)
        for _ in range(min(self._size - awake, self._size + _MOST_STOPPED - len(self._members))):
            self._hire(now)
        return self.deaths.total() >= self._kills and now >= self._lasts_until

    def _drain_on(self) -> bool:
        """Let two go on until the sleepers of before have woken up and nothing is left."""
        at_work = sum(member.orders.is_last for member in self._members)
        for _ in range(0 if self._has_drained else min(2, self._size) - at_work):
            self._start(replace(self.orders, is_last=True), self.PLAY.work)
        return self._has_drained

    def _dismiss(self, *, with_sleepers: bool) -> None:
        """Ask all to end, and wait for it; a sleeper hears of it when it wakes up, in its own time."""
        for member in self._members:
            member.dies_at, member.stops_at = float("inf"), None
            if member.asked < _MOST_ASKED:
                member.ask()
        self._until(
            lambda: not any(with_sleepers or member.wakes_at is None for member in self._members),
            PATIENCE_S,
            "workers did not end when asked to",
        )

    # --- one worker

    def _hire(self, now: float) -> None:
        random = self._random
        if happens(random, 0.65):
            appointment = Appointment(random.choice(strikes.POINTS), 1 + int(random.expovariate(0.2)))
            self._start(replace(self.orders, appointment=appointment), self.PLAY.work, dies_at=now + APPOINTMENT_S)
        elif happens(random, 0.2):
            stops_at = now + random.uniform(0.05, 0.5)
            self._start(self.orders, self.PLAY.work, dies_at=now + 10 * self.PLAY.lease_s, stops_at=stops_at)
        else:
            self._start(self.orders, self.PLAY.work, dies_at=now + random.uniform(0.02, 0.6))

    def _start(
        self,
        orders: Orders,
        work: Callable[[Orders], int],
        *,
        dies_at: float = float("inf"),
        stops_at: float | None = None,
    ) -> int:
        """Start a process; return its id."""
        self._started += 1
        named = replace(orders, name=f"worker-{self._started}")
        # A worker hears of its dismissal when it has begun to listen, and not before.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
                status = work(named)
            finally:
                os._exit(status)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        is_alone = all(other.orders.is_last for other in self._members)
        self._members.append(Member(pid, named, dies_at, stops_at, is_alone=is_alone))
        return pid

    def _listen(self) -> None:
        """Take note of who has ended or stopped since."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            member = next((member for member in self._members if member.pid == pid), None)
            if member is None:
                continue  # a process of a worker that is gone
            if os.WIFSTOPPED(status):
                self._has_stopped(member, time.monotonic())
            else:
                self._members.remove(member)
                self._has_ended(member, os.waitstatus_to_exitcode(status))

    def _wake_sleepers(self, now: float) -> None:
        """Wake those whose time has come."""
        for member in self._members:
            is_due = member.wakes_at is not None and (member.wakes_at <= now or member.orders.is_missed())
            if is_due and member.killed is None:
                member.wakes_at = None
                os.kill(member.pid, signal.SIGCONT)

    def _has_stopped(self, member: Member, now: float) -> None:
        self.stops += 1
        asleep_s = self.PLAY.lease_s * self._random.uniform(1.1, 4)
        member.wakes_at = now + asleep_s
        if member.dies_at < float("inf"):  # a few never wake, the others have some time after it
            share = self._random.uniform(0.5, 0.9) if happens(self._random, 0.25) else 2
            member.dies_at = now + asleep_s * share

    def _has_ended(self, member: Member, status: int) -> None:
        trouble = member.orders.said("trouble")
        if trouble.exists():
            self.broken.append(f"{member.orders.name} ended by itself: {trouble.read_text(encoding='utf-8')}")
        elif status == -signal.SIGKILL or member.orders.said("died").exists():
            self.deaths[self._cause(member)] += 1
        elif status != 0:
            self.broken.append(f"{member.orders.name} ended with {status}")
        elif member.orders.is_last and member.is_alone:
            self._has_drained = True

    def _cause(self, member: Member) -> str:
        last_word = member.orders.said("died")
        named = last_word.read_text(encoding="ascii") if last_word.exists() else ""
        if named:  # else it said nothing, or was killed by another while it wrote that
            return named
        if member.killed is None:
            self.broken.append(f"{member.orders.name} was killed by nobody")
        return member.killed or "by nobody"
