"""The fixtures as pytest's users meet them: in test files of their own (issue 8, item 4)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import JobState

if TYPE_CHECKING:
    from litequeue import Queue
    from litequeue.testing import FakeClock

ALONE = ("-p", "no:randomly", "-p", "no:cacheprovider")
"""Options of the inner runs: their tests are in order."""
BREAK = """
import apsw

def break_it(queue):
    connection = apsw.Connection(queue.path)
    connection.execute("DELETE FROM litequeue_body")
    connection.close()
"""


def test_the_queue_of_a_test_is_fresh_and_goes_by_the_clock_that_the_test_has(
    litequeue_db: Queue, litequeue_clock: FakeClock
) -> None:
    """The fake one, when it is asked for, in whatever place."""
    assert litequeue_db.stats(litequeue.ANY).total == 0
    job_id = litequeue_db.enqueue("work", delay=60).job_id
    assert litequeue_db.lease_next() is None
    litequeue_clock.advance(60)
    assert litequeue_db.lease_next() is not None
    assert litequeue_db.get(job_id).state is JobState.LEASED


@pytest.mark.usefixtures("litequeue_clock")
def test_a_clock_that_is_only_used_counts(litequeue_db: Queue) -> None:
    """`usefixtures`, or a fixture that asks for it."""
    assert litequeue_db.options.clock.boot_id() == "fake-boot-1"


def test_without_a_clock_it_goes_by_the_system_s(litequeue_db: Queue) -> None:
    """A test that does not ask for time has the real one."""
    assert isinstance(litequeue_db.options.clock, litequeue.SystemClock)


def test_a_clock_that_comes_too_late_is_refused(litequeue_db: Queue, request: pytest.FixtureRequest) -> None:
    """Moving it would do nothing, silently."""
    assert litequeue_db.stats().total == 0
    with pytest.raises(litequeue.UsageError, match="litequeue_clock comes too late"):
        request.getfixturevalue("litequeue_clock")


def test_the_queue_is_closed_after_the_test(pytester: pytest.Pytester) -> None:
    """Also when the test has failed; what it has leased is nobody's fault."""
    pytester.makepyfile(
        """
        import litequeue, pytest
        kept = []

        def test_one(litequeue_db):
            kept.append(litequeue_db)
            litequeue_db.enqueue("work")
            assert litequeue_db.lease_next() is None

        def test_two(litequeue_db):
            with pytest.raises(litequeue.QueueClosed):
                kept[0].stats()
            assert litequeue_db.path != kept[0].path
        """
    )
    pytester.runpytest(*ALONE).assert_outcomes(passed=1, failed=1)


def test_a_broken_queue_fails_the_test_that_broke_it(pytester: pytest.Pytester) -> None:
    """With the problem that `litequeue doctor` tells, and none of our own lines; the next test is not harmed."""
    pytester.makepyfile(
        BREAK
        + """
def test_breaks(litequeue_db):
    litequeue_db.enqueue("work")
    break_it(litequeue_db)

def test_sound(litequeue_db):
    litequeue_db.enqueue("work")
"""
    )
    result = pytester.runpytest(*ALONE)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_breaks*",
            "E*AssertionError: after this test the queue *litequeue.db is not sound:",
            "E*  job.body: a job has no payload row with its scope, priority and created_at: *-*",
        ]
    )
    result.stdout.no_fnmatch_line("*doctor(*")


def test_a_queue_whose_file_is_gone_has_nothing_to_examine(pytester: pytest.Pytester) -> None:
    """A test may close it and remove it."""
    pytester.makepyfile(
        """
        import pathlib

        def test_removes(litequeue_db):
            litequeue_db.close()
            pathlib.Path(litequeue_db.path).unlink()
        """
    )
    pytester.runpytest(*ALONE).assert_outcomes(passed=1)


def test_what_waits_lapsed_or_is_dead_is_no_breach(pytester: pytest.Pytester) -> None:
    """A test may leave jobs in any state, and the clock anywhere."""
    pytester.makepyfile(
        """
        def test_leaves(litequeue_db, litequeue_clock):
            for kind in "abcd":
                litequeue_db.enqueue(kind, delay=5 if kind == "d" else None, expires=50)
            litequeue_db.lease_next().fail("no", retryable=False)
            litequeue_db.lease_next()
            litequeue_clock.advance(10**6)
            litequeue_clock.step_wall(-10**7)
        """
    )
    pytester.runpytest(*ALONE).assert_outcomes(passed=1)


