"""Files that a command writes or reads beside the queue.

Invariant: never one of the queue's own. A file that is written was not there before, and one that is read is compared
with those of the queue first: closing a descriptor of such a one drops SQLite's locks (DESIGN §3).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, TextIOWrapper
from pathlib import Path

from litequeue.cli.failures import Failure

_OF_QUEUE = ("", "-wal", "-shm", "-journal", "-lock")


@contextmanager
def new_file(path: str, mode: int) -> Iterator[TextIOWrapper]:
    """Make a file and give it to be written; when anything goes wrong on the way, it is gone again.

    Raises:
        Failure: there is one already.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), mode)
    except FileExistsError as exc:
        raise Failure(f"{path} exists already: name a file that does not") from exc
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(path).unlink()
        raise


@contextmanager
def foreign_file(path: str, queue_path: str) -> Iterator[BufferedReader]:
    """Open a file to be read.

    Raises:
        Failure: it is one of the queue's own.
        OSError: it is not there, or cannot be read.
    """
    wanted = Path(path)
    for suffix in _OF_QUEUE:
        with contextlib.suppress(OSError):
            if wanted.samefile(queue_path + suffix):
                raise Failure(f"{path} is a file of the queue itself")
    with wanted.open("rb") as file:
        yield file
