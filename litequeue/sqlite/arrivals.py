"""Waiting for work (`Queue.wait`): watch, look, sleep, and again.

No ring is missed, because the watch begins before the look, and the ring comes after the commit:

    waiter: watches                 a ring from here on wakes it, even before it sleeps
    waiter: looks, and sleeps       a commit before the look is seen, one after it has its ring still to come

Invariants: a look reads, and nothing here writes; due times and lapses wake by themselves; a slow look now and then is
the net for what nobody rings for (a ringer killed after its commit, a bell removed, a clock that stepped). Who is rung
for others again and again rests before it listens anew, or a busy queue would keep all that wait for other kinds busy.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from litequeue.sqlite import reading
from litequeue.sqlite.watching import WATCHER, Listener

if TYPE_CHECKING:
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


def wait(store: Store, scope: str, kinds: tuple[str, ...] | None, timeout_s: float) -> bool:
    """Wait until a lease call may find something, or for so many seconds; tell which it was."""
    until = time.monotonic() + timeout_s
    poll_s = _LEAST_S
    rest_s = 0.0
    listener = Listener(store.place.bell_path)
    try:
        while True:
            listener.forget()
            is_woken = WATCHER.watch(listener, store.place)
            with store.read() as reader:
                ahead_s = reading.until_work(reader, scope, kinds)
            looked_at = time.monotonic()
            left_s = until - looked_at
            if ahead_s == 0 or left_s <= 0:
                return ahead_s == 0
            listener.sleep(min(left_s, max(ahead_s, _LEAST_S), _NET_S if is_woken else poll_s))
            poll_s = min(2 * poll_s, _MOST_POLL_S)
            if is_woken and time.monotonic() - looked_at < _SOON_S:
                if rest_s > 0:
                    listener.rest(min(rest_s, max(0.0, until - time.monotonic())))
                rest_s = min(max(2 * rest_s, _LEAST_S), _MOST_REST_S)
            else:
                rest_s = 0.0
    finally:
        try:
            WATCHER.leave(listener)
        except BaseException:  # an interrupt at its very door
            WATCHER.leave(listener)
            raise
