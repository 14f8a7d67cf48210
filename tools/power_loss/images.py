"""Opens what a disk may hold after a power loss, and holds it against what was promised.

Owns the judgement of one image: SQLite recovers it and finds it whole, its state is one that was committed, and no
older than what the mode promised by then (contract §7). Invariants: images are opened through the ordinary VFS, in a
process that never had the recording one; equal images are opened once, but judged at each place of the log anew.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, TypeVar, cast

import apsw

import litequeue
from litequeue import JobState, Queue
from litequeue.model import ANY
from litequeue.sqlite.examining import problems
from litequeue.testing import FakeClock
from power_loss.committed import digest
from power_loss.disk import MAIN, NOTHING, SUFFIXES, Disk, Image, Sort, Step, load

T = TypeVar("T")

MEMORY: Final = "/dev/shm"  # noqa: S108 - images are written there when there is such a file system
PACKAGE_EVERY: Final = 20
"""One in so many distinct images is opened and worked on by the package itself; the others by SQLite alone."""

_AFTERWARDS: Final = "afterwards"
_YEAR_S: Final = 31_536_000
_LATER_US: Final = 10**15
"""By the monotonic clock: after every moment of the work, so that all its leases have lapsed."""
_MARKS: Final = frozenset({Sort.COMMITTED, Sort.HELD, Sort.NAMED})


class Part(NamedTuple):
    """Images of one log, for one process."""

    log: str
    mode: str
    seed: int
    """Of the workload; with index and variant it makes the image."""
    images: tuple[tuple[int, int], ...]
    """Each is an index of the log, up to which it is played, and a variant; rising."""


class Found(NamedTuple):
    """What an image holds."""

    state: int
    """The newest committed state that it equals; -1 for none."""
    problem: str | None
    """Why it is none, or what went wrong later."""


@dataclass(slots=True)
class Tally:
    """What a part, or a whole mode, came to."""

    images: int = 0
    distinct: int = 0
    by_package: int = 0
    most_behind: int = 0
    """Commits between the newest acknowledged state and the one found, at the most."""
    lost: int = 0
    damaged: int = 0
    misplaced: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SUFFIXES, 0))
    """Images in which a name was missing, had come back or stood for the file of before."""
    broken: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Take over what another part came to."""
        self.images += other.images
        self.distinct += other.distinct
        self.by_package += other.by_package
        self.most_behind = max(self.most_behind, other.most_behind)
        self.lost += other.lost
        self.damaged += other.damaged
        for suffix, count in other.misplaced.items():
            self.misplaced[suffix] += count
        self.broken += other.broken


