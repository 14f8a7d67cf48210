"""Lease (V3): from the head of the line into one holder's hands.

Owns: the choice of heads, with and without a kind filter, and the taking of them. Invariants: heads are taken in the
order (priority, created_at, job_id); a job that has been reaped before is leased alone, so that a killer cannot charge
its neighbours twice; a job that is too late to start, or cannot be read, dies here instead of being handed out; one
that a limit or a pause holds back is passed over, with all that stand behind it of its kind. Leaves out: promoting and
reaping what hides behind the head (`upkeep`), what is limited (`admission`), and whose scope is next (`turns`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from litequeue import codec, rules
from litequeue.lease import Holder, Lease
from litequeue.limits import ALL_KINDS
from litequeue.model import Transition
from litequeue.sqlite import moves, slots, turns, upkeep
from litequeue.sqlite.admission import Admission
from litequeue.sqlite.context import Context
from litequeue.sqlite.reader import Reader, onward
from litequeue.sqlite.rows import AFTER_ALL_NAMES, NEXT_NAME, ROW_COLUMNS, Row, Values
from litequeue.sqlite.statements import SQL

MAX_LEASES = 10_000
_UPKEEP_EVERY_US = 1_000_000
_MAX_SCOPES = 10_000
_BELOW_COLON = ";"
"""The character after the colon: kinds of a prefix are those from `area:` up to, not with, `area;`."""


class Choice(NamedTuple):
    """Heads with their payloads, parted."""

    fit: list[tuple[Row, bytes]]
    unfit: list[tuple[Row, rules.Move]]
    is_held_back: bool = False
    """Whether a limit or a pause was against a head."""
    is_last: bool = False
    """Whether nothing may join these: one that is leased alone is among them, or comes next."""


class Wish(NamedTuple):
    """What a caller asked for, checked."""

    scope: str | None
    """As it is stored; `None` is every scope, in turn."""
    kinds: tuple[str, ...] | None
    worker_id: str
    ttl_us: int | None
    limit: int


class _Batch:
    """What one transaction leases, from one scope after the other."""

    __slots__ = ("_context", "_holder", "_wish", "buried", "leases")

    def __init__(self, context: Context, wish: Wish, holder: Holder) -> None:
        self._context = context
        self._wish = wish
        self._holder = holder
        self.leases: list[Lease] = []
        self.buried = 0
        """How many heads have died instead."""

    def serve(self, scope: str, limit: int) -> turns.Served:
        """Lease what stands at the head of a scope now, in order."""
        choice = self._choose(scope, limit)
        if choice.unfit:
            moves.apply(self._context, choice.unfit)
            self.buried += len(choice.unfit)
        if choice.fit:
            self.leases += _take(self._context, self._wish, self._holder, choice.fit)
        return turns.Served(len(choice.fit), len(choice.unfit), choice.is_last)

    def _choose(self, scope: str, limit: int) -> Choice:
        """Choose what to lease together, and find what dies here."""
        context, kinds = self._context, self._wish.kinds
        if not context.settings.is_restricted:
            return self._sort_out(_heads(context, scope, kinds, limit), limit)
        admission = Admission(context)
        if admission.is_closed(scope):
            return Choice([], [])
        choice = None
        if kinds is None:
            choice = self._sort_out(_heads(context, scope, None, limit), limit, admission)
            if choice.is_held_back:
                choice, admission = None, Admission(context)
        if choice is None:
            heads = _heads_by_kind(context, scope, kinds or (ALL_KINDS,), limit, admission)
            choice = self._sort_out(heads, limit, admission)
        admission.write(context)
        return choice

    def _sort_out(self, heads: Iterable[tuple[Row, bytes]], limit: int, admission: Admission | None = None) -> Choice:
        """Part up to `limit` heads into those to lease together, with those that are leased, and those that die."""
        now = self._context.now
        fit: list[tuple[Row, bytes]] = []
        unfit: list[tuple[Row, rules.Move]] = []
        is_held_back = is_last = False
        for row, payload in heads:
            reason = codec.unreadable(payload)
            if reason is not None:
                unfit.append((row, rules.bury(row, now, reason)))
            elif rules.is_expired(row, now):
                unfit.append((row, rules.expire(row, now)))
            elif admission is not None and not admission.allows(row.kind, row.scope):
                is_held_back = True
            else:
                is_last = rules.is_leased_alone(row)
                if is_last and (fit or self.leases):
                    break
                if admission is not None:
                    admission.take(row.kind, row.scope)
                fit.append((row, payload))
                if is_last:
                    break
            if len(fit) + len(unfit) == limit:
                break
        return Choice(fit, unfit, is_held_back=is_held_back, is_last=is_last)


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
        key = row.idempotency_key
        leases.append(Lease(holder, fence, row.kind, row.attempts + 1, ttl_us, deadline_us, payload, key))
    context.write_exactly(SQL.lease, bindings)
    if settings.has_limits:
        slots.take(context, [row for row, _ in heads])
    context.leases += leases
    return leases


def _heads(context: Context, scope: str, kinds: tuple[str, ...] | None, limit: int) -> Iterable[tuple[Row, bytes]]:
    """Return the rows at the head of a scope with their payloads, in order."""
    if kinds is None:
        return [_split(found) for found in context.all(SQL.heads, scope, limit)]
    return _heads_by_kind(context, scope, kinds, limit, None)


def _heads_by_kind(
    context: Context, scope: str, kinds: tuple[str, ...], limit: int, admission: Admission | None
) -> Iterator[tuple[Row, bytes]]:
    """Walk the heads of these kinds, in order; those of a kind that is held back are passed over, all at once."""
    ready = [
        [(place, kind) for place in context.all(SQL.heads_of_kind, scope, kind, limit)]
        for kind in ready_kinds(context, scope, kinds)
        if admission is None or admission.allows(kind, scope)
    ]
    nearest = heapq.merge(*ready) if len(ready) > 1 else iter(ready[0] if ready else ())
    for place, kind in nearest:
        if admission is None or admission.allows(kind, scope):
            found = context.one(SQL.head, scope, *place)
            if found is not None:
                yield _split(found)


def ready_kinds(reader: Reader, scope: str, filters: tuple[str, ...]) -> Iterator[str]:
    """Return the distinct kinds that the filters may match; for a prefix, those that have ready jobs."""
    seen: set[str] = set()
    for kind_filter in filters:
        if kind_filter == ALL_KINDS or kind_filter.endswith(":"):
            candidates = kinds_of_prefix(reader, scope, kind_filter)
        else:
            candidates = iter((kind_filter,))
        for kind in candidates:
            if kind not in seen:
                seen.add(kind)
                yield kind


def kinds_of_prefix(reader: Reader, scope: str, prefix: str) -> Iterator[str]:
    """Walk the distinct kinds of ready jobs below a prefix (`ALL_KINDS` is all), one seek each."""
    start, below = prefix, prefix_end(prefix)
    while (found := reader.one(SQL.kind_from, scope, start, below)) is not None:
        kind: str = onward(found[0], start)
        yield kind
        start = kind + NEXT_NAME


def prefix_end(prefix: str) -> str:
    """Return the text below which all kinds of a prefix (`area:`, or `ALL_KINDS`) lie."""
    return prefix[:-1] + _BELOW_COLON if prefix else AFTER_ALL_NAMES


def _split(found: Values) -> tuple[Row, bytes]:
    return Row(*found[:ROW_COLUMNS]), found[ROW_COLUMNS]


class Rhythm:
    """When each scope's upkeep was last done by a lease call of this handle; `None` is that of all of them."""

    __slots__ = ("_done_at", "flood")

    def __init__(self) -> None:
        self._done_at: dict[str | None, int] = {}
        self.flood = upkeep.Flood()

    def is_due(self, scope: str | None, lease_now: int) -> bool:
        """Tell whether a second has passed, by the lease clock."""
        done_at = self._done_at.get(scope)
        return done_at is None or lease_now - done_at >= _UPKEEP_EVERY_US

    def done(self, scope: str | None, lease_now: int) -> None:
        """Remember that nothing was left to do."""
        if len(self._done_at) >= _MAX_SCOPES:
            self._done_at.clear()
        self._done_at[scope] = lease_now


