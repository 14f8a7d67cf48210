"""The standard `sqlite3` module is not let into a queue file that this process has open.

Two SQLites in one process do not see each other's locks: one that writes destroys the file within a second, whatever
else is done about it (DESIGN §3). Owns the audit hook that refuses it, which is put in with the first handle and never
taken out, as hooks cannot be. Leaves out what tells no hook: other copies of SQLite, connections older than the queue
handle, raw `open()`; against their mere looking there are the gate and the anchor.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from urllib.parse import unquote, urlsplit

from litequeue.errors import UsageError

_EVENT = "sqlite3.connect"
_hooks: list[object] = []


def keep_out(is_open: Callable[[str], bool]) -> None:
    """From here on refuse every path of which `is_open` says that a handle of this process is on that file."""
    if not _hooks:
        _hooks.append(hook := partial(_hook, is_open))
        sys.addaudithook(hook)


def _hook(is_open: Callable[[str], bool], event: str, arguments: tuple[object, ...]) -> None:
    if event == _EVENT:
        path = _path(arguments[0])
        if path and is_open(path):
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
