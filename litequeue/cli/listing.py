"""Pages of jobs as a person reads them, and what matters of each.

Leaves out: which jobs, and one job with everything that is known of it (`showing`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from litequeue import Queue
from litequeue.cli.layout import described
from litequeue.cli.output import count_of, one_line, plain, scope_text, state_text
from litequeue.cli.times import Times
from litequeue.errors import JobNotFound, RecordError
from litequeue.model import Job, JobState
from litequeue.sqlite.attending import RunningJob

_ABOUT_CHARS = 80
_ORDINARY_PRIORITY = 100


def listing_lines(
    jobs: Sequence[Job],
    times: Times,
    *,
    with_scope: bool,
    missing: Mapping[UUID, int] | None = None,
    gone: Collection[int] = (),
) -> Iterator[str]:
    """Return a heading and a line a job; nothing when there is none.

    `missing` says how many others the jobs wait for that do, `gone` which holders are known to be dead. On a terminal
    that is too narrow for such lines, what matters of a job has a line of its own.
    """
    if not jobs:
        return
    scopes = [["SCOPE"], *([scope_text(job.scope)] for job in jobs)] if with_scope else [[]] * (len(jobs) + 1)
    abouts = [_about(job, times, (missing or {}).get(job.job_id), gone) for job in jobs]
    wide = [
        ["JOB", "STATE", "KIND", "PRIORITY", "ATTEMPTS", f"CREATED{times.zone}", "ABOUT"],
        *([*_cells(job, times), one_line(", ".join(about))] for job, about in zip(jobs, abouts, strict=True)),
    ]
    narrow = [
        ["JOB", "STATE", "KIND", "CREATED", ""],
        *(
            [*_narrow_cells(job, times), one_line(", ".join([*_exceptions(job), *about]))]
            for job, about in zip(jobs, abouts, strict=True)
        ),
    ]
    yield from described(
        [[first, *scope, *others] for (first, *others), scope in zip(wide, scopes, strict=True)],
        [[first, *scope, *others] for (first, *others), scope in zip(narrow, scopes, strict=True)],
        names=[1, 3] if with_scope else [2],
        most_chars=_ABOUT_CHARS,
    )


def missing_of(queue: Queue, jobs: Iterable[Job]) -> dict[UUID, int]:
    """Return how many others the jobs wait for that do; a lookup for each."""
    found: dict[UUID, int] = {}
    for job in jobs:
        if job.state is JobState.WAITING:
            with contextlib.suppress(JobNotFound):  # it has gone meanwhile
                found[job.job_id] = queue.dependencies(job.job_id).missing
    return found


def gone_of(queue: Queue, jobs: Iterable[Job]) -> set[int]:
    """Return which holders are known to be dead, if any of the jobs runs; one question for all of them."""
    if not any(job.state is JobState.LEASED for job in jobs):
        return set()
    return {worker.holder for worker in queue.workers() if worker.is_alive is False}


def _cells(job: Job, times: Times) -> list[str]:
    return [
        str(job.job_id),
        state_text(job.state),
        plain(job.kind),
        str(job.priority),
        _attempts(job),
        times.short(job.created_at),
    ]


def _narrow_cells(job: Job, times: Times) -> list[str]:
    return [str(job.job_id), state_text(job.state), plain(job.kind), times.distance(job.created_at)]


def _exceptions(job: Job) -> list[str]:
    """Say what has no column of its own on a narrow terminal, unless it is as in most jobs."""
    return [
        *([] if job.priority == _ORDINARY_PRIORITY else [f"priority {job.priority}"]),
        *([f"attempts {_attempts(job)}"] if job.attempts else []),
    ]


def _attempts(job: Job) -> str:
    return str(job.attempts) if job.max_attempts is None else f"{job.attempts}/{job.max_attempts}"


def _about(job: Job, times: Times, missing: int | None, gone: Collection[int]) -> list[str]:
    """Say what matters of a job in this state: who has it, when it goes on, what went wrong."""
    match job.state:
        case JobState.LEASED if job.holder in gone:
            parts = [f"held by {job.worker_id}, which is dead", *how_far(job)]
        case JobState.LEASED:
            parts = [*how_far(job), f"held by {job.worker_id}, lapses {times.distance(job.lease_deadline)}"]
        case JobState.RETRYABLE | JobState.SCHEDULED:
            parts = [f"due {times.distance(job.not_before)}"]
        case JobState.WAITING if missing:
            parts = [f"waits for {count_of(missing, 'job')}"]
        case JobState.PENDING | JobState.WAITING:
            parts = []
        case JobState.CANCELLED:
            parts = [*_why(job), times.distance(job.finished_at)]
        case _:
            parts = [times.distance(job.finished_at)]
    return [*parts, *([job.last_error.splitlines()[0]] if job.last_error else [])]


def _why(job: Job) -> list[str]:
    """Say why a job was cancelled, when its log does."""
    try:
        last = job.events[-1:]
    except RecordError:
        return []
    return [event.detail for event in last if event.detail]


def how_far(job: Job | RunningJob) -> list[str]:
    """Say what the checkpoints of a running job tell, if anything."""
    told = [*([] if job.progress is None else [f"{job.progress:.0%}"]), *([] if job.note is None else [job.note])]
    return [" ".join(told)] if told else []
