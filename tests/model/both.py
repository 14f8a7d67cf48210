"""The real queue and its model, side by side: one call on both, then every job compared.

Owns the handles (each stands for a process; it may be closed, which releases what it holds, or die, which releases
nothing), the leases, kept for ever so that late and stale words come, and the transaction blocks. Leaves out
what happens when.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import litequeue
from litequeue import (
    ANY,
    Enqueued,
    Event,
    Job,
    JobState,
    Lease,
    LeaseConflict,
    LiteQueueError,
    NewJob,
    Queue,
    Transaction,
    UsageError,
)
from litequeue.model import Scope, SpecialScope
from litequeue.sqlite.examining import problems
from litequeue.testing import FakeClock
from tests.model import asks
from tests.model.comparing import adopt, differences, stored_events, violations
from tests.model.records import EPOCH, SECOND, Answer, Entry, Refused, Token, Wish, by_id
from tests.model.reference import Model

T = TypeVar("T")
R = TypeVar("R")
MOST_HANDLES = 3
_EVERYTHING = 10_000


class _UndoneError(Exception):
    """Raised in a transaction's block to roll it back."""


@dataclass
class Handle:
    """A live handle, and when it last did upkeep for a scope (§3), by the monotonic clock."""

    number: int
    queue: Queue
    opened_at: int
    upkept: dict[Scope | SpecialScope, int]


@dataclass(eq=False)
class Held:
    """A lease that somebody once took."""

    token: Token
    lease: Lease
    is_void: bool = False


Verbs = Queue | Transaction


