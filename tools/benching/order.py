"""What a child process is told, and what it tells.

Standard library only: the children of peers read this too. Invariant: both are plain JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, NotRequired, TypedDict

from benching.subject import Subject

Durability = Literal["full", "normal"]
Figures = dict[str, float]
Pragmas = dict[str, object]


class Order(TypedDict):
    """One measurement."""

    module: str
    """Of `benching.workloads`."""
    task: str
    where: str
    """`subjects` or `peers`."""
    subject: str
    folder: str
    durability: Durability
    at_any_durability: bool
    """Whether a library that has no setting for it is measured as it always is."""
    numbers: dict[str, float]
    """What else the task wants to know."""
    words: NotRequired[dict[str, str]]


class Measured(NamedTuple):
    """What a task comes back with."""

    figures: Figures
    has: Pragmas
    """What the live connection says of itself, after the work."""


class Answer(TypedDict, total=False):
    """What came out: figures, or why there are none."""

    figures: Figures
    has: Pragmas
    unsupported: str
    failed: str


Meet = Callable[[], None]
"""Wait here until all are there."""
Task = Callable[[Subject, Order, Meet], Measured]
