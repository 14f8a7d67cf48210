"""An application that has the standard `sqlite3` module, and never loads apsw: run as a program of its own.

    python stranger.py FILE NAME SEED LEDGER DURABILITY CONTROL POINT TIMES

It places orders through `litequeue.dbapi` until SIGTERM, or until it comes to its point for the so-manieth time and
kills itself there; it then says so in the file `died` beside its ledger.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import litequeue.dbapi
from applying.placing import Clerk, Order

_BUSY_S = 5.0


class DbapiTill:
    """Enqueues in the transactions of a `sqlite3` connection."""

    busy = (sqlite3.OperationalError,)

    def __init__(self, path: str, durability: str) -> None:
        warnings.filterwarnings("ignore", category=RuntimeWarning)  # of an old SQLite
        warnings.filterwarnings("ignore", category=UserWarning)
        self._connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        self._connection.execute(f"PRAGMA synchronous = {'NORMAL' if durability == 'normal' else 'FULL'}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write, and ring after the commit."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        litequeue.dbapi.ring(self._connection)

    def execute(self, sql: str, parameters: Sequence[str | int] = ()) -> Sequence[tuple[object, ...]]:
        """Run the application's SQL."""
        return self._connection.execute(sql, parameters).fetchall()

    def promise(self, order: Order) -> None:
        """Enqueue a job about an order."""
        litequeue.dbapi.enqueue(self._connection, "order", order.order_id)


def main(words: list[str]) -> int:
    """Be the application."""
    path, name, seed, ledger, durability, control, point, times = words
    died = Path(ledger).with_suffix(".died")
    left = int(times)
    is_over = False

    def stop(*_: object) -> None:
        nonlocal is_over
        is_over = True

    def come_to(where: str) -> None:
        nonlocal left
        left -= where == point
        if left == 0:
            died.write_text(where, encoding="ascii")
            os.kill(os.getpid(), signal.SIGKILL)

    signal.signal(signal.SIGTERM, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    try:
        till = DbapiTill(path, durability)
        Clerk(till, name, Random(f"{seed} {name}"), Path(ledger), control or None, come_to).work(lambda: is_over)
        if "apsw" in sys.modules:
            raise AssertionError("this process has loaded apsw")
    except BaseException:  # noqa: BLE001 - the report of an end that the contract does not know
        Path(ledger).with_suffix(".trouble").write_text(traceback.format_exc(), encoding="utf-8")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
