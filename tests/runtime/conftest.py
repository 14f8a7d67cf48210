"""What the tests of running programs have: a path and other processes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litequeue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litequeue import Queue
    from litequeue.testing import FakeClock
    from tests.faults import children
else:  # the folders of the tests are no packages
    _place = Path(__file__).parent.parent / "faults" / "children.py"
    _spec = importlib.util.spec_from_file_location("litequeue_children", _place)
    children = importlib.util.module_from_spec(_spec)
    sys.modules[_spec.name] = children
    _spec.loader.exec_module(children)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the path of a queue file that does not exist yet."""
    return tmp_path / "app.queue"


@pytest.fixture
def queue(path: Path, clock: FakeClock) -> Iterator[Queue]:
    """Give a handle on a fresh queue."""
    with litequeue.open(path, durability="normal", clock=clock) as opened:
        yield opened


@pytest.fixture
def processes() -> Iterator[children.Children]:
    """Give the means to run functions of this module in other processes; none outlives the test."""
    started = children.Children()
    yield started
    started.end()
