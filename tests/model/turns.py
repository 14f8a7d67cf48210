"""Round robin over the scopes, as the contract's V12 has it: weights, and whose turn it is for each filter of kinds."""

from __future__ import annotations

from dataclasses import dataclass, field

from litequeue.model import Scope
from tests.model.records import Entry, matches, scope_key
from tests.model.restrictions import Gate

Kinds = frozenset[str] | None
Turn = tuple[str, int]
"""The scope, as it sorts, and how many of its jobs were leased in its turn."""


@dataclass
class Turns:
    """What the scopes are owed."""

    weights: dict[Scope, int] = field(default_factory=dict)
    _turns: dict[Kinds, Turn] = field(default_factory=dict)

    def copy(self) -> Turns:
        """Return a twin."""
        return Turns(dict(self.weights), dict(self._turns))

    def batch(self, line: list[Entry], kinds: tuple[str, ...] | None, limit: int, gate: Gate) -> list[Entry]:
        """Return what as many single leases would take of what is ready; one that was reaped before goes alone (V3)."""
        turn, batch = self._turn(kinds), list[Entry]()
        while len(batch) < limit and (left := _left(line, batch, gate)):
            job, turn = self._next(left, turn)
            if job.reaps:
                return batch or [job]
            batch.append(job)
            gate.take(job)
        return batch

    def took(self, batch: list[Entry], kinds: tuple[str, ...] | None, line: list[Entry], gate: Gate) -> None:
        """Let the turn move on by what was leased of what was ready."""
        turn, before = self._turn(kinds), list[Entry]()
        for taken in batch:
            job, turn = self._next(_left(line, before, gate), turn)
            assert job is taken
            before.append(job)
            gate.take(job)
        self._turns[_canonical(kinds)] = turn

    def _turn(self, kinds: tuple[str, ...] | None) -> Turn:
        return self._turns.get(_canonical(kinds), ("", 0))

    def _next(self, line: list[Entry], turn: Turn) -> tuple[Entry, Turn]:
        """Return the next job of those that are ready, and the turn when it is taken."""
        scopes = {scope_key(job.scope): job.scope for job in line}
        scope, served = turn
        if scope not in scopes or served >= self.weights.get(scopes[scope], 1):
            scope, served = min(scopes, key=lambda name: (name <= scope, name)), 0
        return next(job for job in line if job.scope == scopes[scope]), (scope, served + 1)


def _left(line: list[Entry], taken: list[Entry], gate: Gate) -> list[Entry]:
    """Return what may be leased of a line, in order, when some of it is taken."""
    return sorted((job for job in line if job not in taken and gate.allows(job)), key=lambda job: job.order)


def _canonical(kinds: tuple[str, ...] | None) -> Kinds:
    """Return what is the same for all filters that take the same kinds."""
    if kinds is None:
        return None
    return frozenset(one for one in kinds if not any(other != one and matches(other, one) for other in kinds))
