"""Jobs as a person reads them: a listing, and one job with everything that is known of it.

Invariant: of one job every field of contract §2 that holds something is shown, under the name that it has there; a job
that cannot be read in part is shown with the reason in that part's place. Leaves out: which jobs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from litequeue import Queue
from litequeue.cli.jsonable import Json, job_form
from litequeue.cli.output import (
    block,
    columns,
    count_of,
    fitted,
    one_line,
    plain,
    pretty,
    scope_text,
    state_text,
    table,
    width,
    with_detail,
)
from litequeue.cli.times import Times
from litequeue.errors import JobNotFound, RecordError
from litequeue.model import Dependencies, Job, JobState
from litequeue.sqlite.attending import RunningJob

_ABOUT_CHARS = 80
_LABEL_CHARS = 18
_SHOWN_IDS = 10
_TIMES = frozenset(
    ["created_at", "leased_at", "lease_deadline", "last_beat_at", "not_before", "expires_at", "finished_at"]
)
_VALUES = frozenset(["payload", "result", "continuation"])
"""Shown as JSON; the other texts as they are."""
_ALWAYS = frozenset(["scope", "payload"])
"""Shown whatever they hold: None is a scope and a payload, too."""
_COUNTS = frozenset(["reaps", "lease_generation", "beats", "checkpoints"])
"""Shown when there has been one."""
_ORDINARY_PRIORITY = 100


def listing_lines(
    jobs: Sequence[Job], times: Times, *, with_scope: bool, missing: Mapping[UUID, int] | None = None
) -> Iterator[str]:
    """Return a heading and a line a job; nothing when there is none.

    `missing` says how many others the jobs wait for that do. On a terminal that is too narrow for such lines, what
    matters of a job has a line of its own.
    """
    if not jobs:
        return
    abouts = [_about(job, times, (missing or {}).get(job.job_id)) for job in jobs]
    scopes = [["SCOPE"], *([scope_text(job.scope)] for job in jobs)] if with_scope else [[]] * (len(jobs) + 1)
    heading = ["JOB", "STATE", "KIND", "PRIORITY", "ATTEMPTS", f"CREATED{times.zone}", "ABOUT"]
    rows = [heading, *([*_cells(job, times), about] for job, about in zip(jobs, abouts, strict=True))]
    lines = list(table([[row[0], *scope, *row[1:]] for row, scope in zip(rows, scopes, strict=True)]))
    most = columns()
    if most is None or max(map(width, lines)) <= most:
        yield from lines
        return
    rows = [["JOB", "STATE", "KIND", "ATTEMPTS", "CREATED"], *(_narrow_cells(job, times) for job in jobs)]
    first, *others = table([[row[0], *scope, *row[1:]] for row, scope in zip(rows, scopes, strict=True)])
    yield first
    for job, line, about in zip(jobs, others, abouts, strict=True):
        yield line
        told = [
            *([] if job.priority == _ORDINARY_PRIORITY else [f"priority {job.priority}"]),
            *([about] if about else []),
        ]
        if told:
            yield fitted(f"    {', '.join(told)}", most)


def job_lines(job: Job, dependencies: Dependencies, times: Times, held_back: Sequence[str] = ()) -> Iterator[str]:
    """Return every field that holds something, the job's chain, what holds it back, then the event log."""
    for name, value in job_form(job).items():
        if name != "events" and _is_there(job, name, value):
            text = _field_text(job, name, value, times)
            shown = state_text(job.state) if name == "state" else block(text, _LABEL_CHARS)
            yield f"{name:<{_LABEL_CHARS}}{shown}"
    for name, text in _chain(dependencies):
        yield f"{name:<{_LABEL_CHARS}}{block(text, _LABEL_CHARS)}"
    for reason in held_back:
        yield f"{'held back':<{_LABEL_CHARS}}{plain(reason)}"
    yield "events"
    try:
        events = job.events
    except RecordError as exc:
        yield f"  {one_line(str(exc))}"
        return
    heads = table([(f"  {times.full(event.at)}", event.transition, "") for event in events])
    longest = max((len(event.transition) for event in events), default=0)
    for event, head in zip(events, heads, strict=True):
        padded = head + " " * (longest - len(event.transition))
        yield with_detail(padded, plain(event.detail), columns())


def missing_of(queue: Queue, jobs: Iterable[Job]) -> dict[UUID, int]:
    """Return how many others the jobs wait for that do; a lookup for each."""
    found: dict[UUID, int] = {}
    for job in jobs:
        if job.state is JobState.WAITING:
            with contextlib.suppress(JobNotFound):  # it has gone meanwhile
                found[job.job_id] = queue.dependencies(job.job_id).missing
    return found


def _is_there(job: Job, name: str, value: Json) -> bool:
    """Tell whether a field holds anything."""
    if name == "result":
        return job.encoded_result is not None
    return name in _ALWAYS or bool(value if name in _COUNTS else value is not None)


def _chain(dependencies: Dependencies) -> Iterator[tuple[str, str]]:
    """Say what is to be said of jobs in a chain; nothing of others."""
    if dependencies.parents:
        ended = f"{dependencies.completed} completed, {dependencies.dead} dead, {dependencies.cancelled} cancelled"
        yield "parents", f"{dependencies.parents}: {ended}, {dependencies.missing} missing"
    if dependencies.waits_for:
        yield "waits_for", _ids(dependencies.waits_for, dependencies.missing)
    if dependencies.children:
        yield "children", _ids(dependencies.children_ids, dependencies.children)


def _ids(ids: Sequence[UUID], count: int) -> str:
    """Write the first of some ids, a line each, and how many more there are."""
    shown = [str(job_id) for job_id in ids[:_SHOWN_IDS]]
    return "\n".join([*shown, *([f"and {count - len(shown)} more"] if count > len(shown) else [])])


def _field_text(job: Job, name: str, value: Json, times: Times) -> str:
    if name == "scope":
        return scope_text(job.scope)
    if name in _TIMES:
        return times.full(value if isinstance(value, int) else None)
    if name in _VALUES:
        return pretty(value)
    return value if isinstance(value, str) else pretty(value)


def _cells(job: Job, times: Times) -> list[str]:
    attempts = str(job.attempts) if job.max_attempts is None else f"{job.attempts}/{job.max_attempts}"
    return [
        str(job.job_id),
        state_text(job.state),
        plain(job.kind),
        str(job.priority),
        attempts,
        times.short(job.created_at),
    ]


def _narrow_cells(job: Job, times: Times) -> list[str]:
    job_id, state, kind, _, attempts, _ = _cells(job, times)
    return [job_id, state, kind, attempts, times.distance(job.created_at)]


def _about(job: Job, times: Times, missing: int | None) -> str:
    """Say what matters of a job in this state: who has it, when it goes on, what went wrong."""
    match job.state:
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
    if job.last_error:
        parts.append(job.last_error.splitlines()[0])
    text = one_line(", ".join(parts))
    return fitted(text, _ABOUT_CHARS)


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
