"""The signals that ask a process to end, while something runs in it that can be stopped.

Owns: SIGTERM and SIGINT for that time, for workers and commands, and SIGHUP where the process would die of it: one that
is ignored (nohup) stays so, and a handler of the application's own is left alone. Invariant: a handler does nothing but
say so, which is safe in the middle of everything; what stood there before is back afterwards, unless the process ends
then. In any other thread than the main one Python allows no handlers, and there are none. A forked process has its own
end.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType

HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""The terminal has gone; there is none on Windows."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, *(() if HANGUP is None else (HANGUP,)))
CAN_BLOCK = hasattr(signal, "pthread_sigmask")
"""Whether signals can be made to wait; not so on Windows."""
Handling = Callable[[int, FrameType | None], object] | int | None
"""What Python has for a signal."""


@contextmanager
def heard_by(
    stop: Callable[[], None], *, is_end: bool = False, also: Collection[signal.Signals] = ()
) -> Iterator[None]:
    """Call `stop` at each of the signals, and of those that are `also` to be heard; at SIGHUP once.

    The kernel and the shell both send that when a terminal goes. With `is_end` the process ends after the block: once a
    signal has come, more of them say nothing new.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_told = False
    has_hung_up = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal is_told, has_hung_up
        is_told = True
        if number != HANGUP:
            stop()
        elif not has_hung_up:
            has_hung_up = True
            stop()

    taken = [number for number in (*SIGNALS, *also) if number != HANGUP or signal.getsignal(number) == signal.SIG_DFL]
    before = {number: signal.signal(number, handle) for number in taken}
    _lent.update(before)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if is_told and is_end else handler)
            _lent.pop(number, None)


@contextmanager
def blocked() -> Iterator[None]:
    """Let the signals wait meanwhile; in a program that is started they wait until it lets them come."""
    if not CAN_BLOCK:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear_none() -> None:
    """Let the signals do nothing in this process, for good; programs that it starts, and its forks, heed them."""
    for number in SIGNALS:
        usual: Handling = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        if number == HANGUP and signal.getsignal(number) == signal.SIG_IGN:
            continue
        signal.signal(number, lambda _number, _frame: None)  # what is ignored would be so in a started program
        if hasattr(signal, "siginterrupt"):
            signal.siginterrupt(number, False)  # noqa: FBT003 - it takes no keywords; no call of a handler ends early
        _lent[number] = usual


def _give_back() -> None:
    """In a fork, which is another process with an end of its own, let the signals be what they were before."""
    while _lent:
        number, handler = _lent.popitem()
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


_lent: dict[signal.Signals, Handling] = {}
"""What stood where this module's handlers stand now."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_give_back)
