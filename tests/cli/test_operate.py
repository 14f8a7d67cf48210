"""`jobs retry`, `jobs run-now` and `jobs cancel`: one by one, and everything in a state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litequeue import ANY, SYSTEM, JobState, NewJob, Queue

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from tests.cli.conftest import Cli

UNKNOWN = "0190a0c5-7b5e-7000-8000-000000000001"


def dead(queue: Queue, *jobs: NewJob) -> list[UUID]:
    """Enqueue jobs and let them die; return their ids."""
    made = [enqueued.job_id for enqueued in queue.enqueue_many(jobs)]
    for scope in {job.scope for job in jobs}:
        while leases := queue.lease_many(1000, scope=scope):
            assert queue.fail_many(leases, "boom", retryable=False) == []
    return made


def states(queue: Queue, job_ids: list[UUID]) -> list[JobState]:
    """Return the states of jobs."""
    return [queue.get(job_id).state for job_id in job_ids]


def test_retry_brings_dead_jobs_back(cli: Cli, queue: Queue) -> None:
    """Pending again, with attempts at 0 (V10)."""
    job_ids = dead(queue, NewJob("work"), NewJob("work"))
    assert cli.done("jobs", "retry", *job_ids) == "2 jobs retried\n"
    assert [(job.state, job.attempts) for job in queue.list()] == [(JobState.PENDING, 0)] * 2


def test_retry_answers_for_each_job(cli: Cli, queue: Queue) -> None:
    """Those that can, go; each other one has its line on standard error, and the status is 1 (V10, §9)."""
    (gone,) = dead(queue, NewJob("work"))
    waiting = queue.enqueue("work").job_id
    outcome = cli("jobs", "retry", waiting, gone, UNKNOWN)
    assert (outcome.status, outcome.out) == (1, "1 job retried, 2 refused\n")
    assert outcome.err.splitlines() == [
        f"litequeue: cannot retry job {waiting}: it is pending",
        f"litequeue: no job {UNKNOWN}",
    ]
    assert queue.get(gone).state is JobState.PENDING


def test_run_now_lets_go_what_is_to_run_later_and_nothing_else(cli: Cli, queue: Queue) -> None:
    """Delayed, waiting out a back-off, after another job: ready at once, with its attempts; no finished one (V10)."""
    queue.enqueue("later")
    (lease,) = queue.lease_many(1)
    queue.fail(lease, "not yet")
    failed, (gone,), ready = lease.job_id, dead(queue, NewJob("work")), queue.enqueue("work").job_id
    delayed = queue.enqueue("later", delay=3600).job_id
    after = queue.enqueue("later", after=[ready]).job_id
    outcome = cli("jobs", "run-now", failed, gone, delayed, ready, after, UNKNOWN)
    assert (outcome.status, outcome.out) == (1, "3 jobs ready now, 3 refused\n")
    assert outcome.err.splitlines() == [
        f"litequeue: cannot run job {gone}: it is dead, and not to run later",
        f"litequeue: cannot run job {ready}: it is pending, and not to run later",
        f"litequeue: no job {UNKNOWN}",
    ]
    assert states(queue, [failed, gone, delayed, ready, after]) == [
        JobState.PENDING,
        JobState.DEAD,
        JobState.PENDING,
        JobState.PENDING,
        JobState.PENDING,
    ]
    assert queue.get(failed).attempts == 1


def test_run_now_takes_a_state(cli: Cli, queue: Queue) -> None:
    """All that is scheduled of a kind, in steps; a state whose jobs are not to run later is no choice (§9)."""
    queue.enqueue_many(NewJob(kind, delay=3600) for kind in ["mail:a"] * 150 + ["other"])
    assert cli.done("jobs", "run-now", "--state", "scheduled", "--kind", "mail:") == "150 jobs ready now\n"
    assert queue.stats().counts[JobState.SCHEDULED] == 1
    assert "--state" in cli("jobs", "run-now", "--state", "dead").err


def test_an_id_given_twice_is_one_job(cli: Cli, queue: Queue) -> None:
    """The second mention is no second retry, which would be refused (V10)."""
    (gone,) = dead(queue, NewJob("work"))
    assert cli.done("jobs", "retry", gone, str(gone).upper()) == "1 job retried\n"


def test_retry_refuses_a_job_whose_key_is_taken_by_now(cli: Cli, queue: Queue) -> None:
    """The other job's id is in the line (V2, V10)."""
    (gone,) = dead(queue, NewJob("work", idempotency_key="k"))
    other = queue.enqueue("work", idempotency_key="k").job_id
    outcome = cli("jobs", "retry", gone)
    assert (outcome.status, outcome.out) == (1, "0 jobs retried, 1 refused\n")
    assert outcome.only_complaint() == f"cannot retry job {gone}: its key 'k' belongs to job {other} now"


