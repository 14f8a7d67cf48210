"""Waiting for work (`Queue.wait`, `Waiter`): watch, look, sleep, and again.

No ring is missed, because the watch begins before the look, and the ring comes after the commit:

    waiter: watches                 a ring from here on wakes it, even before it sleeps
    waiter: looks, and sleeps       a commit before the look is seen, one after it has its ring still to come

No interrupt is missed either, because who interrupts says so before it wakes, and who waits forgets before it asks:

    waiter: forgets the rings       a wake-up from here on ends its sleep
    waiter: asks, and sleeps        an interrupt before the question is seen, one after it has its wake-up still to come

Invariants: a look reads, and nothing here writes; due times and lapses wake by themselves; a slow look now and then is
the net for what nobody rings for (a ringer killed after its commit, a bell removed, a clock that stepped). Who is rung
for others again and again rests before it listens anew, or a busy queue would keep all that wait for other kinds busy.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from litequeue import arguments
from litequeue.sqlite import reading
from litequeue.sqlite.watching import WATCHER, Listener

if TYPE_CHECKING:
    from litequeue.lease import Duration
    from litequeue.sqlite.reader import Reader
    from litequeue.sqlite.store import Store

_NET_S = 1.0
"""Between two looks at most: about 0.02% of a core."""
_LEAST_S = 0.001
"""Between two looks at least, though something is due earlier: the clock of the handle may stand still."""
_MOST_POLL_S = 0.05
"""Between two looks at most where nobody hears the bell; from `_LEAST_S` on, each pause is twice the one before."""
_SOON_S = 0.02
"""A ring so soon after a look that found nothing is one of many."""
_MOST_REST_S = 0.016
"""The longest rest; there is none after the first ring, then `_LEAST_S`, and each is twice the one before."""
_RESTS_A_LOOK = 9
"""A rest is at least so many times as long as the look before it has kept the processor, so that looks at many scopes
take a tenth of a core at most."""


class Lookout:
    """Waits for one thing in a file, as often as it is asked to. For many threads; signal handlers may interrupt it."""

    def __init__(self, store: Store, bell_path: str) -> None:
        self._store = store
        self._bell_path = bell_path
        self._listeners: list[Listener] = []
        """Of the waits that go on just now. A list changes and is copied in one step of the interpreter each."""
        self._is_interrupted = False

    def interrupt(self) -> None:
        """End the wait that goes on, or the next one, at once; safe in every thread and in signal handlers.

        Interrupts that come before a wait has ended because of one are one; a wait that begins after that waits. Of
        several threads that wait at least one is let go. Python runs a signal's handler late when it comes in the few
        steps before the main thread falls asleep: then about a second later.
        """
        self._is_interrupted = True
        for listener in self._listeners.copy():
            listener.wake()

    def _until(self, look: Callable[[Reader], float], timeout: Duration | None, *, looks_first: bool = False) -> bool:
        """Wait until a look answers 0; what else it answers is in how many seconds it will. `False`: it was not to be.

        That is because the time is over, or because of an interrupt. `looks_first` is to look before anything is
        watched.
        """
        self._store.refuse_inside()
        until = _end_of(timeout)
        if looks_first:
            with self._store.read() as reader:
                ahead_s = look(reader)
            if ahead_s == 0 or until <= time.monotonic():
                return ahead_s == 0
        return self._attend(lambda listener: self._look_and_sleep(listener, look, until))

    def _attend(self, wait: Callable[[Listener], bool]) -> bool:
        """Wait with a listener that interrupts wake."""
        listener = Listener(self._bell_path)
        try:
            self._listeners.append(listener)
            return wait(listener)
        finally:
            try:
                self._leave(listener)
            except BaseException:  # an interrupt at its very door
                self._leave(listener)
                raise

    def _look_and_sleep(self, listener: Listener, look: Callable[[Reader], float], until: float) -> bool:
        poll_s = _LEAST_S
        rest_s = 0.0
        while True:
            listener.forget()
            if self._has_been_interrupted():
                return False
            is_sure = self._watch(listener)
            began_s = time.thread_time()
            with self._store.read() as reader:
                ahead_s = look(reader)
            least_rest_s = _RESTS_A_LOOK * (time.thread_time() - began_s)
            looked_at = time.monotonic()
            left_s = until - looked_at
            if ahead_s == 0 or left_s <= 0:
                return ahead_s == 0
            was_rung = listener.sleep(min(left_s, max(ahead_s, _LEAST_S), _NET_S if is_sure else poll_s))
            poll_s = min(2 * poll_s, _MOST_POLL_S)
            slept_s = time.monotonic() - looked_at
            if was_rung and slept_s < max(_SOON_S, least_rest_s):
                if rest_s > 0 and not self._is_interrupted:
                    listener.rest(min(max(rest_s, least_rest_s - slept_s), max(0.0, until - time.monotonic())))
                rest_s = min(max(2 * rest_s, _LEAST_S), _MOST_REST_S)
            else:
                rest_s = 0.0

    def _watch(self, listener: Listener) -> bool:
        """Let the next ring wake the listener; tell whether there will be one when a look would find something."""
        return WATCHER.watch(listener, self._store.place)

    def _has_been_interrupted(self) -> bool:
        """Tell whether somebody wants this wait to end; that is answered once, and nothing is taken back unseen."""
        if self._is_interrupted:
            self._is_interrupted = False
            return True
        return False

    def _leave(self, listener: Listener) -> None:
        WATCHER.leave(listener)
        if listener in self._listeners:
            self._listeners.remove(listener)


class Waiter(Lookout):
    """Waits for jobs of some kinds, in a scope or in any, again and again, until it is interrupted.

    Made by `Queue.waiter`. It holds nothing open between two waits, and many threads may share it.
    """

    def __init__(self, store: Store, scope: str | None, kinds: tuple[str, ...] | None) -> None:
        super().__init__(store, store.place.bell_path)
        self._scope = scope
        self._kinds = kinds

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait as `Queue.wait` does; `False` when the time is over, or when it was interrupted.

        `timeout` is seconds or a timedelta; `None` waits for ever, 0 only looks. An interrupt that came before ends it
        without a look.

        Raises:
            UsageError: the time is out of its bounds, or this thread has a transaction open.
            QueueClosed: the handle was closed, also while this waits.
        """
        return self._until(lambda reader: reading.until_work(reader, self._scope, self._kinds), timeout)

    def pause(self, timeout: Duration | None = None) -> None:
        """Wait for the time alone, or for an interrupt: nothing is looked for, and no bell listened to.

        `timeout` is seconds or a timedelta; `None` waits for ever. A handle that is closed ends it within about a
        second.

        Raises:
            UsageError: the time is out of its bounds.
        """
        until = _end_of(timeout)
        self._attend(lambda listener: self._sleep_on(listener, until))

    def _sleep_on(self, listener: Listener, until: float) -> bool:
        while self._store.is_usable:
            listener.forget()
            left_s = until - time.monotonic()
            if self._has_been_interrupted() or left_s <= 0:
                break
            listener.sleep(min(left_s, _NET_S))
        return False


def _end_of(timeout: Duration | None) -> float:
    """Return until when to wait, by `time.monotonic`."""
    return math.inf if timeout is None else time.monotonic() + arguments.timeout_s("timeout", timeout)
