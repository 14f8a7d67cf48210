"""Who hears the bells: one thread for all that wait in this process, on whatever handles and files (DESIGN §4).

Invariants: who has been told `True` by `watch` is woken by every ring after it, at the latest when the kernel tells
that the watch is gone; each ring wakes all who watch, and is over then; nobody who watches keeps a process alive, and a
forked child begins anew. Where the kernel tells nothing (its limits, the file system, the platform) `watch` says so.
Leaves out: what is done about it (`arrivals`), and how the kernel tells (`inotify`, `kqueue`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from queue import Empty, SimpleQueue
from typing import Protocol

from litequeue.sqlite import forks
from litequeue.sqlite.gate import open_sidecar
from litequeue.sqlite.inotify import HAS_INOTIFY, Inotify
from litequeue.sqlite.kqueue import HAS_KQUEUE, Kqueue
from litequeue.sqlite.place import Place

_LOST = -1
"""The key of events that the kernel could not keep: any of the files may have rung."""
_log = logging.getLogger("litequeue")


class Source(Protocol):
    """How the kernel tells of events on files; each watch is for one event."""

    def arm(self, path: str, descriptor: int) -> int:
        """Watch for the next event on a file, which is open by a descriptor; return the event's key."""
        ...

    def heard(self) -> list[int]:
        """Wait for events; return their keys."""
        ...

    def close(self) -> None:
        """Let go of it, in a forked child too."""
        ...


class Listener:
    """One thread that waits. Its rings are counted by a queue that a signal handler may put into, unlike an event."""

    __slots__ = ("_rings", "key", "known_since", "path")

    def __init__(self, path: str, rings: SimpleQueue[None] | None = None) -> None:
        self.path = path
        """Of the bell."""
        self.key: int | None = None
        """Of the watch that it has its ring from, for the watcher."""
        self.known_since = 0.0
        """When this process first watched the file that it has its ring from, by `time.monotonic`."""
        self._rings: SimpleQueue[None] = SimpleQueue() if rings is None else rings

    def twin(self, path: str) -> Listener:
        """Return one who listens to another bell, and wakes this one."""
        return Listener(path, self._rings)

    def wake(self) -> None:
        """End its sleep, or its next one."""
        self._rings.put(None)

    def forget(self) -> None:
        """Forget the rings so far: what they told of is about to be seen."""
        while not self._rings.empty():
            self._rings.get_nowait()

    def sleep(self, seconds: float) -> bool:
        """Sleep until it is woken, no longer than that; tell whether it was."""
        return self._pause(seconds)

    def rest(self, seconds: float) -> None:
        """Do not listen for so long; a handle that closes ends it."""
        self._pause(seconds)

    def _pause(self, seconds: float) -> bool:
        try:
            self._rings.get(timeout=seconds)
        except Empty:
            return False
        return True


class Watcher:
    """The thread, and those whom it wakes. For use by every thread, and by signal handlers in the midst of it."""

    def __init__(self) -> None:
        self._has_failed = False
        self._is_deaf = False
        """Whether the source has failed while it was read: it is not tried again."""
        self._source: Source | None = None
        self._known: dict[str, tuple[tuple[int, int], float]] = {}
        """Of each bell's path: which file was there last, and since when."""
        self._begin()
        forks.know(self)

    def watch(self, listener: Listener, place: Place) -> bool:
        """Let the next ring wake a listener; tell whether it will. To be called anew before each look."""
        if self._pid != os.getpid():  # a fork that ran no hooks
            self.after_fork_in_child()
        try:
            with self._lock:
                self._leave(listener)
                source = self._listening()
                if source is None:
                    return False
                descriptor = open_sidecar(listener.path, place.mode)
                try:
                    listener.known_since = self._since(listener.path, descriptor)
                    listener.key = source.arm(listener.path, descriptor)
                finally:
                    os.close(descriptor)
                self._listeners.setdefault(listener.key, set()).add(listener)
        except (OSError, RuntimeError) as exc:  # no such file, no more watches, no more threads
            if not self._has_failed:
                self._has_failed = True
                _log.warning("waiting for %s asks again and again, its bell failed: %s", place.path, exc)
            return False
        return True

    def leave(self, listener: Listener) -> None:
        """Wake a listener no more."""
        with self._lock:
            self._leave(listener)

    def wake(self, path: str) -> None:
        """Wake all who listen to a bell: a handle of theirs is closed."""
        with self._lock:
            found = [one for listeners in self._listeners.values() for one in listeners if one.path == path]
        for listener in found:
            listener.wake()

    def before_fork(self) -> None:
        """Nothing to do: the thread does not exist in the child."""

    def after_fork_in_parent(self) -> None:
        """Nothing to do."""

    def after_fork_in_child(self) -> None:
        """Begin anew, without the parent's listeners; one that this very thread has comes back before its next look."""
        source, self._source = self._source, None
        self._begin()
        if source is not None:
            with contextlib.suppress(OSError):
                source.close()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._listeners: dict[int, set[Listener]] = {}

    def _since(self, path: str, descriptor: int) -> float:
        """Return when this process first saw the file that is at a path now."""
        found = os.fstat(descriptor)
        file = found.st_dev, found.st_ino
        known = self._known.get(path)
        if known is None or known[0] != file:
            known = self._known[path] = file, time.monotonic()
        return known[1]

    def _leave(self, listener: Listener) -> None:
        if listener.key is not None:
            others = self._listeners.get(listener.key, set())
            others.discard(listener)
            if not others:
                self._listeners.pop(listener.key, None)
            listener.key = None

    def _listening(self) -> Source | None:
        """Return the source, with a thread that reads from it; `None` where the platform has none."""
        if self._source is None and not self._is_deaf:
            self._source = _open_source()
        if self._source is not None and (self._thread is None or not self._thread.is_alive()):
            thread = threading.Thread(target=self._run, args=(self._source,), name="litequeue-bell", daemon=True)
            thread.start()
            self._thread = thread
        return self._source

    def _run(self, source: Source) -> None:
        """Read until that fails; then wake all, who find out at their next `watch` what is left to them."""
        try:
            while True:
                for key in source.heard():
                    self._wake(key)
        except OSError as exc:
            _log.warning("bells are not heard any more: %s", exc)
        finally:
            with self._lock:
                if self._source is source:
                    self._source = None
                    self._is_deaf = True
                    with contextlib.suppress(OSError):
                        source.close()
            self._wake(_LOST)

    def _wake(self, key: int) -> None:
        with self._lock:
            keys = list(self._listeners) if key == _LOST else [key]
            found = [one for lost in keys for one in self._listeners.pop(lost, ())]
        for listener in found:
            listener.wake()


def _open_source() -> Source | None:
    if HAS_INOTIFY:
        return Inotify()
    return Kqueue() if HAS_KQUEUE else None


WATCHER = Watcher()
"""The one of this process."""
