"""Settlements in, leases out, in one transaction: what `Queue.exchange` does inside it.

Invariants: each settlement is held against its own fence (`settling.held`), and one that is refused touches no other;
a completion with followers is done under a savepoint, because these may be refused as well; all others are moved in one
batch. A retake ends a run and begins the next in one write, so that no other worker comes between and every run counts
as an attempt. Leaves out: what a settlement leads to (`rules`), and the choice of new leases (`leasing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from litequeue import codec, rules
from litequeue.errors import DuplicateJob, JobNotFound, PayloadError, QueueFull, UsageError
from litequeue.lease import Holder, Lease
from litequeue.model import JobState, Transition
from litequeue.rules import Move
from litequeue.settlement import Completed, Failed, Refusal, Released, Settlement
from litequeue.sqlite import enqueueing, leasing, moves, settling
from litequeue.sqlite.admission import Admission
from litequeue.sqlite.context import Context
from litequeue.sqlite.inserting import Encoded
from litequeue.sqlite.leasing import Rhythm, Wish
from litequeue.sqlite.rows import Row, Values
from litequeue.sqlite.savepoint import in_savepoint
from litequeue.sqlite.statements import SQL

_MICROSECONDS = 1_000_000


class Brought(NamedTuple):
    """A settlement, and what could be encoded of it before the lock is taken."""

    settlement: Settlement
    result: bytes | None = None
    followers: Sequence[Encoded] = ()
    error: PayloadError | None = None
    """Why it cannot be stored; then nothing is asked of the queue for it."""


class Exchanged(NamedTuple):
    """What one transaction came to."""

    leases: list[Lease]
    retaken: list[tuple[Lease, float]]
    refused: list[tuple[Settlement, Refusal]]
    dead: list[Settlement]
    goes_on: bool
    """Whether nothing was leased, and another attempt may find work."""


class _Run(NamedTuple):
    """A run that is still held, and where it leads."""

    place: int
    """Of its settlement among those that were brought."""
    lease: Lease
    row: Row
    move: Move


def bring(settlements: Iterable[Settlement], default_scope: str) -> list[Brought]:
    """Encode results and followers; nothing of this needs the lock.

    Raises:
        UsageError: something that is not a settlement.
    """
    given: object = settlements
    if not isinstance(given, Iterable):
        raise UsageError.of("settlements", given, "an iterable of Completed, Failed and Released")
    return [_bring(settlement, default_scope) for settlement in settlements]


def _bring(settlement: Settlement, default_scope: str) -> Brought:
    if isinstance(settlement, Completed):
        if settlement.result is None and not settlement.then:
            return Brought(settlement)
        try:
            result = None if settlement.result is None else codec.encode(settlement.result, "result")
            return Brought(settlement, result, enqueueing.encode(settlement.then, default_scope))
        except PayloadError as exc:
            return Brought(settlement, error=exc)
    if not isinstance(settlement, (Failed, Released)):
        raise UsageError.of("settlements", settlement, "Completed, Failed and Released")
    return Brought(settlement)


def exchange(context: Context, brought: Sequence[Brought], wish: Wish, holder: Holder, rhythm: Rhythm) -> Exchanged:
    """Settle what was brought, then lease what the wish asks for; the time that it gives a lease is a retake's too."""
    refused: dict[int, Refusal] = {}
    runs = _runs(context, brought, refused)
    plain: list[_Run] = []
    followed: list[_Run] = []
    retakes: list[_Run] = []
    admission = Admission(context) if context.settings.is_restricted else None
    for run in runs:
        if brought[run.place].followers:
            followed.append(run)
        elif _is_retaken(context, brought[run.place].settlement, run) and (
            admission is None or admission.take_again(run.row.kind, run.row.scope)
        ):
            retakes.append(run)
        else:
            plain.append(run)
    if admission is not None:
        admission.write(context)
    _settle(context, brought, plain)
    retaken = _retake(context, retakes, wish.ttl_us, holder)
    for run in followed:
        try:
            in_savepoint(context, partial(_complete_and_follow, brought=brought, run=run))
        except (
            PayloadError,
            DuplicateJob,
            QueueFull,
            JobNotFound,
        ) as exc:  # our own; a full disk has another name in here
            refused[run.place] = exc
    limit = wish.limit - len(retaken)  # both are in the worker's hands
    attempt = leasing.Attempt([])
    if limit > 0:
        attempt = leasing.attempt(context, wish._replace(limit=limit), holder, rhythm)
    named = [(brought[place].settlement, refused[place]) for place in sorted(refused)]
    dead = [brought[run.place].settlement for run in plain if run.move.to is JobState.DEAD]
    return Exchanged(attempt.leases, retaken, named, dead, attempt.goes_on)


