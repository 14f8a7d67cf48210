"""Every workload there is, in the order in which they are measured and shown."""

from __future__ import annotations

from benching.workload import Workload
from benching.workloads.drain import Drain
from benching.workloads.fairness import Fairness
from benching.workloads.filesize import FileSize
from benching.workloads.growth import Growth
from benching.workloads.threads import Threads
from benching.workloads.verbs import BULK, ENQUEUE, HUNDREDS, PAIR
from benching.workloads.waking import Waking
from benching.workloads.worker import Worker
from benching.workloads.worker_idle import WorkerIdle
from benching.workloads.worker_memory import WorkerMemory


def workloads() -> list[Workload]:
    """Make them; some remember what they have built."""
    return [
        *(ENQUEUE, BULK, PAIR, HUNDREDS),
        *(Threads(), Drain(), Waking()),
        *(Worker(), WorkerIdle(), WorkerMemory()),
        *(Growth(), Fairness(), FileSize()),
    ]
