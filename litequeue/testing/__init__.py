"""For tests of code that uses a queue. Nothing here needs pytest; the fixtures of `litequeue.pytest_plugin` are these.

    from litequeue.testing import FakeClock, assert_enqueued, drain, temporary_queue

    clock = FakeClock()
    with temporary_queue(clock=clock) as q:
        sign_up(q, "a@b.c")  # the code under test
        assert_enqueued(q, send, {"to": "a@b.c"})
        drain(q, tasks, advance=3600)

Jobs go through a real file, so what production would refuse, a test refuses too.
"""

from __future__ import annotations

from litequeue.testing.clock import FakeClock
from litequeue.testing.draining import Drain, DrainAsync, drain, drain_async
from litequeue.testing.enqueued import AssertEnqueued, RefuteEnqueued, assert_enqueued, refute_enqueued
from litequeue.testing.temporary import temporary_queue

__all__ = [
    "AssertEnqueued",
    "Drain",
    "DrainAsync",
    "FakeClock",
    "RefuteEnqueued",
    "assert_enqueued",
    "drain",
    "drain_async",
    "refute_enqueued",
    "temporary_queue",
]