def _runs(context: Context, brought: Sequence[Brought], refused: dict[int, Refusal]) -> list[_Run]:
    """Find the runs that can be settled, in order; the others are added to the refused."""
    places: list[int] = []
    for place, (_, result, _, error) in enumerate(brought):
        if error is not None:
            refused[place] = error
            continue
        try:
            if result is not None:
                enqueueing.check_size(context, result, "the result")
        except PayloadError as exc:
            refused[place] = exc
        else:
            places.append(place)
    if not places:
        return []
    kept, conflicts = settling.held(
        context, [brought[place].settlement.lease for place in places], SQL.held_to_complete
    )
    refused.update({places[at]: conflict for at, conflict in conflicts.items()})
    standing = [place for at, place in enumerate(places) if at not in conflicts]
    return [
        _Run(place, lease, row, _decide(context, brought[place].settlement, row))
        for place, (lease, row) in zip(standing, kept, strict=True)
    ]


def _decide(context: Context, settlement: Settlement, row: Row) -> Move:
    match settlement:
        case Completed():
            return rules.complete(row, context.now)
        case Failed(_, error, retryable):
            return settling.failed(context, row, error, retryable=retryable, delay_us=settlement.delay_us)
        case Released():
            return rules.release(row, context.now, delay_us=settlement.delay_us)


def _settle(context: Context, brought: Sequence[Brought], runs: Sequence[_Run]) -> None:
    if runs:
        results = [brought[run.place].result for run in runs]
        settling.settle(context, [(run.lease, run.row, run.move) for run in runs], results)


def _complete_and_follow(context: Context, brought: Sequence[Brought], run: _Run) -> None:
    _settle(context, brought, (run,))
    enqueueing.enqueue(context, list(brought[run.place].followers))


# --- retake


def _is_retaken(context: Context, settlement: Settlement, run: _Run) -> bool:
    if not isinstance(settlement, Failed) or not settlement.retake_within_us:
        return False
    if not rules.is_retaken(run.row, run.move, context.now, within_us=settlement.retake_within_us):
        return False
    # A trigger that came during the run folds into the job, with its payload, priority and times: a job for the queue.
    return run.row.idempotency_key is None or context.one(SQL.rerun, run.row.job_id) is None


def _retake(context: Context, runs: Sequence[_Run], ttl_us: int | None, holder: Holder) -> list[tuple[Lease, float]]:
    """Fail these runs, and lease their jobs again to the workers that have them."""
    if not runs:
        return []
    bindings: list[Values] = []
    retaken = []
    for _, lease, row, move in runs:
        pause_us = (move.not_before or context.now) - context.now
        own_ttl_us = lease.ttl_us if ttl_us is None else ttl_us
        deadline_us = context.lease_now + pause_us + own_ttl_us
        events = (*moves.ending(row, move), (Transition.LEASED, lease.worker_id))
        moves.write_outcome(context, row, move)
        if row.checkpoints:
            context.write(SQL.continuation_remove, (row.job_id,))
        more = moves.event_bytes(context, row, events)
        bindings.append((context.holder_id, context.now, deadline_us, more, *lease.fence))
        again = lease.again(holder, row.attempts + 1, own_ttl_us, deadline_us)
        retaken.append((again, pause_us / _MICROSECONDS))
    context.write_exactly(SQL.retake, bindings)
    context.settled += [run.lease for run in runs]
    context.leases += [again for again, _ in retaken]
    return retaken
