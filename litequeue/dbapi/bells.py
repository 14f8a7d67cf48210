"""The ring after the caller's commit, by which processes that wait hear of its jobs at once (DESIGN §4).

Invariant: a ring is about a commit that has been, and never fails the caller. Nobody has to ring: who waits looks by
itself about once a second. Leaves out: the bell itself (`sqlite.bell`).
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from typing import cast

from litequeue.dbapi import callers
from litequeue.dbapi.places import place_of
from litequeue.sqlite.bell import Bell
from litequeue.sqlite.place import Place

_bells: dict[str, Bell] = {}
"""One for each file: it remembers that it has complained, and where its descriptor is."""
_lock = threading.Lock()


def ring(target: object) -> None:
    """Wake those who wait for work, after the COMMIT of a transaction that enqueued; before it, it is of no use.

    `target` is the path of the file, or the connection. It may be an SQLAlchemy session, and then only rings when jobs
    were enqueued in it: `event.listen(Session, "after_commit", litequeue.dbapi.ring)` is all that an application needs
    to say. A Django connection rings by itself when its transaction commits. Without a ring a job is found when who
    waits looks by itself, within about a second.

    Raises:
        UsageError: neither a path nor a connection to a file.
    """
    if isinstance(target, (str, os.PathLike)):
        ring_for(os.path.realpath(cast("str | os.PathLike[str]", target)))
        return
    info = getattr(target, "info", None) if hasattr(target, "get_bind") else None
    if isinstance(info, dict):
        if _is_nested(target):  # a savepoint was released, which SQLAlchemy calls a commit, too
            return
        for path in cast("dict[object, set[str]]", info).pop(callers.RINGS, set()):
            ring_for(path)
        return
    ring_for(place_of(callers.of(target).connection))


def _is_nested(session: object) -> bool:
    in_nested = cast("Callable[[], bool] | None", getattr(session, "in_nested_transaction", None))
    return in_nested is not None and in_nested()


def ring_for(path: str) -> None:
    """Ring for a file, by its real path."""
    with _lock:
        bell = _bells.get(path)
        if bell is None:
            try:
                mode = stat.S_IMODE(os.stat(path).st_mode)
            except OSError:  # it is gone, and nobody waits
                return
            place = Place(path, mode, create=False, has_presence=False)
            bell = _bells[path] = Bell(place, place.bell_path, makes=True)
        bell.ring()


def _start_afresh() -> None:
    """Begin anew in a forked child: a thread that it has not may have held the lock."""
    global _lock  # noqa: PLW0603 - there is one
    _lock = threading.Lock()
    _bells.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)
