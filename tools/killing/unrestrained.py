"""Negative controls for what restricts leases: how limits, pauses, schedules and turns may well be written wrong.

Owns: one way of being wrong for each rule. Invariant: nothing here touches what the checker reads with; a run under
sabotage has to end with broken promises.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from litequeue import boundaries
from litequeue.limits import Pauses
from litequeue.sqlite import enqueueing, scheduling, slots, turns
from litequeue.sqlite.admission import Admission
from litequeue.sqlite.context import Context
from litequeue.sqlite.rows import Values
from litequeue.sqlite.scheduling import Fired, Planned
from litequeue.sqlite.statements import SQL

UNCOUNTED = "uncounted"
BOTTOMLESS = "bottomless-bucket"
DEAF = "deaf-to-pauses"
DOUBLE_FIRE = "double-fire"
FIRST_SCOPE = "first-scope"
CONTROLS = {
    UNCOUNTED: "a lease takes no place of a limit (restricted only)",
    BOTTOMLESS: "what was taken out of a bucket is not stored (restricted only)",
    DEAF: "a lease does not look whether something is paused (restricted only)",
    DOUBLE_FIRE: "a boundary is fired in one transaction and advanced in a later one (restricted only)",
    FIRST_SCOPE: "whose turn it is is not stored (restricted only)",
}


def apply(control: str | None) -> None:
    """Spoil this process's copy of the package."""
    match control:
        case "uncounted":
            slots.take = _nothing
        case "bottomless-bucket":
            Admission.write = _nothing  # type: ignore[method-assign]
        case "deaf-to-pauses":
            Pauses.holds = Pauses.holds_all = _no  # type: ignore[method-assign, assignment]
        case "double-fire":
            boundaries.key = _own_key
            scheduling.fire = _fire_in_two_steps
        case "first-scope":
            turns._store = _nothing  # noqa: SLF001 - that is the sabotage
        case _:
            pass


def _nothing(*_: object, **__: object) -> None:
    """Leave it."""


def _no(*_: object) -> bool:
    """Let everything go."""
    return False


_key: Callable[[str, int], str] = boundaries.key


def _own_key(name: str, boundary_us: int) -> str:
    """Return a key that no other process has."""
    return _key(f"{name} of {os.getpid()}", boundary_us)


_fired: dict[tuple[str, int], Values] = {}
"""What this process has made jobs for, with the advance that it still owes; by schedule and boundary."""


def _fire_in_two_steps(context: Context, wanted: Planned) -> Fired | None:
    """Make the jobs of a plan; at the next look, if it is still due, advance the boundary."""
    seen, plan = wanted.seen, wanted.plan
    advance = _fired.pop((seen.name, seen.boundary), None)
    if advance is not None:
        context.write(SQL.schedule_advance, advance)
        return None
    made = enqueueing.enqueue(context, [seen.job(boundary) for boundary in plan.fire])
    last = plan.fire[-1], context.now
    _fired[seen.name, seen.boundary] = plan.upcoming, *last, len(made), plan.skipped, seen.name, seen.boundary
    return None
