"""The state machine: what may happen to a queue, one rule each, in any order.

One file, up to three handles on it, a clock moved by hand. Every rule does one thing to the queue and its model, and
then compares every job (`both`).
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from litequeue import LeaseConflict, Maintenance
from tests.model import asks
from tests.model.both import MOST_HANDLES, Both, Handle
from tests.model.exchanging import exchange
from tests.model.records import Refused

_handles = st.integers(0, MOST_HANDLES - 1)
_NEXT = asks.Lease(kinds=None, scope=None, limit=1, worker=None, ttl=None)
_pauses = st.sampled_from((0, 0, 1, 6, 11, 301, 90000))
"""In seconds: not at all, past the short settings, past a lease, past a retention."""


class QueueMachine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.both = Both()

    def teardown(self) -> None:
        """Examine the file, and remove it."""
        try:
            assert self.both.problems() == []
        finally:
            self.both.end()

    @initialize(first=st.lists(asks.sets, max_size=3))
    def begin(self, first: list[asks.Set]) -> None:
        """Make the file, with some settings of its own."""
        self.both.open()
        for ask in first:
            self.both.do(self.both.handles[0], ask)

    # --- processes and time

    @rule(at=_handles, how=st.sampled_from(("opens", "closes", "dies", "reboots")))
    def a_process(self, at: int, how: str) -> None:
        """Let a process come or go, or the whole machine."""
        match how:
            case "opens":
                self.both.open()
            case "closes":
                self.both.close(self._handle(at))
            case "dies":
                self.both.die(self._handle(at))
            case _:
                self.both.reboot()
        if not self.both.handles:
            self.both.open()
        self.both.check()

    @rule(seconds=st.sampled_from((0.000001, 0.5, 1, 1, 2, 11, 40, 301, 3601, 86400)))
    def time_passes(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self.both.clock.advance(seconds)

    @rule(seconds=st.sampled_from((-0.5, -60, -4000, -90000, 60, 4000)), is_asleep=st.booleans())
    def the_wall_clock_jumps(self, seconds: float, *, is_asleep: bool) -> None:
        """Set the wall clock, or suspend the machine; leases do not notice (§8)."""
        if is_asleep:
            self.both.clock.suspend(abs(seconds))
        else:
            self.both.clock.step_wall(seconds)

    # --- verbs

    @rule(at=_handles, ask=asks.enqueues)
    def enqueue(self, at: int, ask: asks.Enqueue) -> None:
        """Enqueue a job, perhaps with an id or a key that others have (V1, V2)."""
        self.both.do(self._handle(at), ask)

    @rule(at=_handles, ask=asks.keyed)
    def enqueue_with_a_key(self, at: int, ask: asks.Enqueue) -> None:
        """Enqueue a job with a key that others have (V2)."""
        self.both.do(self._handle(at), ask)

    @rule(at=_handles, many=st.lists(asks.enqueues, min_size=2, max_size=4))
    def enqueue_many(self, at: int, many: list[asks.Enqueue]) -> None:
        """Enqueue jobs in one call; all or none (V1)."""
        handle = self._handle(at)
        self.both.enqueue(handle.queue, handle, many)

    @rule(at=_handles, many=asks.chains)
    def a_chain_is_made(self, at: int, many: list[asks.Enqueue]) -> None:
        """Enqueue jobs in one call that wait for others, and for each other."""
        handle = self._handle(at)
        self.both.enqueue(handle.queue, handle, many)

    @rule(at=_handles, many=st.lists(st.one_of(asks.plain, asks.named), max_size=4), then=asks.enqueues)
    def a_batch_is_made(self, at: int, many: list[asks.Enqueue], then: asks.Enqueue) -> None:
        """Enqueue a group, and a job that is ready when the last of it has ended."""
        handle = self._handle(at)
        self.both.batch(handle.queue, handle, many, then)

    @rule(at=_handles, ask=asks.leases)
    def lease(self, at: int, ask: asks.Lease) -> None:
        """Lease with a filter, in a batch, for a worker (V3)."""
        self.both.do(self._handle(at), ask)

    @rule(
        at=_handles,
        first=st.none() | asks.keyed,
        limit=st.integers(1, 3),
        meanwhile=st.lists(asks.keyed, max_size=2),
        says=asks.runs,
    )
    def a_worker_works(
        self, at: int, first: asks.Enqueue | None, limit: int, meanwhile: list[asks.Enqueue], says: list[asks.Say]
    ) -> None:
        """Lease, and say how it went; keys may have been triggered again meanwhile (V2 to V8)."""
        handle = self._handle(at)
        steps: list[asks.Ask] = [] if first is None else [first]
        for ask in [*steps, _NEXT._replace(limit=limit), *meanwhile, *says]:
            self.both.do(handle, ask)

    @rule(at=_handles, limit=st.integers(1, 3), times=st.integers(1, 3), has_rebooted=st.booleans(), late=asks.runs)
    def a_worker_is_stuck(self, at: int, limit: int, times: int, late: list[asks.Say], *, has_rebooted: bool) -> None:
        """Lease and let the leases lapse, perhaps again and again; then say something after all (V3, V11, G1, §8)."""
        for _ in range(times):
            self.both.do(self._handle(at), _NEXT._replace(limit=limit))
            self.both.clock.advance(301)
        if has_rebooted:
            self.both.do(self._handle(at), _NEXT)
            self.both.reboot()
            self.both.open()
        for ask in late:
            self.both.do(self._handle(at), ask)

    @rule(at=_handles, ask=asks.ends)
    def a_holder_ends(self, at: int, ask: asks.Say) -> None:
        """Complete, fail or release with a lease of today or of long ago (V6 to V8, G1)."""
        self.both.do(self._handle(at), ask)

    @rule(at=_handles, ask=asks.writes)
    def a_holder_goes_on(self, at: int, ask: asks.Say) -> None:
        """Extend, checkpoint or note with a lease of today or of long ago (V4, V5, G1)."""
        self.both.do(self._handle(at), ask)

    @rule(at=_handles, ask=asks.batches)
    def a_holder_of_many_says(self, at: int, ask: asks.Say) -> None:
        """Say the same with several leases, good and stale (V4, V6 to V8, G1)."""
        self.both.do(self._handle(at), ask)

    @rule(
        at=_handles,
        jobs=st.lists(asks.plain, max_size=4),
        limit=st.integers(0, 3),
        triggers=st.lists(asks.keyed, max_size=1),
        ask=asks.exchanges,
    )
    def a_worker_exchanges(
        self, at: int, jobs: list[asks.Enqueue], limit: int, triggers: list[asks.Enqueue], ask: asks.Exchange
    ) -> None:
        """Hand in how runs ended, with leases of today and of long ago, and take new ones (V3, V6 to V8, G1)."""
        handle = self._handle(at)
        leases: list[asks.Ask] = [] if limit == 0 else [_NEXT._replace(limit=limit)]
        for step in [*jobs, *leases, *triggers]:
            self.both.do(handle, step)
        exchange(self.both, handle, ask)

    @rule(at=_handles, ask=asks.operates)
    def an_operator_says(self, at: int, ask: asks.Operate) -> None:
        """Cancel, retry or remove (V9, V10, V17)."""
        self.both.do(self._handle(at), ask)

    @rule(at=_handles, ask=asks.edits)
    def an_operator_edits(self, at: int, ask: asks.Edit) -> None:
        """Change priorities and gates of waiting jobs (V16)."""
        self.both.do(self._handle(at), ask)

    @rule(at=_handles, ask=asks.sets, back=st.none() | st.integers(0, 9))
    def a_setting_changes(self, at: int, ask: asks.Set, back: int | None) -> None:
        """Change a setting for every process, or unset one that was changed (§5)."""
        given = self.both.model.settings.given
        if back is None or not given:
            self.both.do(self._handle(at), ask)
            return
        queue = self._handle(at).queue
        kind, name = sorted(given, key=str)[back % len(given)]
        self.both.call(queue, lambda: queue.unset(name, kind), lambda: self.both.model.unset(name, kind))

    @rule(at=_handles, ask=asks.holds)
    def an_operator_pauses(self, at: int, ask: asks.Hold) -> None:
        """Pause a kind, a scope or both, or take that back (V15)."""
        self.both.do(self._handle(at), ask)

    @rule(
        at=_handles, ask=asks.restricts, jobs=st.lists(asks.plain, max_size=6), many=st.lists(asks.leases, max_size=4)
    )
    def a_limit_is_met(self, at: int, ask: asks.Set, jobs: list[asks.Enqueue], many: list[asks.Lease]) -> None:
        """Limit what is leased at a time, or how often, and lease up to that (§5)."""
        steps: list[asks.Ask] = [ask, *jobs, *many]
        for step in steps:
            self.both.do(self._handle(at), step)

    @rule(at=_handles, jobs=st.lists(asks.plain, max_size=6), weight=st.none() | asks.weighs, many=asks.turns)
    def a_worker_goes_round_the_scopes(
        self, at: int, jobs: list[asks.Enqueue], weight: asks.Weigh | None, many: list[asks.Lease]
    ) -> None:
        """Lease from every scope in turn, by weight, one by one and in batches (V12)."""
        weights: list[asks.Ask] = [] if weight is None else [weight]
        for ask in [*jobs, *weights, *many]:
            self.both.do(self._handle(at), ask)

    @rule(at=_handles, steps=st.lists(asks.steps, min_size=2, max_size=6))
    def several_things_happen(self, at: int, steps: list[asks.Ask]) -> None:
        """Do several things, each by itself."""
        for step in steps:
            self.both.do(self._handle(at), step)

    @rule(at=_handles, after=_pauses, verb=st.sampled_from(("reap", "promote", "expire", "prune")))
    def upkeep(self, at: int, after: float, verb: str) -> None:
        """Do one sort of upkeep to its end, after a while (V11)."""
        self.both.clock.advance(after)
        queue, model = self._handle(at).queue, self.both.model
        real, expected = {
            "reap": (queue.reap_expired, model.reap),
            "promote": (queue.promote_due, model.promote),
            "expire": (queue.expire_overdue, model.expire),
            "prune": (queue.prune, model.prune),
        }[verb]
        moved = self.both.call(queue, real, expected)
        assert moved is not None, "upkeep never refuses"
        assert moved[0] == moved[1]

    @rule(at=_handles, after=_pauses, step=st.sampled_from((0, 0, -60, -4000, -90000)))
    def maintenance_passes(self, at: int, after: float, step: float) -> None:
        """Do a whole pass (V11): the dead's leases end too; back-offs are pulled in after a backward step (§5)."""
        self.both.clock.advance(after)
        self.both.clock.step_wall(step)
        queue, model = self._handle(at).queue, self.both.model
        report = Maintenance(queue).run_once()
        reaped = model.reap() + sum(model.reap_dead(number) for _, number in sorted(self.both.dead.items()))
        self.both.dead.clear()
        model.pull_in()
        moved, pruned = model.promote() + model.expire(), model.prune()
        self.both.check()
        assert (report.reaped, report.promoted + report.expired, report.pruned) == (reaped, moved, pruned)

    # --- transactions

    @rule(at=_handles, steps=st.lists(asks.steps, min_size=1, max_size=4), commits=st.booleans())
    def a_transaction(self, at: int, steps: list[asks.Ask], *, commits: bool) -> None:
        """Do several things in one commit, or roll them back (V14)."""
        handle = self._handle(at)
        self.both.in_block(handle, handle.queue.transaction(), steps, commits=commits)

    @rule(at=_handles, first=asks.leases, steps=st.lists(asks.says, max_size=2), says=asks.runs)
    def a_lease_is_rolled_back(self, at: int, first: asks.Lease, steps: list[asks.Say], says: list[asks.Say]) -> None:
        """Lease in a transaction that is rolled back, and again; the first lease is void, the second counts (G1)."""
        handle = self._handle(at)
        self.both.in_block(handle, handle.queue.transaction(), [first, *steps], commits=False)
        self.both.do(handle, first)
        for ask in says:
            self.both.do(handle, ask)

    @rule(at=_handles, age=st.integers(0, 9), steps=st.lists(asks.steps, max_size=2), commits=st.booleans())
    def a_holder_finishes(self, at: int, age: int, steps: list[asks.Ask], *, commits: bool) -> None:
        """Work in a transaction of a lease, which is checked first (V14)."""
        handle, both = self._handle(at), self.both
        if not both.leases:
            return
        held = both.leases[-1 - age % len(both.leases)]
        block = handle.queue.lease_transaction(held.lease)
        if both.model.holds(held.token, is_void=held.is_void) is None:
            both.call(handle.queue, block.__enter__, _conflict)
        else:
            both.in_block(handle, block, steps, commits=commits, last=held)

    def _handle(self, at: int) -> Handle:
        return self.both.handles[at % len(self.both.handles)]


def _conflict() -> None:
    raise Refused(LeaseConflict)
