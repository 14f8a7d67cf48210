"""Putting new rows at the end of the line.

Invariants: `created_at` is later than that of every pending job of the same scope and priority, so first in, first
out means commit order, across processes and even when the wall clock steps back (contract G4). Every commit that makes
a job is synced where the mode says so, whichever verb makes it: the end of a run turns a kept trigger into a job, and a
later enqueue answers with it (§7).
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from litequeue import codec, rules
from litequeue.model import Transition
from litequeue.sqlite.context import Context, SyncNeeded
from litequeue.sqlite.ringing import announce
from litequeue.sqlite.statements import SQL


class Insert(NamedTuple):
    """A new job, encoded; its times are absolute."""

    job_id: UUID
    scope: str
    kind: str
    priority: int
    max_attempts: int | None
    not_before: int | None
    expires_at: int | None
    idempotency_key: str | None
    payload: bytes


class Tails:
    """The next `created_at` of each scope and priority; valid for one run of inserts and no longer."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._last: dict[tuple[str, int], int] = {}

    def next(self, scope: str, priority: int) -> int:
        """Return `max(now, 1 + the last pending one's)`: one seek for each scope and priority."""
        place = (scope, priority)
        last = self._last.get(place)
        if last is None:
            found = self._context.one(SQL.tail, scope, priority)
            last = -1 if found is None else found[0]
        created_at = max(self._context.now, last + 1)
        self._last[place] = created_at
        return created_at


def insert(context: Context, new: list[Insert]) -> None:
    """Insert jobs in the order given.

    Raises:
        SyncNeeded: this transaction is not synced, and has to be.
    """
    if not new:
        return
    if not context.keeps_jobs:
        raise SyncNeeded
    now = context.now
    tails = Tails(context)
    enqueued = codec.encode_event(now, Transition.ENQUEUED)
    jobs = []
    bodies = []
    gated = []
    for job_id, scope, kind, priority, max_attempts, not_before, expires_at, key, payload in new:
        state, gate = rules.gate(not_before, now)
        if gate is None:
            context.rings = True
        else:
            gated.append((scope, gate))
        created_at = tails.next(scope, priority)
        raw_id = job_id.int.to_bytes(16)
        jobs.append(
            (
                scope,
                int(state),
                priority,
                created_at,
                raw_id,
                kind,
                max_attempts,
                gate,
                expires_at,
                key,
                enqueued,
            )
        )
        bodies.append((raw_id, scope, priority, created_at, payload))
    if gated:
        announce(context, gated)
    context.cursor.executemany(SQL.job_add, jobs)
    context.cursor.executemany(SQL.body_add, bodies)
