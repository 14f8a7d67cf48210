"""`Queue.sibling`: another handle on the same file, opened in the same way (issue 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import CannotOpen, Completed, LiteQueueError, QueueClosed

if TYPE_CHECKING:
    from pathlib import Path

    from litequeue import Queue
    from litequeue.testing import FakeClock


def test_a_sibling_has_the_same_options(tmp_path: Path, clock: FakeClock) -> None:
    """The scope, the durability, the patience, the clock and the permissions; it is another worker."""
    path = tmp_path / "app.queue"
    with (
        litequeue.open(path, scope="tenant", durability="enqueue", busy_timeout=3.0, mode=0o640, clock=clock) as queue,
        queue.sibling() as sibling,
    ):
        assert (sibling.path, sibling.scope, sibling.mode) == (queue.path, "tenant", 0o640)
        assert sibling.worker_id != queue.worker_id
        assert sibling._store.clock is clock
        assert sibling._store.durability == "enqueue"
        assert sibling._store._handle.timeout_s == 3.0
        assert not sibling._store.place.create
        job_id = sibling.enqueue("work").job_id
        assert queue.get(job_id).created_at == clock.wall_us()
        with sibling.sibling() as nephew:
            assert nephew.get(job_id).scope == "tenant"


def test_a_sibling_writes_while_the_other_is_closed(queue: Queue) -> None:
    """Each is closed by itself, and gives back what it holds itself (§4)."""
    queue.enqueue("work")
    (lease,) = queue.lease_many(1)
    sibling = queue.sibling()
    assert sibling.extend_many([lease]) == []
    queue.close()
    assert sibling.get(lease.job_id).attempts == 0
    (again,) = sibling.lease_many(1)
    assert sibling.exchange([Completed(again)]).refused == []
    sibling.close()
    with pytest.raises(QueueClosed):
        sibling.stats()


def test_a_sibling_is_not_held_up_by_a_transaction_that_it_does_not_need(queue: Queue) -> None:
    """It reads beside an open transaction of this very thread; the thread's own handle is another."""
    job_id = queue.enqueue("work").job_id
    with queue.sibling() as sibling, queue.transaction() as tx:
        tx.cancel(job_id)
        assert sibling.get(job_id).state.name == "PENDING"


def test_a_file_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    """Neither the file nor anything beside it (§6)."""
    path = tmp_path / "app.queue"
    queue = litequeue.open(path)
    queue.close()
    for left in tmp_path.iterdir():
        left.unlink()
    with pytest.raises(CannotOpen) as refusal:
        queue.sibling()
    assert isinstance(refusal.value, LiteQueueError)
    assert list(tmp_path.iterdir()) == []
