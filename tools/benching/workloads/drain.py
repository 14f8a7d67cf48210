"""Processes that want the same backlog at once: what they do together, and how even it is.

A turn is one verb: a lease, or a completion. Shares count only the time in which all were at work: from when the last
has begun its first turn until the first one ends. Every job that was handed out is counted, so that what went to two
processes is seen. The file is filled once and copied for each measurement.
"""

from __future__ import annotations

import shutil
import time
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benching.crew import Crew, Named
from benching.order import Answer, Figures, Measured, Meet, Order
from benching.payloads import number_of, payload
from benching.subject import Subject, Unsupported
from benching.workload import BOTH, Cell, Column, Scale, Workload
from benching.workloads.verbs import percentile, put

_IDLE_S = 0.001
_LOOKS = 5
"""How often nothing is found in a row before a process believes that it is over."""


def fill(subject: Subject, order: Order, _: Meet) -> Measured:
    """Make the backlog."""
    subject.open(order["folder"], order["durability"])
    put(subject, [payload(number) for number in range(int(order["numbers"]["jobs"]))])
    has = subject.pragmas()
    subject.close()
    return Measured({}, has)


def drain(subject: Subject, order: Order, meet: Meet) -> Measured:
    """Lease and complete one by one until nothing is left or the time is over; write each turn down."""
    subject.open(order["folder"], order["durability"])
    has = subject.pragmas()
    clock = time.monotonic_ns
    turns, numbers = array("q"), array("q")
    troubles = in_vain = 0
    meet()
    deadline = clock() + int(order["numbers"]["most s"] * 1e9)
    begun_at = clock()
    while begun_at < deadline and in_vain < _LOOKS:
        try:
            token = subject.lease()
            if token is None:
                in_vain += 1
                time.sleep(_IDLE_S)
                begun_at = clock()
                continue
            leased_at = clock()
            in_vain = 0
            numbers.append(number_of(subject.payload_id(token)))
            completing_at = clock()
            turns.extend((begun_at, leased_at - begun_at))
            subject.complete(token)
            turns.extend((completing_at, clock() - completing_at))
        except Unsupported:
            raise
        except Exception:  # noqa: BLE001 - counted: a peer may give up waiting for the lock
            troubles += 1
        begun_at = clock()
    turns.append(clock())
    with Path(order["folder"]).with_name(f"turns-{int(order['numbers']['who'])}").open("wb") as file:
        turns.tofile(file)
        numbers.tofile(file)
    figures: Figures = {"jobs": len(numbers), "turns": len(turns) // 2, "errors": troubles}
    subject.close()
    return Measured(figures, has)


TASKS = {"fill": fill, "drain": drain}


class Turns(NamedTuple):
    """What one process was served, in its order; ns."""

    begun_at: Sequence[int]
    took: Sequence[int]
    ended_at: int
    jobs: Sequence[int]
    """The numbers of the jobs that it was handed."""


def read(path: Path, figures: Figures) -> Turns:
    """Read what a process has written down."""
    told = array("q")
    told.frombytes(path.read_bytes())
    count = int(figures["turns"])
    return Turns(told[0 : 2 * count : 2], told[1 : 2 * count : 2], told[2 * count], told[2 * count + 1 :])


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
    """Several processes drain 20,000 jobs."""

    name = "drain"
    title = "Processes that drain 20,000 jobs together"
    main = "us"
    subjects = ("ours", "stock", "bare")
    columns = (
        Column("us", "µs a job", is_shown_spread=True),
        Column("share", "least/most served", is_shown_spread=True),
        Column("least served", "least"),
        Column("most served", "most"),
        Column("p50 us", "p50, µs"),
        Column("p99 us", "p99, µs"),
        Column("p99.9 us", "p99.9, µs"),
        Column("longest us", "longest, µs"),
        Column("doubles", "handed out twice"),
        Column("errors", "errors"),
    )

    def cells(self, scale: Scale) -> list[Cell]:
        """Two to 32 processes at every durability."""
        sizes = {2: 3.0} if scale.is_short else {4: 4.0, 8: 4.0, 2: 2.0, 32: 2.0}
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
            whole = range(int(cell.numbers["processes"]))
            answers = crew.run_together([self.order(cell, subject, folder, "drain", who=who) for who in whole])
            for answer in answers:
                if "figures" not in answer:
                    return answer
            turns = [read(around / f"turns-{who}", answers[who]["figures"]) for who in whole]
            errors = sum(answer["figures"]["errors"] for answer in answers)
            return {"figures": summed(turns, errors), "has": answers[0]["has"]}
        except Unsupported as exc:
            return {"unsupported": str(exc)}
        finally:
            shutil.rmtree(around, ignore_errors=True)

    def _template(self, crew: Crew, cell: Cell, subject: Named) -> Path:
        return self.place(crew, cell) / f"template-{subject.name}"
