"""`jobs purge`: finished jobs are removed for good, in bounded steps, and only when that is confirmed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING
from uuid import UUID

import click
import pytest

from litequeue import JobState, NewJob
from litequeue.cli import acting
from litequeue.cli.failures import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Queue
    from tests.cli.conftest import Cli

DAY = 86_400


@pytest.fixture
def ended(queue: Queue) -> Callable[..., list[UUID]]:
    """Give what makes jobs that have died, or completed."""

    def make(*jobs: NewJob, well: bool = False) -> list[UUID]:
        made = [enqueued.job_id for enqueued in queue.enqueue_many(jobs)]
        for scope in {job.scope for job in jobs}:
            while leases := queue.lease_many(1000, scope=scope):
                refused = queue.complete_many(leases) if well else queue.fail_many(leases, "boom", retryable=False)
                assert refused == []
        return made

    return make


def counts(queue: Queue) -> tuple[int, int]:
    """Return how many jobs are dead and completed."""
    found = queue.stats().counts
    return found[JobState.DEAD], found[JobState.COMPLETED]


def test_what_is_meant_is_removed_and_nothing_else(cli: Cli, queue: Queue, ended: Callable[..., list[UUID]]) -> None:
    """By id, or by state, kind and scope (V17)."""
    first, second, *_ = ended(NewJob("a:1"), NewJob("a:1"), NewJob("b"), NewJob("b", scope="acme"))
    ended(NewJob("a:1"), well=True)
    assert cli.done("jobs", "purge", first, str(first).upper(), "--yes") == "1 job removed\n"
    assert counts(queue) == (2, 1)
    assert cli.done("jobs", "purge", "--state", "dead", "--kind", "a:", "--yes") == "1 job removed\n"
    assert [job.kind for job in queue.list(JobState.DEAD)] == ["b"]
    assert cli.done("jobs", "purge", "--state", "dead", "--all-scopes", "--yes") == "2 jobs removed\n"
    assert counts(queue) == (0, 1)
    assert cli("jobs", "purge", second, "--yes").only_complaint() == f"no job {second}"


def test_only_what_ended_long_ago_may_be_meant(
    cli: Cli, queue: Queue, ended: Callable[..., list[UUID]], sql: Callable[[str], list[tuple[object, ...]]]
) -> None:
    """`--older-than` counts from the end of the job (V17)."""
    old, _ = ended(NewJob("work"), NewJob("work"))
    sql(f"UPDATE litequeue_job SET finished_at = finished_at - {8 * DAY}000000 WHERE job_id = x'{old.hex}'")
    assert cli("jobs", "purge", "--state", "dead", "--older-than", "9d", "--yes").status == 3
    assert cli.done("jobs", "purge", "--state", "dead", "--older-than", "7d", "--yes") == "1 job removed\n"
    assert old not in [job.job_id for job in queue.list()]
    assert counts(queue) == (1, 0)


def test_jobs_whose_key_still_counts_stay_and_are_named(cli: Cli, ended: Callable[..., list[UUID]]) -> None:
    """A repeat of theirs is known by them; the others go, and the status is 1 (V2, V17)."""
    kept, _ = ended(NewJob("work", idempotency_key="k"), NewJob("work"), well=True)
    outcome = cli("jobs", "purge", "--state", "completed", "--yes")
    assert (outcome.status, outcome.out) == (1, "1 job removed, 1 refused\n")
    assert outcome.only_complaint() == (
        f"cannot remove job {kept}: it is completed, and its idempotency key still counts"
    )


def test_many_are_removed_in_bounded_steps(
    cli: Cli, queue: Queue, ended: Callable[..., list[UUID]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No transaction has more than a hundred of them (V17)."""
    ended(*(NewJob("work", n, priority=n % 3) for n in range(450)))
    steps: list[int] = []
    remove_many = type(queue).remove_many

    def counted(self: Queue, job_ids: list[UUID]) -> list[object]:
        steps.append(len(job_ids))
        return list(remove_many(self, job_ids))

    monkeypatch.setattr(type(queue), "remove_many", counted)
    assert cli.done("jobs", "purge", "--state", "dead", "--yes") == "450 jobs removed\n"
    assert (sum(steps), max(steps)) == (450, 100)
    assert queue.stats().total == 0


