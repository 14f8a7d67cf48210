"""Connections of an application, on queue files that no handle of this process has open at the same time."""

from __future__ import annotations

import importlib.util
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

import litequeue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litequeue.testing import FakeClock
    from tests.faults import children
else:  # the folders of the tests are no packages
    _place = Path(__file__).parent.parent / "faults" / "children.py"
    _spec = importlib.util.spec_from_file_location("litequeue_children", _place)
    children = importlib.util.module_from_spec(_spec)
    sys.modules[_spec.name] = children
    _spec.loader.exec_module(children)


class Connect(Protocol):
    """Opens connections of the standard module to the test's file, or to another one."""

    def __call__(self, path: str | None = None, **options: Any) -> sqlite3.Connection:  # noqa: ANN401 - those of `sqlite3.connect`
        """Open one more; all are closed after the test."""
        ...


@pytest.fixture
def path(tmp_path: Path, clock: FakeClock) -> str:
    """Give the path of a queue file with a table of the application's own."""
    path = str(tmp_path / "app.db")
    with litequeue.open(path, clock=clock) as queue, queue.transaction() as tx:
        tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    return path


@pytest.fixture
def connect(path: str) -> Iterator[Connect]:
    """Give the opener of connections."""
    file = path
    opened: list[sqlite3.Connection] = []

    def open_one(path: str | None = None, **options: Any) -> sqlite3.Connection:  # noqa: ANN401 - those of `sqlite3.connect`
        connection: sqlite3.Connection = sqlite3.connect(path or file, **options)
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        connection.close()


@pytest.fixture
def connection(connect: Connect) -> sqlite3.Connection:
    """Give one, as `sqlite3.connect` opens it."""
    return connect()


@pytest.fixture
def processes() -> Iterator[children.Children]:
    """Give the means to run functions of this module in other processes; none outlives the test."""
    started = children.Children()
    yield started
    started.end()