class Ledger:
    """What a log says was committed and promised, and what its images were found to hold."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.states = {step.data: step.number for step in steps if step.sort is Sort.COMMITTED}
        """The newest state of each digest."""
        self.held = {
            step.number: {step.data[at : at + 16] for at in range(0, len(step.data), 16)}
            for step in steps
            if step.sort is Sort.HELD
        }
        self.committed = list(_highest(steps, {Sort.COMMITTED}))
        self.promised = list(_highest(steps, {Sort.ACKNOWLEDGED}))
        self.answered = list(_highest(steps, {Sort.ACKNOWLEDGED, Sort.ANSWERED}))
        self.named = [(at, step.number, step.data) for at, step in enumerate(steps, 1) if step.sort is Sort.NAMED]
        self.known: dict[bytes, Found] = {}

    def places(self) -> list[int]:
        """Return the indexes at which a power loss is something of its own."""
        return [at for at, step in enumerate(self.steps, 1) if step.sort not in _MARKS]

    def digests(self, state: int) -> list[bytes]:
        """Return the digest of a state."""
        return [found for found, number in self.states.items() if number == state]

    def gone(self, index: int, state: int) -> int:
        """Count the jobs that an enqueue had named by then, in a later state than this, and that this one lacks."""
        held = self.held.get(state, set())
        return sum(at <= index and number > state and name not in held for at, number, name in self.named)


def check(part: Part) -> Tally:
    """Build and judge the images of a part."""
    logging.getLogger("litequeue").setLevel(logging.ERROR)  # dead letters of the work afterwards
    ledger = _ledger(part.log)
    tally = Tally()
    disk = Disk()
    played = 0
    root = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="litequeue-powerloss-", dir=root) as folder:
        for index, variant in part.images:
            for step in ledger.steps[played:index]:
                disk.play(step)
            played = max(played, index)
            draw = Random(f"{part.seed} {index} {variant}")
            image = disk.after_loss(draw, NOTHING if variant == 0 else None)
            found = _find(ledger, tally, image, Path(folder), draw)
            tally.add(_judge(part, ledger, (index, variant), found, image))
    return tally


def _judge(part: Part, ledger: Ledger, place: tuple[int, int], found: Found, image: Image) -> Tally:
    """Hold what an image holds against what was promised when the power went."""
    index, variant = place
    one = Tally(images=1, misplaced={suffix: int(suffix in image.misplaced) for suffix in SUFFIXES})
    promised, committed = ledger.promised[index], ledger.committed[index]
    problem = found.problem
    if problem is None and found.state > committed + 1:
        problem = f"state {found.state}, but only {committed} were committed"
    if problem is not None:
        one.damaged = 1
    else:
        one.most_behind = max(0, ledger.answered[index] - found.state)
        if found.state < promised:
            problem = f"state {found.state}, but {promised} was acknowledged"
        elif gone := ledger.gone(index, found.state):
            problem = f"state {found.state} lacks {gone} jobs that an enqueue had answered with"
        one.lost = int(problem is not None)
    if problem is not None:
        where = f"{part.mode}, workload of seed {part.seed}, index {index}, variant {variant}"
        one.broken.append(f"{where}: {problem} ({image.story})")
    return one


def _find(ledger: Ledger, tally: Tally, image: Image, folder: Path, draw: Random) -> Found:
    """Open an image, unless an equal one has been opened."""
    hashed = hashlib.blake2b(digest_size=16)
    for suffix, contents in image.files.items():
        hashed.update(f"{suffix} {len(contents)} ".encode())
        hashed.update(contents)
    key = hashed.digest()
    known = ledger.known.get(key)
    if known is None:
        tally.distinct += 1
        path = folder / "app.queue"
        known, boot_id = _by_sqlite(ledger, image, path)
        if known.problem is None and (boot_id is None or draw.randrange(PACKAGE_EVERY) == 0):
            tally.by_package += 1
            is_rebooted = draw.random() < 0.5  # noqa: PLR2004 - a machine boots after a power loss; same id: compare
            problem = _by_package(image, path, boot_id, ledger, known.state, is_rebooted=is_rebooted)
            known = known._replace(problem=problem)
        ledger.known[key] = known
    return known


def _by_sqlite(ledger: Ledger, image: Image, path: Path) -> tuple[Found, str | None]:
    """Let SQLite recover the file; return what it holds, and the boot id in it."""
    if MAIN not in image.files:
        return Found(0, None), None
    with _laid_out(image, path):
        try:
            connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READWRITE)
            try:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                whole = connection.execute("PRAGMA integrity_check").fetchall()
                if whole != [("ok",)]:
                    return Found(-1, f"damaged: {whole[0][0]}"), None
                found = digest(connection)
                state = ledger.states.get(found, -1)
                if state > 0:
                    boot_id = connection.execute("SELECT boot_id FROM litequeue_host").fetchall()[0][0]
                    return Found(state, None), cast("str", boot_id)
            finally:
                connection.close()
        except (apsw.Error, UnicodeDecodeError) as exc:
            return Found(-1, f"SQLite cannot read it: {exc}"), None
    return Found(state, None if state == 0 else "its state was never committed"), None


def _by_package(
    image: Image, path: Path, boot_id: str | None, ledger: Ledger, state: int, *, is_rebooted: bool
) -> str | None:
    """Open the image with the package, and work on it; return what went wrong."""
    clock = FakeClock(monotonic_us=_LATER_US, boot_id=boot_id or "first")
    clock.advance(_YEAR_S)
    if is_rebooted:
        clock.reboot()
    with _laid_out(image, path):
        try:
            with litequeue.open(path, clock=clock) as queue:
                if boot_id is not None and not is_rebooted and _connected(path, digest) not in ledger.digests(state):
                    return f"opened by the package it is no longer state {state}"
                wrong = _work(queue)
            wrong += _connected(path, problems)
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is told
            return f"the package cannot work with it: {exc!r}"
    return f"after some work: {', '.join(wrong)}" if wrong else None


def _work(queue: Queue) -> list[str]:
    """Do what a queue is for, in a scope of its own; return what went wrong."""
    stats = queue.stats(ANY)
    leased = stats.counts[JobState.LEASED]
    if stats.lapsed != leased:
        return [f"{leased} leases, of which only {stats.lapsed} have lapsed"]
    job_id = queue.enqueue("afterwards", scope=_AFTERWARDS).job_id
    lease = queue.lease_next(scope=_AFTERWARDS)
    if lease is None or lease.job_id != job_id:
        return ["a job that was enqueued afterwards cannot be leased"]
    lease.complete()
    return [] if queue.get(job_id).state is JobState.COMPLETED else ["a job that was completed afterwards is not"]


def _connected(path: Path, look: Callable[[apsw.Connection], T]) -> T:
    """Look at a file through a connection of its own; a queue that is open here shares this SQLite."""
    connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READWRITE)
    try:
        return look(connection)
    finally:
        connection.close()


@contextmanager
def _laid_out(image: Image, path: Path) -> Iterator[None]:
    """Put the files of an image there; nobody has them open."""
    for suffix, contents in image.files.items():
        path.with_name(path.name + suffix).write_bytes(contents)
    try:
        yield
    finally:
        for left in path.parent.iterdir():
            left.unlink()


@lru_cache(maxsize=2)
def _ledger(log: str) -> Ledger:
    return Ledger(load(Path(log)))


def _highest(steps: Iterable[Step], sorts: set[Sort]) -> Iterator[int]:
    """Return the highest state of these marks, before the first step and after each."""
    return itertools.accumulate((step.number if step.sort in sorts else 0 for step in steps), max, initial=0)
