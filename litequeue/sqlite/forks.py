"""What a fork may not carry over.

A child that uses an inherited SQLite connection destroys data, and one that merely inherits another thread's open
transaction believes in a lock that nobody holds (DESIGN §3). So whoever holds connections or lock files registers here:
before a fork they are closed, under the locks that make that safe, and both sides open anew at their next verb.
Invariant: objects are known weakly; a fork does not keep a handle alive.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class ForkAware(Protocol):
    """Whoever must act around a fork."""

    def before_fork(self) -> None:
        """Let go of what must not be inherited; must not raise."""

    def after_fork_in_parent(self) -> None:
        """Go on."""

    def after_fork_in_child(self) -> None:
        """Start afresh, or mark what cannot be used."""


_known: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_acting: list[ForkAware] = []
_lock = threading.Lock()


def register(aware: ForkAware) -> None:
    """Call this object around every fork, for as long as it lives."""
    with _lock:
        _known.add(aware)


def _before() -> None:
    _lock.acquire()
    _acting[:] = list(_known)
    for aware in _acting:
        aware.before_fork()


def _in_parent() -> None:
    for aware in reversed(_acting):
        aware.after_fork_in_parent()
    _acting.clear()
    _lock.release()


def _in_child() -> None:
    for aware in reversed(_acting):
        aware.after_fork_in_child()
    _acting.clear()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
