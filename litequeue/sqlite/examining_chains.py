"""What an examination holds the gates of waiting jobs against, and what they miss.

Invariant: what is found here was written by no verb: a gate misses exactly the jobs that it has rows for, and each of
these has yet to end, or a notice of its end waits to be worked off. Leaves out: the walk in pages (`examining`).
"""

from __future__ import annotations

from litequeue.model import JobState
from litequeue.sqlite.findings import Tally
from litequeue.sqlite.rows import Values


def look_over_gate(found: Values, tally: Tally) -> None:
    """Hold a row of `examined_gates` against what a gate must be."""
    _, job_id, parents, missing, ended, state, rows = found
    if state is None:
        tally.add("gate.orphan", job_id=job_id)
        return
    is_waiting = state == JobState.WAITING
    if is_waiting != (missing > 0):
        tally.add("gate.state", job_id=job_id)
    elif is_waiting and rows < missing:
        tally.add("gate.lost", job_id=job_id)
    elif is_waiting and rows > missing:
        tally.add("gate.count", job_id=job_id)
    if ended < 0 or ended + missing > parents or (is_waiting and ended + missing < parents):
        tally.add("gate.sum", job_id=job_id)


def look_over_dependency(found: Values, tally: Tally) -> None:
    """Hold a row of `examined_dependencies` against what is missed."""
    parent_id, _, job_id, missing, state, is_told, is_forgotten = found
    if not missing:
        if not is_forgotten:
            tally.add("dependency.orphan", job_id=parent_id)
    elif is_told:
        pass
    elif state is None:
        tally.add("dependency.lost", job_id=job_id)
    elif JobState(state).is_terminal:
        tally.add("dependency.untold", job_id=job_id)
