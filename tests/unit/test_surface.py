"""The public surface: the fixed names of contract §9, their parameters and defaults, and that each is described.

Leaves out what the contract gives to later issues (`Worker`).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import (
    Attached,
    Clock,
    Enqueued,
    Event,
    Exchange,
    Job,
    JobWaiter,
    Lease,
    Maintenance,
    MaintenanceReport,
    NewJob,
    Queue,
    Stats,
    Transaction,
    Waiter,
    dbapi,
    testing,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NEEDED = inspect.Parameter.empty
"""Stands for a parameter without a default."""

NAMES = {
    *("open", "Queue", "Transaction", "Lease", "NewJob", "Job", "JobState", "Event", "Transition", "Enqueued", "Stats"),
    *("SYSTEM", "ANY", "Maintenance", "MaintenanceReport", "Clock", "SystemClock"),
    *("LiteQueueError", "UsageError", "PayloadError", "RecordError", "JobNotFound", "DuplicateJob", "LeaseConflict"),
    *("InvalidTransition", "QueueBusy", "QueueFull", "QueueClosed", "CannotOpen", "NotAQueue", "SchemaMismatch"),
    *("StorageCorrupt", "StorageLost", "OutcomeUnknown", "JobFailed", "WaitTimeout"),
    *("Waiter", "JobWaiter", "Pause"),
    *("doctor", "Diagnosis", "Finding", "Severity", "restore", "Copied"),
    *("Schedule", "ScheduleNotFound", "InvalidSpec", "LeadershipLost"),
    *("Completed", "Failed", "Released", "Settlement", "Exchange"),
    *("Outbox", "Message", "attach", "Attached"),
    *("Batch", "Dependencies"),
    *("WorkerInfo", "RunningJob"),
}

ENQUEUE: dict[str, object] = {
    "kind": NEEDED,
    "payload": None,
    "scope": None,
    "priority": 100,
    "delay": None,
    "run_at": None,
    "expires": None,
    "max_attempts": None,
    "idempotency_key": None,
    "on_conflict": "return",
    "job_id": None,
    "after": (),
    "on_parent_failure": "cancel",
}
LEASING: dict[str, object] = {"kinds": None, "scope": None, "worker_id": None, "ttl": None}

# The verbs of a queue, which are those of a transaction.
VERBS: dict[str, dict[str, object]] = {
    "enqueue": ENQUEUE,
    "enqueue_many": {"jobs": NEEDED},
    "batch": {"jobs": NEEDED, "then": NEEDED},
    "lease_next": LEASING,
    "lease_many": {"limit": NEEDED, **LEASING},
    "extend": {"lease": NEEDED, "ttl": None},
    "extend_many": {"leases": NEEDED, "ttl": None},
    "checkpoint": {"lease": NEEDED, "continuation": None, "progress": None, "note": None},
    "note": {"lease": NEEDED, "detail": NEEDED},
    "complete": {"lease": NEEDED, "result": None, "then": ()},
    "complete_many": {"leases": NEEDED, "results": None},
    "fail": {"lease": NEEDED, "error": NEEDED, "retryable": True, "delay": None},
    "fail_many": {"leases": NEEDED, "error": NEEDED, "retryable": True, "delay": None},
    "release": {"lease": NEEDED, "delay": None},
    "release_many": {"leases": NEEDED, "delay": None},
    "cancel": {"job_id": NEEDED},
    "cancel_many": {"job_ids": NEEDED},
    "retry": {"job_id": NEEDED},
    "retry_many": {"job_ids": NEEDED},
    "edit": {"job_id": NEEDED, "priority": None, "delay": None, "run_at": None},
    "edit_many": {"job_ids": NEEDED, "priority": None, "delay": None, "run_at": None},
    "remove": {"job_id": NEEDED},
    "remove_many": {"job_ids": NEEDED},
    "reap_expired": {},
    "promote_due": {"scope": litequeue.ANY},
    "expire_overdue": {"scope": litequeue.ANY},
    "tell_waiting": {},
    "prune": {},
    "schedule": {
        "name": NEEDED,
        "spec": NEEDED,
        "kind": NEEDED,
        "payload": None,
        "scope": None,
        "priority": 100,
        "max_attempts": None,
        "expires": None,
        "timezone": "UTC",
        "misfire": "all",
    },
    "unschedule": {"name": NEEDED},
    "schedules": {},
    "pause_schedule": {"name": NEEDED},
    "resume_schedule": {"name": NEEDED},
    "run_now": {"name": NEEDED},
    "put_message": {"outbox": NEEDED, "message": NEEDED, "key": NEEDED, "message_id": None},
    "discard_message": {"outbox": NEEDED, "message_id": NEEDED},
    "waiting_messages": {"outbox": NEEDED},
    "get": {"job_id": NEEDED},
    "find": {"beginning": NEEDED, "state": None, "limit": 10},
    "dependencies": {"job_id": NEEDED},
    "list": {"state": None, "kind": None, "scope": None, "limit": 100, "after": None},
    "scopes": {},
    "held_back": {"job_id": NEEDED},
    "stats": {"scope": None},
    "settings": {"kind": None},
    "set": {"name": NEEDED, "value": NEEDED, "kind": None, "scope": None},
    "set_weight": {"scope": NEEDED, "weight": NEEDED},
    "weights": {},
}
OF_A_LEASE: dict[str, dict[str, object]] = {
    "extend": {"ttl": None},
    "checkpoint": {"continuation": None, "progress": None, "note": None},
    "note": {"detail": NEEDED},
    "complete": {"result": None, "then": ()},
    "fail": {"error": NEEDED, "retryable": True, "delay": None},
    "release": {"delay": None},
    "transaction": {},
}
CALLS: list[tuple[Callable[..., object], dict[str, object]]] = [
    (
        litequeue.open,
        {
            "path": NEEDED,
            "scope": "default",
            "durability": "full",
            "busy_timeout": 10.0,
            "create": True,
            "mode": 0o600,
            "clock": None,
            "allow_network": False,
        },
    ),
    (litequeue.attach, {"connection": NEEDED, "scope": "default", "clock": None, "allow_network": False}),
    (Attached.close, {}),
    (NewJob, ENQUEUE),
    (Maintenance, {"queue": NEEDED}),
    (Queue.wait, {"timeout": None, "kinds": None, "scope": None}),
    (Queue.waiter, {"kinds": None, "scope": None}),
    (Queue.wait_for, {"job_id": NEEDED, "timeout": None}),
    (Queue.job_waiter, {"job_id": NEEDED}),
    (Waiter.wait, {"timeout": None}),
    (Waiter.pause, {"timeout": None}),
    (JobWaiter.wait, {"timeout": None}),
    (Waiter.interrupt, {}),
    *((getattr(owner, name), expected) for owner in (Queue, Transaction, Attached) for name, expected in VERBS.items()),
    *((getattr(Lease, name), expected) for name, expected in OF_A_LEASE.items()),
    (Queue.exchange, {"settlements": NEEDED, "limit": 0, **LEASING}),
    (litequeue.Completed, {"lease": NEEDED, "result": None, "then": ()}),
    (litequeue.Failed, {"lease": NEEDED, "error": NEEDED, "retryable": True, "delay": None, "retake_within": 0.0}),
    (litequeue.Released, {"lease": NEEDED, "delay": None}),
    (Queue.sibling, {}),
    (Queue.register, {}),
    (Queue.workers, {}),
    (Queue.transaction, {}),
    (Queue.lease_in_transaction, {"kinds": None, "scope": None, "worker_id": None}),
    (Queue.close, {}),
    (litequeue.Outbox, {"queue": NEEDED, "name": NEEDED}),
    (litequeue.Outbox.put, {"tx": NEEDED, "message": NEEDED, "key": NEEDED, "message_id": None}),
    (litequeue.Outbox.dead, {"limit": 100, "after": None}),
    (litequeue.Outbox.retry, {"message_id": NEEDED}),
    (litequeue.Outbox.discard, {"message_id": NEEDED}),
    (Transaction.execute, {"sql": NEEDED, "parameters": ()}),
    (Maintenance.run_once, {}),
]

JOB_FIELDS = {
    *("job_id", "scope", "kind", "payload", "priority", "created_at", "leased_at", "finished_at", "state", "attempts"),
    *("reaps", "max_attempts", "lease_generation", "worker_id", "holder", "lease_deadline", "beats", "checkpoints"),
    *("last_beat_at", "not_before", "expires_at", "idempotency_key", "continuation", "progress", "note", "result"),
    *("last_error", "events", "boundary"),
}


def parameters(call: Callable[..., object]) -> dict[str, object]:
    """Return the parameters of a call with their defaults, in order, `self` left out."""
    found = inspect.signature(call).parameters.values()
    return {parameter.name: parameter.default for parameter in found if parameter.name != "self"}


def test_the_package_has_the_names_of_the_contract() -> None:
    """Each in `__all__`, once, and there (§9)."""
    assert set(litequeue.__all__) >= NAMES
    assert len(set(litequeue.__all__)) == len(litequeue.__all__)
    assert all(hasattr(litequeue, name) for name in litequeue.__all__)


@pytest.mark.parametrize(("call", "expected"), CALLS, ids=[call.__qualname__ for call, _ in CALLS])
def test_a_call_has_the_parameters_and_the_defaults_of_the_contract(
    call: Callable[..., object], expected: dict[str, object]
) -> None:
    """By name, in the contract's order (§9)."""
    found = parameters(call)
    assert found == expected
    assert list(found) == list(expected)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (litequeue.open, ["path"]),
        (Queue.enqueue, ["self", "kind", "payload"]),
        (Queue.lease_next, ["self", "kinds"]),
        (Queue.schedule, ["self", "name", "spec", "kind", "payload"]),
        (Queue.lease_many, ["self", "limit", "kinds"]),
        (Lease.checkpoint, ["self", "continuation", "progress", "note"]),
        (Lease.fail, ["self", "error"]),
    ],
)
def test_what_the_contract_gives_by_place_may_be_given_by_place(call: Callable[..., object], names: list[str]) -> None:
    """And all of it may be given by name (§9)."""
    kinds = {parameter.name: parameter.kind for parameter in inspect.signature(call).parameters.values()}
    assert [name for name, kind in kinds.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD] == names
    assert inspect.Parameter.POSITIONAL_ONLY not in kinds.values()


