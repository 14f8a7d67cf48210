"""Verbs of several threads that stand in line for one handle's turn, so that what is shared does not hang on luck.

Owns: the threads, and the count of the commits that reach a log.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

from litequeue.sqlite.line import Line, Request
from litequeue.sqlite.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    import apsw
    import pytest

    from litequeue import Queue

THREADS = 8
PATIENCE_S = 30.0


class Commits:
    """Counts the commits that reach the log of any handle."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        original = Log._on_commit

        def counted(log: Log, connection: apsw.Connection, name: str, pages: int) -> int:
            self.count += 1
            return original(log, connection, name, pages)

        monkeypatch.setattr(Log, "_on_commit", counted)


class InLine:
    """Holds the turn of a handle while verbs of other threads come to stand in line; at its end they are let in."""

    def __init__(self, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
        self._queue = queue
        self._joined = threading.Semaphore(0)
        self._pool = ThreadPoolExecutor(THREADS * 2)
        self._hold = queue.transaction()
        original = Line.join

        def join(line: Line, request: Request) -> None:
            original(line, request)
            self._joined.release()

        monkeypatch.setattr(Line, "join", join)

    def __enter__(self) -> Self:
        self._hold.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hold.__exit__(kind, error, trace)
        self._pool.shutdown()

    def start(self, work: Callable[[], object]) -> Future[object]:
        """Begin a verb in another thread."""
        return self._pool.submit(work)

    def let_stand(self, work: Callable[[], object]) -> Future[object]:
        """Begin a verb in another thread; return once it stands in line."""
        future = self.start(work)
        assert self._joined.acquire(timeout=PATIENCE_S)
        return future


def raised(future: Future[object]) -> BaseException | None:
    """Return what a verb raised, when it has come to its end."""
    return future.exception(timeout=PATIENCE_S)


def refuse_second_commit(queue: Queue) -> list[bool]:
    """Let SQLite refuse the second commit of this handle from here on; return what it has been answered so far.

    The first is the holder's, the second the one that is shared: COMMIT fails, and what was open is undone.
    """
    answers: list[bool] = []

    def hook() -> bool:
        answers.append(len(answers) == 1)
        return answers[-1]

    connection = queue._store._writer.connection
    assert connection is not None
    connection.set_commit_hook(hook)
    return answers
