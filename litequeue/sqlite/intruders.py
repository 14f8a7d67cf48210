"""No two SQLites of one process in one queue file.

They do not see each other's locks: one that writes destroys the file within a second, whatever else is done about it
(DESIGN §3). Owns the audit hook that refuses the standard `sqlite3` module a file that this process has open, which is
put in with the first handle and never taken out, as hooks cannot be; and what is known of the files that
`litequeue.dbapi` writes to through such another SQLite, which no handle is opened on as long as one of its descriptors
is there. Leaves out what tells neither: other copies of SQLite, connections that nobody enqueues on, raw `open()`;
against their mere looking there are the gate and the anchor.
"""

from __future__ import annotations

import os
import sys
from typing import Protocol
from urllib.parse import unquote, urlsplit

from litequeue.errors import CannotOpen, UsageError
from litequeue.facilities import PROC
from litequeue.sqlite.forks import Weakly
from litequeue.sqlite.tripwire import FILE, Identity, present

_EVENT = "sqlite3.connect"
_DESCRIPTORS = (f"{PROC}/self/fd", "/dev/fd")


class Guarded(Protocol):
    """Whoever uses a file through the queue's SQLite."""

    def is_on(self, file: Identity) -> bool:
        """Whether it uses this very file, now or at its next verb."""
        ...


_guarded: Weakly[Guarded] = Weakly()
_hooks: list[object] = []
_visited: set[Identity] = set()
"""Files that this process has written to through another SQLite."""
_descriptors: dict[str, int] = {}
"""Which descriptor was last found to be on the file at a path: the first to look at again."""


def keep_out(guarded: Guarded) -> None:
    """From here on, as long as it lives, refuse every file that it is on."""
    _guarded.add(guarded)
    if not _hooks:
        _hooks.append(_hook)
        sys.addaudithook(_hook)


def visit(path: str) -> None:
    """Note that another SQLite of this process is about to write to a queue file.

    Raises:
        UsageError: a handle of this process is on the file.
    """
    _refuse_guarded(path)
    file = present(path)[FILE]
    if file is not None:
        _visited.add(file)


def refuse_visited(path: str) -> None:
    """Refuse to open a queue file that another SQLite of this process has written to and still has open.

    Raises:
        CannotOpen: it is so.
    """
    file = present(path)[FILE]
    if file is None or file not in _visited:
        return
    if has_descriptor(path):
        reason = (
            "this process has it open through another SQLite, on which litequeue.dbapi has enqueued, and two of them "
            "destroy data; close all of those connections, or use another process"
        )
        raise CannotOpen(path, reason)
    _visited.discard(file)


def has_descriptor(path: str) -> bool:
    """Tell whether this process has the file at a path open; where the platform does not tell, it may."""
    try:
        file = os.stat(path)
    except OSError:
        return False
    known = _descriptors.get(path)
    if known is not None and _is_on(known, file):
        return True
    for folder in _DESCRIPTORS:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        found = next((int(name) for name in names if _is_on(int(name), file)), None)
        if found is not None:
            _descriptors[path] = found
        return found is not None
    return True


def _is_on(descriptor: int, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file)
    except OSError:  # closed meanwhile
        return False


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event == _EVENT:
        path = _path(arguments[0])
        if path:
            _refuse_guarded(path)


def _refuse_guarded(path: str) -> None:
    file = present(path)[FILE]
    if file is not None and any(one.is_on(file) for one in _guarded):
        raise UsageError(
            f"{path} is open as a queue in this process, where a second SQLite destroys data: use transaction() "
            "and tx.execute(), or another process"
        )


def _path(database: object) -> str:
    """Return the path that `sqlite3.connect` was given, also when it is in a URI."""
    if not isinstance(database, (str, bytes, os.PathLike)):
        return ""
    given: str | bytes = os.fspath(database)
    path = os.fsdecode(given)
    return unquote(urlsplit(path).path) if path.startswith("file:") else path
