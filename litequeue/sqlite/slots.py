"""The leased jobs that limits count: one row for each job and limit, written in the transaction that moves the job.

Invariant: the rows are those of the leased jobs whose kind and scope a `concurrency` governs, no more and no fewer, so
that nothing stays taken when its lease is over. They cost only those whose kinds are limited.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from litequeue.limits import Limits, Pool
from litequeue.sqlite.context import Context
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.rows import Row, Values
from litequeue.sqlite.statements import SQL


def taken(reader: Reader, pool: Pool) -> int:
    """Count the leases of a pool, up to its limit and no further."""
    return int(reader.all(SQL.slots_taken, pool.kind, pool.scope, pool.most)[0][0])


def take(context: Context, rows: Iterable[Row]) -> None:
    """Count jobs that are leased in this transaction."""
    limits = context.settings.limits
    _add(context, [slot for row in rows for slot in _of(limits, row.kind, row.scope, row.job_id)])


def give(context: Context, rows: Iterable[Row]) -> None:
    """Count leased jobs no longer, for their leases end; where a limit had held others back, the commit rings."""
    limits = context.settings.limits
    pools = [(pool, row.job_id) for row in rows for pool in limits.pools(row.kind, row.scope)]
    for pool in {pool for pool, _ in pools}:
        if context.rings:
            break
        context.rings = taken(context, pool) >= pool.most
    if pools:
        context.cursor.executemany(SQL.slot_remove, [(pool.kind, pool.scope, job_id) for pool, job_id in pools])


def count_anew(context: Context) -> None:
    """Count every lease by the limits as they are now."""
    limits = context.settings.limits
    leased = context.all(SQL.leased_kinds) if limits.by_scope else []
    context.write(SQL.slots_clear, ())
    _add(context, [slot for kind, scope, job_id in leased for slot in _of(limits, kind, scope, job_id)])


def _add(context: Context, slots: list[Values]) -> None:
    if slots:
        context.cursor.executemany(SQL.slot_add, slots)


def _of(limits: Limits, kind: str, scope: str, job_id: bytes) -> Iterator[Values]:
    for pool in limits.pools(kind, scope):
        yield pool.kind, pool.scope, job_id
