"""The lease that is being worked on here: what a handler, or a function far beneath it, may ask for.

Owns: the context variable. Invariant: it is that of the run which calls, in whatever thread or task of an event loop,
and nobody's once that has ended. Leaves out: who runs (`handlers`).
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, NamedTuple

from litequeue.errors import UsageError
from litequeue.lease import Lease

if TYPE_CHECKING:
    from litequeue.aio import AsyncLease


class Current(NamedTuple):
    """A lease as its handler has it."""

    lease: Lease
    shelled: AsyncLease | None
    """The same with coroutines, for an asynchronous handler."""


_IN_A_TEST = "in a test run the task with litequeue.testing.drain(q, tasks)"
_current: ContextVar[Current] = ContextVar("litequeue_current")


def begin(lease: Lease, shelled: AsyncLease | None = None) -> Token[Current]:
    """Say that this lease is being worked on, until `end`."""
    return _current.set(Current(lease, shelled))


def end(token: Token[Current]) -> None:
    """Say that it no longer is.

    A coroutine that its loop left behind is closed in whatever context the collector runs: there it never was.
    """
    with contextlib.suppress(ValueError):
        _current.reset(token)


def current_lease() -> Lease:
    """Return the lease of the job that the calling handler or task works on, in whatever function beneath it.

    Raises:
        UsageError: nothing that a worker runs is being run here; or it runs on an event loop, which the verbs of this
            lease would block (in a thread that it has started, by `asyncio.to_thread`, they do not).
    """
    current = _current.get(None)
    if current is None:
        raise UsageError(f"current_lease() is only there inside a handler or a task that a worker runs; {_IN_A_TEST}")
    if current.shelled is not None and is_on_a_loop():
        raise UsageError("in an asynchronous handler or task call current_async_lease(): its verbs are to be awaited")
    return current.lease


def current_async_lease() -> AsyncLease:
    """Return the lease of the job that the calling asynchronous handler or task works on; its verbs are coroutines.

    Raises:
        UsageError: nothing asynchronous that a worker runs is being run here.
    """
    current = _current.get(None)
    if current is None or current.shelled is None:
        raise UsageError(
            f"current_async_lease() is only there inside an asynchronous handler or task of a worker; {_IN_A_TEST}"
        )
    return current.shelled


def is_on_a_loop() -> bool:
    """Tell whether this thread runs an event loop just now."""
    import asyncio  # noqa: PLC0415 - has been imported by whoever runs an asynchronous handler

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
