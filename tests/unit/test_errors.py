"""The tree of errors, and the data that each carries (§9, G11)."""

from __future__ import annotations

import copy
import pickle
import re
from dataclasses import fields, replace
from uuid import UUID

import pytest

import litequeue
from litequeue import errors
from litequeue.errors import (
    CannotOpen,
    DuplicateJob,
    InvalidSpec,
    InvalidTransition,
    JobFailed,
    JobNotFound,
    LeadershipLost,
    LeaseConflict,
    LiteQueueError,
    NotAQueue,
    OutcomeUnknown,
    PayloadError,
    QueueBusy,
    QueueClosed,
    QueueFull,
    RecordError,
    ScheduleNotFound,
    SchemaMismatch,
    StorageCorrupt,
    StorageLost,
    UsageError,
    WaitTimeout,
)
from litequeue.model import Job, JobState

ID = UUID("01977420-dc00-7000-8000-000000000001")

TREE = [
    *("UsageError", "InvalidSpec", "PayloadError", "RecordError", "JobNotFound", "DuplicateJob"),
    *("ScheduleNotFound", "JobFailed", "WaitTimeout", "LeaseConflict", "InvalidTransition", "LeadershipLost"),
    *("QueueBusy", "QueueFull", "QueueClosed", "CannotOpen", "NotAQueue", "SchemaMismatch", "StorageCorrupt"),
    *("StorageLost", "OutcomeUnknown"),
]
"""What the contract lists under `LiteQueueError`."""

DEAD = Job(
    **{
        **dict.fromkeys(field.name for field in fields(Job)),  # type: ignore[arg-type] # what is not looked at
        "job_id": ID,
        "kind": "mail:send",
        "state": JobState.DEAD,
        "last_error": "ValueError: no\nTraceback …",
    }
)
# Each error, and what it says: its attributes, and the words of its message.
EXAMPLES: list[tuple[LiteQueueError, dict[str, object], list[str]]] = [
    (
        UsageError.of("priority", 256, "a whole number from 0 to 255"),
        {"argument": "priority", "value": 256, "bounds": "a whole number from 0 to 255"},
        ["priority must be a whole number from 0 to 255, not 256"],
    ),
    (UsageError("not here"), {"argument": None, "value": None, "bounds": None}, ["not here"]),
    (
        InvalidSpec("61 * * * *", "bad minute"),
        {
            "argument": "spec",
            "value": "61 * * * *",
            "bounds": "@every with an interval (s, m, h or d), five cron fields, or a name such as @daily",
            "spec": "61 * * * *",
            "reason": "bad minute",
        },
        ["'61 * * * *'", "bad minute"],
    ),
    (PayloadError("too large"), {}, ["too large"]),
    (RecordError("garbage", job_id=ID), {"job_id": ID}, ["garbage"]),
    (JobNotFound(ID), {"job_id": ID}, [str(ID)]),
    (DuplicateJob("taken", job_id=ID, idempotency_key="k"), {"job_id": ID, "idempotency_key": "k"}, ["taken"]),
    (ScheduleNotFound("nightly"), {"name": "nightly"}, ["no schedule 'nightly'"]),
    (LeadershipLost("/a/b-schedules"), {"path": "/a/b-schedules"}, ["/a/b-schedules"]),
    (
        JobFailed(DEAD),
        {"job_id": ID, "last_error": "ValueError: no\nTraceback …", "job": DEAD},
        [f"job {ID} (mail:send) is dead: ValueError: no"],
    ),
    (
        JobFailed(replace(DEAD, last_error=None)),
        {"job_id": ID, "last_error": None, "job": replace(DEAD, last_error=None)},
        [f"job {ID} (mail:send) is dead: it left no error"],
    ),
    (
        WaitTimeout(ID, "leased"),
        {"job_id": ID, "state": "leased"},
        [f"the wait for job {ID} is over, and it is leased"],
    ),
    (WaitTimeout(ID, None), {"job_id": ID, "state": None}, [str(ID), "nothing was seen of it"]),
    (
        LeaseConflict(ID, 7, "the job is dead"),
        {"job_id": ID, "lease_generation": 7, "reason": "the job is dead"},
        [str(ID), "7", "the job is dead"],
    ),
    (
        InvalidTransition(ID, "completed", "cancel"),
        {"job_id": ID, "state": "completed", "verb": "cancel"},
        [f"cannot cancel job {ID}: it is completed"],
    ),
    (QueueBusy("locked"), {}, ["locked"]),
    (QueueFull("no room"), {}, ["no room"]),
    (QueueClosed("closed"), {}, ["closed"]),
    (CannotOpen("/a/b", "no such folder"), {"path": "/a/b", "reason": "no such folder"}, ["/a/b", "no such folder"]),
    (NotAQueue("/a/b", "it is text"), {"path": "/a/b", "reason": "it is text"}, ["/a/b", "it is text"]),
    (
        SchemaMismatch("/a/b", "version 9", "version 1"),
        {"path": "/a/b", "found": "version 9", "expected": "version 1"},
        ["/a/b", "version 9", "version 1"],
    ),
    (StorageCorrupt("malformed"), {}, ["malformed"]),
    (StorageLost("replaced"), {"committed": False}, ["replaced"]),
    (StorageLost("replaced", committed=True), {"committed": True}, ["replaced"]),
    (OutcomeUnknown("who knows"), {}, ["who knows"]),
]
NAMES = [f"{type(error).__name__}-{number}" for number, (error, *_) in enumerate(EXAMPLES)]


