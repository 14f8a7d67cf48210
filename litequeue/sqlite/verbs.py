"""The verbs, each written once.

Owns: the checking of arguments and the wording of every verb for callers. `Transaction` runs a verb's work inside an
open transaction, `Queue` as one transaction of its own; nothing else differs. Invariant: all that can be checked or
encoded without the write lock is, before it is taken.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from litequeue import arguments, codec
from litequeue.errors import LeaseConflict, UsageError
from litequeue.lease import MAX_LEASE_S, Duration, Lease
from litequeue.model import (
    ANY,
    SYSTEM,
    Batch,
    Dependencies,
    Edit,
    Enqueued,
    Job,
    JobState,
    NewJob,
    OnConflict,
    OnParentFailure,
    Scope,
    SpecialScope,
    Stats,
    placed,
    storable_scope,
)
from litequeue.sqlite import chaining, enqueueing, leasing, operating, reading, settling
from litequeue.sqlite.context import Context
from litequeue.sqlite.leasing import Wish
from litequeue.sqlite.operating import Refusal
from litequeue.sqlite.outbox_verbs import OutboxVerbs
from litequeue.sqlite.reading import Page
from litequeue.sqlite.schedule_verbs import ScheduleVerbs
from litequeue.sqlite.setting_verbs import SettingVerbs

_T = TypeVar("_T")

Conflicts = list[LeaseConflict]
Refusals = list[Refusal]
Jobs = list[Job]
JobIds = list[UUID]
Scopes = list[Scope]
Lines = list[str]
Results = list[Enqueued]
Leases = list[Lease]
JobId = UUID | str
ManyScopes = Scope | SpecialScope | None
"""A scope, `None` for the handle's own, or `ANY` for all of them."""

_MAX_PAGE = 10_000


