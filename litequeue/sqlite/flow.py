"""Flow: how many jobs come and go in a second, by what the file itself tells of the last moments.

Nobody counts jobs as they pass: when one was enqueued, and when it ended, stands in its row. No index leads to the rows
that changed last; but as jobs are leased in the order in which they were created, they are among the youngest of each
group (scope, state and priority), or come just before a ready job that is the next of its kind. Invariants: so many
rows are looked at, and no more the larger the file is; what was cut off is estimated, and the flow says so. A job that
is removed at once when it ends is not seen; one that failed and runs again has not failed. What is later than now, for
the wall clock was set back, is no flow of now: it is left out, and as it may be in the way of what is, the flow is an
estimate then.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from litequeue.errors import StorageCorrupt
from litequeue.model import JobState, Transition
from litequeue.sqlite.reader import Reader, onward
from litequeue.sqlite.rows import Values
from litequeue.sqlite.statements import SQL
from litequeue.sqlite.walks import Look, Walk, events_of, kind_of

GROUPS = 1_000
"""Scopes, states and priorities that are looked at."""
LINES = 500
"""Ready lines whose next job tells where others of its kind were before it."""
ROWS = 20_000
"""Finished rows looked at, and as many new ones: a few milliseconds."""
LOGS = 1_000
"""Logs of jobs that wait out their back-off: as long."""
_LEAST_ROWS = 10
_PART = 100
"""Groups looked at in one snapshot."""
_ENDED, _WAITING = (JobState.COMPLETED, JobState.DEAD), (JobState.RETRYABLE,)
_FAILED = (Transition.FAILED, Transition.REAPED)
_AFTER_ALL = 2**63 - 1
_LEAST_SPAN_US = 1_000
AHEAD_US = 1_000_000
"""A row may be ahead of the clock by so much without a step: jobs that are enqueued together follow each other."""

_Group = tuple[str, int, int]
"""Scope, state and priority."""


class Flow(NamedTuple):
    """Jobs in a second."""

    enqueued: float
    completed: float
    failed: float
    """Runs that failed or lapsed and are to be repeated, and jobs that died."""
    is_estimated: bool
    """Whether more came or went than were looked at, or the wall clock was set back."""


class _Limits(NamedTuple):
    """How many rows of a group are looked at, at the most."""

    new: int
    ended: int
    failed: int


@dataclass(slots=True)
class _Seen:
    """What has been seen so far."""

    since: int
    now: int
    enqueued: float = 0.0
    completed: float = 0.0
    failed: float = 0.0
    is_estimated: bool = False
    before: defaultdict[tuple[str, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    """By scope and priority, when the next ready job of each kind was created."""

    @property
    def until(self) -> int:
        """What is later is of a time before the wall clock was set back."""
        return self.now + AHEAD_US

    def rate(self, count: int, first_at: int | None, *, is_all: bool) -> float:
        """Return how many there were in a second: of a part of them, since the first one of that part."""
        if is_all or first_at is None:
            return count * 1_000_000 / (self.now - self.since)
        self.is_estimated = True
        return count * 1_000_000 / max(self.now - first_at, _LEAST_SPAN_US)


def flow(look: Look, window_us: int) -> Walk[Flow]:
    """Look at what came and went within the last so many µs."""
    seen, groups = look(_begun, window_us)
    seen.is_estimated = len(groups) == GROUPS
    ended, failed = (len([1 for _, state, _ in groups if state in states]) for states in (_ENDED, _WAITING))
    limits = _Limits(_part(ROWS, len(groups)), _part(ROWS, ended), _part(LOGS, failed))
    for start in range(0, len(groups), _PART):
        look(partial(_look_at, seen=seen, limits=limits), groups[start : start + _PART])
        yield
    return Flow(seen.enqueued, seen.completed, seen.failed, seen.is_estimated)


def _begun(reader: Reader, window_us: int) -> tuple[_Seen, list[_Group]]:
    """Find the groups, and where the lines of ready jobs have come to."""
    seen = _Seen(reader.now - window_us, reader.now)
    groups: list[_Group] = []
    group: _Group = ("", -1, -1)
    while len(groups) < GROUPS and (found := reader.one(SQL.group_after, *group)) is not None:
        scope, state, priority = found
        group = onward((scope, state, priority), (*group[:2], group[2] + 1))
        groups.append(group)
    line = ("", "", -1)
    for _ in range(LINES):
        head = reader.one(SQL.survey_ready, *line)
        if head is None:
            break
        scope, kind, priority, created_at, *_ = head
        line = onward((scope, kind_of(kind), priority), (*line[:2], line[2] + 1))
        seen.before[scope, priority].append(_whole(created_at))
    return seen, groups


def _look_at(reader: Reader, groups: list[_Group], seen: _Seen, limits: _Limits) -> None:
    for group in groups:
        scope, state, priority = group
        count, first_at, is_ahead = reader.all(SQL.flow_in, *group, seen.since, seen.until, limits.new)[0]
        seen.is_estimated = seen.is_estimated or bool(is_ahead)
        seen.enqueued += seen.rate(count, first_at, is_all=count < limits.new)
        places = [_AFTER_ALL, *sorted(seen.before.get((scope, priority), ()), reverse=True)]
        if state == JobState.COMPLETED:
            seen.completed += _ended(reader, group, seen, places, _part(limits.ended, len(places)))
        elif state == JobState.DEAD:
            seen.failed += _ended(reader, group, seen, places, _part(limits.ended, len(places)))
        elif state == JobState.RETRYABLE:
            seen.failed += _failed(reader, group, seen, places, _part(limits.failed, len(places)))


def _ended(reader: Reader, group: _Group, seen: _Seen, places: list[int], rows: int) -> float:
    """Return how many finished jobs of a group have ended lately, in a second; places come latest first."""
    rate = 0.0
    below = _AFTER_ALL
    for place in places:
        found = reader.all(SQL.flow_out, *group, min(place, below), seen.since, seen.until, rows)[0]
        count, first_created_at, late, first_ended_at, is_ahead = found
        if count:
            seen.is_estimated = seen.is_estimated or bool(is_ahead)
            below = _whole(first_created_at)
            rate += seen.rate(late, first_ended_at, is_all=late < rows)
    return rate


def _failed(reader: Reader, group: _Group, seen: _Seen, places: list[int], rows: int) -> float:
    """Return how many jobs that wait out their back-off have failed lately, in a second."""
    rate = 0.0
    below = _AFTER_ALL
    for place in places:
        found = reader.all(SQL.flow_back, *group, min(place, below), rows)
        failed = [_failed_at(row) for row in found]
        late = [at for at in failed if seen.since < at <= seen.until]
        if found:
            seen.is_estimated = seen.is_estimated or max(failed) > seen.until
            below = _whole(found[-1][0])
            rate += seen.rate(len(late), min(late, default=None), is_all=len(late) < rows)
    return rate


def _failed_at(row: Values) -> int:
    """Return when a job failed last, by its log; the beginning of time when that does not tell."""
    _, job_id, encoded = row
    return next((event.at for event in reversed(events_of(job_id, encoded)) if event.transition in _FAILED), 0)


def _part(rows: int, parts: int) -> int:
    """Return how many of so many rows each part has."""
    return max(_LEAST_ROWS, rows // max(1, parts))


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise StorageCorrupt(f"a time of a job is damaged: it is stored as {type(value).__name__}")
    return value
