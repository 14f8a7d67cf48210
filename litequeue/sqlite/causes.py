"""What dead letters have died of, counted by kind and error.

Invariants: errors are the same when their first lines are; however many dead letters there are, what is held of them is
a page and a line a cause. Leaves out: how often that is worth its time (`top`), and how it is shown (`cli`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from uuid import UUID

from litequeue.errors import StorageCorrupt, first_line
from litequeue.ids import stored_job_id
from litequeue.model import JobState
from litequeue.sqlite.leasing import prefix_end
from litequeue.sqlite.reader import Reader, onward
from litequeue.sqlite.rows import NEXT_NAME, Values
from litequeue.sqlite.statements import SQL
from litequeue.sqlite.walks import Look, Walk, kind_of

STEP = 1_000
"""Dead letters, or scopes that have none, looked at in one snapshot."""
_BEFORE_ALL = (-1, -1, b"")


class Cause(NamedTuple):
    """The jobs of a kind that have died of one error."""

    kind: str
    error: str
    """The first line; empty where there is none."""
    jobs: int
    last_job_id: UUID
    """Of those, the one that died last."""
    last_finished_at: int
    """When it did, µs since the epoch."""


@dataclass(slots=True)
class _Wanted:
    """Which dead letters: of one scope or of all, and a kind filter as the statement takes it."""

    scope: str | None
    kinds: tuple[str | None, str | None, str | None]


class _Place(NamedTuple):
    """Where a step goes on."""

    scope: str
    after: tuple[int, int, bytes]


def causes(look: Look, scope: str | None, kind: str | None) -> Walk[list[Cause]]:
    """Walk through the dead letters of a scope, or of all; the most frequent cause comes first."""
    is_prefix = kind is not None and kind.endswith(":")
    below = prefix_end(kind) if kind is not None and is_prefix else None
    step = partial(_dead, wanted=_Wanted(scope, (kind, kind if is_prefix else None, below)))
    found: dict[tuple[str, str], Cause] = {}
    place: _Place | None = _Place(scope or "", _BEFORE_ALL)
    while place is not None:
        rows, place = look(step, place)
        for _, _, job_id, row_kind, finished_at, last_error in rows:
            if not isinstance(finished_at, int):
                raise StorageCorrupt(f"the end of a job is damaged: it is stored as {type(finished_at).__name__}")
            key = kind_of(row_kind), _first_line(last_error)
            before = found.get(key)
            if before is None or finished_at > before.last_finished_at:
                jobs = 0 if before is None else before.jobs
                found[key] = Cause(*key, jobs + 1, stored_job_id(job_id), finished_at)
            else:
                found[key] = before._replace(jobs=before.jobs + 1)
        yield
    return sorted(found.values(), key=lambda cause: (-cause.jobs, cause.kind, cause.error))


def _dead(reader: Reader, place: _Place, wanted: _Wanted) -> tuple[list[Values], _Place | None]:
    """Return the next dead letters, and where to go on."""
    rows: list[Values] = []
    for _ in range(STEP):
        page = reader.all(SQL.survey_dead, place.scope, *place.after, *wanted.kinds, STEP - len(rows))
        rows += page
        if len(rows) == STEP:
            return rows, _Place(place.scope, _after(page[-1], place))
        found = reader.one(SQL.scope_from, place.scope + NEXT_NAME) if wanted.scope is None else None
        if found is None:
            return rows, None
        place = _Place(onward(found[0], place.scope + NEXT_NAME), _BEFORE_ALL)
    return rows, place


def _after(row: Values, place: _Place) -> tuple[int, int, bytes]:
    """Return where to go on after a row, which must lie beyond the place that its page began at."""
    priority, created_at, job_id, *_ = row
    before = (place.scope, int(JobState.DEAD), *place.after[:2], place.after[2] + b"\0")
    return onward((place.scope, int(JobState.DEAD), priority, created_at, job_id), before)[2:]


def _first_line(last_error: object) -> str:
    if last_error is None:
        return ""
    if not isinstance(last_error, str):
        raise StorageCorrupt(f"the last_error of a job is damaged: it is stored as {type(last_error).__name__}")
    return first_line(last_error)
