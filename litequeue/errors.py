"""Every error that litequeue raises, and which part of an error's text is told in a line.

    LiteQueueError
    ├── UsageError (ValueError)     an argument or a call that can never work
    │   └── InvalidSpec             the spec of a schedule cannot be read
    ├── PayloadError                a payload or result that cannot be stored
    ├── RecordError                 a stored record that cannot be read
    ├── JobNotFound                 no such job
    ├── DuplicateJob                the id or key belongs to another job
    ├── ScheduleNotFound            no such schedule
    ├── JobFailed                   the job that was waited for is dead
    ├── WaitTimeout (TimeoutError)  the job that was waited for has not ended in time
    ├── LeaseConflict               this lease no longer holds its job
    ├── InvalidTransition           the job's state does not allow this
    ├── LeadershipLost              the lock by which this process led was replaced or removed
    ├── QueueBusy                   the write lock was not had in time: try again
    ├── QueueFull                   no room for more jobs
    ├── QueueClosed                 the handle is closed
    ├── CannotOpen                  the file cannot be opened
    ├── NotAQueue                   the file is something else
    ├── SchemaMismatch              the queue's tables are not the expected ones
    ├── StorageCorrupt              SQLite found the file damaged
    ├── StorageLost                 the file was replaced, removed or became unreadable underneath
    └── OutcomeUnknown              the commit may or may not have happened

Invariant: a call that raised did nothing, unless it raised `OutcomeUnknown`, or `StorageLost` after its commit
(contract G11). Each error carries its data as attributes, so that no caller has to parse a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

    from litequeue.model import Job


class LiteQueueError(Exception):
    """The root of every error of this package."""

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes whatever `__init__` takes."""
        return _rebuilt, (type(self), self.args, vars(self))


class UsageError(LiteQueueError, ValueError):
    """An argument is out of its bounds, or a call is not allowed here.

    `argument` names it, `value` is what was given, `bounds` says what is allowed; all are `None` for a call that is
    wrong as a whole.
    """

    def __init__(
        self, message: str, *, argument: str | None = None, value: object = None, bounds: str | None = None
    ) -> None:
        super().__init__(message)
        self.argument = argument
        self.value = value
        self.bounds = bounds

    @classmethod
    def of(cls, argument: str, value: object, bounds: str, hint: str = "") -> UsageError:
        """Build the usual message: the argument, its value and the bounds; `hint` says what was meant perhaps."""
        more = hint and f"; {hint}"
        message = f"{argument} must be {bounds}, not {shown(value)}{more}"
        return cls(message, argument=argument, value=value, bounds=bounds)


class InvalidSpec(UsageError):
    """The spec of a schedule cannot be read, or no time ever matches it; `spec` is what was given, `reason` why not."""

    def __init__(self, spec: object, reason: str) -> None:
        bounds = "@every with an interval (s, m, h or d), five cron fields, or a name such as @daily"
        known = UsageError.of("spec", spec, bounds, reason)
        super().__init__(str(known), argument="spec", value=spec, bounds=bounds)
        self.spec = spec
        self.reason = reason


class PayloadError(LiteQueueError):
    """A payload or result cannot be stored; nothing was stored and a lease is still held."""


