"""`scopes`, `kinds`, and what says why a job waits: pauses, limits, another scope, a star in a kind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

import pytest

from litequeue import ANY, SYSTEM, JobState, Outbox

if TYPE_CHECKING:
    from litequeue import Queue
    from tests.cli.conftest import Cli

Rows = list[dict[str, object]]
NOBODY = dict.fromkeys((state.name.lower() for state in JobState), 0)


@pytest.fixture
def filled(queue: Queue) -> None:
    """Give jobs of three kinds in three scopes, and in three states."""
    queue.enqueue("mail:send", scope=SYSTEM)
    queue.enqueue("mail:send", scope="acme")
    queue.enqueue("ingest", scope="acme", delay=60)
    queue.enqueue("mail:bulk")
    queue.enqueue("mail:send")
    queue.lease_many(1)[0].fail("boom", retryable=False)


@pytest.mark.usefixtures("filled")
def test_scopes_are_listed_with_their_jobs(cli: Cli, queue: Queue) -> None:
    """Each with its counts, its oldest ready job, its weight, and whether it is paused (issue 8)."""
    queue.set_weight("acme", 5)
    queue.pause(scope=SYSTEM)
    queue.pause("mail:", scope="acme")  # not all of the scope
    found = cast("Rows", cli.json("scopes"))
    oldest = {one: queue.stats(one).oldest_ready_at for one in (SYSTEM, "acme", "default")}
    assert found == [
        {"scope": None, "counts": NOBODY | {"pending": 1}, "oldest_ready_at": oldest[SYSTEM], "weight": 1}
        | {"is_paused": True},
        {"scope": "acme", "counts": NOBODY | {"pending": 1, "scheduled": 1}, "oldest_ready_at": oldest["acme"]}
        | {"weight": 5, "is_paused": False},
        {"scope": "default", "counts": NOBODY | {"pending": 1, "dead": 1}, "oldest_ready_at": oldest["default"]}
        | {"weight": 1, "is_paused": False},
    ]
    heading, *lines = cli.done("scopes").splitlines()
    assert heading.split() == ["SCOPE", "pending", "dead", "scheduled", "OLDEST", "READY", "WEIGHT", "PAUSED"]
    assert [line.split()[:4] for line in lines] == [
        ["(system)", "1", "0", "0"],
        ["acme", "1", "0", "1"],
        ["default", "1", "1", "0"],
    ]
    assert [line.split()[-1] for line in lines] == ["paused", "-", "-"]


def test_the_scope_of_an_outbox_is_listed_too(cli: Cli, queue: Queue) -> None:
    """Its name is the queue's own, and its jobs are counted like others (issue 8)."""
    with queue.transaction() as tx:
        Outbox(queue, "orders").put(tx, "placed", key="7")
    assert [
        (one["scope"], cast("dict[str, int]", one["counts"])["pending"]) for one in cast("Rows", cli.json("scopes"))
    ] == [("litequeue:outbox:orders", 1)]
    assert queue.stats(queue.scopes()[0]).total == 1


@pytest.mark.usefixtures("filled")
def test_kinds_are_listed_with_their_jobs(cli: Cli, queue: Queue) -> None:
    """Of a scope, or of all; paused is what a pause of the kind, of a prefix or of the scope holds (issue 8, V15)."""
    queue.pause("mail:send", scope=ANY)
    (waiting,) = queue.list(JobState.PENDING)
    oldest = min(job.created_at for job in queue.list(JobState.PENDING, scope=ANY))
    assert waiting.created_at > oldest
    assert cli.json("kinds") == [
        {"kind": "mail:bulk", "counts": NOBODY | {"dead": 1}, "oldest_ready_at": None, "is_paused": False},
        {"kind": "mail:send", "counts": NOBODY | {"pending": 1}, "oldest_ready_at": waiting.created_at}
        | {"is_paused": True},
    ]
    of_all = cast("Rows", cli.json("kinds", "--all-scopes"))
    assert [one["oldest_ready_at"] for one in of_all] == [None, None, oldest]
    heading, *lines = cli.done("kinds", "--all-scopes").splitlines()
    assert heading.split() == ["KIND", "pending", "dead", "scheduled", "OLDEST", "READY", "PAUSED"]
    assert [[*line.split()[:5], line.split()[-1]] for line in lines] == [
        ["ingest", "0", "0", "1", "-", "-"],
        ["mail:bulk", "0", "1", "0", "-", "-"],
        ["mail:send", "3", "0", "0", lines[2].split()[4], "paused"],
    ]
    assert re.search(r"  (now|\d+ s ago)  ", lines[2])
    queue.resume("mail:send", scope=ANY)
    queue.pause("mail:", scope="acme")
    paused = {one["kind"]: one["is_paused"] for one in cast("Rows", cli.json("kinds", "--scope", "acme"))}
    assert paused == {"ingest": False, "mail:send": True}
    assert all(not one["is_paused"] for one in cast("Rows", cli.json("kinds", "--all-scopes")))


