"""What happens in a file, as it happens (`Queue.follower`): the logs of jobs, looked at where something has moved.

Events live in the logs of their jobs, and no index leads to the latest ones. So a look goes to where jobs arrive: to
the end of each group of the key (scope, state, priority), beyond the last row that was seen there. Jobs are leased in
the order of that key, so they end in it too, but for those that take longer than others; these have been seen at work,
and are looked up again by their ids until they have ended. What is retried keeps its place, so the first jobs of each
group that waits are looked at as well. Invariants: a look costs by the number of groups, of running jobs and of what
has arrived, and not by how many jobs there are; nothing is held open between two looks; an event is told once; times
are not compared across a step of the wall clock. While it is behind, rows that lie ahead of it are no end of a group:
they are known one by one, so many of each group, and what arrives before these is missed.

What may be missed besides is what begins and ends between two looks behind its group's end: the run of a job that
others of its scope and priority have overtaken (its kind lags behind, it comes back after a back-off or by a retry, not
among the first of its group); and what a job that is removed has done last. Looks come by the bells, of work and of
ends, and at least once a second.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from litequeue import arguments
from litequeue import clock as clocks
from litequeue.ids import stored_job_id
from litequeue.model import Event, JobState, Scope, public_scope
from litequeue.sqlite.arrivals import Lookout
from litequeue.sqlite.ends import BEFORE_ALL, Ends, Group
from litequeue.sqlite.moments import KEPT_US, OPEN_US, Moments
from litequeue.sqlite.reader import Reader, onward
from litequeue.sqlite.results import is_known_to_all
from litequeue.sqlite.statements import SQL
from litequeue.sqlite.walks import events_of
from litequeue.sqlite.watching import WATCHER, Listener

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litequeue.lease import Duration
    from litequeue.sqlite.store import Store

_PAGE = 1000
"""Rows of one group, or running jobs, in one look."""
_LOOKED_UP = 1000
"""Jobs that are looked up by their ids in one look: the latest of those that have not ended."""
_AT_FIRST = 20_000
"""Rows in the first look, and rows ahead of the clock, all groups together, if each of them has no more than one."""
_HEADS, _ALL_HEADS = 100, 10_000
"""The first jobs of a group that waits, and of all of them, if each has no more than one."""
_MOST_REMEMBERED = 100_000
"""Jobs of which it is known what was told; those that have ended are for `KEPT_US`, and older events are no news."""
_LEAST_REST_S = 0.05
"""Between two looks that found something."""
_RESTS_A_LOOK = 9


class Happened(NamedTuple):
    """An event, and whose."""

    job_id: UUID
    scope: Scope
    kind: str
    event: Event


@dataclass(slots=True)
class _Seen:
    """What has been told of a job."""

    log_bytes: int
    """The length of its log then: a log that has changed has another."""
    last: Event | None
    at: int
    """When it was last looked at: a moment."""
    look: int
    """The number of that look."""


class Follower(Lookout):
    """Tells what happens to jobs of a kind, in a scope, or to all. Made by `Queue.follower`; for one thread."""

    def __init__(self, store: Store, scope: str | None, kind: str | None) -> None:
        super().__init__(store, store.place.bell_path)
        self._scope = scope
        self._kind = kind
        self._ends: dict[Listener, Listener] = {}
        """For each listener to the bell of work the one to that of ends."""
        self._moments = Moments()
        self._group_ends = Ends(self._moments)
        self._active: OrderedDict[bytes, _Seen] = OrderedDict()
        """Jobs that had not ended when they were last looked at, the latest ones last."""
        self._ended: OrderedDict[bytes, _Seen] = OrderedDict()
        """Those that had."""
        self._look = 0
        self._has_stepped = False
        """Whether the wall clock has, since the last look."""
        self._since: int | None = None
        """Of a job that has come to the end of a group and is not known, events since that moment are news."""
        self._known_until = 0
        """Of one that is not known and was found elsewhere, events since this moment: before, it may have been."""
        self._data_version: int | None = None
        self._rest_s = 0.0
        self._has_more = False
        self._began_at = 0

    def latest(self, limit: int) -> list[Happened]:
        """Return the last events of the jobs that were enqueued last, and begin to follow; call it once, and first.

        `limit` is 0 to 10,000.

        Raises:
            UsageError: it is out of its bounds.
        """
        limit = arguments.whole("limit", limit, 0, 10_000)
        found: list[Happened] = []
        with self._store.read() as reader:
            self._begin(reader)
            groups = list(self._groups(reader))
            most = _share(_PAGE, _AT_FIRST, groups)
            of_each = min(most, max(1, limit))
            for group in groups:
                rows = reader.all(SQL.group_youngest, *group, of_each)
                self._group_ends.begin(reader, group, (rows[0][0], rows[0][1]), most)
                for _, job_id, kind, log in rows:
                    found += self._news(group[0], group[1], kind, job_id, log)
            found += self._news_of_running(reader)
            self._began_at = self._known_until = self._moments.now
        return self._in_order(found)[-limit:] if limit else []

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until something may have happened; `False` when the time is over, or when it was interrupted.

        Raises:
            UsageError: the time is out of its bounds, or this thread has a transaction open.
            QueueClosed: the handle was closed, also while this waits.
        """
        if self._rest_s:
            rest_s, self._rest_s = self._rest_s, 0.0
            self._attend(lambda listener: self._rest(listener, rest_s))
        return self._has_more or self._until(self._look_for_commits, timeout)

    def news(self) -> list[Happened]:
        """Return what has happened since the last look, in the order in which it did; a bounded look."""
        began_s = time.thread_time()
        found: list[Happened] = []
        with self._store.read() as reader:
            self._begin(reader)
            self._since = max(self._began_at - OPEN_US, self._moments.now - KEPT_US)
            groups = list(self._groups(reader))
            most = _share(_PAGE, _AT_FIRST, groups)
            if self._has_stepped:
                self._has_stepped = False
                self._group_ends.look_anew(reader, most)
            heads = _share(min(_HEADS, _PAGE), _ALL_HEADS, groups)
            for group in groups:
                rows, is_all = self._group_ends.arrived(reader, group, _PAGE, most)
                self._has_more = self._has_more or not is_all
                for _, job_id, kind, log in rows:
                    found += self._news(group[0], group[1], kind, job_id, log)
                if not JobState(group[1]).is_terminal:
                    found += self._news_of_first(reader, group, heads)
            found += self._news_of_running(reader)
            found += self._news_of_known(reader)
            self._forget(self._moments.now - KEPT_US)
        self._rest_s = max(_LEAST_REST_S, _RESTS_A_LOOK * (time.thread_time() - began_s))
        return self._in_order(found)

    # --- waiting

    def _look_for_commits(self, reader: Reader) -> float:
        self._note_time()
        return math.inf if not self._has_stepped and reader.connection.data_version() == self._data_version else 0

    def _begin(self, reader: Reader) -> None:
        """Begin a look; remember the commit that its snapshot is of."""
        self._note_time()
        self._data_version = reader.connection.data_version()
        self._look += 1
        self._has_more = False

    def _note_time(self) -> None:
        """Note the clocks, also while nothing happens: the later a step is noticed, the less is certain about it."""
        self._has_stepped = self._moments.note(*clocks.now(self._store.clock)) or self._has_stepped

    def _watch(self, listener: Listener) -> bool:
        ends = self._ends.setdefault(listener, listener.twin(self._store.place.done_path))
        is_heard = super()._watch(listener)
        return WATCHER.watch(ends, self._store.place) and is_heard and is_known_to_all(ends)

    def _leave(self, listener: Listener) -> None:
        ends = self._ends.pop(listener, None)
        if ends is not None:
            WATCHER.leave(ends)
        super()._leave(listener)

    def _rest(self, listener: Listener, seconds: float) -> bool:
        if not self._is_interrupted:
            listener.rest(seconds)
        return True

    # --- looking

    def _groups(self, reader: Reader) -> Iterator[Group]:
        """Walk the groups that have jobs, but for those of running ones, which are looked at as a whole."""
        place: Group = ("" if self._scope is None else self._scope, -1, -1)
        while (found := reader.one(SQL.group_after, *place)) is not None:
            scope, state, priority = found
            if self._scope is not None and scope != self._scope:
                return
            place = onward((scope, state, priority), (*place[:2], place[2] + 1))
            if state != JobState.LEASED:
                yield place

    def _news_of_first(self, reader: Reader, group: Group, heads: int) -> list[Happened]:
        """Look at the first jobs of a group that waits: what was retried is older than what has not run yet."""
        found: list[Happened] = []
        for _, job_id, kind, log in reader.all(SQL.group_since, *group, *BEFORE_ALL, heads):
            found += self._news(group[0], group[1], kind, job_id, log, is_at_end=False)
        return found

    def _news_of_running(self, reader: Reader) -> list[Happened]:
        found: list[Happened] = []
        for scope, kind, job_id, log in reader.all(SQL.running_logs, _PAGE):
            if self._scope is None or scope == self._scope:
                found += self._news(scope, JobState.LEASED, kind, job_id, log)
        return found

    def _news_of_known(self, reader: Reader) -> list[Happened]:
        """Look up the jobs that had not ended when they were last looked at, and may have left their place since."""
        missing = (job_id for job_id, seen in reversed(self._active.items()) if seen.look != self._look)
        found: list[Happened] = []
        for job_id in list(islice(missing, _LOOKED_UP)):
            row = reader.one(SQL.log_by_id, job_id)
            if row is None:  # it was removed
                del self._active[job_id]
                continue
            scope, state, kind, log = row
            found += self._news(scope, state, kind, job_id, log)
        return found

    def _news(
        self, scope: str, state: int, kind: str, job_id: bytes, log: bytes, *, is_at_end: bool = True
    ) -> list[Happened]:
        """Return the events of a job that have not been told; one that `is_at_end` of its group has just come there."""
        if self._kind is not None and not arguments.matches(self._kind, kind):
            return []
        seen = self._active.pop(job_id, None) or self._ended.pop(job_id, None)
        events: list[Event] = []
        if seen is None or seen.log_bytes != len(log):
            log_events = events_of(job_id, log)
            events = self._after(log_events, seen, self._since if is_at_end else self._known_until)
            seen = _Seen(len(log), log_events[-1] if log_events else None, self._moments.now, self._look)
        else:
            seen.at, seen.look = self._moments.now, self._look
        (self._ended if JobState(state).is_terminal else self._active)[job_id] = seen
        return [Happened(stored_job_id(job_id), public_scope(scope), kind, event) for event in events]

    def _forget(self, before: int) -> None:
        """Forget jobs that have ended and have not been seen for long, and the oldest of too many others."""
        while self._ended:
            job_id, seen = next(iter(self._ended.items()))
            if seen.at >= before and len(self._ended) <= _MOST_REMEMBERED:
                break
            del self._ended[job_id]
        while len(self._active) > _MOST_REMEMBERED:
            _, seen = self._active.popitem(last=False)
            self._known_until = max(self._known_until, seen.at)

    def _after(self, events: list[Event], seen: _Seen | None, since: int | None) -> list[Event]:
        """Return the events that come after those that were told; a log may have been shortened meanwhile."""
        if seen is None or seen.last is None:
            if since is None:
                return events
            moments = map(self._moments.of, (one.at for one in events))
            return [one for one, moment in zip(events, moments, strict=True) if moment is not None and moment > since]
        told = seen.last
        if told in events:
            return events[len(events) - events[::-1].index(told) :]
        return events[1:]  # the first one stays, and of the others the oldest go

    def _in_order(self, found: list[Happened]) -> list[Happened]:
        """Order events by their moments; those of one job stay in the order of its log."""
        reached: dict[UUID, int] = {}
        keys: list[tuple[int, UUID]] = []
        for job_id, _, _, event in found:
            moment = self._moments.place_of(event.at)
            reached[job_id] = max(moment, reached.get(job_id, moment))
            keys.append((reached[job_id], job_id))
        return [found[n] for n in sorted(range(len(found)), key=keys.__getitem__)]


def _share(most: int, of_all: int, groups: list[Group]) -> int:
    """Return how many rows of each group are looked at."""
    return max(1, min(most, of_all // max(1, len(groups))))
