"""Asserting what is enqueued, with a message that shows what is there instead.

Owns: which jobs count (those that wait: pending, scheduled, or failed and to be tried again), and what a matcher is.
Invariant: payloads are compared as a handler would get them, decoded from the file. Leaves out: jobs that have ended,
which are only told of.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, cast

from litequeue import arguments
from litequeue.errors import LiteQueueError, UsageError
from litequeue.lease import Duration
from litequeue.model import ANY, Job, Scope, SpecialScope, Transition
from litequeue.queue import Queue
from litequeue.worker.handlers import AnyTask

_PAGE = 1_000
_MOST_SHOWN = 10
_MOST_CHARS = 200
_NOTHING = object()
"""In place of a payload that cannot be read, or that does not fit its task."""


class AssertEnqueued(Protocol):
    """What the fixture `assert_enqueued` is: the function of that name with the queue of the test."""

    def __call__(
        self,
        kind: str | AnyTask,
        payload: object = ...,
        *,
        scope: Scope | SpecialScope | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        count: int | None = None,
    ) -> list[Job]:
        """See `assert_enqueued`."""
        ...


class RefuteEnqueued(Protocol):
    """What the fixture `refute_enqueued` is: the function of that name with the queue of the test."""

    def __call__(
        self,
        kind: str | AnyTask,
        payload: object = ...,
        *,
        scope: Scope | SpecialScope | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
    ) -> None:
        """See `refute_enqueued`."""
        ...


def assert_enqueued(
    queue: Queue,
    kind: str | AnyTask,
    payload: object = ...,
    *,
    scope: Scope | SpecialScope | None = None,
    priority: int | None = None,
    delay: Duration | None = None,
    run_at: datetime | None = None,
    count: int | None = None,
) -> list[Job]:
    """Assert that a job waits: at least one that matches, or exactly `count` (1 to 1,000,000).

    Return those that match, in the order in which they were enqueued. `kind` is a kind, a prefix that ends in `:`, or a
    task. `payload` is `...` for any; a function that is called with the payload and tells; a mapping, whose items the
    payload must have, and may have more; or a value that it must equal. Payloads are as a handler gets them, so a tuple
    is a list; those of a task are its arguments by name. `scope` is the queue's, or `ANY`. A job matches a `delay`
    (seconds or a timedelta) or a `run_at` as long as it waits for it; `delay=0` is one that was given none.

    Raises:
        AssertionError: there are none, or not so many; the message shows what waits, and why that does not match.
        UsageError: an argument out of its bounds.
    """
    __tracebackhide__ = True
    wanted = _Wanted.of(queue, kind, payload, scope, priority, delay, run_at)
    if count is not None:
        arguments.whole("count", count, 1, arguments.MAX_COUNT)
    look = _Look.at(queue, wanted)
    found = look.matching
    if found if count is None else len(found) == count:
        return found
    if count is None:
        many = "no job waits"
    else:
        many = f"{len(found)} jobs wait, not {count}," if len(found) != 1 else f"1 job waits, not {count},"
    raise AssertionError(f"{many} {wanted}{look.told()}")


def refute_enqueued(
    queue: Queue,
    kind: str | AnyTask,
    payload: object = ...,
    *,
    scope: Scope | SpecialScope | None = None,
    priority: int | None = None,
    delay: Duration | None = None,
    run_at: datetime | None = None,
) -> None:
    """Assert that no job waits that matches; the arguments are those of `assert_enqueued`.

    Raises:
        AssertionError: there is one, or more; the message shows them.
        UsageError: an argument out of its bounds.
    """
    __tracebackhide__ = True
    wanted = _Wanted.of(queue, kind, payload, scope, priority, delay, run_at)
    found = _Look.at(queue, wanted).matching
    if found:
        many = "a job waits" if len(found) == 1 else f"{len(found):,} jobs wait"
        raise AssertionError(f"{many} {wanted}, and none should:{_lines(wanted.shown(job) for job in found)}")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is looked for, checked."""

    kind: str
    task: AnyTask | None
    payload: object
    scope: Scope | SpecialScope
    priority: int | None
    delay_us: int | None
    run_at_us: int | None

    @classmethod
    def of(  # noqa: PLR0917 - what both functions are given, in their order
        cls,
        queue: Queue,
        kind: str | AnyTask,
        payload: object,
        scope: Scope | SpecialScope | None,
        priority: int | None,
        delay: Duration | None,
        run_at: datetime | None,
    ) -> _Wanted:
        """Check the arguments.

        Raises:
            UsageError: one is out of its bounds.
        """
        given: object = queue
        if not isinstance(given, Queue):
            raise UsageError.of("queue", given, "a Queue, from litequeue.open")
        if delay is not None and run_at is not None:
            raise UsageError("delay and run_at are two ways to say when: give one of them")
        task = kind if isinstance(kind, AnyTask) else None
        return cls(
            arguments.kind(kind if task is None else task.kind),
            task,
            payload,
            queue.scope if scope is None else scope,
            None if priority is None else arguments.whole("priority", priority, 0, arguments.MAX_PRIORITY),
            None if delay is None else arguments.duration_us("delay", delay),
            None if run_at is None else arguments.moment_us("run_at", run_at),
        )

    def __str__(self) -> str:
        parts = [f"of the kind {self.kind!r}", "in any scope" if self.scope is ANY else f"in the scope {self.scope!r}"]
        if self.payload is not ...:
            parts.append(f"with the payload {_clipped(self.payload)}")
        if self.priority is not None:
            parts.append(f"with the priority {self.priority}")
        if self.delay_us is not None:
            parts.append(f"with a delay of {_seconds(self.delay_us)}")
        if self.run_at_us is not None:
            parts.append(f"to run at {_moment(self.run_at_us)}")
        return " ".join(parts)

    def misses(self, job: Job) -> list[str]:
        """Return what does not match in a job of this kind and scope."""
        missed = []
        if self.payload is not ... and not self._is_payload(self.given(job)):
            missed.append("payload")
        if self.priority not in {None, job.priority}:
            missed.append("priority")
        if self.delay_us is not None and _delay_us(job) != self.delay_us:
            missed.append("delay")
        if self.run_at_us is not None and job.not_before != self.run_at_us:
            missed.append("run_at")
        return missed

    def given(self, job: Job) -> object:
        """Return a payload as it is compared; of a task, its arguments by name."""
        try:
            return job.payload if self.task is None else self.task.named(job.payload)
        except LiteQueueError:
            return _NOTHING

    def shown(self, job: Job) -> str:
        """Return a job as a line of a message."""
        given = self.given(job)
        payload = _clipped(_raw(job) if given is _NOTHING else given)
        when = "" if job.not_before is None else f", due at {_moment(job.not_before)}"
        return f"{job.kind} {job.job_id} {job.state}, priority {job.priority}{when}: {payload}"

    def _is_payload(self, given: object) -> bool:
        if given is _NOTHING:
            return False
        wanted = self.payload
        if callable(wanted) and not isinstance(wanted, type):
            return bool(cast("Callable[[object], object]", wanted)(given))
        if isinstance(wanted, Mapping):
            return isinstance(given, Mapping) and all(
                name in given and bool(value == given[name]) for name, value in wanted.items()
            )
        return bool(wanted == given)


