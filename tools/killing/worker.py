"""A process that works on the queue and may be killed or stopped at any moment.

Owns: what it does from its first line to its last: it enqueues, leases, works, verifies, ends its leases in every way
there is, maintains, closes and opens anew. Invariant: everything goes through its journal; what the contract says can
happen (a conflict, a busy file) it takes as it comes, and anything else ends it with a report.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal, cast

import litequeue
from harness.journal import SUFFIX, Journal
from harness.recorded import Recorded
from killing import operating, sabotage, strikes, tasks
from killing.operating import SCOPES, Operator
from killing.strikes import Appointment, Striker
from killing.tasks import Payload
from litequeue import ANY, Completed, Failed, JobState, Lease, LeaseConflict, NewJob, QueueBusy

Durability = Literal["full", "enqueue", "normal"]

LEASE_S = 0.6
BUSY_S = 0.5
WAIT_S = 0.01
OPEN_STATES = (JobState.PENDING, JobState.LEASED, JobState.RETRYABLE, JobState.SCHEDULED)


@dataclass(frozen=True, slots=True)
class Orders:
    """What a worker is told at its start."""

    folder: Path
    name: str
    seed: int
    durability: Durability
    appointment: Appointment | None = None
    control: str | None = None
    is_last: bool = False
    """Makes nothing new, and ends when nothing is left to do."""
    is_restricted: bool = False
    """Whether limits, pauses, schedules and weights are on, and jobs are in several scopes (`operating`)."""

    @property
    def title(self) -> str:
        """What the file is called in what is told of it."""
        return self.durability

    @property
    def queue(self) -> Path:
        """The queue file."""
        return self.folder / "app.queue"

    def said(self, suffix: str) -> Path:
        """Return the file for something that this worker says beside its journal."""
        return self.folder / f"{self.name}.{suffix}"

    def held(self, job_id: str) -> Path:
        """Return the file that says that a sleeper's job is in other hands."""
        return self.folder / f"{job_id}.held"

    def is_missed(self) -> bool:
        """Tell whether this worker sleeps on a job that somebody else has leased by now."""
        asleep = self.said("asleep")
        return asleep.exists() and self.held(asleep.read_text(encoding="ascii")).exists()


def prepare(orders: Orders) -> None:
    """Make the queue; the first jobs are sleepers and poison."""
    make(orders, ["sleepy"] * 6 + [tasks.POISON] * 2, LEASE_S)


def make(orders: Orders, hows: Sequence[str], lease_s: float, **settings: float) -> None:
    """Make the queue and its settings, the table of the side rows, and the first jobs, of these sorts."""
    random = Random(orders.seed)
    first = [NewJob(tasks.kind(how), tasks.payload(random, how, f"first {number}")) for number, how in enumerate(hows)]
    with litequeue.open(orders.queue, durability=orders.durability) as queue:
        for name, value in {
            "lease_ttl": lease_s,
            "backoff_base": 0.05,
            "backoff_cap": 0.2,
            "max_attempts": tasks.MANY_ATTEMPTS,
            "completed_retention": None,
            **settings,
        }.items():
            queue.set(name, value)
        queue.set("max_attempts", tasks.POISON_ATTEMPTS, kind=tasks.POISON)
        with queue.transaction() as tx:
            tx.execute("CREATE TABLE side (job_id TEXT NOT NULL, lease_generation INTEGER NOT NULL)")
        if orders.is_restricted:
            operating.restrict(queue, random)
        recorded = Recorded(queue, Journal(orders.folder / f"{orders.name}{SUFFIX}"))
        recorded.enqueue_many(first)


def main(orders: Orders) -> int:
    """Be a worker; return the exit status."""
    if orders.appointment is not None:
        Striker(orders.appointment, orders.said("died")).install()
    sabotage.apply(orders.control)
    return reported(orders, lambda orders: _Worker(orders).run())


def reported(orders: Orders, work: Callable[[Orders], None]) -> int:
    """Do some work; when it ends in a way that the contract does not know, write down how."""
    try:
        work(orders)
    except BaseException:  # noqa: BLE001 - the report of an end that the contract does not know
        orders.said("trouble").write_text(traceback.format_exc(), encoding="utf-8")
        return 1
    return 0


