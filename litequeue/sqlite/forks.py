"""What a fork may not carry over.

A child that uses an inherited SQLite connection destroys data, and one that merely inherits another thread's open
transaction believes in a lock that nobody holds (DESIGN §3). So whoever holds connections or lock files registers here:
before a fork they are closed, under the locks that make that safe, and both sides open anew at their next verb.
Invariants: objects are known weakly, so a fork keeps no handle alive; an exception of a signal handler, which may come
between any two steps, leaves no step undone (what is cut off is done again, so each has to bear that).
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class ForkAware(Protocol):
    """Whoever must act around a fork; each of these may be called twice, and must not raise by itself."""

    def before_fork(self) -> None:
        """Let go of what must not be inherited."""

    def after_fork_in_parent(self) -> None:
        """Go on."""

    def after_fork_in_child(self) -> None:
        """Start afresh, or mark what cannot be used."""


class Weakly(Generic[T]):
    """Objects that are known weakly; to be added to and walked in any thread and in any signal handler.

    A list is appended to, searched and copied in one step of the interpreter each; a set of weak references is not.
    """

    def __init__(self) -> None:
        self._references: list[weakref.ref[T]] = []

    def add(self, item: T) -> None:
        """Know one more."""
        self._references.append(weakref.ref(item, self._drop))

    def __iter__(self) -> Iterator[T]:
        """Walk those that live, as of now."""
        for reference in list(self._references):
            item = reference()
            if item is not None:
                yield item

    def _drop(self, reference: weakref.ref[T]) -> None:
        with contextlib.suppress(ValueError):
            self._references.remove(reference)


_known: Weakly[ForkAware] = Weakly()
_acting: dict[int, ForkAware] = {}
"""Those that are ready for the present fork, by identity, in order."""
_spoiled: set[str] = set()
"""Files on which this process inherited open connections: SQLite here believes in locks that nobody holds."""
_lock = threading.RLock()
"""Held around a fork: nothing is registered meanwhile, but by a signal handler of the forking thread itself."""


def register(aware: ForkAware) -> None:
    """Call this object around every fork, for as long as it lives; waits for the end of a fork that is going on."""
    with _lock:
        know(aware)


def know(aware: ForkAware) -> None:
    """Do the same without waiting: one that comes during a fork is at least told in the child."""
    _known.add(aware)


def spoil(path: str) -> None:
    """Note that this process has inherited an open connection to a file: it can use that file no more."""
    _spoiled.add(path)


def is_spoiled(path: str) -> bool:
    """Tell whether this process has inherited an open connection to a file."""
    return path in _spoiled


def _in_full(step: Callable[[], None]) -> None:
    """Do a step, again if it was cut off; what cut it off is raised afterwards."""
    cut_off: BaseException | None = None
    while True:
        try:
            step()
        except BaseException as exc:  # noqa: BLE001 - raised below; Python only prints what a hook raises
            cut_off = exc
        else:
            break
    if cut_off is not None:
        raise cut_off


def _before() -> None:
    _in_full(_prepare)


def _prepare() -> None:
    if not _is_mine():
        _lock.acquire()
    for aware in _known:
        if id(aware) not in _acting:
            aware.before_fork()
            _acting[id(aware)] = aware


def _in_parent() -> None:
    _in_full(_go_on_in_parent)


def _in_child() -> None:
    _in_full(_go_on_in_child)


def _go_on_in_parent() -> None:
    for aware in _all():
        aware.after_fork_in_parent()
    _end()


def _go_on_in_child() -> None:
    for aware in _all():
        aware.after_fork_in_child()
    _end()


def _all() -> list[ForkAware]:
    """Return those to tell of the end of a fork, the last one first; those too that came during it, or were cut off."""
    if not _is_mine():  # told already
        return []
    return list({**_acting, **{id(aware): aware for aware in _known}}.values())[::-1]


def _end() -> None:
    _acting.clear()
    if _is_mine():
        _lock.release()


def _is_mine() -> bool:
    return bool(_lock._is_owned())  # type: ignore[attr-defined] # noqa: SLF001 - as `threading.Condition` does


if hasattr(os, "register_at_fork"):
    for _ in range(
        2
    ):  # an exception may come at the very entry of a hook; the second one finds what the first one left
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
