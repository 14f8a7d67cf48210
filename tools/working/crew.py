"""Whoever starts real workers, kills and stops them and their processes, and asks some of them to end.

Owns: what is done to workers beyond what is done to everybody (`killing.crew`): the orderly stops, once or twice asked
for, and the strikes at the processes of a worker. Invariants: this process adopts what a killed worker leaves behind,
so that nothing outlives the run unseen; a process that is stopped is let go on, whatever becomes of its worker.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, cast

from harness.journal import SUFFIX
from killing import strikes
from killing.crew import APPOINTMENT_S, AT_RANDOM, PATIENCE_S, WHILE_STOPPED, Crew, Play
from killing.strikes import Appointment
from killing.tasks import happens
from killing.worker import Orders
from working import member
from working.orders import WorkerOrders
from working.sabotage import FORGOTTEN

_STRIKE_S = 0.3
"""Between two strikes at processes of workers, on the average."""
_SCAN_S = 0.2
_SPAWN_S = 6.0
"""How much longer a worker lives whose processes have to start first, and are struck at meanwhile."""
_FATES = {
    "threads": {"appointment": 40, "stopped": 15, "asked": 20, "killed": 25},
    "asyncio": {"appointment": 40, "stopped": 15, "asked": 20, "killed": 25},
    "processes": {"appointment": 25, "stopped": 15, "asked": 40, "killed": 20},
    FORGOTTEN: {"asked": 70, "killed": 30},
}
"""What is to become of a worker, and how often; by the mode, or the control."""
_PR_SET_CHILD_SUBREAPER = 36
_FAULTS = ("Exception in thread", "Exception ignored", "was never", "Fatal Python error")
"""What a worker never says: a thread of it has died, or something was left behind."""
_SHOWN_CHARS = 2_000
IN_A_PROCESS = "in a process of a worker: "


@dataclass(slots=True)
class _Process:
    """A process of a worker, held by its descriptor, so that no other one can be meant."""

    stem: str
    descriptor: int
    found_at: float
    wakes_at: float | None = None
    asleep: str | None = None
    """The job on which it has put itself to sleep."""

    def send(self, number: int) -> bool:
        """Send a signal, or 0 for none; tell whether it was still there."""
        try:
            signal.pidfd_send_signal(self.descriptor, number)
        except ProcessLookupError:
            return False
        return True


class WorkersCrew(Crew):
    """Real workers on one file."""

    PLAY: ClassVar[Play] = Play(
        lambda orders: member.prepare(_own(orders)), lambda orders: member.main(_own(orders)), member.LEASE_S
    )

    def __init__(self, orders: WorkerOrders, *, size: int, kills: int) -> None:
        is_small = orders.mode == "processes"  # each has as many more
        super().__init__(orders, size=max(2, size // 2) if is_small else size, kills=kills)
        self.asked = 0
        self._mode = orders.mode
        self._asks_at: dict[int, list[float]] = {}
        """When each is asked to end, by its process id."""
        self._processes: dict[str, _Process] = {}
        self._hired_at: dict[str, float] = {}
        """Those of whose processes none has begun yet."""
        self._found: set[str] = set()
        self._told: set[Path] = set()
        self._scans_at = self._strikes_at = 0.0
        adopt_orphans()

    @property
    def figures(self) -> dict[str, int]:
        """What was done to them."""
        return {**super().figures, "asked to end, once or twice": self.asked}

    # --- what is done to them

    def _kill_on(self) -> bool:
        now = time.monotonic()
        self._ask(now)
        if self._mode == "processes" and now >= self._strikes_at:
            self._strikes_at = now + self._random.expovariate(1 / _STRIKE_S)
            self._strike(now)
        return super()._kill_on()

    def _hire(self, now: float) -> None:
        random = self._random
        longer_s = _SPAWN_S if self._mode == "processes" else 0.0
        fates = _FATES.get(self.orders.control or "", _FATES[self._mode])
        match random.choices(list(fates), list(fates.values()))[0]:
            case "appointment":
                appointment = Appointment(random.choice(strikes.POINTS), 1 + int(random.expovariate(0.1)))
                self._hire_one(now + longer_s + APPOINTMENT_S, appointment=appointment)
            case "stopped":
                stops_at = now + longer_s + random.uniform(0.1, 1.0)
                self._hire_one(now + longer_s + 10 * self.PLAY.lease_s, stops_at=stops_at)
            case "asked":
                asked_at = now + random.uniform(0.1, 1.5) + random.uniform(0, longer_s)
                times = [asked_at] if happens(random, 0.6) else [asked_at, asked_at + random.uniform(0, 0.2)]
                self._asks_at[self._hire_one(float("inf"))] = times
            case _:
                self._hire_one(now + random.uniform(0.05, 1.5) + random.uniform(0, 3 * longer_s))

    def _hire_one(
        self, dies_at: float, *, stops_at: float | None = None, appointment: Appointment | None = None
    ) -> int:
        drain_timeout_s = self._random.choice((0.0, 0.1, 0.3, 5.0))
        orders = replace(_own(self.orders), appointment=appointment, drain_timeout_s=drain_timeout_s)
        pid = self._start(orders, self.PLAY.work, dies_at=dies_at, stops_at=stops_at)
        self._hired_at[self._members[-1].orders.name] = time.monotonic()
        return pid

    def _ask(self, now: float) -> None:
        for one in self._members:
            times = self._asks_at.get(one.pid, [])
            while times and times[0] <= now:
                self.asked += len(times) == 1
                one.ask()
                del times[0]
                if not times:
                    one.ends_by = now + PATIENCE_S

    # --- processes of workers

    def _scan(self, now: float) -> None:
        """Find the processes that have begun, and the last words of those that have died."""
        if now < self._scans_at:
            return
        self._scans_at = now + _SCAN_S
        for path in self.orders.folder.glob(f"*.*{SUFFIX}"):
            if path.stem not in self._found:
                self._found.add(path.stem)
                took_s = now - self._hired_at.pop(path.stem.partition(".")[0], now)
                self.slowest_start_s = max(self.slowest_start_s, took_s)
                with suppress(ProcessLookupError):
                    descriptor = os.pidfd_open(int(path.stem.rpartition(".")[2]))
                    self._processes[path.stem] = _Process(path.stem, descriptor, now)
        for process in self._processes.values():
            self._wake_if_missed(process, now)
        self._count_last_words()

    def _wake_if_missed(self, process: _Process, now: float) -> None:
        """Let one that has put itself to sleep go on when somebody else has its job, or when that takes long."""
        if process.wakes_at is None and process.asleep is None:
            asleep = self.orders.folder / f"{process.stem}.asleep"
            process.asleep = asleep.read_text(encoding="ascii") or None if asleep.exists() else None
            if process.asleep is not None:
                self.stops += 1
                process.wakes_at = now + self.PLAY.lease_s * self._random.uniform(1.5, 5)
        elif process.asleep is not None and process.wakes_at is not None and self.orders.held(process.asleep).exists():
            process.wakes_at = now

    def _count_last_words(self) -> None:
        for path in self.orders.folder.glob("*.*.died"):
            where = path.read_text(encoding="ascii")
            if path not in self._told and where:
                self._told.add(path)
                self.deaths[f"{IN_A_PROCESS}{where}"] += 1

    def _strike(self, now: float) -> None:
        """Kill or stop one of the processes that have had time to begin."""
        old = [process for process in self._processes.values() if now >= process.found_at + self.PLAY.lease_s]
        alive = [process for process in old if process.send(0)]
        if not alive:
            return
        process = self._random.choice(alive)
        if happens(self._random, 0.7):
            how = AT_RANDOM if process.wakes_at is None else WHILE_STOPPED
            self.orders.folder.joinpath(f"{process.stem}.struck").touch()
            if process.send(signal.SIGKILL) and not self.orders.folder.joinpath(f"{process.stem}.died").exists():
                self.deaths[f"{IN_A_PROCESS}{how}"] += 1
        elif process.wakes_at is None and process.send(0):
            self.orders.folder.joinpath(f"{process.stem}.stopped").touch()
            process.send(signal.SIGSTOP)
            self.stops += 1
            process.wakes_at = now + self.PLAY.lease_s * self._random.uniform(0.2, 3)

    def _wake_sleepers(self, now: float) -> None:
        super()._wake_sleepers(now)
        if self._mode == "processes":
            self._scan(now)
        for process in self._processes.values():
            if process.wakes_at is not None and process.wakes_at <= now:
                process.wakes_at = None
                process.send(signal.SIGCONT)

    # --- the end

    def _end_all(self) -> None:
        """See to it that nobody is left; what a worker has left behind ends by itself."""
        super()._end_all()
        self._members.clear()
        self._until(lambda: not _children(), PATIENCE_S, "processes of killed workers do not end")
        for pid in _children():
            self.broken.append(f"{self.orders.title}: process {pid} was left, {_status(pid)}")
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for process in self._processes.values():
            os.close(process.descriptor)
        self._count_last_words()
        for trouble in sorted(self.orders.folder.glob("*.*.trouble")):
            self.broken.append(f"{trouble.stem}: {trouble.read_text(encoding='utf-8')}")
        for said in sorted(self.orders.folder.glob("*.stderr")):
            text = said.read_text(encoding="utf-8", errors="replace")
            at = min((place for sign in _FAULTS if (place := text.find(sign)) >= 0), default=-1)
            if at >= 0:
                self.broken.append(f"{said.stem} said: {text[at : at + _SHOWN_CHARS]}")


def adopt_orphans() -> None:
    """Let what the children of this process leave behind be its own children from then on (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _own(orders: Orders) -> WorkerOrders:
    return cast("WorkerOrders", orders)


def _children() -> list[int]:
    return [
        int(pid) for pid in Path("/proc/self/task", str(os.getpid()), "children").read_text(encoding="ascii").split()
    ]


def _status(pid: int) -> str:
    """Say what a process is, and whether it sleeps, runs or is stopped."""
    command = Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return f"{Path('/proc', str(pid), 'stat').read_text(encoding='utf-8').rpartition(') ')[2][:1]} {command[:200]}"
