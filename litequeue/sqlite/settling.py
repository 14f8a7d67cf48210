"""What a holder says of its lease (V4 to V8): extend, checkpoint, note, complete, fail, release.

Invariant: nothing here changes a job unless its full key, its worker and its generation are the lease's and it is still
leased; everyone else gets a `LeaseConflict` and changes nothing (contract G1). A batch does the good ones and returns
the conflicts of the others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from litequeue import rules
from litequeue.errors import LeaseConflict, UsageError
from litequeue.lease import Fence, Lease
from litequeue.model import JobState, Transition
from litequeue.rules import Move
from litequeue.sqlite import moves
from litequeue.sqlite.context import Context
from litequeue.sqlite.enqueueing import check_size
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.rows import Row
from litequeue.sqlite.statements import SQL


def held(
    context: Context, leases: Sequence[Lease], statement: str = SQL.held
) -> tuple[list[tuple[Lease, Row]], dict[int, LeaseConflict]]:
    """Find the rows that these leases still hold, in order; and why the others do not, by their places."""
    conflicts: dict[int, LeaseConflict] = {}
    claims: dict[Fence, int] = {}
    for place, lease in enumerate(leases):
        if not isinstance(lease, Lease):
            raise UsageError.of("lease", lease, "a Lease")
        if lease.is_void:
            conflicts[place] = _conflict(lease, "the transaction that took it did not commit")
            lease.found_lost()
        elif lease.fence in claims:
            conflicts[place] = _conflict(lease, "it is in this batch twice")
        else:
            claims[lease.fence] = place
    rows = {row.fence: row for row in context.each(statement, list(claims))}
    kept: list[tuple[Lease, Row]] = []
    for fence, place in claims.items():
        row = rows.get(fence)
        lease = leases[place]
        if row is None:
            conflicts[place] = _conflict(lease, _why_not_held(context, lease))
            context.drop(lease)
        elif _is_refused(context, row):
            conflicts[place] = _conflict(lease, "it has lapsed, and refuse_lapsed is set")
            if context.is_unchanged:
                lease.found_lost()
        else:
            kept.append((lease, row))
    return kept, conflicts


def lost(reader: Reader, leases: Sequence[Lease]) -> list[Lease]:
    """Find those leases that hold their jobs no longer, without the lock."""
    gone = [lease for lease in leases if lease.is_void or not _is_held(reader, lease)]
    for lease in gone:
        lease.found_lost()
    return [lease for lease in gone if lease.lost]


def _is_held(reader: Reader, lease: Lease) -> bool:
    found = reader.one(SQL.held, *lease.fence)
    return found is not None and not _is_refused(reader, Row(*found))


def _is_refused(reader: Reader, row: Row) -> bool:
    """Tell whether nobody may say anything of this lease any more, although nobody has reaped it."""
    return reader.settings.refuse_lapsed and rules.is_lapsed(row.lease_deadline or 0, reader.lease_now)


def extend(context: Context, leases: Sequence[Lease], ttl_us: int | None) -> list[LeaseConflict]:
    """Let each lease lapse its own time, or `ttl_us`, from now."""
    kept, conflicts = held(context, leases)
    deadlines = [(lease, context.lease_now + (lease.ttl_us if ttl_us is None else ttl_us)) for lease, _ in kept]
    if deadlines:
        bindings = [(deadline_us, context.now, *lease.fence) for lease, deadline_us in deadlines]
        context.write_exactly(SQL.extend, bindings)

    def tell() -> None:
        for lease, deadline_us in deadlines:
            lease.deadline_us = deadline_us

    context.after_commit.append(tell)
    return list(conflicts.values())


def checkpoint(
    context: Context, lease: Lease, continuation: bytes | None, progress: float | None, note: str | None
) -> list[LeaseConflict]:
    """Store what is given of a checkpoint, and extend; the rest of it stays."""
    if continuation is not None:
        check_size(context, continuation, "the continuation")
    kept, conflicts = held(context, (lease,))
    for _ in kept:
        deadline_us = context.lease_now + lease.ttl_us
        context.write_exactly(SQL.checkpoint, [(deadline_us, context.now, *lease.fence)])
        context.write(SQL.continuation_put, (lease.job_id.bytes, continuation, progress, note))
        context.after_commit.append(partial(lease.checkpointed, continuation, deadline_us))
    return list(conflicts.values())


def note(context: Context, lease: Lease, detail: str) -> list[LeaseConflict]:
    """Append a line to the job's log."""
    kept, conflicts = held(context, (lease,))
    for _, row in kept:
        more = moves.event_bytes(context, row, ((Transition.NOTE, detail),))
        context.write_exactly(SQL.events_append, [(more, *row.key, row.lease_generation)])
    return list(conflicts.values())


