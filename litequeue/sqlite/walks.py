"""What surveys are made of: steps that look at a file, and the reading of what they find.

Invariant: each step is a snapshot of its own, which ends before the next one begins. Leaves out: what is looked at
(`surveying`, `flow`, `causes`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Protocol, TypeVar

from litequeue import codec
from litequeue.errors import RecordError, StorageCorrupt
from litequeue.ids import stored_job_id
from litequeue.model import Event
from litequeue.sqlite.reader import Reader

T = TypeVar("T")
At = TypeVar("At")
Walk = Generator[None, None, T]
"""Yields after each step."""


class Look(Protocol):
    """Looks at a file: does a step of a walk in a snapshot."""

    def __call__(self, step: Callable[[Reader, At], T], at: At) -> T:
        """Return what the step finds at a place."""


def whole(walk: Walk[T]) -> T:
    """Go through all steps; return what they come to."""
    while True:
        try:
            next(walk)
        except StopIteration as end:
            found: T = end.value
            return found


def events_of(job_id: bytes, encoded: bytes) -> list[Event]:
    """Return an event log; nothing when it cannot be read, for that is no matter of a survey."""
    try:
        return codec.decode_events(encoded, stored_job_id(job_id))
    except RecordError:
        return []


def kind_of(value: object) -> str:
    """Return a kind as it is stored.

    Raises:
        StorageCorrupt: it is none.
    """
    if not isinstance(value, str):
        raise StorageCorrupt(f"the kind of a job is damaged: it is stored as {type(value).__name__}")
    return value


def seconds(us: int) -> float:
    """Return µs as seconds, at least none."""
    return max(0, us) / 1_000_000
