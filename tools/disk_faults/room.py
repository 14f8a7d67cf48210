"""A queue that is filled up to a limit and worked off there: jobs are refused, acknowledgements are not (§6).

Owns: the limits, the filling, the drain with every verb of a holder, and what is counted. Held against the promises: no
holder's verb and no upkeep is refused at a limit of the queue's own; every acknowledged job ends exactly once; after
pruning there is room again. Where another program has taken the last byte, `QueueFull` is allowed until it gives way.
"""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

import apsw

import litequeue
from disk_faults import state
from disk_faults.trial import scratch
from litequeue import LeaseConflict, LiteQueueError, Maintenance, NewJob, QueueFull
from litequeue.sqlite import filesystem
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from harness.failing import Disk
    from litequeue import Lease

_MIB = 2**20
_WHOLE_BYTES = 28 * _MIB
"""Of a small disk: the reserve, and three quarters of it beyond."""
_LONG_BYTES = 80 * _MIB
"""Of one on which a log can become longer than the reserve."""
_MAX_BYTES = 4 * _MIB
_SIZES_BYTES = (100, 4_000, 60_000, 400_000)
_LARGE_JOBS, _LARGE_BYTES = 12, 960_000
"""Almost all that a small disk has beyond the reserve, in one transaction."""
_MOST_TRIES = 5_000
_TRIES_WITHOUT_ROOM = 60
_JOBS_AFTERWARDS = 100
_ENOUGH = 20
"""So many broken promises end a run: it would only repeat them."""
_WAITING = {"PENDING", "LEASED", "RETRYABLE", "SCHEDULED"}
LIMITS = (
    "reserve of a quota",
    "large batch in a quota",
    "long log in a quota",
    "reserve of a small file system",
    "max_bytes",
    "last byte of a quota",
    "last byte of a small file system",
)


_COUNTED = ("refused jobs", "acknowledged", "lapsed", "dead", "refused at the last byte", "pruned", "jobs afterwards")


@dataclass(slots=True)
class Drained:
    """What came of one queue."""

    row: dict[str, str | int | float | None]
    broken: list[str] = field(default_factory=list)


class Device(NamedTuple):
    """A disk of a known size."""

    folder: str
    taken: Callable[[], AbstractContextManager[None]]
    """Let another program have its last byte, for a while."""


def drain(disk: Disk, limit: str, seed: int) -> Drained:
    """Fill a queue up to a limit, work it off, prune it, and use it again."""
    with ExitStack() as stack:
        place = stack.enter_context(scratch())
        device: Device | None = Device(place, nullcontext)
        if "quota" in limit:
            device = stack.enter_context(_quota(disk, place, _LONG_BYTES if "long log" in limit else _WHOLE_BYTES))
        if "file system" in limit:
            device = stack.enter_context(_mounted(place))
        if device is None:
            return Drained({"limit": f"{limit} (mounting is not allowed here)"})
        filled = _Filled(f"{device.folder}/app.queue", limit, seed)
        try:
            with _read(filled.path) if "long log" in limit else nullcontext():
                filled.fill(_MAX_BYTES if limit == "max_bytes" else None)
            if limit.startswith("last byte"):
                filled.reopen()  # without the log, whose file has room inside
                with device.taken():
                    filled.work(_TRIES_WITHOUT_ROOM, may_be_refused=True)
            filled.work(_MOST_TRIES, may_be_refused=False)
            filled.look()
            filled.refill()
        except (LiteQueueError, apsw.Error) as exc:
            filled.broken.append(f"{limit}: {exc!r}")
        finally:
            filled.queue.close()
        return Drained({"limit": limit, **{name: filled.counted[name] for name in ("jobs", *_COUNTED)}}, filled.broken)


