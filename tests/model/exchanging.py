"""An exchange on both, the real queue and its model: each settlement by itself, then the leases.

The model settles in the order in which the queue says that it does: what needs no follower and is not retaken, then the
retakes, then completions with followers. What only that order could tell, it leaves open: whether a new job of this
commit stands behind another job that came back in it (G4 says nothing of the order within one commit).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from litequeue import ANY, Completed, Failed, LeaseConflict, PayloadError, Released
from tests.model.comparing import adopt
from tests.model.records import DEAD, Entry, Refused, Token, by_id

if TYPE_CHECKING:
    from litequeue import LiteQueueError, NewJob, Settlement
    from tests.model import asks
    from tests.model.both import Both, Handle, Held


class _Ended:
    """One settlement, on both sides."""

    def __init__(self, both: Both, ask: asks.HandIn, held: Held) -> None:
        self.ask = ask
        self.held = held
        self.then: list[NewJob] = []
        if ask.then is not None and ask.verb == "complete":
            self.then = [replace(both.new(ask.then), job_id=None)]
        self.settlement = self._settlement()
        self.refusal: type[LiteQueueError] | None = PayloadError if ask.verb == "complete badly" else None
        self.again: Token | None = None
        self.is_dead = False

    def _settlement(self) -> Settlement:
        lease, seconds = self.held.lease, self.ask.seconds
        match self.ask.verb:
            case "complete":
                return Completed(lease, {"took": seconds}, self.then)
            case "complete badly":
                return Completed(lease, {1, 2})
            case "release":
                return Released(lease, seconds)
            case verb:
                return Failed(lease, verb, verb == "fail", seconds, self.ask.within)


def exchange(both: Both, handle: Handle, ask: asks.Exchange) -> None:
    """Do one exchange, and compare its answer and every job."""
    ended = [_Ended(both, one, both.leases[-1 - one.age % len(both.leases)]) for one in ask.ends if both.leases]
    lease = ask.lease
    real = handle.queue.exchange(
        [one.settlement for one in ended],
        lease.limit,
        lease.kinds,
        scope=lease.scope,
        worker_id=lease.worker,
        ttl=lease.ttl,
    )
    before = set(both.model.jobs)
    _settle(both, handle, ended, lease.ttl)
    new = [job for job in both.model.jobs.values() if job.job_id not in before]
    latest = max((job.created[1] for job in both.model.jobs.values()), default=0) + len(new)
    for job in new:
        job.created = (job.created[0], max(job.created[1], latest))
    adopt(both.model, by_id(handle.queue.list(scope=ANY, limit=10_000)))
    refused = [(one.settlement, one.refusal) for one in ended if one.refusal is not None]
    assert [(settlement, type(reason)) for settlement, reason in real.refused] == refused
    assert [id(settlement) for settlement in real.dead] == [id(one.settlement) for one in ended if one.is_dead]
    retaken = [one for one in ended if one.again is not None]
    assert [again.job_id for again, _ in real.retaken] == [one.held.lease.job_id for one in retaken]
    for one in ended:
        is_alone = [other.held for other in ended].count(one.held) == 1
        assert one.held.lease.settled or one.refusal is not None
        assert one.held.lease.settled or one.held.lease.lost or one.refusal is not LeaseConflict or not is_alone
    left = lease.limit - len(retaken)  # a retake is never left out, but it counts
    if left > 0:
        both.leased(handle.queue, handle, lease._replace(limit=left), real.leases)
    else:
        assert real.leases == []
        both.check(handle.queue)
    both.take([again for again, _ in real.retaken], [one.again for one in retaken if one.again is not None])


def _settle(both: Both, handle: Handle, ended: list[_Ended], ttl: float | None) -> None:
    """Do in the model what the contract says of each, and find out which are refused."""
    model = both.model
    standing = _standing(both, ended)
    retakes: list[tuple[_Ended, Entry]] = []
    for one in standing:
        job = model.held(one.held.token)
        match one.ask.verb:
            case "complete" if not one.then:
                model.complete(job, {"took": one.ask.seconds})
            case "release":
                model.release(job, one.ask.seconds)
            case "fail" if model.is_retaken(job, one.ask.seconds, one.ask.within):
                model.restrictions.spend(job, model.lease_now)
                retakes.append((one, job))
            case "fail" | "fail for good":
                model.fail(job, one.ask.verb, retryable=one.ask.verb == "fail", delay=one.ask.seconds)
            case _:
                pass
        one.is_dead = job.state is DEAD
    model.tell()
    for one, job in retakes:
        one.again = model.retake(job, one.held.token, "fail", one.ask.seconds, handle=handle.number, ttl=ttl)
    for one in standing:
        if one.then:
            _complete_and_follow(both, handle, one)


def _standing(both: Both, ended: list[_Ended]) -> list[_Ended]:
    """Return those whose lease is held, each lease once; the first word of it counts."""
    standing: list[_Ended] = []
    for one in ended:
        if one.refusal is None:
            is_held = both.model.holds(one.held.token, is_void=one.held.is_void) is not None
            if is_held and all(one.held is not other.held for other in standing):
                standing.append(one)
            else:
                one.refusal = LeaseConflict
    return standing


def _complete_and_follow(both: Both, handle: Handle, one: _Ended) -> None:
    """Complete and enqueue, or neither."""
    before = both.model.copy()
    try:
        both.model.complete(both.model.held(one.held.token), {"took": one.ask.seconds})
        both.model.tell()
        both.model.enqueue_all(one.then, handle.queue.scope)
    except Refused as refusal:
        both.model = before
        one.refusal = refusal.error
