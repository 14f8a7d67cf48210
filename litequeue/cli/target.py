"""The file that a command works on, from `--db` or the environment.

Owns: how it is opened, and what is said of that. Invariant: the command that needs it opens it, so that help needs
none; a command that does not make the file says when it is not there.
"""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

import litequeue
from litequeue.cli.failures import Failure, Misuse
from litequeue.cli.output import warn


@dataclass(frozen=True, slots=True)
class Target:
    """The queue file named on the command line."""

    path: str | None

    def required_path(self) -> str:
        """Return the path.

        Raises:
            Misuse: no file was named.
        """
        if self.path is None:
            raise Misuse("which queue file? give --db FILE before the command, or set LITEQUEUE_DB")
        return self.path

    @contextmanager
    def queue(self, *, create: bool = False) -> Iterator[litequeue.Queue]:
        """Open the queue for the length of a `with` block.

        Raises:
            Misuse: no file was named.
            Failure: it is not there; the line says how to make it.
            LiteQueueError: it cannot be opened; see `litequeue.open`.
        """
        path = self.required_path()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                queue = litequeue.open(path, create=create)
            except litequeue.CannotOpen as exc:
                if create or os.path.lexists(path):
                    raise
                made_by = f"litequeue --db {shlex.quote(path)} init"
                raise Failure(f"{exc}; make it with `{made_by}`") from exc
        for warning in caught:
            warn(f"warning: {warning.message}")
        with queue:
            yield queue


pass_target = click.make_pass_decorator(Target)
"""Hand the target to a command as its first argument."""
