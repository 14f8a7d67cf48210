"""What applications and workers have left in their file, held against what was promised to them.

Owns: the rules (`breaches`, on plain values) and the reading of the file, when every process that worked on it is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, cast

import litequeue
from applying.member import RECEIPT
from litequeue import ANY, Job, JobState, Queue
from litequeue.sqlite import examining

if TYPE_CHECKING:
    from applying.orders import ApplicationOrders, Way
    from harness.report import Figure


class Rule(StrEnum):
    """What must hold of rows and jobs that commit together."""

    BOTH = "a row and what is to be done about it are both in the file, or neither (V14)"
    EARLY = "nothing is leased before the commit of the row that it is about (V14)"
    TRUTH = "what was acknowledged is in the file, and what was rolled back is not (G2, G11)"
    DONE = "what is to be done is done, once where that commits with the completion (G3, G5)"
    NO_TRACE = "who dies in the transaction that leases leaves no trace of the lease (V14, G6)"
    DELIVERED = "each message is delivered at least once (G3)"
    ORDER = "the first deliveries of a key are in the order of its commits (G4)"
    SOUND = "the file is sound"


class Breach(NamedTuple):
    """A rule that was broken, and where."""

    rule: Rule
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


class Done(NamedTuple):
    """What somebody did about an order, in the order of the commits."""

    order_id: str
    job_id: str
    rows: int
    """How many rows of that order it saw."""


class Known(NamedTuple):
    """What is left of a job, or of a message."""

    job_id: str
    order_id: str
    state: str
    attempts: int
    lease_generation: int
    transitions: tuple[str, ...]


@dataclass(slots=True)
class Shop:
    """What a file holds, and what its applications were told."""

    way: Way
    orders: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By id: the key, and the place in its order."""
    handled: list[Done] = field(default_factory=list)
    receipts: Counter[str] = field(default_factory=Counter)
    """By order."""
    early_receipts: int = 0
    """Those that saw no step."""
    jobs: list[Known] = field(default_factory=list)
    followers: list[Known] = field(default_factory=list)
    waiting: int = 0
    """Messages that stand behind another one for ever."""
    acknowledged: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)


def breaches(shop: Shop) -> Iterator[Breach]:
    """Return every rule that was broken."""
    jobs = Counter(job.order_id for job in shop.jobs)
    for order_id in shop.orders.keys() - jobs.keys():
        yield Breach(Rule.BOTH, f"order {order_id} has a row and no job")
    for order_id, count in jobs.items():
        if order_id not in shop.orders:
            yield Breach(Rule.BOTH, f"order {order_id} has a job and no row")
        if count > 1:
            yield Breach(Rule.BOTH, f"order {order_id} has {count} jobs")
    for done in shop.handled:
        if done.rows != 1:
            yield Breach(Rule.EARLY, f"job {done.job_id} of order {done.order_id} saw {done.rows} rows of it")
    yield from _of_answers(shop, jobs.keys())
    for job in (*shop.jobs, *shop.followers):
        if job.state != JobState.COMPLETED.name:
            yield Breach(Rule.DONE, f"job {job.job_id} of order {job.order_id} is {job.state}")
    yield from _of_messages(shop) if shop.way == "outbox" else _of_jobs(shop)
    if shop.way == "lease-in-transaction":
        yield from _of_steps(shop)


def _of_answers(shop: Shop, with_jobs: AbstractSet[str]) -> Iterator[Breach]:
    for order_id in shop.acknowledged - shop.orders.keys():
        yield Breach(Rule.TRUTH, f"order {order_id} was acknowledged and is not there")
    for order_id in shop.given_up & (shop.orders.keys() | with_jobs):
        yield Breach(Rule.TRUTH, f"order {order_id} was rolled back and is there")


def _of_jobs(shop: Shop) -> Iterator[Breach]:
    handled = Counter(done.job_id for done in shop.handled)
    for job in shop.jobs:
        if handled.pop(job.job_id, 0) != (job.state == JobState.COMPLETED.name):
            yield Breach(Rule.DONE, f"job {job.job_id} of order {job.order_id} was not done just once")
    for job_id in handled:
        yield Breach(Rule.BOTH, f"job {job_id} was done and is not there")


