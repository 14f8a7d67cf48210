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
from litequeue.model import JobState, OnConflict, OnParentFailure, Transition
from litequeue.sqlite.context import Context, SyncNeeded
from litequeue.sqlite.ringing import announce
from litequeue.sqlite.statements import SQL

_READY: tuple[JobState, int | None] = (JobState.PENDING, None)


class Encoded(NamedTuple):
    """A job that has passed every check that needs no lock; its times are still relative."""

    job_id: UUID | None
    scope: str
    kind: str
    priority: int
    max_attempts: int | None
    delay_us: int | None
    run_at: int | None
    expires_us: int | None
    idempotency_key: str | None
    on_conflict: OnConflict
    payload: bytes
    after: tuple[UUID, ...] = ()
    on_parent_failure: OnParentFailure = "cancel"
    expires_on: int | None = None
    """By when it must have started, where that was given as a date."""

    @property
    def is_named(self) -> bool:
        """Whether the job may be there already."""
        return self.job_id is not None or self.idempotency_key is not None

    @property
    def is_plain(self) -> bool:
        """Whether the job is new in any case, and waits for no other."""
        return self.job_id is None and self.idempotency_key is None and not self.after

    def not_before(self, now: int) -> int | None:
        """Return its gate, now that the transaction has a time; a delay wins over a date."""
        return self.run_at if self.delay_us is None else now + self.delay_us

    def expires_at(self, now: int) -> int | None:
        """Return when it must have started."""
        return self.expires_on if self.expires_us is None else now + self.expires_us


def next_created_at(context: Context, scope: str, priority: int, *, waits: bool = False) -> int:
    """Return `max(now, 1 + the last pending one's)`: one seek for each scope and priority.

    One that `waits` for other jobs comes after those that do as well.
    """
    last = context.one(SQL.tail, scope, priority)
    created_at = context.now if last is None else max(context.now, 1 + last[0])
    if waits:
        last = context.one(SQL.tail_waiting, scope, priority)
        return created_at if last is None else max(created_at, 1 + last[0])
    return created_at


def insert(context: Context, new: list[tuple[UUID, Encoded]], *, waits: bool = False) -> None:
    """Insert jobs under these ids, in the order given; those that `waits` is said of have others to wait for.

    Raises:
        SyncNeeded: this transaction is not synced, and has to be.
    """
    if not new:
        return
    if not context.keeps_jobs:
        raise SyncNeeded
    now = context.now
    enqueued = codec.encode_event(now, Transition.ENQUEUED)
    tails: dict[tuple[str, int], int] = {}
    jobs = []
    bodies = []
    gated = []
    for job_id, job in new:
        _, scope, kind, priority, max_attempts, delay_us, run_at, expires_us, key, _, payload, _, _, on = job
        state, gate = _READY
        if waits:
            state = JobState.WAITING
        elif delay_us is not None or run_at is not None:
            state, gate = rules.gate(job.not_before(now), now)
        if gate is not None:
            gated.append((scope, gate))
        elif not waits:
            context.rings = True
        place = (scope, priority)
        created_at = tails.get(place) or next_created_at(context, scope, priority, waits=waits)
        tails[place] = created_at + 1
        raw_id = job_id.int.to_bytes(16)
        expires_at = on if expires_us is None else now + expires_us
        jobs.append((scope, state, priority, created_at, raw_id, kind, max_attempts, gate, expires_at, key, enqueued))
        bodies.append((raw_id, scope, priority, created_at, payload))
    if gated:
        announce(context, gated)
    context.cursor.executemany(SQL.job_add, jobs)
    context.cursor.executemany(SQL.body_add, bodies)
