"""Admission: whether a job that is ready may be leased now, by the limits and pauses of the file.

Invariants: leases are counted where they are, and tokens taken, under the write lock of the lease that takes them, so
limits hold exactly whoever leases; a count stops at its limit, and one that nobody asks about is not made. Outside of a
write transaction the same questions tell whether a lease call would find something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from litequeue import limits
from litequeue.limits import ALL_SCOPES, Bucket, Flow, Pool
from litequeue.sqlite import slots
from litequeue.sqlite.context import Context
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.statements import SQL


class Admission:
    """What is left of the limits, within one transaction or one look."""

    __slots__ = ("_buckets", "_left", "_reader", "_spent", "token_in_us")

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._left: dict[Pool | Flow, int] = {}
        self._buckets: dict[Flow, Bucket] = {}
        self._spent: Counter[Flow] = Counter()
        self.token_in_us: int | None = None
        """The soonest time at which a rate that has refused a kind may let one go."""

    def is_closed(self, scope: str) -> bool:
        """Tell whether nothing of a scope may be leased, of whatever kind."""
        return self._reader.settings.pauses.holds_all(scope)

    def allows(self, kind: str, scope: str) -> bool:
        """Tell whether one more job of this kind may be leased in this scope."""
        settings = self._reader.settings
        if settings.pauses.holds(kind, scope):
            return False
        return all(self._places(pool) for pool in settings.limits.pools(kind, scope)) and self._flows(kind)

    def objections(self, kind: str, scope: str) -> Iterator[str]:
        """Say, in a line each, what keeps one more job of this kind from being leased in this scope."""
        settings = self._reader.settings
        for name, place in settings.pauses.holding(kind, scope):
            yield f"paused ({name or 'all kinds'} in {'all scopes' if place == ALL_SCOPES else 'its scope'})"
        for pool in settings.limits.pools(kind, scope):
            if not self._places(pool):
                within = "" if pool.scope == ALL_SCOPES else " in its scope"
                yield f"concurrency {pool.most} of {pool.kind or 'all kinds'}{within} is reached"
        flow = settings.limits.flow(kind)
        if flow is not None and not self._flows(kind):
            pause_s = limits.token_in_us(flow.rate, self._buckets[flow]) / 1_000_000
            period_s = flow.rate.period_us / 1_000_000
            name = flow.kind or "all kinds"
            yield f"rate {flow.rate.size}/{period_s:g}s of {name} is used up, the next may go in {pause_s:.3g} s"

    def take(self, kind: str, scope: str) -> None:
        """Take the place of one more job, which `allows` has found."""
        for pool in self._reader.settings.limits.pools(kind, scope):
            self._left[pool] -= 1
        self._spend(kind)

    def take_again(self, kind: str, scope: str) -> bool:
        """Let a run begin anew in the place that it has; a pause, and a rate, may be against that."""
        if self._reader.settings.pauses.holds(kind, scope) or not self._flows(kind):
            return False
        self._spend(kind)
        return True

    def write(self, context: Context) -> None:
        """Store what has been taken out of buckets."""
        for flow, count in self._spent.items():
            bucket = self._buckets[flow]
            credit = bucket.credit - count * flow.rate.period_us
            context.write(SQL.bucket_put, (flow.kind, credit, bucket.at))
        self._spent.clear()

    def _places(self, pool: Pool) -> int:
        left = self._left.get(pool)
        if left is None:
            left = self._left[pool] = pool.most - slots.taken(self._reader, pool)
        return left

    def _flows(self, kind: str) -> bool:
        flow = self._reader.settings.limits.flow(kind)
        if flow is None:
            return True
        left = self._left.get(flow)
        if left is None:
            found = self._reader.one(SQL.bucket, flow.kind)
            bucket = limits.filled(flow.rate, None if found is None else Bucket(*found), self._reader.lease_now)
            self._buckets[flow] = bucket
            left = self._left[flow] = limits.tokens(flow.rate, bucket)
        if not left:
            wait_us = limits.token_in_us(flow.rate, self._buckets[flow])
            self.token_in_us = wait_us if self.token_in_us is None else min(wait_us, self.token_in_us)
        return left > 0

    def _spend(self, kind: str) -> None:
        flow = self._reader.settings.limits.flow(kind)
        if flow is not None:
            self._left[flow] -= 1
            self._spent[flow] += 1
