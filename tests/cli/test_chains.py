"""Chains at the shell: made, listed, shown, stopped and hurried (issue 7, item 4; §9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from uuid import UUID

from litequeue import JobState, NewJob

if TYPE_CHECKING:
    from litequeue import Queue
    from tests.cli.conftest import Cli

UNKNOWN = "0190a0c5-7b5e-7000-8000-000000000001"


def test_a_job_is_enqueued_after_others(cli: Cli, queue: Queue) -> None:
    """`--after` may be given many times; `--on-parent-failure` says what a failure means."""
    first, second = (cli.done("enqueue", "parent").strip() for _ in range(2))
    child = cli.done("enqueue", "child", "--after", first, "--after", second).strip()
    runs = cli.done("enqueue", "runs", "--after", first, "--on-parent-failure", "run").strip()
    assert cli.done("jobs", "ls", "--state", "waiting").count("waiting") == 2
    queue.cancel(first)
    assert [queue.get(job_id).state for job_id in (child, runs)] == [JobState.CANCELLED, JobState.PENDING]


def test_lines_all_wait_for_the_same_jobs(cli: Cli, queue: Queue) -> None:
    """With --lines."""
    parent = cli.done("enqueue", "parent").strip()
    assert cli("enqueue", "child", "--lines", "--after", parent, stdin="1\n2\n").status == 0
    assert queue.stats().counts[JobState.WAITING] == 2


def test_what_cannot_be_waited_for_is_one_clear_line(cli: Cli, queue: Queue) -> None:
    """Status 1 for a job that is not there, 2 for what is no id (§6)."""
    cli.done("init")
    parent = cli.done("enqueue", "parent").strip()
    by_prefix = cli.done("enqueue", "child", "--after", parent[:35]).strip()
    assert queue.dependencies(UUID(by_prefix)).parents == 1
    assert "begins with ffff" in cli("enqueue", "child", "--after", "ffff").line_of_failure(1)
    line = cli("enqueue", "child", "--after", UNKNOWN).line_of_failure(1)
    assert line == f"no job {UNKNOWN} to wait for: there never was one, or its retention is over"
    assert cli("enqueue", "child", "--after", "seven").status == 2
    assert cli("enqueue", "child", "--after", UNKNOWN, "--on-parent-failure", "ignore").status == 2


def test_show_tells_what_a_job_waits_for_and_what_waits_for_it(cli: Cli, queue: Queue) -> None:
    """Counts, the first ids, and children; of jobs outside of chains nothing is said."""
    parents = [made.job_id for made in queue.enqueue_many(NewJob("parent", n) for n in range(12))]
    child = queue.enqueue("child", after=parents).job_id
    lease = queue.lease_next()
    assert lease is not None
    lease.complete()
    lines = cli.done("jobs", "show", str(child)).splitlines()
    assert "parents           12: 1 completed, 0 dead, 0 cancelled, 11 not ended" in lines
    assert any(line.startswith("waits_for") and str(min(parents[1:])) in line for line in lines)
    assert any(line.strip() == "and 1 more" for line in lines)
    assert f"children          {child}" in cli.done("jobs", "show", str(parents[1])).splitlines()
    more = [queue.enqueue("child", after=[parents[1]]).job_id for _ in range(11)]
    shown_children = cli.done("jobs", "show", str(parents[1])).partition("children")[2].split()
    assert shown_children[:10] == [str(job_id) for job_id in (child, *more[:9])]
    assert shown_children[10:13] == ["and", "2", "more"]
    of_parent = cast("dict[str, dict[str, object]]", cli.json("jobs", "show", str(parents[1])))
    assert of_parent["dependencies"]["children_ids"] == [str(job_id) for job_id in (child, *more)]
    assert "children" not in cli.done("jobs", "show", str(lease.job_id))
    shown = cast("dict[str, dict[str, object]]", cli.json("jobs", "show", str(child)))
    assert shown["dependencies"]["missing"] == 11
    assert shown["dependencies"]["waits_for"] == sorted(str(parent) for parent in parents[1:])


def test_waiting_jobs_are_stopped_and_hurried(cli: Cli, queue: Queue) -> None:
    """`jobs cancel`, and `jobs retry`, by id or by state."""
    parent = queue.enqueue("parent").job_id
    stopped, *hurried = (queue.enqueue("child", after=[parent]).job_id for _ in range(3))
    assert cli.done("jobs", "cancel", str(stopped)) == "1 job cancelled\n"
    assert cli.done("jobs", "retry", "--state", "waiting") == "2 jobs retried\n"
    assert {queue.get(job_id).state for job_id in hurried} == {JobState.PENDING}
