"""The processes in which the trials are played, each with a failing disk of its own for its default VFS.

Owns: the stage of a worker process, and the sabotage of a negative control. Leaves out: what is played and judged.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING
from unittest import mock

from disk_faults import room
from disk_faults.trial import Finding, Point, Stage
from disk_faults.verbs import BY_NAME
from litequeue.sqlite import filesystem, tail

if TYPE_CHECKING:
    from collections import Counter

    from disk_faults.room import Drained
    from harness.failing import Sort
    from litequeue.sqlite.store import Durability

_stages: list[Stage] = []
"""The one stage of this process, once it has begun."""


def workers(processes: int, control: str | None) -> ProcessPoolExecutor:
    """Return a pool of processes that share nothing with this one: it keeps the ordinary disk."""
    return ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin, (control,))


def operations(verb: str, durability: Durability) -> Counter[Sort]:
    """Count what a verb asks of the disk."""
    return _stages[0].rehearse(BY_NAME[verb], durability).operations


def play(points: list[Point]) -> list[Finding]:
    """Play some trials."""
    return [_stages[0].play(point) for point in points]


def drain(limit: str, seed: int) -> Drained:
    """Fill a queue up to a limit, and work it off there."""
    return room.drain(_stages[0].disk, limit, seed)


def _begin(control: str | None) -> None:
    _stages.append(Stage(swallows=control == "swallowed-error"))
    if control == "blind-undo":
        mock.patch.object(tail, "is_dead", return_value=True).start()
    if control == "no-reserve":
        mock.patch.object(filesystem, "FREE_SPACE_RESERVE_BYTES", -(2**40)).start()
