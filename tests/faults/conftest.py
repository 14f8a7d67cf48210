"""What the tests of faults have: real processes to kill, stop and fork."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults import children
else:  # the folders of the tests are no packages
    _spec = importlib.util.spec_from_file_location("litequeue_children", Path(__file__).with_name("children.py"))
    children = importlib.util.module_from_spec(_spec)
    sys.modules[_spec.name] = children
    _spec.loader.exec_module(children)


@pytest.fixture(autouse=True)
def _log() -> Iterator[None]:
    """Undo what a harness that runs in this process does to the package's log: other tests read it."""
    log = logging.getLogger("litequeue")
    level, handlers = log.level, list(log.handlers)
    yield
    log.setLevel(level)
    log.handlers[:] = handlers


@pytest.fixture
def processes() -> Iterator[children.Children]:
    """Give the means to run functions of this module in other processes; none outlives the test."""
    started = children.Children()
    yield started
    started.end()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Give the path of a queue file that does not exist yet, as text."""
    return str(tmp_path / "app.queue")
