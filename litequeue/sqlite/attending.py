"""Who works on a file (`Queue.workers`): the handles that lease or are about to, whether they live, what they run.

Invariants: a pure read, and no walk over jobs that do not run; nobody is called dead who has only closed its handle:
that removes its row before it lets go of its byte, so whoever looks dead is looked for once more.

    reader: sees the row of a handle
    handle: closes: removes its row, then lets go of its byte
    reader: finds the byte free; sees no row any more, and leaves it out

Leaves out: what happens to the leases of the dead (`upkeep`), and how death is known (`presence`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from litequeue.errors import StorageCorrupt
from litequeue.ids import stored_job_id
from litequeue.model import Scope, public_scope
from litequeue.sqlite import presence
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.statements import SQL

if TYPE_CHECKING:
    from uuid import UUID

    from litequeue.sqlite.store import Store

_MOST_JOBS = 100


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that a worker holds a lease of. Times are µs since the epoch."""

    job_id: UUID
    scope: Scope
    kind: str
    worker_id: str
    """The name that the lease was taken under."""
    leased_at: int
    lease_deadline: int
    """When the lease lapses unless it is extended, as wall time."""
    progress: float | None
    """0 to 1, as its latest checkpoint says."""
    note: str | None


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A queue handle that leases jobs, at one moment; a process may have several."""

    holder: int
    """Its number in the file, which a `Job` that it runs has too; never used again."""
    pid: int
    host: str
    since: int
    """When it became known, by its first lease or before it, µs since the epoch."""
    is_alive: bool | None
    """Whether its process lives; `None` where the platform or the file system does not tell. A stopped one lives."""
    running: int
    """How many jobs it holds leases of."""
    jobs: tuple[RunningJob, ...]
    """Up to 100 of these, those that it has had the longest first; of more, the ones whose lease lapses first."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of `jobs`, in their order; what else it would take, no file tells."""
        return tuple(sorted({job.kind for job in self.jobs}))


class _Handle(NamedTuple):
    """A row of the table of holders."""

    holder: int
    pid: int
    host: str
    since: int
    sidecar: str | None


def workers(store: Store) -> list[WorkerInfo]:
    """Return those who work on a file, in the order in which they came."""
    with store.read() as reader:
        handles = [_Handle(*row) for row in reader.all(SQL.handles)]
        running: dict[int, int] = dict(reader.all(SQL.running_counts))
        jobs = _running(reader)
    lives = dict(presence.probe(store.place, [(handle.holder, handle.sidecar) for handle in handles]))
    if not all(lives.values()):
        with store.read() as reader:
            still_there = {holder for holder, _ in reader.all(SQL.holders)}
        handles = [handle for handle in handles if lives.get(handle.holder, True) or handle.holder in still_there]
    return [
        WorkerInfo(
            handle.holder,
            handle.pid,
            handle.host,
            handle.since,
            lives.get(handle.holder),
            running.get(handle.holder, 0),
            tuple(jobs[handle.holder]),
        )
        for handle in handles
    ]


def running_job(values: Sequence[object], to_wall_us: int) -> RunningJob:
    """Return the record of a running job, whose columns are in the order of its fields.

    Raises:
        StorageCorrupt: they are not what they should be.
    """
    match values:
        case (
            bytes() as job_id,
            str() as scope,
            str() as kind,
            str() as worker_id,
            int() as leased_at,
            int() as deadline,
            float() | None as progress,
            str() | None as note,
        ):
            return RunningJob(
                stored_job_id(job_id),
                public_scope(scope),
                kind,
                worker_id,
                leased_at,
                deadline + to_wall_us,
                progress,
                note,
            )
        case _:
            raise StorageCorrupt(f"the record of a running job is damaged: {tuple(values)!r}")


def _running(reader: Reader) -> defaultdict[int, list[RunningJob]]:
    found: defaultdict[int, list[RunningJob]] = defaultdict(list)
    to_wall_us = reader.now - reader.lease_now
    for holder, *values in reader.all(SQL.running, _MOST_JOBS):
        found[holder].append(running_job(values, to_wall_us))
    for jobs in found.values():
        jobs.sort(key=lambda job: (job.leased_at, job.job_id))
    return found
