"""Whether limits, rates and pauses held: what all jobs' logs say together of when each was leased.

Owns: the rules LIMIT, RATE and PAUSED. Events have the time of their transaction, read under the write lock, so their
order is that of the commits, unless the wall clock steps back. Invariants: what a truncated log no longer says is not
counted; a lease that is a retake, which begins in the place that its job has, is counted, and held against rates and
pauses only; an end and a begin of the same µs do not overlap.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from harness.found import FoundJob, Life
from harness.promises import Breach, Rule
from harness.restrictions import Flow, Pool, Restrictions

LAST_PLACES = "leases that took the last place of a limit"
LAST_TOKENS = "leases that took the last token of a rate"
FIGURES = (LAST_PLACES, LAST_TOKENS)
"""What is counted, besides breaches."""
_NEVER = 2**63
_BETWEEN_CLOCKS_US = 100_000
"""Between a transaction's reading of one clock and of the other, on a busy machine."""


class Leased(NamedTuple):
    """One lease of a job, in µs of the wall clock."""

    at: int
    ended_at: int
    job_id: str
    kind: str
    scope: str
    worker: str
    is_retake: bool


def leases(job: FoundJob, life: Life) -> Iterator[Leased]:
    """Return the leases of a job that its log still tells of."""
    for index, run in enumerate(life.runs):
        if run.worker is None:
            continue
        before = life.runs[index - 1] if index else None
        after = life.runs[index + 1].at if index + 1 < len(life.runs) else _NEVER
        is_retake = before is not None and before.end == "failed" and before.ended_at == run.at
        ended_at = after if run.end is None else run.ended_at
        yield Leased(run.at, ended_at, job.job_id, job.kind, job.scope, run.worker, is_retake)


class Admitted:
    """The leases of all jobs, against what restricts them."""

    def __init__(self, restrictions: Restrictions, breaches: list[Breach], figures: Counter[str]) -> None:
        self._restrictions = restrictions
        self._breaches = breaches
        self._figures = figures

    def judge(self, leased: Sequence[Leased]) -> None:
        """Hold leases, in the order of their times, against every rule."""
        pools: dict[Pool, list[Leased]] = defaultdict(list)
        flows: dict[Flow, list[Leased]] = defaultdict(list)
        places: dict[tuple[str, str], list[Leased]] = defaultdict(list)
        for one in leased:
            places[one.kind, one.scope].append(one)
        for (kind, scope), there in places.items():
            for pool in self._restrictions.pools(kind, scope):
                pools[pool] += there
            flow = self._restrictions.flow(kind)
            if flow is not None:
                flows[flow] += there
            self._paused(kind, scope, there)
        for pool, counted in pools.items():
            self._limit(pool, sorted(counted))
        for flow, counted in flows.items():
            self._rate(flow, sorted(counted))

    def _limit(self, pool: Pool, leased: Sequence[Leased]) -> None:
        """Count how many there are whenever some begin."""
        held: list[int] = []
        for at, begun in groupby((one for one in leased if one.ended_at > one.at), attrgetter("at")):
            while held and held[0] <= at:
                heapq.heappop(held)
            is_admission = False
            for one in begun:
                heapq.heappush(held, one.ended_at)
                is_admission = is_admission or not one.is_retake
            most = self._restrictions.most(pool, at)
            if most is None or not is_admission:
                continue
            self._figures[LAST_PLACES] += len(held) == most
            if len(held) > most:
                where = f"{pool.kind} in {pool.scope}"
                self._breach(Rule.LIMIT, f"{len(held)} leases of {where} at {at}, where {most} were allowed")

    def _rate(self, flow: Flow, leased: Sequence[Leased]) -> None:
        """Fill and empty a bucket: it goes by the lease clock, the logs by the wall clock, which is read before it."""
        full = flow.size * flow.period_us
        credit, since = full, leased[0].at
        for one in leased:
            credit = min(full, credit + max(0, one.at - since) * flow.size) - flow.period_us
            since = max(since, one.at)
            self._figures[LAST_TOKENS] += 0 <= credit < flow.period_us
            if credit < -_BETWEEN_CLOCKS_US * flow.size:
                what = f"job {one.job_id} ({one.kind}) was leased at {one.at}, and no token was left"
                self._breach(Rule.RATE, f"{what} of {flow.size} in {flow.period_us} µs")
                credit = 0

    def _paused(self, kind: str, scope: str, leased: Sequence[Leased]) -> None:
        begins = [one.at for one in leased]
        for pause in self._restrictions.pauses(kind, scope):
            first = bisect_right(begins, pause.since)
            last = len(begins) if pause.until is None else bisect_left(begins, pause.until)
            for one in leased[first:last]:
                what = f"job {one.job_id} ({kind} in {scope}) was leased at {one.at}"
                self._breach(Rule.PAUSED, f"{what}: {pause.kind} in {pause.scope} was paused from {pause.since} on")

    def _breach(self, rule: Rule, what: str) -> None:
        self._breaches.append(Breach(rule, what))
