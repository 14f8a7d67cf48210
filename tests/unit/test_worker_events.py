"""What a worker tells of its jobs, to a hook and to the log (issue 5, logging).

Owns the promise that a hook harms nothing. Leaves out when each event comes: that is the worker's part.
"""

from __future__ import annotations

import json
import logging
import pickle
from typing import TYPE_CHECKING

import pytest

from litequeue import SYSTEM, Discard, Handler, Lease, UsageError, Worker, WorkerEvent
from litequeue.settlement import Completed, Failed, Released
from litequeue.worker.events import LEVELS, Events, stopping
from litequeue.worker.outcomes import Discarded, Snoozed

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Queue
    from litequeue.settlement import Settlement
    from litequeue.worker.handlers import Handling


@pytest.fixture
def lease(queue: Queue) -> Lease:
    """Give the lease of a job."""
    queue.enqueue("a:b", scope="tenant")
    (lease,) = queue.lease_many(1, scope="tenant", worker_id="worker-1")
    return lease


@pytest.mark.parametrize(
    ("settle", "name", "detail"),
    [
        (lambda _: None, "settled", ""),
        (lambda lease: Completed(lease, 5), "completed", ""),
        (lambda lease: Failed(lease, "ValueError: boom\nTraceback…"), "failed", "ValueError: boom"),
        (lambda lease: Failed(lease, "x" * 2000, retryable=False), "failed", "x" * 256),
        (lambda lease: Discarded(lease, "gone", retryable=False), "discarded", "gone"),
        (lambda lease: Snoozed(lease, 90), "snoozed", "for 90 s"),
        (Released, "released", ""),
        (lambda lease: Released(lease, 0.5), "released", "for 0.5 s"),
    ],
)
def test_an_end_is_told_by_its_name_and_its_first_line(
    lease: Lease, settle: Callable[[Lease], Settlement | None], name: str, detail: str
) -> None:
    """With everything that tells one run from another (issue 5)."""
    seen: list[WorkerEvent] = []
    Events(seen.append).ended(lease, settle(lease), 1.5)
    (event,) = seen
    assert (event.name, event.detail, event.duration_s) == (name, detail, 1.5)
    assert (event.job_id, event.kind, event.scope) == (lease.job_id, "a:b", "tenant")
    assert (event.attempt, event.generation, event.worker_id) == (1, lease.lease_generation, "worker-1")


def test_a_start_a_retake_a_loss_and_a_timeout_are_told(lease: Lease) -> None:
    """Each with what is known at that time (issue 5)."""
    seen: list[WorkerEvent] = []
    events = Events(seen.append)
    events.started(lease)
    events.timed_out(lease, 2.0)
    events.lost(lease, 3.0, "the job is cancelled")
    events.ended(lease, Failed(lease, "boom"), 4.0, is_retaken=True)
    assert [(event.name, event.duration_s, event.detail) for event in seen] == [
        ("started", None, ""),
        ("timed_out", 2.0, ""),
        ("lost", 3.0, "the job is cancelled"),
        ("retried", 4.0, "boom"),
    ]


def test_the_log_has_the_same_as_extras(lease: Lease, caplog: pytest.LogCaptureFixture) -> None:
    """Plain values that any formatter can write, under `litequeue.worker` (issue 5, logging)."""
    with caplog.at_level(logging.INFO, logger="litequeue"):
        Events().ended(lease, Failed(lease, "ValueError: boom\nTraceback…"), 0.25)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("litequeue.worker", logging.WARNING)
    assert record.getMessage() == f"failed a:b {lease.job_id}, attempt 1 after 0.250 s: ValueError: boom"
    expected = {
        "event": "failed",
        "job_id": str(lease.job_id),
        "kind": "a:b",
        "scope": "tenant",
        "attempt": 1,
        "generation": lease.lease_generation,
        "worker_id": "worker-1",
        "duration_s": 0.25,
        "detail": "ValueError: boom",
    }
    assert {name: getattr(record, name) for name in expected} == expected
    json.dumps(expected)


def test_what_went_wrong_is_louder_than_what_went_well(lease: Lease, caplog: pytest.LogCaptureFixture) -> None:
    """A log at WARNING shows failures, losses and timeouts only; starts are for debugging (issue 5)."""
    events = Events()
    with caplog.at_level(logging.WARNING, logger="litequeue"):
        events.started(lease)
        for settlement in (Completed(lease), Snoozed(lease, 5), Released(lease), None):
            events.ended(lease, settlement, 1.0)
    assert caplog.records == []
    assert {name for name, level in LEVELS.items() if level >= logging.WARNING} == {
        *("failed", "retried", "lost", "timed_out"),
    }


