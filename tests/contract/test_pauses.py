"""Pauses: what is not leased until it is resumed (V15)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from litequeue import ANY, SYSTEM, Failed, NewJob, Pause, UsageError

if TYPE_CHECKING:
    from litequeue import Queue
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue


def _work(queue: Queue) -> list[tuple[object, str]]:
    """Lease everything that may be leased, and give it back."""
    leases = [lease for scope in ("default", "other") for lease in queue.lease_many(99, scope=scope)]
    queue.release_many(leases)
    return sorted((lease.scope, lease.kind) for lease in leases)


@pytest.fixture
def jobs(queue: Queue) -> list[tuple[object, str]]:
    """Make two kinds of jobs in two scopes; return what may be leased of them."""
    queue.enqueue_many(NewJob(kind, scope=scope) for kind in ("a:x", "b") for scope in ("default", "other"))
    return _work(queue)


PAUSED: list[tuple[str | None, object, set[tuple[object, str]]]] = [
    ("a:", None, {("default", "a:x"), ("other", "a:x")}),
    ("a:x", ANY, {("default", "a:x"), ("other", "a:x")}),
    ("b", None, {("default", "b"), ("other", "b")}),
    (None, "other", {("other", "a:x"), ("other", "b")}),
    ("b", "other", {("other", "b")}),
    (None, ANY, {("default", "a:x"), ("default", "b"), ("other", "a:x"), ("other", "b")}),
    ("a", None, set()),
    ("a:x:", None, set()),
    (None, SYSTEM, set()),
]


@pytest.mark.parametrize(("kind", "scope", "held"), PAUSED)
def test_what_is_paused_is_not_leased(  # noqa: PLR0917 - three fixtures and a row of the table
    queue: Queue,
    make_queue: MakeQueue,
    jobs: list[tuple[object, str]],
    kind: str | None,
    scope: object,
    held: set[tuple[object, str]],
) -> None:
    """By kind filter, by scope, or both; by every handle, at once, until it is resumed (V15)."""
    other = make_queue()
    assert _work(other) == jobs
    assert queue.pause(kind, scope=scope)  # type: ignore[arg-type]
    assert not queue.pause(kind, scope=scope)  # type: ignore[arg-type]
    assert _work(other) == [job for job in jobs if job not in held]
    assert other.resume(kind, scope=scope)  # type: ignore[arg-type]
    assert not other.resume(kind, scope=scope)  # type: ignore[arg-type]
    assert _work(queue) == jobs


def test_leases_that_are_held_go_on_and_jobs_may_be_enqueued(queue: Queue, clock: FakeClock) -> None:
    """A pause keeps work from beginning, and nothing else (V15)."""
    queue.enqueue("work", 1)
    lease = queue.lease_next()
    assert lease is not None
    queue.pause("work")
    queue.enqueue("work", 2, delay=5)
    lease.extend()
    clock.advance(10)
    lease.complete("done")
    assert queue.promote_due() == 1
    assert queue.lease_next() is None
    queue.resume("work")
    following = queue.lease_next()
    assert following is not None
    assert following.payload == 2


def test_a_paused_job_is_not_begun_again_by_a_retake(queue: Queue) -> None:
    """It goes back to the queue, where it waits (V15)."""
    queue.enqueue("work")
    lease = queue.lease_next()
    assert lease is not None
    queue.pause("work")
    assert queue.exchange([Failed(lease, "boom", delay=0, retake_within=60)], 5).retaken == []
    assert queue.lease_next() is None


def test_nobody_is_woken_for_what_is_paused_and_a_resume_wakes(queue: Queue) -> None:
    """A worker with nothing else to do sleeps (V15)."""
    queue.pause("work")
    queue.enqueue("work")
    assert not queue.wait(0)
    queue.resume("work")
    assert queue.wait(0)


def test_pauses_are_told_with_their_time(queue: Queue, clock: FakeClock) -> None:
    """In order; those that overlap are taken back each by itself (V15)."""
    since = clock.wall_us()
    queue.pause("work", scope="one")
    queue.pause("work")
    clock.advance(1)
    queue.pause(scope="one")
    queue.pause("work")
    assert queue.pauses() == [
        Pause("work", ANY, since),
        Pause(None, "one", since + 1_000_000),
        Pause("work", "one", since),
    ]
    queue.resume("work")
    assert [pause.scope for pause in queue.pauses()] == ["one", "one"]


def test_a_pause_is_part_of_its_transaction(queue: Queue) -> None:
    """Rolled back, it never was (G7, V14)."""
    queue.enqueue("work")
    with suppress(ZeroDivisionError), queue.transaction() as tx:
        tx.pause("work")
        assert tx.lease_next() is None
        raise ZeroDivisionError
    assert queue.pauses() == []
    assert queue.lease_next() is not None


@pytest.mark.parametrize(
    ("kind", "scope"),
    [(None, None), ("", None), (7, None), ("a\n", None), (None, ""), (None, "litequeue:all"), (None, 7)],
)
def test_a_bad_pause_is_refused(queue: Queue, kind: object, scope: object) -> None:
    """With the name of the argument and its bounds (§6)."""
    for verb in (queue.pause, queue.resume):
        with pytest.raises(UsageError) as caught:
            verb(kind, scope=scope)  # type: ignore[arg-type]
        assert caught.value.argument in ("kind", "scope")
        assert caught.value.bounds
    assert queue.pauses() == []