class RecordError(LiteQueueError):
    """A stored record cannot be read; other jobs are not affected."""

    def __init__(self, message: str, *, job_id: UUID | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobNotFound(LiteQueueError):
    """There is no job with this id: it never was, or its retention is over."""

    def __init__(self, job_id: UUID, more: str = "") -> None:
        super().__init__(f"no job {job_id}{more}")
        self.job_id = job_id


class DuplicateJob(LiteQueueError):
    """The id or the idempotency key belongs to another job, which `job_id` names."""

    def __init__(self, message: str, *, job_id: UUID, idempotency_key: str | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.idempotency_key = idempotency_key


class ScheduleNotFound(LiteQueueError):
    """There is no schedule of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no schedule {name!r}")
        self.name = name


class JobFailed(LiteQueueError):
    """The job that was waited for is dead. `last_error` is that of its last run, `job` the record as it was found."""

    def __init__(self, job: Job) -> None:
        error = job.last_error or "it left no error"
        super().__init__(f"job {job.job_id} ({job.kind}) is dead: {first_line(error)}")
        self.job_id = job.job_id
        self.last_error = job.last_error
        self.job = job


class WaitTimeout(LiteQueueError, TimeoutError):
    """The job that was waited for has not ended in time; it goes on. `state` is the last one that was seen of it."""

    def __init__(self, job_id: UUID, state: str | None) -> None:
        seen = "nothing was seen of it" if state is None else f"it is {state}"
        super().__init__(f"the wait for job {job_id} is over, and {seen}")
        self.job_id = job_id
        self.state = state


class LeaseConflict(LiteQueueError):
    """The lease no longer holds its job, so its word was refused and nothing was changed."""

    def __init__(self, job_id: UUID, lease_generation: int, reason: str) -> None:
        super().__init__(f"lease {lease_generation} of job {job_id} is not valid: {reason}")
        self.job_id = job_id
        self.lease_generation = lease_generation
        self.reason = reason


class InvalidTransition(LiteQueueError):
    """The job is in a state that does not allow this verb."""

    def __init__(self, job_id: UUID, state: str, verb: str, because: str = "") -> None:
        super().__init__(f"cannot {verb} job {job_id}: it is {state}{because}")
        self.job_id = job_id
        self.state = state
        self.verb = verb


class LeadershipLost(LiteQueueError):
    """The lock file by which this process led was replaced or removed underneath: another one may lead by now."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was replaced or removed: another process may lead by now")
        self.path = path


class QueueBusy(LiteQueueError):
    """The write lock was not had within `busy_timeout`; nothing was done, so trying again is safe."""


class QueueFull(LiteQueueError):
    """There is no room for more: `max_bytes`, the free-space reserve, or a full disk. Nothing was done."""


class QueueClosed(LiteQueueError):
    """The handle has been closed."""


class CannotOpen(LiteQueueError):
    """The file cannot be opened."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot open {path}: {reason}")
        self.path = path
        self.reason = reason


class NotAQueue(LiteQueueError):
    """The file is not a queue file; it was not touched."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} is not a queue file: {reason}")
        self.path = path
        self.reason = reason


class SchemaMismatch(LiteQueueError):
    """The queue's tables are not the ones that this version expects; the file was not touched."""

    def __init__(self, path: str, found: str, expected: str) -> None:
        super().__init__(f"{path}: found {found}, expected {expected}")
        self.path = path
        self.found = found
        self.expected = expected


class StorageCorrupt(LiteQueueError):
    """SQLite found the file damaged; nothing was written."""


class StorageLost(LiteQueueError):
    """The file or its write-ahead log was replaced, removed or became unreadable underneath this handle.

    `committed` is true when the transaction had been committed to the file that is gone.
    """

    def __init__(self, message: str, *, committed: bool = False) -> None:
        super().__init__(message)
        self.committed = committed


class OutcomeUnknown(LiteQueueError):
    """The commit failed in a way that leaves open whether it happened. Look the job up before repeating the call."""


def missing_extra(extra: str, what: str, package: str) -> UsageError:
    """Build the error of what needs a package that is not installed; it says how its extra is installed."""
    return UsageError(f"{what} needs {package}: pip install 'litequeue-jobs[{extra}]', or '.[{extra}]' in a clone")


def first_line(text: str) -> str:
    """Return the first line that is not blank: errors are told apart by it, and below it may be a traceback."""
    return text.strip().partition("\n")[0].rstrip()


def _rebuilt(kind: type[LiteQueueError], arguments: tuple[object, ...], data: dict[str, object]) -> LiteQueueError:
    error = kind.__new__(kind)
    error.args = arguments
    vars(error).update(data)
    return error


_SHOWN_CHARS = 80


def shown(value: object) -> str:
    """Write a value for a message; of a long one the beginning."""
    try:
        text = repr(value)
    except ValueError:  # Python writes out no integer beyond some thousands of digits
        return f"a {type(value).__name__} that is too long to show"
    return cut(text, _SHOWN_CHARS)


def cut(text: str, most: int) -> str:
    """Return text for a message; of one that is longer than so many characters the beginning."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
