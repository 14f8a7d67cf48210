"""The queue as a dictionary: what the contract's §3, §4, §5 and §8 promise, said a second time.

Written from the contract alone. It shares nothing with the package but the public records, so that a wrong rule
there is not a wrong rule here. Where the contract leaves room (which of several orders, how soon a lease call does
upkeep), the model takes what the real queue did from a set of allowed outcomes. Leaves out: bytes, locks, durability,
event texts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, MutableSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from litequeue import (
    ANY,
    DuplicateJob,
    InvalidTransition,
    Job,
    JobNotFound,
    JobState,
    LeaseConflict,
    NewJob,
    UsageError,
)
from litequeue.model import Scope, SpecialScope
from litequeue.testing import FakeClock
from tests.model.agreed import Agreed, Setting
from tests.model.records import (
    ACTIVE,
    BEFORE_BOOT,
    CANCELLED,
    CHAINED,
    COMPLETED,
    DEAD,
    EPOCH,
    LEASED,
    PENDING,
    RETRYABLE,
    SCHEDULED,
    WAITING,
    Answer,
    Entry,
    Pause,
    Refused,
    Token,
    Trigger,
    Wish,
    is_unnamed,
    matches,
    microseconds,
    scope_key,
)
from tests.model.restrictions import Gate, Restrictions
from tests.model.turns import Turns


@dataclass
class Model:
    """All jobs, and the settings they live under."""

    clock: FakeClock
    jobs: dict[UUID, Entry] = field(default_factory=dict)
    settings: Agreed = field(default_factory=Agreed)
    turns: Turns = field(default_factory=Turns)
    restrictions: Restrictions = field(default_factory=lambda: Restrictions({}))
    unnamed: int = 0
    ended: list[tuple[UUID, JobState]] = field(default_factory=list)
    """The ends of which those that wait for them have not been told, in order."""

    def __post_init__(self) -> None:
        """Let limits and rates be read where they are set."""
        self.restrictions.given = self.settings.given

    def copy(self) -> Model:
        """Return a twin that shares nothing but the clock."""
        jobs = {job_id: copy.copy(job) for job_id, job in self.jobs.items()}
        settings = self.settings.copy()
        restrictions = self.restrictions.copy(settings.given)
        return Model(self.clock, jobs, settings, self.turns.copy(), restrictions, self.unnamed, list(self.ended))

    @property
    def now(self) -> int:
        """Return the wall clock."""
        return self.clock.wall_us()

    @property
    def lease_now(self) -> int:
        """Return the lease clock: within a boot, the monotonic one."""
        return self.clock.monotonic_us()

    # --- settings: §5

    def set(self, name: str, value: Setting, kind: str | None, scope: Scope | SpecialScope | None = None) -> None:
        """Change a setting."""
        if scope is not None:
            assert isinstance(value, int | None)
            self.restrictions.scoped[scope, kind] = value
        else:
            before = self.settings.given.get((kind, name))
            self.settings.given[kind, name] = value
            self._changed(name, kind, before)

    def unset(self, name: str, kind: str | None) -> None:
        """Take a setting back."""
        self._changed(name, kind, self.settings.given.pop((kind, name)))

    def _changed(self, name: str, kind: str | None, before: Setting | None) -> None:
        if name == "rate":
            self.restrictions.change_rate(kind, before, self.settings.given.get((kind, name)), self.lease_now)

    # --- chains: what waits for other jobs to end

    def enqueue_all(self, many: list[NewJob], default_scope: Scope, then: NewJob | None = None) -> list[Answer]:
        """Enqueue jobs in one call; `then` waits until the others have ended. Those that wait in vain are cancelled."""
        cancelled: MutableSet[UUID] = set()
        answers = [self.enqueue(new, default_scope, cancelled) for new in many]
        if then is not None:
            group = list(dict.fromkeys(answer.owners[0].job_id for answer in answers))
            answers.append(self.enqueue(then, default_scope, cancelled, group))
            if answers[-1].owners[0].job_id in group:
                raise Refused(UsageError)
        self.tell()
        return answers

    def tell(self) -> None:
        """Tell those that wait of all that has ended, and what comes of that, in the order of the ends."""
        while self.ended:
            parent, state = self.ended.pop(0)
            for job in [job for job in self.jobs.values() if parent in job.missing]:
                job.missing -= {parent}
                if state is not COMPLETED and job.is_cancelled_by_failure:
                    self._finish(job, CANCELLED)
                elif not job.missing and self._is_overdue(job):
                    self._bury(job, "expired")
                elif not job.missing:
                    self._gate(job, job.opens_at, job.expires_at)

    def _parents(self, parents: Iterable[UUID | str], cancelled: MutableSet[UUID]) -> tuple[frozenset[UUID], bool]:
        """Return which of these have not ended, and whether another one has not completed."""
        missing: set[UUID] = set()
        has_failed = False
        for job_id in parents:
            assert isinstance(job_id, UUID)
            state = CANCELLED if job_id in cancelled else self._known(job_id).state
            if state in ACTIVE:
                missing.add(job_id)
            has_failed |= state in {DEAD, CANCELLED}
        return frozenset(missing), has_failed

    def _wait(self, job: Entry, new: NewJob, opens_at: int | None, missing: frozenset[UUID]) -> None:
        job.state, job.not_before, job.missing, job.opens_at = CHAINED, None, missing, opens_at
        job.is_cancelled_by_failure = new.on_parent_failure == "cancel"

    # --- enqueue: V1, V2, G4

    def enqueue(
        self, new: NewJob, default_scope: Scope, cancelled: MutableSet[UUID], group: list[UUID] | None = None
    ) -> Answer:
        """Enqueue one job. A repeated id is the same job, but a `reset` of its own key is a trigger: none is lost."""
        scope = default_scope if new.scope is None else new.scope
        same = self.jobs.get(new.job_id) if isinstance(new.job_id, UUID) else None
        if same is not None:
            if (same.scope, same.kind) != (scope, new.kind):
                raise Refused(DuplicateJob)
            is_trigger = new.on_conflict == "reset" and same.key is not None and new.idempotency_key == same.key
            if same.state is COMPLETED or (same.state in ACTIVE and not is_trigger):
                return Answer(created=False, owners=[same])
        times = self._times(new)
        if new.idempotency_key is not None:
            owned = self._by_key(scope, new, new.idempotency_key, times)
            if owned is not None:
                return owned
        missing, has_failed = self._parents(new.after if group is None else group, cancelled)
        is_doomed = has_failed and group is None and new.on_parent_failure == "cancel"
        waits = bool(missing) or is_doomed
        if same is None:
            job = self._add(scope, new, *times, waits=waits)
        else:
            job = same
            self.ended = [
                end for end in self.ended if end[0] != job.job_id
            ]  # nobody who waits for it now is told of that
            job.created = self._next_created(scope, new.priority, waits=waits)
            job.payload, job.priority, job.max_attempts = new.payload, new.priority, new.max_attempts
            job.attempts = job.reaps = 0
            job.finished_at, job.key = None, new.idempotency_key
            self._gate(job, *times)
        if waits:
            self._wait(job, new if group is None else replace(new, on_parent_failure="run"), times[0], missing)
        cancelled.discard(job.job_id)
        if is_doomed:
            self._finish(job, CANCELLED)
            cancelled.add(job.job_id)
        return Answer(created=True, owners=[job])

    def _by_key(self, scope: Scope, new: NewJob, key: str, times: tuple[int | None, int | None]) -> Answer | None:
        owners = self._owners(scope, new.kind, key)
        if owners and new.on_conflict == "raise":
            raise Refused(DuplicateJob)
        if not owners or (new.on_conflict == "reset" and owners[0].state is COMPLETED):
            return None
        if new.on_conflict == "reset":
            self._reset(owners[0], new, *times)
        return Answer(created=False, owners=owners)

    def _gate(self, job: Entry, not_before: int | None, expires_at: int | None) -> None:
        """Let a job wait for its time; one that is not to come is none."""
        is_ready = not_before is None or not_before <= self.now
        job.state = PENDING if is_ready else SCHEDULED
        job.not_before, job.expires_at, job.pause = None if is_ready else not_before, expires_at, None

    def _times(self, new: NewJob) -> tuple[int | None, int | None]:
        not_before = None if new.run_at is None else (new.run_at - EPOCH) // timedelta(microseconds=1)
        if new.delay is not None:
            not_before = self.now + (microseconds(new.delay) or 0)
        expires = microseconds(new.expires)
        return not_before, None if expires is None else self.now + expires

    def _owners(self, scope: Scope, kind: str, key: str) -> list[Entry]:
        """Return the jobs that the key may mean: the active one, else the latest completed within the window."""
        rivals = [job for job in self.jobs.values() if (job.scope, job.kind, job.key) == (scope, kind, key)]
        active = [job for job in rivals if job.state in ACTIVE]
        if active:
            return active
        window = self.settings.duration("idempotency_window") or 0
        done = [job for job in rivals if job.state is COMPLETED and (job.finished_at or 0) + window > self.now]
        latest = max((job.finished_at or 0 for job in done), default=0)
        return [job for job in done if job.finished_at == latest]

    def _reset(self, job: Entry, new: NewJob, not_before: int | None, expires_at: int | None) -> None:
        if job.state is LEASED:
            job.trigger = Trigger(new.payload, new.priority, not_before, expires_at, new.max_attempts)
            return
        job.payload, job.priority = new.payload, new.priority
        job.max_attempts = new.max_attempts or job.max_attempts
        if job.state is CHAINED:
            job.opens_at, job.expires_at = not_before, expires_at
        else:
            self._gate(job, not_before, expires_at)

    def _add(
        self, scope: Scope, new: NewJob, not_before: int | None, expires_at: int | None, *, waits: bool = False
    ) -> Entry:
        job_id = new.job_id
        if not isinstance(job_id, UUID):
            self.unnamed += 1
            job_id = UUID(int=self.unnamed)
        job = Entry(
            job_id,
            scope,
            new.kind,
            new.payload,
            new.priority,
            self._next_created(scope, new.priority, waits=waits),
            PENDING,
            new.max_attempts,
            None,
            None,
            new.idempotency_key,
        )
        self._gate(job, not_before, expires_at)
        self.jobs[job_id] = job
        return job

    def _next_created(self, scope: Scope, priority: int, *, waits: bool = False) -> tuple[int, int]:
        """Later than every pending job of this place; a job of the same call may count as one (G4).

        One that waits for others is later than those that do as well.
        """
        place = [job for job in self.jobs.values() if (job.scope, job.priority) == (scope, priority)]
        line = {PENDING, CHAINED} if waits else {PENDING}
        least = max((job.created[0] for job in place if job.state in line), default=-1)
        fresh = [job.created[1] for job in place if job.state in line or is_unnamed(job.job_id)]
        return max(self.now, least + 1), max([self.now, *(last + 1 for last in fresh)])

    # --- lease: V3

    def upkeep(self, scope: Scope | None, seen: Mapping[UUID, Job]) -> int:
        """Do what a lease call does for its scope, or for all, before it answers `None` (§3)."""
        return self.reap() + self.expire(scope, seen) + self.promote(scope)

    def lease(
        self, wish: Wish, seen: Mapping[UUID, Job], got: int, *, upkeep_first: bool, burial_first: bool = False
    ) -> list[Token]:
        """Lease the head of the line; `seen` and `got` are the jobs and the number of leases of the real queue.

        With `burial_first` the head of one scope was too late, died on the way, and let go what waited for it: a job of
        a scope that came after it.
        """
        scope = wish.scope if wish.scope is not ANY else None
        if upkeep_first:
            self.upkeep(scope, seen)
        if burial_first:
            self._bury_late([job for job in self.jobs.values() if self._is_wanted(job, wish)], seen)
        while True:
            wanted = sorted(
                (job for job in self.jobs.values() if self._is_wanted(job, wish)), key=lambda job: job.order
            )
            late = [job for job in wanted if self._is_overdue(job)]
            line = [job for job in wanted if job not in late]
            batch = self._batch(line, wish)
            if batch:
                break
            if not self.upkeep(scope, seen):
                return []
        if late:  # they die on the way, and may make the batch shorter than it could be
            batch = batch[: max(1, got)]
            self._bury_late(late, seen)
        if scope is None:
            self.turns.took(batch, wish.kinds, line, self._gate_of_leases())
        for job in batch:
            self.restrictions.spend(job, self.lease_now)
        return [self._take(job, wish) for job in batch]

    def _bury_late(self, wanted: list[Entry], seen: Mapping[UUID, Job]) -> None:
        """Let those die, as the real queue did, that are too late; what waited for them is told."""
        for job in wanted:
            if self._is_overdue(job) and (job.job_id not in seen or seen[job.job_id].state is DEAD):
                self._bury(job, "expired")
        self.tell()

    def _batch(self, line: list[Entry], wish: Wish) -> list[Entry]:
        if wish.scope is ANY:
            return self.turns.batch(line, wish.kinds, wish.limit, self._gate_of_leases())
        return together(line, wish.limit, self._gate_of_leases())

    def _gate_of_leases(self) -> Gate:
        leased = (job for job in self.jobs.values() if job.state is LEASED)
        return self.restrictions.gate(leased, self.lease_now)

    def _is_wanted(self, job: Entry, wish: Wish) -> bool:
        is_kind = wish.kinds is None or any(matches(kind_filter, job.kind) for kind_filter in wish.kinds)
        return job.state is PENDING and wish.scope in {ANY, job.scope} and is_kind

    def _take(self, job: Entry, wish: Wish) -> Token:
        ttl = microseconds(self.settings.value("lease_ttl", job.kind) if wish.ttl is None else wish.ttl)
        assert ttl is not None
        job.state, job.worker, job.leased_at, job.deadline = LEASED, wish.worker, self.now, self.lease_now + ttl
        job.handle = wish.handle
        job.generation += 1
        job.attempts += 1
        return Token(wish.handle, job.scope, job.priority, job.created_at, job.job_id, job.generation, wish.worker, ttl)

    # --- what a holder says: G1, V4 to V8

    def latest(self, token: Token, *, is_void: bool = False) -> Entry | None:
        """Return the job that this lease was the last to hold, if nobody has taken it back."""
        job = self.jobs.get(token.job_id)
        if job is None or is_void or job.state is not LEASED:
            return None
        if (job.scope, job.priority, job.created_at) != (token.scope, token.priority, token.created_at):
            return None
        return job if (job.worker, job.generation) == (token.worker, token.generation) else None

    def holds(self, token: Token, *, is_void: bool = False) -> Entry | None:
        """Return the job that this lease still holds, if it does: `refuse_lapsed` ends it at its deadline."""
        job = self.latest(token, is_void=is_void)
        return None if job is not None and self.settings.value("refuse_lapsed") and self._is_lapsed(job) else job

    def held(self, token: Token, *, is_void: bool = False) -> Entry:
        """Return the job that this lease still holds, or refuse."""
        job = self.holds(token, is_void=is_void)
        if job is None:
            raise Refused(LeaseConflict)
        return job

    def extend(self, job: Entry, token: Token, ttl: float | None) -> None:
        """Let the lease lapse `ttl`, or its own time, from now."""
        job.deadline = self.lease_now + (token.ttl if ttl is None else microseconds(ttl) or 0)
        job.beats += 1
        job.last_beat_at = self.now

    def checkpoint(
        self, job: Entry, token: Token, continuation: bytes | None, progress: float | None, note: str | None
    ) -> None:
        """Store how far the work has come, and extend; what is not given stays, and bytes never given are empty."""
        job.deadline = self.lease_now + token.ttl
        job.checkpoints += 1
        job.last_beat_at = self.now
        job.continuation = (job.continuation or b"") if continuation is None else continuation
        job.progress = job.progress if progress is None else progress
        job.note = job.note if note is None else note

    def complete(self, job: Entry, result: object = None) -> None:
        """End a run well."""
        job.result, job.last_error = result, None
        self._finish(job, COMPLETED)

    def fail(self, job: Entry, error: str, *, retryable: bool, delay: float | None) -> None:
        """End a run badly."""
        self._badly_ended(job, error, self._pause(job, delay), may_retry=retryable)

    def is_retaken(self, job: Entry, delay: float | None, within: float) -> bool:
        """Tell whether a failed run's own worker waits its pause out: it is short, and the job may start then.

        A kept trigger gives the job a new payload, priority and times: that one is for the queue.
        """
        pause = self._pause(job, delay)
        has_time = job.expires_at is None or job.expires_at > self.now + pause
        is_short = within > 0 and pause <= (microseconds(within) or 0)
        may_begin = not self.restrictions.is_paused(job) and self.restrictions.has_token(job, self.lease_now)
        return is_short and has_time and job.trigger is None and not self._is_spent(job) and may_begin

    def retake(
        self, job: Entry, token: Token, error: str, delay: float | None, *, handle: int, ttl: float | None
    ) -> Token:
        """End a run badly, and begin the next one after its pause, with the same worker."""
        worker, length = job.worker, token.ttl if ttl is None else microseconds(ttl) or 0
        self._let_go(job)
        job.last_error, job.result = error, None
        job.worker, job.handle, job.leased_at = worker, handle, self.now
        job.deadline = self.lease_now + self._pause(job, delay) + length
        job.generation += 1
        job.attempts += 1
        return replace(token, handle=handle, generation=job.generation, ttl=length)

    def release(self, job: Entry, delay: float | None) -> None:
        """Give the attempt back."""
        job.attempts -= 1
        if self._is_overdue(job):
            self._bury(job, "expired")
        elif delay:
            self._come_back(job, SCHEDULED, self.now + (microseconds(delay) or 0))
        else:
            self._come_back(job, PENDING, None)

    # --- what an operator says: V9, V10

    def cancel(self, job_id: UUID) -> None:
        """Stop an active job."""
        job = self._known(job_id)
        if job.state not in ACTIVE:
            raise Refused(InvalidTransition)
        self._finish(job, CANCELLED)
        self.tell()

    def may_cancel(self, job_id: UUID) -> bool:
        """Tell whether there is such a job, and it is active."""
        return job_id in self.jobs and self.jobs[job_id].state in ACTIVE

    def retry(self, job_id: UUID) -> None:
        """Let a finished job start anew, and a gated one go now."""
        job = self._known(job_id)
        if job.state in {PENDING, LEASED}:
            raise Refused(InvalidTransition)
        if job.state not in WAITING:
            rivals = self._owners(job.scope, job.kind, job.key) if job.key is not None else []
            if any(rival.state in ACTIVE for rival in rivals):
                raise Refused(DuplicateJob)
            job.attempts = job.reaps = 0
            job.expires_at = job.finished_at = None
        job.state, job.not_before, job.pause = PENDING, None, None
        job.missing = frozenset()

    def remove(self, job_id: UUID) -> None:
        """Let a job that has ended go, unless a repeat of its key is to be known by it."""
        job = self._known(job_id)
        if job.state in ACTIVE:
            raise Refused(InvalidTransition)
        window = self.settings.duration("idempotency_window") or 0
        if job.state is COMPLETED and job.key is not None and (job.finished_at or 0) + window > self.now:
            raise Refused(InvalidTransition)
        del self.jobs[job_id]

    def edit(self, job_id: UUID, *, priority: int | None, delay: float | None, run_at: datetime | None) -> None:
        """Change the place and the gate of a job that waits: a gate that is given is a date, and no pause any more."""
        job = self._known(job_id)
        if job.state not in WAITING:
            raise Refused(InvalidTransition)
        job.priority = job.priority if priority is None else priority
        if delay is not None or run_at is not None:
            not_before = None if run_at is None else (run_at - EPOCH) // timedelta(microseconds=1)
            if delay is not None:
                not_before = self.now + (microseconds(delay) or 0)
            if job.state is CHAINED:
                job.opens_at = not_before
            else:
                self._gate(job, not_before, job.expires_at)
        elif job.pause is not None and job.not_before is not None:
            self._pull_in(job)
            job.pause = Pause(self.now, job.not_before - self.now)

    def _known(self, job_id: UUID) -> Entry:
        if job_id not in self.jobs:
            raise Refused(JobNotFound)
        return self.jobs[job_id]

    # --- upkeep: V11, §8

    def reap(self) -> int:
        """Take back every lapsed lease."""
        return self._reap([job for job in self.jobs.values() if job.state is LEASED and self._is_lapsed(job)])

    def reap_dead(self, handle: int) -> int:
        """Take back every lease of a handle whose process has died."""
        held = [job for job in self.jobs.values() if job.state is LEASED and job.handle == handle]
        return self._reap(held, "worker died")

    def _reap(self, jobs: list[Entry], cause: str = "lease expired") -> int:
        for job in sorted(jobs, key=lambda job: (job.deadline, scope_key(job.scope), job.order)):
            job.reaps += 1
            self._badly_ended(job, cause, self.settings.backoff(job), may_retry=True)
        self.tell()
        return len(jobs)

    def promote(self, scope: Scope | None = None) -> int:
        """Make every due job ready."""
        due = [job for job in self._waiting(scope) if job.not_before is not None and job.not_before <= self.now]
        for job in due:
            if self._is_overdue(job):
                self._bury(job, "expired")
            else:
                job.state, job.not_before, job.pause = PENDING, None, None
        self.tell()
        return len(due)

    def expire(self, scope: Scope | None = None, seen: Mapping[UUID, Job] | None = None) -> int:
        """Bury every waiting job that is too late.

        A lease may come across a late parent first, and what waits for it hears of that before its own time is looked
        at: `seen` are the jobs of the real queue, which tell.
        """
        late = [job for job in self._waiting(scope) if self._is_overdue(job)]
        told = [job for job in late if seen and job.job_id in seen and seen[job.job_id].state is CANCELLED]
        for job in late:
            if job not in told:
                self._bury(job, "expired")
        self.tell()
        for job in told:
            if job.state is CHAINED:
                self._bury(job, "expired")
        self.tell()
        return len(late)

    def prune(self) -> int:
        """Remove every finished job whose retention is over."""
        over = []
        for job in self.jobs.values():
            kept = None if job.state in ACTIVE else self.settings.retention(job)
            if kept is not None and (job.finished_at or 0) + kept <= self.now:
                over.append(job.job_id)
        for job_id in over:
            del self.jobs[job_id]
        return len(over)

    def pull_in(self) -> None:
        """After a backward step a pause beyond its kind's cap waits its own length again, no more, no less (§5)."""
        for job in self._waiting(None):
            self._pull_in(job)

    def _pull_in(self, job: Entry) -> None:
        if job.state is not RETRYABLE or job.pause is None or job.pause.set_at <= self.now:
            return
        assert job.not_before is not None
        if job.not_before > self.now + self.settings.cap(job.kind):
            job.not_before = self.now + job.pause.length
            job.pause = Pause(self.now, job.pause.length)

    def reboot(self) -> None:
        """Every lease of the earlier boot has lapsed."""
        self.restrictions.reboot(self.lease_now)
        for job in self.jobs.values():
            if job.deadline is not None:
                job.deadline += BEFORE_BOOT

    # --- inside

    def _waiting(self, scope: Scope | None) -> list[Entry]:
        return [job for job in self.jobs.values() if job.state in WAITING and scope in {None, job.scope}]

    def _is_lapsed(self, job: Entry) -> bool:
        return job.deadline is not None and job.deadline <= self.lease_now

    def _is_overdue(self, job: Entry) -> bool:
        return job.expires_at is not None and job.expires_at <= self.now

    def _pause(self, job: Entry, delay: float | None) -> int:
        return self.settings.backoff(job) if delay is None else microseconds(delay) or 0

    def _is_spent(self, job: Entry) -> bool:
        most = job.max_attempts or self.settings.value("max_attempts", job.kind)
        assert isinstance(most, int)
        return job.attempts >= most

    def _badly_ended(self, job: Entry, error: str, pause: int, *, may_retry: bool) -> None:
        if not may_retry or self._is_spent(job) or self._is_overdue(job):
            self._bury(job, error)
            return
        job.last_error, job.result = error, None
        job.pause = Pause(self.now, pause)
        self._come_back(job, RETRYABLE, self.now + pause)

    def _bury(self, job: Entry, error: str) -> None:
        job.last_error, job.result = error, None
        self._finish(job, DEAD)

    def _come_back(self, job: Entry, state: JobState, gate: int | None) -> None:
        """Let a job whose run is over wait again; a trigger folds into it, and both waits are waited out (V2)."""
        trigger = job.trigger
        self._let_go(job)
        job.state, job.not_before = state, gate
        if trigger is None:
            return
        job.payload, job.priority, job.expires_at = trigger.payload, trigger.priority, trigger.expires_at
        job.max_attempts = trigger.max_attempts or job.max_attempts
        gates = [time for time in (gate, trigger.not_before) if time is not None and time > self.now]
        if not gates:
            job.state, job.not_before, job.pause = PENDING, None, None
        else:
            job.not_before = max(gates)
            job.state = RETRYABLE if state is RETRYABLE else SCHEDULED
            if job.pause is not None:
                job.pause = Pause(self.now, job.not_before - self.now)

    def _finish(self, job: Entry, state: JobState) -> None:
        trigger = job.trigger
        self._let_go(job)
        job.state, job.not_before, job.pause = state, None, None
        job.missing = frozenset()
        job.finished_at = max(self.now, job.created_at)
        self.ended.append((job.job_id, state))
        if self.settings.retention(job) == 0:
            del self.jobs[job.job_id]
        if trigger is not None and state is not CANCELLED:
            new = NewJob(
                job.kind,
                trigger.payload,
                priority=trigger.priority,
                max_attempts=trigger.max_attempts,
                idempotency_key=job.key,
            )
            self._add(job.scope, new, trigger.not_before, trigger.expires_at)

    def _let_go(self, job: Entry) -> None:
        """Drop what lives only as long as the lease."""
        job.worker = job.handle = job.deadline = job.last_beat_at = None
        job.continuation = job.progress = job.note = job.trigger = None
        job.beats = job.checkpoints = 0


def together(line: list[Entry], limit: int, gate: Gate) -> list[Entry]:
    """Return the head of the line that may be leased in one batch: one that was reaped before goes alone (V3)."""
    batch: list[Entry] = []
    for job in line:
        if len(batch) == limit or (job.reaps and batch and gate.allows(job)):
            break
        if gate.allows(job):
            gate.take(job)
            batch.append(job)
            if job.reaps:
                break
    return batch
