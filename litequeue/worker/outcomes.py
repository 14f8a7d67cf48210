"""Outcomes: what a run came to, by what its handler returned or raised.

Owns: what a handler may raise or return to steer its job (`Retry`, `Discard`, `Snooze`), and the way from any end of a
run to one settlement. Invariant: every end has a settlement that the queue can store; nothing here raises. Leaves out:
what follows in the queue (`rules`), and ends that the worker itself decides: drain, loss, time over.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass

from litequeue import arguments, codec
from litequeue.errors import LiteQueueError, PayloadError, RecordError, UsageError
from litequeue.lease import Duration, Lease
from litequeue.settlement import Completed, Failed, Released, Settlement
from litequeue.worker import errortext
from litequeue.worker.handlers import Handler

_log = logging.getLogger("litequeue.worker")


class Retry(Exception):
    """This run failed; try again, after the back-off of the kind or after `delay` seconds.

    The attempt counts: out of attempts, the job is dead. `reason` is kept as its last error.

    Raises:
        UsageError: an argument out of its bounds.
    """

    def __init__(self, delay: Duration | None = None, reason: str = "") -> None:
        super().__init__(delay, _checked_reason(reason))
        if delay is not None:
            arguments.duration_us("delay", delay)
        self.delay = delay
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Discard(Exception):
    """This job can never succeed; it is dead at once, with `reason` as its last error.

    Raises:
        UsageError: the reason is not text.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(_checked_reason(reason))
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Misfit(Discard):
    """A task's job that its function cannot be called with: not the function's own word, so a test is told of it."""


class Snooze(Exception):
    """It is too early; come back after `delay` seconds. The attempt does not count.

    Raises:
        UsageError: the delay is not more than 0: the job would come back at once, for ever.
    """

    def __init__(self, delay: Duration) -> None:
        super().__init__(delay)
        arguments.duration_us("delay", delay, positive=True)
        self.delay = delay


VERDICTS = (Retry, Discard, Snooze)
"""What a handler raises, or returns, to say what is to become of its job."""


@dataclass(frozen=True, slots=True)
class Discarded(Failed):
    """The handler itself gave the job up."""


@dataclass(frozen=True, slots=True)
class Snoozed(Released):
    """The handler itself put the job off."""


def settlement_of(lease: Lease, handler: Handler, returned: object) -> Settlement:
    """Settle a run that returned: its value is the result, unless it is a verdict, or cannot be stored.

    What is returned after the handler has ended the job itself is lost, which is worth a warning.
    """
    if lease.settled and returned is not None:
        _log.warning(
            "what the handler of job %s (%s) has returned is not its result, since it had ended the job itself: "
            "tx.complete(lease, result) and lease.complete(result) take one",
            lease.job_id,
            lease.kind,
        )
    if returned is None:
        return Completed(lease)
    if isinstance(returned, VERDICTS):
        return _settled(lease, handler, returned)
    if inspect.iscoroutine(returned):
        returned.close()
        return Failed(
            lease,
            "the handler returned a coroutine, which nobody awaits: declare it with `async def`, "
            "and the decorators around it too",
            retryable=False,
        )
    try:
        codec.encode(returned, "result")
    except PayloadError as exc:
        return unstorable(lease, exc)
    return Completed(lease, returned)


def settlement_of_error(lease: Lease, handler: Handler, exc: BaseException) -> Settlement:
    """Settle a run that raised: a verdict, or a failure, for good or to be tried again.

    A group that holds one exception is taken for that one; one that holds more is a failure, for good when every one
    of them is.
    """
    verdict = verdict_in(exc)
    if verdict is not None:
        return _settled(lease, handler, verdict)
    leaves = _leaves(exc)
    is_permanent = all(_is_permanent(lease, handler, leaf) for leaf in leaves)
    if isinstance(exc, BaseExceptionGroup):
        is_permanent = is_permanent or handler.is_permanent(exc)
    retake_within = 0.0 if is_permanent else handler.short_retry_s
    return Failed(lease, errortext.described(exc), retryable=not is_permanent, retake_within=retake_within)


def verdict_in(exc: BaseException) -> Retry | Discard | Snooze | None:
    """Return the verdict that a handler has raised, alone or as all that is in a group."""
    leaves = _leaves(exc)
    return leaves[0] if len(leaves) == 1 and isinstance(leaves[0], VERDICTS) else None


def unstorable(lease: Lease, exc: LiteQueueError) -> Failed:
    """Settle a run whose result, or a job of its `then`, cannot be stored: it would be the same at the next try."""
    return Failed(lease, errortext.summary(exc), retryable=False)


def _settled(lease: Lease, handler: Handler, verdict: Retry | Discard | Snooze) -> Settlement:
    match verdict:
        case Retry():
            return Failed(lease, _reason(verdict), delay=verdict.delay, retake_within=handler.short_retry_s)
        case Discard():
            return Discarded(lease, _reason(verdict), retryable=False)
        case Snooze():
            return Snoozed(lease, verdict.delay)


def _reason(verdict: Retry | Discard) -> str:
    """Return the reason given, and what led to it: without a reason, that is the reason."""
    cause = verdict.__cause__
    if cause is None and not verdict.__suppress_context__:
        cause = verdict.__context__
    first_line = verdict.reason or (type(verdict).__name__ if cause is None else errortext.summary(cause))
    return errortext.below(first_line, cause)


def _is_permanent(lease: Lease, handler: Handler, exc: BaseException) -> bool:
    if isinstance(exc, RecordError):
        return exc.job_id == lease.job_id or handler.is_permanent(exc)
    return isinstance(exc, Discard) or handler.is_permanent(exc)


def _leaves(exc: BaseException) -> list[BaseException]:
    """Return the exceptions in a group, however deep; one that is no group is its own."""
    leaves: list[BaseException] = []
    waiting = [exc]
    while waiting:
        item = waiting.pop()
        if isinstance(item, BaseExceptionGroup):
            waiting.extend(item.exceptions)
        else:
            leaves.append(item)
    return leaves


def _checked_reason(reason: object) -> str:
    if isinstance(reason, str):
        return reason
    raise UsageError.of("reason", reason, "text")