def test_a_death_is_one_line_of_a_log(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    """The queue's own warning; the worker's record is for debugging, so that none is told twice (issue 8)."""
    gone, given_up = queue.enqueue("gone").job_id, queue.enqueue("given:up").job_id

    def fail(_lease: Lease) -> None:
        raise ValueError("no")

    def give_up(_lease: Lease) -> None:
        raise Discard("no")

    handlers: dict[str, Handling] = {"gone": Handler(fail, permanent=ValueError), "given:up": give_up}
    with caplog.at_level(logging.INFO, logger="litequeue"):
        Worker(queue, handlers, until_empty=True, maintenance=False).run()
    assert sorted(record.getMessage() for record in caplog.records if record.name.startswith("litequeue")) == sorted(
        [f"job {gone} (gone) is dead: ValueError: no", f"job {given_up} (given:up) is dead: no"]
    )


def test_a_worker_that_stops_says_how_many_jobs_may_run_on() -> None:
    """For how long, and what a second word does; where nothing runs, there is nothing to say of it (issue 8)."""
    assert stopping(0, 30) == "stopping"
    more = "told again (Ctrl-C, SIGTERM or stop), it gives"
    assert stopping(1, 0.5) == f"stopping: 1 job may run on for up to 0.5 s; {more} it back at once"
    assert stopping(3, 30) == f"stopping: 3 jobs may run on for up to 30 s; {more} them back at once"


def test_the_system_scope_is_text_in_the_log(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    """While an event has the object itself (§2)."""
    queue.enqueue("a", scope=SYSTEM)
    (lease,) = queue.lease_many(1, scope=SYSTEM)
    seen: list[WorkerEvent] = []
    with caplog.at_level(logging.DEBUG, logger="litequeue"):
        Events(seen.append).started(lease)
    assert seen[0].scope is SYSTEM
    assert vars(caplog.records[0])["scope"] == "SYSTEM"


def test_where_nobody_listens_no_event_is_made(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job more costs nothing more."""

    def made(*_: object) -> None:
        raise AssertionError("an event was made")

    monkeypatch.setattr("litequeue.worker.events.WorkerEvent", made)
    logging.getLogger("litequeue.worker").setLevel(logging.WARNING)
    try:
        Events().started(lease)
        with pytest.raises(AssertionError, match="was made"):
            Events(print).started(lease)
    finally:
        logging.getLogger("litequeue.worker").setLevel(logging.NOTSET)


def test_an_event_of_another_process_is_passed_on_and_logged_once(
    lease: Lease, caplog: pytest.LogCaptureFixture
) -> None:
    """The process where it happened tells its parent, and leaves the log to it (issue 5, logging)."""
    seen: list[WorkerEvent] = []
    parent = Events(seen.append)
    child = Events(lambda event: parent.tell(pickle.loads(pickle.dumps(event))), is_logged=False)  # noqa: S301 - ours
    child.lost(lease, 1.0, "the job is cancelled")
    assert [(event.name, event.job_id) for event in seen] == [("lost", lease.job_id)]
    assert [record.getMessage() for record in caplog.records] == [
        f"lost a:b {lease.job_id}, attempt 1 after 1.000 s: the job is cancelled"
    ]


@pytest.mark.parametrize("error", [ValueError, SystemExit, GeneratorExit])
def test_a_hook_that_fails_harms_nothing_and_is_told_once_a_sort(
    lease: Lease, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    """The worker goes on, and its log is not flooded (issue 5)."""
    errors = [error("first"), error("second"), KeyError("other"), error("third")]
    left = errors.copy()

    def hook(_: WorkerEvent) -> None:
        raise left.pop(0)

    events = Events(hook)
    for _ in errors:
        events.ended(lease, Completed(lease), 1.0)
    assert left == []
    told = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert told == [errors[0], errors[2]]


async def asynchronous(event: WorkerEvent) -> None:
    """Never run."""


@pytest.mark.parametrize("hook", [5, "print", asynchronous])
def test_a_hook_is_a_plain_function(hook: Callable[[WorkerEvent], object]) -> None:
    """`UsageError` naming it; nobody would await an asynchronous one (§6)."""
    with pytest.raises(UsageError, match=r"^on_event must be a plain function"):
        Events(hook)
