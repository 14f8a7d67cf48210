"""Handlers that fork: a copy of a worker's process has no job, and an end of its own."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import handled
import pytest

from litequeue import JobState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from uuid import UUID

    from litequeue import Job, Queue
    from tests.faults.children import Children, Parent
    from tests.worker.conftest import Work

pytestmark = pytest.mark.slow


def _work(parent: Parent, path: str, mode: str) -> None:
    import litequeue  # noqa: PLC0415 - in the child

    with litequeue.open(path, durability="normal") as queue:
        litequeue.Worker(queue, {"job": handled.forks}, mode=mode, concurrency=1, until_empty=True).run()  # type: ignore[arg-type]
        parent.say("ended")


@pytest.mark.parametrize("mode", ["threads", "asyncio", "processes"])
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_copy_that_comes_out_of_a_handler_ends_as_a_program_does(
    queue: Queue, path: Path, processes: Children, mode: str
) -> None:
    """By `sys.exit`, by an exception, by SIGTERM; the job is its parent's alone, and is done once."""
    jobs = [queue.enqueue("job").job_id for _ in range(2)]
    child = processes.start(_work, str(path), mode)
    assert child.hear() == "ended"
    for job_id in jobs:
        job = queue.get(job_id)
        assert (job.state, job.attempts, job.result) == (JobState.COMPLETED, 1, [3, 1, -signal.SIGTERM])


def test_a_process_that_dies_is_missed_though_a_copy_of_it_lives(
    queue: Queue, work: Work, ended: Callable[[UUID], Job], tmp_path: Path
) -> None:
    """The copy has the pipes that tell of an end; the parent asks the kernel as well, and starts another."""
    bad = queue.enqueue("bad", str(tmp_path), max_attempts=1).job_id
    good = queue.enqueue("good", str(tmp_path)).job_id
    work({"bad": handled.forks_and_dies, "good": handled.quick}, mode="processes", concurrency=1)
    assert ended(bad).last_error == "worker died"
    assert ended(good).state is JobState.COMPLETED
    (tmp_path / "go").touch()
