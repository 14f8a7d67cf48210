"""What restricts the work on a file, and an operator's hand in it while others work and are killed.

Owns: the scopes, limits, rates, weights and schedules of a restricted run, their changes, and the pauses. Invariant: a
change and the row that tells of it, with the time by the wall clock, are one transaction, so whatever is killed, the
rows say exactly what was in force when. Leaves out: what follows from it (`harness.restrictions`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import NamedTuple, cast

from harness.journal import digest
from harness.restrictions import ALL_SCOPES, EACH_SCOPE, Flow, LimitChange, Paused, Restrictions, Scheduled
from killing import tasks
from litequeue import ANY, SYSTEM, JobState, NewJob, Queue, Transaction
from litequeue.model import Scope, SpecialScope

SCOPES = ("default", "four", "one", "three", "two")
"""Where jobs are made; what follows on a job is in the handle's own, `default`."""
WEIGHTS = {"one": 3, "two": 2}
TICKS = "tick:"
"""The kinds of the schedules."""

_INTERVAL_S = 1
_RATED = "work:side"
_FLOWS = (Flow(_RATED, 2, 2_000_000),)
_MOST_WAITING = 40
"""When so many jobs are ready, no more are made, since they may be held back."""
_MOST_RATED = 4
"""The same for the kind with a rate, so that these do not become all that waits."""
_EVERY_S = 0.6
"""Between two deeds of one operator, on the average."""
_LONGEST_PAUSE_S = 0.5
_FORGOTTEN_US = 1_000_000
"""A pause that is older was left by somebody who is dead."""
_PAUSES = (("work:steps", None), ("work:", "two"), (None, "four"), ("work:plain", "default"), (TICKS, None))
"""A kind filter, a scope, or both."""


class _Limit(NamedTuple):
    kind: str
    scope: str
    """As the harness writes it."""
    values: tuple[int | None, ...]
    """The first is in force from the beginning; any of them may be later."""


_LIMITS = (
    _Limit("work:", ALL_SCOPES, (6, 5, 8)),
    _Limit("work:plain", ALL_SCOPES, (None,)),
    _Limit("work:steps", ALL_SCOPES, (2, 1, 3, None)),
    _Limit("work:then", EACH_SCOPE, (1, 2)),
    _Limit("work:", "three", (2, 1, 3)),
    _Limit("work:then", "three", (2, 3)),
    _Limit(TICKS, ALL_SCOPES, (1, 2)),
)


def restrict(queue: Queue, random: Random) -> None:
    """Impose everything on a file that has no jobs yet."""
    with queue.transaction() as tx:
        tx.execute("CREATE TABLE changed (at INTEGER NOT NULL, kind TEXT NOT NULL, scope TEXT NOT NULL, most INTEGER)")
        tx.execute("CREATE TABLE paused (kind TEXT, scope TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER)")
        for limit in _LIMITS:
            _set(tx, limit, limit.values[0])
        for flow in _FLOWS:
            tx.set("rate", f"{flow.size}/{flow.period_us // 1_000_000}s", flow.kind)
        for scope, weight in WEIGHTS.items():
            tx.set_weight(scope, weight)
        for name in ("one", "two"):
            payload = tasks.payload(random, "plain", f"tick {name}")
            tx.schedule(name, f"@every {_INTERVAL_S}s", f"{TICKS}{name}", payload, scope=random.choice(SCOPES))


def told(queue: Queue) -> Restrictions:
    """Read what was imposed on a file, and what was changed when."""
    with queue.transaction() as tx:
        changes = cast("list[tuple[int, str, str, int | None]]", tx.execute("SELECT * FROM changed ORDER BY rowid"))
        limits = [LimitChange(*row) for row in changes]
        pauses = cast("list[tuple[str | None, str, int, int | None]]", tx.execute("SELECT * FROM paused"))
        paused = [Paused(*row) for row in pauses]
    schedules = [
        Scheduled(
            one.name,
            one.kind,
            digest(one.payload),
            _INTERVAL_S * 1_000_000,
            one.created_at,
            round(one.boundary.timestamp() * 1_000_000),
            one.fired,
            one.skipped,
        )
        for one in queue.schedules()
    ]
    weights = {"" if scope is SYSTEM else str(scope): weight for scope, weight in queue.weights().items()}
    return Restrictions(limits, _FLOWS, paused, schedules, weights)


