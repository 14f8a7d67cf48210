"""Every error that litequeue raises, and nothing else.

    LiteQueueError
    ├── UsageError (ValueError)     an argument or a call that can never work
    ├── PayloadError                a payload or result that cannot be stored
    ├── RecordError                 a stored record that cannot be read
    ├── JobNotFound                 no such job
    ├── DuplicateJob                the id or key belongs to another job
    ├── LeaseConflict               this lease no longer holds its job
    ├── InvalidTransition           the job's state does not allow this
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
    def of(cls, argument: str, value: object, bounds: str) -> UsageError:
        """Build the usual message: the argument, its value and the bounds."""
        try:
            shown = repr(value)
        except ValueError:  # Python writes out no integer beyond some thousands of digits
            shown = f"a {type(value).__name__} that is too long to show"
        if len(shown) > _SHOWN_CHARS:
            shown = f"{shown[:_SHOWN_CHARS]}… ({len(shown)} characters)"
        return cls(f"{argument} must be {bounds}, not {shown}", argument=argument, value=value, bounds=bounds)


class PayloadError(LiteQueueError):
    """A payload or result cannot be stored; nothing was stored and a lease is still held."""


class RecordError(LiteQueueError):
    """A stored record cannot be read; other jobs are not affected."""

    def __init__(self, message: str, *, job_id: UUID | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobNotFound(LiteQueueError):
    """There is no job with this id: it never was, or its retention is over."""

    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"no job {job_id}")
        self.job_id = job_id


class DuplicateJob(LiteQueueError):
    """The id or the idempotency key belongs to another job, which `job_id` names."""

    def __init__(self, message: str, *, job_id: UUID, idempotency_key: str | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.idempotency_key = idempotency_key


class LeaseConflict(LiteQueueError):
    """The lease no longer holds its job, so its word was refused and nothing was changed."""

    def __init__(self, job_id: UUID, lease_generation: int, reason: str) -> None:
        super().__init__(f"lease {lease_generation} of job {job_id} is not valid: {reason}")
        self.job_id = job_id
        self.lease_generation = lease_generation
        self.reason = reason


class InvalidTransition(LiteQueueError):
    """The job is in a state that does not allow this verb."""

    def __init__(self, job_id: UUID, state: str, verb: str) -> None:
        super().__init__(f"cannot {verb} job {job_id}: it is {state}")
        self.job_id = job_id
        self.state = state
        self.verb = verb


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


def _rebuilt(kind: type[LiteQueueError], arguments: tuple[object, ...], data: dict[str, object]) -> LiteQueueError:
    error = kind.__new__(kind)
    error.args = arguments
    vars(error).update(data)
    return error


_SHOWN_CHARS = 80
