"""`assert_enqueued` and `refute_enqueued`: what matches, and what a failure tells (issue 8, item 4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from litequeue import ANY, SYSTEM, JobState, Tasks, UsageError
from litequeue.testing import assert_enqueued as plain_assert

if TYPE_CHECKING:
    from litequeue import Lease, Queue
    from litequeue.testing import AssertEnqueued, Drain, FakeClock, RefuteEnqueued

tasks = Tasks()


@tasks.task("mail:send")
def send(to: str, *, subject: str = "") -> None:
    """Send a mail."""


@pytest.mark.parametrize(
    "payload",
    [
        ...,
        {"to": "a", "pair": [1, 2], "n": None},
        {"to": "a"},
        {},
        {"to": mock.ANY},
        lambda payload: payload["to"] == "a",
    ],
)
def test_a_payload_matches_by_value_by_items_or_by_a_function(
    litequeue_db: Queue, assert_enqueued: AssertEnqueued, refute_enqueued: RefuteEnqueued, payload: object
) -> None:
    """As a handler would get it; `...` is any. What matches is returned."""
    job_id = litequeue_db.enqueue("work", {"to": "a", "pair": (1, 2), "n": None}).job_id
    (job,) = assert_enqueued("work", payload)
    assert job.job_id == job_id
    with pytest.raises(AssertionError, match=f"^a job waits of the kind 'work' .*, and none should:\n  work {job_id}"):
        refute_enqueued("work", payload)


@pytest.mark.parametrize(
    "payload", [None, [], "a", {"to": "b"}, {"for": "a"}, {"pair": (1, 2)}, lambda payload: not payload, dict]
)
def test_what_does_not_match_is_told_beside_what_is_there(
    litequeue_db: Queue, assert_enqueued: AssertEnqueued, refute_enqueued: RefuteEnqueued, payload: object
) -> None:
    """A tuple is a list by then (contract §2); a class is a value, not a function."""
    job_id = litequeue_db.enqueue("work", {"to": "a", "pair": (1, 2)}).job_id
    with pytest.raises(AssertionError) as told:
        assert_enqueued("work", payload)
    lines = str(told.value).splitlines()
    assert lines[0].startswith("no job waits of the kind 'work' in the scope 'default' with the payload ")
    assert lines[1:] == [
        "of this kind there wait:",
        f"  work {job_id} pending, priority 100: {{'to': 'a', 'pair': [1, 2]}}  <- another payload",
    ]
    refute_enqueued("work", payload)


@pytest.mark.parametrize("value", [None, 0, "", [1, [2]], b"x", datetime(2025, 1, 1, tzinfo=UTC)])
def test_any_value_may_be_the_payload(
    litequeue_db: Queue, assert_enqueued: AssertEnqueued, refute_enqueued: RefuteEnqueued, value: object
) -> None:
    """`None` is one of them, and not the word for any."""
    refute_enqueued("work")
    litequeue_db.enqueue("work", value)
    assert len(assert_enqueued("work", value)) == 1
    refute_enqueued("work", "another")


def test_the_arguments_of_a_task_match_by_name(
    litequeue_db: Queue, assert_enqueued: AssertEnqueued, refute_enqueued: RefuteEnqueued
) -> None:
    """However they were given; a payload that does not fit matches nothing but `...`, and is shown as it is."""
    send.enqueue(litequeue_db, "a", subject="Hello")
    send.enqueue(litequeue_db, to="b")
    litequeue_db.enqueue("mail:send", [1, 2, 3])
    (job,) = assert_enqueued(send, {"to": "a"})
    assert job.payload == [["a"], {"subject": "Hello"}]
    assert_enqueued(send, lambda given: given == {"to": "b"}, count=1)
    assert_enqueued(send, count=3)
    refute_enqueued(send, {"to": "c"})
    with pytest.raises(AssertionError) as told:
        assert_enqueued(send, {"to": "c"})
    assert "pending, priority 100: [1, 2, 3]  <- another payload" in str(told.value)
    assert "{'to': 'a', 'subject': 'Hello'}" in str(told.value)


def test_priority_scope_and_count_have_to_match(
    litequeue_db: Queue, assert_enqueued: AssertEnqueued, refute_enqueued: RefuteEnqueued
) -> None:
    """The scope is the queue's unless another is given; jobs come in the order in which they were enqueued."""
    ids = [litequeue_db.enqueue("work", n, priority=100 - n).job_id for n in range(3)]
    litequeue_db.enqueue("work", scope="tenant")
    litequeue_db.enqueue("work", scope=SYSTEM)
    assert [job.job_id for job in assert_enqueued("work", count=3)] == ids
    assert_enqueued("work", priority=99, count=1)
    assert_enqueued("work", None, scope="tenant", count=1)
    assert_enqueued("work", scope=SYSTEM, count=1)
    assert_enqueued("work", scope=ANY, count=5)
    refute_enqueued("work", priority=7)
    refute_enqueued("work", scope="nobody")
    with pytest.raises(AssertionError, match=r"^3 jobs wait, not 2, of the kind 'work' (.|\n)*  <- matches"):
        assert_enqueued("work", count=2)
    with pytest.raises(AssertionError, match=r"^1 job waits, not 2, .* the priority 99\n(.|\n)*another priority"):
        assert_enqueued("work", priority=99, count=2)


