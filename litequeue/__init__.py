"""litequeue: a job queue in one SQLite file, for many threads and processes on one machine.

    import litequeue

    q = litequeue.open("app.queue")
    q.enqueue("mail:send", {"to": "a@b.c"})
    lease = q.lease_next()
    if lease is not None:
        ...  # do the work, then say so
        lease.complete()

Start with `open`; every verb is on `Queue`, what a holder says is on `Lease`, and `Queue.transaction` gives a
`Transaction` that has every verb too. `Job` is what `get` and `list` return. What may go wrong is drawn in
`litequeue.errors`; what tests need is in `litequeue.testing`. Ids in docstrings, such as G4, V3 or §6, are those of
the contract (docs/contract.md) that the tests prove line by line.

A name is loaded from its module when it is first asked for: who imports only `litequeue.dbapi` brings no apsw into the
process, where another SQLite has the file open.
"""

from __future__ import annotations

import os
import threading
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litequeue.clock import Clock, SystemClock
    from litequeue.diagnosis import Diagnosis, Finding, Severity
    from litequeue.doctoring import doctor
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
    from litequeue.lease import Duration, Lease
    from litequeue.maintenance import Maintenance, MaintenanceReport
    from litequeue.model import (
        ANY,
        SYSTEM,
        Batch,
        Copied,
        Dependencies,
        Enqueued,
        Event,
        Job,
        JobState,
        Misfire,
        NewJob,
        OnConflict,
        OnParentFailure,
        Pause,
        Schedule,
        Scope,
        Stats,
        Transition,
    )
    from litequeue.outbox import Message, Outbox
    from litequeue.queue import Queue, open
    from litequeue.restoring import restore
    from litequeue.scheduler import run_schedules
    from litequeue.settlement import Completed, Exchange, Failed, Released, Settlement
    from litequeue.sqlite.arrivals import Waiter
    from litequeue.sqlite.attached import Attached, attach
    from litequeue.sqlite.attending import RunningJob, WorkerInfo
    from litequeue.sqlite.results import JobWaiter
    from litequeue.sqlite.store import Durability
    from litequeue.sqlite.transaction import Transaction
    from litequeue.worker import (
        Discard,
        Ending,
        Handler,
        Retry,
        Snooze,
        Task,
        Tasks,
        Worker,
        WorkerEvent,
        current_async_lease,
        current_lease,
    )

__version__ = "0.1.0"

__all__ = [
    "ANY",
    "SYSTEM",
    "Attached",
    "Batch",
    "CannotOpen",
    "Clock",
    "Completed",
    "Copied",
    "Dependencies",
    "Diagnosis",
    "Discard",
    "DuplicateJob",
    "Durability",
    "Duration",
    "Ending",
    "Enqueued",
    "Event",
    "Exchange",
    "Failed",
    "Finding",
    "Handler",
    "InvalidSpec",
    "InvalidTransition",
    "Job",
    "JobFailed",
    "JobNotFound",
    "JobState",
    "JobWaiter",
    "LeadershipLost",
    "Lease",
    "LeaseConflict",
    "LiteQueueError",
    "Maintenance",
    "MaintenanceReport",
    "Message",
    "Misfire",
    "NewJob",
    "NotAQueue",
    "OnConflict",
    "OnParentFailure",
    "Outbox",
    "OutcomeUnknown",
    "Pause",
    "PayloadError",
    "Queue",
    "QueueBusy",
    "QueueClosed",
    "QueueFull",
    "RecordError",
    "Released",
    "Retry",
    "RunningJob",
    "Schedule",
    "ScheduleNotFound",
    "SchemaMismatch",
    "Scope",
    "Settlement",
    "Severity",
    "Snooze",
    "Stats",
    "StorageCorrupt",
    "StorageLost",
    "SystemClock",
    "Task",
    "Tasks",
    "Transaction",
    "Transition",
    "UsageError",
    "WaitTimeout",
    "Waiter",
    "Worker",
    "WorkerEvent",
    "WorkerInfo",
    "attach",
    "current_async_lease",
    "current_lease",
    "doctor",
    "open",
    "restore",
    "run_schedules",
]

_HOMES: dict[str, str] = {
    "clock": "Clock SystemClock",
    "diagnosis": "Diagnosis Finding Severity",
    "doctoring": "doctor",
    "errors": (
        "CannotOpen DuplicateJob InvalidSpec InvalidTransition JobFailed JobNotFound LeadershipLost "
        "LeaseConflict LiteQueueError NotAQueue OutcomeUnknown PayloadError QueueBusy QueueClosed QueueFull "
        "RecordError ScheduleNotFound SchemaMismatch StorageCorrupt StorageLost UsageError WaitTimeout"
    ),
    "lease": "Duration Lease",
    "maintenance": "Maintenance MaintenanceReport",
    "model": (
        "ANY SYSTEM Batch Copied Dependencies Enqueued Event Job JobState Misfire NewJob OnConflict OnParentFailure "
        "Pause Schedule Scope Stats Transition"
    ),
    "outbox": "Message Outbox",
    "queue": "Queue open",
    "restoring": "restore",
    "scheduler": "run_schedules",
    "settlement": "Completed Exchange Failed Released Settlement",
    "sqlite.arrivals": "Waiter",
    "sqlite.attached": "Attached attach",
    "sqlite.attending": "RunningJob WorkerInfo",
    "sqlite.results": "JobWaiter",
    "sqlite.store": "Durability",
    "sqlite.transaction": "Transaction",
    "worker": "Discard Ending Handler Retry Snooze Task Tasks Worker WorkerEvent current_async_lease current_lease",
}
"""Where the names of `__all__` are; for a type checker they are imported above."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_loading = threading.RLock()
"""Held while a name is loaded, and around a fork: a child that is forked in the midst of another thread's import would
wait for the end of that for ever. The hooks of `sqlite.forks` come before: no file is opened while a fork waits for it.
"""


def _after_fork() -> None:
    if _loading._is_owned():  # type: ignore[attr-defined] # noqa: SLF001 - else an interrupt has kept the fork from taking it
        _loading.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_loading.acquire, after_in_parent=_after_fork, after_in_child=_after_fork)
    import_module(f"{__name__}.sqlite.forks")  # now, not when a thread opens the first file in the midst of a fork

if not TYPE_CHECKING:  # else every name would be taken for one of ours

    def __getattr__(name: str) -> object:
        """Load a public name, or a module of the package, at its first use (PEP 562)."""
        home = _HOME_OF.get(name)
        if home is not None:
            with _loading:
                found: object = getattr(import_module(f"{__name__}.{home}"), name)
            globals()[name] = found
            return found
        if not name.startswith("_"):
            module = f"{__name__}.{name}"
            try:
                return import_module(module)
            except ModuleNotFoundError as exc:
                if exc.name != module:
                    raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