class Operator:
    """Pauses, resumes and changes limits, beside the work of one process; the last ones only set free what is left.

    It also says what jobs may be made, so that those that are held back do not become too many.
    """

    def __init__(self, random: Random, *, is_last: bool) -> None:
        self._random = random
        self._is_last = is_last
        self._acts_at = self._next()
        self._resumes: list[tuple[float, str | None, str]] = []
        """When to take back which pause."""
        self._has_ended_schedules = False
        self._is_flooded = False

    def may_make(self, queue: Queue) -> bool:
        """Tell whether there may be more jobs."""
        rated = queue.list(state=JobState.PENDING, kind=_RATED, scope=ANY, limit=_MOST_RATED)
        self._is_flooded = len(rated) == _MOST_RATED
        return queue.stats(ANY).counts[JobState.PENDING] < _MOST_WAITING

    def placed(self, draw: Callable[[], NewJob]) -> NewJob:
        """Draw a job that may be made now, and its scope."""
        job = draw()
        while self._is_flooded and job.kind == _RATED:
            job = draw()
        return replace(job, scope=self._random.choice(SCOPES))

    def act(self, queue: Queue) -> None:
        """Do what is due."""
        if self._is_last:
            self._set_free(queue)
            return
        now = time.monotonic()
        for due in [due for due in self._resumes if due[0] <= now]:
            with queue.transaction() as tx:
                _resume(tx, *due[1:])
            self._resumes.remove(due)
        if now >= self._acts_at:
            self._acts_at = self._next()
            deeds: tuple[Callable[[Queue], None], ...] = (self._pause, self._limit, self._clear_away)
            self._random.choices(deeds, (6, 3, 1))[0](queue)

    def _next(self) -> float:
        return time.monotonic() + self._random.expovariate(1 / _EVERY_S)

    def _pause(self, queue: Queue) -> None:
        kind, in_scope = self._random.choice(_PAUSES)
        scope = in_scope or ALL_SCOPES
        with queue.transaction() as tx:
            if not tx.pause(kind, scope=_public(scope)):
                return
            (since,) = (one.since for one in tx.pauses() if (one.kind, one.scope) == (kind, _public(scope)))
            tx.execute("INSERT INTO paused VALUES (?, ?, ?, NULL)", (kind, scope, since))
        self._resumes.append((time.monotonic() + self._random.uniform(0.1, _LONGEST_PAUSE_S), kind, scope))

    def _limit(self, queue: Queue) -> None:
        limit = self._random.choice(_LIMITS)
        with queue.transaction() as tx:
            _set(tx, limit, self._random.choice(limit.values))

    def _clear_away(self, queue: Queue) -> None:
        """Take back what nobody else takes back any more."""
        with queue.transaction() as tx:
            _resume_since(tx, _now_us() - _FORGOTTEN_US)

    def _set_free(self, queue: Queue) -> None:
        """Let everything be leased, and no schedule make more of it."""
        if not self._has_ended_schedules:
            for schedule in queue.schedules():
                queue.pause_schedule(schedule.name)
            self._has_ended_schedules = True
        if queue.pauses():
            with queue.transaction() as tx:
                _resume_since(tx, _now_us())


def _set(tx: Transaction, limit: _Limit, most: int | None) -> None:
    scope = ANY if limit.scope == EACH_SCOPE else None if limit.scope == ALL_SCOPES else limit.scope
    tx.set("concurrency", most, limit.kind, scope=scope)
    tx.execute("INSERT INTO changed VALUES (?, ?, ?, ?)", (_now_us(), limit.kind, limit.scope, most))


def _resume(tx: Transaction, kind: str | None, scope: str) -> None:
    if tx.resume(kind, scope=_public(scope)):
        row = _now_us(), kind, scope
        tx.execute("UPDATE paused SET until = ? WHERE kind IS ? AND scope = ? AND until IS NULL", row)


def _resume_since(tx: Transaction, since: int) -> None:
    """Take back the pauses that were made by then."""
    found = tx.execute("SELECT kind, scope FROM paused WHERE until IS NULL AND since <= ?", (since,))
    for kind, scope in cast("list[tuple[str | None, str]]", found):
        _resume(tx, kind, scope)


def _public(scope: str) -> Scope | SpecialScope:
    return ANY if scope == ALL_SCOPES else scope


def _now_us() -> int:
    return time.time_ns() // 1000
