"""The file, or files, that a command works on, from `--db` or the environment.

Owns: how it is opened, and what is said of that. Invariant: the command that needs it opens it, so that help needs
none; a command that does not make the file says when it is not there.
"""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import click

import litequeue
from litequeue.cli.failures import Failure, Misuse
from litequeue.cli.output import warn

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Looked(Generic[T]):
    """What was found in queue files, by their paths."""

    found: dict[str, T]
    is_whole: bool
    """Whether every one of the files could be read."""


@dataclass(frozen=True, slots=True)
class Target:
    """The queue files named on the command line: one, or several for a command that looks at all of them."""

    paths: tuple[str, ...]

    @property
    def is_several(self) -> bool:
        """Whether more than one file is named."""
        return len(self.paths) > 1

    def required_path(self) -> str:
        """Return the path of the one file.

        Raises:
            Misuse: no file was named, or several.
        """
        first, *others = self._required()
        if others:
            raise Misuse(
                "this command works on one file: only `stats`, `top`, `dead ls` and `metrics` take --db several times"
            )
        return first

    def folder(self) -> str:
        """Return the folder that the one file lies in, or would; the current one where no file was named.

        Raises:
            Misuse: several were named.
        """
        return str(Path(self.required_path()).resolve().parent if self.paths else Path.cwd())

    @contextmanager
    def queue(self, *, create: bool = False) -> Iterator[litequeue.Queue]:
        """Open the one queue for the length of a `with` block.

        Raises:
            Misuse: no file was named, or several.
            Failure: it is not there; the line says how to make it.
            LiteQueueError: it cannot be opened; see `litequeue.open`.
        """
        with _opened(self.required_path(), create=create) as queue:
            yield queue

    def look(self, at: Callable[[litequeue.Queue], T]) -> Looked[T]:
        """Look at each of the queues, one after the other, in their order; each is closed before the next.

        One of several that cannot be read has a line on standard error, and the others are looked at all the same.

        Raises: as `queue`, of a single one.
        """
        if not self.is_several:
            with self.queue() as queue:
                return Looked({self.required_path(): at(queue)}, is_whole=True)
        found: dict[str, T] = {}
        for path in self.paths:
            try:
                with open_file(path) as queue:
                    found[path] = at(queue)
            except litequeue.LiteQueueError as exc:
                warn(str(exc) if path in str(exc) else f"{path}: {exc}")
        return Looked(found, is_whole=found.keys() == set(self.paths))

    def distinct_paths(self) -> tuple[str, ...]:
        """Return the paths of all files, for a command that keeps them open side by side.

        Raises:
            Misuse: no file was named, or one of them twice.
        """
        seen: dict[str, str] = {}
        for path in self._required():
            before = seen.setdefault(os.path.realpath(path), path)
            if before is not path:
                raise Misuse(f"--db {path} names the file of --db {before} again")
        return self.paths

    def _required(self) -> tuple[str, ...]:
        if not self.paths:
            raise Misuse("which queue file? give --db FILE before the command, or set LITEQUEUE_DB")
        return self.paths


def open_file(path: str, *, create: bool = False, busy_timeout: float | None = None) -> litequeue.Queue:
    """Open a file; whoever calls this closes it. `busy_timeout` is in seconds; `None` is the usual one.

    Raises:
        LiteQueueError: it cannot be opened; see `litequeue.open`.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if busy_timeout is None:
            queue = litequeue.open(path, create=create)
        else:
            queue = litequeue.open(path, create=create, busy_timeout=busy_timeout)
    for warning in caught:
        warn(f"warning: {warning.message}")
    return queue


def with_hint(exc: litequeue.CannotOpen, path: str, *, create: bool = False) -> Exception:
    """Return what to raise for a file that cannot be opened: when it is not there, the line says what to make."""
    if os.path.lexists(path):
        return exc
    if not os.path.lexists(Path(os.path.realpath(path)).parent):
        return Failure(f"{exc}; make that folder first")
    if create:
        return exc
    return Failure(f"{exc}; make it with `litequeue --db {shlex.quote(path)} init`")


@contextmanager
def _opened(path: str, *, create: bool) -> Iterator[litequeue.Queue]:
    try:
        queue = open_file(path, create=create)
    except litequeue.CannotOpen as exc:
        raise with_hint(exc, path, create=create) from exc
    with queue:
        yield queue


pass_target = click.make_pass_decorator(Target)
"""Hand the target to a command as its first argument."""