@pytest.mark.parametrize("name", ["__enter__", "__exit__"])
def test_a_queue_is_a_context_manager(name: str) -> None:
    """`with litequeue.open(…) as q` (§9)."""
    assert hasattr(Queue, name)


def test_the_records_have_their_fields() -> None:
    """A job those of §2; results, events, leases and reports those of §9 (§2, §9)."""
    hidden = {"encoded_payload", "encoded_result", "encoded_events", "decoder"}
    properties = {name for name, item in vars(Job).items() if isinstance(item, property)}
    assert {field.name for field in fields(Job)} - hidden | properties == JOB_FIELDS
    assert Enqueued._fields == ("job_id", "created")
    assert Event._fields == ("at", "transition", "detail")
    for name in (
        "job_id",
        "kind",
        "payload",
        "attempts",
        "lease_generation",
        "worker_id",
        "continuation",
        "scope",
        "boundary",
    ):
        assert hasattr(Lease, name)
    for name in ("lost", "settled", "cancelled"):
        assert hasattr(Lease, name)
    assert [field.name for field in fields(Exchange)] == ["leases", "retaken", "refused", "dead"]
    assert {"reaped", "promoted", "expired", "pruned"} < {field.name for field in fields(MaintenanceReport)}
    assert {"counts", "by_kind", "oldest_ready_at"} < {field.name for field in fields(Stats)}


