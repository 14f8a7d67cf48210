"""What every verb is made of: a piece of work, done in a transaction or in a look.

Leaves out: the verbs (`verbs`, `setting_verbs`, `schedule_verbs`, `outbox_verbs`), and whether a transaction is one of
its own (`Queue`) or the caller's (`Transaction`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from litequeue.model import Scope
from litequeue.sqlite.context import Context
from litequeue.sqlite.reader import Reader

T = TypeVar("T")


class Doing(ABC):
    """Does the work of verbs."""

    scope: Scope
    """The scope that a verb means when it is given none."""

    @abstractmethod
    def _do(self, work: Callable[[Context], T], *, durable: bool) -> T:
        """Run a verb's work in a write transaction; `durable` work is synced in the mode `enqueue` too."""

    @abstractmethod
    def _look(self, work: Callable[[Reader], T]) -> T:
        """Run a pure read."""
