"""Mending what an examination found, where nothing can be lost by it.

Owns: the writes that only an operator asks for; `findings.CATALOGUE` says for each why it is safe. Invariants: each is
one transaction of the queue's own kind, and looks again under its lock; nothing that may be the last trace of a job (a
payload without its job, a kept trigger without its run) is ever removed.
"""

from __future__ import annotations

from litequeue.sqlite.context import Context
from litequeue.sqlite.statements import SQL

NEVER_BESIDE = frozenset(
    [
        "file.empty",
        "file.foreign",
        "file.unreadable",
        "file.integrity",
        "file.schema",
        "file.encoding",
        "host.rows",
        "disk.breaks",
        "file.unseen",
        "file.links",
    ]
)
"""With one of these nothing at all is mended: a file that is damaged, or is not ours, is not written to."""


def reindex(context: Context) -> None:
    """Make every index of the queue anew from its table.

    Raises:
        apsw.ConstraintError: two active jobs have the same key; nothing was changed.
    """
    for table in ("litequeue_job", "litequeue_schedule", "litequeue_gate", "litequeue_dependency"):
        context.connection.execute(f"REINDEX {table}").fetchall()


def remove_outcomes(context: Context) -> int:
    """Remove results and errors of jobs that are not there; every job that is there must have its body."""
    return context.write(SQL.orphaned_outcomes_remove, ())


def remove_continuations(context: Context) -> int:
    """Remove checkpoints of jobs that nobody has leased."""
    return context.write(SQL.orphaned_continuations_remove, ())


def count_gates(context: Context) -> int:
    """Count anew what jobs miss that count less."""
    return context.write(SQL.gates_count_anew, ())


def tell_untold(context: Context) -> int:
    """Write down the ends of which nobody would tell those that wait for them."""
    notices = context.all(SQL.untold)
    context.write_exactly(SQL.notice_add, notices)
    return len(notices)


def remove_dependencies(context: Context) -> int:
    """Remove what jobs have missed that do not wait."""
    return context.write(SQL.orphaned_dependencies_remove, ())
