"""Heartbeats: the leases in hand are extended while their handlers run, and found out when they are lost.

Owns: a thread with a connection of its own, so that no handler, no event loop and no transaction of the dispatcher
keeps it waiting. Invariants: a lease is extended at a third of its time, together with all that would be due soon; a
file that is busy is tried again until the job has ended, since a lapsed lease that nobody has taken is still ours; a
lease that is no longer ours is told of once. Between the beats one read a second looks for jobs that somebody has
cancelled or taken.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Self

from litequeue.errors import LiteQueueError
from litequeue.lease import Lease
from litequeue.queue import Queue

_BEATS = 3
"""A lease is extended so many times within its own time."""
_LOOK_S = 1.0
"""Between two looks whether the leases are still ours."""
_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 1.0
_log = logging.getLogger("litequeue.worker")


class Heartbeat:
    """The thread. Leases are handed to it and taken back by the dispatcher."""

    def __init__(self, holder: Queue, on_lost: Callable[[Lease], None]) -> None:
        self._holder = holder
        """By whose handle the handlers end their leases."""
        self._queue = holder.sibling()
        """Of this thread alone; closed at its end."""
        self._on_lost = on_lost
        self._beats_at: dict[Lease, float] = {}
        self._sleeps_until = math.inf
        self._is_over = False
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._retry_s = 0.0
        self._thread = threading.Thread(target=self._run, name="litequeue-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        """End the thread, and its connection."""
        self._is_over = True
        self._wake.put(None)
        self._thread.join()

    def watch(self, lease: Lease, starts_in_s: float = 0.0) -> None:
        """Keep a lease from now on; the first beat of one that waits for `starts_in_s` comes that much later."""
        beats_at = time.monotonic() + starts_in_s + _third_s(lease)
        self._beats_at[lease] = beats_at
        if min(beats_at, time.monotonic() + _LOOK_S) < self._sleeps_until:
            self._wake.put(None)

    def forget(self, lease: Lease) -> None:
        """Let a lease be: its job has ended."""
        self._beats_at.pop(lease, None)

    def look(self) -> None:
        """Find out at once which leases are lost."""
        self._wake.put(None)

    def _run(self) -> None:
        try:
            while not self._is_over:
                try:
                    self._turn()
                    self._retry_s = 0.0
                except LiteQueueError as exc:
                    if self._retry_s == 0.0:
                        _log.warning("leases of %s were not extended, which is tried again: %s", self._queue.path, exc)
                    self._retry_s = min(max(2 * self._retry_s, _FIRST_RETRY_S), _LAST_RETRY_S)
                self._sleep()
        finally:
            with contextlib.suppress(LiteQueueError):
                self._queue.close()

    def _turn(self) -> None:
        """Extend what is due, with what would be due soon; else look whether all are still ours."""
        now = time.monotonic()
        held = list(self._beats_at.items())
        if not held:
            return
        if min(beats_at for _, beats_at in held) <= now:
            due = [lease for lease, beats_at in held if beats_at - _third_s(lease) / 2 <= now]
            conflicts = self._queue.extend_many(due)
            for lease in due:
                if lease in self._beats_at:  # else its job has ended meanwhile
                    self._beats_at[lease] = now + _third_s(lease)
            if conflicts:
                self._tell([lease for lease in due if lease.lost])
        elif gone := self._queue.lost([lease for lease, _ in held]):
            # A handler may be ending its lease just now, and its commit seen before it has heard of it itself. A write
            # by the same handle comes after all of that: whoever commits keeps the handle's turn until then.
            self._holder.extend_many(gone)
            self._tell([lease for lease in gone if lease.lost])

    def _tell(self, lost: list[Lease]) -> None:
        for lease in lost:
            if self._beats_at.pop(lease, None) is not None and not lease.settled:
                self._on_lost(lease)

    def _sleep(self) -> None:
        self._sleeps_until = math.inf  # from here on whoever comes rings, since the look below may miss it
        now = time.monotonic()
        next_at = min(self._beats_at.copy().values(), default=math.inf)
        if next_at < math.inf:
            next_at = max(min(next_at, now + _LOOK_S), now + self._retry_s)
        self._sleeps_until = next_at
        if not self._is_over:
            with contextlib.suppress(Empty):
                self._wake.get(timeout=None if next_at == math.inf else max(0.0, next_at - now))
        while not self._wake.empty():
            self._wake.get_nowait()


def _third_s(lease: Lease) -> float:
    return lease.ttl_us / 1_000_000 / _BEATS
