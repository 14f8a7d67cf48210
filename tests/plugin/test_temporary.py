"""`temporary_queue`: the same without pytest (issue 8, item 4)."""

from __future__ import annotations

import unittest
from pathlib import Path

import apsw
import pytest

import litequeue
from litequeue import JobState
from litequeue.testing import FakeClock, assert_enqueued, drain, temporary_queue


def test_it_lies_in_a_folder_that_goes_with_it() -> None:
    """Unless a path is given; the queue is closed."""
    with temporary_queue() as queue:
        folder = Path(queue.path).parent
        assert folder.is_dir()
        queue.enqueue("work")
    assert not folder.exists()
    with pytest.raises(litequeue.QueueClosed):
        queue.stats()


def test_a_file_at_a_path_stays_and_has_what_is_asked_for(tmp_path: Path) -> None:
    """Scope, durability and clock are those of `litequeue.open`."""
    clock = FakeClock()
    with temporary_queue(tmp_path / "it.queue", clock=clock, scope="tenant", durability="full") as queue:
        assert queue.options.clock is clock
        assert (queue.scope, queue.options.durability) == ("tenant", "full")
        job_id = queue.enqueue("work").job_id
    with litequeue.open(tmp_path / "it.queue", create=False) as again:
        assert again.get(job_id).state is JobState.PENDING


def test_a_breach_is_told_and_the_folder_goes_all_the_same() -> None:
    """An AssertionError, so that a test fails rather than errs; every problem has its line."""
    folders: list[Path] = []

    def breaking() -> None:
        with temporary_queue() as queue:
            folders.append(Path(queue.path).parent)
            queue.enqueue("work")
            connection = apsw.Connection(queue.path)
            connection.execute("DELETE FROM litequeue_body")
            connection.close()

    with pytest.raises(AssertionError, match=r"is not sound:\n  job\.body: (.|\n)*: [0-9a-f-]{36}"):
        breaking()
    assert not folders[0].exists()


def test_an_error_of_the_test_is_not_hidden_by_what_it_left_behind() -> None:
    """A test that has failed tells that, and nothing of the queue."""

    def failing() -> None:
        with temporary_queue() as queue:
            connection = apsw.Connection(queue.path)
            connection.execute("DELETE FROM litequeue_host")
            connection.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()


def test_it_serves_unittest() -> None:
    """`enterContext`, and functions that take the queue."""

    class Test(unittest.TestCase):
        def setUp(self) -> None:
            self.clock = FakeClock()
            self.queue = self.enterContext(temporary_queue(clock=self.clock))

        def test_work(self) -> None:
            self.queue.enqueue("work", {"n": 1}, delay=60)
            assert_enqueued(self.queue, "work", {"n": 1}, delay=60)
            (job,) = drain(self.queue, {"work": lambda lease: lease.payload}, advance=60)
            self.assertEqual(job.result, {"n": 1})  # noqa: PT009 - it is unittest's own way that is tried

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Test).run(result)
    assert (result.testsRun, result.errors, result.failures) == (1, [], [])


def test_a_fake_clock_tells_its_time_as_a_datetime() -> None:
    """Aware, so that a `run_at` may be told from it."""
    clock = FakeClock()
    assert clock.now().isoformat() == "2025-06-15T15:06:40+00:00"
    clock.advance(0.5)
    assert clock.now().timestamp() * 1_000_000 == clock.wall_us()
