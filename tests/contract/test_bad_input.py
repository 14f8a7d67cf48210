"""Bad input: each wrong argument is one clear error that names it, and changes nothing (§6)."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, cast

import pytest

import litequeue
from litequeue import ANY, JobState, Lease, LiteQueueError, NewJob, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litequeue import Queue

Call = tuple[str, "Callable[[Queue, Lease, object], object]"]
"""The argument's name, and a verb that is given the bad value for it."""

BAD_TEXT = [
    "",
    "x" * 256,
    "é" * 256,
    "a\nb",
    "a\x00b",
    "\x1b[31m",
    "\x7f",
    "\x85",
    "\ud800",
    "a\udfffb",
    7,
    b"a",
    ["a"],
]
BAD_SCOPE = [*BAD_TEXT, "litequeue:", "litequeue:internal"]
BAD_DURATION = [
    -1,
    -0.001,
    math.nan,
    math.inf,
    -math.inf,
    1e300,
    10**400,
    True,
    "5",
    b"5",
    1j,
    ...,
    timedelta(seconds=-1),
    timedelta.max,
]
BAD_TIME = [*BAD_DURATION, 0, 1e-9, timedelta(0)]
BAD_WHOLE = [-1, 1.5, math.nan, "1", True, ..., 10**30]
BAD_ID = ["", "not a uuid", "0" * 31, "\ud800", 7, b"0" * 16, ...]