def test_all_dead_jobs_are_retried_in_bounded_steps(
    cli: Cli, queue: Queue, sql: Callable[[str], list[tuple[object, ...]]]
) -> None:
    """More than go into one transaction, which can be told apart by the times in the logs (V10)."""
    job_ids = dead(queue, *(NewJob("work", n, priority=n % 3) for n in range(450)))
    assert cli.done("jobs", "retry", "--state", "dead") == "450 jobs retried\n"
    assert set(states(queue, job_ids)) == {JobState.PENDING}
    assert queue.stats().counts[JobState.DEAD] == 0
    moments = [queue.get(job_id).events[-1].at for job_id in job_ids]
    steps = [moments.count(moment) for moment in set(moments)]
    assert sum(steps) == 450
    assert max(steps) <= 100
    assert sql("SELECT count(*) FROM litequeue_job WHERE attempts > 0") == [(0,)]


def test_all_of_a_state_means_the_scope_and_kind_that_were_given(cli: Cli, queue: Queue) -> None:
    """Only these are retried (V10)."""
    default, kept, acme, system = dead(
        queue, NewJob("a:1"), NewJob("b"), NewJob("a:1", scope="acme"), NewJob("a:1", scope=SYSTEM)
    )
    assert cli.done("jobs", "retry", "--state", "dead", "--kind", "a:") == "1 job retried\n"
    assert states(queue, [default, kept, acme, system]) == [JobState.PENDING, *[JobState.DEAD] * 3]
    assert cli.done("jobs", "retry", "--state", "dead", "--scope", "acme") == "1 job retried\n"
    assert states(queue, [kept, acme, system]) == [JobState.DEAD, JobState.PENDING, JobState.DEAD]
    assert cli.done("jobs", "retry", "--state", "dead", "--all-scopes") == "2 jobs retried\n"
    assert [job.state for job in queue.list(scope=ANY)] == [JobState.PENDING] * 4


def test_refused_jobs_do_not_stop_a_retry_of_all(cli: Cli, queue: Queue) -> None:
    """They stay dead, are named once each, and the walk ends (V10)."""
    jobs = [NewJob("work", n, idempotency_key=f"k{n}" if n % 50 == 0 else None) for n in range(250)]
    job_ids = dead(queue, *jobs)
    queue.enqueue_many(NewJob("work", idempotency_key=f"k{n}") for n in range(0, 250, 50))
    outcome = cli("jobs", "retry", "--state", "dead")
    assert (outcome.status, outcome.out) == (1, "245 jobs retried, 5 refused\n")
    assert [line.split()[4].rstrip(":") for line in outcome.err.splitlines()] == [str(id_) for id_ in job_ids[::50]]
    assert states(queue, job_ids[::50]) == [JobState.DEAD] * 5


@pytest.mark.parametrize("state", ["completed", "cancelled", "retryable", "scheduled"])
def test_other_states_may_be_retried_too(cli: Cli, queue: Queue, state: str) -> None:
    """Every state that `retry` allows can be named; those that it never allows are no choice (V10, §3)."""
    job_id = queue.enqueue("work", delay=60 if state == "scheduled" else None).job_id
    if state == "cancelled":
        queue.cancel(job_id)
    lease = queue.lease_next()
    if lease is not None and state == "completed":
        lease.complete()
    elif lease is not None:
        lease.fail("boom")
    assert queue.get(job_id).state.name.lower() == state
    assert cli.done("jobs", "retry", "--state", state) == "1 job retried\n"
    assert queue.get(job_id).state is JobState.PENDING
    for impossible in ("pending", "leased"):
        assert cli("jobs", "retry", "--state", impossible).status == 2


def test_nothing_to_retry_is_status_3(cli: Cli) -> None:
    """So that a script can tell (§9)."""
    cli.done("init")
    outcome = cli("jobs", "retry", "--state", "dead")
    assert (outcome.status, outcome.out, outcome.err) == (3, "0 jobs retried\n", "")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "give the ids of jobs, or --state for all jobs in a state"),
        ([UNKNOWN, "--state", "dead"], "give the ids of jobs, or --state for all jobs in a state"),
        ([UNKNOWN, "--kind", "a"], "--kind, --older-than and scopes go with --state; an id needs none"),
        ([UNKNOWN, "--all-scopes"], "--kind, --older-than and scopes go with --state; an id needs none"),
        ([UNKNOWN, "--system"], "--kind, --older-than and scopes go with --state; an id needs none"),
    ],
)
def test_ids_and_a_state_are_two_ways_to_say_which(cli: Cli, arguments: list[str], line: str) -> None:
    """Anything else is wrong usage, before the file is opened (§9)."""
    assert cli("jobs", "retry", *arguments).line_of_failure(2) == line


