"""How fast a queue is on this machine and this disk: its verbs, timed in files of its own.

Owns: what is measured, and the temporary folder for it. Invariants: nothing outside of that folder is touched, and it
is gone at the end, whatever ends the run; the run takes the time that it is given, and a little more. Each round has a
fresh file for each durability, one after the other, so that what disturbs the machine for a while disturbs all alike.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from litequeue import queue as opener
from litequeue.model import NewJob
from litequeue.queue import Queue
from litequeue.sqlite import filesystem
from litequeue.sqlite.store import Durability
from litequeue.sqlite.surveying import Pragmas

BATCH = 100
"""Jobs in a call, where there are many."""
PAYLOAD_BYTES = 100
ROOM_BYTES = 128 * 2**20
"""What must be free: the largest file of a round and its log, several times over."""
FOLDER_PREFIX = ".litequeue-bench-"
_SLOT_S = 0.15
"""About how long each sort of work is timed in a round."""
_LEAST_ROUNDS = 3
_REFILL = 1_000
_KIND = "bench"
_PAYLOAD = b"x" * PAYLOAD_BYTES

Clock = Callable[[], int]
"""Counts ns."""
Progress = Callable[[int, int], None]
"""Is told how many steps of how many are done."""


class Stopped(Exception):
    """The run was to end before it was done."""


class NoRoom(Exception):
    """The disk has less room than a run may take."""

    def __init__(self, folder: str, free_bytes: int) -> None:
        super().__init__(f"{folder} has {free_bytes:,} bytes free; a run needs {ROOM_BYTES:,}")
        self.free_bytes = free_bytes


class Spread(NamedTuple):
    """The median of rounds, and between what they lay."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Summarise."""
        known = list(values)
        return cls(statistics.median(known), min(known), max(known))


@dataclass(frozen=True, slots=True)
class Measured:
    """How fast one sort of work was at one durability."""

    durability: Durability
    work: Work
    jobs_per_s: Spread
    p50_us: Spread
    """How long half of the calls took at most, in a round."""
    p99_us: Spread
    pragmas: Pragmas
    """Of the connection that did it, as it is set for such a commit."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has found."""

    file_system: str | None
    """Its name, where the platform tells."""
    rounds: int
    results: list[Measured]


def measure(
    folder: str,
    durabilities: Sequence[Durability],
    seconds: float,
    *,
    progress: Progress | None = None,
    is_over: Callable[[], bool] = lambda: False,
    clock: Clock = time.perf_counter_ns,
) -> Report:
    """Measure in a temporary folder within a folder, for about so many seconds.

    Raises:
        NoRoom: the disk is too full.
        Stopped: `is_over` said so.
        OSError: there is no such folder, or nothing may be made in it.
        LiteQueueError: as the verbs.
    """
    free = filesystem.free_bytes(folder)
    if free is not None and free < ROOM_BYTES:
        raise NoRoom(folder, free)
    rounds = max(_LEAST_ROUNDS, round(seconds / (len(durabilities) * len(WORKS) * _SLOT_S)))
    slot_ns = int(seconds * 1e9 / (rounds * len(durabilities) * len(WORKS)))
    samples: defaultdict[tuple[Durability, Work], list[_Sample]] = defaultdict(list)
    total = rounds * len(durabilities) * len(WORKS)
    done = itertools.count(1)
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, dir=folder) as own:
        for number, durability in itertools.product(range(rounds), durabilities):
            path = Path(own) / f"{durability}-{number}.queue"
            with opener.open(path, durability=durability) as queue:
                stand = _Stand(queue, slot_ns, is_over, clock)
                stand.warm_up()
                for work in WORKS:
                    samples[durability, work].append(stand.timed(work))
                    if progress is not None:
                        progress(next(done), total)
            for part in Path(own).iterdir():
                part.unlink()
    return Report(
        filesystem.kind_of(folder),
        rounds,
        [_measured(durability, work, found) for (durability, work), found in samples.items()],
    )


class Work(NamedTuple):
    """A sort of work."""

    name: str
    batch: int
    """Jobs in each call."""
    is_enqueue: bool
    call: Callable[[Queue], object]


class _Sample(NamedTuple):
    """One sort of work in one round."""

    jobs: int
    calls: array[int]
    """How many ns each took."""
    pragmas: Pragmas


class _Stand:
    """A fresh queue on which work is timed."""

    def __init__(self, queue: Queue, slot_ns: int, is_over: Callable[[], bool], clock: Clock) -> None:
        self.queue = queue
        self._slot_ns = slot_ns
        self._is_over = is_over
        self._clock = clock
        self._ready = 0

    def warm_up(self) -> None:
        """Do all that the first call of each verb does besides."""
        self.queue.enqueue_many(_jobs(BATCH))
        self.queue.complete_many(self.queue.lease_many(BATCH))

    def timed(self, work: Work) -> _Sample:
        """Time a call again and again, for so long as there is time; what it takes is put in beforehand, untimed."""
        calls = array("q")
        spent = 0
        while spent < self._slot_ns:
            if self._is_over():
                raise Stopped
            if not work.is_enqueue and self._ready < work.batch:
                self.queue.enqueue_many(_jobs(_REFILL))
                self._ready += _REFILL
            began_at = self._clock()
            work.call(self.queue)
            calls.append(self._clock() - began_at)
            spent += calls[-1]
            self._ready += work.batch if work.is_enqueue else -work.batch
        pragmas = self.queue.surveyor().pragmas(durable=work.is_enqueue)
        return _Sample(work.batch * len(calls), calls, pragmas)


def _enqueue(queue: Queue) -> None:
    queue.enqueue(_KIND, _PAYLOAD)


def _enqueue_many(queue: Queue) -> None:
    queue.enqueue_many(_jobs(BATCH))


def _pair(queue: Queue) -> None:
    for lease in queue.lease_many(1):
        lease.complete()


def _pairs(queue: Queue) -> None:
    queue.complete_many(queue.lease_many(BATCH))


def _jobs(count: int) -> list[NewJob]:
    return [NewJob(_KIND, _PAYLOAD) for _ in range(count)]


WORKS = (
    Work("enqueue", 1, is_enqueue=True, call=_enqueue),
    Work("lease and complete", 1, is_enqueue=False, call=_pair),
    Work("enqueue", BATCH, is_enqueue=True, call=_enqueue_many),
    Work("lease and complete", BATCH, is_enqueue=False, call=_pairs),
)
"""What is measured, in this order."""


def _measured(durability: Durability, work: Work, samples: Sequence[_Sample]) -> Measured:
    in_order = [sorted(sample.calls) for sample in samples]
    return Measured(
        durability,
        work,
        Spread.of(sample.jobs * 1e9 / sum(sample.calls) for sample in samples),
        Spread.of(_percentile(calls, 50) for calls in in_order),
        Spread.of(_percentile(calls, 99) for calls in in_order),
        samples[-1].pragmas,
    )


def _percentile(in_order: Sequence[int], percent: int) -> float:
    """Return a percentile in µs."""
    return in_order[min(len(in_order) - 1, len(in_order) * percent // 100)] / 1000
