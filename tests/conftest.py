"""What every test may ask for: a clock that moves by hand, and queues that are closed when the test is over.

Owns the engine under test. The contract suite reaches it only through `make_queue` and `crash`, so a second engine
replaces these two and has to pass the rest as it stands.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

import pytest

import litequeue
import litequeue.aio
import make_fixture
from litequeue import JobState
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from uuid import UUID

    from litequeue import Clock, Queue
    from litequeue.model import Scope
    from litequeue.sqlite.store import Durability

pytest_plugins = ["pytester"]  # for the tests of our own plugin and of pages with tests; taken from here only

# Inner runs of pytester forget the modules that they were the first to import, and a second copy of one would know
# nothing of the files that the first one has open.
for _name in litequeue.__all__:
    getattr(litequeue, _name)


EARLIER = "LITEQUEUE_TESTS_BEGIN_WITH_VERSION"
"""In the environment: of which version of the schema every file of `make_queue` is before it is opened."""


class MakeQueue(Protocol):
    """Opens handles, on one and the same queue unless a `path` says otherwise, by the test's clock unless given one."""

    def __call__(
        self,
        *,
        clock: Clock | None = None,
        path: Path | None = None,
        scope: Scope = "default",
        durability: Durability = "normal",
        busy_timeout: float = 10.0,
    ) -> Queue:
        """Open one more handle."""
        ...


class JobIn(Protocol):
    """Makes a job in the fixture `queue` and brings it into a state, by the verbs that lead there."""

    def __call__(
        self, state: JobState, *, kind: str = "work", payload: object = "first", key: str | None = None
    ) -> UUID:
        """Make the job; return its id."""
        ...


@pytest.fixture
def clock() -> FakeClock:
    """Give the clock of all handles of this test."""
    return FakeClock()


@pytest.fixture
def make_queue(tmp_path: Path, clock: FakeClock) -> Iterator[MakeQueue]:
    """Give the factory of handles; all are closed after the test."""
    handles: list[Queue] = []
    the_clock = clock

    def make(
        *,
        clock: Clock | None = None,
        path: Path | None = None,
        scope: Scope = "default",
        durability: Durability = "normal",
        busy_timeout: float = 10.0,
    ) -> Queue:
        place = tmp_path / "queue.db" if path is None else path
        if EARLIER in os.environ and not place.exists():
            make_fixture.unpacked(int(os.environ[EARLIER]), "empty", place)
        handle = litequeue.open(
            place,
            clock=the_clock if clock is None else clock,
            scope=scope,
            durability=durability,
            busy_timeout=busy_timeout,
        )
        handles.append(handle)
        return handle

    yield make
    for handle in reversed(handles):
        handle.close()


@pytest.fixture
def queue(make_queue: MakeQueue) -> Queue:
    """Give a handle on a fresh queue."""
    return make_queue()


@pytest.fixture
def crash() -> Callable[[Queue], None]:
    """Let go of a handle as `kill -9` does: nothing that it holds is released."""

    def go(handle: Queue) -> None:
        handle._store.holdings.start_afresh(is_open=False)
        handle.close()

    return go


@pytest.fixture
def job_in(queue: Queue) -> JobIn:
    """Give the maker of jobs in a state; it leases, so it wants a queue where nothing else is ready."""

    def make(state: JobState, *, kind: str = "work", payload: object = "first", key: str | None = None) -> UUID:
        delay = 60 if state is JobState.SCHEDULED else None
        parents = []
        if state is JobState.WAITING:
            parents = [queue.enqueue("parent", delay=60, scope="parents").job_id]
        job_id = queue.enqueue(kind, payload, idempotency_key=key, delay=delay, after=parents).job_id
        if state is JobState.CANCELLED:
            queue.cancel(job_id)
        elif state not in (JobState.PENDING, JobState.SCHEDULED, JobState.WAITING):
            (lease,) = queue.lease_many(1, kinds=[kind])
            assert lease.job_id == job_id
            if state is JobState.COMPLETED:
                lease.complete("done")
            elif state is JobState.RETRYABLE:
                lease.fail("boom", delay=60)
            elif state is JobState.DEAD:
                lease.fail("boom", retryable=False)
        assert queue.get(job_id).state is state
        return job_id

    return make
