"""One process of a worker (`mode="processes"`): a holder of its own that works on one job after the other.

Owns: what such a process does from its start to its end, and what it tells its parent. Invariants: it is told to drain
by its parent, or by the parent's death, and by no signal, since those that end the parent reach it as well; when it
loses a lease whose handler still runs, it ends at once, as nothing else stops a handler. Handlers run in the thread of
the dispatcher, which is the main one and has nothing else to do meanwhile. Leaves out: time limits, which the parent
keeps by killing it, as long as it is there.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from litequeue.errors import LiteQueueError
from litequeue.facilities import c_library
from litequeue.lease import Fence, Lease
from litequeue.queue import Options, Queue
from litequeue.worker.child_log import Logged, told_to
from litequeue.worker.dispatcher import MAY_PASS, Dispatcher
from litequeue.worker.events import Events, Hook, WorkerEvent
from litequeue.worker.run import Plan, Run
from litequeue.worker.signals import CAN_BLOCK, SIGNALS, hear_none
from litequeue.worker.threads import Inline, cancel

EXIT_LOST = 75
"""The exit status of a process that has ended itself because its job was no longer its own."""
EXIT_TIMED_OUT = 77
"""The exit status of a process whose parent is gone, and whose handler has gone on for longer than it may."""
_LOOK_S = 0.1
_PR_SET_PDEATHSIG = 1
_log = logging.getLogger("litequeue.worker")


@dataclass(frozen=True, slots=True)
class Ready:
    """The child has opened the queue and begins to lease."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A handler begins: from here on its time counts."""

    fence: Fence
    kind: str
    attempts: int
    ttl_us: int
    timeout_s: float | None

    @classmethod
    def of(cls, run: Run) -> Begun:
        """Say it of a run."""
        lease = run.lease
        return cls(lease.fence, lease.kind, lease.attempts, lease.ttl_us, run.handler.timeout_s)

    def lease(self, holder: Queue) -> Lease:
        """Return the lease, for the parent, who may speak for a child that it has stopped."""
        return Lease(holder, self.fence, self.kind, self.attempts, self.ttl_us, 0, b"")


@dataclass(frozen=True, slots=True)
class Ended:
    """The handler has ended; what it came to is about to be handed in."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The child cannot work, and why."""

    reason: str
    may_pass: bool
    """Whether another one may be able to."""


Message = Ready | Begun | Ended | Broken | Logged | WorkerEvent


class Imports:
    """Modules that are imported where this arrives, before whatever is sent after it."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)

    def __reduce__(self) -> tuple[Callable[[Iterable[str]], Imports], tuple[tuple[str, ...]]]:
        return _imported, (self.names,)


def _imported(names: Iterable[str]) -> Imports:
    for name in names:
        importlib.import_module(name)
    return Imports(names)


def serve(_: Imports, options: Options, plan: Plan, connection: Connection[Message, None]) -> None:
    """Work until the parent says that it is enough, or is gone."""
    hear_none()
    _go_on_without_parent()
    if CAN_BLOCK:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # blocked while it started
    parent = _Parent(connection)
    told_to(parent.tell)
    try:
        with options.opened() as queue:
            dispatcher = _Alone(queue, plan, _Passed(parent.tell), lambda _, post: _Announced(post, parent))
            threading.Thread(target=parent.listen, args=(dispatcher,), name="litequeue-parent", daemon=True).start()
            parent.tell(Ready())
            dispatcher.run()
    except LiteQueueError as exc:
        parent.tell(Broken(str(exc), isinstance(exc, MAY_PASS)))
        raise SystemExit(1) from exc


def _go_on_without_parent() -> None:
    """Let the kernel wake this process when its parent dies, which may have stopped it a moment before (Linux).

        parent: SIGSTOP              to speak for this process, which may have the write lock just then
        parent: is killed            nobody is left to wake it, and everybody waits for the lock

    Source: PR_SET_PDEATHSIG in prctl(2).
    """
    libc = c_library("prctl")
    if libc is not None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)


class _Parent:
    """The other end of the pipe."""

    def __init__(self, connection: Connection[Message, None]) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self.limit_at = math.inf
        """When the handler that runs has had its time; the parent knows, as long as there is one."""

    def tell(self, message: Message) -> bool:
        """Send a message; `False` when nobody is there any more, of which `listen` hears."""
        with self._lock:
            try:
                self._connection.send(message)
            except OSError:
                return False
        return True

    def listen(self, dispatcher: Dispatcher) -> None:
        """Wait for the word to drain, and for the end of the parent, which means the same and more."""
        is_told = False
        try:
            self._connection.recv()
            is_told = True
            dispatcher.stop()
            self._connection.recv()  # there is no other word
        except (EOFError, OSError):
            _log.warning("process %d: its parent is gone; it ends after its job", os.getpid())
        if not is_told:
            dispatcher.stop()
        dispatcher.look()  # the parent may have died between its word for this process and the kill
        self._keep_time()

    def _keep_time(self) -> None:
        """Do what the parent can no longer do: end the process when its handler has had its time."""
        while time.monotonic() < self.limit_at:
            time.sleep(_LOOK_S)
        os._exit(EXIT_TIMED_OUT)


class _Passed(Events):
    """Events for the parent, who logs them, and who hears of a start by `Begun`."""

    def __init__(self, hook: Hook) -> None:
        super().__init__(hook, is_logged=False)

    def started(self, lease: Lease) -> None:
        """Say nothing: one message for each start is enough."""


class _Announced:
    """Runs handlers in the dispatcher's own thread, which has nothing else to do meanwhile.

    The parent hears of each run before it begins, and as soon as it has ended.
    """

    def __init__(self, post: Callable[[Run], None], parent: _Parent) -> None:
        self._post = post
        self._parent = parent
        self._here = Inline()

    def start(self, runs: Sequence[Run]) -> None:
        """Tell the parent, then run it."""
        for run in runs:
            self._parent.tell(Begun.of(run))
            if run.handler.timeout_s is not None:
                self._parent.limit_at = time.monotonic() + run.handler.timeout_s
            self._here.do(run)
            self._parent.limit_at = math.inf
            self._parent.tell(Ended())
            self._post(run)

    def cancel(self, run: Run) -> None:
        """See `threads.cancel`."""
        cancel(run)

    def close(self, *, is_idle: bool) -> None:  # noqa: ARG002 - nothing runs when this is called
        """Close the event loop, if there is one."""
        self._here.close()


class _Alone(Dispatcher):
    """A dispatcher that ends its process when a lease is lost whose handler still runs."""

    def lose(self, lease: Lease) -> None:
        if self.is_running(lease):
            self._events.lost(lease, 0.0, "its process ends with it")
            os._exit(EXIT_LOST)
        super().lose(lease)