@pytest.mark.usefixtures("litequeue_clock")
def test_delays_and_times_match_exactly_also_of_jobs_that_were_enqueued_at_one_moment(
    litequeue_db: Queue, litequeue_clock: FakeClock, assert_enqueued: AssertEnqueued, refute_enqueued: RefuteEnqueued
) -> None:
    """A delay counts from the enqueue, not from `created_at`, which commit order moves by some µs (G4)."""
    at = litequeue_clock.now() + timedelta(hours=1)
    for _ in range(3):
        litequeue_db.enqueue("work", delay=5)
    litequeue_db.enqueue("work")
    litequeue_db.enqueue("work", run_at=at)
    assert_enqueued("work", delay=5, count=3)
    assert_enqueued("work", delay=timedelta(0), count=1)
    assert_enqueued("work", delay=3600, count=1)
    assert_enqueued("work", run_at=at.astimezone(timezone(timedelta(hours=2))), count=1)
    refute_enqueued("work", delay=5.000001)
    with pytest.raises(AssertionError, match=r"with a delay of 6 s\n(.|\n)*due at 2025-06-15T15:06:45.000\+00:00"):
        assert_enqueued("work", delay=6)
    with pytest.raises(AssertionError, match=r"to run at 2025-06-15T15:06:40.000\+00:00\n(.|\n)*<- another run_at"):
        assert_enqueued("work", run_at=litequeue_clock.now())


def test_jobs_wait_until_they_run_and_again_when_they_have_failed(
    litequeue_db: Queue, litequeue_drain: Drain, assert_enqueued: AssertEnqueued, refute_enqueued: RefuteEnqueued
) -> None:
    """Leased and ended ones do not; they are told of. A retry is waiting, and has no delay of its enqueueing."""
    litequeue_db.enqueue("work")
    litequeue_db.enqueue("flaky")

    def failing(_: Lease) -> None:
        raise OSError

    litequeue_drain({"work": lambda _: None, "flaky": failing}, raise_errors=False)
    (job,) = assert_enqueued("flaky")
    assert job.state is JobState.RETRYABLE
    refute_enqueued("flaky", delay=10)
    with pytest.raises(AssertionError) as told:
        assert_enqueued("work")
    lines = str(told.value).splitlines()
    assert lines[1] == "of this kind, but not waiting:"
    assert " completed, priority 100: None" in lines[2]
    assert lines[3] == "of other kinds there wait: flaky (1)"
    refute_enqueued("work")


def test_a_message_stays_short_and_helps_with_a_slip(litequeue_db: Queue, assert_enqueued: AssertEnqueued) -> None:
    """Ten jobs, 200 characters each; a kind much like one that is there; and a queue with nothing in it says so."""
    with pytest.raises(AssertionError, match=r"\nnothing else is there either$"):
        assert_enqueued("work")
    for _ in range(12):
        litequeue_db.enqueue("mail:send", "x" * 1000)
    with pytest.raises(AssertionError) as told:
        assert_enqueued("mail:send", "y")
    lines = str(told.value).splitlines()
    assert lines[-1] == "  … and 2 more"
    assert len(lines) == 13
    assert max(map(len, lines)) < 400
    with pytest.raises(AssertionError, match=r"other kinds there wait: mail:send \(12\) \(was 'mail:send' meant\?\)$"):
        assert_enqueued("mail:sent")


def test_a_prefix_means_every_kind_that_begins_with_it(litequeue_db: Queue, assert_enqueued: AssertEnqueued) -> None:
    """As everywhere (contract §2)."""
    litequeue_db.enqueue_many([])
    for kind in ("mail:a", "mail:b", "mailing"):
        litequeue_db.enqueue(kind)
    assert [job.kind for job in assert_enqueued("mail:", count=2)] == ["mail:a", "mail:b"]


def test_all_pages_are_read(litequeue_db: Queue, assert_enqueued: AssertEnqueued) -> None:
    """More jobs than one page of a listing has."""
    with litequeue_db.transaction() as tx:
        for n in range(2100):
            tx.enqueue("work", n)
    assert [job.payload for job in assert_enqueued("work", count=2100)] == list(range(2100))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"kind": ""}, "^kind must be"),
        ({"kind": 7}, "^kind must be"),
        ({"count": 0}, "^count must be a whole number from 1 to 1000000, not 0"),
        ({"priority": 256}, "^priority must be"),
        ({"delay": -1}, "^delay must be"),
        ({"run_at": datetime(2025, 1, 1)}, "^run_at must be"),  # noqa: DTZ001 - a naive one, on purpose
        ({"delay": 1, "run_at": datetime(2025, 1, 1, tzinfo=UTC)}, "^delay and run_at are two ways"),
        ({"scope": ""}, "^scope must be"),
        ({"queue": None}, "^queue must be a Queue"),
    ],
)
def test_a_bad_argument_is_named(litequeue_db: Queue, options: dict[str, object], match: str) -> None:
    """With its value and the bounds: it is no failed assertion (contract §6)."""
    given: dict[str, object] = {"queue": litequeue_db, "kind": "work", **options}
    with pytest.raises(UsageError, match=match):
        plain_assert(**given)  # type: ignore[arg-type] # bad ones, on purpose
