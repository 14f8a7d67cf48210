"""What the tests of workers have: a queue by the real clock, workers that run beside the test, and other processes.

A worker waits and beats in real time. Tests meet it at events and at what the queue shows, and have patience; they
never sleep to make a time come true.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from meeting import Running, until

import litequeue
from litequeue import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from uuid import UUID

    from litequeue import Job, JobState, Queue
    from litequeue.worker.handlers import Handling
    from litequeue.worker.worker import Mode
    from tests.faults import children
else:  # the folders of the tests are no packages
    _place = Path(__file__).parent.parent / "faults" / "children.py"
    _spec = importlib.util.spec_from_file_location("litequeue_children", _place)
    children = importlib.util.module_from_spec(_spec)
    sys.modules[_spec.name] = children
    _spec.loader.exec_module(children)


class Work(Protocol):
    """Runs a worker on the fixture `queue` beside the test."""

    def __call__(self, handlers: Mapping[str, Handling], *, queue: Queue | None = None, **options: object) -> Running:
        """Start one more."""
        ...


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the path of a queue file that does not exist yet."""
    return tmp_path / "app.queue"


@pytest.fixture
def queue(path: Path) -> Iterator[Queue]:
    """Give a handle on a fresh queue, by the real clock."""
    with litequeue.open(path, durability="normal") as opened:
        yield opened


@pytest.fixture(params=["threads", "asyncio"])
def mode(request: pytest.FixtureRequest) -> Mode:
    """Give each mode that runs handlers in this process."""
    mode: Mode = request.param
    return mode


@pytest.fixture
def work(queue: Queue) -> Iterator[Work]:
    """Give the means to run workers; all have ended when the test is over."""
    started: list[Running] = []
    the_queue = queue

    def go(handlers: Mapping[str, Handling], *, queue: Queue | None = None, **options: object) -> Running:
        given = {"maintenance": False, **options}
        worker = Worker(the_queue if queue is None else queue, handlers, **given)  # type: ignore[arg-type]
        started.append(Running(worker))
        return started[-1]

    yield go
    for running in started:
        running.abandon()


@pytest.fixture
def ended(queue: Queue) -> Callable[[UUID], Job]:
    """Wait until a job has left the waiting and the leased states."""

    def wait(job_id: UUID) -> Job:
        until(lambda: queue.get(job_id).finished_at is not None, "the job's end")
        return queue.get(job_id)

    return wait


@pytest.fixture
def in_state(queue: Queue) -> Callable[[UUID, JobState], Job]:
    """Wait until a job is in a state."""

    def wait(job_id: UUID, state: JobState) -> Job:
        until(lambda: queue.get(job_id).state is state, f"the state {state.name}, it is {queue.get(job_id)}")
        return queue.get(job_id)

    return wait


@pytest.fixture
def processes() -> Iterator[children.Children]:
    """Give the means to run functions of this module in other processes; none outlives the test."""
    started = children.Children()
    yield started
    started.end()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Give what the worker logs."""
    caplog.set_level(logging.DEBUG, "litequeue.worker")
    return caplog
