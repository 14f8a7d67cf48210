"""Where `fcntl` does not exist (Windows): the package imports, and processes share a file without the gate (DESIGN §3).

What else is promised holds there too: `tests/platforms`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import litequeue

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow


def _hide_fcntl() -> None:
    """Load the package anew in a process that has no `fcntl`."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "litequeue"]:
        del sys.modules[name]
    sys.modules["fcntl"] = None  # type: ignore[assignment] # how Python is told that there is no such module
    globals()["litequeue"] = __import__("litequeue")


def _work(parent: Parent, path: str) -> bool:
    """Do the main job without `fcntl`."""
    _hide_fcntl()
    parent.say("ready")
    parent.hear()
    with litequeue.open(path) as queue:
        queue.enqueue("work", 1)
        lease = queue.lease_next()
        assert lease is not None
        lease.complete()
        litequeue.Maintenance(queue).run_once()
    from litequeue.sqlite import flock  # noqa: PLC0415 - the one that was loaded without it

    return not flock.HAS_LOCKS


def test_the_package_works_without_fcntl(tmp_path: Path, processes: Children) -> None:
    """It imports, and a job is enqueued, leased and completed (issue "Repository")."""
    child = processes.start(_work, str(tmp_path / "app.queue"))
    assert child.hear() == "ready"
    child.say("go")
    assert child.result() is True


def test_processes_without_the_gate_create_and_use_a_file_at_once(tmp_path: Path, processes: Children) -> None:
    """Correctness rests on SQLite's own lock alone (DESIGN §3)."""
    path = str(tmp_path / "app.queue")
    children = [processes.start(_work, path) for _ in range(6)]
    for child in children:
        assert child.hear() == "ready"
    for child in children:
        child.say("go")
    for child in children:
        assert child.result() is True
    with litequeue.open(path, create=False) as queue:
        assert queue.stats().counts[litequeue.JobState.COMPLETED] == 6
