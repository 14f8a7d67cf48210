"""One process of a worker, seen from its parent.

Owns: the process, the pipe, and what the process has told of itself. Leaves out: what is to become of it
(`supervisor`), and what it does (`child`).
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from litequeue.worker.child import Begun, Broken, Message

_STOP_S = 0.0005
"""Between two looks whether a process has stopped."""
_STOPPED_S = 0.5
"""How long that may take."""


class Child:
    """One process, and what it has told of itself."""

    def __init__(self, process: SpawnProcess, connection: Connection[None, Message]) -> None:
        self.process = process
        self.connection = connection
        self.is_ready = False
        self.is_draining = False
        self.broken: Broken | None = None
        """Why it could not work, in its own words."""
        self.begun: Begun | None = None
        """What it works on, until it has told what became of that."""
        self.begun_at = 0.0
        self.limit_at = math.inf
        """When it is to be ended, if its handler goes on until then."""
        self.is_handling = False
        self.settled = ""
        """How its job has ended otherwise; then it may be killed at once."""
        self.tries = 0
        """How often its parent has tried in vain to speak for it."""

    def begins(self, begun: Begun, now: float) -> None:
        """Remember what its handler works on, and how long it may."""
        self.begun = begun
        self.begun_at = now
        self.is_handling, self.settled, self.tries = True, "", 0
        self.limit_at = math.inf if begun.timeout_s is None else now + begun.timeout_s

    def has_ended(self) -> None:
        """Remember that its handler has ended: the process hands in what it came to."""
        self.is_handling = False
        self.limit_at = math.inf

    def ends(self) -> None:
        """Remember what has become of its job."""
        self.begun = None
        self.has_ended()

    def found_settled(self, how: str, leaves_by: float) -> None:
        """Remember that its job has ended otherwise; it goes on to the next, unless its handler does not end."""
        self.settled = how
        self.limit_at = leaves_by

    def drain(self) -> None:
        """Tell it to end after its job."""
        self.is_draining = True
        with contextlib.suppress(OSError):  # it has ended
            self.connection.send(None)

    def send_signal(self, name: str) -> None:
        """Stop it or let it go on, where the platform can."""
        number = getattr(signal, name, None)
        if number is not None and self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def await_stop(self) -> None:
        """Wait until a signal to stop has come through, which a process in the kernel may take a moment for."""
        until = time.monotonic() + _STOPPED_S
        how = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT if hasattr(os, "waitid") else 0
        while how and self.process.pid is not None and time.monotonic() < until:
            with contextlib.suppress(ChildProcessError):  # it has ended, and been waited for
                if os.waitid(os.P_PID, self.process.pid, how) is None:
                    time.sleep(_STOP_S)
                    continue
            break

    def messages(self) -> Iterator[Message]:
        """Return what it has said since it was last asked; a killed one may have been cut off."""
        try:
            while self.connection.poll():
                yield self.connection.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            return

    def kill(self) -> None:
        """End it now."""
        self.process.kill()
        self.process.join()

    def may_have_passed_by(self, status: int | None) -> bool:
        """Tell whether another one may be able to begin where this has not: it was killed, or the file was busy."""
        return self.broken.may_pass if self.broken is not None else status is not None and status < 0