class Verbs(SettingVerbs, ScheduleVerbs, OutboxVerbs):
    """What a queue does; on a `Queue` each verb is one transaction, on a `Transaction` it is part of that one."""

    worker_id: str
    """The worker that a lease names when it is given none."""

    @abstractmethod
    def _lease(self, wish: Wish) -> Leases:
        """Lease, doing what upkeep is due first, until something is leased or nothing is left to do."""

    # --- enqueue

    def enqueue(
        self,
        kind: str,
        payload: object = None,
        *,
        scope: Scope | None = None,
        priority: int = 100,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        expires: Duration | datetime | None = None,
        max_attempts: int | None = None,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "return",
        job_id: JobId | None = None,
        after: Iterable[JobId] = (),
        on_parent_failure: OnParentFailure = "cancel",
    ) -> Enqueued:
        """Put a job at the end of its line; return its id and whether it is new (V1, V2).

        `payload` is any msgpack value. `scope` defaults to the handle's. `priority` is 0 to 255, lower is sooner.
        `delay` (seconds or a timedelta) wins over `run_at` (an aware datetime). `expires` is in how many seconds the
        job must have started, or by when (an aware datetime). `max_attempts` defaults to the settings of the kind. An
        `idempotency_key` is unique for (scope, kind) while its job is active and for `idempotency_window` after it
        completed; `on_conflict` says what a repeat does: `return` the job that has it, `raise`, or `reset` (the newest
        trigger counts). A `job_id` that exists is the same job, unless that one is dead or cancelled: then it is queued
        anew.

        `after` names up to 1,000 jobs, its parents, which must be there: the job waits until all of them have
        completed. When one is dead or cancelled, `on_parent_failure` says what becomes of it: `cancel` cancels it at
        once, and so what waits for it in turn; with `run` a parent has ended however it did. `delay` and `run_at` go on
        meanwhile, and so does `expires`.

        Raises:
            UsageError: an argument out of its bounds.
            PayloadError: the payload cannot be stored, or is larger than `max_payload`.
            DuplicateJob: the `job_id` exists with another scope or kind, or the key is taken and `on_conflict="raise"`.
            JobNotFound: a job of `after` is not there, or not there any more.
            QueueFull: `max_bytes`, or the room left on the disk, forbids it.
        """
        checked = placed(
            kind,
            scope,
            priority,
            delay,
            run_at,
            expires,
            max_attempts,
            idempotency_key,
            on_conflict,
            job_id,
            after,
            on_parent_failure,
        )
        encoded = [enqueueing.encode_one(checked, payload, storable_scope(self.scope))]
        return self._do(lambda context: enqueueing.enqueue(context, encoded), durable=True)[0]

    def enqueue_many(self, jobs: Iterable[NewJob]) -> Results:
        """Enqueue jobs in one commit; return their results in order (V1).

        Everything is encoded before the write lock is taken, so a bad job raises before anything is stored.

        Raises: as `enqueue`; then none of the jobs is stored.
        """
        encoded = enqueueing.encode(jobs, storable_scope(self.scope))
        if not encoded:
            return []
        return self._do(lambda context: enqueueing.enqueue(context, encoded), durable=True)

    def batch(self, jobs: Iterable[NewJob], then: NewJob) -> Batch:
        """Enqueue a group of jobs and, in the same commit, one that is ready when the last of the group has ended.

        It runs however they have ended, completed, dead or cancelled (its `on_parent_failure` has no say), and once,
        though some of them be run again later; `dependencies`, asked for its id, tells how they have ended. A job of
        the group that was there already, by its id or key, belongs to the group all the same, but a `then` that was
        there stays as it is. A group without jobs has ended.

        Raises: as `enqueue`; then none of the jobs is stored. `then` can have no `after`, nor `on_conflict="reset"`.
        """
        default = storable_scope(self.scope)
        encoded = enqueueing.encode(jobs, default)
        last = enqueueing.encode_last(then, default)
        *results, follower = self._do(lambda context: enqueueing.enqueue(context, encoded, last), durable=True)
        return Batch(results, follower)

    # --- lease

    def lease_next(
        self,
        kinds: Iterable[str] | None = None,
        *,
        scope: ManyScopes = None,
        worker_id: str | None = None,
        ttl: Duration | None = None,
    ) -> Lease | None:
        """Lease the next ready job; `None` at once when there is none (V3).

        `kinds` is a list of exact kinds and of prefixes that end in `:`; `None` takes every kind. `ttl` is the lease's
        time in seconds (more than 0, at most a year); it defaults to `lease_ttl` of the job's kind. Jobs come in the
        order of priority, then of enqueueing. With the scope `ANY` every scope with ready jobs is served in turn, as
        many of its jobs in a row as its weight says (V12); the turn is one for all who ask for the same kinds.

        Raises:
            UsageError: an argument out of its bounds.
        """
        leases = self.lease_many(1, kinds, scope=scope, worker_id=worker_id, ttl=ttl)
        return leases[0] if leases else None

    def lease_many(
        self,
        limit: int,
        kinds: Iterable[str] | None = None,
        *,
        scope: ManyScopes = None,
        worker_id: str | None = None,
        ttl: Duration | None = None,
    ) -> Leases:
        """Lease up to `limit` (1 to 10,000) ready jobs in one commit, in order; empty when there is none (V3).

        A job whose lease has lapsed before is leased alone, so a batch may be shorter than what is ready. With the
        scope `ANY` it is what as many single leases would be, in their order. For the other arguments see `lease_next`.

        Raises:
            UsageError: an argument out of its bounds.
        """
        return self._lease(self._wish(limit, kinds, scope, worker_id, ttl))

    # --- what a holder says

    def extend(self, lease: Lease, ttl: Duration | None = None) -> None:
        """Prolong a lease: it lapses `ttl` seconds from now; `None` repeats the lease's own time (V4).

        Raises:
            LeaseConflict: the job is no longer this lease's.
        """
        _raise_first(self.extend_many((lease,), ttl))

    def extend_many(self, leases: Iterable[Lease], ttl: Duration | None = None) -> Conflicts:
        """Prolong leases in one commit; return the conflicts of those that are no longer held (V4).

        `ttl` is as in `extend`.

        Raises:
            UsageError: an argument out of its bounds; then none is prolonged.
        """
        given = _leases(leases)
        ttl_us = None if ttl is None else arguments.duration_us("ttl", ttl, positive=True, most_s=MAX_LEASE_S)
        return self._settle(given, lambda context: settling.extend(context, given, ttl_us))

    def checkpoint(
        self,
        lease: Lease,
        continuation: bytes | None = None,
        progress: float | None = None,
        note: str | None = None,
    ) -> None:
        """Store how far the work has come, and extend the lease by its own time, in one write (V5).

        `continuation` is bytes of at most `max_payload`; `progress` 0.0 to 1.0; `note` text, cut at 256 bytes. `None`
        keeps the last one; a continuation that was never given is then empty. They live as long as the lease.

        Raises:
            LeaseConflict: the job is no longer this lease's.
            PayloadError: the continuation is larger than `max_payload`.
        """
        if not isinstance(continuation, bytes | None):
            raise UsageError.of("continuation", continuation, "bytes, or None to keep the last ones")
        share = None if progress is None else arguments.number("progress", progress, 0.0, 1.0)
        said = None if note is None else _detail("note", note)
        _raise_first(self._do(lambda c: settling.checkpoint(c, lease, continuation, share, said), durable=False))

    def note(self, lease: Lease, detail: str) -> None:
        """Append a line to the job's event log, cut at 256 bytes (V5).

        Raises:
            LeaseConflict: the job is no longer this lease's.
        """
        said = _detail("detail", detail)
        _raise_first(self._do(lambda context: settling.note(context, lease, said), durable=False))

    def complete(self, lease: Lease, result: object = None, then: Iterable[NewJob] = ()) -> None:
        """Finish a job; the jobs of `then` are enqueued in the same commit (V6).

        Raises:
            LeaseConflict: the job is no longer this lease's; nothing of `then` is enqueued.
            PayloadError: the result, or a payload of `then`, cannot be stored; the lease is still held.
        """
        encoded = _encoded_result(result)
        followers = enqueueing.encode(then, storable_scope(self.scope))

        def work(context: Context) -> None:
            _raise_first(settling.complete(context, (lease,), (encoded,)))
            if followers:
                enqueueing.enqueue(context, followers)

        self._do(work, durable=bool(followers))

    def complete_many(self, leases: Iterable[Lease], results: Sequence[object] | None = None) -> Conflicts:
        """Finish jobs in one commit; return the conflicts of those that are no longer held (V6).

        `results`, when given, has one value for each lease, in order.

        Raises:
            PayloadError: a result cannot be stored; then no job is finished.
        """
        given = _leases(leases)
        values = (None,) * len(given) if results is None else tuple(_listed("results", results, "results"))
        if len(values) != len(given):
            raise UsageError.of("results", len(values), f"as many as there are leases ({len(given)})")
        encoded = [_encoded_result(value) for value in values]
        return self._settle(given, lambda context: settling.complete(context, given, encoded))

    def fail(self, lease: Lease, error: str, *, retryable: bool = True, delay: Duration | None = None) -> None:
        """Report a failed run: again after the kind's back-off, or after `delay` seconds; or dead (V7).

        Dead when not `retryable`, when its attempts are used up, or when it is too late to start again. `error` is kept
        up to 8 KiB.

        Raises:
            LeaseConflict: the job is no longer this lease's.
        """
        _raise_first(self.fail_many((lease,), error, retryable=retryable, delay=delay))

    def fail_many(
        self, leases: Iterable[Lease], error: str, *, retryable: bool = True, delay: Duration | None = None
    ) -> Conflicts:
        """Report failed runs with one error in one commit; return the conflicts of those no longer held (V7).

        The arguments are those of `fail`.

        Raises:
            UsageError: an argument out of its bounds; then none is reported.
        """
        given = _leases(leases)
        if not isinstance(error, str):
            raise UsageError.of("error", error, "text")
        delay_us = None if delay is None else arguments.duration_us("delay", delay)
        said = codec.clip(error, codec.MAX_ERROR_BYTES)
        return self._settle(
            given, lambda c: settling.fail(c, given, said, retryable=bool(retryable), delay_us=delay_us)
        )

    def release(self, lease: Lease, delay: Duration | None = None) -> None:
        """Give a job back untouched, at once or after `delay` seconds; the attempt does not count (V8).

        Raises:
            LeaseConflict: the job is no longer this lease's.
        """
        _raise_first(self.release_many((lease,), delay))

    def release_many(self, leases: Iterable[Lease], delay: Duration | None = None) -> Conflicts:
        """Give jobs back in one commit; return the conflicts of those that are no longer held (V8).

        `delay` is as in `release`.

        Raises:
            UsageError: an argument out of its bounds; then none is given back.
        """
        given = _leases(leases)
        delay_us = 0 if delay is None else arguments.duration_us("delay", delay)
        return self._settle(given, lambda context: settling.release(context, given, delay_us))

    # --- what an operator says

    def cancel(self, job_id: JobId) -> None:
        """Stop a waiting or leased job; a holder's next verb is refused (V9).

        Raises:
            JobNotFound: there is no such job.
            InvalidTransition: it has ended already.
        """
        _raise_first(self.cancel_many((job_id,)))

    def cancel_many(self, job_ids: Iterable[JobId]) -> Refusals:
        """Stop jobs in one commit; return why those were refused that could not be stopped (V9).

        One that the end of another one given cancels is done.

        Raises:
            UsageError: one of them is no UUID, nor the text of one; then none is stopped.
        """
        given = [arguments.job_id("job_id", job_id) for job_id in _listed("job_ids", job_ids)]
        return self._do(lambda context: operating.cancel(context, given), durable=True) if given else []

    def retry(self, job_id: JobId) -> None:
        """Run a job again: a finished one anew, with its attempts back at 0; one that waits now (V10).

        Neither waits for other jobs any more, whatever it was to wait for.

        Raises:
            JobNotFound: there is no such job.
            InvalidTransition: it is pending or leased.
            DuplicateJob: its idempotency key belongs to another job by now.
        """
        _raise_first(self.retry_many((job_id,)))

    def retry_many(self, job_ids: Iterable[JobId]) -> Refusals:
        """Run jobs again in one commit; return why those were refused that could not be (V10).

        Raises:
            UsageError: one of them is no UUID, nor the text of one; then none is run again.
        """
        given = [arguments.job_id("job_id", job_id) for job_id in _listed("job_ids", job_ids)]
        return self._do(lambda context: operating.retry(context, given), durable=True) if given else []

    def edit(
        self,
        job_id: JobId,
        *,
        priority: int | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
    ) -> None:
        """Change where a waiting job stands: its priority, when it is due, or both; what is `None` stays (V16).

        `priority` is 0 to 255, lower is sooner; the job keeps its `created_at`, and so goes ahead of those of its new
        priority that were enqueued after it. `delay` (seconds or a timedelta) wins over `run_at` (an aware datetime);
        one that is not to come makes the job ready now. Attempts, payload, key and `expires_at` stay. A job that waits
        for others goes on waiting for them; its time counts once they have ended.

        Raises:
            UsageError: nothing to change, or an argument out of its bounds.
            JobNotFound: there is no such job.
            InvalidTransition: it is leased, or has ended.
        """
        _raise_first(self.edit_many((job_id,), priority=priority, delay=delay, run_at=run_at))

    def edit_many(
        self,
        job_ids: Iterable[JobId],
        *,
        priority: int | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
    ) -> Refusals:
        """Change where waiting jobs stand, in one commit; return why those were refused that could not be (V16).

        The arguments are those of `edit`.

        Raises:
            UsageError: as `edit`; then none of the jobs is changed.
        """
        given = [arguments.job_id("job_id", job_id) for job_id in _listed("job_ids", job_ids)]
        change = Edit(
            None if priority is None else arguments.whole("priority", priority, 0, arguments.MAX_PRIORITY),
            None if delay is None else arguments.duration_us("delay", delay),
            None if run_at is None else arguments.moment_us("run_at", run_at),
        )
        if change == Edit(None, None, None):
            raise UsageError("nothing to change: give a priority, a delay or a date (run_at)")
        return self._do(lambda context: operating.edit(context, given, change), durable=True) if given else []

    def remove(self, job_id: JobId) -> None:
        """Remove a finished job for good, before its retention is over (V17).

        Raises:
            JobNotFound: there is no such job.
            InvalidTransition: it has not ended; it has completed with an idempotency key whose window is not over; or
                it is a dead message of an outbox, which `Outbox.discard` gives up.
        """
        _raise_first(self.remove_many((job_id,)))

    def remove_many(self, job_ids: Iterable[JobId]) -> Refusals:
        """Remove finished jobs in one commit; return why those were refused that could not be (V17).

        Raises:
            UsageError: one of them is no UUID, nor the text of one; then none is removed.
        """
        given = [arguments.job_id("job_id", job_id) for job_id in _listed("job_ids", job_ids)]
        return self._do(lambda context: operating.remove(context, given), durable=True) if given else []

    # --- upkeep

    @abstractmethod
    def reap_expired(self) -> int:
        """Take back every job whose lease has lapsed, in any scope; return how many (V11)."""

    @abstractmethod
    def promote_due(self, scope: ManyScopes = ANY) -> int:
        """Make every due job ready; return how many were moved (V11)."""

    @abstractmethod
    def expire_overdue(self, scope: ManyScopes = ANY) -> int:
        """Bury every waiting job that can no longer start in time; return how many (V11)."""

    @abstractmethod
    def tell_waiting(self) -> int:
        """Tell every waiting job of what has ended that it waits for; return how many were told (V11)."""

    @abstractmethod
    def prune(self) -> int:
        """Remove every finished job whose retention is over; return how many (V11)."""

    # --- reads

    def get(self, job_id: JobId) -> Job:
        """Return a job with its event log (V13).

        Raises:
            JobNotFound: there is no such job, or its retention is over.
        """
        given = arguments.job_id("job_id", job_id)
        return self._look(lambda reader: reading.get(reader, given))

    def find(self, beginning: str, *, state: JobState | None = None, limit: int = 10) -> JobIds:
        """Return the ids that begin with some hex digits, dashes among them or not, in their order (V13).

        `beginning` has 4 to 32 digits. `limit` is 1 to 10,000; two are enough to see that one is not unique. The cost
        does not grow with the number of jobs; with a `state`, whose jobs alone are meant, it grows with how many begin
        so.

        Raises:
            UsageError: an argument out of its bounds.
        """
        digits = arguments.id_digits("beginning", beginning)
        among = None if state is None else job_state(state)
        most = arguments.whole("limit", limit, 1, _MAX_PAGE)
        return self._look(lambda reader: reading.ids_that_begin(reader, digits, among, most))

    def dependencies(self, job_id: JobId) -> Dependencies:
        """Return what a job waits for or has waited for, how that has ended, and how many jobs wait for it (V13).

        Raises:
            JobNotFound: there is no such job, or its retention is over.
        """
        given = arguments.job_id("job_id", job_id)
        return self._look(lambda reader: chaining.dependencies(reader, given))

    def list(
        self,
        state: JobState | None = None,
        kind: str | None = None,
        scope: ManyScopes = None,
        limit: int = 100,
        after: Job | None = None,
    ) -> Jobs:
        """Return a page of jobs, in the order of scope, state, priority, enqueueing (V13).

        `kind` is exact, or a prefix that ends in `:`; `scope` defaults to the handle's, `ANY` lists all. `limit` is 1
        to 10,000. `after` is the last job of the page before: pages go on from its key as it was then.

        Raises:
            UsageError: an argument out of its bounds.
        """
        page = Page(
            self._stored_scopes(scope),
            None if state is None else job_state(state),
            None if kind is None else arguments.kind(kind),
            arguments.whole("limit", limit, 1, _MAX_PAGE),
            None if after is None else _place(after),
        )
        return self._look(lambda reader: reading.jobs(reader, page))

    def scopes(self) -> Scopes:
        """Return the scopes that have jobs, in their order, `SYSTEM` first; a seek for each (V13)."""
        return self._look(reading.scopes)

    def held_back(self, job_id: JobId) -> Lines:
        """Say what keeps a ready job from being leased now, a line for each pause and limit (V13, V15).

        Empty when nothing does but its place in the line, and for a job that is not pending. It is for people to read:
        the words may change.

        Raises:
            JobNotFound: there is no such job, or its retention is over.
        """
        given = arguments.job_id("job_id", job_id)
        return self._look(lambda reader: reading.held_back(reader, given))

    def stats(self, scope: ManyScopes = None) -> Stats:
        """Count the jobs of a scope (the handle's by default, `ANY` for all); reads every job's key once (V13).

        Raises:
            UsageError: no scope.
        """
        wanted = self._stored_scopes(scope)
        return self._look(lambda reader: reading.stats(reader, wanted))

    # --- inside

    def _wish(
        self,
        limit: int,
        kinds: Iterable[str] | None,
        scope: ManyScopes,
        worker_id: str | None,
        ttl: Duration | None,
        *,
        least: int = 1,
    ) -> Wish:
        """Check what a caller asks for, from `least` leases on."""
        return Wish(
            self._stored_scopes(scope),
            arguments.kind_filters(kinds),
            self.worker_id if worker_id is None else arguments.text("worker_id", worker_id),
            None if ttl is None else arguments.duration_us("ttl", ttl, positive=True, most_s=MAX_LEASE_S),
            arguments.whole("limit", limit, least, leasing.MAX_LEASES),
        )

    def _settle(self, leases: Sequence[Lease], work: Callable[[Context], Conflicts]) -> Conflicts:
        return self._do(work, durable=False) if leases else []

    def _stored_scopes(self, scope: ManyScopes) -> str | None:
        """Return the stored scope, or `None` for all of them."""
        return None if scope is ANY else storable_scope(self.scope if scope is None else scope)


def _raise_first(refusals: Sequence[Exception]) -> None:
    if refusals:
        raise refusals[0]


def _encoded_result(result: object) -> bytes | None:
    return None if result is None else codec.encode(result, "result")


def _detail(argument: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError.of(argument, value, "text")
    return codec.clip(value, codec.MAX_DETAIL_BYTES)


def _listed(argument: str, values: Iterable[_T], what: str = "job ids") -> Iterable[_T]:
    given: object = values
    if isinstance(given, (str, UUID)) or not isinstance(given, Iterable):
        raise UsageError.of(argument, values, f"a list of {what}")
    return values


def _leases(values: Iterable[Lease]) -> tuple[Lease, ...]:
    return tuple(_listed("leases", values, "leases"))


def job_state(value: object) -> JobState:
    """Check a state.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, JobState):
        return value
    raise UsageError.of("state", value, f"a JobState ({', '.join(state.name for state in JobState)})")


def _place(job: object) -> reading.Place:
    if not isinstance(job, Job):
        raise UsageError.of("after", job, "a Job: the last of the page before")
    scope = "" if job.scope is SYSTEM else str(job.scope)  # reserved ones too: it was found there
    return scope, int(job.state), job.priority, job.created_at, job.job_id.bytes