class _Look:
    """The jobs of a scope, as one assertion sees them."""

    def __init__(self, wanted: _Wanted, jobs: list[Job]) -> None:
        self._wanted = wanted
        self._others = Counter(
            job.kind for job in jobs if job.state.is_waiting and not arguments.matches(wanted.kind, job.kind)
        )
        of_kind = [job for job in jobs if arguments.matches(wanted.kind, job.kind)]
        self._gone = [job for job in of_kind if not job.state.is_waiting]
        waiting = sorted((job for job in of_kind if job.state.is_waiting), key=lambda job: job.created_at)
        self._misses = [(job, wanted.misses(job)) for job in waiting]

    @classmethod
    def at(cls, queue: Queue, wanted: _Wanted) -> _Look:
        """Read what there is."""
        jobs: list[Job] = []
        page = queue.list(scope=wanted.scope, limit=_PAGE)
        while page:
            jobs += page
            page = queue.list(scope=wanted.scope, limit=_PAGE, after=page[-1])
        return cls(wanted, jobs)

    @property
    def matching(self) -> list[Job]:
        """The jobs that wait and match."""
        return [job for job, missed in self._misses if not missed]

    def told(self) -> str:
        """Return what there is, for the message: what waits of the kind, what has ended, what is of other kinds."""
        told = ""
        if self._misses:
            rows = (f"{self._wanted.shown(job)}{_because(missed)}" for job, missed in self._misses)
            told += f"\nof this kind there wait:{_lines(rows)}"
        if self._gone:
            told += f"\nof this kind, but not waiting:{_lines(map(self._wanted.shown, self._gone))}"
        if self._others:
            kinds = ", ".join(f"{kind} ({count:,})" for kind, count in sorted(self._others.items()))
            told += f"\nof other kinds there wait: {kinds}"
            close = difflib.get_close_matches(self._wanted.kind, self._others, 1)
            told += f" (was {close[0]!r} meant?)" if close else ""
        return told or "\nnothing else is there either"


def _because(missed: list[str]) -> str:
    return f"  <- another {' and another '.join(missed)}" if missed else "  <- matches"


def _lines(rows: Iterable[str]) -> str:
    shown = list(rows)
    more = f"\n  … and {len(shown) - _MOST_SHOWN:,} more" if len(shown) > _MOST_SHOWN else ""
    return "".join(f"\n  {row}" for row in shown[:_MOST_SHOWN]) + more


def _delay_us(job: Job) -> int | None:
    """Return the delay with which a job was enqueued, and for which it waits; `None` when it waits for something else.

    Its `created_at` may be some µs later than the moment that a delay counts from: the event has that.
    """
    last = job.events[-1]
    if last.transition is not Transition.ENQUEUED:
        return None
    return 0 if job.not_before is None else job.not_before - last.at


def _raw(job: Job) -> object:
    try:
        return job.payload
    except LiteQueueError as exc:
        return exc


def _clipped(value: object) -> str:
    shown = getattr(value, "__qualname__", None) or repr(value) if callable(value) else repr(value)
    return shown if len(shown) <= _MOST_CHARS else f"{shown[:_MOST_CHARS]}…"


def _seconds(microseconds: int) -> str:
    return f"{microseconds / 1_000_000:g} s"


def _moment(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC).isoformat(timespec="milliseconds")