VERBS: list[tuple[Call, list[object]]] = [
    # names
    (("kind", lambda q, _, bad: q.enqueue(cast("str", bad))), [*BAD_TEXT, None]),
    (("scope", lambda q, _, bad: q.enqueue("work", scope=cast("str", bad))), [*BAD_SCOPE, ANY]),
    (("idempotency_key", lambda q, _, bad: q.enqueue("work", idempotency_key=cast("str", bad))), list(BAD_TEXT)),
    (("scope", lambda q, _, bad: q.lease_next(scope=cast("str", bad))), list(BAD_SCOPE)),
    (("scope", lambda q, _, bad: q.wait(0, scope=cast("str", bad))), list(BAD_SCOPE)),
    (("scope", lambda q, _, bad: q.set_weight(cast("str", bad), 2)), [*BAD_SCOPE, ANY, None]),
    (("worker_id", lambda q, _, bad: q.lease_next(worker_id=cast("str", bad))), list(BAD_TEXT)),
    (("kinds", lambda q, _, bad: q.lease_next([cast("str", bad)])), [*BAD_TEXT, None]),
    (("kinds", lambda q, _, bad: q.lease_next(["work", cast("str", bad)])), [*BAD_TEXT, None]),
    (("kinds", lambda q, _, bad: q.lease_next(cast("list[str]", bad))), ["work", b"work", 7, [], ...]),
    (("kind", lambda q, _, bad: q.list(kind=cast("str", bad))), list(BAD_TEXT)),
    (("scope", lambda q, _, bad: q.list(scope=cast("str", bad))), list(BAD_SCOPE)),
    (("scope", lambda q, _, bad: q.stats(cast("str", bad))), list(BAD_SCOPE)),
    (("scope", lambda q, _, bad: q.promote_due(cast("str", bad))), list(BAD_SCOPE)),
    (("scope", lambda q, _, bad: q.expire_overdue(cast("str", bad))), list(BAD_SCOPE)),
    # counts
    (("priority", lambda q, _, bad: q.enqueue("work", priority=cast("int", bad))), [*BAD_WHOLE, 256, None]),
    (("max_attempts", lambda q, _, bad: q.enqueue("work", max_attempts=cast("int", bad))), [*BAD_WHOLE, 0]),
    (("weight", lambda q, _, bad: q.set_weight("work", cast("int", bad))), [*BAD_WHOLE, 0, 1001]),
    (("limit", lambda q, _, bad: q.lease_many(cast("int", bad))), [*BAD_WHOLE, 0, 10_001, None]),
    (("limit", lambda q, _, bad: q.list(limit=cast("int", bad))), [*BAD_WHOLE, 0, 10_001, None]),
    (("progress", lambda _, lease, bad: lease.checkpoint(b"x", cast("float", bad))), [-0.1, 1.1, math.nan, "1", True]),
    # durations and dates
    (("delay", lambda q, _, bad: q.enqueue("work", delay=cast("float", bad))), list(BAD_DURATION)),
    (("expires", lambda q, _, bad: q.enqueue("work", expires=cast("float", bad))), list(BAD_DURATION)),
    (("ttl", lambda q, _, bad: q.lease_next(ttl=cast("float", bad))), list(BAD_TIME)),
    (("ttl", lambda _, lease, bad: lease.extend(cast("float", bad))), list(BAD_TIME)),
    (("ttl", lambda q, lease, bad: q.extend_many([lease], cast("float", bad))), list(BAD_TIME)),
    (("delay", lambda _, lease, bad: lease.fail("boom", delay=cast("float", bad))), list(BAD_DURATION)),
    (("delay", lambda _, lease, bad: lease.release(cast("float", bad))), list(BAD_DURATION)),
    (
        ("run_at", lambda q, _, bad: q.enqueue("work", run_at=cast("datetime", bad))),
        [datetime(2030, 1, 1), date(2030, 1, 1), 1_900_000_000, "2030-01-01T00:00:00Z"],  # noqa: DTZ001 - naive is bad
    ),
    # ids and the rest
    (("job_id", lambda q, _, bad: q.enqueue("work", job_id=cast("str", bad))), list(BAD_ID)),
    (("job_id", lambda q, _, bad: q.get(cast("str", bad))), [*BAD_ID, None]),
    (("job_id", lambda q, _, bad: q.cancel(cast("str", bad))), [*BAD_ID, None]),
    (("job_id", lambda q, _, bad: q.retry_many([cast("str", bad)])), [*BAD_ID, None]),
    (("job_ids", lambda q, _, bad: q.cancel_many(cast("list[str]", bad))), ["0" * 32]),
    (("on_conflict", lambda q, _, bad: q.enqueue("work", on_conflict=bad)), ["", "replace", None, 1, [], "\ud800"]),  # type: ignore[arg-type]
    (("jobs", lambda q, _, bad: q.enqueue_many([cast("NewJob", bad)])), ["work", None, {"kind": "work"}]),
    (("state", lambda q, _, bad: q.list(cast("JobState", bad))), ["DEAD", 4, "dead", ...]),
    (("after", lambda q, _, bad: q.list(after=bad)), ["x", 7, ...]),  # type: ignore[arg-type]
    (("continuation", lambda _, lease, bad: lease.checkpoint(cast("bytes", bad))), ["text", 7, [1], bytearray(b"x")]),
    (("note", lambda _, lease, bad: lease.checkpoint(b"x", note=cast("str", bad))), [7, b"x", ...]),
    (("detail", lambda _, lease, bad: lease.note(cast("str", bad))), [None, 7, b"x"]),
    (("error", lambda _, lease, bad: lease.fail(cast("str", bad))), [None, 7, ValueError("x")]),
    (("lease", lambda q, _, bad: q.complete_many([cast("Lease", bad)])), ["x", None]),
    (("results", lambda q, lease, bad: q.complete_many([lease], cast("list[object]", bad))), [[], [1, 2]]),
]


@pytest.fixture
def lease(queue: Queue) -> Lease:
    """Give a lease of the only job."""
    queue.enqueue("held")
    (taken,) = queue.lease_many(1)
    return taken


@pytest.mark.parametrize(
    ("argument", "call", "value"),
    [
        pytest.param(argument, call, value, id=f"{n}-{argument}-{str(value)[:30]!a}")
        for n, ((argument, call), values) in enumerate(VERBS)
        for value in values
    ],
)
def test_a_wrong_argument_is_refused_by_name_value_and_bounds(
    queue: Queue, lease: Lease, argument: str, call: Callable[[Queue, Lease, object], object], value: object
) -> None:
    """One `UsageError`, which is a `ValueError`, in one line; nothing is stored, and the lease is still held (§6)."""
    before = queue.list()
    with pytest.raises(UsageError) as refusal:
        call(queue, lease, value)
    error = refusal.value
    assert isinstance(error, ValueError)
    assert error.argument == argument
    assert error.bounds
    text = str(error)
    assert argument in text
    assert error.bounds in text
    assert len(text) < 400
    assert "\n" not in text
    assert queue.list() == before
    lease.complete()