def test_an_interrupted_retry_says_how_far_it_came(cli: Cli, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after a step: what was done stays done and is counted, status 130 (§9, G11)."""
    dead(queue, *(NewJob("work", n) for n in range(250)))
    retry_many, calls = Queue.retry_many, iter([True, False])

    def interrupted(self: Queue, job_ids: list[UUID]) -> list[object]:
        if not next(calls):
            raise KeyboardInterrupt
        return list(retry_many(self, job_ids))

    monkeypatch.setattr(Queue, "retry_many", interrupted)
    outcome = cli("jobs", "retry", "--state", "dead")
    assert (outcome.status, outcome.out) == (130, "100 jobs retried\n")
    assert outcome.only_complaint() == "interrupted"
    assert queue.stats().counts[JobState.DEAD] == 150


def test_cancel_stops_waiting_and_running_jobs(cli: Cli, queue: Queue) -> None:
    """Cancelled, whatever they waited for (V9)."""
    running = queue.enqueue("work", priority=1).job_id
    lease = queue.lease_next()
    assert lease is not None
    waiting, later = queue.enqueue("work").job_id, queue.enqueue("work", delay=60).job_id
    assert cli.done("jobs", "cancel", running, waiting, later) == "3 jobs cancelled\n"
    assert states(queue, [running, waiting, later]) == [JobState.CANCELLED] * 3


def test_cancel_answers_for_each_job(cli: Cli, queue: Queue) -> None:
    """A job that has ended is refused with its state, one that is not there with its id (V9, §9)."""
    (gone,) = dead(queue, NewJob("work"))
    outcome = cli("jobs", "cancel", gone, UNKNOWN)
    assert (outcome.status, outcome.out) == (1, "0 jobs cancelled, 2 refused\n")
    assert outcome.err.splitlines() == [
        f"litequeue: cannot cancel job {gone}: it is dead",
        f"litequeue: no job {UNKNOWN}",
    ]


@pytest.mark.parametrize("arguments", [[], ["seven"], [UNKNOWN, "seven"]])
def test_cancel_wants_ids(cli: Cli, queue: Queue, arguments: list[str]) -> None:
    """What is no id is wrong usage, and nothing is done for the others (§9)."""
    queue.enqueue("work", job_id=UNKNOWN)
    assert cli("jobs", "cancel", *arguments).status == 2
    assert queue.get(UNKNOWN).state is JobState.PENDING


def test_edit_changes_where_jobs_wait(cli: Cli, queue: Queue) -> None:
    """Their priority, when they are due, or both (V16)."""
    first, second = queue.enqueue("work").job_id, queue.enqueue("work").job_id
    assert cli.done("jobs", "edit", first, second, "--priority", 7) == "2 jobs edited\n"
    assert [(job.job_id, job.priority) for job in queue.list()] == [(first, 7), (second, 7)]
    assert cli.done("jobs", "edit", second, "--priority", 3, "--delay", "2h") == "1 job edited\n"
    job = queue.get(second)
    assert (job.state, job.priority, job.events[-1].detail) == (JobState.SCHEDULED, 3, "priority 3, in 7200 s")
    assert cli.done("jobs", "edit", first, "--run-at", "2999-01-01T00:00:00Z") == "1 job edited\n"
    assert queue.get(first).not_before == 32_472_144_000_000_000
    assert cli.done("jobs", "edit", first, "--delay", "0") == "1 job edited\n"
    assert queue.get(first).state is JobState.PENDING


def test_edit_answers_for_each_job(cli: Cli, queue: Queue) -> None:
    """A job that has ended is refused with its state, one that is not there with its id (V16, §9)."""
    (gone,) = dead(queue, NewJob("work"))
    waiting = queue.enqueue("work").job_id
    outcome = cli("jobs", "edit", gone, waiting, UNKNOWN, "--priority", "1")
    assert (outcome.status, outcome.out) == (1, "1 job edited, 2 refused\n")
    assert outcome.err.splitlines() == [
        f"litequeue: cannot edit job {gone}: it is dead",
        f"litequeue: no job {UNKNOWN}",
    ]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "nothing to change: give --priority, --delay or --run-at"),
        (["--priority", "256"], "--priority must be a whole number from 0 to 255, not 256"),
        (["--run-at", "2031-01-01T00:00:00Z", "--delay", "1m"], "--delay and --run-at exclude each other"),
        (["--run-at", "2031-01-01T00:00:00"], "--run-at must be an ISO 8601 time"),
    ],
)
def test_edit_wants_something_that_may_be_changed(cli: Cli, queue: Queue, arguments: list[str], line: str) -> None:
    """One line, wrong usage, and the job stays as it is (§6, §9)."""
    job_id = queue.enqueue("work").job_id
    assert cli("jobs", "edit", job_id, *arguments).line_of_failure(2).startswith(line)
    assert queue.get(job_id).events[1:] == []
