"""What was imposed on a file besides its jobs: limits, rates, pauses, weights and schedules, and what each governs.

Owns: the plain values, and which of them govern a kind in a scope, written down here anew from the guide: it shares
nothing with the package's rules, so a wrong rule there is seen. Times are wall clock µs. Leaves out: where the values
come from (whoever imposed them keeps a record), and whether jobs kept to them (`admitted`, `fired`, `fairness`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

ALL_SCOPES = "(all)"
"""In the place of a scope: all of them together."""
EACH_SCOPE = "(each)"
"""In the place of a scope: each by itself, for the kinds for which it has no limit of its own."""


class LimitChange(NamedTuple):
    """A `concurrency` that was set; the leases of its transaction's time may be under it or under the one before."""

    at: int
    kind: str
    """The filter."""
    scope: str
    most: int | None
    """`None` frees what the filter governs."""


class Flow(NamedTuple):
    """A `rate`, which was set before the first lease and never changed."""

    kind: str
    """The filter."""
    size: int
    """The tokens of a full bucket, which fills in a period."""
    period_us: int


class Paused(NamedTuple):
    """A time in which something was paused."""

    kind: str | None
    """The filter; `None` is every kind."""
    scope: str
    since: int
    until: int | None
    """`None` when it still is."""


class Scheduled(NamedTuple):
    """A schedule of `@every`, as it stands at the end. No other has jobs of its kind."""

    name: str
    kind: str
    payload: str
    """Its digest."""
    interval_us: int
    created_at: int
    upcoming: int
    """The boundary after the last one that was fired or skipped."""
    fired: int
    skipped: int


class Pool(NamedTuple):
    """Leases that are counted together."""

    kind: str
    """The filter of the limit."""
    of: str
    """The scope that the limit was set for: one, `ALL_SCOPES` or `EACH_SCOPE`."""
    scope: str
    """Within which they are counted; or `ALL_SCOPES`."""


@dataclass(frozen=True)
class Restrictions:
    """Everything that was imposed on a file."""

    limits: Sequence[LimitChange] = ()
    """In the order of their times; those of before the first lease too."""
    flows: Sequence[Flow] = ()
    paused: Sequence[Paused] = ()
    schedules: Sequence[Scheduled] = ()
    weights: Mapping[str, int] | None = None
    """By scope, 1 for others; `None` when leases do not go round the scopes."""

    @property
    def any(self) -> bool:
        """Whether there is anything to hold jobs against."""
        return bool(self.limits or self.flows or self.paused or self.schedules or self.weights is not None)

    @cached_property
    def scheduled_kinds(self) -> frozenset[str]:
        """The kinds whose jobs are made by a schedule, and by nobody else."""
        return frozenset(schedule.kind for schedule in self.schedules)

    @cached_property
    def _filters(self) -> Mapping[str, frozenset[str]]:
        """The filters that have a limit, by the scope it was set for."""
        scopes = {one.scope for one in self.limits}
        return {of: frozenset(one.kind for one in self.limits if one.scope == of) for of in scopes}

    def pools(self, kind: str, scope: str) -> list[Pool]:
        """Return where a lease is counted: over all scopes, and within its own."""
        found = []
        for counted, *holders in ((ALL_SCOPES, ALL_SCOPES), (scope, scope, EACH_SCOPE)):
            for of in holders:
                name = longest(self._filters.get(of, ()), kind)
                if name is not None:
                    found.append(Pool(name, of, counted))
                    break
        return found

    def most(self, pool: Pool, at: int) -> int | None:
        """Return how many leases a pool may hold at a time; `None` is any number."""
        before: list[int | None] = [None]
        now: list[int | None] = []
        for change in self.limits:
            if (change.kind, change.scope) == (pool.kind, pool.of):
                if change.at < at:
                    before = [change.most]
                elif change.at == at:
                    now.append(change.most)
        allowed = [*before, *now]
        return None if None in allowed else max(most for most in allowed if most is not None)

    def flow(self, kind: str) -> Flow | None:
        """Return the rate that governs a kind."""
        name = longest([flow.kind for flow in self.flows], kind)
        return next((flow for flow in self.flows if flow.kind == name), None)

    def pauses(self, kind: str, scope: str) -> list[Paused]:
        """Return the times in which this was paused."""
        return [
            one
            for one in self.paused
            if one.scope in {ALL_SCOPES, scope} and (one.kind is None or takes(one.kind, kind))
        ]

    def is_free(self, kind: str, scope: str) -> bool:
        """Tell whether no limit and no rate ever governed this; a pause may have."""
        limited = {(one.kind, one.scope) for one in self.limits if one.most is not None}
        return self.flow(kind) is None and not any((pool.kind, pool.of) in limited for pool in self.pools(kind, scope))


UNRESTRICTED = Restrictions()


def takes(kind_filter: str, kind: str) -> bool:
    """Tell whether a filter takes a kind: the same, or a prefix that ends in a colon."""
    return kind == kind_filter or (kind_filter.endswith(":") and kind.startswith(kind_filter))


def longest(filters: Iterable[str], kind: str) -> str | None:
    """Return the longest filter that takes a kind."""
    return max((name for name in filters if takes(name, kind)), key=len, default=None)
