"""Turns (V12): whose scope comes next where a lease call means them all.

Owns: deficit round robin over the scopes that have ready work, and whose turn it is. The file keeps that for each
filter of kinds: with one turn for all, who asks for a kind that few scopes have would begin everybody's round anew.
Invariants: a scope is served up to its weight in its turn, then comes the next one by name that has ready work, after
the last the first; a batch takes what as many single calls would take, in their order; scopes without ready work are
passed over by index, and of those with ready work of other kinds a bounded number is looked at in one transaction.
Leaves out: what is taken within a scope (`leasing`).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from litequeue.arguments import MAX_TEXT_CHARS, RESERVED_PREFIX
from litequeue.errors import StorageCorrupt
from litequeue.sqlite.context import Context
from litequeue.sqlite.reader import Reader, onward
from litequeue.sqlite.rows import AFTER_ALL_NAMES, NEXT_NAME
from litequeue.sqlite.statements import SQL

_SEEKS = 2_000
"""For scopes that turn out to have nothing, in one transaction: about two milliseconds under the lock."""
_FRUITLESS = 10
"""As many seeks as a scope costs whose heads were looked at in vain."""
_MOST_BURIED = 100
"""Heads that may die in one transaction, instead of being handed out."""
_MOST_TURNS = 1_000
_BELOW_COLON = ";"
_AFTER_RESERVED = RESERVED_PREFIX[:-1] + _BELOW_COLON


class Turn(NamedTuple):
    """Whose turn it is."""

    scope: str
    served: int
    """How many of its jobs have been leased in this turn."""


class Served(NamedTuple):
    """What a look at the heads of one scope came to."""

    leased: int
    buried: int
    """Heads that have died instead; there may be more jobs behind them."""
    is_last: bool
    """Whether nothing may join what was leased: a job that is leased alone is among it, or comes next."""


class Round(NamedTuple):
    """A round that has found nothing so far, where another transaction goes on with it."""

    turn: Turn
    """As it stood; when it has changed since, others have found work, and a new round begins."""
    start: str
    at: str
    has_wrapped: bool


Serve = Callable[[str, int], Served]
"""Leases up to so many jobs of a scope."""


class _Kinds(NamedTuple):
    """A filter of kinds, in the forms that statements need."""

    text: str
    """Names its turn; the same for all filters that take the same kinds."""
    ranges: str
    number: int


class _Walk:
    """A walk over the scopes that may have ready work, from one of them round to the same."""

    def __init__(self, reader: Reader, kinds: _Kinds, start: str = "", *, seeks: int = sys.maxsize) -> None:
        self.start = self.at = start
        self.has_wrapped = False
        self.is_complete = False
        self.seeks = seeks
        """How many are left."""
        self._reader = reader
        self._kinds = kinds

    def next(self) -> str | None:
        """Return the next scope; `None` when the round is complete, or there are no seeks left."""
        while self.seeks > 0:
            scope = self._seek(self.start if self.has_wrapped else AFTER_ALL_NAMES)
            if scope is not None and scope.startswith(RESERVED_PREFIX):
                self.at = _AFTER_RESERVED  # the queue's own scopes have no turn
            elif scope is not None:
                self.at = onward(scope, self.at) + NEXT_NAME
                return scope
            elif self.has_wrapped or not self.start:
                self.is_complete = True
                return None
            else:
                self.at, self.has_wrapped = "", True
        return None

    def _seek(self, below: str) -> str | None:
        """Return the next scope; when the seeks are over, the last one that was looked at."""
        if not self._kinds.number:
            found = self._reader.one(SQL.ready_scope, self.at, below)
            return None if found is None else _text(found[0])
        cost = 1 + self._kinds.number
        most = max(1, self.seeks // cost)
        scope, looked = self._reader.all(SQL.ready_scope_of_kinds, self.at, below, self._kinds.ranges, most)[0]
        self.seeks -= (looked - 1) * cost
        return None if scope is None else _text(scope)


def ready_scopes(reader: Reader, kinds: tuple[str, ...] | None) -> Iterator[str]:
    """Walk the scopes that have ready jobs of these kinds, in order."""
    walk = _Walk(reader, _filter(kinds))
    while (scope := walk.next()) is not None:
        yield scope


def lease(
    context: Context, kinds: tuple[str, ...] | None, limit: int, serve: Serve, begun: Round | None = None
) -> Round | None:
    """Let scopes be served in turn until `limit` jobs are leased, or no scope has more.

    When nothing was leased, and not every scope could be looked at, return where to go on.
    """
    wanted = _filter(kinds)
    weights = context.settings.weights
    stored = _stored(context, wanted)
    turn = stored or Turn("", 0)
    walk = _walk(context, wanted, turn, begun)
    rest: deque[str] = deque()
    """Scopes that have been served as many as they may, in the order of their next turns."""
    left, buried, is_last = limit, 0, False
    while left and not is_last and buried < _MOST_BURIED:
        scope = walk.next()
        if scope is None and walk.is_complete and rest:
            scope = rest.popleft()
        if scope is None:
            break
        weight = weights.get(scope, 1)
        used = turn.served if scope == turn.scope and turn.served < weight else 0
        most = min(left, weight - used)
        leased, buried_here, is_last = _served(serve, scope, most)
        buried += buried_here
        left -= leased
        if leased:
            turn = Turn(scope, used + leased)
        else:
            walk.seeks -= _FRUITLESS
        if leased == most:
            rest.append(scope)
    if turn != stored and left < limit:
        _store(context, wanted, turn, is_new=stored is None)
    if left < limit or buried or walk.is_complete:
        return None
    return Round(turn, walk.start, walk.at, walk.has_wrapped)


def _walk(context: Context, wanted: _Kinds, turn: Turn, begun: Round | None) -> _Walk:
    """Begin a round at the scope whose turn it is, or go on with one."""
    if begun is not None and begun.turn == turn:
        walk = _Walk(context, wanted, begun.start, seeks=_SEEKS)
        walk.at, walk.has_wrapped = begun.at, begun.has_wrapped
        return walk
    is_over = turn.served >= context.settings.weights.get(turn.scope, 1)
    return _Walk(context, wanted, turn.scope + NEXT_NAME if is_over else turn.scope, seeks=_SEEKS)


def _served(serve: Serve, scope: str, most: int) -> Served:
    """Serve a scope up to `most` jobs, also from behind heads that die."""
    leased = buried = 0
    while True:
        found = serve(scope, most - leased)
        leased += found.leased
        buried += found.buried
        if leased == most or found.is_last or not found.buried or buried >= _MOST_BURIED:
            return Served(leased, buried, found.is_last)


def _stored(context: Context, wanted: _Kinds) -> Turn | None:
    found = context.one(SQL.turn, wanted.text)
    if found is None:
        return None
    scope, served = found
    if not isinstance(served, int):
        raise StorageCorrupt(f"a turn is damaged: it is stored as {type(served).__name__}")
    return Turn(_text(scope), served)


def _store(context: Context, wanted: _Kinds, turn: Turn, *, is_new: bool) -> None:
    context.write(SQL.turn_put, (wanted.text, *turn, context.now))
    if is_new:
        context.write(SQL.turns_prune, (_MOST_TURNS,))


@lru_cache(maxsize=1024)
def _filter(kinds: tuple[str, ...] | None) -> _Kinds:
    names: list[str] = []
    for name in sorted(kinds or ()):
        is_taken = bool(names) and (name == names[-1] or (names[-1].endswith(":") and name.startswith(names[-1])))
        if not is_taken:
            names.append(name)
    text = json.dumps(names, ensure_ascii=False) if names else ""
    if len(text) > MAX_TEXT_CHARS:
        text = hashlib.sha256(text.encode()).hexdigest()
    return _Kinds(text, json.dumps([_range(name) for name in names], ensure_ascii=False), len(names))


def _range(name: str) -> tuple[str, str]:
    """Return from where, and below what, the kinds of a filter lie."""
    return name, name[:-1] + _BELOW_COLON if name.endswith(":") else name + NEXT_NAME


def _text(scope: object) -> str:
    if not isinstance(scope, str):
        raise StorageCorrupt(f"the scope of a job is damaged: it is stored as {type(scope).__name__}")
    return scope