class Kind(StrEnum):
    """An application's own names."""

    MAIL = "mail"


@pytest.mark.parametrize(
    "name",
    [
        "x",
        " ",
        "x" * 255,
        "é" * 255,
        "🎉" * 255,
        "a:b:c",
        ":",
        "naïve — ☃",
        "litequeue",
        "'; DROP TABLE",
        "%",
        "null",
        Kind.MAIL,
    ],
)
def test_any_other_text_is_a_name(queue: Queue, name: str) -> None:
    """1 to 255 characters, whatever they are; they come back as they went in (§2)."""
    job_id = queue.enqueue(name, scope=name, idempotency_key=name).job_id
    job = queue.get(job_id)
    assert (job.kind, job.scope, job.idempotency_key) == (name, name, name)
    lease = queue.lease_next([name], scope=name, worker_id=name)
    assert lease is not None
    assert (lease.kind, lease.worker_id) == (name, name)
    assert [found.job_id for found in queue.list(kind=name, scope=name)] == [job_id]
    lease.complete()


@pytest.mark.parametrize(
    "arguments",
    [
        {"priority": 0},
        {"priority": 255},
        {"delay": 0},
        {"delay": 1e-7},
        {"delay": timedelta(days=365 * 50)},
        {"expires": 3_000_000_000},
        {"run_at": datetime(9999, 12, 31, tzinfo=UTC)},
        {"run_at": datetime(1970, 1, 1, tzinfo=UTC)},
        {"max_attempts": 1},
        {"job_id": "{01977420-DC00-7000-8FA9-F3C6F1883737}"},
    ],
    ids=repr,
)
def test_values_at_their_bounds_are_good(queue: Queue, arguments: dict[str, object]) -> None:
    """What is within the bounds is taken, also at their edge (§2, §6)."""
    assert queue.enqueue("work", **arguments).created  # type: ignore[arg-type]
    assert queue.stats().total == 1


OPENINGS: dict[str, list[object]] = {
    "scope": [*BAD_SCOPE, ANY],
    "busy_timeout": [*BAD_DURATION],
    "durability": ["", "FULL", "none", None, 1, []],
    "mode": [-1, 0o1777, "600", 1.5],
}


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        pytest.param(argument, value, id=f"{argument}-{str(value)[:30]!a}")
        for argument, values in OPENINGS.items()
        for value in values
    ],
)
def test_a_wrong_argument_of_open_creates_nothing(tmp_path: Path, argument: str, value: object) -> None:
    """`litequeue.open` checks before it touches anything (§6, §9)."""
    with pytest.raises(UsageError, match=argument):
        litequeue.open(tmp_path / "new.db", **{argument: value})  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["", ":memory:", "a\x00b"])
def test_a_path_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """A queue lives in a file, so one that could not be found again is not made (§6)."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LiteQueueError):
        litequeue.open(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argument", "arguments"),
    [
        ("kind", {"kind": ""}),
        ("scope", {"kind": "work", "scope": "litequeue:x"}),
        ("priority", {"kind": "work", "priority": 256}),
        ("delay", {"kind": "work", "delay": -1}),
        ("run_at", {"kind": "work", "run_at": datetime(2030, 1, 1)}),  # noqa: DTZ001 - naive is bad
        ("job_id", {"kind": "work", "job_id": "x"}),
    ],
)
def test_a_new_job_is_checked_where_it_is_written(argument: str, arguments: dict[str, object]) -> None:
    """`NewJob` itself refuses, so the fault is found at its place and not in a batch of a thousand (§6, V1)."""
    with pytest.raises(UsageError, match=argument):
        NewJob(**arguments)  # type: ignore[arg-type]


def test_what_has_a_job_id_is_told_to_give_it(queue: Queue) -> None:
    """The answer of `enqueue`, a job or a lease in the place of an id (§6)."""
    made = queue.enqueue("work")
    for given in (made, queue.get(made.job_id), queue.lease_next()):
        for call in (queue.get, queue.wait_for, queue.cancel):
            with pytest.raises(
                UsageError, match=r"^job_id must be a UUID or the text of one, not .*; give its \.job_id$"
            ):
                call(given)  # type: ignore[arg-type]