def test_an_application_enqueues_by_the_same_arguments() -> None:
    """On its own connection, and with a clock where a handle has one (issue 7, item 2)."""
    own = {"connection": NEEDED, "clock": None}
    assert parameters(dbapi.enqueue) == {**parameters(Queue.enqueue), "scope": "default", **own}
    assert parameters(dbapi.enqueue_many) == {**parameters(Queue.enqueue_many), "scope": "default", **own}


def test_a_clock_has_three_methods_and_the_fake_one_moves_each() -> None:
    """`wall_us`, `monotonic_us`, `boot_id` (§9)."""
    for name in ("wall_us", "monotonic_us", "boot_id"):
        for clock in (Clock, litequeue.SystemClock, testing.FakeClock):
            assert parameters(getattr(clock, name)) == {}
    assert parameters(testing.FakeClock.advance) == {"duration": NEEDED}
    assert parameters(testing.FakeClock.step_wall) == {"duration": NEEDED}


PUBLIC = [
    (f"{name}.{member}", getattr(item, member))
    for name in litequeue.__all__
    if inspect.isclass(item := getattr(litequeue, name))
    for member in dir(item)
    if not member.startswith("_")
    and (inspect.isfunction(getattr(item, member)) or hasattr(getattr(item, member), "fget"))
    and getattr(getattr(item, member), "__module__", None) != Mapping.get.__module__  # described by Python's own
]


@pytest.mark.parametrize(("name", "item"), PUBLIC, ids=[name for name, _ in PUBLIC])
def test_every_public_method_is_described(name: str, item: object) -> None:
    """In a docstring that begins with one line and ends it (STYLE "Public docstrings")."""
    description = inspect.getdoc(item)
    assert description, name
    assert description.splitlines()[0].rstrip().endswith(".")


@pytest.mark.parametrize("name", sorted(NAMES - {"ANY", "SYSTEM", "Settlement"}))
def test_every_public_name_is_described(name: str) -> None:
    """Not by the docstring that a dataclass makes of its fields (STYLE "Public docstrings")."""
    description = getattr(litequeue, name).__doc__
    assert description
    assert not description.startswith(f"{name}(")


def test_the_package_says_its_version() -> None:
    """Three numbers (§9)."""
    assert all(part.isdigit() for part in litequeue.__version__.split("."))
    assert litequeue.__version__.count(".") == 2
