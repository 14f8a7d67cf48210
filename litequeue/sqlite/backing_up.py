"""A backup: a copy of a queue in use, at its place as a whole or not at all.

Owns: where a backup may go. Invariants: it never replaces the queue itself, by whatever name, nor a file beside which
SQLite has something: a queue in use, or one that has crashed; what is at the target stays until the copy is whole and
has been checked. Leaves out: what a copy is (`copying`) and how it gets to its place (`partial`).
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace

import apsw

from litequeue.clock import Clock
from litequeue.errors import CannotOpen
from litequeue.model import Copied
from litequeue.sqlite import copying, filesystem, opening, presence
from litequeue.sqlite.connection import PARTIAL_SUFFIX, why_not
from litequeue.sqlite.copying import Progress
from litequeue.sqlite.partial import partial, publish
from litequeue.sqlite.place import LOGS, Place
from litequeue.sqlite.store import Store
from litequeue.sqlite.surroundings import is_own

_TIMEOUT_S = 10.0


def back_up(
    place: Place, clock: Clock, target: str | os.PathLike[str], *, overwrite: bool, progress: Progress | None
) -> Copied:
    """Copy the queue at `place` to `target`.

    Raises:
        CannotOpen: the target is there and not to be overwritten, is in use, or cannot be written.
        QueueFull: no room.
        StorageCorrupt: the queue is damaged; a copy would be, too.
    """
    path = opening.real_path(target)
    refuse_target(path, place.path, overwrite=overwrite)
    mode = stat.S_IMODE(os.stat(place.path).st_mode)
    try:
        with partial(path, mode) as made:
            # A handle of its own: the caller's others go on, and a fork beside it is told of the open snapshot.
            store = Store(replace(place, create=False), "normal", _TIMEOUT_S, clock)
            try:
                with store.read() as reader:
                    copying.copy_out(reader.connection, made, place.path, path, progress)
            finally:
                store.close(release=False)
            jobs = copying.finish(made, place.path)
            file_bytes = os.stat(made).st_size
            refuse_target(path, place.path, overwrite=overwrite)
            publish(made, path, overwrite=overwrite)
    except (apsw.Error, OSError) as exc:
        raise copying.failure(exc, place.path, path) from exc
    return Copied(path, jobs, file_bytes)


def refuse_target(path: str, source: str, *, overwrite: bool) -> None:
    """Refuse a place where a backup would do harm.

    Raises:
        CannotOpen: see `back_up`.
    """
    folder, name = os.path.split(path)
    if is_own(path, source):
        raise CannotOpen(path, "a backup there would replace the queue itself, or a file that belongs to it")
    if presence.is_attended(Place(path, 0o600, create=False, has_presence=True)):
        raise CannotOpen(path, "a queue is in use by this name")
    if name.endswith(PARTIAL_SUFFIX):
        raise CannotOpen(path, "names that end so are those of unfinished files")
    reason = (
        why_not(path, create=True)
        if not os.path.lexists(path) or overwrite
        else "it exists already (`overwrite` replaces it)"
    )
    if reason is None and not os.access(folder, os.W_OK | os.X_OK):
        reason = f"no permission to write in {folder}{filesystem.owner_of(folder)}"
    if reason is not None:
        raise CannotOpen(path, reason)
    refuse_logs(path)


def refuse_logs(path: str) -> None:
    """Refuse a place beside which SQLite has left something that it would take for the new file's.

    Raises:
        CannotOpen: there is such a file.
    """
    for suffix in LOGS:
        if os.path.lexists(path + suffix):
            reason = f"{os.path.basename(path)}{suffix} lies there: a queue is in use by this name, or has crashed"
            raise CannotOpen(path, reason)
