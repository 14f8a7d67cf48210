"""Timing: how long a job waited and ran, read from its own event log.

Invariant: a time that somebody asked for is no waiting: a job is ready when its delay, its back-off or its release is
over, and only from then on does it wait. A log that was shortened tells of what is left in it. Leaves out: where the
log comes from (`sqlite.surveying`) and what becomes of the figures (`metrics`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from litequeue.model import Event, Transition

_ANEW = (Transition.ENQUEUED, Transition.RETRIED)
_READY = (Transition.PROMOTED, Transition.RELEASED, Transition.FAILED, Transition.REAPED)
"""What may have been the last thing before a lease: those that lead to a gate are followed by a promotion."""
RESET = "reset"
"""The detail of a trigger that a waiting job took; it keeps its place."""


class Timing(NamedTuple):
    """When, in µs since the epoch; `None` where the log does not tell."""

    first_ready_at: int | None
    """When it became ready for the first time since it was enqueued, or retried by an operator."""
    ready_at: int | None
    """When it became ready last."""
    leased_at: int | None
    """When it was leased last."""

    @property
    def wait_us(self) -> int | None:
        """For how long it was ready before its last lease."""
        if self.ready_at is None or self.leased_at is None:
            return None
        return max(0, self.leased_at - self.ready_at)


def timing(events: Iterable[Event]) -> Timing:
    """Read an event log, oldest first."""
    first_ready_at = ready_at = leased_at = None
    for event in events:
        if event.transition in _ANEW and not (event.detail == RESET and ready_at is not None):
            ready_at, first_ready_at = event.at, None
        elif event.transition in _READY:
            ready_at = event.at
        elif event.transition is Transition.LEASED:
            leased_at = event.at
            first_ready_at = ready_at if first_ready_at is None else first_ready_at
        elif event.transition is Transition.TRUNCATED:
            ready_at = None
    return Timing(ready_at if first_ready_at is None else first_ready_at, ready_at, leased_at)
