"""Every verb that touches the disk, with a file in which it has something to do.

Owns: the scene that a verb is played in and the list of verbs. Invariant: a verb played twice in two fresh scenes does
the same, commit for commit, so that a run with a fault can be held against one without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import litequeue
from litequeue import ANY, Completed, Failed, Lease, Maintenance, NewJob, Queue, Released, Settlement
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from litequeue.sqlite.store import Durability

Deed = Callable[[], object]
KNOWN_ID = UUID("01976f00-0000-7000-8000-000000000001")
WORKER = "worker"
_PAYLOAD = "x" * 700
_BIG = b"\xa5" * 9_000


class Scene:
    """A fresh file with a handle on it, and a clock that stands still."""

    def __init__(self, path: str, durability: Durability) -> None:
        self.path = path
        self.durability: Durability = durability
        self.clock = FakeClock()
        self.queue = self.open()

    def open(self, path: str | None = None) -> Queue:
        """Open another handle."""
        return litequeue.open(self.path if path is None else path, durability=self.durability, clock=self.clock)

    def jobs(self, count: int, kind: str = "work") -> list[UUID]:
        """Enqueue jobs."""
        return [one.job_id for one in self.queue.enqueue_many(NewJob(kind, _PAYLOAD) for _ in range(count))]

    def leases(self, count: int = 1, kind: str = "work") -> list[Lease]:
        """Enqueue so many jobs, and some more, and lease them."""
        self.jobs(count + 2, kind)
        return self.queue.lease_many(count, kinds=[kind], worker_id=WORKER)

    def lease(self) -> Lease:
        """Enqueue some jobs and lease one."""
        return self.leases()[0]


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb."""

    name: str
    prepare: Callable[[Scene], Deed]
    """Set the scene; return the verb, ready to be called, and to be called again when it failed."""
    is_repeatable: bool = False
    """Whether it may be called again also when it was done, and changes nothing then."""
    may_fail_silently: bool = False
    """Whether it answers a fault by a warning, as `close` does: what it could not do happens later by itself."""
    is_opening: bool = False
    """Whether it opens a handle of its own."""


def _transaction(scene: Scene) -> Deed:
    lease = scene.lease()

    def transact() -> None:
        with scene.queue.transaction() as tx:
            tx.execute("CREATE TABLE IF NOT EXISTS mine (a)")
            tx.execute("INSERT INTO mine VALUES (?)", (_BIG,))
            tx.enqueue("new", _PAYLOAD)
            tx.complete(lease, "done")
            tx.lease_many(1, worker_id=WORKER)

    return transact


def _spilling_transaction(scene: Scene) -> Deed:
    def transact() -> None:
        with scene.queue.transaction() as tx:
            tx.execute("CREATE TABLE mine (a)")
            for _ in range(3):
                tx.enqueue("new", b"z" * 750_000)

    return transact


def _lease_transaction(scene: Scene) -> Deed:
    lease = scene.lease()
    with scene.queue.transaction() as tx:
        tx.execute("CREATE TABLE mine (a)")

    def transact() -> None:
        with lease.transaction() as tx:
            tx.execute("INSERT INTO mine VALUES (1)")

    return transact


def _enqueue_reset(scene: Scene) -> Deed:
    scene.queue.enqueue("work", "first", idempotency_key="k")
    return lambda: scene.queue.enqueue("work", _PAYLOAD, idempotency_key="k", on_conflict="reset")


def _reset_while_leased(scene: Scene) -> Deed:
    scene.queue.enqueue("work", "first", idempotency_key="k")
    scene.queue.lease_next(worker_id=WORKER)
    return lambda: scene.queue.enqueue("work", _PAYLOAD, idempotency_key="k", on_conflict="reset")


def _complete_with_rerun(scene: Scene) -> Deed:
    queue = scene.queue
    queue.enqueue("work", "first", idempotency_key="k")
    lease = queue.lease_next(worker_id=WORKER)
    assert lease is not None  # noqa: S101 - a job was ready
    queue.enqueue("work", _PAYLOAD, idempotency_key="k", on_conflict="reset")
    return lambda: lease.complete("done")


