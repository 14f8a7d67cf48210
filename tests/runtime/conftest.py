"""What the tests of running programs have: a path and other processes."""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litequeue import Queue
    from tests.faults import children
    from tests.runtime import stops
else:  # the folders of the tests are no packages

    def _loaded(name: str, *place: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent.joinpath(*place))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    children = _loaded("litequeue_children", "..", "faults", "children.py")
    stops = _loaded("litequeue_stops", "stops.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the path of a queue file that does not exist yet."""
    return tmp_path / "app.queue"


@pytest.fixture
def queue(path: Path, clock: FakeClock) -> Iterator[Queue]:
    """Give a handle on a fresh queue."""
    with litequeue.open(path, durability="normal", clock=clock) as opened:
        yield opened


def write_when_asked(parent: children.Parent) -> None:
    """Be a process that writes to the queue whose path it hears, within a second, and says so or why not."""
    while True:
        path = parent.hear()
        try:
            with litequeue.open(path, clock=FakeClock(), durability="normal", busy_timeout=1.0) as queue:
                queue.cancel(queue.enqueue("of another process").job_id)
        except litequeue.LiteQueueError as exc:
            parent.say(repr(exc))
        else:
            parent.say("written")


@pytest.fixture(params=stops.POINTS)
def cancelling(request: pytest.FixtureRequest) -> Callable[[str], stops.Cancelling]:
    """Give what cancels a task at a point of the errand of that name; each point in its turn."""
    return partial(stops.Cancelling, str(request.param))


@pytest.fixture(scope="session")
def assert_free() -> Iterator[Callable[[Path], None]]:
    """Give a check that another process can write within a second: nobody has left a lock behind."""
    started = children.Children()
    child = started.start(write_when_asked)

    def check(path: Path) -> None:
        child.say(str(path))
        assert child.hear() == "written"

    yield check
    started.end()


@pytest.fixture
def processes() -> Iterator[children.Children]:
    """Give the means to run functions of this module in other processes; none outlives the test."""
    started = children.Children()
    yield started
    started.end()
