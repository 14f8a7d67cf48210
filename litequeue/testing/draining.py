"""Draining: the jobs of a test, run in its own thread until nothing is ready.

Owns: the order of leasing, running and settling without a worker's threads, and the clock's way from one due job to the
next. Invariants: what becomes of a job is decided by the worker's own code (`handlers`, `outcomes`), and settled before
its error is raised; the clock never goes further than it was told to. Leaves out: heartbeats, time limits and what else
depends on real time, for which a test runs a `Worker`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Protocol, cast

from litequeue import arguments
from litequeue.errors import JobNotFound, LeaseConflict, PayloadError, UsageError
from litequeue.lease import Duration, Lease
from litequeue.model import Job, Scope, SpecialScope
from litequeue.queue import Queue
from litequeue.settlement import Failed, Refusal, Settlement
from litequeue.testing.clock import FakeClock
from litequeue.worker import errortext
from litequeue.worker.current import is_on_a_loop
from litequeue.worker.events import Events
from litequeue.worker.handlers import Handler, Handlers, Handling, Permanent
from litequeue.worker.outcomes import VERDICTS, Misfit, unstorable, verdict_in
from litequeue.worker.run import Run
from litequeue.worker.threads import Inline

_LEAST_STEP_US = 1_000
"""How far the clock moves at least: what seems ready and cannot be leased must not keep it where it is."""
_MOST_RUNS = 1_000_000


class Drain(Protocol):
    """What the fixture `litequeue_drain` is: `drain` with the queue of the test."""

    def __call__(
        self,
        handlers: Mapping[str, Handling],
        *,
        advance: Duration | None = None,
        raise_errors: bool = True,
        scope: Scope | SpecialScope | None = None,
        permanent: Permanent = (),
        limit: int = 1_000,
    ) -> list[Job]:
        """See `drain`."""
        ...


class DrainAsync(Protocol):
    """What the fixture `litequeue_drain_async` is: `drain_async` with the queue of the test."""

    async def __call__(
        self,
        handlers: Mapping[str, Handling],
        *,
        advance: Duration | None = None,
        raise_errors: bool = True,
        scope: Scope | SpecialScope | None = None,
        permanent: Permanent = (),
        limit: int = 1_000,
    ) -> list[Job]:
        """See `drain_async`."""
        ...


def drain(
    queue: Queue,
    handlers: Mapping[str, Handling],
    *,
    advance: Duration | None = None,
    raise_errors: bool = True,
    scope: Scope | SpecialScope | None = None,
    permanent: Permanent = (),
    limit: int = 1_000,
) -> list[Job]:
    """Run jobs in this thread, one after the other, until none of these handlers' kinds is ready.

    Return the job of each run as it stood afterwards, in the order of the runs; one that is tried three times comes
    three times, and one that its retention removes at once is left out. `handlers`, `scope` and `permanent` are those
    of a `Worker`; asynchronous handlers run too. Schedules that are due are fired.

    With `advance` (seconds or a timedelta) so much time passes: the queue's `FakeClock` goes from one due job, lapsing
    lease, free place in a rate or boundary of a schedule to the next, and stands in the end so much later than before.

    What a handler raises is raised here, with its own traceback, once its job has been settled as a worker would settle
    it; with `raise_errors=False` it is only settled, so that retries follow while the clock goes on. `Retry`, `Discard`
    and `Snooze` are no errors. A result that cannot be stored, and a job that does not fit its task, are.

    More than `limit` runs (1 to 1,000,000) are taken for a job that enqueues itself for ever.

    Raises:
        AssertionError: after `limit` runs there is still a job ready; it was not run.
        UsageError: an argument out of its bounds; `advance` without a `FakeClock`; an asynchronous handler while an
            event loop runs in this thread (await `drain_async`); or a transaction of this thread is open.
    """
    __tracebackhide__ = True
    trials = _Trials(queue, handlers, advance, raise_errors, scope, permanent, limit)
    if trials.has_async and is_on_a_loop():
        raise UsageError("an event loop runs in this thread, and a handler is asynchronous: await drain_async(…)")
    with closing(Inline()) as here:
        for trial in trials.run():
            here.do(trial)
    return trials.outcome()


async def drain_async(
    queue: Queue,
    handlers: Mapping[str, Handling],
    *,
    advance: Duration | None = None,
    raise_errors: bool = True,
    scope: Scope | SpecialScope | None = None,
    permanent: Permanent = (),
    limit: int = 1_000,
) -> list[Job]:
    """Do what `drain` does, in a test that is a coroutine: asynchronous handlers run on the test's own event loop.

    Plain ones run in the loop's thread; what the queue itself does is done in others. The queue is the plain one, of an
    `AsyncQueue` its `queue`.

    Raises: as `drain`.
    """
    __tracebackhide__ = True
    trials = _Trials(queue, handlers, advance, raise_errors, scope, permanent, limit)
    steps = trials.run()
    with closing(Inline()) as here:
        while (trial := await asyncio.to_thread(next, steps, None)) is not None:
            if not trial.handler.is_async:
                here.do(trial)
                continue
            try:
                trial.succeeded(await cast("Coroutine[object, object, object]", trial.handler.call(trial.lease)))
            except BaseException as exc:  # noqa: BLE001 - whatever a handler raises is what it came to
                trial.raised(exc)
    return trials.outcome()


class _Trial(Run):
    """A run that keeps the error which the test is to see."""

    __slots__ = ("error",)

    def __init__(self, lease: Lease, handler: Handler) -> None:
        super().__init__(lease, handler)
        self.error: BaseException | None = None

    def succeeded(self, returned: object) -> None:
        """Keep what the handler returned; what cannot be a result is an error."""
        super().succeeded(returned)
        if isinstance(self.settlement, Failed) and not isinstance(returned, VERDICTS):
            self.error = PayloadError(self.settlement.error.removeprefix("PayloadError: "))

    def raised(self, exc: BaseException) -> None:
        """Keep what the handler raised; its own word on what is to become of the job is no error."""
        super().raised(exc)
        verdict = verdict_in(exc)
        if verdict is None or isinstance(verdict, Misfit):
            self.error = exc


class _Trials:
    """The runs of one draining."""

    def __init__(  # noqa: PLR0917 - what both functions are given, in their order
        self,
        queue: Queue,
        handlers: Mapping[str, Handling],
        advance: Duration | None,
        raise_errors: bool,
        scope: Scope | SpecialScope | None,
        permanent: Permanent,
        limit: int,
    ) -> None:
        given: object = queue
        if not isinstance(given, Queue):
            raise UsageError.of("queue", given, "a Queue, from litequeue.open")
        self._queue = queue
        self._handlers = Handlers(handlers, permanent=permanent)
        self._left_us = 0 if advance is None else arguments.duration_us("advance", advance)
        self._clock = queue.options.clock
        if advance is not None and not isinstance(self._clock, FakeClock):
            hint = "litequeue.open(…, clock=FakeClock()), or the fixture litequeue_clock"
            raise UsageError.of("advance", advance, "None, as the clock of this queue is not a FakeClock", hint)
        self._raises = raise_errors
        self._scope = scope
        self._limit = arguments.whole("limit", limit, 1, _MOST_RUNS)
        self._events = Events()
        self._jobs: list[Job] = []
        """What has run, as it stood after each run."""
        self._error: BaseException | None = None

    @property
    def has_async(self) -> bool:
        """Whether a handler is asynchronous."""
        return any(handler.is_async for handler in self._handlers.by_filter.values())

    def run(self) -> Iterator[_Trial]:
        """Give one run after the other, to be done by the caller before it asks for the next; an error ends it.

        It is not raised here: a generator makes another error of a `StopIteration`.
        """
        __tracebackhide__ = True
        runs = 0
        while True:
            self._fire()
            while (lease := self._queue.lease_next(self._handlers.kinds, scope=self._scope)) is not None:
                if runs == self._limit:
                    self._refuse(lease)
                runs += 1
                trial = _Trial(lease, self._handlers.find(lease.kind))
                self._events.started(lease)
                yield trial
                self._settle(trial)
                if trial.error is not None and (self._raises or not isinstance(trial.error, Exception)):
                    self._error = trial.error
                    return
            if not self._move():
                return

    def outcome(self) -> list[Job]:
        """Return the jobs, or raise what ended it, with the traceback from the handler on."""
        __tracebackhide__ = True
        if self._error is not None:
            raise self._error.with_traceback(errortext.of_user(self._error.__traceback__))
        return self._jobs

    def _fire(self) -> None:
        """Fire the schedules that are due.

        Raises: what keeps one of them from it.
        """
        for reason in self._queue.fire_schedules().refused.values():
            raise reason

    def _refuse(self, lease: Lease) -> None:
        lease.release()
        raise AssertionError(
            f"{self._limit:,} jobs have run, and one more of the kind {lease.kind!r} is ready: "
            "does a job enqueue itself for ever? drain(…, limit=…) lets more of them run"
        )

    def _settle(self, trial: _Trial) -> None:
        """Hand in what a run came to; in the queue, and not here, a failed one waits for its next try."""
        lease, settlement = trial.lease, trial.settlement
        if isinstance(settlement, Failed):
            settlement = replace(settlement, retake_within=0.0)
        refusal, is_dead = self._hand_in(settlement)
        if refusal is not None and not isinstance(refusal, LeaseConflict):
            trial.error = trial.error or refusal
            settlement = unstorable(lease, refusal)
            refusal, is_dead = self._hand_in(settlement)
        duration_s = max(0.0, time.monotonic() - trial.starts_at)
        if refusal is not None:
            self._events.lost(lease, duration_s, str(refusal))
        else:
            self._events.ended(lease, settlement, duration_s, is_dead=is_dead)
        try:
            self._jobs.append(self._queue.get(lease.job_id))
        except JobNotFound:  # its retention is 0
            return

    def _hand_in(self, settlement: Settlement | None) -> tuple[Refusal | None, bool]:
        """Tell why a settlement was refused, if it was, and whether its job is dead."""
        if settlement is None:
            return None, False
        done = self._queue.exchange([settlement])
        return (done.refused[0][1] if done.refused else None), bool(done.dead)

    def _move(self) -> bool:
        """Let the clock go on to what comes next, or to its end; tell whether it went to something."""
        if not self._left_us or not isinstance(self._clock, FakeClock):
            return False
        _, boundary_s = self._queue.until_boundary()
        ahead_s = self._queue.until_work(self._handlers.kinds, self._scope)
        ahead_us = 1_000_000 * min(ahead_s, math.inf if boundary_s is None else boundary_s)
        is_within = ahead_us < self._left_us + 0.5
        moved_us = min(self._left_us, max(_LEAST_STEP_US, round(ahead_us))) if is_within else self._left_us
        self._clock.advance(timedelta(microseconds=moved_us))
        self._left_us -= moved_us
        return is_within
