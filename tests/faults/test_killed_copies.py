"""Backups and restores that are killed: at every line of their code, and at any moment at all.

Whatever dies when, there is the old file or the new one, never a mixture, and nothing else that opens as a queue.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import NewJob
from litequeue.sqlite import copying, restoring
from litequeue.sqlite.examining import problems

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from _typeshed import TraceFunction

    from litequeue.sqlite.connection import Patience
    from tests.faults import children

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and forks are POSIX"),
]

ROOMS = ("copying.py", "backing_up.py", "restoring.py", "partial.py")
JOBS = {"old": 700, "new": 300}
"""By what a file is told from another; the one that is overwritten is larger, so that pages are cut off as well."""
MOST_LINES = 2000


class Scene:
    """A folder with a source and, perhaps, a target, made anew for each kill."""

    def __init__(self, verb: str, *, has_target: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="litequeue-kill-"))
        self.verb = verb
        self.has_target = has_target
        for name, jobs in JOBS.items():
            with litequeue.open(self.folder / name, durability="normal") as queue:
                queue.enqueue_many(NewJob(name, number) for number in range(jobs))
        self.place = self.folder / "place"

    @property
    def target(self) -> Path:
        """Where the result is to stand."""
        return self.place / "app.queue"

    def begin(self) -> None:
        """Make the place as it was."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        if self.has_target:
            shutil.copy(self.folder / "old", self.target)

    def act(self) -> None:
        """Do what is going to be killed."""
        if self.verb == "backup":
            with litequeue.open(self.folder / "new") as queue:
                queue.backup(self.target, overwrite=self.has_target)
        else:
            litequeue.restore(self.folder / "new", self.target, overwrite=True)

    def outcome(self) -> str:
        """Say what stands there now: `old` or `new`, or what is wrong."""
        for found in sorted(self.place.iterdir()):
            if found != self.target and found.suffix not in ("", ".queue-lock", ".queue-bell"):
                try:
                    litequeue.open(found, create=False).close()
                except litequeue.LiteQueueError:
                    continue
                return f"{found.name} opens as a queue"
        if not self.target.exists():
            return "nothing"
        try:
            with litequeue.open(self.target, create=False) as queue:
                kinds = {kind: sum(counts.values()) for kind, counts in queue.stats().by_kind.items()}
        except litequeue.LiteQueueError as exc:
            return str(exc)
        wrong = problems(str(self.target))
        for name, jobs in JOBS.items():
            if kinds == {name: jobs} and not wrong:
                return name
        return f"{kinds} {wrong}"

    def end(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder)


def write_early() -> None:
    """Let SQLite write pages of an open transaction to the file at once, as it does with large files."""
    connect: Callable[..., apsw.Connection] = vars(restoring)["connect"]

    def connect_with_little_memory(path: str, patience: Patience, *, create: bool) -> apsw.Connection:
        connection = connect(path, patience, create=create)
        connection.execute("PRAGMA cache_size = 1").fetchall()
        return connection

    vars(restoring)["connect"] = connect_with_little_memory
    copying._STEP_PAGES = 20


def in_fork(work: Callable[[], object]) -> int:
    """Run work in a fork; return how it ended."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - the status is the answer
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(line: int, work: Callable[[], object]) -> Callable[[], None]:
    """Return work that is killed before the so-manieth line of the rooms that copy."""
    seen = 0

    def trace(frame: FrameType, event: str, _argument: object) -> TraceFunction | None:
        nonlocal seen
        if not frame.f_code.co_filename.endswith(ROOMS):
            return None
        if event == "line":
            if seen == line:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1
        return trace

    def run() -> None:
        sys.settrace(trace)
        work()

    return run


def kill_at_every_line(_parent: children.Parent, verb: str, has_target: bool, stride: int, first: int) -> list[str]:
    """Kill the verb before each line in turn; return what stood there after each."""
    write_early()
    scene = Scene(verb, has_target=has_target)
    outcomes: list[str] = []
    try:
        for line in range(first, MOST_LINES, stride):
            scene.begin()
            status = in_fork(killed_at(line, scene.act))
            outcomes.append(scene.outcome())
            if status == 0:
                return outcomes
            assert status == -signal.SIGKILL
    finally:
        scene.end()
    raise AssertionError("there are more lines than that")


@pytest.mark.parametrize("has_target", [True, False])
@pytest.mark.parametrize("verb", ["backup", "restore"])
def test_a_kill_at_any_line_leaves_the_old_or_the_new(
    processes: children.Children,
    verb: str,
    has_target: bool,
) -> None:
    """First always the old one, then always the new one (G2)."""
    stride = 4
    outcomes = processes.start(kill_at_every_line, verb, has_target, stride, random.randrange(stride)).result(110)
    assert isinstance(outcomes, list)
    before = "old" if has_target else "nothing"
    assert set(outcomes) == {before, "new"}
    assert outcomes == sorted(outcomes, key=[before, "new"].index)
    assert outcomes.count(before) > 20


def kill_at_random(_parent: children.Parent, seed: int, kills: int) -> dict[str, int]:
    """Kill restores over an existing queue after random times, in the middle of whatever SQLite does just then."""
    write_early()
    chance = random.Random(seed)
    scene = Scene("restore", has_target=True)
    counts: dict[str, int] = {}
    try:
        for _ in range(kills):
            scene.begin()
            delay_s = chance.uniform(0.001, 0.08)

            def work(delay_s: float = delay_s) -> None:
                signal.setitimer(signal.ITIMER_REAL, delay_s)
                signal.signal(signal.SIGALRM, signal.SIG_DFL)  # whose default is death without a word
                scene.act()

            in_fork(work)
            outcome = scene.outcome()
            counts[outcome] = counts.get(outcome, 0) + 1
    finally:
        scene.end()
    return counts


def test_a_kill_at_any_moment_leaves_the_old_or_the_new(processes: children.Children) -> None:
    """Also in the middle of a write or a sync (G2)."""
    counts = processes.start(kill_at_random, random.randrange(2**31), 40).result(110)
    assert isinstance(counts, dict)
    assert counts.keys() <= {"old", "new"}
    assert counts.get("old", 0) > 0