@pytest.mark.usefixtures("filled")
def test_columns_that_say_nothing_are_left_out(cli: Cli, queue: Queue) -> None:
    """Where nothing is paused, and no scope has a weight (issue 8)."""
    assert "PAUSED" not in cli.done("kinds")
    assert cli.done("scopes").splitlines()[0].split() == ["SCOPE", "pending", "dead", "scheduled", "OLDEST", "READY"]
    queue.set_weight("acme", 5)
    assert cli.done("scopes").splitlines()[0].split()[-1] == "WEIGHT"


def test_where_there_is_nothing_the_listings_are_empty(cli: Cli) -> None:
    """Status 0 and no line; in JSON an empty list (§9)."""
    cli.done("init")
    assert cli.done("scopes") == cli.done("kinds") == ""
    assert cli.json("scopes") == cli.json("kinds") == []


def held_back(cli: Cli, job_id: object) -> list[str]:
    """Return what `jobs show` says that a job is held back by."""
    lines = cli.done("jobs", "show", job_id).splitlines()
    return [line.removeprefix("held back").strip() for line in lines if line.startswith("held back")]


def test_a_job_that_is_held_back_says_by_what(cli: Cli, queue: Queue) -> None:
    """A pause, each limit that is reached, a rate, with when it lets the next one go; else nothing (V15, issue 8)."""
    queue.set("concurrency", 1, "mail:")
    queue.set("concurrency", 1, scope=ANY)
    queue.set("rate", "1/1000s", "mail:send")
    first, second = queue.enqueue("mail:send").job_id, queue.enqueue("mail:send").job_id
    assert held_back(cli, second) == queue.held_back(second) == []  # its turn has not come, and nothing else
    (lease,) = queue.lease_many(5)
    assert held_back(cli, first) == []  # it runs
    concurrency, in_scope, rate = held_back(cli, second)
    assert concurrency == "concurrency 1 of mail: is reached"
    assert in_scope == "concurrency 1 of all kinds in its scope is reached"
    assert rate.startswith("rate 1/1000s of mail:send is used up, the next may go in ")
    queue.pause("mail:")
    assert held_back(cli, second)[0] == "paused (mail: in all scopes)"
    queue.pause(scope="default")
    assert held_back(cli, second)[1] == "paused (all kinds in its scope)"
    queue.resume(scope="default")
    lease.complete()
    assert [line.split()[0] for line in held_back(cli, second)] == ["paused", "rate"]
    queue.resume("mail:")
    queue.unset("rate", "mail:send")
    assert held_back(cli, second) == []


@pytest.mark.usefixtures("filled")
def test_stats_of_one_scope_say_that_there_are_others(cli: Cli, queue: Queue) -> None:
    """In a line at the end; not where all are counted, or there is no other (issue 8)."""
    hint = "Other scopes have jobs, too: see `scopes`, or give --all-scopes."
    assert cli.done("stats").splitlines()[-1] == cli.done("stats", "--system").splitlines()[-1] == hint
    assert hint not in cli.done("stats", "--all-scopes")
    for job in queue.list(scope=ANY):
        if job.scope != "default":
            queue.cancel(job.job_id)
            queue.remove(job.job_id)
    assert hint not in cli.done("stats")
    assert hint in cli.done("stats", "--scope", "acme")


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "ls", "--kind"],
        ["dead", "ls", "--kind"],
        ["jobs", "purge", "--state", "dead", "--yes", "--kind"],
        ["pause", "--kind"],
    ],
    ids=" ".join,
)
def test_a_star_is_no_pattern(cli: Cli, words: list[str]) -> None:
    """It would take nothing, in silence: wrong usage, with what was meant (§9, issue 8)."""
    for text, meant in (
        ("mail:*", "mail: is every kind that begins so"),
        ("mail*", "mail: is every kind that begins so"),
        ("*", "without it every kind is meant"),
    ):
        outcome = cli(*words, text)
        assert (outcome.status, outcome.out) == (2, "")
        assert f"{text!r} is no pattern that is known here: {meant}" in outcome.err
    assert not cli.path.exists()


@pytest.mark.parametrize("words", [["enqueue"], ["schedule", "add", "nightly", "@daily"]], ids=" ".join)
def test_no_job_is_made_of_a_pattern(cli: Cli, words: list[str]) -> None:
    """No worker would ever take it up by its prefix; nothing is made (§9, issue 8)."""
    outcome = cli(*words, "mail:*")
    assert (outcome.status, outcome.out) == (2, "")
    assert "'mail:*' looks like a pattern; a job has one kind, such as mail:send" in outcome.err
    assert not cli.path.exists()