def test_the_report_of_a_handler_s_error_ends_in_the_handler(pytester: pytest.Pytester) -> None:
    """From the test's own line to the handler's, and nothing between; the log says which job it was."""
    pytester.makepyfile(
        """
        def failing(lease):
            raise OSError("no answer")

        def test_drains(litequeue_db, litequeue_drain):
            litequeue_db.enqueue("mail:send")
            litequeue_drain({"mail:": failing})
        """
    )
    result = pytester.runpytest(*ALONE)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*litequeue_drain({*failing})",
            "test_*.py:6: ",
            '>*raise OSError("no answer")',
            "E*OSError: no answer",
            "test_*.py:2: OSError",
            "*Captured log call*",
            "WARNING*failed mail:send *, attempt 1 after * s: OSError: no answer",
        ]
    )
    for ours in ("*draining.py:*", "*threads.py*", "*handlers.py*"):
        result.stdout.no_fnmatch_line(ours)


def test_the_report_of_an_assertion_points_at_the_test(pytester: pytest.Pytester) -> None:
    """And not into litequeue."""
    pytester.makepyfile(
        """
        def test_asserts(litequeue_db, assert_enqueued):
            litequeue_db.enqueue("mail:send", {"to": "a"})
            assert_enqueued("mail:send", {"to": "b"})

        def test_refutes(litequeue_db, refute_enqueued):
            litequeue_db.enqueue("mail:send", {"to": "a"})
            refute_enqueued("mail:send")
        """
    )
    result = pytester.runpytest(*ALONE)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "E*no job waits of the kind 'mail:send' in the scope 'default' with the payload {'to': 'b'}",
            "E*  mail:send * pending, priority 100: {'to': 'a'}  <- another payload",
            "test_*.py:3: AssertionError",
            "E*a job waits of the kind 'mail:send' in the scope 'default', and none should:",
            "test_*.py:7: AssertionError",
        ]
    )


def test_another_clock_is_a_fixture_of_the_user_s(pytester: pytest.Pytester) -> None:
    """Overridden as any other fixture is; and a skip in a handler skips."""
    pytester.makeconftest(
        """
        import pytest
        from litequeue.testing import FakeClock

        @pytest.fixture
        def litequeue_clock():
            return FakeClock(wall_us=1_000_000)
        """
    )
    pytester.makepyfile(
        """
        import pytest

        def test_clock(litequeue_clock, litequeue_db):
            job_id = litequeue_db.enqueue("work").job_id
            assert litequeue_db.get(job_id).created_at == 1_000_000

        def test_skips(litequeue_db, litequeue_drain):
            litequeue_db.enqueue("work")
            litequeue_drain({"work": lambda lease: pytest.skip("not here")})
        """
    )
    pytester.runpytest(*ALONE).assert_outcomes(passed=1, skipped=1)


def test_coroutines_are_drained_in_the_loop_of_the_test(pytester: pytest.Pytester) -> None:
    """Without a plugin for asyncio; an asynchronous queue is put around the plain one."""
    pytester.makepyfile(
        """
        import asyncio
        import litequeue, litequeue.aio

        tasks = litequeue.Tasks()

        @tasks.task("greet")
        async def greet(name):
            return asyncio.get_running_loop() is loops[0] and f"hello {name}"

        loops = []

        def test_greets(litequeue_db, litequeue_drain_async, assert_enqueued):
            async def main():
                loops.append(asyncio.get_running_loop())
                await greet.enqueue(litequeue.aio.AsyncQueue(litequeue_db), "Ada")
                assert_enqueued(greet, {"name": "Ada"})
                (job,) = await litequeue_drain_async(tasks)
                assert job.result == "hello Ada"
            asyncio.run(main())
        """
    )
    pytester.runpytest(*ALONE).assert_outcomes(passed=1)


