"""Lease (V3): from the head of the line into one holder's hands.

Owns: the choice of heads, with and without a kind filter, and the taking of them. Invariants: heads are taken in the
order (priority, created_at, job_id); a job that has been reaped before is leased alone, so that a killer cannot charge
its neighbours twice; a job that is too late to start, or cannot be read, dies here instead of being handed out.
Leaves out: promoting and reaping what hides behind the head (`upkeep`).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from litequeue import codec, rules
from litequeue.lease import Holder, Lease
from litequeue.model import Transition
from litequeue.sqlite import moves, upkeep
from litequeue.sqlite.context import Context
from litequeue.sqlite.reader import Reader, onward
from litequeue.sqlite.rows import ROW_COLUMNS, Row, Values
from litequeue.sqlite.statements import SQL

MAX_LEASES = 10_000
_UPKEEP_EVERY_US = 1_000_000
_MAX_SCOPES = 10_000
_BELOW_COLON = ";"
"""The character after the colon: kinds of a prefix are those from `area:` up to, not with, `area;`."""
_LEAST_CHARACTER = "\x01"
"""Below every character that a name may have: `name + _LEAST_CHARACTER` is the next possible name."""


class Wish(NamedTuple):
    """What a caller asked for, checked."""

    scope: str
    kinds: tuple[str, ...] | None
    worker_id: str
    ttl_us: int | None
    limit: int


def lease(context: Context, wish: Wish, holder: Holder) -> tuple[list[Lease], int]:
    """Lease what stands at the head now, in order; return also how many of the heads died here instead."""
    fit, unfit = _sort_out(context, _heads(context, wish))
    if unfit:
        moves.apply(context, unfit)
    return (_take(context, wish, holder, fit) if fit else []), len(unfit)


def _sort_out(
    context: Context, heads: list[tuple[Row, bytes]]
) -> tuple[list[tuple[Row, bytes]], list[tuple[Row, rules.Move]]]:
    """Part the heads into those to lease together and those that die here."""
    fit: list[tuple[Row, bytes]] = []
    unfit: list[tuple[Row, rules.Move]] = []
    for row, payload in heads:
        reason = codec.unreadable(payload)
        if reason is not None:
            unfit.append((row, rules.bury(row, context.now, reason)))
        elif rules.is_expired(row, context.now):
            unfit.append((row, rules.expire(row, context.now)))
        elif not rules.is_leased_alone(row):
            fit.append((row, payload))
        else:
            if not fit:
                fit.append((row, payload))
            break
    return fit, unfit


def _take(context: Context, wish: Wish, holder: Holder, heads: list[tuple[Row, bytes]]) -> list[Lease]:
    leased = codec.encode_event(context.now, Transition.LEASED, wish.worker_id)
    settings, holder_id, worker_id = context.settings, context.holder_id, wish.worker_id
    bindings: list[Values] = []
    leases = []
    for row, payload in heads:
        ttl_us = settings.of(row.kind).lease_ttl_us if wish.ttl_us is None else wish.ttl_us
        deadline_us = context.lease_now + ttl_us
        moves.make_room(context, row, len(leased))
        scope, _, priority, created_at, job_id = row.key
        generation = row.lease_generation
        bindings.append(
            (worker_id, holder_id, context.now, deadline_us, leased, scope, priority, created_at, job_id, generation)
        )
        fence = (scope, priority, created_at, job_id, worker_id, generation + 1)
        leases.append(Lease(holder, fence, row.kind, row.attempts + 1, ttl_us, deadline_us, payload))
    context.write_exactly(SQL.lease, bindings)
    context.leases += leases
    return leases


def _heads(context: Context, wish: Wish) -> list[tuple[Row, bytes]]:
    """Return the rows at the head with their payloads, in order."""
    if wish.kinds is None:
        return [_split(found) for found in context.all(SQL.heads, wish.scope, wish.limit)]
    ready = [
        context.all(SQL.heads_of_kind, wish.scope, kind, wish.limit)
        for kind in _ready_kinds(context, wish.scope, wish.kinds)
    ]
    nearest = heapq.merge(*ready) if len(ready) > 1 else iter(ready[0] if ready else ())
    places = itertools.islice(nearest, wish.limit)
    found = [context.one(SQL.head, wish.scope, *place) for place in places]
    return [_split(row) for row in found if row is not None]


def _ready_kinds(context: Context, scope: str, filters: tuple[str, ...]) -> Iterator[str]:
    """Return the distinct kinds that the filters may match; for a prefix, those that have ready jobs."""
    seen: set[str] = set()
    for kind_filter in filters:
        if not kind_filter.endswith(":"):
            candidates: Iterator[str] = iter((kind_filter,))
        else:
            candidates = kinds_of_prefix(context, scope, kind_filter)
        for kind in candidates:
            if kind not in seen:
                seen.add(kind)
                yield kind


def kinds_of_prefix(reader: Reader, scope: str, prefix: str) -> Iterator[str]:
    """Walk the distinct kinds of ready jobs below a prefix, one seek each."""
    start, below = prefix, prefix_end(prefix)
    while (found := reader.one(SQL.kind_from, scope, start, below)) is not None:
        kind: str = onward(found[0], start)
        yield kind
        start = kind + _LEAST_CHARACTER


def prefix_end(prefix: str) -> str:
    """Return the text below which all kinds of a prefix (`area:`) lie."""
    return prefix[:-1] + _BELOW_COLON


def _split(found: Values) -> tuple[Row, bytes]:
    return Row(*found[:ROW_COLUMNS]), found[ROW_COLUMNS]


class Rhythm:
    """When each scope's upkeep was last done by a lease call of this handle."""

    __slots__ = ("_done_at",)

    def __init__(self) -> None:
        self._done_at: dict[str, int] = {}

    def is_due(self, scope: str, lease_now: int) -> bool:
        """Tell whether a second has passed, by the lease clock."""
        done_at = self._done_at.get(scope)
        return done_at is None or lease_now - done_at >= _UPKEEP_EVERY_US

    def done(self, scope: str, lease_now: int) -> None:
        """Remember that nothing was left to do."""
        if len(self._done_at) >= _MAX_SCOPES:
            self._done_at.clear()
        self._done_at[scope] = lease_now


class Attempt(NamedTuple):
    """What one transaction of a lease call came to."""

    leases: list[Lease]
    moved: int
    """Jobs that upkeep moved; while it moves some and nothing is leased, another attempt may find work."""


def attempt(context: Context, wish: Wish, holder: Holder, rhythm: Rhythm) -> Attempt:
    """Lease what is ready, after upkeep where it is due.

    Upkeep comes first once a second, so that due work is not hidden behind a queue that is never empty; and it comes
    after, when nothing was ready (contract §3).
    """
    if rhythm.is_due(wish.scope, context.lease_now) and upkeep.step(context, wish.scope) < upkeep.STEP:
        context.after_commit.append(partial(rhythm.done, wish.scope, context.lease_now))
    leases, buried = lease(context, wish, holder)
    return Attempt(leases, 0 if leases else buried + upkeep.step(context, wish.scope))
