"""What a queue library has to show to be measured.

Owns the interface between the workloads and the adapters, and where an adapter is found. Imports only the standard
library: it runs in the environment of a peer too. Invariant: what a library cannot do it says with `Unsupported`; the
figure is then absent, never an imitation.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, cast

HERE = Path(__file__).resolve().parent
SORTS = ("completed", "dead", "delayed", "other-kind", "other-scope", "leased", "own-backlog", "keyed")
"""The sorts of rows beside which a verb is timed (`Subject.fill`)."""
MODES = ("threads", "asyncio", "processes")
"""Where the handlers of a worker run."""


class Unsupported(Exception):
    """The library does not do that by itself."""


class Subject(Protocol):
    """One queue library on one file, in one process."""

    name: str

    def open(self, folder: str, durability: str) -> None:
        """Open the queue in a folder, making it if it is not there; `durability` is `full` or `normal`."""

    def pragmas(self) -> dict[str, object]:
        """Return `page_size`, `journal_mode`, `synchronous` and `sqlite` (the version) of the live connection."""

    def enqueue(self, payload: bytes) -> None:
        """Put one job into the queue; it is acknowledged when this returns."""

    def enqueue_many(self, payloads: Sequence[bytes]) -> None:
        """Put a batch in."""

    def lease(self) -> object | None:
        """Take one job, if there is one."""

    def complete(self, token: object) -> None:
        """End a job that was taken."""

    def lease_many(self, n: int) -> list[object]:
        """Take up to `n` jobs."""

    def complete_many(self, tokens: list[object]) -> None:
        """End jobs that were taken."""

    def payload_id(self, token: object) -> bytes:
        """Return the payload of a job that was taken."""

    def fill(self, sort: str, n: int) -> None:
        """Put `n` rows of a sort in, to measure beside them."""

    def wait(self, timeout: float) -> bool:
        """Wait until there may be work, at most so many seconds, by the library's own means."""

    def close(self) -> None:
        """Let the file go."""


class Looking(Protocol):
    """What a subject may do besides."""

    def look(self) -> None:
        """Read the record of the job that this handle enqueued last."""


class Maintained(Protocol):
    """What a subject may do besides."""

    def maintain(self) -> None:
        """Remove what is finished, at once, and give the room back."""


class Peer(Subject, Protocol):
    """What is told of another library besides."""

    distribution: str
    """Its name in the package index."""
    delivery: str
    """`at least once`, or `at most once` where nothing is acknowledged."""
    durabilities: tuple[str, ...]
    """Those that there are settings for; asked for another one, it opens as it always is."""


class Threaded(Protocol):
    """What a subject may do besides: one handle for many threads."""

    serves_threads: bool

    def count_syncs(self) -> None:
        """Before `open`: count what this process syncs to the disk from now on; slows it down."""

    def syncs(self) -> int:
        """Return how many there have been."""


class Fair(Protocol):
    """What a subject may do besides: serve scopes, or tenants, in turn."""

    def fill_scopes(self, scopes: Sequence[str], jobs: int) -> None:
        """Put so many jobs into each scope."""

    def lease_in_turn(self) -> tuple[object, str] | None:
        """Take the next job of all scopes, with its scope."""


class Handle(Protocol):
    """A function that a worker calls with the payload of each job; a module has it, so that processes find it."""

    def __call__(self, payload: bytes) -> object:
        """Handle a job; what this returns is its result, where the library keeps results."""


class Working(Protocol):
    """What a subject may do besides: run a worker of its own."""

    modes: tuple[str, ...]
    """Those of `MODES` that it has."""

    def working(
        self, mode: str, at_once: int, handle: Handle, on_done: Callable[[], object] | None
    ) -> AbstractContextManager[None]:
        """Let a worker run meanwhile that calls `handle` for so many jobs at once, and drain it at the end.

        `on_done` is called in this process after each job that was done in another; `None` where there is none.
        """


class Resulting(Protocol):
    """What a subject may do besides: keep what handlers return."""

    def results(self) -> list[object]:
        """Return what the handlers have returned, in the order in which the jobs were enqueued."""


def names(folder: str) -> list[str]:
    """Return the adapters that are there: `subjects` or `peers`."""
    return sorted(path.stem for path in (HERE / folder).glob("*.py") if path.stem != "__init__")


def load(folder: str, name: str) -> Subject:
    """Make a subject; its library is imported now."""
    module = importlib.import_module(f"benching.{folder}.{name}")
    return cast("Subject", module.Subject())
