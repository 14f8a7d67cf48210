"""Verbs of other threads in this thread's transaction: one commit, and one wait for the disk, for all of them.

Invariants: each is done under a savepoint of its own, so its error or its oversized payload touches no other; where
SQLite gives the whole transaction up, or the commit fails, each is done again alone. Leaves out: who stands in line
(`line`), and what becomes of the transaction (`store`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from litequeue.sqlite.context import Context
from litequeue.sqlite.line import Line, NotDone
from litequeue.sqlite.savepoint import in_savepoint

_MOST = 64
_LONGEST_S = 0.005
"""How many verbs of others one transaction does, and for how long it takes new ones; its own thread waits."""


def do_others(context: Context, line: Line, meaning: Callable[[BaseException], BaseException]) -> None:
    """Do the verbs that wait in line in this transaction as well; `meaning` says what an error of theirs means.

    Raises:
        NotDone: SQLite has given the transaction up.
    """
    until = time.monotonic() + _LONGEST_S
    while (taken := line.take(durable=context.keeps_jobs)) is not None:
        request, work = taken
        context.shared.append(request)
        try:
            request.done(in_savepoint(context, work))
        except Exception as exc:
            if not context.connection.in_transaction:
                raise NotDone from exc
            known = meaning(exc)
            if known is not exc:
                known.__cause__ = exc
            request.failed(known)
        if len(context.shared) >= _MOST or time.monotonic() >= until:
            break


def tell_others(context: Context) -> None:
    """Answer those whose verbs were taken into this transaction, now that its fate is known."""
    for request in context.shared:
        if not request.is_answered:
            if context.fate is not None:
                request.failed(context.fate())
            request.tell()
