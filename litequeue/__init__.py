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
`litequeue.errors`; a clock for tests is in `litequeue.testing`. Ids in docstrings, such as G4, V3 or §6, are those of
the contract that the tests prove line by line.
"""

from __future__ import annotations

from litequeue.clock import Clock, SystemClock
from litequeue.diagnosis import Diagnosis, Finding, Severity
from litequeue.doctoring import doctor
from litequeue.errors import (
    CannotOpen,
    DuplicateJob,
    InvalidTransition,
    JobNotFound,
    LeaseConflict,
    LiteQueueError,
    NotAQueue,
    OutcomeUnknown,
    PayloadError,
    QueueBusy,
    QueueClosed,
    QueueFull,
    RecordError,
    SchemaMismatch,
    StorageCorrupt,
    StorageLost,
    UsageError,
)
from litequeue.lease import Duration, Lease
from litequeue.maintenance import Maintenance, MaintenanceReport
from litequeue.model import (
    ANY,
    SYSTEM,
    Copied,
    Enqueued,
    Event,
    Job,
    JobState,
    NewJob,
    OnConflict,
    Scope,
    Stats,
    Transition,
)
from litequeue.queue import Queue, open
from litequeue.restoring import restore
from litequeue.sqlite.store import Durability
from litequeue.sqlite.transaction import Transaction

__version__ = "0.1.0"

__all__ = [
    "ANY",
    "SYSTEM",
    "CannotOpen",
    "Clock",
    "Copied",
    "Diagnosis",
    "DuplicateJob",
    "Durability",
    "Duration",
    "Enqueued",
    "Event",
    "Finding",
    "InvalidTransition",
    "Job",
    "JobNotFound",
    "JobState",
    "Lease",
    "LeaseConflict",
    "LiteQueueError",
    "Maintenance",
    "MaintenanceReport",
    "NewJob",
    "NotAQueue",
    "OnConflict",
    "OutcomeUnknown",
    "PayloadError",
    "Queue",
    "QueueBusy",
    "QueueClosed",
    "QueueFull",
    "RecordError",
    "SchemaMismatch",
    "Scope",
    "Severity",
    "Stats",
    "StorageCorrupt",
    "StorageLost",
    "SystemClock",
    "Transaction",
    "Transition",
    "UsageError",
    "doctor",
    "open",
    "restore",
]
