"""One job as a person reads it, with everything that is known of it.

Invariant: every field of contract §2 that holds something is shown, under the name that it has there; what cannot be
read is shown with the reason in its place. Leaves out: which job, and pages of jobs (`listing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast
from uuid import UUID

from litequeue import Queue
from litequeue.cli.jsonable import Json, job_form
from litequeue.cli.layout import behind, logged
from litequeue.cli.listing import gone_of
from litequeue.cli.output import one_line, plain, pretty, scope_text, state_text
from litequeue.cli.times import Times
from litequeue.errors import RecordError
from litequeue.model import Dependencies, Job

_LABEL_CHARS = 18
_SHOWN_IDS = 10
_FIRST = ("job_id", "state", "kind", "attempts")
"""What is asked for most; the others come in the order of the record."""
_TIMES = frozenset(
    ["created_at", "leased_at", "lease_deadline", "last_beat_at", "not_before", "expires_at", "finished_at"]
)
_VALUES = frozenset(["payload", "result", "continuation"])
"""Shown as JSON; the other texts as they are."""
_ALWAYS = frozenset(["scope", "payload", "attempts"])
"""Shown whatever they hold: None is a scope and a payload, too."""
_COUNTS = frozenset(["reaps", "lease_generation", "beats", "checkpoints"])
"""Shown when there has been one."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A job, with what is known of it beyond its record."""

    job: Job
    dependencies: Dependencies
    held_back: Sequence[str]
    most_attempts: int
    """Its own or, without one, that of the settings of its kind."""
    is_holder_gone: bool
    """Whether it runs by a holder that is known to be dead."""

    @classmethod
    def of(cls, queue: Queue, job_id: UUID) -> Seen:
        """Look at a job.

        Raises:
            JobNotFound: there is no such job, or its retention is over.
        """
        job = queue.get(job_id)
        most = job.max_attempts or cast("int", queue.settings(job.kind)["max_attempts"])
        is_gone = job.holder in gone_of(queue, [job])
        return cls(job, queue.dependencies(job_id), queue.held_back(job_id), most, is_gone)


def job_lines(seen: Seen, times: Times) -> Iterator[str]:
    """Return every field that holds something, the job's chain, what holds it back, then the event log."""
    job, form = seen.job, job_form(seen.job)
    for name in (*_FIRST, *(name for name in form if name not in {*_FIRST, "events"})):
        if name == "state":
            yield f"{name:<{_LABEL_CHARS}}{state_text(job.state)}"
        elif _is_there(job, name, form[name]):
            yield from behind(name, _text(seen, name, form[name], times), _LABEL_CHARS)
    for name, text in _chain(seen.dependencies):
        yield from behind(name, text, _LABEL_CHARS)
    for reason in seen.held_back:
        yield from behind("held back", reason, _LABEL_CHARS)
    yield "events"
    try:
        rows = [(f"  {times.full(event.at)}", event.transition, plain(event.detail)) for event in job.events]
    except RecordError as exc:
        yield f"  {one_line(str(exc))}"
        return
    yield from logged(rows)


def _is_there(job: Job, name: str, value: Json) -> bool:
    """Tell whether a field holds anything."""
    if name == "result":
        return job.encoded_result is not None
    if name == "continuation":
        return bool(job.continuation)
    return name in _ALWAYS or bool(value if name in _COUNTS else value is not None)


def _text(seen: Seen, name: str, value: Json, times: Times) -> str:
    match name:
        case "scope":
            text = scope_text(seen.job.scope)
        case "attempts":
            text = f"{seen.job.attempts} of {seen.most_attempts}"
        case "progress":
            text = f"{seen.job.progress:.0%}"
        case "worker_id" if seen.is_holder_gone:
            text = f"{seen.job.worker_id}, which is dead"
        case _ if name in _TIMES:
            text = times.full(value if isinstance(value, int) else None)
        case _ if isinstance(value, str) and name not in _VALUES:
            text = value
        case _:
            text = pretty(value)
    return text


def _chain(dependencies: Dependencies) -> Iterator[tuple[str, str]]:
    """Say what is to be said of jobs in a chain; nothing of others."""
    if dependencies.parents:
        ended = f"{dependencies.completed} completed, {dependencies.dead} dead, {dependencies.cancelled} cancelled"
        yield "parents", f"{dependencies.parents}: {ended}, {dependencies.missing} not ended"
    if dependencies.waits_for:
        yield "waits_for", _ids(dependencies.waits_for, dependencies.missing)
    if dependencies.children:
        yield "children", _ids(dependencies.children_ids, dependencies.children)


def _ids(ids: Sequence[UUID], count: int) -> str:
    """Write the first of some ids, a line each, and how many more there are."""
    shown = [str(job_id) for job_id in ids[:_SHOWN_IDS]]
    return "\n".join([*shown, *([f"and {count - len(shown)} more"] if count > len(shown) else [])])