def test_the_tree_is_the_contracts() -> None:
    """One root, all others directly below it but one, and no more; two are errors of Python too (§9)."""
    found = {name: item for name, item in vars(errors).items() if isinstance(item, type)}
    assert set(found) == {"LiteQueueError", *TREE}
    assert {name: item.__bases__ for name, item in found.items()} == {
        "LiteQueueError": (Exception,),
        **dict.fromkeys(TREE, (LiteQueueError,)),
        "UsageError": (LiteQueueError, ValueError),
        "InvalidSpec": (UsageError,),
        "WaitTimeout": (LiteQueueError, TimeoutError),
    }


def test_every_error_can_be_caught_by_name_from_the_package() -> None:
    """`litequeue.LeaseConflict` is all that one needs (§9)."""
    for name in ("LiteQueueError", *TREE):
        assert getattr(litequeue, name) is getattr(errors, name)
        assert name in litequeue.__all__


def test_the_tree_drawn_in_the_module_is_the_tree() -> None:
    """A drawing that lies is worse than none (§9)."""
    assert re.findall(r"[├└]── (\w+)", errors.__doc__ or "") == TREE


def test_every_error_has_its_example_here() -> None:
    """So that none carries data that nobody looks at (§9)."""
    assert {type(error).__name__ for error, *_ in EXAMPLES} == set(TREE)


@pytest.mark.parametrize(("error", "attributes", "words"), EXAMPLES, ids=NAMES)
def test_an_error_carries_its_data_as_attributes_and_says_it(
    error: LiteQueueError, attributes: dict[str, object], words: list[str]
) -> None:
    """No caller has to parse a message, and no reader to look at attributes (§6, §9)."""
    assert vars(error) == attributes
    for word in words:
        assert word in str(error)


@pytest.mark.parametrize(("error", "attributes", "words"), EXAMPLES, ids=NAMES)
def test_an_error_travels_between_processes(
    error: LiteQueueError, attributes: dict[str, object], words: list[str]
) -> None:
    """A pool of processes hands its workers' errors back by pickle: one that cannot be read breaks the pool (§9)."""
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301 - our own
        assert type(twin) is type(error)
        assert vars(twin) == attributes
        assert str(twin) == str(error)
    assert words
