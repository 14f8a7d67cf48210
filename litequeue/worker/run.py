"""How a worker works, and one job in its hands.

Owns: what the rooms of the worker tell each other of it: the lease, the handler, when it began and must end, and what
it came to. Invariant: from the moment it is given to an executor until that posts it back, only the executor sets
`settlement`; everything else belongs to the dispatcher.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, NoReturn, Protocol

from litequeue.lease import Lease
from litequeue.model import Scope, SpecialScope
from litequeue.settlement import Failed, Released, Settlement
from litequeue.worker.handlers import Handler, Handlers
from litequeue.worker.outcomes import settlement_of, settlement_of_error

EXIT_FORKED = 76
"""The exit status of a process that a handler has forked and let return."""


class Plan(NamedTuple):
    """How a worker works, checked."""

    handlers: Handlers
    concurrency: int
    scope: Scope | SpecialScope
    """`ANY` is every scope, in turn."""
    lease_ttl_s: float | None
    drain_timeout_s: float
    hold_s: float
    until_empty: bool
    has_limits: bool = True
    """Whether handlers are told when their time is over; a parent that kills them keeps the time itself."""


@dataclass(slots=True, eq=False)
class Run:
    """A lease, what handles it, and what has become of it so far."""

    lease: Lease
    handler: Handler
    starts_at: float = field(default_factory=time.monotonic)
    """`time.monotonic`; later than now while a pause between two tries is waited out."""
    limit_at: float = math.inf
    """When its time is over; from its start."""
    settlement: Settlement | None = None
    """What the handler came to; `None` while it runs, and when it has ended its lease by itself."""
    interrupt: Callable[[], None] | None = None
    """Ends what an event loop runs, at its next await; set by an executor that has one."""
    has_begun: bool = False
    has_timed_out: bool = False
    is_given_back: bool = False
    """Whether the worker has told it to stop because its own time is over: the attempt does not count."""
    is_loss_told: bool = False
    pid: int = field(default_factory=os.getpid)
    """Of the process that has the job."""

    def succeeded(self, returned: object) -> None:
        """Keep what the handler returned."""
        if os.getpid() != self.pid:
            _end_copy(None)
        self._settle(settlement_of(self.lease, self.handler, returned))

    def raised(self, exc: BaseException) -> None:
        """Keep what the handler raised."""
        if os.getpid() != self.pid:
            _end_copy(exc)
        self._settle(settlement_of_error(self.lease, self.handler, exc))

    def _settle(self, settlement: Settlement) -> None:
        """Keep an ending; one that came of being told to stop is told as what it was."""
        if self.lease.settled:
            return
        if isinstance(settlement, Failed) and self.is_given_back:
            settlement = Released(self.lease)
        elif isinstance(settlement, Failed) and self.has_timed_out:
            error = f"timed out after {self.handler.timeout_s:g} s\n{settlement.error}"
            settlement = replace(settlement, error=error)
        self.settlement = settlement


def _end_copy(exc: BaseException | None) -> NoReturn:
    """End a process that a handler has forked and let come out of it: it has no job, and nobody would stop it."""
    status = EXIT_FORKED
    if isinstance(exc, SystemExit):
        status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    elif exc is not None:
        traceback.print_exception(exc)
        status = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)


class Executor(Protocol):
    """Where handlers run."""

    def start(self, runs: Sequence[Run]) -> None:
        """Begin these, at once: there are never more of them than it was made for."""
        ...

    def cancel(self, run: Run) -> None:
        """Tell a handler to stop, from any thread; what it comes to is posted all the same."""
        ...

    def close(self, *, is_idle: bool) -> None:
        """Let go of the threads; unless nothing runs any more, what runs is left to itself."""
        ...
