"""The worker: leases jobs, runs handlers, tells the queue what came of it, until it is told to stop.

Owns: the arguments of a worker, and what stands around its loop: the signals and the maintenance. Invariant: after
`run` has returned nothing of it is left leased, unless the file could not be written. Leaves out: the loop
(`dispatcher`), and where handlers run (`threads`, `loop`, `supervisor`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from litequeue import arguments
from litequeue.errors import UsageError
from litequeue.lease import Duration
from litequeue.model import ANY, Scope, SpecialScope, storable_scope
from litequeue.queue import Queue
from litequeue.worker import maintaining, signals
from litequeue.worker.dispatcher import Dispatcher, Ending
from litequeue.worker.events import Events, Hook
from litequeue.worker.handlers import Handlers, Handling, Permanent
from litequeue.worker.run import Executor, Plan, Run
from litequeue.worker.threads import Threads

if TYPE_CHECKING:
    from litequeue.worker.supervisor import Supervisor

Mode = Literal["threads", "processes", "asyncio"]
MODES: tuple[Mode, ...] = ("threads", "processes", "asyncio")
MAX_CONCURRENCY = 1_000
_MAX_LEASE_S = 31_536_000
_MAX_HOLD_S = 1.0


class Worker:
    """Runs handlers on the jobs of one queue file.

    `handlers` maps kinds, and prefixes ending in `:`, to functions that take the lease, or is a `Tasks`; only these
    kinds are leased. `scope` defaults to the queue's; with `ANY` every scope is served in turn (V12). What a handler
    returns is the job's result; an exception fails the run. `concurrency` is how many run at once (1 to 1,000), and
    how many jobs are held at most.

    `mode` says where they run: `threads`; `asyncio`, where asynchronous ones share an event loop; or `processes`, where
    each has a process and is killed when its time is over. `lease_ttl` (seconds) defaults to the setting of the kind;
    leases are extended at a third of it. `timeout` is how long a run may take, in seconds: then a process is killed and
    an asynchronous handler cancelled, and the run has failed; a thread is only told, by `lease.cancelled`, and what it
    comes to counts as always: one that returns a value all the same has completed its job. `permanent` are exceptions
    after which a job is dead at once. A failure whose pause is at most `short_retry` seconds (0 to 60) is waited out
    here, with the lease held; a longer one goes back to the queue. These three are for handlers that do not say.

    `maintenance` keeps the file up as well; one worker of a file does, the others stand by. What has ended is handed in
    within `hold` seconds (0 to 1), so that several share a commit. `on_event` is called with each `WorkerEvent`, in the
    thread of `run`. With `until_empty` the worker ends when nothing is ready. `imports` are names of
    modules that each process imports first, such as one that sets up logging; it imports those of its handlers anyway.

    Raises:
        UsageError: an argument out of its bounds, or handlers that cannot work.
    """

    def __init__(
        self,
        queue: Queue,
        handlers: Mapping[str, Handling],
        *,
        concurrency: int = 4,
        mode: Mode = "threads",
        lease_ttl: Duration | None = None,
        drain_timeout: Duration = 30.0,
        scope: Scope | SpecialScope | None = None,
        maintenance: bool = True,
        short_retry: Duration = 0,
        timeout: Duration | None = None,
        permanent: Permanent = (),
        hold: Duration = 0.01,
        on_event: Hook | None = None,
        until_empty: bool = False,
        imports: Iterable[str] = (),
    ) -> None:
        given: object = queue
        if not isinstance(given, Queue):
            raise UsageError.of("queue", given, "a Queue, from litequeue.open")
        if mode not in MODES:
            raise UsageError.of("mode", mode, f"one of {', '.join(MODES)}")
        plan = Plan(
            Handlers(handlers, timeout=timeout, permanent=permanent, short_retry=short_retry),
            arguments.whole("concurrency", concurrency, 1, MAX_CONCURRENCY),
            queue.scope if scope is None else scope,
            None if lease_ttl is None else _seconds("lease_ttl", lease_ttl, _MAX_LEASE_S, positive=True),
            arguments.timeout_s("drain_timeout", drain_timeout),
            _seconds("hold", hold, _MAX_HOLD_S),
            bool(until_empty),
        )
        if plan.scope is not ANY:
            storable_scope(plan.scope)
        self._queue = queue
        self._is_maintaining = maintenance
        events = Events(on_event)
        self._crew: Supervisor | Dispatcher
        if mode == "processes":
            from litequeue.worker.supervisor import Supervisor  # noqa: PLC0415 - multiprocessing is for those who use it

            self._crew = Supervisor(queue, plan, events, _names(imports))
        else:
            self._crew = Dispatcher(queue, plan, events, _loop if mode == "asyncio" else Threads)
        self._has_run = threading.Lock()

    def run(self) -> Ending:
        """Work until `stop()`, SIGTERM, SIGINT or SIGHUP has drained it; return what was done.

        The first of these stops leasing, and what runs may end; after `drain_timeout`, or at the second one, the rest
        is told to stop and given back, which costs its jobs no attempt. A thread that does not listen runs on until the
        process ends: end it soon. Signals are heard only when this is called in the main thread. A file that is locked,
        full or out of reach is tried again.

        Raises:
            UsageError: it has run before, or this thread has a transaction open on the queue.
            LiteQueueError: the file is of no more use (replaced, damaged, closed); what ran has been told to stop.
        """
        if not self._has_run.acquire(blocking=False):
            raise UsageError("a worker runs once: make a new one")
        with contextlib.ExitStack() as stack:
            stack.enter_context(signals.heard_by(self.stop))
            if self._is_maintaining:
                stack.enter_context(maintaining.maintained(self._queue.sibling()))
            return self._crew.run()

    def stop(self) -> None:
        """Drain, and let `run` return; called again, give back at once what still runs.

        Safe from any thread and in signal handlers; before `run` it makes that return at once.
        """
        self._crew.stop()

    @property
    def running(self) -> int:
        """How many jobs are in hand just now."""
        return self._crew.running


def _loop(most: int, post: Callable[[Run], None]) -> Executor:
    from litequeue.worker.loop import Loop  # noqa: PLC0415 - asyncio is for those who use it

    return Loop(most, post)


def _names(imports: Iterable[str]) -> list[str]:
    if isinstance(imports, str) or not all(isinstance(name, str) for name in imports):
        raise UsageError.of("imports", imports, "names of modules")
    return list(imports)


def _seconds(argument: str, value: Duration, most_s: float, *, positive: bool = False) -> float:
    return arguments.duration_us(argument, value, positive=positive, most_s=most_s) / 1_000_000
