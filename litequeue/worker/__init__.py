"""Workers: they lease jobs, run handlers, and tell the queue what came of it.

What users need is exported here and from `litequeue`; a module in this package that is not is nobody's business else.
"""

from __future__ import annotations

from litequeue.worker.current import current_async_lease, current_lease
from litequeue.worker.dispatcher import Ending
from litequeue.worker.events import WorkerEvent
from litequeue.worker.handlers import Handler
from litequeue.worker.outcomes import Discard, Retry, Snooze
from litequeue.worker.tasks import Task, Tasks
from litequeue.worker.worker import Worker

__all__ = [
    "Discard",
    "Ending",
    "Handler",
    "Retry",
    "Snooze",
    "Task",
    "Tasks",
    "Worker",
    "WorkerEvent",
    "current_async_lease",
    "current_lease",
]