SEES = """
import sys

def pytest_unconfigure():
    loaded = sorted(name for name in sys.modules if name.partition(".")[0] in {"apsw", "litequeue", "msgpack"})
    print("loaded:", *loaded)
"""


@pytest.mark.slow
@pytest.mark.parametrize("asks", [False, True])
def test_pytest_loads_no_sqlite_until_a_test_asks_for_a_queue(pytester: pytest.Pytester, *, asks: bool) -> None:
    """What each run of pytest on the machine pays for having litequeue installed is a few small modules.

    Those of forks are among them: they keep one from happening in the midst of the loading of the others.
    """
    pytester.makeconftest(SEES)
    pytester.makepyfile(f"def test_it({'litequeue_db' if asks else ''}): pass")
    result = pytester.runpytest_subprocess(*ALONE)
    result.assert_outcomes(passed=1)
    (loaded,) = [line.split()[1:] for line in result.outlines if line.startswith("loaded:")]
    if asks:
        assert {"apsw", "msgpack", "litequeue.queue"} < set(loaded)
    else:
        assert loaded == ["litequeue", "litequeue.pytest_plugin", "litequeue.sqlite", "litequeue.sqlite.forks"]


@pytest.mark.slow
def test_the_fixtures_work_in_many_processes(pytester: pytest.Pytester) -> None:
    """Under pytest-xdist each test has a file of its own, in whatever process."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("n", range(8))
        def test_it(litequeue_db, litequeue_drain, assert_enqueued, n):
            litequeue_db.enqueue("work", n)
            assert_enqueued("work", n, count=1)
            assert [job.result for job in litequeue_drain({"work": lambda lease: lease.payload})] == [n]
        """
    )
    pytester.runpytest_subprocess("-n", "2").assert_outcomes(passed=8)


@pytest.mark.slow
def test_the_plugin_can_be_left_out(pytester: pytest.Pytester) -> None:
    """`-p no:litequeue`: the fixtures are not there, and nothing else is missed."""
    pytester.makepyfile(
        """
        from litequeue.testing import assert_enqueued, drain, temporary_queue

        def test_without():
            with temporary_queue() as queue:
                queue.enqueue("work")
                assert_enqueued(queue, "work")
                assert len(drain(queue, {"work": lambda lease: None})) == 1

        def test_with(litequeue_db):
            pass
        """
    )
    result = pytester.runpytest_subprocess(*ALONE, "-p", "no:litequeue")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["E*fixture 'litequeue_db' not found"])


@pytest.mark.slow
def test_the_fixtures_are_typed(pytester: pytest.Pytester) -> None:
    """What they take and give, under strict mypy; and what they do not take is an error."""
    pytest.importorskip("mypy")
    pytester.makepyfile(
        typed="""
        from litequeue import Job, Lease, Queue, Tasks
        from litequeue.testing import AssertEnqueued, Drain, DrainAsync, FakeClock, RefuteEnqueued

        tasks = Tasks()

        @tasks.task("send")
        def send(to: str) -> None: ...

        def work(lease: Lease) -> None: ...

        def test_it(
            litequeue_db: Queue, litequeue_clock: FakeClock, litequeue_drain: Drain,
            assert_enqueued: AssertEnqueued, refute_enqueued: RefuteEnqueued,
        ) -> None:
            litequeue_db.enqueue("work", run_at=litequeue_clock.now())
            jobs: list[Job] = assert_enqueued(send, {"to": "a"}, count=1)
            refute_enqueued("work", lambda payload: payload == 1, priority=7)
            jobs += litequeue_drain({"work": work}, advance=3600) + litequeue_drain(tasks, raise_errors=False)

        async def test_async(litequeue_drain_async: DrainAsync) -> list[Job]:
            return await litequeue_drain_async(tasks)
        """,
        wrong="""
        from litequeue.testing import AssertEnqueued, Drain

        def test_it(litequeue_drain: Drain, assert_enqueued: AssertEnqueued) -> None:
            litequeue_drain({"work": 7})
            assert_enqueued("work", cuont=1)
        """,
    )
    result = pytester.run(
        sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=cache", "typed.py", "wrong.py"
    )
    assert [line.partition(": ")[0] for line in result.outlines if ": error: " in line] == ["wrong.py:4", "wrong.py:5"]
