"""What is given for a clock, wherever one is taken: it is asked before anything is done (§6, G8)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import litequeue
from litequeue import NewJob, SystemClock, UsageError, dbapi

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore:this process writes")


class Broken(SystemClock):
    """Fails, by one of those errors that elsewhere are signs of a damaged file."""

    def wall_us(self) -> int:
        """Fail."""
        raise ValueError("no time today")


class Vague(SystemClock):
    """Says something that is no time."""

    def monotonic_us(self) -> Any:  # noqa: ANN401 - it is wrong
        """Say something."""
        return "noon"


def by_open(path: Path, clock: Any) -> None:  # noqa: ANN401 - mostly wrong ones
    """Make a file."""
    litequeue.open(path, clock=clock).close()


def by_attach(path: Path, clock: Any) -> None:  # noqa: ANN401 - mostly wrong ones
    """Make the tables in a file of the application."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        before = path.read_bytes()
        try:
            litequeue.attach(connection, clock=clock)
        finally:
            assert not connection.in_transaction
            assert path.read_bytes() == before
            assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == []
    path.unlink()


def by_dbapi(path: Path, clock: Any, *, many: bool = False) -> None:  # noqa: ANN401 - mostly wrong ones
    """Enqueue."""
    with closing(sqlite3.connect(path)) as connection:
        dbapi.create_tables(connection)
        try:
            if many:
                dbapi.enqueue_many(connection, [NewJob("work")], clock=clock)
            else:
                dbapi.enqueue(connection, "work", clock=clock)
        finally:
            assert not connection.in_transaction
    path.unlink()


WAYS = [by_open, by_attach, by_dbapi, lambda path, clock: by_dbapi(path, clock, many=True)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("clock", [5, 0, "noon", SystemClock, Vague(), object()])
def test_what_is_no_clock_is_refused_by_name(tmp_path: Path, way: Callable[[Path, Any], None], clock: object) -> None:
    """As every argument is, and never for a damaged file; no file is made."""
    path = tmp_path / "app.db"
    with pytest.raises(UsageError, match=r"^clock must be an object whose methods") as caught:
        way(path, clock)
    assert caught.value.argument == "clock"


def test_what_is_no_clock_makes_no_file(tmp_path: Path) -> None:
    """It is refused before anything is done."""
    with pytest.raises(UsageError):
        by_open(tmp_path / "app.db", 5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("way", WAYS)
def test_what_a_clock_raises_is_raised(tmp_path: Path, way: Callable[[Path, Any], None]) -> None:
    """The caller knows its own error best."""
    with pytest.raises(ValueError, match=r"^no time today"):
        way(tmp_path / "app.db", Broken())
