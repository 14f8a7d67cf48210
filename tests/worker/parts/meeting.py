"""How a test meets a worker that runs beside it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litequeue import Ending, Worker

PATIENCE_S = 60.0


def until(condition: Callable[[], bool], what: str = "") -> None:
    """Wait until something is so."""
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up, f"this did not come about: {what or condition}"
        time.sleep(0.005)


def lines(folder: Path, what: str) -> list[list[str]]:
    """Return what handlers have left for the test so far: process and attempt of each. A file just made is empty."""
    file = folder / what
    return [line.split() for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def pid_of(folder: Path, what: str = "begun") -> int:
    """Wait until a handler has left its word, and return the id of its process."""
    until(lambda: bool(lines(folder, what)), f"{what} by a handler")
    return int(lines(folder, what)[-1][0])


class Running:
    """A worker that runs in a thread beside the test."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.ending: Ending | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="test-worker")
        self._thread.start()

    def _run(self) -> None:
        try:
            self.ending = self.worker.run()
        except BaseException as exc:  # noqa: BLE001 - the test looks at it
            self.error = exc

    def join(self) -> Ending:
        """Wait for its end."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the worker did not end"
        if self.error is not None:
            raise self.error
        assert self.ending is not None
        return self.ending

    def drained(self) -> Ending:
        """Stop it, and wait for its end."""
        self.worker.stop()
        return self.join()

    def abandon(self) -> None:
        """End it however it stands, at the end of a test."""
        self.worker.stop()
        self.worker.stop()
        self._thread.join(PATIENCE_S)