class Both:
    """A queue file in a folder of its own, and what it should hold."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="litequeue-model-")
        self.clock = FakeClock()
        self.model = Model(self.clock)
        self.handles: list[Handle] = []
        self.dead: dict[int, int] = {}
        """Handles that died in this boot and that nobody has buried: by holder id, the number."""
        self.leases: list[Held] = []
        self.ended: list[Held] = []
        """The leases that were settled in the present block."""
        self.made: list[UUID] = []
        self.seen: dict[UUID, Job] = {}
        self.logs: dict[UUID, list[Event]] = {}
        self._has_refused_lapsed = False
        self._asked = 0
        self._opened = 0

    # --- handles

    def open(self) -> None:
        """Open one more handle, unless there are many already."""
        if len(self.handles) < MOST_HANDLES:
            queue = litequeue.open(Path(self.folder.name) / "model.queue", durability="normal", clock=self.clock)
            self._opened += 1
            self.handles.append(Handle(self._opened, queue, self.clock.monotonic_us(), {}))

    def close(self, handle: Handle) -> None:
        """Close a handle: it releases what it still holds, attempts given back.

        Of a lapsed lease under `refuse_lapsed` the contract does not say whether that is still held: either will do.
        """
        self.handles.remove(handle)
        handle.queue.close()
        if not self.handles:
            self.open()
        seen = by_id(self.handles[-1].queue.list(scope=ANY, limit=_EVERYTHING))
        for held in self.leases:
            token = held.token
            job = self.model.latest(token, is_void=held.is_void) if token.handle == handle.number else None
            if job is not None and (self.model.holds(token) is not None or not _is_leased(seen.get(token.job_id))):
                self.model.release(job, None)
        self.model.tell()

    def die(self, handle: Handle) -> None:
        """Let a handle go as `kill -9` does: its connections close, and nothing that it holds is released."""
        self.handles.remove(handle)
        if handle.queue._store.holdings.holder_id is not None:
            self.dead[handle.queue._store.holdings.holder_id] = handle.number
        handle.queue._store.holdings.start_afresh(is_open=False)
        handle.queue.close()

    def problems(self) -> list[str]:
        """Examine the file: what breaks an invariant of the stored jobs, whatever the model expects of them."""
        return problems(str(Path(self.folder.name) / "model.queue"), self.clock)

    def reboot(self) -> None:
        """Start the machine anew: every handle dies, and at the first opening every older lease has lapsed (§8)."""
        for handle in list(self.handles):
            self.die(handle)
        self.dead.clear()
        self.clock.reboot()
        self.model.reboot()

    def end(self) -> None:
        """Close and remove everything."""
        for handle in self.handles:
            handle.queue.close()
        self.folder.cleanup()

    # --- one call on both

    def call(self, verbs: Verbs, real: Callable[[], T], expected: Callable[[], R]) -> tuple[T, R] | None:
        """Call both; return both answers, or `None` when both refused. A refusal changes nothing (G11)."""
        before = self.model.copy()
        wanted: type[LiteQueueError] | None = None
        answers: list[R] = []
        try:
            answers.append(expected())
        except Refused as refusal:
            self.model = before
            wanted = refusal.error
        found: LiteQueueError | None = None
        results: list[T] = []
        try:
            results.append(real())
        except LiteQueueError as exc:
            found = exc
        assert (None if found is None else type(found)) == wanted, f"{found or results}, not {wanted or answers}"
        self.check(verbs)
        return (results[0], answers[0]) if results else None

    def check(self, verbs: Verbs | None = None) -> None:
        """Compare every job; `verbs` is an open transaction, or whoever looks."""
        jobs = (self.handles[-1].queue if verbs is None else verbs).list(scope=ANY, limit=_EVERYTHING)
        seen = by_id(jobs)
        adopt(self.model, seen)
        wrong = differences(self.model, seen) + violations(jobs, self.clock.wall_us(), self.seen, self.logs)
        wrong += self._wrong_chains(self.handles[-1].queue if verbs is None else verbs)
        wrong += [f"{held.lease} holds its job, and says otherwise" for held in self.leases if self._is_misled(held)]
        assert not wrong, "\n".join(wrong)
        self.seen = seen
        self.logs = {job.job_id: stored_events(job) for job in jobs}

    def _wrong_chains(self, verbs: Verbs) -> list[str]:
        """Return a line for each job that waits for others than it should."""
        waiting = [job for job in self.model.jobs.values() if job.state is JobState.WAITING]
        found = {job.job_id: verbs.dependencies(job.job_id).waits_for for job in waiting}
        return [
            f"{job.job_id} waits for {found[job.job_id]}, not {job.missing}"
            for job in waiting
            if set(found[job.job_id]) != job.missing
        ]

    def _is_misled(self, held: Held) -> bool:
        """Tell whether a lease believes to be over that is not; one that lapsed may be refused for a while only."""
        if not (held.lease.lost or held.lease.settled):
            return False
        return not self._has_refused_lapsed and self.model.latest(held.token, is_void=held.is_void) is not None

    def do(self, handle: Handle, ask: asks.Ask, tx: Transaction | None = None) -> None:
        """Do what is asked, on a handle or in its open transaction."""
        verbs: Verbs = handle.queue if tx is None else tx
        match ask:
            case asks.Enqueue():
                self.enqueue(verbs, handle, [ask])
            case asks.Lease():
                self._lease(verbs, handle, ask)
            case asks.Say() if self.leases:
                self._say(verbs, handle, ask)
            case asks.Operate():
                self._operate(verbs, ask)
            case asks.Edit():
                self._edit(verbs, ask)
            case asks.Set(name, value, kind, scope):
                self._has_refused_lapsed |= name == "refuse_lapsed"
                self.call(
                    verbs,
                    lambda: verbs.set(name, value, kind, scope=scope),
                    lambda: self.model.set(name, value, kind, scope),
                )

            case asks.Hold(verb, kind, scope):
                pauses = self.model.restrictions.pauses
                is_change = ((scope, kind) in pauses) == (verb == "resume")
                change = verbs.pause if verb == "pause" else verbs.resume
                place = (scope, kind)
                expected = pauses.add if verb == "pause" else pauses.discard
                done = self.call(verbs, lambda: change(place[1], scope=place[0]), lambda: expected(place))
                assert done == (is_change, None)
                assert {(pause.scope, pause.kind) for pause in verbs.pauses()} == pauses

            case asks.Weigh(scope, weight):
                share = {scope: weight or 1}
                self.call(
                    verbs, lambda: verbs.set_weight(scope, weight), lambda: self.model.turns.weights.update(share)
                )
                known = {scope: weight for scope, weight in self.model.turns.weights.items() if weight > 1}
                assert verbs.weights() == known

    def enqueue(self, verbs: Verbs, handle: Handle, many: list[asks.Enqueue]) -> None:
        """Enqueue jobs in one call; those of it that wait for others may wait for earlier ones of it."""
        new = self.new_ones(many)
        both = self.call(
            verbs, lambda: verbs.enqueue_many(new), lambda: self.model.enqueue_all(new, handle.queue.scope)
        )
        self._made(*(both or ([], [])))

    def batch(self, verbs: Verbs, handle: Handle, many: list[asks.Enqueue], then: asks.Enqueue) -> None:
        """Enqueue a group, and a job that is ready when the last of it has ended."""
        new, last = self.new_ones(many), replace(self.new(then._replace(after=())), on_conflict="return")
        both = self.call(
            verbs, lambda: verbs.batch(new, last), lambda: self.model.enqueue_all(new, handle.queue.scope, last)
        )
        if both is not None:
            self._made([*both[0].jobs, both[0].then], both[1])

    def _made(self, results: list[Enqueued], answers: list[Answer]) -> None:
        for result, answer in zip(results, answers, strict=True):
            assert result.created == answer.created
            assert result.job_id in {owner.job_id for owner in answer.owners}
            if result.created:
                self.made.append(result.job_id)

    def new_ones(self, many: list[asks.Enqueue]) -> list[NewJob]:
        """Make jobs of one call of what is asked."""
        new: list[NewJob] = []
        for ask in many:
            new.append(self.new(ask, [job.job_id for job in new if isinstance(job.job_id, UUID)]))
        return new

    def new(self, ask: asks.Enqueue, earlier: Sequence[UUID] = ()) -> NewJob:
        """Make a job of what is asked, with a payload of its own; it may wait for the `earlier` ones."""
        self._asked += 1
        known = [*asks.IDS, *self.made, *earlier][::-1]
        parents = {asks.NEVER if age < 0 else known[age % len(known)] for age in ask.after} - {ask.job_id}
        now = EPOCH + timedelta(microseconds=self.clock.wall_us())
        return NewJob(
            ask.kind,
            {"n": self._asked},
            ask.scope,
            ask.priority,
            ask.delay,
            None if ask.run_in is None else now + timedelta(seconds=ask.run_in),
            ask.expires,
            ask.max_attempts,
            ask.key,
            "return" if parents and ask.on_conflict == "reset" else ask.on_conflict,
            asks.fresh_id(self._asked) if ask.job_id is None else ask.job_id,
            sorted(parents),
            ask.on_parent_failure,
        )

    def _lease(self, verbs: Verbs, handle: Handle, ask: asks.Lease) -> None:
        """Lease on both."""
        leases = verbs.lease_many(ask.limit, ask.kinds, scope=ask.scope, worker_id=ask.worker, ttl=ask.ttl)
        self.leased(verbs, handle, ask, leases)

    def leased(self, verbs: Verbs, handle: Handle, ask: asks.Lease, leases: list[Lease]) -> None:
        """Lease in the model what was leased.

        Upkeep must come first when this handle did none for a second, and may at any time (§3).
        """
        scope = verbs.scope if ask.scope is None else ask.scope
        wish = Wish(handle.number, scope, ask.kinds, ask.limit, ask.worker or verbs.worker_id, ask.ttl)
        seen = by_id(verbs.list(scope=ANY, limit=_EVERYTHING))
        elapsed = self.clock.monotonic_us() - handle.upkept.get(scope, handle.opened_at)
        complaints: list[str] = []
        ways = [(True, False)] if elapsed >= SECOND else [(True, False), (False, False), (False, True)]
        for upkeep_first, burial_first in ways if scope is ANY else ways[:2]:
            model = self.model.copy()
            tokens = model.lease(wish, seen, len(leases), upkeep_first=upkeep_first, burial_first=burial_first)
            names = adopt(model, seen)
            expected = [names.get(token.job_id, token.job_id) for token in tokens]
            wrong = differences(model, seen)
            if [lease.job_id for lease in leases] != expected:
                wrong.append(f"leased {[lease.job_id for lease in leases]}, not {expected}")
            if not wrong:
                self.model = model
                if upkeep_first or not leases:
                    handle.upkept[scope] = self.clock.monotonic_us()
                self.take(leases, tokens)
                break
            complaints += [f"with upkeep first: {upkeep_first}, burial first: {burial_first}, {wish}", *wrong]
        else:
            raise AssertionError("\n".join(complaints))
        self.check(verbs)

    def take(self, leases: list[Lease], tokens: list[Token]) -> None:
        """Remember leases that both have taken."""
        for lease, token in zip(leases, tokens, strict=True):
            job = self.model.jobs[lease.job_id]
            assert (lease.kind, lease.payload, lease.scope) == (job.kind, job.payload, job.scope)
            assert (lease.attempts, lease.lease_generation) == (job.attempts, job.generation)
            assert (lease.worker_id, lease.continuation) == (job.worker, None)
            self.leases.append(Held(replace(token, created_at=lease.created_at, job_id=lease.job_id), lease))

    # --- what a holder says

    def _say(self, verbs: Verbs, handle: Handle, ask: asks.Say) -> None:
        many = list(dict.fromkeys(age % len(self.leases) for age in ask.ages))
        said = [self.leases[-1 - age] for age in many]
        if ask.verb in {"checkpoint", "note"}:
            self._write(verbs, said[0], ask)
        elif len(said) == 1:
            self._say_of_one(verbs, handle, said[0], ask)
        else:
            self._say_of_many(verbs, said, ask)

    def _write(self, verbs: Verbs, held: Held, ask: asks.Say) -> None:
        word, share = (None, None) if ask.seconds is None else (f"after {ask.seconds} s", ask.seconds / 10_000)
        data = None if ask.seconds in {0.5, 5} else b"until %d" % (ask.seconds or 0)

        def expected() -> None:
            job = self.model.held(held.token, is_void=held.is_void)
            if ask.verb == "checkpoint":
                self.model.checkpoint(job, held.token, data, share, word)

        if ask.verb == "checkpoint":
            self.call(verbs, lambda: verbs.checkpoint(held.lease, data, share, word), expected)
        else:
            self.call(verbs, lambda: verbs.note(held.lease, "noted"), expected)

    def _say_of_one(self, verbs: Verbs, handle: Handle, held: Held, ask: asks.Say) -> None:
        then = [] if ask.then is None or ask.verb != "complete" else [replace(self.new(ask.then), job_id=None)]
        result = None if ask.seconds is None else {"took": ask.seconds}

        def real() -> None:
            match ask.verb:
                case "complete":
                    verbs.complete(held.lease, result, then)
                case "extend":
                    verbs.extend(held.lease, ask.seconds)
                case "release":
                    verbs.release(held.lease, ask.seconds)
                case _:
                    verbs.fail(held.lease, ask.verb, retryable=ask.verb == "fail", delay=ask.seconds)

        def expected() -> None:
            self._settle(self.model.held(held.token, is_void=held.is_void), held, ask, result)
            self.model.tell()
            self.model.enqueue_all(then, handle.queue.scope)

        self.call(verbs, real, expected)

    def _say_of_many(self, verbs: Verbs, said: list[Held], ask: asks.Say) -> None:
        leases = [held.lease for held in said]
        results = [{"of": index} for index in range(len(said))]

        def real() -> list[LeaseConflict]:
            match ask.verb:
                case "complete":
                    return verbs.complete_many(leases, results)
                case "extend":
                    return verbs.extend_many(leases, ask.seconds)
                case "release":
                    return verbs.release_many(leases, ask.seconds)
                case _:
                    return verbs.fail_many(leases, ask.verb, retryable=ask.verb == "fail", delay=ask.seconds)

        def expected() -> list[Token]:
            refused = []
            for held, result in zip(said, results, strict=True):
                job = self.model.holds(held.token, is_void=held.is_void)
                if job is None:
                    refused.append(held.token)
                else:
                    self._settle(job, held, ask, result)
            self.model.tell()
            return refused

        both = self.call(verbs, real, expected)
        assert both is not None, "a batch answers per lease"
        conflicts = sorted((conflict.job_id, conflict.lease_generation) for conflict in both[0])
        assert conflicts == sorted((token.job_id, token.generation) for token in both[1])

    def _settle(self, job: Entry, held: Held, ask: asks.Say, result: object) -> None:
        if ask.verb == "extend":
            self.model.extend(job, held.token, ask.seconds)
            return
        self.ended.append(held)
        match ask.verb:
            case "complete":
                self.model.complete(job, result)
            case "release":
                self.model.release(job, ask.seconds)
            case _:
                self.model.fail(job, ask.verb, retryable=ask.verb == "fail", delay=ask.seconds)

    # --- what an operator says

    def _operate(self, verbs: Verbs, ask: asks.Operate) -> None:
        ids = self._meant(ask.ages)
        match ask.verb:
            case "cancel":
                self._each(verbs, ids, verbs.cancel, verbs.cancel_many, self.model.cancel)
            case "retry":
                self._each(verbs, ids, verbs.retry, verbs.retry_many, self.model.retry)
            case "remove":
                self._each(verbs, ids, verbs.remove, verbs.remove_many, self.model.remove)

    def _edit(self, verbs: Verbs, ask: asks.Edit) -> None:
        run_at = None
        if ask.run_in is not None:
            run_at = EPOCH + timedelta(microseconds=self.clock.wall_us() + ask.run_in * SECOND)
        many = partial(verbs.edit_many, priority=ask.priority, delay=ask.delay, run_at=run_at)
        if ask.priority is None and ask.delay is None and run_at is None:
            with suppress(UsageError):
                many([asks.NEVER])
                raise AssertionError("nothing was to change, and nobody said so")
            return
        one = partial(verbs.edit, priority=ask.priority, delay=ask.delay, run_at=run_at)
        decide = partial(self.model.edit, priority=ask.priority, delay=ask.delay, run_at=run_at)
        self._each(verbs, self._meant(ask.ages), one, many, decide)

    def _meant(self, ages: list[int]) -> list[UUID]:
        known = [*asks.IDS, *self.made][::-1]
        return [asks.NEVER if age < 0 else known[age % len(known)] for age in ages]

    def _each(
        self,
        verbs: Verbs,
        ids: list[UUID],
        one: Callable[[UUID], None],
        many: Callable[[list[UUID]], Sequence[Exception]],
        decide: Callable[[UUID], None],
    ) -> None:
        if len(ids) == 1:
            self.call(verbs, lambda: one(ids[0]), lambda: decide(ids[0]))
            return

        def expected() -> list[type[LiteQueueError]]:
            may_follow = {job_id for job_id in ids if one == verbs.cancel and self.model.may_cancel(job_id)}
            refused = []
            for job_id in ids:
                try:
                    decide(job_id)
                    may_follow.discard(job_id)
                except Refused as refusal:
                    if job_id not in may_follow:
                        refused.append(refusal.error)
            return refused

        both = self.call(verbs, lambda: many(ids), expected)
        assert both is not None, "a batch answers per job"
        assert [type(refusal) for refusal in both[0]] == both[1]

    # --- transactions

    def in_block(
        self,
        handle: Handle,
        block: AbstractContextManager[Transaction],
        steps: Sequence[asks.Ask],
        *,
        commits: bool,
        last: Held | None = None,
    ) -> None:
        """Do the steps in a transaction; rolled back, it leaves no trace, and its leases are void.

        `last` is the lease of `lease.transaction()`: completed at the end, unless the body has ended it itself. When
        the body has lost it, everything is rolled back.
        """
        self.check()
        self.ended.clear()
        is_lost = False
        model, seen, logs = self.model.copy(), self.seen, self.logs
        upkept, first, made = dict(handle.upkept), len(self.leases), len(self.made)
        conflict: LeaseConflict | None = None
        try:
            with block as tx:
                for step in steps:
                    self.do(handle, step, tx)
                    outside = by_id(handle.queue.list(scope=ANY, limit=_EVERYTHING))
                    assert outside == seen, "a read saw what is not committed"
                is_lost = last is not None and last not in self.ended and self.model.holds(last.token) is None
                if not commits:
                    raise _UndoneError
        except LeaseConflict as exc:
            conflict = exc
        except _UndoneError:
            is_lost = False
        assert (conflict is not None) == is_lost, f"{conflict} out of the block's end"
        if is_lost or not commits:
            self.model, self.seen, self.logs, handle.upkept = model, seen, logs, upkept
            del self.made[made:]
            for held in self.leases[first:]:
                held.is_void = True
        elif last is not None and last not in self.ended:
            self.model.complete(self.model.held(last.token))
            self.model.tell()
        self.check()


def _is_leased(job: Job | None) -> bool:
    return job is not None and job.state is JobState.LEASED
