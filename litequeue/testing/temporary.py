"""A queue for one test: fresh, and examined when the test is over.

Invariant: what `litequeue.doctor` calls a problem fails the test that left it behind, not one that comes later. Leaves
out: warnings, as a test may well leave jobs that are due and leases that have lapsed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from litequeue import queue as opener
from litequeue.clock import Clock
from litequeue.doctoring import doctor
from litequeue.model import Scope
from litequeue.queue import Queue
from litequeue.sqlite.store import Durability


@contextmanager
def temporary_queue(
    path: str | os.PathLike[str] | None = None,
    *,
    clock: Clock | None = None,
    scope: Scope = "default",
    durability: Durability = "normal",
) -> Iterator[Queue]:
    """Give a queue for one test; at its end it is closed, and its file examined.

    Without a `path` it lies in a folder that is removed afterwards; a file at `path` stays. `clock` may be a
    `FakeClock`; without one time is the system's. `durability` is `normal`, because a test gains nothing from syncing
    to disk. Other handles may have the file open as well (`litequeue.open(queue.path)`). Where the test has removed the
    file, there is nothing to examine.

    Raises:
        AssertionError: the file breaks the queue's own rules; every problem is named.
        UsageError, CannotOpen: as `litequeue.open`.
    """
    __tracebackhide__ = True
    with ExitStack() as stack:
        if path is None:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="litequeue-"))) / "litequeue.db"
        with opener.open(path, clock=clock, scope=scope, durability=durability) as queue:
            yield queue
        _examine(queue.path, clock)


def _examine(path: str, clock: Clock | None) -> None:
    __tracebackhide__ = True
    if not Path(path).exists():
        return
    problems = doctor(path, clock=clock).problems
    if problems:
        lines = "".join(f"\n  {finding.code}: {finding}" for finding in problems)
        raise AssertionError(f"after this test the queue {path} is not sound:{lines}")