def _lease_next(scene: Scene) -> Deed:
    scene.jobs(3)
    return lambda: scene.queue.lease_next(worker_id=WORKER)


def _lease_after_upkeep(scene: Scene) -> Deed:
    _gated(scene)
    scene.clock.advance(1_000)
    return lambda: scene.queue.lease_many(5, worker_id=WORKER)


def _gated(scene: Scene) -> None:
    """Leave something of everything that upkeep does."""
    queue = scene.queue
    done = scene.leases(2, "done")
    for lease in done:
        lease.complete("result")
    queue.enqueue("late", expires=60)
    queue.enqueue("later", delay=120)
    failed, held, *_ = scene.leases(2)
    failed.fail("boom")
    held.checkpoint(b"half", 0.5)


def _checkpoint(scene: Scene) -> Deed:
    lease = scene.lease()
    return lambda: lease.checkpoint(b"half" * 50, 0.5, "half")


def _again(scene: Scene) -> Deed:
    lease = scene.leases(30)[-1]
    lease.extend(500)
    scene.queue.checkpoint_wal()
    lease.extend(600)
    scene.queue.checkpoint_wal()
    return lambda: lease.extend(700)


def _retry(scene: Scene) -> Deed:
    lease = scene.lease()
    lease.fail("boom", retryable=False)
    return lambda: scene.queue.retry(lease.job_id)


def _upkeep(verb: Callable[[Queue], object], seconds: float) -> Callable[[Scene], Deed]:
    def prepare(scene: Scene) -> Deed:
        _gated(scene)
        scene.clock.advance(seconds)
        return lambda: verb(scene.queue)

    return prepare


def _boot(scene: Scene) -> Deed:
    scene.lease()
    scene.queue.close()
    scene.clock.reboot()
    return lambda: scene.open().close()


def _existing(scene: Scene) -> Deed:
    scene.lease()
    return lambda: scene.open().close()


def _first(scene: Scene) -> Deed:
    scene.jobs(3)
    scene.queue.close()
    return lambda: scene.open().close()


def _new(scene: Scene) -> Deed:
    scene.queue.close()
    scene.path += "-new"
    return lambda: scene.open().close()


def _close(scene: Scene) -> Deed:
    scene.leases(2)
    return scene.queue.close


def _checkpoint_wal(scene: Scene) -> Deed:
    scene.jobs(20)
    return scene.queue.checkpoint_wal


def _simple(verb: Callable[[Queue], object]) -> Callable[[Scene], Deed]:
    def prepare(scene: Scene) -> Deed:
        scene.jobs(3)
        return lambda: verb(scene.queue)

    return prepare


def _of_lease(verb: Callable[[Lease], object]) -> Callable[[Scene], Deed]:
    def prepare(scene: Scene) -> Deed:
        lease = scene.lease()
        return lambda: verb(lease)

    return prepare


def _cancel(scene: Scene) -> Deed:
    job_id = scene.jobs(3)[1]
    return lambda: scene.queue.cancel(job_id)


def _complete_many(scene: Scene) -> Deed:
    leases = scene.leases(6)
    return lambda: scene.queue.complete_many(leases, ["done" * 20] * len(leases))


def _parent(scene: Scene, count: int) -> Lease:
    """Lease a job for which others wait, and one for these; logs name ids, so that they are always the same."""
    parent = scene.queue.enqueue("parent", job_id=KNOWN_ID).job_id
    ids = [UUID(int=KNOWN_ID.int + number) for number in range(1, count + 1)]
    children = [NewJob("child", _PAYLOAD, job_id=job_id, after=[parent]) for job_id in ids]
    scene.queue.batch(children, NewJob("last"))
    (lease,) = scene.queue.lease_many(1, kinds=["parent"], worker_id=WORKER)
    return lease


def _complete_a_parent(scene: Scene) -> Deed:
    lease = _parent(scene, 12)
    return lease.complete


def _bury_a_parent(scene: Scene) -> Deed:
    lease = _parent(scene, 70)
    return lambda: lease.fail("boom", retryable=False)


