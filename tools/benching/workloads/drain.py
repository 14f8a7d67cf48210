"""Processes that want the same backlog at once: what they do together, and how even it is.

A turn is one verb: a lease, or a completion. Shares count only the time in which all were at work: from when the last
has begun its first turn until the first one ends. Every job that was handed out is counted, so that what went to two
processes is seen. The file is filled once and copied for each measurement.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import time
import traceback
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

from benching.crew import Crew, Named
from benching.order import Answer, Figures, Measured, Meet, Order, Pragmas
from benching.payloads import number_of, payload
from benching.subject import Subject, Unsupported
from benching.workload import BOTH, Cell, Column, Part, Scale, Workload
from benching.workloads.verbs import percentile, put

_IDLE_S = 0.001
_LOOKS = 5
"""How often nothing is found in a row before a process believes that it is over."""
_PATIENCE_S = 120.0
_MEET_S = 60.0
_FORK = multiprocessing.get_context("fork")  # the child has no thread and no queue open yet


def fill(subject: Subject, order: Order, _: Meet) -> Measured:
    """Make the backlog."""
    subject.open(order["folder"], order["durability"])
    put(subject, [payload(number) for number in range(int(order["numbers"]["jobs"]))])
    has = subject.pragmas()
    subject.close()
    return Measured({}, has)


def drain(subject: Subject, order: Order, _: Meet) -> Measured:
    """Let processes at the file, and tell what came out of all of them.

    They are forked after the library has been imported and before anything is open, which costs less than to start
    each by itself.
    """
    folder = Path(order["folder"])
    processes = int(order["numbers"]["processes"])
    meeting = _FORK.Barrier(processes)
    notes = [folder.with_name(f"turns-{who}") for who in range(processes)]
    workers = [_FORK.Process(target=_work, args=(subject, order, meeting, note)) for note in notes]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(_PATIENCE_S)
    finally:
        for worker in workers:
            worker.kill()
    read = [_read(note) for note in notes]
    for told in read:
        if told.failed:
            raise RuntimeError(told.failed)
    return Measured(summed([told.turns for told in read], sum(told.errors for told in read)), read[0].has)


TASKS = {"fill": fill, "drain": drain}


class Turns(NamedTuple):
    """What one process was served, in its order; ns."""

    begun_at: Sequence[int]
    took: Sequence[int]
    ended_at: int
    jobs: Sequence[int]
    """The numbers of the jobs that it was handed."""


class _Told(NamedTuple):
    """What one process has written down."""

    turns: Turns
    errors: int
    has: Pragmas
    failed: str | None


class _Worker:
    def __init__(self, subject: Subject, order: Order) -> None:
        self._subject = subject
        self._most_s = order["numbers"]["most s"]
        subject.open(order["folder"], order["durability"])
        self.has = subject.pragmas()
        self.begun_at, self.took, self.jobs = array("q"), array("q"), array("q")
        self.ended_at = self.errors = 0

    def drain(self) -> None:
        """Lease and complete one by one until nothing is left or the time is over."""
        clock = time.monotonic_ns
        deadline = clock() + int(self._most_s * 1e9)
        in_vain = 0
        while clock() < deadline and in_vain < _LOOKS:
            try:
                if self._pair():
                    in_vain = 0
                    continue
            except Exception:  # noqa: BLE001 - counted: a peer may give up waiting for the lock
                self.errors += 1
            else:
                in_vain += 1
            time.sleep(_IDLE_S)
        self.ended_at = clock()
        self._subject.close()

    def _pair(self) -> bool:
        """Have two turns; tell whether there was anything to do."""
        clock = time.monotonic_ns
        begun_at = clock()
        token = self._subject.lease()
        ended_at = clock()
        if token is None:
            return False
        self.jobs.append(number_of(self._subject.payload_id(token)))
        self._had(begun_at, ended_at)
        begun_at = clock()
        self._subject.complete(token)
        self._had(begun_at, clock())
        return True

    def _had(self, begun_at: int, ended_at: int) -> None:
        self.begun_at.append(begun_at)
        self.took.append(ended_at - begun_at)


def _work(subject: Subject, order: Order, meeting: Barrier, note: Path) -> None:
    """Work with the others, and write every turn down; runs in a process of its own."""
    try:
        worker = _Worker(subject, order)
        meeting.wait(_MEET_S)
        worker.drain()
    except BaseException:  # noqa: BLE001 - told in full
        meeting.abort()
        note.write_bytes(json.dumps({"failed": traceback.format_exc()}).encode())
        return
    arrays = (worker.begun_at, worker.took, worker.jobs)
    head = {"sizes": [len(one) for one in arrays], "ended_at": worker.ended_at, "errors": worker.errors}
    written = json.dumps({**head, "has": worker.has}).encode()
    note.write_bytes(b"\n".join([written, b"".join(one.tobytes() for one in arrays)]))


def _read(note: Path) -> _Told:
    if not note.exists():
        return _Told(Turns((), (), 0, ()), 0, {}, "a process has not ended well")
    written, _, body = note.read_bytes().partition(b"\n")
    head = json.loads(written)
    if "failed" in head:
        return _Told(Turns((), (), 0, ()), 0, {}, head["failed"])
    numbers = array("q")
    numbers.frombytes(body)
    turns, _took, jobs = head["sizes"]
    parts = numbers[:turns], numbers[turns : 2 * turns], numbers[2 * turns : 2 * turns + jobs]
    return _Told(Turns(parts[0], parts[1], head["ended_at"], parts[2]), head["errors"], head["has"], None)


def summed(all_turns: Sequence[Turns], errors: float) -> Figures:
    """Return what came out of all the processes together."""
    took = sorted(took for turns in all_turns for took in turns.took)
    if not took:
        raise Unsupported("nothing was done")
    working = [turns for turns in all_turns if turns.begun_at]
    last_begun_at = max(turns.begun_at[0] for turns in working)
    first_ended_at = min(turns.ended_at for turns in all_turns)
    served = [
        max(0, bisect_left(turns.begun_at, first_ended_at) - bisect_left(turns.begun_at, last_begun_at))
        for turns in all_turns
    ]
    begun_at = min(turns.begun_at[0] for turns in working)
    last_turn_at = max(turns.begun_at[-1] + turns.took[-1] for turns in working)
    handed = Counter(number for turns in all_turns for number in turns.jobs)
    return {
        "us": (last_turn_at - begun_at) / 1000 / len(handed),
        "share": min(served) / max(1, *served),
        "least served": min(served),
        "most served": max(served),
        "together s": max(0, first_ended_at - last_begun_at) / 1e9,
        "p50 us": percentile(took, 50),
        "p99 us": percentile(took, 99),
        "p99.9 us": percentile(took, 99.9),
        "longest us": took[-1] / 1000,
        "doubles": sum(handed.values()) - len(handed),
        "jobs": len(handed),
        "errors": errors,
    }


class Drain(Workload):
    """Several processes drain one backlog."""

    name = "drain"
    title = "Processes that drain one backlog together"
    main = "us"
    subjects = ("ours", "stock", "bare")
    columns = (
        Column("us", "µs a job", is_shown_spread=True),
        Column("jobs", "jobs"),
        Column("share", "least/most served", is_shown_spread=True),
        Column("least served", "least"),
        Column("most served", "most"),
    )
    singly = (
        Column("p50 us", "p50, µs"),
        Column("p99 us", "p99, µs"),
        Column("p99.9 us", "p99.9, µs"),
        Column("longest us", "longest, µs"),
        Column("doubles", "handed out twice"),
        Column("errors", "errors"),
    )

    def parts(self) -> tuple[Part, ...]:
        """Return two: how even it is, and what one verb meets."""
        return (
            Part(self.name, self.title, self.columns),
            Part(f"{self.name}, each verb", "One verb among the processes that drain together", self.singly),
        )

    def cells(self, scale: Scale) -> list[Cell]:
        """Two to 32 processes at every durability."""
        sizes = {2: 3.0} if scale.is_short else {2: 1.5, 4: 3.0, 8: 2.5, 32: 1.5}
        return [
            Cell(
                self.name,
                f"{processes} processes",
                durability,
                {"processes": processes, "jobs": scale.count(20_000, 200), "most s": scale.seconds(most_s)},
                with_peers=processes == 4,  # noqa: PLR2004 - the others are about the gate
            )
            for durability in (BOTH[:1] if scale.is_short else BOTH)
            for processes, most_s in sizes.items()
        ]

    def prepare(self, crew: Crew, cell: Cell, subject: Named) -> Answer | None:
        """Fill a file."""
        answer = crew.run(self.order(cell, subject, self._template(crew, cell, subject), "fill"))
        return None if "figures" in answer else answer

    def measure(self, crew: Crew, cell: Cell, subject: Named, number: int) -> Answer:
        """Let the processes at a copy of it."""
        around = self.place(crew, cell) / f"{subject.name}-{number}"
        folder = around / "queue"
        shutil.copytree(self._template(crew, cell, subject), folder)
        try:
            return crew.run(self.order(cell, subject, folder, "drain"))
        finally:
            shutil.rmtree(around, ignore_errors=True)

    def _template(self, crew: Crew, cell: Cell, subject: Named) -> Path:
        return self.place(crew, cell) / f"template-{subject.name}"
