"""The view for a person with a shell (DESIGN §2 "A read-only view")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import SYSTEM
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

EARLY_2026_US = 1_767_225_600_000_000
"""1 January 2026, 00:00 UTC."""


def test_the_view_shows_hex_ids_state_names_and_iso_times(path: Path) -> None:
    """Each job is one readable row (DESIGN §2)."""
    clock = FakeClock(wall_us=EARLY_2026_US)
    with litequeue.open(path, clock=clock) as queue:
        made = queue.enqueue("mail:send", {"to": "x"}, idempotency_key="k", expires=3600)
        queue.enqueue("own", scope=SYSTEM, delay=60)
        clock.advance(1.5)
        assert queue.lease_next(worker_id="me") is not None
        shell = apsw.Connection(str(path))
        columns = "job_id, scope, state, kind, priority, attempts, worker_id, idempotency_key, created_at, leased_at"
        rows = shell.execute(f"SELECT {columns}, expires_at FROM litequeue_jobs ORDER BY scope DESC").fetchall()
        later = shell.execute("SELECT scope, state, not_before FROM litequeue_jobs WHERE kind = 'own'").fetchall()
        shell.close()
    assert rows[0] == (
        made.job_id.hex,
        "default",
        "leased",
        "mail:send",
        100,
        1,
        "me",
        "k",
        "2026-01-01T00:00:00.000Z",
        "2026-01-01T00:00:01.500Z",
        "2026-01-01T01:00:00.000Z",
    )
    assert later == [("(system)", "scheduled", "2026-01-01T00:01:00.000Z")]


def test_the_view_names_every_state(path: Path) -> None:
    """Pending, leased, completed, retryable, dead, scheduled, cancelled (§3)."""
    with litequeue.open(path) as queue:
        for kind in ("completed", "retryable", "dead", "leased"):
            queue.enqueue(kind)
            lease = queue.lease_next()
            assert lease is not None
            match kind:
                case "completed":
                    lease.complete()
                case "retryable":
                    lease.fail("boom")
                case "dead":
                    lease.fail("boom", retryable=False)
        queue.cancel(queue.enqueue("cancelled").job_id)
        queue.enqueue("scheduled", delay=100)
        queue.enqueue("pending")
        shell = apsw.Connection(str(path))
        rows = shell.execute("SELECT kind, state FROM litequeue_jobs").fetchall()
        shell.close()
    assert len(rows) == 7
    assert all(kind == state for kind, state in rows)


def test_the_view_cannot_be_written_to(path: Path) -> None:
    """It shows, and that is all (DESIGN §2)."""
    with litequeue.open(path) as queue:
        queue.enqueue("work")
        shell = apsw.Connection(str(path))
        with pytest.raises(apsw.SQLError, match="view"):
            shell.execute("DELETE FROM litequeue_jobs")
        shell.close()
