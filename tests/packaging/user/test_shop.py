"""What a user might write to test such a program: the fixtures come with the package."""

from __future__ import annotations

import litequeue
from litequeue import JobState, Queue
from litequeue.testing import AssertEnqueued, Drain, FakeClock, RefuteEnqueued

tasks = litequeue.Tasks()


@tasks.task("mail:send")
def send(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


def test_a_mail_is_sent_later(
    litequeue_db: Queue,
    litequeue_clock: FakeClock,
    litequeue_drain: Drain,
    assert_enqueued: AssertEnqueued,
    refute_enqueued: RefuteEnqueued,
) -> None:
    """By hand."""
    send.options(delay=60).enqueue(litequeue_db, "a@example.org")
    assert_enqueued(send, {"to": "a@example.org"}, delay=60)
    assert litequeue_drain(tasks) == []
    before = litequeue_clock.wall_us()
    (job,) = litequeue_drain(tasks, advance=60)
    assert (job.state, job.result) == (JobState.COMPLETED, "sent to a@example.org")
    assert litequeue_clock.wall_us() - before == 60_000_000
    refute_enqueued(send)
