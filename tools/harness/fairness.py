"""Whether leases went round the scopes: one that had something to lease was served within the others' weights.

Owns: the rule FAIR, for files on which everybody who leases from all scopes asks for the same kinds, so that there is
one turn. From its log it is known when a job was ready, and its scope with it, if no limit governs its kind and nothing
paused it. Invariants: what cannot be known is left out on the side of the queue: leases of the same transaction as one
that served the scope, those of workers that lease from one scope, retakes, times of which a truncated log is silent.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from harness.admitted import Leased
from harness.found import FoundJob, Life
from harness.promises import Breach, Rule
from harness.restrictions import Restrictions

WAITS = "times that a scope with ready work waited while others were served"
_READY_SINCE = frozenset({"enqueued", "promoted", "released", "retried"})
"""What makes a job ready, when the next event of its log is its lease."""


class _Span(NamedTuple):
    since: int
    until: int


class Fairness:
    """The scopes of a file, and when each had something to lease."""

    def __init__(self, restrictions: Restrictions, breaches: list[Breach], figures: Counter[str]) -> None:
        self._restrictions = restrictions
        self._breaches = breaches
        self._figures = figures
        self._ready: dict[str, set[_Span]] = defaultdict(set)
        self._silent: dict[str, list[_Span]] = defaultdict(list)

    def add(self, job: FoundJob, life: Life) -> None:
        """Take note of when a job was ready."""
        self._ready.setdefault(job.scope, set())
        if life.dropped:
            marker = next(index for index, line in enumerate(job.events) if line.transition == "truncated")
            until = job.events[min(marker + 1, len(job.events) - 1)].at
            self._silent[job.scope].append(_Span(job.events[0].at, until))
        if self._restrictions.is_free(job.kind, job.scope):
            self._ready[job.scope].update(self._spans(job))

    def judge(self, leased: Sequence[Leased], of_one_scope: Collection[str]) -> None:
        """Hold leases, in the order of their times, against the weights; some workers lease from one scope only."""
        weights = self._restrictions.weights or {}
        in_turn = [one for one in leased if one.worker not in of_one_scope]
        for scope, spans in self._ready.items():
            served = [one.at for one in in_turn if one.scope == scope]
            others = [one.at for one in in_turn if one.scope != scope and not one.is_retake]
            most = sum(weights.get(other, 1) for other in self._ready if other != scope)
            for wait in sorted({wait for span in spans for wait in self._waits(scope, span, served)}):
                count = bisect_left(others, wait.until) - bisect_right(others, wait.since)
                self._figures[WAITS] += count > 0
                if count > most:
                    what = f"others had {count} leases from {wait.since} to {wait.until}, where {most} were allowed"
                    self._breaches.append(Breach(Rule.FAIR, f"scope {scope} had ready work, and {what}"))

    def _spans(self, job: FoundJob) -> Iterator[_Span]:
        pauses = self._restrictions.pauses(job.kind, job.scope)
        for before, line in pairwise(job.events):
            is_paused = any(one.since <= line.at and (one.until is None or before.at <= one.until) for one in pauses)
            if line.transition == "leased" and before.transition in _READY_SINCE and not is_paused:
                yield _Span(before.at, line.at)

    def _waits(self, scope: str, span: _Span, served: Sequence[int]) -> Iterator[_Span]:
        """Part a time in which a scope had ready work by the leases that served it."""
        within = served[bisect_right(served, span.since) : bisect_left(served, span.until)]
        for since, until in pairwise((span.since, *within, span.until)):
            if not any(silent.since <= until and since <= silent.until for silent in self._silent[scope]):
                yield _Span(since, until)
