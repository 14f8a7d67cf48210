"""One fault point: a verb whose disk fails at one of its operations, and whether every promise was kept.

Owns: the rehearsal (the same verb without a fault, whose every commit is noted), the trial, and the judgement. What is
held against the promises: the error; what a process killed at the fault, and right after the verb, leaves; what the
handle and a fresh one tell; whether what they told stays true; the verb called again on the same handle; the file at
the end (contract G2, G11, §6). Leaves out: which points are tried, and where the figures go.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

import apsw

import litequeue
from disk_faults import state
from disk_faults.verbs import BY_NAME, Scene, Verb
from harness.failing import KINDS, Disk, Fault, Sort
from litequeue import ANY, LiteQueueError, OutcomeUnknown
from litequeue.sqlite.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from disk_faults.state import State
    from disk_faults.verbs import Deed
    from litequeue.sqlite.context import Context
    from litequeue.sqlite.store import Durability

_OF_FULL = {"QueueFull", "OutcomeUnknown"}
_OF_OPEN = {"CannotOpen", "OutcomeUnknown"}
_OF_IO = {"StorageLost", "OutcomeUnknown"}
_AT_OPENING = {"CannotOpen", "QueueFull"}
_MEMORY = "/dev/shm"  # noqa: S108 - a folder of random name is made in it
ANSWERED = "answered"


class Point(NamedTuple):
    """One fault point."""

    verb: str
    durability: Durability
    kind: str
    nth: int
    for_good: bool

    def __str__(self) -> str:
        how = "from then on" if self.for_good else "once"
        return f"{self.verb} ({self.durability}), {self.kind} at operation {self.nth + 1}, {how}"


class Rehearsal(NamedTuple):
    """A verb without a fault."""

    states: list[State]
    """Before the verb, and after each of its commits."""
    operations: Counter[Sort]
    """What it asked of the disk."""


@dataclass(slots=True)
class Finding:
    """What a trial found."""

    point: Point
    is_met: bool
    """Whether the fault came: the verb may end before."""
    answer: str
    """The error's name, or that the verb answered."""
    broken: list[str] = field(default_factory=list)


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for the time of a trial: in memory, where the system has such a place."""
    where = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="litequeue-iofaults-", dir=where)


class Stage:
    """Where trials are played: one in a process, whose default VFS becomes the failing one."""

    def __init__(self, *, swallows: bool = False) -> None:
        self.disk = Disk(swallows=swallows)
        self._rehearsals: dict[tuple[str, Durability], Rehearsal] = {}
        self._on_commit: Callable[[], None] = lambda: None
        self._commits = 0
        logging.getLogger("litequeue").setLevel(logging.CRITICAL)

    def rehearse(self, verb: Verb, durability: Durability) -> Rehearsal:
        """Play a verb without a fault, once for all its trials."""
        known = self._rehearsals.get((verb.name, durability))
        if known is not None:
            return known
        with scratch() as folder, self._watching():
            scene, deed = self._set(folder, verb, durability)
            states = [_state(scene.path)]

            def note_state() -> None:
                so_far = Counter(self.disk.done)
                states.append(_state(scene.path))
                self.disk.done = so_far

            self._on_commit = note_state
            self.disk.arm(None)
            deed()
            self._on_commit = lambda: None
            operations = Counter(self.disk.done)
            if verb.is_opening:
                states.append(_state(scene.path))
            scene.queue.close()
        found = self._rehearsals[verb.name, durability] = Rehearsal(states, operations)
        return found

    def play(self, point: Point) -> Finding:
        """Let a verb meet a fault; judge what came of it."""
        verb = BY_NAME[point.verb]
        rehearsal = self.rehearse(verb, point.durability)
        with scratch() as folder, self._watching():
            scene, deed = self._set(folder, verb, point.durability)
            trial = _Trial(self.disk, verb, rehearsal.states, scene, deed)
            self.disk.at_fault = lambda: trial.note_fault(self._commits)
            self.disk.arm(Fault(KINDS[point.kind], point.nth, point.for_good))
            error: Exception | None = None
            try:
                deed()
            except Exception as exc:  # noqa: BLE001 - judged below
                error = exc
            finally:
                self.disk.disarm()
                self.disk.at_fault = lambda: None
            finding = Finding(point, self.disk.failures > 0, ANSWERED if error is None else type(error).__name__)
            if finding.is_met:
                if error is not None and finding.answer not in _documented(point.kind, verb):
                    trial.broken.append(f"raised {error!r}")
                trial.judge(error, self._commits)
            else:
                trial.end()
            finding.broken = [f"{point}: {finding.answer}: {what}" for what in trial.broken]
            return finding

    def _set(self, folder: str, verb: Verb, durability: Durability) -> tuple[Scene, Deed]:
        scene = Scene(f"{folder}/app.queue", durability)
        deed = verb.prepare(scene)
        for connection in apsw.connections():  # so that the verb has something to read
            if not connection.in_transaction:
                connection.execute("PRAGMA shrink_memory")
        self._commits = 0
        return scene, deed

    def _watching(self) -> ExitStack:
        """Count the commits that the store has heard of."""
        commit = Store.commit

        def watched(store: Store, context: Context) -> None:
            commit(store, context)
            self._commits += 1
            self._on_commit()

        stack = ExitStack()
        stack.enter_context(mock.patch.object(Store, "commit", watched))
        return stack


class _Trial:
    """A verb that has met its fault."""

    def __init__(self, disk: Disk, verb: Verb, states: list[State], scene: Scene, deed: Deed) -> None:
        self._disk = disk
        self._verb = verb
        self._states = states
        self._scene = scene
        self._deed = deed
        self._recoveries: dict[tuple[tuple[str, bytes], ...], State] = {}
        self._at_fault: tuple[dict[str, bytes], int] | None = None
        self.broken: list[str] = []

    def note_fault(self, commits: int) -> None:
        """Keep what a process killed at the first fault would leave."""
        if self._at_fault is None:
            self._at_fault = self._disk.image(self._scene.path), commits

    def judge(self, error: Exception | None, commits: int) -> None:
        """Hold everything against the promises."""
        image = self._disk.image(self._scene.path)
        allowed = self._allowed(error, commits)
        self._check("killed right after it", self._recovered(image), allowed)
        if self._at_fault is not None and self._at_fault[0] != image:
            at_fault, so_far = self._at_fault
            self._check("killed at the fault", self._recovered(at_fault), self._around(so_far))
        try:
            told = self._look(allowed)
            self._repeat(error, told)
            self.end()
        except (LiteQueueError, apsw.Error, OSError) as exc:
            self.broken.append(f"afterwards {exc!r}")

    def end(self) -> None:
        """Use the handle once more, close it, and look at the file."""
        if not self._verb.is_opening and not self._verb.may_fail_silently:
            new = self._scene.queue.enqueue("afterwards").job_id
            if state.places(self._scene.path).get(new) != "PENDING":
                self.broken.append("what was enqueued afterwards is not there")
        self._scene.queue.close()
        self.broken += [f"in the end {what}" for what in state.problems(self._scene.path)]

    def _allowed(self, error: Exception | None, commits: int) -> list[State]:
        """Return the states that the file may be in, by what the caller has heard."""
        if self._verb.is_opening or self._verb.may_fail_silently:
            return self._states if error is not None or self._verb.may_fail_silently else self._states[-1:]
        if error is None:
            return self._states[-1:]
        return self._around(commits) if isinstance(error, OutcomeUnknown) else self._states[commits : commits + 1]

    def _around(self, commits: int) -> list[State]:
        return self._states if self._verb.is_opening else self._states[commits : commits + 2]

    def _look(self, allowed: list[State]) -> State:
        """Ask the handle, and a fresh one, what has become of the verb; what they tell has to stay true."""
        path = self._scene.path
        if not self._verb.is_opening and not self._verb.may_fail_silently:
            told = {job.job_id: job.state.name for job in self._scene.queue.list(scope=ANY, limit=1_000)}
            if told != state.places(path):
                self.broken.append("the handle tells another story than a fresh one")
        seen = _state(path)
        self._check("seen by others", seen, allowed)
        if os.path.exists(path):  # noqa: PTH110 - text, as SQLite gives it
            self._check("killed after it was looked up", self._recovered(self._disk.image(path)), [seen])
        return seen

    def _repeat(self, error: Exception | None, told: State) -> None:
        """Call the verb again, when it has not been done, or when that is safe by its own promise."""
        if self._verb.may_fail_silently or (told == self._states[-1] and not self._verb.is_repeatable):
            return
        self._deed()
        if _state(self._scene.path) != self._states[-1]:
            what = "its repetition" if error is not None else "a second call"
            differs = state.difference(_state(self._scene.path), self._states[-1])
            self.broken.append(f"{what} did something else: {differs}")

    def _recovered(self, image: dict[str, bytes]) -> State:
        """Open a copy of the files as the next process would, and look at it."""
        if "" not in image:
            return {}
        key = tuple(image.items())
        if key in self._recoveries:
            return self._recoveries[key]
        with scratch() as folder:
            path = state.lay_out(folder, image)
            found: State = {}
            try:
                found = _state(path)  # before the opening, which writes at a boot
                self.broken += [f"a killed process leaves {what}" for what in state.problems(path)]
                litequeue.open(path, clock=self._scene.clock).close()
            except (LiteQueueError, apsw.Error) as exc:
                self.broken.append(f"a killed process leaves a file that cannot be opened: {exc!r}")
            self._recoveries[key] = found
            return found

    def _check(self, when: str, found: State, allowed: list[State]) -> None:
        if found not in allowed:
            self.broken.append(f"{when}: {state.difference(found, allowed[-1])}")


def _documented(kind: str, verb: Verb) -> set[str]:
    """Return the names of the errors that the contract allows for a kind of fault (§6)."""
    found = _OF_FULL if kind.startswith("full") else _OF_OPEN if kind == "open" else _OF_IO
    if kind == "disk gone":
        found = _OF_IO | _OF_OPEN
    return found | _AT_OPENING if verb.is_opening else found


def _state(path: str) -> State:
    return state.state_of(path) if os.path.exists(path) else {}  # noqa: PTH110 - text, as SQLite gives it