class Attempt(NamedTuple):
    """What one transaction of a lease call came to."""

    leases: list[Lease]
    goes_on: bool = False
    """Whether another attempt may find work: some jobs were moved, or not every scope could be looked at."""
    begun: turns.Round | None = None
    """For that one."""


def attempt(context: Context, wish: Wish, holder: Holder, rhythm: Rhythm, begun: turns.Round | None = None) -> Attempt:
    """Lease what is ready, after upkeep where it is due.

    Upkeep comes first once a second, so that due work is not hidden behind a queue that is never empty; and it comes
    after, when nothing was ready (contract §3).
    """
    if rhythm.is_due(wish.scope, context.lease_now) and upkeep.step(context, wish.scope, rhythm.flood) < upkeep.STEP:
        context.after_commit.append(partial(rhythm.done, wish.scope, context.lease_now))
    batch = _Batch(context, wish, holder)
    if wish.scope is not None:
        batch.serve(wish.scope, wish.limit)
    else:
        begun = turns.lease(context, wish.kinds, wish.limit, batch.serve, begun)
        if begun is not None:
            return Attempt([], goes_on=True, begun=begun)
    if batch.leases:
        return Attempt(batch.leases)
    return Attempt([], goes_on=batch.buried + upkeep.step(context, wish.scope, rhythm.flood) > 0)