class _Filled:
    """A queue at its limit."""

    def __init__(self, path: str, limit: str, seed: int) -> None:
        self.counted: Counter[str] = Counter()
        self.broken: list[str] = []
        self.path = path
        self._limit = limit
        self._chance = random.Random(f"{seed} {limit}")
        self._clock = FakeClock()
        self._made: set[UUID] = set()
        self._done: set[UUID] = set()
        self.queue = litequeue.open(path, clock=self._clock)
        self.queue.set("dead_retention", 60)

    def reopen(self) -> None:
        """Close, and open again."""
        self.queue.close()
        self.queue = litequeue.open(self.path, clock=self._clock)

    def fill(self, max_bytes: int | None) -> None:
        """Enqueue until there is no room for more."""
        self.queue.set("max_bytes", max_bytes)
        if "large batch" in self._limit:
            self._enqueue(_LARGE_JOBS, (_LARGE_BYTES,))
        for count in (20, 4):
            while self._enqueue(count, _SIZES_BYTES):
                pass
        self.counted["jobs"] = len(self._made)

    def work(self, most: int, *, may_be_refused: bool) -> None:
        """Work off what there is, in at most so many steps; whatever is refused is tried again later."""
        for step in range(most):
            try:
                leases = self.queue.lease_many(self._chance.choice((1, 1, 5)), worker_id="worker")
            except LiteQueueError as exc:
                self._refused("a lease", exc, may_be_refused=may_be_refused)
                if len(self.broken) >= _ENOUGH:
                    return
                continue
            for lease in leases:
                self._end(lease, may_be_refused=may_be_refused)
            if not leases:
                if not any(job_state in _WAITING for job_state in state.places(self.path).values()):
                    return
                self._clock.advance(4_000)
            if step % 5 == 0:
                self._enqueue(1, _SIZES_BYTES)

    def look(self) -> None:
        """Hold the file against what was acknowledged."""
        found = state.places(self.path)
        done = {job_id for job_id, job_state in found.items() if job_state == "COMPLETED"}
        self.counted["dead"] = sum(job_state == "DEAD" for job_state in found.values())
        if found.keys() != self._made:
            self.broken.append(f"{self._limit}: {len(found)} jobs are there, {len(self._made)} were acknowledged")
        if done != self._done:
            self.broken.append(f"{self._limit}: {len(done)} jobs are completed, {len(self._done)} were acknowledged")
        if len(done) + self.counted["dead"] != len(found):
            self.broken.append(f"{self._limit}: {Counter(found.values())}: not every job was worked off")
        self.broken += [f"{self._limit}: in the end {what}" for what in state.problems(self.path)]

    def refill(self) -> None:
        """Prune, and enqueue again."""
        self._clock.advance(200_000)
        self.counted["pruned"] = Maintenance(self.queue).run_once().pruned
        before = len(self._made)
        while len(self._made) < before + _JOBS_AFTERWARDS and self._enqueue(5, _SIZES_BYTES[:2]):
            pass
        self.counted["jobs afterwards"] = len(self._made) - before
        if self.counted["jobs afterwards"] < _JOBS_AFTERWARDS:
            self.broken.append(f"{self._limit}: after draining and pruning there is still no room")

    def _enqueue(self, count: int, sizes_bytes: tuple[int, ...]) -> bool:
        jobs = [NewJob("work", self._chance.randbytes(self._chance.choice(sizes_bytes))) for _ in range(count)]
        try:
            self._made.update(one.job_id for one in self.queue.enqueue_many(jobs))
        except QueueFull:
            self.counted["refused jobs"] += count
            return False
        return True

    def _end(self, lease: Lease, *, may_be_refused: bool) -> None:
        """Say something of a lease, and end it in one way or another; a job whose end is refused lapses."""
        try:
            match self._chance.randrange(8):
                case 0:
                    lease.extend()
                case 1:
                    lease.checkpoint(b"half" * 100, 0.5)
                case 2:
                    lease.note("half")
                case _:
                    pass
            match self._chance.randrange(8):
                case 0:
                    lease.release()
                case 1:
                    lease.fail("boom")
                case 2:
                    self._clock.advance(1_000)
                    self.queue.reap_expired()
                case _:
                    lease.complete("done")
                    self._done.add(lease.job_id)
            self.counted["acknowledged"] += 1
        except LeaseConflict:  # reaped with another one that lapsed
            self.counted["lapsed"] += 1
        except LiteQueueError as exc:
            self._refused("a holder's verb", exc, may_be_refused=may_be_refused)

    def _refused(self, what: str, exc: LiteQueueError, *, may_be_refused: bool) -> None:
        self.counted["refused at the last byte"] += 1
        if not (may_be_refused and isinstance(exc, QueueFull)):
            self.broken.append(f"{self._limit}: {what} was refused: {exc!r}")


@contextmanager
def _read(path: str) -> Iterator[None]:
    """Keep a snapshot open for a while, so that the log is not copied back."""
    connection = apsw.Connection(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM litequeue_job").fetchall()
        yield
    finally:
        connection.close()


@contextmanager
def _quota(disk: Disk, folder: str, whole: int) -> Iterator[Device]:
    """Give a disk that ends somewhere, by the failing VFS."""
    disk.forget_paths()
    disk.quota_bytes = whole

    @contextmanager
    def taken() -> Iterator[None]:
        disk.quota_bytes = disk.used_bytes()
        yield
        disk.quota_bytes = whole

    with mock.patch.object(filesystem, "free_bytes", side_effect=lambda _: disk.free_bytes()):
        try:
            yield Device(folder, taken)
        finally:
            disk.quota_bytes = None


@contextmanager
def _mounted(folder: str) -> Iterator[Device | None]:
    """Give a file system that ends somewhere, where mounting is allowed."""
    options = ["-t", "tmpfs", "-o", f"size={_WHOLE_BYTES}", "litequeue-iofaults", folder]
    try:
        is_mounted = subprocess.run(["mount", *options], capture_output=True, check=False).returncode == 0  # noqa: S607
    except OSError:
        is_mounted = False
    if not is_mounted:
        yield None
        return

    @contextmanager
    def taken() -> Iterator[None]:
        ballast = Path(folder, "ballast")
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(b"x" * 4_096):
                pass
        yield
        ballast.unlink()

    try:
        yield Device(folder, taken)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)  # noqa: S607 - found by PATH
