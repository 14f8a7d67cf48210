"""The figures of files at one moment.

Invariant: a figure that may be older than the moment has its age beside it, so that whoever shows it can say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from litequeue.sqlite.causes import Cause
from litequeue.sqlite.flow import Flow
from litequeue.sqlite.surveying import Counted, Done, Running, State

T = TypeVar("T")


class Kept(NamedTuple, Generic[T]):
    """What a survey has come to, some time ago."""

    found: T
    age_s: float


@dataclass(frozen=True, slots=True)
class FileFigures:
    """What a file tells of itself; `None` where a survey has not come to its end yet."""

    path: str
    at_us: int
    """When, µs since the epoch, by the clock of the file's handle."""
    state: State
    flow: Kept[Flow] | None
    running: Kept[list[Running]] | None
    """Leased jobs, those that lapse first, at most `watch.MOST_RUNNING`."""
    oldest: Kept[dict[str, int]] | None
    """For each kind since when its oldest ready job has been so, µs since the epoch."""
    done: Kept[list[Done]] | None
    """A sample of the runs that were completed lately."""
    causes: Kept[list[Cause]] | None
    """What dead letters have died of, the most frequent first."""
    counted: Kept[Counted] | None
    """All jobs."""


@dataclass(frozen=True, slots=True)
class OutOfReach:
    """A file that cannot be read just now."""

    path: str
    reason: str
