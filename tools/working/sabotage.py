"""Negative controls: how a worker may well be written, so that a promise breaks.

Owns: some ways of being wrong, besides those of the queue itself (`killing.sabotage`). Invariant: nothing here touches
what tells the journal or what the checker reads with; a run under sabotage has to end with broken promises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from killing import sabotage
from killing.sabotage import NO_FENCE
from litequeue import Completed, Exchange, Failed, Lease, Queue, Released, Settlement
from litequeue.errors import QueueBusy
from litequeue.lease import Duration
from litequeue.sqlite.verbs import ManyScopes
from litequeue.worker.child import Begun
from litequeue.worker.dispatcher import Dispatcher
from litequeue.worker.heartbeat import Heartbeat
from litequeue.worker.process import Child
from litequeue.worker.run import Run
from litequeue.worker.supervisor import Supervisor

EARLY = "early-settlement"
UNSTOPPED = "unstopped-release"
FORGOTTEN = "forgotten-outcome"
UNBEATEN = "no-heartbeat"
CONTROLS = {
    NO_FENCE: sabotage.CONTROLS[NO_FENCE],
    EARLY: "a worker takes what ended for settled at once, and settles it with what ends next",
    UNSTOPPED: "a worker gives back and fails the jobs of processes that it has not stopped (processes only)",
    FORGOTTEN: "a worker that is told to stop gives back what had just ended",
}
NOBODY_DIES = {UNBEATEN: "workers do not extend their leases"}
"""For a run in which nobody is killed or stopped, so that no lease has a reason to lapse."""


def apply(control: str | None) -> None:
    """Spoil this process's copy of the package."""
    match control:
        case "early-settlement":
            Queue.exchange = _exchange_late  # type: ignore[method-assign]
        case "unstopped-release":
            Supervisor._speak_for = _speak_for_the_living  # type: ignore[method-assign] # noqa: SLF001 - the sabotage
        case "no-heartbeat":
            Heartbeat._turn = _nothing  # type: ignore[method-assign] # noqa: SLF001 - the sabotage
        case "forgotten-outcome":
            Dispatcher._settlement = _forgetful  # type: ignore[method-assign] # noqa: SLF001 - the sabotage
        case _:
            sabotage.apply(control)


_exchange = Queue.exchange
_late: dict[int, list[Settlement]] = {}
"""What each handle has kept for later."""


def _exchange_late(
    self: Queue,
    settlements: Iterable[Settlement],
    limit: int = 0,
    kinds: Iterable[str] | None = None,
    *,
    scope: ManyScopes = None,
    worker_id: str | None = None,
    ttl: Duration | None = None,
) -> Exchange:
    """Settle what came the last time, and say that what comes now is done."""
    kept = _late.get(id(self), [])
    done = _exchange(self, kept, limit, kinds, scope=scope, worker_id=worker_id, ttl=ttl)
    _late[id(self)] = list(settlements)
    return Exchange(done.leases, [], [], [])


def _speak_for_the_living(
    self: Supervisor,  # noqa: ARG001 - as what it replaces
    spokesman: Queue,
    children: Sequence[Child],
    settle: Callable[[Lease, Begun], Settlement],
) -> list[tuple[Child, Begun, bool]]:
    """Settle for processes that go on working."""
    for child in children:
        if child.begun is not None:
            with suppress(QueueBusy):
                spokesman.exchange([settle(child.begun.lease(spokesman), child.begun)])
            child.limit_at = math.inf
    return []


_settlement = Dispatcher._settlement  # noqa: SLF001 - what the sabotage replaces


def _forgetful(self: Dispatcher, run: Run) -> Settlement | None:
    """Give back what ended while the worker is told to stop."""
    settlement = _settlement(self, run)
    if self._stops and isinstance(settlement, (Completed, Failed)):
        return Released(run.lease)
    return settlement


def _nothing(self: Heartbeat) -> None:
    """Let the leases lapse."""