def test_without_a_terminal_it_has_to_be_confirmed_by_an_option(
    cli: Cli, queue: Queue, ended: Callable[..., list[UUID]]
) -> None:
    """Wrong usage, with a line that says what would go; nothing does (§9, issue 8)."""
    (job_id,) = ended(NewJob("a:1"))
    line = cli("jobs", "purge", "--state", "dead", "--kind", "a:", "--older-than", "0s").line_of_failure(2)
    assert line == (
        "this would remove 1 job, every dead one of a: in scope default that ended 0 s ago or longer, for good: "
        "confirm it with --yes"
    )
    assert "this would remove 1 job for good" in cli("jobs", "purge", job_id, stdin="y\n").line_of_failure(2)
    assert "1 job, every dead one in all scopes," in cli(
        "jobs", "purge", "--state", "dead", "--all-scopes"
    ).line_of_failure(2)
    assert counts(queue) == (1, 0)


def test_where_there_is_nothing_to_remove_nobody_is_asked(
    cli: Cli, queue: Queue, ended: Callable[..., list[UUID]]
) -> None:
    """An id that no job has, a job that has not ended, a state that no job is in (issue 8)."""
    ended(NewJob("work"))
    unknown, waiting = UUID(int=7), queue.enqueue("work").job_id
    for job_id, said in ((unknown, f"no job {unknown}"), (waiting, f"cannot remove job {waiting}: it is pending")):
        outcome = cli("jobs", "purge", job_id)
        assert (outcome.status, outcome.out) == (1, "0 jobs removed, 1 refused\n")
        assert outcome.only_complaint().startswith(said)
    for words in (["--state", "completed"], ["--state", "dead", "--older-than", "1h"]):
        assert cli("jobs", "purge", *words).status == 3
    assert counts(queue) == (1, 0)


def test_an_answer_that_does_not_come_removes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C is an interrupt, with its status; the end of the input is a no (§9)."""
    answers: list[type[BaseException]] = [KeyboardInterrupt, EOFError]

    def answer(_prompt: str) -> str:
        raise answers.pop(0)

    monkeypatch.setattr(click.termui, "visible_prompt_func", answer)
    with pytest.raises(Interrupted, match="nothing was removed") as caught:
        acting._is_confirmed("Remove 1 job for good?")
    assert caught.value.exit_code == 130
    assert not acting._is_confirmed("Remove 1 job for good?")
    assert capsys.readouterr().err.endswith("\n")


@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("n", 1), ("", 1)])
def test_on_a_terminal_it_asks(
    cli: Cli, queue: Queue, ended: Callable[..., list[UUID]], answer: str, left: int
) -> None:
    """And takes anything but a yes for a no (issue 8)."""
    ended(NewJob("work"))
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = subprocess.run(
            [sys.executable, "-m", "litequeue", "--db", str(cli.path), "jobs", "purge", "--state", "dead"],
            stdin=theirs,
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=100,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == left, done
    assert "Remove 1 job, every dead one in scope default, for good? [y/N]" in done.stderr
    assert ("nothing was removed" in done.stderr) == bool(left)
    assert counts(queue) == (left, 0)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "give the ids of jobs, or --state for all jobs in a state"),
        (["0190a0c5", "--state", "dead"], "give the ids of jobs, or --state for all jobs in a state"),
        (["0190a0c5", "--older-than", "1d"], "--kind, --older-than and scopes go with --state; an id needs none"),
    ],
)
def test_ids_and_a_state_are_two_ways_to_say_which(cli: Cli, arguments: list[str], line: str) -> None:
    """Anything else is wrong usage, before the file is opened (§9)."""
    assert cli("jobs", "purge", *arguments, "--yes").line_of_failure(2) == line


@pytest.mark.parametrize("state", ["pending", "leased", "retryable", "scheduled"])
def test_jobs_that_have_not_ended_are_no_choice(cli: Cli, state: str) -> None:
    """`cancel` comes first (V17, G2)."""
    assert cli("jobs", "purge", "--state", state, "--yes").status == 2
