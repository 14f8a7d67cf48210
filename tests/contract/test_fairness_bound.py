"""The bound of fairness, for whatever comes: jobs arrive, weights change, scopes run dry, callers ask for kinds (V12).

Two things are held against each other and against the bound: the queue, and round robin written down a second time.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import litequeue
from litequeue import ANY, SYSTEM, NewJob
from litequeue.arguments import matches
from litequeue.model import Scope
from litequeue.testing import FakeClock

SCOPES: tuple[Scope, ...] = (SYSTEM, "a", "a b", "b", "ä", "\U0010ffff")
"""In the order of their stored names."""
Filter = tuple[str, ...] | None
FILTERS: tuple[Filter, ...] = (None, ("x",), ("y:",), ("y:1", "x"))


class Arrive(NamedTuple):
    """Jobs come."""

    scope: Scope
    kind: str
    priority: int
    number: int


class Weigh(NamedTuple):
    """A weight changes."""

    scope: Scope
    weight: int


class Lease(NamedTuple):
    """A caller asks for so many jobs."""

    kinds: Filter
    limit: int


class Model:
    """Round robin by weight, over lists; a job is its (priority, number of its arrival, kind)."""

    def __init__(self) -> None:
        self.jobs: dict[Scope, list[tuple[int, int, str]]] = {scope: [] for scope in SCOPES}
        self.weights: Counter[Scope] = Counter(dict.fromkeys(SCOPES, 1))
        self._turns: dict[Filter, tuple[Scope, int]] = {}

    def ready(self, kinds: Filter) -> list[Scope]:
        """Return the scopes that have such a job, in order."""
        return [scope for scope in SCOPES if self._line(scope, kinds)]

    def lease(self, kinds: Filter) -> tuple[Scope, int] | None:
        """Take the next job; return its scope and number."""
        ready = self.ready(kinds)
        if not ready:
            return None
        scope, served = self._turns.get(kinds, (SYSTEM, 0))
        if scope not in ready or served >= self.weights[scope]:
            after = [other for other in ready if SCOPES.index(other) > SCOPES.index(scope)]
            scope, served = [*after, *ready][0], 0
        self._turns[kinds] = scope, served + 1
        job = self._line(scope, kinds)[0]
        self.jobs[scope].remove(job)
        return scope, job[1]

    def _line(self, scope: Scope, kinds: Filter) -> list[tuple[int, int, str]]:
        return sorted(job for job in self.jobs[scope] if kinds is None or any(matches(one, job[2]) for one in kinds))


class Bound:
    """For each filter, how often others were served while a scope waited, and how often they may be."""

    def __init__(self) -> None:
        self._served: dict[tuple[Filter, Scope], Counter[Scope]] = {}
        self._most: dict[tuple[Filter, Scope], Counter[Scope]] = {}

    def look(self, model: Model) -> None:
        """See who waits now, and with what weights of the others."""
        for kinds in FILTERS:
            ready = model.ready(kinds)
            for scope in SCOPES:
                if scope in ready:
                    self._served.setdefault((kinds, scope), Counter())
                    self._most[kinds, scope] = self._most.get((kinds, scope), Counter()) | model.weights
                else:
                    self._forget(kinds, scope)

    def hear(self, kinds: Filter, served: Scope) -> None:
        """Hear whom a lease has served; nobody else has waited for more than the bound."""
        self._forget(kinds, served)
        for (asked, scope), others in self._served.items():
            if asked == kinds:
                others[served] += 1
                most = self._most[kinds, scope]
                assert others <= most, f"{scope!r} waited while {others} were served, of {most}"
                assert sum(others.values()) <= sum(most[other] for other in others), "the sum of the others' weights"

    def _forget(self, kinds: Filter, scope: Scope) -> None:
        self._served.pop((kinds, scope), None)
        self._most.pop((kinds, scope), None)


_scopes = st.sampled_from(SCOPES)
_steps = st.one_of(
    st.builds(Arrive, _scopes, st.sampled_from(("x", "x", "y:1", "y:2")), st.sampled_from((7, 100)), st.integers(1, 9)),
    st.builds(Weigh, _scopes, st.sampled_from((1, 2, 3, 1000))),
    st.builds(Lease, st.sampled_from(FILTERS), st.sampled_from((1, 1, 1, 2, 5, 40))),
    st.builds(Lease, st.sampled_from(FILTERS), st.sampled_from((1, 1, 1, 2, 5, 40))),
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(steps=st.lists(_steps, min_size=5, max_size=60))
def test_each_scope_is_served_within_the_sum_of_the_others_weights_and_one(
    steps: list[Arrive | Weigh | Lease],
) -> None:
    """A batch is as many single leases, two handles are one, and each scope of K is served within the bound (V12)."""
    model, bound = Model(), Bound()
    numbers = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "app.queue"
        with (
            litequeue.open(path, durability="normal", clock=FakeClock()) as one,
            litequeue.open(path, durability="normal", clock=FakeClock()) as other,
        ):
            for at, step in enumerate(steps):
                queue = (one, other)[at % 2]
                match step:
                    case Arrive():
                        many = range(numbers, numbers + step.number)
                        numbers += step.number
                        queue.enqueue_many(NewJob(step.kind, n, step.scope, step.priority) for n in many)
                        model.jobs[step.scope] += [(step.priority, n, step.kind) for n in many]
                        bound.look(model)
                    case Weigh():
                        queue.set_weight(step.scope, step.weight)
                        model.weights[step.scope] = step.weight
                        bound.look(model)
                    case Lease():
                        leases = queue.lease_many(step.limit, step.kinds, scope=ANY)
                        expected = []
                        for _ in range(step.limit):
                            found = model.lease(step.kinds)
                            if found is None:
                                break
                            expected.append(found)
                            bound.hear(step.kinds, found[0])
                            bound.look(model)
                        assert [(lease.scope, lease.payload) for lease in leases] == expected
