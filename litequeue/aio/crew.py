"""The threads that do the work of coroutines: one pool for the whole process.

Invariants: work begins at once, in a thread that rests or in a new one, so no work waits for other work here (how much
goes on at a time is for whoever hands it in to say); a thread that has rested for a while ends; none keeps the process
from ending, and a forked child begins without any. Leaves out: what the work is, and who hears of its end (`errand`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from litequeue.sqlite import forks

Work = Callable[[], None]
"""Something to be done, which lets no exception out."""

_REST_S = 5.0
"""How long a thread waits for its next work before it ends."""


class Crew:
    """The pool. For use in every thread."""

    def __init__(self) -> None:
        self._resting: list[SimpleQueue[Work]] = []
        """A list is appended to and popped from in one step of the interpreter each; the last to rest works first."""
        forks.know(self)

    def do(self, work: Work) -> None:
        """Let a thread do this, and come back at once.

        Raises:
            RuntimeError: the system gives no more threads, or the interpreter ends.
        """
        try:
            inbox = self._resting.pop()
        except IndexError:
            thread = threading.Thread(target=self._live, args=(work, self._resting), name="litequeue-aio", daemon=True)
            thread.start()
        else:
            inbox.put(work)

    def _live(self, work: Work | None, resting: list[SimpleQueue[Work]]) -> None:
        inbox: SimpleQueue[Work] = SimpleQueue()
        while work is not None:
            work()
            work = None  # what it refers to is not kept through the rest
            resting.append(inbox)
            with contextlib.suppress(Empty):
                work = inbox.get(timeout=_REST_S)
            if work is None:
                try:
                    resting.remove(inbox)
                except ValueError:  # somebody has just taken it, and is about to put something in
                    work = inbox.get()

    def before_fork(self) -> None:
        """Nothing to do: the threads do not exist in the child."""

    def after_fork_in_parent(self) -> None:
        """Nothing to do."""

    def after_fork_in_child(self) -> None:
        """Begin anew."""
        self._resting = []


CREW = Crew()
"""The one of this process."""
