"""Limits and pauses: which jobs may not be leased now although they are ready.

Owns: which limit governs a kind, within a scope and over all of them; the form of a rate and the arithmetic of its
bucket; which pause holds what. Invariants: a kind is governed by one filter of each sort, the longest that matches, and
counts nowhere else; a bucket is whole numbers, so nothing is lost or won by rounding. Leaves out: how many leases there
are (`sqlite/admission`), and where all this is stored (`sqlite/settings_table`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from litequeue import arguments
from litequeue.errors import UsageError

ALL_SCOPES = "litequeue:all"
"""In the place of a scope: all of them together."""
EACH_SCOPE = "litequeue:each"
"""In the place of a scope: each by itself, for the kinds for which it has no value of its own."""
ALL_KINDS = ""
"""In the place of a kind filter: every kind."""

_MAX_PERIOD_S = 30 * 86_400
_RATE = re.compile(r"(\d{1,9})/(\d{0,9})([smhd])", re.ASCII)
_RATE_BOUNDS = f"COUNT/TIME: 1 to {arguments.MAX_COUNT} in 1 second to 30 days (s, m, h, d), as in '10/s' or '100/5m'"
_MAX_CACHED = 4096


class Rate(NamedTuple):
    """How many leases there may be: a bucket of `size` tokens that fills evenly, from empty to full in a period."""

    size: int
    period_us: int

    @property
    def full(self) -> int:
        """The credit of a full bucket; a token costs `period_us`, and each µs brings `size`."""
        return self.size * self.period_us


class Bucket(NamedTuple):
    """What a bucket held at a time of the lease clock."""

    credit: int
    at: int


def rate_text(name: str, value: object) -> str:
    """Check a rate; return it in its stored form, `COUNT/SECONDSs`.

    Raises:
        UsageError: not `COUNT/TIME`, or out of its bounds.
    """
    found = _RATE.fullmatch(value) if isinstance(value, str) else None
    if found is not None:
        count, seconds = int(found[1]), int(found[2] or 1) * arguments.UNITS_S[found[3]]
        if 1 <= count <= arguments.MAX_COUNT and 1 <= seconds <= _MAX_PERIOD_S:
            return f"{count}/{seconds}s"
    raise UsageError.of(name, value, _RATE_BOUNDS)


def rate(stored: str) -> Rate:
    """Read a rate in its stored form."""
    size, _, seconds = stored.rstrip("s").partition("/")
    return Rate(int(size), int(seconds) * 1_000_000)


def filled(rate: Rate, bucket: Bucket | None, now: int) -> Bucket:
    """Return the bucket as it is now; `None` is a full one, as every bucket begins."""
    if bucket is None:
        return Bucket(rate.full, now)
    return Bucket(min(rate.full, bucket.credit + max(0, now - bucket.at) * rate.size), now)


def exchanged(old: Rate, new: Rate, bucket: Bucket, now: int) -> Bucket:
    """Return the bucket of a rate that takes an old one's place: it lacks the same tokens, or all that it can hold."""
    lacking = old.full - filled(old, bucket, now).credit
    return Bucket(max(0, new.full - -(-lacking * new.period_us // old.period_us)), now)


def tokens(rate: Rate, bucket: Bucket) -> int:
    """Return how many whole tokens are in a bucket."""
    return bucket.credit // rate.period_us


def token_in_us(rate: Rate, bucket: Bucket) -> int:
    """Return in how many µs an empty bucket has its next token."""
    return -((bucket.credit - rate.period_us) // rate.size)


class Pool(NamedTuple):
    """The leases that one value of `concurrency` counts."""

    kind: str
    """The filter that the value belongs to."""
    scope: str
    """The scope within which they are counted, or `ALL_SCOPES`."""
    most: int


class Flow(NamedTuple):
    """The leases that one value of `rate` counts."""

    kind: str
    """The filter that the value belongs to."""
    rate: Rate


def filters_of(kind: str) -> Iterator[str]:
    """Return every filter that takes a kind, the longest first; last the one that takes all."""
    yield kind
    at = kind.rfind(":", 0, len(kind) - 1)
    while at >= 0:
        yield kind[: at + 1]
        at = kind.rfind(":", 0, at)
    yield ALL_KINDS


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a file; `None` for a filter frees what it governs."""

    by_scope: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    """`concurrency` by scope (or `ALL_SCOPES`, `EACH_SCOPE`), then by filter."""
    rates: Mapping[str, Rate | None] = field(default_factory=dict)
    """By filter."""
    _pools: dict[tuple[str, str], tuple[Pool, ...]] = field(default_factory=dict, repr=False, compare=False)

    def __bool__(self) -> bool:
        """Whether anything is limited."""
        return bool(self.by_scope or self.rates)

    def pools(self, kind: str, scope: str) -> tuple[Pool, ...]:
        """Return where a lease of this kind and scope is counted: over all scopes, and within its own."""
        if not self.by_scope:
            return ()
        found = self._pools.get((kind, scope))
        if found is None:
            if len(self._pools) >= _MAX_CACHED:
                self._pools.clear()
            found = self._pools[kind, scope] = tuple(self._find_pools(kind, scope))
        return found

    def flow(self, kind: str) -> Flow | None:
        """Return the rate that governs a kind."""
        if self.rates:
            for name in filters_of(kind):
                if name in self.rates:
                    found = self.rates[name]
                    return None if found is None else Flow(name, found)
        return None

    def _find_pools(self, kind: str, scope: str) -> Iterator[Pool]:
        for counted, *holders in ((ALL_SCOPES, ALL_SCOPES), (scope, scope, EACH_SCOPE)):
            matching = ((holder, name) for holder in holders for name in filters_of(kind))
            for holder, name in matching:
                values = self.by_scope.get(holder, {})
                if name in values:
                    most = values[name]
                    if most is not None:
                        yield Pool(name, counted, most)
                    break


@dataclass(frozen=True, slots=True)
class Pauses:
    """What is paused: filters by scope (or `ALL_SCOPES`)."""

    by_scope: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The filters that are paused there, and since when (µs since the epoch)."""

    def __bool__(self) -> bool:
        """Whether anything is paused."""
        return bool(self.by_scope)

    def holds(self, kind: str, scope: str) -> bool:
        """Tell whether jobs of this kind and scope are not to be leased."""
        return any(True for _ in self.holding(kind, scope))

    def holding(self, kind: str, scope: str) -> Iterator[tuple[str, str]]:
        """Return which pauses hold jobs of this kind and scope: the filter of each, and its scope or `ALL_SCOPES`."""
        for name in (ALL_SCOPES, scope):
            paused = self.by_scope.get(name)
            if paused:
                yield from ((kind_filter, name) for kind_filter in filters_of(kind) if kind_filter in paused)

    def holds_all(self, scope: str) -> bool:
        """Tell whether no job of this scope is to be leased, of whatever kind."""
        return any(ALL_KINDS in self.by_scope.get(name, ()) for name in (ALL_SCOPES, scope))
