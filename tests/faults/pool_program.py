"""A user's program with a queue handle in a global, which its pool of processes uses: see `test_processes`.

A file of its own, because a process that is spawned imports the main program once more.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor

import litequeue

PATH, METHOD, POOL = sys.argv[1:]
QUEUE = litequeue.open(PATH, durability="normal")
TASKS = 24
PROCESSES = 3

Answer = tuple[int, str, str, str]
"""Process id, worker id, the job that was enqueued, the job that was completed."""


def task(number: int) -> Answer:
    """Enqueue a job, and do whichever is next."""
    made = QUEUE.enqueue("task", number)
    lease = QUEUE.lease_next()
    assert lease is not None
    lease.complete(number)
    return os.getpid(), QUEUE.worker_id, str(made.job_id), str(lease.job_id)


def run() -> list[Answer]:
    """Have the tasks done by the kind of pool that was asked for."""
    context = multiprocessing.get_context(METHOD)
    if POOL == "executor":
        with ProcessPoolExecutor(PROCESSES, mp_context=context) as executor:
            return list(executor.map(task, range(TASKS)))
    pool = context.Pool(PROCESSES, maxtasksperchild=4 if POOL == "pool that renews its processes" else None)
    with pool:
        answers = pool.map(task, range(TASKS), chunksize=1)
        pool.close()
        pool.join()
    return answers


if __name__ == "__main__":
    held = QUEUE.enqueue("of the parent")
    lease = QUEUE.lease_next()
    answers = [*run(), task(TASKS)]
    assert lease is not None
    assert QUEUE.get(held.job_id).state is litequeue.JobState.LEASED, "a child's end released what its parent holds"
    lease.complete()
    QUEUE.close()
    sys.stdout.write(f"{json.dumps(answers)}\n")
