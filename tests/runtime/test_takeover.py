"""Two maintainers in real processes: the leader is killed, and the other one takes over at once."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import JobState, Maintenance

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.children import Child, Children, Parent

pytestmark = pytest.mark.slow


def _maintain(parent: Parent, path: str, *, with_a_child: bool = False) -> None:
    """Maintain, and say in a line when this one leads and when it stands by."""

    class Say(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            parent.say("stands by" if "standing by" in text else "takes over" if "taking over" in text else "works")

    logger = logging.getLogger("litequeue.maintenance")
    logger.addHandler(Say())
    logger.setLevel(logging.INFO)
    queue = litequeue.open(path)
    maintenance = Maintenance(queue)
    if with_a_child:
        once = maintenance.run_once

        def fork_once() -> litequeue.MaintenanceReport:
            maintenance.run_once = once  # type: ignore[method-assign] # only before the first pass
            if os.fork() == 0:
                sys.stdin.close()
                signal.pause()
            return once()

        maintenance.run_once = fork_once  # type: ignore[method-assign]
    maintenance.run(0.05)


def _maintain_with_a_child(parent: Parent, path: str) -> None:
    _maintain(parent, path, with_a_child=True)


def _hear(child: Child, word: str) -> None:
    """Wait until a maintainer says a word, whatever it says before."""
    while child.hear() != word:
        pass


def _until_reaped(path: Path, leader: Child) -> None:
    """Let a lease lapse, and wait until the leader has reaped it."""
    with litequeue.open(path) as queue:
        made = queue.enqueue("work")
        assert queue.lease_next(ttl=0.05) is not None
        _hear(leader, "works")
        assert queue.get(made.job_id).state is not JobState.LEASED


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_standby_takes_over_at_once_when_the_leader_dies(path: Path, processes: Children, end: int) -> None:
    """The kernel gives the lead away with the process, and the other one asks ten times a second (issue)."""
    litequeue.open(path).close()
    leader = processes.start(_maintain, str(path))
    _until_reaped(path, leader)
    standby = processes.start(_maintain, str(path))
    _hear(standby, "stands by")
    leader.signal(end)
    leader.status()
    died_at = time.monotonic()
    _hear(standby, "takes over")
    assert time.monotonic() - died_at < 10, "a tenth of a second, and what a loaded machine adds"
    _until_reaped(path, standby)


def test_of_three_maintainers_one_leads_at_any_time(path: Path, processes: Children) -> None:
    """Two stand by; when the leader dies one of them leads and the other one goes on standing by (issue)."""
    litequeue.open(path).close()
    leader = processes.start(_maintain, str(path))
    _until_reaped(path, leader)
    others = [processes.start(_maintain, str(path)) for _ in range(2)]
    for other in others:
        _hear(other, "stands by")
    leader.kill()
    with litequeue.open(path) as queue:
        queue.enqueue("work")
        assert queue.lease_next(ttl=0.01) is not None
        deadline = time.monotonic() + 20
        while queue.stats().counts[JobState.LEASED] and time.monotonic() < deadline:
            pass
        assert queue.stats().counts[JobState.LEASED] == 0
    for other in others:  # first, or the one that stands by takes over when the other one is killed
        other.signal(signal.SIGSTOP)
    for other in others:
        other.kill()
    said = sorted(other.rest() for other in others)
    assert said[0] == []
    assert said[1][0] == "takes over"


def test_a_child_of_the_leader_does_not_keep_the_lead(path: Path, processes: Children) -> None:
    """A fork that lives on after the leader was killed holds up nobody (§6 "use after fork")."""
    litequeue.open(path).close()
    leader = processes.start(_maintain_with_a_child, str(path))
    _until_reaped(path, leader)
    standby = processes.start(_maintain, str(path))
    _hear(standby, "stands by")
    leader.kill()
    _hear(standby, "takes over")
