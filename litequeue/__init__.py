"""litequeue: a job queue in one SQLite file, for many threads and processes on one machine.

    import litequeue

    q = litequeue.open("app.queue")
    q.enqueue("mail:send", {"to": "a@b.c"})
    lease = q.lease_next()
    if lease is not None:
        ...  # do the work, then say so
        lease.complete()

What is promised stands in the contract; what may go wrong is drawn in `litequeue.errors`.
"""

from __future__ import annotations

from litequeue.clock import Clock, SystemClock
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
from litequeue.lease import Lease
from litequeue.maintenance import Maintenance, MaintenanceReport
from litequeue.model import ANY, SYSTEM, Enqueued, Event, Job, JobState, NewJob, Stats, Transition
from litequeue.queue import Queue, open
from litequeue.sqlite.transaction import Transaction

__version__ = "0.1.0"

__all__ = [
    "ANY",
    "SYSTEM",
    "CannotOpen",
    "Clock",
    "DuplicateJob",
    "Enqueued",
    "Event",
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
    "OutcomeUnknown",
    "PayloadError",
    "Queue",
    "QueueBusy",
    "QueueClosed",
    "QueueFull",
    "RecordError",
    "SchemaMismatch",
    "Stats",
    "StorageCorrupt",
    "StorageLost",
    "SystemClock",
    "Transaction",
    "Transition",
    "UsageError",
    "open",
]
