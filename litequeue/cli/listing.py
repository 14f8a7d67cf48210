"""Jobs as a person reads them: a listing, and one job with everything that is known of it.

Invariant: every field of contract §2 is shown, under the name that it has there; a job that cannot be read in part is
shown with the reason in that part's place. Leaves out: which jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from litequeue.cli.jsonable import Json, job_form
from litequeue.cli.output import NOTHING, block, one_line, plain, pretty, scope_text, state_text, table
from litequeue.cli.times import Times
from litequeue.errors import RecordError
from litequeue.model import Dependencies, Job, JobState
from litequeue.sqlite.attending import RunningJob

_ABOUT_CHARS = 80
_LABEL_CHARS = 18
_SHOWN_PARENTS = 10
_TIMES = frozenset(
    ["created_at", "leased_at", "lease_deadline", "last_beat_at", "not_before", "expires_at", "finished_at"]
)
_VALUES = frozenset(["payload", "result", "continuation"])
"""Shown as JSON; the other texts as they are."""


def listing_lines(jobs: Sequence[Job], times: Times, *, with_scope: bool) -> Iterator[str]:
    """Return a heading and a line a job; nothing when there is none."""
    if not jobs:
        return
    heading = ["JOB", "STATE", "KIND", "PRIORITY", "ATTEMPTS", f"CREATED{times.zone}", "ABOUT"]
    rows = [heading, *([*_cells(job, times), _about(job, times)] for job in jobs)]
    if with_scope:
        scopes = ["SCOPE", *(scope_text(job.scope) for job in jobs)]
        rows = [[row[0], scope, *row[1:]] for row, scope in zip(rows, scopes, strict=True)]
    yield from table(rows)


def job_lines(job: Job, dependencies: Dependencies, times: Times, held_back: Sequence[str] = ()) -> Iterator[str]:
    """Return every field, what the job waits for, what holds it back, what waits for it, then the event log."""
    for name, value in job_form(job).items():
        if name != "events":
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
    yield from table([(f"  {times.full(event.at)}", event.transition, plain(event.detail)) for event in events])


def _chain(dependencies: Dependencies) -> Iterator[tuple[str, str]]:
    """Say what is to be said of jobs in a chain; nothing of others."""
    if dependencies.parents:
        ended = f"{dependencies.completed} completed, {dependencies.dead} dead, {dependencies.cancelled} cancelled"
        yield "parents", f"{dependencies.parents}: {ended}, {dependencies.missing} missing"
    if dependencies.waits_for:
        shown = [str(job_id) for job_id in dependencies.waits_for[:_SHOWN_PARENTS]]
        more = dependencies.missing - len(shown)
        yield "waits_for", "\n".join([*shown, *([f"and {more} more"] if more > 0 else [])])
    if dependencies.children:
        yield "children", str(dependencies.children)


def _field_text(job: Job, name: str, value: Json, times: Times) -> str:
    if name == "scope":
        return scope_text(job.scope)
    if name in _TIMES:
        return times.full(value if isinstance(value, int) else None)
    if name in _VALUES and not (name == "continuation" and value is None):
        return pretty(value)
    if value is None:
        return NOTHING
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


def _about(job: Job, times: Times) -> str:
    """Say what matters of a job in this state: who has it, when it goes on, what went wrong."""
    match job.state:
        case JobState.LEASED:
            parts = [*how_far(job), f"held by {job.worker_id}, lapses {times.distance(job.lease_deadline)}"]
        case JobState.RETRYABLE | JobState.SCHEDULED:
            parts = [f"due {times.distance(job.not_before)}"]
        case JobState.PENDING | JobState.WAITING:
            parts = []
        case _:
            parts = [times.distance(job.finished_at)]
    if job.last_error:
        parts.append(job.last_error.splitlines()[0])
    text = one_line(", ".join(parts))
    return text if len(text) <= _ABOUT_CHARS else f"{text[: _ABOUT_CHARS - 1]}…"


def how_far(job: Job | RunningJob) -> list[str]:
    """Say what the checkpoints of a running job tell, if anything."""
    told = [*([] if job.progress is None else [f"{job.progress:.0%}"]), *([] if job.note is None else [job.note])]
    return [" ".join(told)] if told else []
