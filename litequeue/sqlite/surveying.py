"""Surveys: what a whole file comes to, for metrics and for those who watch it.

Owns: the walks over all jobs, over the heads of all lines, and over a sample of what was completed lately; a look at
what runs. Invariants: each step of a walk is a snapshot of its own and looks at a bounded number of rows, so that it
neither takes the write lock, nor keeps the write-ahead log from being copied back, nor another reader of this handle
waiting for long. A file of one step is so counted as it is at one moment; in a larger one, a job that moves meanwhile
may be counted in both of its places or in none. Leaves out: how often a survey is worth its time, and what its figures
are called (`metrics`, `top`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import apsw

from litequeue import timing
from litequeue.errors import StorageCorrupt
from litequeue.histogram import Histogram
from litequeue.model import JobState, Scope, public_scope
from litequeue.sqlite import causes, connection, flow, gate, leadership
from litequeue.sqlite.attending import RunningJob, running_job
from litequeue.sqlite.causes import Cause
from litequeue.sqlite.flow import Flow
from litequeue.sqlite.reader import Reader, onward
from litequeue.sqlite.rows import Key, Values
from litequeue.sqlite.statements import SQL
from litequeue.sqlite.walks import Walk, events_of, kind_of, seconds

if TYPE_CHECKING:
    from litequeue.sqlite.store import Store

T = TypeVar("T")
At = TypeVar("At")

Line = tuple[str, str, int]

STEP = 10_000
"""Jobs counted in one snapshot: about five milliseconds."""
LINES = 500
"""Lines whose head is looked at in one snapshot."""
MOST_LINES = 1_000
"""Scopes and priorities of which completed jobs are looked at."""
SAMPLE = 1_000
"""Completed jobs looked at, or one of each line."""
MOST_LAPSED = 10_000
_PART = 100
_BEFORE_ALL: Key = ("", -1, -1, -1, b"")
_AFTER_ALL_PRIORITIES = 1_000
_LAST_STATE = max(JobState)


class Counted(NamedTuple):
    """All jobs of a file."""

    jobs: dict[tuple[str, JobState], int]
    """By kind and state."""
    reaps: dict[str, int]
    """By kind, how many of the leases that they have had ended in a reap."""
    by_scope: dict[tuple[Scope, JobState], int]
    """By scope and state."""

    @property
    def scopes(self) -> int:
        """How many scopes have jobs."""
        return len({scope for scope, _ in self.by_scope})


class Done(NamedTuple):
    """A run that was completed lately; times in seconds, `None` where its log does not tell."""

    kind: str
    wait_s: float | None
    """From ready to leased."""
    run_s: float
    """From leased to completed."""
    latency_s: float | None
    """From the first time that it was ready to its end, whatever happened between."""


class Running(NamedTuple):
    """A job that is leased, and the process that has it, unless that has gone."""

    job: RunningJob
    pid: int | None
    host: str | None


class Pragmas(NamedTuple):
    """What SQLite says of the connection that writes."""

    sqlite: str
    """Its version."""
    page_size: int
    journal_mode: str
    synchronous: int
    """As SQLite numbers it: 1 is normal, 2 full."""


class State(NamedTuple):
    """What is known of a file at a glance."""

    file_bytes: int
    free_bytes: int
    wal_bytes: int
    lapsed: int
    """Leases whose deadline has passed and which nobody has reaped yet; at most `MOST_LAPSED`."""
    maintenance_age_s: float | None
    """Since the last pass of maintenance; `None` when there has been none."""


class Surveyor:
    """Looks at one file as a whole. Make one with `Queue.surveyor`, on a handle that nobody else waits for."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def state(self) -> State:
        """Return what takes no walk."""
        with self._store.read() as reader:
            file_bytes, free_bytes = reader.all(SQL.file_size)[0]
            lapsed = reader.all(SQL.survey_lapsed, reader.lease_now, MOST_LAPSED)[0][0]
            now = reader.now
        at = leadership.marked_at(self._store.place.path, leadership.MAINTENANCE)
        age_s = None if at is None else seconds(now - at)
        return State(file_bytes, free_bytes, self._store.log.size_bytes, lapsed, age_s)

    def pragmas(self, *, durable: bool) -> Pragmas:
        """Return how the connection that writes is set for a commit; `durable` as for one that enqueues, else leases.

        Takes the write lock for a moment, for it is chosen anew for each transaction; nothing is written.
        """
        return self._store.write(_pragmas, durable=durable)

    @property
    def gate_waits(self) -> Histogram:
        """How long this process has waited for the write gate of the file."""
        return gate.waits(self._store.place.lock_path)

    def jobs(self) -> Walk[Counted]:
        """Count all jobs."""
        counts: Counter[tuple[str, JobState]] = Counter()
        by_scope: Counter[tuple[Scope, JobState]] = Counter()
        reaps: Counter[str] = Counter()
        after: Key | None = _BEFORE_ALL
        while after is not None:
            rows, after = self._look(_counted, after)
            for scope, state, kind, count, reaped in rows:
                counts[kind_of(kind), JobState(state)] += count
                by_scope[public_scope(scope), JobState(state)] += count
                reaps[kind_of(kind)] += reaped
            yield
        return Counted(dict(counts), dict(reaps), dict(by_scope))

    def oldest(self, scope: str | None = None) -> Walk[dict[str, int]]:
        """Return for each kind since when a job at the head of a line has been ready, µs since the epoch.

        A line is what is leased in a fixed order: a scope, a kind and a priority. `scope` is as it is stored; `None`
        is all of them.
        """
        oldest: dict[str, int] = {}
        after: Line | None = (scope or "", "", -1)
        while after is not None:
            heads, after = self._look(_heads, (after, scope))
            for kind, ready_at in heads:
                oldest[kind] = min(ready_at, oldest.get(kind, ready_at))
            yield
        return oldest

    def done(self, within_us: int) -> Walk[list[Done]]:
        """Return a sample of what was completed lately, within a time: of each scope and priority the youngest jobs."""
        lines = self._look(_lines, MOST_LINES)
        of_each = max(1, SAMPLE // max(1, len(lines)))
        at_once = max(1, _PART // of_each)
        done: list[Done] = []
        for start in range(0, len(lines), at_once):
            done += self._look(_done, (lines[start : start + at_once], of_each, within_us))
            yield
        return done

    def running(self, most: int) -> Walk[list[Running]]:
        """Return leased jobs, those that lapse first, and at most so many."""
        running = self._look(_running, most)
        yield
        return running

    def flow(self, window_us: int) -> Walk[Flow]:
        """Return how many jobs come and go in a second, by the last so many µs."""
        return flow.flow(self._look, window_us)

    def causes(self, scope: str | None = None, kind: str | None = None) -> Walk[list[Cause]]:
        """Return what the dead letters of a scope, or of all, have died of; the most frequent cause first.

        `scope` is as it is stored; `kind` is one, or a prefix that ends in a colon.
        """
        return causes.causes(self._look, scope, kind)

    def _look(self, step: Callable[[Reader, At], T], at: At) -> T:
        with self._store.read() as reader:
            return step(reader, at)


def _pragmas(reader: Reader) -> Pragmas:
    asked = [connection.pragma(reader.connection, name) for name in ("page_size", "journal_mode", "synchronous")]
    return Pragmas(apsw.sqlite_lib_version(), *cast("tuple[int, str, int]", asked))


def _counted(reader: Reader, after: Key) -> tuple[list[Values], Key | None]:
    """Count the jobs of one step; return them by scope, state and kind, and where to go on."""
    end = reader.one(SQL.survey_end, *after, STEP)
    rows = reader.all(SQL.survey_jobs, *after, STEP)
    return rows, None if end is None else onward((*end,), (*after[:4], after[4] + b"\0"))


def _running(reader: Reader, most: int) -> list[Running]:
    return [_run(row, reader.now - reader.lease_now) for row in reader.all(SQL.survey_running, most)]


def _run(row: Values, to_wall_us: int) -> Running:
    *job, pid, host = row
    return Running(running_job(job, to_wall_us), pid, host)


def _heads(reader: Reader, place: tuple[Line, str | None]) -> tuple[list[tuple[str, int]], Line | None]:
    """Look at the heads of the next lines; return kinds and since when each is ready, and where to go on."""
    after, wanted = place
    heads: list[tuple[str, int]] = []
    for _ in range(LINES):
        found = reader.one(SQL.survey_ready, *after)
        if found is None or (wanted is not None and found[0] != wanted):
            return heads, None
        scope, kind, priority, created_at, job_id, events = found
        if (scope, kind_of(kind), priority) <= after:
            raise StorageCorrupt(f"rows are out of order: {(scope, kind, priority)!r} came after {after!r}")
        after = scope, kind, priority
        ready_at = timing.timing(events_of(job_id, events)).ready_at
        heads.append((kind, created_at if ready_at is None else ready_at))
    return heads, after


def _lines(reader: Reader, most: int) -> list[tuple[str, int]]:
    """Return up to so many scopes and priorities that have completed jobs."""
    lines: list[tuple[str, int]] = []
    place: tuple[str, int, int] = ("", JobState.COMPLETED, -1)
    for _ in range(2 * most):
        found = reader.one(SQL.group_after, *place)
        if found is None:
            break
        scope, state, priority = found
        if (scope, state, priority) <= place:
            raise StorageCorrupt(f"rows are out of order: {(scope, state, priority)!r} came after {place!r}")
        if state == JobState.COMPLETED:
            lines.append((scope, priority))
            place = scope, state, priority
        else:  # before the completed ones of its scope, or beyond them
            last = JobState.LEASED if state < JobState.COMPLETED else _LAST_STATE
            place = scope, last, _AFTER_ALL_PRIORITIES
        if len(lines) == most:
            break
    return lines


def _done(reader: Reader, wanted: tuple[list[tuple[str, int]], int, int]) -> list[Done]:
    """Look at the youngest completed jobs of some lines, so many of each; return those of the last so many µs."""
    lines, of_each, within_us = wanted
    done: list[Done] = []
    for line in lines:
        for kind, leased_at, finished_at, job_id, events in reader.all(SQL.survey_done, *line, of_each):
            if leased_at is None or not reader.now - within_us < finished_at <= reader.now + flow.AHEAD_US:
                continue
            found = timing.timing(events_of(job_id, events))
            since = found.first_ready_at
            latency_s = None if since is None else seconds(finished_at - since)
            wait_s = None if found.wait_us is None else seconds(found.wait_us)
            done.append(Done(kind_of(kind), wait_s, seconds(finished_at - leased_at), latency_s))
    return done
