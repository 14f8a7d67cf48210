"""Commands that go on in steps, and end between two of them when the process is told to.

Owns: SIGTERM and Ctrl-C for that time. Invariant: no step is cut short, so what is said to have been done is what has
been done; only what may wait for another program for ever, such as a read of a pipe, is. Leaves out: commands that run
until they are told to stop (`running`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from litequeue.worker.signals import heard_by


class Stepwise:
    """Knows whether the process has been told to end; made by `stepwise`."""

    def __init__(self) -> None:
        self._is_told = False
        self._is_waiting = False

    def note(self) -> None:
        """Hear of a signal, in its handler.

        Raises:
            KeyboardInterrupt: the command waits for another program.
        """
        self._is_told = True
        if self._is_waiting:
            raise KeyboardInterrupt

    def end_if_told(self) -> None:
        """End between two steps.

        Raises:
            KeyboardInterrupt: the process has been told to end.
        """
        if self._is_told:
            raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let the signals end what is done in a `with` block.

        Raises:
            KeyboardInterrupt: the process is told to end, or has been.
        """
        self._is_waiting = True
        try:
            self.end_if_told()
            yield
        finally:
            self._is_waiting = False


@contextmanager
def stepwise() -> Iterator[Stepwise]:
    """Hear of the signals that ask a process to end for the length of a `with` block."""
    told = Stepwise()
    with heard_by(told.note):
        yield told
