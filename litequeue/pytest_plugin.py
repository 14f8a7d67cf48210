"""Fixtures for tests of code that uses a queue; pytest loads them when litequeue is installed.

Owns: which clock the queue of a test has. Invariant: until a test asks for one of these, nothing of litequeue is
imported but its names, SQLite neither. Leaves out: what the fixtures do (`litequeue.testing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from litequeue.queue import Queue
    from litequeue.testing import AssertEnqueued, Drain, DrainAsync, FakeClock, RefuteEnqueued

_IS_ON_SYSTEM_CLOCK = pytest.StashKey[bool]()


@pytest.fixture
def litequeue_clock(request: pytest.FixtureRequest) -> FakeClock:
    """Give a clock that moves by hand; the queue of a test that asks for it, `litequeue_db`, goes by it.

    Override it in a `conftest.py` to begin at another time, as in `FakeClock(wall_us=…)`.
    """
    from litequeue.errors import UsageError  # noqa: PLC0415 - only tests that ask for a queue load any of it
    from litequeue.testing import FakeClock  # noqa: PLC0415 - the same

    if request.node.stash.get(_IS_ON_SYSTEM_CLOCK, False):
        raise UsageError("litequeue_clock comes too late: litequeue_db has the system's clock; make it an argument too")
    return FakeClock()


@pytest.fixture
def litequeue_db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    """Give the test a fresh queue in a file of its own under `tmp_path`, closed and examined after the test.

    It goes by `litequeue_clock` in a test that asks for that too, and by the system's clock otherwise. Its durability
    is `normal`: a test gains nothing from syncing to disk. What `litequeue.doctor` calls a problem is an error of this
    test. For another scope or durability make a fixture of your own from `litequeue.testing.temporary_queue`.
    """
    from litequeue.testing import temporary_queue  # noqa: PLC0415 - only tests that ask for a queue load SQLite

    is_faked = "litequeue_clock" in request.fixturenames
    request.node.stash[_IS_ON_SYSTEM_CLOCK] = not is_faked
    clock: FakeClock | None = request.getfixturevalue("litequeue_clock") if is_faked else None
    with temporary_queue(tmp_path / "litequeue.db", clock=clock) as queue:
        yield queue


@pytest.fixture
def litequeue_drain(litequeue_db: Queue) -> Drain:
    """Give `litequeue.testing.drain` for `litequeue_db`: `litequeue_drain(tasks)` runs what is ready."""
    from litequeue.testing import drain  # noqa: PLC0415 - as above

    return partial(drain, litequeue_db)


@pytest.fixture
def litequeue_drain_async(litequeue_db: Queue) -> DrainAsync:
    """Give `litequeue.testing.drain_async` for `litequeue_db`, to be awaited in a test that is a coroutine."""
    from litequeue.testing import drain_async  # noqa: PLC0415 - as above

    return partial(drain_async, litequeue_db)


@pytest.fixture
def assert_enqueued(litequeue_db: Queue) -> AssertEnqueued:
    """Give `litequeue.testing.assert_enqueued` for `litequeue_db`."""
    from litequeue import testing  # noqa: PLC0415 - as above

    return partial(testing.assert_enqueued, litequeue_db)


@pytest.fixture
def refute_enqueued(litequeue_db: Queue) -> RefuteEnqueued:
    """Give `litequeue.testing.refute_enqueued` for `litequeue_db`."""
    from litequeue import testing  # noqa: PLC0415 - as above

    return partial(testing.refute_enqueued, litequeue_db)
