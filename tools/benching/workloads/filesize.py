"""How large the file becomes: after a million jobs were enqueued, drained and removed again.

Bytes of all files in the folder, the write-ahead log apart, and the largest that the log ever was. One round: bytes do
not vary. The log is looked at by name only, never opened.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from benching.crew import Crew, Named
from benching.order import Answer, Figures, Measured, Meet, Order
from benching.payloads import payload
from benching.subject import Subject, Unsupported
from benching.workload import Cell, Column, Scale, Workload

_STEP = 5_000
_BATCH = 500
_MB = 1e6


class Folder:
    """The files in a folder, and how large they have been."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self.most_file = self.most_log = 0.0

    def sizes(self) -> tuple[float, float]:
        """Return the bytes of the files and of the log, in MB."""
        file = log = 0
        for path in self._folder.rglob("*"):
            if path.is_file():
                if path.name.endswith("-wal"):
                    log += path.stat().st_size
                else:
                    file += path.stat().st_size
        self.most_file = max(self.most_file, file / _MB)
        self.most_log = max(self.most_log, log / _MB)
        return file / _MB, log / _MB


def million(subject: Subject, order: Order, _: Meet) -> Measured:
    """Enqueue, drain, and clear away."""
    jobs = int(order["numbers"]["jobs"])
    maintain: Callable[[], None] | None = getattr(subject, "maintain", None)
    if maintain is None:
        raise Unsupported("it has no maintenance that is asked for")
    subject.open(order["folder"], order["durability"])
    folder = Folder(order["folder"])
    figures: Figures = {}
    begun_at = time.perf_counter()
    for start in range(0, jobs, _STEP):
        subject.enqueue_many([payload(number) for number in range(start, min(start + _STEP, jobs))])
        folder.sizes()
    figures["backlog MB"], figures["backlog log MB"] = folder.sizes()
    while tokens := subject.lease_many(_BATCH):
        subject.complete_many(tokens)
        folder.sizes()
    figures["drained MB"], figures["drained log MB"] = folder.sizes()
    drained_at = time.perf_counter()
    maintain()
    figures["maintained MB"], figures["maintained log MB"] = folder.sizes()
    figures["largest log MB"] = folder.most_log
    figures["maintenance s"] = time.perf_counter() - drained_at
    figures["work s"] = drained_at - begun_at
    has = subject.pragmas()
    subject.close()
    return Measured(figures, has)


TASKS = {"million": million}


class FileSize(Workload):
    """A million jobs through one file."""

    name = "file size"
    title = "The file after a backlog was drained and removed"
    main = "maintained MB"
    subjects = ("ours",)
    columns = (
        Column("backlog MB", "a backlog, MB"),
        Column("drained MB", "drained, MB"),
        Column("maintained MB", "removed, MB"),
        Column("maintained log MB", "its log, MB"),
        Column("largest log MB", "largest log, MB"),
        Column("maintenance s", "maintenance, s"),
    )

    def cells(self, scale: Scale) -> list[Cell]:
        """One cell."""
        jobs = scale.count(1_000_000, 1_000)
        return [Cell(self.name, f"{jobs:,} jobs", "normal", {"jobs": jobs}, with_peers=False, is_once=True)]

    def measure(self, crew: Crew, cell: Cell, subject: Named, number: int) -> Answer:
        """Do it."""
        folder = self.place(crew, cell) / f"{subject.name}-{number}"
        try:
            return crew.run(self.order(cell, subject, folder, "million"))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
