"""Presence: whether the process behind a queue handle still lives, by a lock that the kernel gives up at its death.

A handle that leases is a holder. It locks the byte at the offset of its id in the sidecar `<file>-lock` with an OFD
lock before its row is committed, and keeps it until it is closed; the gate's `flock` on the whole file and these never
meet. Invariants: a free byte means death only on the very
sidecar that the row names, so a replaced one makes nobody look dead; a stopped process keeps its lock; a forked child
closes what it inherited, so that it does not keep its dead parent alive. Where the platform or the file system has no
such locks nobody is ever called dead, and deadlines decide. Leaves out: what happens to a dead holder's leases.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator

from litequeue.sqlite import ofd
from litequeue.sqlite.gate import open_sidecar
from litequeue.sqlite.place import Place

_log = logging.getLogger("litequeue")

_ATTENDANCE = 0
"""The byte that every open handle shares; ids begin at 1."""
_MOST = 2**63 - 1

Known = Iterable[tuple[int, str | None]]
"""Holders as their rows tell of them: id, and the identity of the sidecar that they locked a byte of."""


class Presence:
    """The lock that says that one handle lives."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._descriptor: int | None = None
        self._sidecar: str | None = None
        self._is_possible = ofd.HAS_LOCKS and place.has_presence
        self.holder_id: int | None = None
        """Who this handle is, once its first lease has been tried."""

    def __del__(self) -> None:
        self.close()

    def sidecar(self) -> str | None:
        """Return the identity of the sidecar, opening it if need be; `None` where presence says nothing."""
        if self._descriptor is None and self._is_possible:
            try:
                self._use(open_sidecar(self._place.lock_path, self._place.mode))
            except OSError as exc:
                self._give_up(exc)
        return self._sidecar

    def hold(self, holder_id: int) -> bool:
        """Lock the byte of an id; tell whether it is this handle's now.

        Another handle may have it for a moment more: one that got the same id in a transaction that rolled back.
        """
        if self._descriptor is not None and self.holder_id != holder_id:
            self.release()
            try:
                ofd.lock(self._descriptor, holder_id, 1)
            except BlockingIOError:
                return False
            except OSError as exc:
                self._give_up(exc)
                return False
        self.holder_id = holder_id
        return True

    def attend(self) -> None:
        """Say that a handle is open on the file, connected or not, until this is closed."""
        if not self._is_possible:
            return
        with contextlib.suppress(OSError):  # the first lease tries again, and tells
            if self._descriptor is None:
                self._use(open_sidecar(self._place.lock_path, self._place.mode, create=False))
            if self._descriptor is not None:
                ofd.share(self._descriptor, _ATTENDANCE, 1)

    def release(self) -> None:
        """Let go of the byte of this handle's id, and go on without one."""
        if self._descriptor is not None and self.holder_id is not None:
            with contextlib.suppress(OSError):
                ofd.unlock(self._descriptor, self.holder_id, 1)
        self.holder_id = None

    def close(self) -> None:
        """Let go of all locks; in a forked child, of the descriptor only, so that the parent's death frees the byte."""
        self.holder_id = self._sidecar = None
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _use(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._sidecar = _identity(descriptor)

    def _give_up(self, exc: OSError) -> None:
        self.close()
        self._is_possible = False
        _log.warning("leases of %s end by their deadline only, its lock file failed: %s", self._place.path, exc)


def is_attended(place: Place) -> bool:
    """Tell whether a handle is certainly open on the file: also an idle one, and one that a fork has disconnected."""
    if not ofd.HAS_LOCKS or not place.has_presence:
        return False
    try:
        descriptor = open_sidecar(place.lock_path, place.mode, create=False)
    except OSError:
        return False
    try:
        return ofd.is_locked(descriptor, _ATTENDANCE, 1)
    finally:
        os.close(descriptor)


def living(place: Place, holders: Known) -> list[int]:
    """Return the ids of those that certainly live: their byte is locked."""
    return [holder_id for holder_id, is_locked in probe(place, holders) if is_locked]


def dead(place: Place, holders: Known) -> list[int]:
    """Return the ids of those whose process has certainly let go: their byte is free."""
    return [holder_id for holder_id, is_locked in probe(place, holders) if not is_locked]


def probe(place: Place, holders: Known) -> Iterator[tuple[int, bool]]:
    """Ask for the byte of each holder that locked one of this sidecar; return ids and whether it is locked.

    By a descriptor of this call's own: one that has locks itself does not see them. Of a holder that presence says
    nothing of, neither does this.
    """
    known = [(holder_id, sidecar) for holder_id, sidecar in holders if sidecar is not None]
    if not known or not ofd.HAS_LOCKS or not place.has_presence:
        return
    try:
        descriptor = open_sidecar(place.lock_path, place.mode, create=False)
    except OSError:
        return
    try:
        here = _identity(descriptor)
        for holder_id, sidecar in known:
            if sidecar == here and _ATTENDANCE < holder_id < _MOST:
                yield holder_id, ofd.is_locked(descriptor, holder_id, 1)
    finally:
        os.close(descriptor)


def _identity(descriptor: int) -> str:
    status = os.fstat(descriptor)
    return f"{status.st_dev}:{status.st_ino}"
