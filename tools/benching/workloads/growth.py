"""What a verb costs beside a million rows of each sort.

Two files, one of them empty and one with so many rows, are open in the same process, and the verbs are timed now on
the one and now on the other, in turns of a few. The file with the rows is made once for each sort, grows from level to
level, and is used for every round. Medians, so that no checkpoint is in them.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from benching.crew import Crew, Named
from benching.order import Answer, Figures, Measured, Meet, Order
from benching.payloads import payload
from benching.subject import SORTS, Subject
from benching.workload import Cell, Column, Scale, Workload

_BLOCK = 10
_WARM = 5
_MOST_FILL_S = {"subjects": 120.0, "peers": 20.0}
"""A level that would take longer to make, by what the last one took, is left out."""


def fill(subject: Subject, order: Order, _: Meet) -> Measured:
    """Put rows in."""
    subject.open(order["folder"], order["durability"])
    begun_at = time.perf_counter()
    subject.fill(SORTS[int(order["numbers"]["sort"])], int(order["numbers"]["more"]))
    took = time.perf_counter() - begun_at
    has = subject.pragmas()
    subject.close()
    return Measured({"s": took}, has)


def beside(subject: Subject, order: Order, _: Meet) -> Measured:
    """Time enqueue, lease+complete and a read, on the file with the rows and on an empty one."""
    full = _Timed(subject, order["folder"], order["durability"])
    empty = _Timed(type(subject)(), str(Path(order["folder"], "empty")), order["durability"])
    times, deadline = int(order["numbers"]["times"]), time.monotonic() + order["numbers"]["most s"]
    for timed in (empty, full):
        timed.turns(_WARM, deadline)
        timed.forget()
    done = 0
    while done == 0 or (done < times and time.monotonic() < deadline):
        for timed in (full, empty) if done // _BLOCK % 2 else (empty, full):
            timed.turns(_BLOCK, deadline)
        done += _BLOCK
    here, there = full.medians(), empty.medians()
    figures = {f"{verb} us": took for verb, took in here.items()}
    figures |= {f"{verb} empty us": took for verb, took in there.items()}
    figures |= {f"{verb} x": here[verb] / there[verb] for verb in here if verb in there}
    has = subject.pragmas()
    full.close()
    empty.close()
    return Measured(figures, has)


TASKS = {"fill": fill, "beside": beside}


class _Timed:
    def __init__(self, subject: object, folder: str, durability: str) -> None:
        self._subject = cast("Subject", subject)
        Path(folder).mkdir(exist_ok=True)
        self._subject.open(folder, durability)
        self._took: dict[str, list[int]] = {}
        self._look: Callable[[], None] | None = getattr(subject, "look", None)

    def forget(self) -> None:
        """Time from now on."""
        self._took.clear()

    def turns(self, times: int, deadline: float) -> None:
        """Enqueue, read, lease and complete so many times, or until it is late, but once: a verb may take seconds."""
        clock = time.perf_counter_ns
        subject = self._subject
        for _ in range(times):
            begun_at = clock()
            subject.enqueue(payload(0))
            self._took.setdefault("enqueue", []).append(clock() - begun_at)
            if self._look is not None:
                begun_at = clock()
                self._look()
                self._took.setdefault("get", []).append(clock() - begun_at)
            begun_at = clock()
            token = subject.lease()
            if token is None:
                raise RuntimeError("the job that was just enqueued is not leased")
            subject.payload_id(token)
            subject.complete(token)
            self._took.setdefault("pair", []).append(clock() - begun_at)
            if time.monotonic() > deadline:
                break

    def medians(self) -> Figures:
        """Return what each verb took, µs."""
        return {verb: statistics.median(took) / 1000 for verb, took in self._took.items()}

    def close(self) -> None:
        """Let the file go."""
        self._subject.close()


class Growth(Workload):
    """Each sort of rows, at each level."""

    name = "growth"
    title = "Beside rows of another sort (`normal`)"
    main = "pair us"
    columns = (
        Column("pair us", "lease+complete, µs"),
        Column("pair x", "lease+complete × empty", is_shown_spread=True),
        Column("enqueue us", "enqueue, µs"),
        Column("enqueue x", "enqueue × empty"),
        Column("get us", "get, µs"),
        Column("get x", "get × empty"),
    )

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], int] = {}
        self._second_a_row: dict[tuple[str, str], float] = {}
        self._why_not: dict[tuple[str, str], Answer] = {}

    def cells(self, scale: Scale) -> list[Cell]:
        """Level by level for each sort, since the file of a sort grows; peers have the last level only."""
        levels = [1_000] if scale.is_short else [scale.count(rows) for rows in (10_000, 100_000, 1_000_000)]
        return [
            Cell(
                self.name,
                f"{sort} {rows:,}",
                "normal",
                {
                    "sort": SORTS.index(sort),
                    "rows": rows,
                    "is last": rows == levels[-1],
                    "times": scale.count(200, 4 * _BLOCK),
                    "most s": scale.seconds(1.0),
                },
                with_peers=rows == levels[-1],
                at_any_durability=True,
            )
            for sort in (SORTS[:1] if scale.is_short else SORTS)
            for rows in levels
        ]

    def prepare(self, crew: Crew, cell: Cell, subject: Named) -> Answer | None:
        """Let the file of the sort grow to the level."""
        key = (subject.name, SORTS[int(cell.numbers["sort"])])
        rows = int(cell.numbers["rows"])
        have = self._rows.get(key, 0)
        most_s = _MOST_FILL_S[subject.where]
        # Of a peer, which has had no level before, the first tenth tells how long the rest will take.
        for level in (rows // 10, rows) if subject.where == "peers" else (rows,):
            more = level - have
            if key not in self._why_not and more * self._second_a_row.get(key, 0.0) > most_s:
                self._why_not[key] = {"unsupported": f"to put {rows:,} rows in would take over {most_s:.0f} s"}
            if key not in self._why_not:
                answer = crew.run(self.order(cell, subject, self._folder(crew, cell, subject), "fill", more=more))
                if "figures" in answer:
                    self._rows[key] = have = level
                    self._second_a_row[key] = answer["figures"]["s"] / more
                else:
                    self._why_not[key] = answer
        return self._why_not.get(key)

    def measure(self, crew: Crew, cell: Cell, subject: Named, number: int) -> Answer:  # noqa: ARG002 - one file for all
        """Time the verbs beside them."""
        folder = self._folder(crew, cell, subject)
        try:
            return crew.run(self.order(cell, subject, folder, "beside"))
        finally:
            shutil.rmtree(folder / "empty", ignore_errors=True)

    def finish(self, crew: Crew, cell: Cell) -> None:
        """Remove the files of a sort after its last level."""
        if cell.numbers["is last"]:
            shutil.rmtree(self.place(crew, cell), ignore_errors=True)

    def place(self, crew: Crew, cell: Cell) -> Path:
        """Return the folder of a sort."""
        return crew.folder / f"growth-{SORTS[int(cell.numbers['sort'])]}"

    def _folder(self, crew: Crew, cell: Cell, subject: Named) -> Path:
        return self.place(crew, cell) / subject.name
