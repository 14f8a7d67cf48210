"""Random work on a real queue, whose disk is recorded.

Owns the mix of verbs and the life of the handles. Invariants: everything follows from the seed (verbs, ids, clock, even
SQLite's own randomness; only the process id in a holder's row does not), so a log can be had again; every verb that
returned is acknowledged with what the mode promises of it (contract §7). Checkpoints come after a few dozen pages
instead of thousands, so that a small file goes through many of them.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import litequeue
from litequeue import (
    Completed,
    DuplicateJob,
    Enqueued,
    Failed,
    InvalidTransition,
    JobNotFound,
    JobState,
    Lease,
    LeaseConflict,
    Maintenance,
    NewJob,
    Queue,
    Released,
    Settlement,
)
from litequeue import upkeep as upkeep_module
from litequeue.model import ANY, OnConflict
from litequeue.sqlite import log as log_module
from litequeue.sqlite.store import Durability
from litequeue.testing import FakeClock
from power_loss.disk import dump
from power_loss.recording import SYNCHRONOUS_OFF, Recorder, RecordingVFS

CHECKPOINT_PAGES: Final = (12, 40, 90)
"""The knob: the package copies the log back at 4000 pages, which no small file would ever see."""
WAL_TRUNCATE_BYTES: Final = (4_000, 4_000, 2**26)
"""The knob: maintenance cuts a log of 64 MiB."""
CACHE_PAGES: Final = (8, 1000)
"""With a small cache a transaction spills to the log before it commits."""

MODES: Final[dict[str, tuple[Durability, ...]]] = {
    "full": ("full",),
    "enqueue": ("enqueue",),
    "normal": ("normal",),
    "mixed": ("full", "enqueue", "normal"),
}
"""The durability of the handles on a file; mixed, each handle has one of its own, and keeps the promise of that one."""

_REFUSED = (DuplicateJob, InvalidTransition, JobNotFound, LeaseConflict)
_SCOPES = ("default", "other")
_CONFLICTS: tuple[OnConflict, ...] = ("return", "reset")
_KINDS = ("mail:send", "mail:read", "embed")


class Recording(NamedTuple):
    """What is to be recorded."""

    log: str
    """Where the log goes; the broken rules go beside it, and the queue file is made beside it."""
    seed: int
    mode: str
    """One of `MODES`."""
    verbs: int
    sabotage: str | None

    @property
    def database(self) -> Path:
        """Where the queue is."""
        return Path(self.log).with_suffix(".queue")


class _TurnedBackError(Exception):
    """What ends a transaction that is to leave no trace."""


def record(recording: Recording) -> None:
    """Do the work and write its log down; for a process of its own, because the recording VFS stays."""
    draw = random.Random(recording.seed)
    logging.getLogger("litequeue").setLevel(logging.ERROR)  # dead letters
    random.seed(recording.seed)
    vars(os)["urandom"] = random.Random(recording.seed + 1).randbytes  # ids of jobs that the queue makes itself
    vars(log_module)["CHECKPOINT_PAGES"] = draw.choice(CHECKPOINT_PAGES)
    vars(upkeep_module)["WAL_TRUNCATE_BYTES"] = draw.choice(WAL_TRUNCATE_BYTES)
    recorder = Recorder(str(recording.database.resolve()), recording.sabotage)
    vfs = RecordingVFS(recorder, random.Random(recording.seed + 2))
    RandomWork(recording, recorder, draw).run()
    dump(Path(recording.log), recorder.steps)
    Path(recording.log).with_suffix(".broken").write_text("\n".join(recorder.broken), encoding="utf-8")
    vfs.unregister()


class RandomWork:
    """One seeded piece of work, on one handle or two."""

    def __init__(self, recording: Recording, recorder: Recorder, draw: random.Random) -> None:
        self._recording = recording
        self._recorder = recorder
        self._draw = draw
        self._clock = FakeClock()
        self._pragmas = [f"cache_size = {draw.choice(CACHE_PAGES)}"]
        if recording.sabotage == SYNCHRONOUS_OFF:
            self._pragmas.append("synchronous = OFF")
        self._leases: list[Lease] = []
        self._bursts: list[Lease] = []
        self._job_ids: list[UUID] = []
        self._handles: list[tuple[Queue, Durability]] = []
        self._acting: Durability = "normal"
        """The durability of the handle that does the present verb."""
        self._verbs: dict[Callable[[], None], int] = {
            self._enqueue: 20,
            self._enqueue_many: 6,
            self._trigger_again: 3,
            self._lease: 16,
            self._complete: 10,
            self._complete_many: 3,
            self._complete_with_followers: 2,
            self._beat: 7,
            self._fail: 5,
            self._exchange: 5,
            self._release: 3,
            self._operate: 5,
            self._upkeep: 3,
            self._maintain: 4,
            self._transaction: 5,
            self._turned_back: 3,
            self._lease_transaction: 3,
            self._settings: 2,
            self._second_handle: 2,
            self._reopen: 1,
            self._pass_long: 2,
        }

    def run(self) -> None:
        """Make the file, do the verbs, close."""
        self._open()
        self._made()
        for work in self._draw.choices(list(self._verbs), list(self._verbs.values()), k=self._recording.verbs):
            self._clock.advance(self._draw.uniform(0.001, 3))
            self._recorder.begin()
            try:
                work()
            except _REFUSED:
                self._recorder.acknowledge(is_promised=False)
        self._close_all()

    # --- what is promised

    @property
    def _queue(self) -> Queue:
        """Choose the handle that does the present verb."""
        queue, self._acting = self._draw.choice(self._handles)
        return queue

    def _done(self, *, is_durable: bool, names: Iterable[Enqueued] = ()) -> None:
        """Acknowledge a verb; `is_durable` verbs are those that the mode `enqueue` syncs too (§7)."""
        is_promised = self._acting == "full" or (self._acting == "enqueue" and is_durable)
        self._recorder.acknowledge(is_promised=is_promised, names=tuple(name.job_id.bytes for name in names))

    # --- handles

    def _open(self) -> None:
        path = self._recording.database
        self._acting = self._draw.choice(MODES[self._recording.mode])
        queue = litequeue.open(path, durability=self._acting, clock=self._clock, scope=self._draw.choice(_SCOPES))
        self._handles.append((queue, self._acting))
        self._recorder.configure(*self._pragmas)

    def _made(self) -> None:
        """Make tables of the caller's own; the queue's were created under `full` in every mode (§7)."""
        self._recorder.keep_all()
        with self._queue.transaction() as tx:
            tx.execute("CREATE TABLE own (id INTEGER PRIMARY KEY, text TEXT, blob BLOB)")
            tx.execute("CREATE INDEX own_text ON own (text)")
        self._recorder.begin()

    def _second_handle(self) -> None:
        if len(self._handles) > 1:
            queue, self._acting = self._handles.pop(self._draw.randrange(2))
            queue.close()
        else:
            self._open()
        self._done(is_durable=False)

    def _reopen(self) -> None:
        self._close_all()
        if self._draw.random() < 0.3:  # noqa: PLR2004 - a reboot now and then: all leases lapse
            self._clock.reboot()
        self._open()
        self._done(is_durable=False)

    def _close_all(self) -> None:
        """Close; the last one out copies the log back and deletes it, so everything is on the disk."""
        while self._handles:
            self._handles.pop()[0].close()
        self._recorder.keep_all()

    # --- enqueue

    def _payload(self) -> object:
        size = self._draw.choice((3, 20, 60, 200, 200, 900, 3000, 9000))
        return {"n": self._draw.randrange(1000), "b": self._draw.randbytes(size)}

    def _new(self) -> NewJob:
        draw = self._draw
        known = draw.random()
        job_id = UUID(bytes=draw.randbytes(16), version=4)
        if known < 0.05 and self._job_ids:  # noqa: PLR2004 - the same id again
            job_id = draw.choice(self._job_ids)
        key = f"key {draw.randrange(4)}" if draw.random() < 0.4 else None  # noqa: PLR2004
        conflict = draw.choice(_CONFLICTS)
        return NewJob(
            draw.choice(_KINDS),
            self._payload(),
            draw.choice(_SCOPES),
            priority=draw.choice((1, 100, 100)),
            delay=draw.choice((None, None, None, 5, 300)),
            expires=draw.choice((None, None, None, 600)),
            max_attempts=draw.choice((None, None, 2)),
            idempotency_key=key,
            on_conflict=conflict if key else "return",
            job_id=job_id,
        )

    def _enqueue(self) -> None:
        self._accept(self._queue.enqueue_many([self._new()]))

    def _enqueue_many(self) -> None:
        self._accept(self._queue.enqueue_many([self._new() for _ in range(self._draw.randint(2, 12))]))

    def _trigger_again(self) -> None:
        """Trigger during a run, end it, and repeat: the answer is the job that the trigger has become."""
        for on_conflict in (*_CONFLICTS, "return"):
            self._recorder.begin()
            new = NewJob("burst", scope="burst", idempotency_key="burst", on_conflict=on_conflict)
            self._accept(self._queue.enqueue_many([new]))
            self._recorder.begin()
            leases = self._queue.lease_many(1, ["burst"], scope="burst", worker_id="worker")
            self._done(is_durable=False)
            if on_conflict == "reset":
                self._recorder.begin()
                self._draw.choice((self._queue.complete_many, self._bury))(self._bursts)
                self._done(is_durable=False)
            self._bursts = leases or self._bursts

    def _bury(self, leases: list[Lease]) -> None:
        self._queue.fail_many(leases, "no use", retryable=False)

    def _accept(self, results: list[Enqueued]) -> None:
        self._job_ids = [*self._job_ids, *[result.job_id for result in results]][-40:]
        self._done(is_durable=True, names=results)

    # --- a holder's verbs

    def _lease(self) -> None:
        scope, worker = self._draw.choice(_SCOPES), f"worker {self._draw.randrange(3)}"
        kinds = self._draw.choice((None, ["mail:"], ["embed", "mail:send"]))
        ttl = self._draw.choice((None, 5, 60))
        limit = self._draw.choice((1, 1, 1, 4))
        self._leases += self._queue.lease_many(limit, kinds, scope=scope, worker_id=worker, ttl=ttl)
        self._done(is_durable=False)

    def _one(self) -> Lease | None:
        return self._leases.pop(self._draw.randrange(len(self._leases))) if self._leases else None

    def _result(self) -> object:
        return self._draw.choice((None, "done", self._payload()))

    def _complete(self) -> None:
        lease = self._one()
        if lease is not None:
            self._queue.complete(lease, self._result())
            self._done(is_durable=False)

    def _complete_many(self) -> None:
        batch, self._leases = self._leases[:4], self._leases[4:]
        self._queue.complete_many(batch, [self._result() for _ in batch])
        self._done(is_durable=False)

    def _complete_with_followers(self) -> None:
        lease = self._one()
        if lease is not None:
            self._queue.complete(lease, self._result(), then=[self._new() for _ in range(self._draw.randint(1, 3))])
            self._done(is_durable=True)

    def _beat(self) -> None:
        if not self._leases:
            return
        lease = self._draw.choice(self._leases)
        match self._draw.randrange(4):
            case 0:
                self._queue.extend(lease)
            case 1:
                self._queue.note(lease, "read some pages")
            case _:
                self._queue.checkpoint(lease, self._draw.randbytes(self._draw.choice((10, 500, 5000))), 0.5, "half")
        self._done(is_durable=False)

    def _fail(self) -> None:
        lease = self._one()
        if lease is not None:
            self._queue.fail(lease, "no luck" * self._draw.choice((1, 100)), retryable=self._draw.random() < 0.8)  # noqa: PLR2004
            self._done(is_durable=False)

    def _exchange(self) -> None:
        """Settle some leases in all ways, and take new ones; only followers make it durable."""
        batch, self._leases = self._leases[:4], self._leases[4:]
        then = [self._new()] if self._draw.random() < 0.3 else []  # noqa: PLR2004 - now and then
        ways: tuple[Callable[[Lease], Settlement], ...] = (
            lambda lease: Completed(lease, self._result()),
            lambda lease: Failed(lease, "no luck", retake_within=self._draw.choice((0, 60))),
            Released,
        )
        settlements: list[Settlement] = [self._draw.choice(ways)(lease) for lease in batch]
        follower = self._one() if then else None
        following = [] if follower is None else [Completed(follower, then=then)]
        done = self._queue.exchange([*settlements, *following], self._draw.choice((0, 1, 3)), worker_id="worker 0")
        self._leases += [*done.leases, *(lease for lease, _ in done.retaken)]
        refused = [settlement for settlement, _ in done.refused]
        self._done(is_durable=any(settlement not in refused for settlement in following))

    def _release(self) -> None:
        lease = self._one()
        if lease is not None:
            self._queue.release(lease, self._draw.choice((None, 20)))
            self._done(is_durable=False)

    # --- an operator's verbs, and upkeep

    def _operate(self) -> None:
        chosen = [self._draw.choice(self._job_ids) for _ in range(2)] if self._job_ids else []
        if self._draw.random() < 0.5:  # noqa: PLR2004 - either
            self._queue.cancel_many(chosen)
        else:
            dead = self._queue.list(JobState.DEAD, scope=ANY, limit=2)
            self._queue.retry_many([*chosen, *[job.job_id for job in dead]])
        self._done(is_durable=True)

    def _upkeep(self) -> None:
        queue = self._queue
        self._draw.choice((queue.reap_expired, queue.promote_due, queue.expire_overdue, queue.prune))()
        self._done(is_durable=False)

    def _maintain(self) -> None:
        report = Maintenance(self._queue).run_once()
        self._done(is_durable=False)
        if report.wal_pages == 0:
            self._recorder.keep_all()

    def _pass_long(self) -> None:
        self._clock.advance(self._draw.choice((400, 4000, 90_000)))

    def _settings(self) -> None:
        if self._draw.random() < 0.3:  # noqa: PLR2004 - now and then back to the default
            self._queue.unset("lease_ttl", "mail:")
        else:
            self._queue.set("lease_ttl", self._draw.randint(10, 500), "mail:")
        self._done(is_durable=True)

    # --- transactions

    def _own_rows(self, tx: litequeue.Transaction) -> None:
        for _ in range(self._draw.choice((1, 1, 3, 30))):
            row = (f"t{self._draw.randrange(50)}", self._draw.randbytes(self._draw.choice((10, 300, 2500))))
            tx.execute("INSERT INTO own (text, blob) VALUES (?, ?)", row)
        tx.execute(
            "DELETE FROM own WHERE id % 7 = ? OR id < (SELECT max(id) - 60 FROM own)", (self._draw.randrange(7),)
        )

    def _transaction(self) -> None:
        with self._queue.transaction() as tx:
            self._own_rows(tx)
            tx.enqueue_many([self._new() for _ in range(self._draw.randint(0, 3))])
        self._done(is_durable=True)

    def _turned_back(self) -> None:
        try:
            with self._queue.transaction() as tx:
                self._own_rows(tx)
                tx.lease_many(3)
                tx.enqueue_many([self._new() for _ in range(5)])
                raise _TurnedBackError
        except _TurnedBackError:
            self._done(is_durable=False)

    def _lease_transaction(self) -> None:
        lease = self._one()
        if lease is not None:
            with self._queue.lease_transaction(lease) as tx:
                self._own_rows(tx)
            self._done(is_durable=True)