class _Worker:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._random = Random(f"{orders.seed} {orders.name}")
        self._journal = Journal(orders.folder / f"{orders.name}{SUFFIX}")
        self._is_stopping = False
        self._parent = os.getppid()
        self._operator = Operator(self._random, is_last=orders.is_last) if orders.is_restricted else None
        self._scope = ANY if orders.is_restricted else None
        self._produces = 0.7 if orders.is_restricted else 0.25
        self._made = 0
        self._next: list[Lease] = []
        """Leases that came with the last completions."""
        point = orders.appointment.point if orders.appointment is not None else ""
        self._maintains = 0.5 if point in strikes.CHECKPOINT else 0.1 if orders.is_restricted else 0.03
        self._reopens = 0.3 if point in strikes.OPENING + strikes.CLOSING else 0.02
        signal.signal(signal.SIGTERM, self._stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def run(self) -> None:
        """Work until told to stop, or until nothing is left."""
        queue = self._open()
        while not self._is_stopping and os.getppid() == self._parent:
            with suppress(QueueBusy):
                if tasks.happens(self._random, self._maintains):
                    queue.maintain()
                if self._operator is not None:
                    self._operator.act(queue.queue)
                is_idle = not self._work_on(queue)
                if is_idle and self._orders.is_last and self._nothing_is_left(queue):
                    break
                if self._may_produce(queue) and (is_idle or tasks.happens(self._random, self._produces)):
                    self._produce(queue)
                elif is_idle:
                    time.sleep(WAIT_S)
                if tasks.happens(self._random, self._reopens):
                    self._next = []
                    queue.close()
                    queue = self._open()
        queue.close()

    def _stop(self, *_: object) -> None:
        self._is_stopping = True

    def _open(self) -> Recorded:
        """Open the queue; a file that somebody else is busy with for long is tried again."""
        while True:
            with suppress(QueueBusy):
                queue = litequeue.open(
                    self._orders.queue, durability=self._orders.durability, busy_timeout=BUSY_S, create=False
                )
                return sabotage.recorded(self._orders.control, queue, self._journal)

    def _nothing_is_left(self, queue: Recorded) -> bool:
        counts = queue.queue.stats(ANY).counts
        return not any(counts[state] for state in OPEN_STATES)

    # --- making

    def _may_produce(self, queue: Recorded) -> bool:
        """Tell whether to make more jobs."""
        return not self._orders.is_last and (self._operator is None or self._operator.may_make(queue.queue))

    def _produce(self, queue: Recorded) -> None:
        match self._random.randrange(5):
            case 0:
                queue.enqueue_many(self._jobs(self._random.randrange(2, 6)))
            case 1:
                with queue.transaction() as tx:
                    tx.enqueue_many(self._jobs(2))
                    tx.enqueue(self._job())
            case _:
                queue.enqueue(self._job())

    def _jobs(self, count: int) -> list[NewJob]:
        return [self._job() for _ in range(count)]

    def _job(self) -> NewJob:
        return self._draw() if self._operator is None else self._operator.placed(self._draw)

    def _draw(self) -> NewJob:
        self._made += 1
        sorts = tasks.CALLED if self._operator is None else tasks.MOSTLY_PLAIN
        return tasks.draw(self._random, self._orders.name, self._made, sorts)

    # --- working

    def _work_on(self, queue: Recorded) -> bool:
        """Lease and work off some jobs; tell whether there were any."""
        leases, self._next = self._next or self._lease(queue), []
        plain: list[Lease] = []
        for lease in leases:
            task = self._task(lease)
            if task["how"] == "plain" and tasks.happens(self._random, 0.5):
                plain.append(lease)
                continue
            with suppress(LeaseConflict):
                self._do(queue, lease, task)
        results = [tasks.work(self._task(lease)) for lease in plain]
        if plain and tasks.happens(self._random, 0.5):
            queue.complete_many(plain, results)
        elif plain:
            done = [Completed(lease, result) for lease, result in zip(plain, results, strict=True)]
            self._next = queue.exchange(done, self._random.choice((0, 1, 2)), scope=self._scope).leases
        return bool(leases)

    def _lease(self, queue: Recorded) -> list[Lease]:
        """Lease some jobs; where they are in several scopes, now and then from one, under another name."""
        limit = self._random.choice((1, 1, 2, 4))
        if self._orders.is_restricted and tasks.happens(self._random, 0.1):
            scope = self._random.choice(SCOPES)
            return queue.lease_many(limit, scope=scope, worker_id=f"{queue.worker_id} in {scope}")
        return queue.lease_many(limit, scope=self._scope)

    def _task(self, lease: Lease) -> Payload:
        task = cast("Payload", lease.payload)
        if not tasks.is_whole(task):
            raise AssertionError(f"{lease} arrived with a damaged payload: {task}")
        if lease.kind == tasks.POISON:
            strikes.die(self._orders.said("died"), "poison")
        return task

    def _do(self, queue: Recorded, lease: Lease, task: Payload) -> None:
        match task["how"]:
            case "steps":
                queue.complete(lease, tasks.work(task, lambda step: self._checkpoint(queue, lease, step)))
            case "side" | "side and no result":
                result = tasks.work(task)
                with queue.lease_transaction(lease) as tx:
                    tx.tx.execute("INSERT INTO side VALUES (?, ?)", (str(lease.job_id), lease.lease_generation))
                    if result is not None:
                        tx.complete(lease, result)
            case "then":
                self._complete_and_follow(queue, lease, task)
            case "transaction":
                result = tasks.work(task)
                with queue.transaction() as tx:
                    tx.enqueue(tasks.follower(task))
                    tx.tx.execute("INSERT INTO side VALUES (?, ?)", (str(lease.job_id), lease.lease_generation))
                    tx.complete(lease, result)
            case "flaky" if lease.attempts < 3:  # noqa: PLR2004 - a third attempt succeeds
                self._fail_for_now(queue, lease, task)
            case "hopeless":
                queue.fail(lease, "never", retryable=tasks.happens(self._random, 0.5))
            case "released" if tasks.happens(self._random, 0.5):
                queue.release(lease, self._random.choice((None, 0.05)))
            case "sleepy":
                self._doze(queue, lease, task)
            case _:
                queue.complete(lease, tasks.work(task))

    def _complete_and_follow(self, queue: Recorded, lease: Lease, task: Payload) -> None:
        result, then = tasks.work(task), [tasks.follower(task)]
        if tasks.happens(self._random, 0.5):
            queue.complete(lease, result, then)
        else:
            queue.exchange([Completed(lease, result, then)])

    def _fail_for_now(self, queue: Recorded, lease: Lease, task: Payload) -> None:
        """Fail; half of the time a short pause is waited out here, and the job is run again."""
        if tasks.happens(self._random, 0.5):
            queue.fail(lease, "not yet", delay=self._random.choice((None, 0.0)))
            return
        failed = Failed(lease, "not yet", delay=self._random.choice((None, 0.0, 0.1)), retake_within=0.1)
        for again, pause_s in queue.exchange([failed]).retaken:
            time.sleep(pause_s)
            self._do(queue, again, task)

    def _checkpoint(self, queue: Recorded, lease: Lease, step: int) -> None:
        if lease.continuation is not None:
            raise AssertionError(f"{lease} began with the continuation of an earlier one")
        queue.checkpoint(lease, step.to_bytes(2), 0.5)
        if lease.continuation != step.to_bytes(2):
            raise AssertionError(f"{lease} forgot its continuation")
        queue.extend(lease)

    def _doze(self, queue: Recorded, lease: Lease, task: Payload) -> None:
        """Fall asleep past the lease in the first run; stay long in the next, so that the sleeper finds it held."""
        job_id = str(lease.job_id)
        if lease.attempts == 1 and not self._orders.is_last:
            self._orders.said("asleep").write_text(job_id, encoding="ascii")
            os.kill(os.getpid(), signal.SIGSTOP)
        elif lease.attempts > 1:
            self._orders.held(job_id).touch()
            for _ in range(15):
                time.sleep(LEASE_S / 15)
                queue.extend(lease)
        queue.complete(lease, tasks.work(task))
