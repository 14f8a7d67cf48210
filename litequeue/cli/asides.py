"""What a listing says beside itself, to whoever reads it on a terminal: that it is empty, and that there is more.

Invariant: it is said on standard error, and to nobody where the listing goes to a file or a pipe: an empty listing has
no line, and its status is 0. Leaves out: how a page goes on, which programs are told too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized

from litequeue import Queue
from litequeue.cli.layout import is_terminal
from litequeue.cli.output import scope_text, warn
from litequeue.model import ANY, Scope, SpecialScope

OTHER_SCOPES = "Other scopes have jobs, too: see `scopes`, or give --all-scopes."


def tell_empty(found: Sized, nothing: str) -> None:
    """Say that there is nothing, when that is so."""
    if not found and is_terminal():
        warn(nothing)


def tell(found: Iterable[str]) -> None:
    """Say what `remarks` has found."""
    for remark in found:
        warn(remark)


def remarks(queue: Queue, where: Scope | SpecialScope | None, found: Sized, nothing: str) -> list[str]:
    """Return what is to be said of a listing of jobs in a scope: that there are none, and that others have some."""
    if not is_terminal():
        return []
    place = queue.scope if where is None else where
    empty = [] if found else [f"{nothing} in {'any scope' if place is ANY else f'scope {scope_text(place)}'}"]
    return [*empty, *([OTHER_SCOPES] if (where is None or not found) and has_others(queue, where) else [])]


def has_others(queue: Queue, where: Scope | SpecialScope | None) -> bool:
    """Tell whether other scopes than the one that is listed have jobs."""
    place = queue.scope if where is None else where
    return place is not ANY and any(scope != place for scope in queue.scopes())
