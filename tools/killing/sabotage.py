"""Negative controls: what a worker does to its own copy of the package, or to its journal, so that a promise breaks.

Owns: three ways of being wrong that a queue may well be written in. Invariant: nothing here touches what the checker
reads with; a run under sabotage has to end with broken promises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from uuid import UUID, uuid4

from harness.journal import Journal
from harness.recorded import Recorded
from killing import unrestrained
from litequeue import Enqueued, Lease, LeaseConflict, NewJob, Queue, StorageCorrupt
from litequeue.model import JobState
from litequeue.sqlite import leasing, settling
from litequeue.sqlite.context import Context
from litequeue.sqlite.leasing import Wish
from litequeue.sqlite.rows import Row
from litequeue.sqlite.statements import SQL

NO_FENCE = "no-fence"
EARLY = "early-acknowledgement"
DOUBLE = "double-lease"
_BATCH = 10
CONTROLS = {
    NO_FENCE: "a holder's word is obeyed when the job is leased, whoever has leased it by now",
    EARLY: "an enqueue is acknowledged at once and committed in a batch with later ones",
    DOUBLE: "the head of the queue is read before the lock is taken, and taken without another look",
}


def apply(control: str | None) -> None:
    """Spoil this process's copy of the package."""
    if control == NO_FENCE:
        settling.held = _held_by_anyone
    elif control == DOUBLE:
        object.__setattr__(SQL, "lease", _LEASE_BLINDLY)
        Queue._lease = _lease_in_two_steps  # type: ignore[method-assign] # noqa: SLF001 - that is the sabotage
    else:
        unrestrained.apply(control)


def recorded(control: str | None, queue: Queue, journal: Journal) -> Recorded:
    """Return the handle to work with."""
    return _Early(queue, journal) if control == EARLY else Recorded(queue, journal)


def _held_by_anyone(
    context: Context,
    leases: Sequence[Lease],
    statement: str = SQL.held,  # noqa: ARG001 - as what it replaces
) -> tuple[list[tuple[Lease, Row]], dict[int, LeaseConflict]]:
    """Find the rows of these jobs, without a look at worker and generation."""
    kept: list[tuple[Lease, Row]] = []
    conflicts: dict[int, LeaseConflict] = {}
    for place, lease in enumerate(leases):
        found = context.one(SQL.row_by_id, lease.job_id.bytes)
        if found is not None and Row(*found).state == JobState.LEASED:
            kept.append((lease, Row(*found)))
        else:
            conflicts[place] = LeaseConflict(lease.job_id, lease.lease_generation, "it is not leased")
    return kept, conflicts


_lease_properly = Queue._lease  # noqa: SLF001 - what the sabotage replaces
_LEASE_BLINDLY = SQL.lease.replace("state = 0", "state IN (0, 1)").replace(" AND lease_generation = ?", " AND ? >= 0")


def _lease_in_two_steps(self: Queue, wish: Wish) -> list[Lease]:
    """Read the heads in one transaction and take them in another."""
    heads = self._look(lambda reader: list(leasing._heads(reader, wish.scope or "", wish.kinds, wish.limit)))  # type: ignore[arg-type] # noqa: SLF001
    if heads:
        with suppress(StorageCorrupt):  # a row that has moved on
            return self._do(lambda context: leasing._take(context, wish, self, heads), durable=False)  # noqa: SLF001
    return _lease_properly(self, wish)


class _Early(Recorded):
    """Says that a job is enqueued, and enqueues it when there are some."""

    def __init__(self, queue: Queue, journal: Journal) -> None:
        super().__init__(queue, journal)
        self._kept: list[NewJob] = []

    def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        """Acknowledge, and keep for later."""
        given = [NewJob(job.kind, job.payload, job_id=uuid4() if job.job_id is None else job.job_id) for job in jobs]
        with self.telling("enqueue", {"jobs": self.told(given)}) as telling:
            telling.heard["jobs"] = [[str(job.job_id), True] for job in given]
        self._kept += given
        if len(self._kept) > _BATCH:
            self._flush()
        return [Enqueued(job.job_id, created=True) for job in given if isinstance(job.job_id, UUID)]

    def close(self) -> None:
        """Enqueue what is left, and close."""
        self._flush()
        super().close()

    def _flush(self) -> None:
        self._verbs.enqueue_many(self._kept)
        self._kept = []