def _tell_waiting(scene: Scene) -> Deed:
    _parent(scene, 120).fail("boom", retryable=False)
    return scene.queue.tell_waiting


def _exchange(scene: Scene) -> Deed:
    done, followed, failed, short, back = scene.leases(5)
    short.checkpoint(b"half" * 50, 0.5)
    settlements: list[Settlement] = [
        Completed(done, "done" * 20),
        Completed(followed, then=[NewJob("new", _PAYLOAD)]),
        Failed(failed, "boom"),
        Failed(short, "boom", retake_within=60),
        Released(back),
    ]
    return lambda: scene.queue.exchange(settlements, 2, worker_id=WORKER)


def _read(scene: Scene) -> Deed:
    job_id = scene.jobs(3)[0]
    return lambda: (scene.queue.get(job_id), scene.queue.list(scope=ANY), scene.queue.stats())


VERBS = (
    Verb("enqueue", _simple(lambda queue: queue.enqueue("new", _PAYLOAD))),
    Verb("enqueue with an id", _simple(lambda q: q.enqueue("new", _PAYLOAD, job_id=KNOWN_ID)), is_repeatable=True),
    Verb("enqueue with a key", _simple(lambda q: q.enqueue("new", idempotency_key="k")), is_repeatable=True),
    Verb("enqueue, reset", _enqueue_reset),
    Verb("enqueue, reset of a running one", _reset_while_leased, is_repeatable=True),
    Verb("enqueue_many", _simple(lambda queue: queue.enqueue_many(NewJob("new", _BIG) for _ in range(4)))),
    Verb("batch", _simple(lambda queue: queue.batch([NewJob("new", _PAYLOAD)] * 4, NewJob("last")))),
    Verb("complete that lets others go", _complete_a_parent),
    Verb("fail that cancels others", _bury_a_parent),
    Verb("tell_waiting", _tell_waiting, is_repeatable=True),
    Verb("transaction", _transaction),
    Verb("transaction that spills", _spilling_transaction),
    Verb("lease.transaction", _lease_transaction),
    Verb("lease_next", _lease_next),
    Verb("lease_many", _simple(lambda queue: queue.lease_many(2, worker_id=WORKER))),
    Verb("lease_many after upkeep", _lease_after_upkeep),
    Verb("extend", _of_lease(Lease.extend)),
    Verb("extend on a used log", _again),
    Verb("checkpoint", _checkpoint),
    Verb("note", _of_lease(lambda lease: lease.note("half"))),
    Verb("complete", _of_lease(lambda lease: lease.complete("done"))),
    Verb("complete with then", _of_lease(lambda lease: lease.complete("done", [NewJob("new", _PAYLOAD)]))),
    Verb("complete with a kept trigger", _complete_with_rerun),
    Verb("complete_many", _complete_many),
    Verb("exchange", _exchange),
    Verb("fail", _of_lease(lambda lease: lease.fail("boom"))),
    Verb("release", _of_lease(Lease.release)),
    Verb("cancel", _cancel),
    Verb("retry", _retry),
    Verb("set", _simple(lambda queue: queue.set("lease_ttl", 60, kind="work"))),
    Verb("reap_expired", _upkeep(Queue.reap_expired, 1_000)),
    Verb("promote_due", _upkeep(Queue.promote_due, 1_000)),
    Verb("expire_overdue", _upkeep(Queue.expire_overdue, 1_000)),
    Verb("prune", _upkeep(Queue.prune, 100_000)),
    Verb("maintenance", _upkeep(lambda queue: Maintenance(queue).run_once(), 100_000)),
    Verb("checkpoint_wal", _checkpoint_wal, is_repeatable=True),
    Verb("get, list, stats", _read, is_repeatable=True),
    Verb("close", _close, may_fail_silently=True),
    Verb("open beside others", _existing, is_repeatable=True, is_opening=True),
    Verb("open as the first", _first, is_repeatable=True, is_opening=True),
    Verb("open after a boot", _boot, is_repeatable=True, is_opening=True),
    Verb("open a new file", _new, is_repeatable=True, is_opening=True),
)
BY_NAME = {verb.name: verb for verb in VERBS}
