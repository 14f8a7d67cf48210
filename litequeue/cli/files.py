"""Files that a command writes or reads beside the queue.

Invariant: never one of the queue's own: SQLite deletes a journal that it has not written, and closing a descriptor of
a file that it has locked drops its locks (DESIGN §3). A file that is written was not there before, and is there when
it is whole; what a kill leaves of it has a hidden name of its own (`partial`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, TextIOWrapper
from pathlib import Path

from litequeue.cli.failures import Failure, Misuse
from litequeue.sqlite.partial import partial, publish
from litequeue.sqlite.surroundings import is_own


@contextmanager
def new_file(path: str, mode: int, queue_path: str) -> Iterator[TextIOWrapper]:
    """Give a file to be written, and put it at its place in the end; when anything goes wrong on the way, it is gone.

    Raises:
        Failure: there is one already, or it would be one of the queue's own.
        OSError: it cannot be made there, or not be written.
    """
    _refuse(path, queue_path)
    place = str(Path(path).absolute())
    try:
        if os.path.lexists(place):
            raise FileExistsError
        with partial(place, mode) as made:
            with Path(made).open("w", encoding="utf-8", newline="\n") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            publish(made, place, overwrite=False)
    except FileExistsError as exc:
        raise Failure(f"{path} exists already: name a file that does not") from exc
    except OSError as exc:
        if exc.filename is None:
            raise
        raise OSError(exc.errno, exc.strerror, path) from exc  # not of the unfinished one


@contextmanager
def foreign_file(path: str, queue_path: str) -> Iterator[BufferedReader]:
    """Open a file to be read.

    Raises:
        Failure: it is one of the queue's own.
        OSError: it is not there, or cannot be read.
    """
    _refuse(path, queue_path)
    with Path(path).open("rb") as file:
        yield file


def _refuse(path: str, queue_path: str) -> None:
    if "\0" in path:
        raise Misuse(f"{path!r} is no path: there is a NUL in it")
    if is_own(path, queue_path):
        raise Failure(f"{path} is a file of the queue itself, or would be")
