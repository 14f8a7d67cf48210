"""A fixture for tests of code that uses a queue; pytest loads it when litequeue is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from litequeue.queue import Queue


@pytest.fixture
def litequeue_db(tmp_path: Path) -> Iterator[Queue]:
    """Give the test a fresh queue in a file of its own under `tmp_path`; it is closed after the test.

    Its durability is `normal`: a test gains nothing from syncing to disk.
    """
    import litequeue  # noqa: PLC0415 - a test run that never asks for a queue does not load SQLite

    with litequeue.open(tmp_path / "litequeue.db", durability="normal") as queue:
        yield queue