def complete(context: Context, leases: Sequence[Lease], results: Sequence[bytes | None]) -> list[LeaseConflict]:
    """Finish the jobs; `results` are encoded, in the order of the leases."""
    for result in results:
        if result is not None:
            check_size(context, result, "the result")
    results_of = dict(zip(map(id, leases), results, strict=True))
    kept, conflicts = held(context, leases, SQL.held_to_complete)
    now = context.now
    settle(
        context,
        [(lease, row, rules.complete(row, now)) for lease, row in kept],
        [results_of[id(lease)] for lease, _ in kept],
    )
    return list(conflicts.values())


def fail(
    context: Context, leases: Sequence[Lease], error: str, *, retryable: bool, delay_us: int | None
) -> list[LeaseConflict]:
    """Report failed runs: again after a pause, or dead."""
    return _settle_each(
        context, leases, lambda row: failed(context, row, error, retryable=retryable, delay_us=delay_us)
    )


def failed(context: Context, row: Row, error: str, *, retryable: bool, delay_us: int | None) -> Move:
    """Decide after a failed run, by the settings in force; a `delay_us` takes the place of the back-off."""
    settings = context.settings.of(row.kind)
    return rules.fail(
        row,
        context.now,
        max_attempts=row.max_attempts or settings.max_attempts,
        pause_us=settings.backoff_us(row.attempts, random.random()) if delay_us is None else delay_us,
        retryable=retryable,
        error=error,
    )


def release(context: Context, leases: Sequence[Lease], delay_us: int) -> list[LeaseConflict]:
    """Give jobs back untouched."""
    return _settle_each(context, leases, lambda row: rules.release(row, context.now, delay_us=delay_us))


def give_back(context: Context, fences: Sequence[Fence]) -> None:
    """Release what a handle still holds as it closes; what it no longer holds is passed over."""
    rows = context.each(SQL.held, list(fences))
    moves.apply(context, [(row, rules.release(row, context.now, delay_us=0)) for row in rows])


def _settle_each(context: Context, leases: Sequence[Lease], decide: Callable[[Row], Move]) -> list[LeaseConflict]:
    kept, conflicts = held(context, leases)
    settle(context, [(lease, row, decide(row)) for lease, row in kept])
    return list(conflicts.values())


def settle(
    context: Context,
    decided: Sequence[tuple[Lease, Row, Move]],
    results: Sequence[bytes | None] | None = None,
) -> None:
    """End the leases, which are held; the handle forgets them once this has committed."""
    moves.apply(context, [(row, move) for _, row, move in decided], results)
    context.settled += [lease for lease, _, _ in decided]


def _why_not_held(context: Context, lease: Lease) -> str:
    found = context.one(SQL.row_by_id, lease.job_id.bytes)
    if found is None:
        return "the job is gone"
    row = Row(*found)
    if row.state != JobState.LEASED:
        return f"the job is {JobState(row.state).name.lower()}"
    if row.lease_generation != lease.lease_generation:
        return f"lease {row.lease_generation} holds it now"
    return f"{row.worker_id} holds it"


def _conflict(lease: Lease, reason: str) -> LeaseConflict:
    return LeaseConflict(lease.job_id, lease.lease_generation, reason)
