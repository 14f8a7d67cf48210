"""Events: what a worker tells of its jobs, to a hook and to the log.

Owns: the record of an event, what each end is called, and how loud it is logged. Invariants: a hook that fails harms
nothing and is logged once for each sort of failure; where nobody listens, no record is made. Leaves out: the job's own
event log, which the queue keeps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal
from uuid import UUID

from litequeue import codec
from litequeue.errors import UsageError, first_line
from litequeue.lease import Duration, Lease
from litequeue.model import Scope
from litequeue.settlement import Completed, Failed, Settlement
from litequeue.worker.handlers import is_async
from litequeue.worker.outcomes import Discarded, Snoozed

EventName = Literal[
    "started",
    "completed",
    "failed",
    "retried",
    "dead",
    "discarded",
    "snoozed",
    "released",
    "settled",
    "lost",
    "timed_out",
]

LEVELS: dict[EventName, int] = {
    "started": logging.DEBUG,
    "completed": logging.INFO,
    "failed": logging.WARNING,
    "retried": logging.WARNING,
    "dead": logging.DEBUG,  # the queue itself warns of every job that dies, and once is enough
    "discarded": logging.DEBUG,
    "snoozed": logging.INFO,
    "released": logging.INFO,
    "settled": logging.INFO,
    "lost": logging.WARNING,
    "timed_out": logging.WARNING,
}
"""How loud each is logged."""

_log = logging.getLogger("litequeue.worker")


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """Something that happened to a job in a worker; `Worker(on_event=…)` is called with each."""

    name: EventName
    """`started`; then one of these: `completed`, `failed` (tried again later), `retried` (failed, and tried again in
    this worker after a short pause), `dead` (failed for good: out of attempts, or for a permanent reason), `discarded`
    and `snoozed` (its handler said so), `released` (given back as the worker stops), `settled` (its handler ended the
    lease by its own word), `lost` (it was somebody else's by then). `timed_out` may come before."""
    job_id: UUID
    kind: str
    scope: Scope
    attempt: int
    """Leases of the job so far, this one included."""
    generation: int
    """The lease's fencing token."""
    worker_id: str
    duration_s: float | None
    """How long the handler took; `None` at its start."""
    detail: str
    """The first line of an error, the length of a snooze, or why it was lost; at most 256 bytes."""
    created_at: int
    """When the job was enqueued, µs since the epoch."""

    def as_dict(self) -> dict[str, object]:
        """Return the event as plain values, as the log has them; the name is `event` there."""
        return {
            "event": self.name,
            "job_id": str(self.job_id),
            "kind": self.kind,
            "scope": self.scope if isinstance(self.scope, str) else repr(self.scope),
            "attempt": self.attempt,
            "generation": self.generation,
            "worker_id": self.worker_id,
            "duration_s": self.duration_s,
            "detail": self.detail,
            "created_at": self.created_at,
        }


Hook = Callable[[WorkerEvent], object]


class Events:
    """Where a worker says what happens: to its hook, and to the log unless somebody else logs it.

    Raises:
        UsageError: the hook is not a plain function.
    """

    def __init__(self, on_event: Hook | None = None, *, is_logged: bool = True) -> None:
        given: object = on_event
        if given is not None and (not callable(given) or is_async(given)):
            raise UsageError.of("on_event", given, "a plain function that takes a WorkerEvent, or None")
        self._hook = on_event
        self._is_logged = is_logged
        self._told: set[type[BaseException]] = set()

    def started(self, lease: Lease) -> None:
        """Say that a handler begins."""
        self._say("started", lease, None, "")

    def timed_out(self, lease: Lease, duration_s: float) -> None:
        """Say that a handler has been told to stop, because its time is over."""
        self._say("timed_out", lease, duration_s, "")

    def lost(self, lease: Lease, duration_s: float, reason: str) -> None:
        """Say that a job is no longer this worker's."""
        self._say("lost", lease, duration_s, reason)

    def ended(
        self,
        lease: Lease,
        settlement: Settlement | None,
        duration_s: float,
        *,
        is_retaken: bool = False,
        is_dead: bool = False,
    ) -> EventName:
        """Say what a run came to, once the queue has taken it, and return what that is called.

        Without a settlement the handler itself ended it.
        """
        name, detail = ending(settlement)
        if name == "failed":
            name = "dead" if is_dead else "retried" if is_retaken else name
        self._say(name, lease, duration_s, detail)
        return name

    def _say(self, name: EventName, lease: Lease, duration_s: float | None, detail: str) -> None:
        if self._hook is None and not self._logs(name):
            return
        event = WorkerEvent(
            name,
            lease.job_id,
            lease.kind,
            lease.scope,
            lease.attempts,
            lease.lease_generation,
            lease.worker_id,
            duration_s,
            codec.clip(detail, codec.MAX_DETAIL_BYTES),
            lease.created_at,
        )
        self.tell(event)

    def tell(self, event: WorkerEvent) -> None:
        """Pass on an event, which may be of another process."""
        if self._logs(event.name):
            took = "" if event.duration_s is None else f" after {event.duration_s:.3f} s"
            more = f": {event.detail}" if event.detail else ""
            where = event.name, event.kind, event.job_id, event.attempt
            _log.log(LEVELS[event.name], "%s %s %s, attempt %d%s%s", *where, took, more, extra=event.as_dict())
        if self._hook is not None:
            self._call(self._hook, event)

    def _logs(self, name: EventName) -> bool:
        return self._is_logged and _log.isEnabledFor(LEVELS[name])

    def _call(self, hook: Hook, event: WorkerEvent) -> None:
        try:
            hook(event)
        except BaseException as exc:  # noqa: BLE001 - a hook is the user's code, and harms nothing
            if type(exc) not in self._told:
                self._told.add(type(exc))
                _log.exception("on_event failed at %r; a failure of this sort is not told again", event)


def stopping(running: int, drain_timeout_s: float) -> str:
    """Return what is logged of a worker that has been told to stop while so many handlers run."""
    if not running:
        return "stopping"
    jobs = "1 job" if running == 1 else f"{running:,} jobs"
    them = "it" if running == 1 else "them"
    again = f"told again (Ctrl-C, SIGTERM or stop), it gives {them} back at once"
    return f"stopping: {jobs} may run on for up to {drain_timeout_s:g} s; {again}"


def ending(settlement: Settlement | None) -> tuple[EventName, str]:
    """Return what an end is called, and what there is to say of it in a line."""
    match settlement:
        case None:
            return "settled", ""
        case Completed():
            return "completed", ""
        case Failed():
            return "discarded" if isinstance(settlement, Discarded) else "failed", first_line(settlement.error)
        case _:
            later = "" if settlement.delay is None else f"for {_seconds(settlement.delay):g} s"
            return "snoozed" if isinstance(settlement, Snoozed) else "released", later


def _seconds(delay: Duration) -> float:
    return delay.total_seconds() if isinstance(delay, timedelta) else delay
