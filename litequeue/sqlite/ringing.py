"""Which commits ring: those after which a waiting process has something to do that it does not know of.

A row that becomes ready is that; a row that waits for its time only when it is due earlier than all others that wait in
its scope, since a waiting process sleeps until the earliest of those. Invariants: no such commit is silent; one that
makes no such row (complete, extend, checkpoint, note, lease, cancel, prune) rings nobody and pays nothing. Leaves out:
the ring itself (`bell`).
"""

from __future__ import annotations

from collections.abc import Iterable

from litequeue.sqlite.context import Context
from litequeue.sqlite.statements import SQL


def announce(context: Context, waiting: Iterable[tuple[str, int | None]]) -> None:
    """Let this commit ring, if it has to, for rows by scope and due time (`None` is now); call it before the write.

    Whoever waits has looked, and sleeps until the earliest due time of then. A row that is due before that is earlier
    than all others, and rings; or it is not, and the one before it has rung when it came.
    """
    earliest: dict[str, int] = {}
    for scope, due_at in waiting:
        if due_at is None:
            context.rings = True
            break
        earliest[scope] = min(due_at, earliest.get(scope, due_at))
    for scope, due_at in earliest.items():
        if context.rings:
            break
        next_due: int | None = context.all(SQL.next_due, scope)[0][0]
        context.rings = next_due is None or due_at < next_due
