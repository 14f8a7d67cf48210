"""What a queue without the gate would be: everybody straight to SQLite, with its own busy timeout.

For one process only, before it opens the queue. Invariant: nothing else is changed, so the figures beside each other
differ by the waiting alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litequeue.sqlite import connection as connections
from litequeue.sqlite.gate import Gate

if TYPE_CHECKING:
    import apsw

    from litequeue.sqlite.connection import Patience

_connect = connections.connect


def apply(busy_timeout_s: float) -> None:
    """Let everybody through the gate, and let SQLite wait as it does by itself: 1, 2, 5, 10 … 100 ms at a time."""

    def connect(path: str, patience: Patience, *, create: bool) -> apsw.Connection:
        connection = _connect(path, patience, create=create)
        connection.set_busy_timeout(round(busy_timeout_s * 1000))
        return connection

    connections.connect = connect
    Gate.enter = lambda *_: True  # type: ignore[method-assign]
