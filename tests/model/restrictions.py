"""What may not be leased although it is ready, as the contract's §5 and V15 have it: limits, rates and pauses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

from litequeue import ANY
from litequeue.model import Scope, SpecialScope
from tests.model.records import SECOND, Entry, matches

Kind = str | None
Where = Scope | SpecialScope | None
"""Over all scopes together; within each by itself (`ANY`); or within one."""
Given = dict[tuple[Kind, str], int | float | str | bool | None]


@dataclass
class Restrictions:
    """What was said of limits within scopes and of pauses, and what the rates have left; `given` has the rest."""

    given: Given
    scoped: dict[tuple[Scope | SpecialScope, Kind], int | None] = field(default_factory=dict)
    pauses: set[tuple[Scope | SpecialScope, Kind]] = field(default_factory=set)
    _levels: dict[Kind, tuple[Fraction, int]] = field(default_factory=dict)
    """The tokens of a rate that has been used, and when; by its filter."""

    def copy(self, given: Given) -> Restrictions:
        """Return a twin, on a twin of the settings."""
        return Restrictions(given, dict(self.scoped), set(self.pauses), dict(self._levels))

    def change_rate(self, kind: Kind, before: object, after: object, lease_now: int) -> None:
        """Let a rate that was changed lack the tokens that it lacked; one that is new, or was taken back, is full."""
        used = kind in self._levels
        if used and isinstance(before, str) and isinstance(after, str):
            (old_size, old_period), (size, period) = _read(before), _read(after)
            lacking = ceil((old_size - self._level(kind, old_size, old_period, lease_now)) * period)
            self._levels[kind] = (max(Fraction(0), size - Fraction(lacking, period)), lease_now)
        else:
            self._levels.pop(kind, None)

    def reboot(self, lease_now: int) -> None:
        """Go on filling from now on."""
        self._levels = {kind: (level, lease_now) for kind, (level, _) in self._levels.items()}

    def gate(self, leased: Iterable[Entry], lease_now: int) -> Gate:
        """Return what lets jobs go, one after the other, beside those that are leased already."""
        return Gate(self.copy(self.given), list(leased), lease_now)

    def is_paused(self, job: Entry) -> bool:
        """Tell whether a pause holds a job."""
        return any((where, None) in self.pauses or self._is_named(where, job) for where in (ANY, job.scope))

    def _is_named(self, where: Scope | SpecialScope, job: Entry) -> bool:
        return any(scope == where and kind is not None and matches(kind, job.kind) for scope, kind in self.pauses)

    def pools(self, job: Entry) -> list[tuple[Where, Kind, int]]:
        """Return the limits that count a job: over all scopes, and within its own."""
        over_all = {kind: value for (kind, name), value in self.given.items() if name == "concurrency"}
        own = {kind: value for (scope, kind), value in self.scoped.items() if scope == job.scope}
        each = {kind: value for (scope, kind), value in self.scoped.items() if scope is ANY}
        found: list[tuple[Where, Kind, int]] = []
        for where, values in ((None, over_all), (job.scope, own if _longest(own, job) else each)):
            governing = _longest(values, job)
            most = values[governing[0]] if governing else None
            if isinstance(most, int):
                found.append((where, governing[0], most))
        return found

    def has_token(self, job: Entry, lease_now: int) -> bool:
        """Tell whether the rate of a job lets it go now."""
        rate = self._rate(job)
        return rate is None or self._level(*rate, lease_now) >= 1

    def spend(self, job: Entry, lease_now: int) -> None:
        """Take a token, where there is a rate."""
        rate = self._rate(job)
        if rate is not None:
            self._levels[rate[0]] = (self._level(*rate, lease_now) - 1, lease_now)

    def _rate(self, job: Entry) -> tuple[Kind, int, int] | None:
        values = {kind: value for (kind, name), value in self.given.items() if name == "rate"}
        governing = _longest(values, job)
        said = values[governing[0]] if governing else None
        if not isinstance(said, str):
            return None
        return governing[0], *_read(said)

    def _level(self, kind: Kind, size: int, period: int, lease_now: int) -> Fraction:
        if kind not in self._levels:
            return Fraction(size)
        level, at = self._levels[kind]
        return min(Fraction(size), level + Fraction((lease_now - at) * size, period))


@dataclass
class Gate:
    """Lets jobs go as long as there is room."""

    _restrictions: Restrictions
    _leased: list[Entry]
    _lease_now: int

    def allows(self, job: Entry) -> bool:
        """Tell whether one more job may be leased."""
        mine = self._restrictions
        if mine.is_paused(job) or not mine.has_token(job, self._lease_now):
            return False
        return all(sum(pool in mine.pools(other) for other in self._leased) < pool[2] for pool in mine.pools(job))

    def take(self, job: Entry) -> None:
        """Let a job go."""
        self._leased.append(job)
        self._restrictions.spend(job, self._lease_now)


def _read(rate: str) -> tuple[int, int]:
    """Return the size of a rate's bucket, and the µs in which it fills."""
    size, seconds = rate.removesuffix("s").split("/")
    return int(size), int(seconds) * SECOND


def _longest(values: Iterable[Kind], job: Entry) -> list[Kind]:
    """Return the filter that governs a job, if there is one."""
    taken = [kind for kind in values if kind is None or matches(kind, job.kind)]
    return [max(taken, key=lambda kind: len(kind or ""))] if taken else []