def _of_steps(shop: Shop) -> Iterator[Breach]:
    for job in shop.jobs:
        counts = (job.attempts, job.lease_generation)
        if counts != (1, 1) or job.transitions != ("enqueued", "leased", "completed"):
            yield Breach(Rule.NO_TRACE, f"job {job.job_id} has {counts} attempts and leases: {job.transitions}")
    followers = Counter(job.order_id for job in shop.followers)
    steps = Counter(done.order_id for done in shop.handled)
    for order_id in followers.keys() | steps.keys() | shop.receipts.keys():
        counted = (steps[order_id], followers[order_id], shop.receipts[order_id])
        if counted != (1, 1, 1):
            yield Breach(Rule.BOTH, f"order {order_id} has {counted} steps, followers and receipts")
    if shop.early_receipts:
        yield Breach(Rule.EARLY, f"{shop.early_receipts} followers saw no step")


def _of_messages(shop: Shop) -> Iterator[Breach]:
    if shop.waiting:
        yield Breach(Rule.DELIVERED, f"{shop.waiting} messages wait for ever")
    told = {done.order_id for done in shop.handled}
    for job in shop.jobs:
        if job.order_id not in told:
            yield Breach(
                Rule.DELIVERED, f"message {job.job_id} of order {job.order_id} is {job.state}, and nobody heard"
            )
    last: dict[str, int] = {}
    for order_id in dict.fromkeys(done.order_id for done in shop.handled):
        key, n = shop.orders.get(order_id, ("", 0))
        if n < last.get(key, -1):
            yield Breach(Rule.ORDER, f"order {order_id} is number {n} of {key!r} and came after number {last[key]}")
        last[key] = max(n, last.get(key, -1))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found in one file."""

    breaches: list[Breach]
    figures: dict[str, Figure]


def judge(orders: ApplicationOrders) -> Verdict:
    """Look at what they have left."""
    with litequeue.open(orders.queue, create=False) as queue:
        shop = _read(queue, orders)
    found = list(breaches(shop))
    found += [Breach(Rule.SOUND, problem) for problem in examining.problems(str(orders.queue))]
    figures: dict[str, Figure] = {
        "orders": len(shop.orders),
        "acknowledged": len(shop.acknowledged),
        "rolled back": len(shop.given_up),
        "in the file, and nobody was told": len(shop.orders.keys() - shop.acknowledged),
        "attempts": sum(job.attempts for job in (*shop.jobs, *shop.followers)),
        "jobs with more than one attempt": sum(job.attempts > 1 for job in (*shop.jobs, *shop.followers)),
        "done or delivered": len(shop.handled),
    }
    return Verdict(found, figures)


def _read(queue: Queue, orders: ApplicationOrders) -> Shop:
    shop = Shop(orders.way)
    with queue.transaction() as tx:
        rows = cast("list[tuple[str, str, int]]", tx.execute("SELECT id, key, n FROM orders"))
        shop.orders = {order_id: (key, n) for order_id, key, n in rows}
        done = cast("list[tuple[str, str, int]]", tx.execute("SELECT order_id, job_id, rows FROM handled ORDER BY at"))
        shop.handled = [Done(*one) for one in done]
        receipts = cast("list[tuple[str, int]]", tx.execute("SELECT order_id, steps FROM receipts"))
        shop.receipts = Counter(order_id for order_id, _ in receipts)
        shop.early_receipts = sum(steps != 1 for _, steps in receipts)
    for job in _jobs(queue):
        (shop.followers if job.kind == RECEIPT else shop.jobs).append(_known(queue.get(job.job_id), orders.way))
    if orders.way == "outbox":
        shop.waiting = queue.waiting_messages("mail")
    for ledger in orders.folder.glob("*.ledger"):
        for line in ledger.read_text(encoding="utf-8").splitlines():
            (shop.acknowledged if line.startswith("+") else shop.given_up).add(line[1:])
    return shop


def _jobs(queue: Queue) -> Iterator[Job]:
    last: Job | None = None
    while page := queue.list(scope=ANY, limit=1000, after=last):
        yield from page
        last = page[-1]


def _known(job: Job, way: Way) -> Known:
    payload = job.payload
    order_id = cast("dict[str, str]", payload)["message"] if way == "outbox" else str(payload)
    transitions = tuple(str(event.transition) for event in job.events)
    return Known(str(job.job_id), order_id, job.state.name, job.attempts, job.lease_generation, transitions)
