"""The standard `sqlite3` module is not let into a queue file that this process has open.

Two SQLites in one process do not see each other's locks: one that writes destroys the file within a second, whatever
else is done about it (DESIGN §3). Owns the audit hook that refuses it, which is put in with the first handle and never
taken out, as hooks cannot be. Leaves out what tells no hook: other copies of SQLite, connections older than the queue
handle, raw `open()`; against their mere looking there are the gate and the anchor.
"""

from __future__ import annotations

import os
import sys
from typing import Protocol
from urllib.parse import unquote, urlsplit

from litequeue.errors import UsageError
from litequeue.sqlite.forks import Weakly
from litequeue.sqlite.tripwire import FILE, Identity, present

_EVENT = "sqlite3.connect"


class Guarded(Protocol):
    """Whoever uses a file through the queue's SQLite."""

    def is_on(self, file: Identity) -> bool:
        """Whether it uses this very file, now or at its next verb."""
        ...


_guarded: Weakly[Guarded] = Weakly()
_hooks: list[object] = []


def keep_out(guarded: Guarded) -> None:
    """From here on, as long as it lives, refuse every file that it is on."""
    _guarded.add(guarded)
    if not _hooks:
        _hooks.append(_hook)
        sys.addaudithook(_hook)


def _is_guarded(path: str) -> bool:
    file = present(path)[FILE]
    return file is not None and any(one.is_on(file) for one in _guarded)


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event == _EVENT:
        path = _path(arguments[0])
        if path and _is_guarded(path):
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
